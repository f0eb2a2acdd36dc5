//! What a scan has counted, in a form for people and programs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Rules of which keys are counted; keys of the others count in the sums only.
const RULES_MAX: usize = 1_024;

/// The keys of the namespace that a scan saw.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct KeyCounts {
    pub(crate) keys: u64,
    /// `None` if the user may not ask for the memory of a key.
    pub(crate) bytes: Option<u64>,
    /// All keys that the scan passed, those of other programs included.
    pub(crate) scanned: u64,
    /// Keys that the servers have, those of other programs included.
    pub(crate) total: u64,
    /// Whether the scan ended before it had seen all keys.
    #[serde(rename = "sample")]
    pub(crate) is_sample: bool,
    /// `None` if the user may not ask for the expiry of a key.
    pub(crate) without_ttl: Option<u64>,
    pub(crate) oversized: Option<u64>,
    /// By rule, or by the kind of other keys. Those with the most memory come first.
    pub(crate) by_rule: Vec<RuleKeys>,
}

/// The keys of one rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RuleKeys {
    pub(crate) rule: String,
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
}

/// A key that is used often.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct HotKey {
    pub(crate) key: String,
    pub(crate) rule: Option<String>,
    /// Writes per second, estimated from samples; `None` if the server counts accesses.
    pub(crate) per_second: Option<u64>,
    /// The server's logarithmic counter of accesses, from 0 to 255; `None` without an LFU policy.
    pub(crate) frequency: Option<u64>,
}

impl KeyCounts {
    /// How the findings are labelled.
    pub(super) fn label(&self) -> String {
        if self.is_sample {
            format!("a sample of {} of about {} keys", self.scanned, self.total)
        } else {
            format!("{} keys", self.keys)
        }
    }

    /// The number of keys in the whole store for this number in the scan: the same, unless the scan saw a part.
    pub(crate) fn extrapolated(&self, keys: u64) -> u64 {
        match self.scanned {
            scanned if self.is_sample && scanned > 0 => {
                let extrapolated = u128::from(keys) * u128::from(self.total) / u128::from(scanned);
                u64::try_from(extrapolated).unwrap_or(u64::MAX)
            }
            _ => keys,
        }
    }
}

/// Keys and bytes by rule.
#[derive(Default)]
pub(super) struct Tally(BTreeMap<String, (u64, u64)>);

impl Tally {
    pub(super) fn add(&mut self, rule: &str, bytes: u64) {
        if let Some((keys, sum)) = self.0.get_mut(rule) {
            *keys += 1;
            *sum += bytes;
        } else if self.0.len() < RULES_MAX {
            self.0.insert(rule.to_owned(), (1, bytes));
        }
    }

    pub(super) fn into_list(self) -> Vec<RuleKeys> {
        let mut list: Vec<RuleKeys> =
            self.0.into_iter().map(|(rule, (keys, bytes))| RuleKeys { rule, keys, bytes }).collect();
        list.sort_by_key(|rule| std::cmp::Reverse((rule.bytes, rule.keys)));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_sample_are_extrapolated_and_others_are_not() {
        let whole = KeyCounts { scanned: 10, total: 10, ..KeyCounts::default() };
        assert_eq!(whole.extrapolated(7), 7);
        let sample = KeyCounts { scanned: 10, total: 1_000, is_sample: true, ..KeyCounts::default() };
        assert_eq!(sample.extrapolated(7), 700);
        let nothing = KeyCounts { is_sample: true, ..KeyCounts::default() };
        assert_eq!(nothing.extrapolated(0), 0);
    }

    #[test]
    fn the_rule_with_the_most_memory_comes_first() {
        let mut tally = Tally::default();
        [("a", 10), ("b", 30), ("a", 10)].into_iter().for_each(|(rule, bytes)| tally.add(rule, bytes));
        let list = tally.into_list();
        let of = |rule: &str, keys, bytes| RuleKeys { rule: rule.to_owned(), keys, bytes };
        assert_eq!(list, [of("b", 1, 30), of("a", 2, 20)]);
    }
}
