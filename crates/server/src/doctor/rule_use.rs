//! When each rule matched a request last, in days. Servers note it in the store, so that it survives restarts and covers all
//! servers that share the store.

use std::collections::BTreeMap;
use std::fmt;

use tollgate::core::rules::RuleSet;
use tollgate::store::redis::RedisStore;
use tollgate::{Clock, SystemClock};

use super::{Finding, Patient};
use crate::failure::error_chain;
use crate::serve::fleet;

pub(super) const CHECK: &str = "rules-unmatched";
/// A rule is reported after this many days without a match.
const DAYS_UNMATCHED: u32 = 7;
/// A rule that no server has is forgotten after this many days. A rollout is shorter.
const DAYS_KEPT: u32 = 8;
/// Rules that are remembered.
const RULES_MAX: usize = 4_096;
/// Rules that a finding names.
const NAMED_MAX: usize = 5;
const READ: &str = "return redis.call('GET', KEYS[1]) or ''";
/// Replaces the value unless another server has done so meanwhile.
const REPLACE: &str = "if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return '0' end \
     redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) return '1'";
const TTL_MS: u64 = 31 * 86_400_000;
/// Attempts of one note. Servers note rarely, so they seldom meet.
const ATTEMPTS: usize = 3;

/// The days of one rule, since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Days {
    first_known: u32,
    last_known: u32,
    /// 0: never.
    matched: u32,
}

/// The days of all rules. As text, each rule has a line: its id and the three numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RuleUse(BTreeMap<String, Days>);

impl RuleUse {
    fn parse(text: &str) -> RuleUse {
        let line = |line: &str| {
            let mut words = line.split(' ');
            let rule = words.next()?.to_owned();
            let mut day = || words.next()?.parse().ok();
            Some((rule, Days { first_known: day()?, last_known: day()?, matched: day()? }))
        };
        RuleUse(text.lines().filter_map(line).take(RULES_MAX).collect())
    }

    /// Notes that a server has these rules today, and which of them have matched.
    fn note<'r>(&mut self, rules: impl IntoIterator<Item = (&'r str, bool)>, today: u32) {
        for (rule, is_matched) in rules {
            let known = self.0.len();
            let days = match self.0.get_mut(rule) {
                Some(days) => days,
                None if known >= RULES_MAX => continue,
                None => {
                    let new = Days { first_known: today, last_known: today, matched: 0 };
                    self.0.entry(rule.to_owned()).or_insert(new)
                }
            };
            days.last_known = today;
            if is_matched {
                days.matched = today;
            }
        }
        self.0.retain(|_, days| days.last_known.saturating_add(DAYS_KEPT) > today);
    }

    /// The rules that have been known for a week and were not matched within it.
    fn unmatched<'r>(&self, rules: impl IntoIterator<Item = &'r str>, today: u32) -> Vec<&'r str> {
        let is_unmatched = |rule: &&str| {
            let days = self.0.get(*rule);
            days.is_some_and(|days| days.first_known.max(days.matched).saturating_add(DAYS_UNMATCHED) < today)
        };
        rules.into_iter().filter(is_unmatched).collect()
    }

    /// For how many days the oldest of these rules has been known; `None` if none is.
    fn known_for<'r>(&self, rules: impl IntoIterator<Item = &'r str>, today: u32) -> Option<u32> {
        let days = rules.into_iter().filter_map(|rule| self.0.get(rule));
        days.map(|days| today.saturating_sub(days.first_known)).max()
    }
}

impl fmt::Display for RuleUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(rule, Days { first_known, last_known, matched })| {
            writeln!(f, "{rule} {first_known} {last_known} {matched}")
        })
    }
}

/// The only place where the key is written as a string.
fn key(namespace: &str) -> String {
    format!("tg:1:{namespace}:{{doctor}}:@rule-use")
}

fn today() -> u32 {
    u32::try_from(SystemClock.now().us() / 86_400_000_000).unwrap_or(u32::MAX)
}

fn ids(rules: &RuleSet) -> impl Iterator<Item = &str> {
    rules.rules().iter().map(|rule| rule.keyspace.rule())
}

/// Notes in the store which rules a server has, and which of them have matched since its last note.
pub(crate) async fn note(store: &RedisStore, rules: &RuleSet, matched: &[String]) -> anyhow::Result<()> {
    let key = key(&fleet::namespace(rules));
    for _ in 0..ATTEMPTS {
        let before = store.eval_on_key_owner(READ, &key, &[]).await?.unwrap_or_default();
        let mut noted = RuleUse::parse(&before);
        noted.note(ids(rules).map(|rule| (rule, matched.iter().any(|matched| matched == rule))), today());
        let after = noted.to_string();
        if after == before {
            return Ok(());
        }
        let ttl = TTL_MS.to_string();
        if store.eval_on_key_owner(REPLACE, &key, &[&before, &after, &ttl]).await?.as_deref() == Some("1") {
            return Ok(());
        }
    }
    // Another server noted meanwhile, several times; this one notes the rest the next time.
    Ok(())
}

/// Finds the rules that no request has matched for a week.
pub(super) async fn examine(store: &RedisStore, patient: &Patient<'_>) -> Finding {
    let rules = patient.rules;
    let noted = match store.eval_on_key_owner(READ, &key(&fleet::namespace(rules)), &[]).await {
        Ok(noted) => RuleUse::parse(&noted.unwrap_or_default()),
        Err(error) => return Finding::skip(CHECK, format!("the store did not say: {}", error_chain(&error))),
    };
    let today = today();
    let Some(days) = noted.known_for(ids(rules), today) else {
        return Finding::skip(CHECK, "no server has noted yet which rules match");
    };
    let unmatched = noted.unmatched(ids(rules), today);
    if unmatched.is_empty() {
        return Finding::pass(
            CHECK,
            match days {
                0..=DAYS_UNMATCHED => format!("servers have noted for {days} days which rules match"),
                _ => "every rule that servers have had for a week has matched a request within it".to_owned(),
            },
        );
    }
    let named = unmatched.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    Finding::warn(
        CHECK,
        format!("{} rules have matched no request for a week, such as {named}", unmatched.len()),
        "`tollgate explain` shows which rules a request matches; correct `match` and `per`, or remove the rule",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: [&str; 2] = ["a", "b"];

    #[test]
    fn a_rule_is_unmatched_after_a_week_without_a_match() {
        let mut noted = RuleUse::default();
        noted.note([("a", false), ("b", true)], 100);
        assert_eq!(noted.unmatched(RULES, 107), [""; 0]);
        assert_eq!(noted.unmatched(RULES, 108), ["a", "b"]);
        noted.note([("a", false), ("b", true)], 105);
        assert_eq!(noted.unmatched(RULES, 108), ["a"]);
        assert_eq!(noted.known_for(RULES, 108), Some(8));
        noted.note([("a", true)], 108);
        assert_eq!(noted.unmatched(RULES, 112), [""; 0]);
    }

    #[test]
    fn a_rule_that_no_server_has_is_forgotten() {
        let mut noted = RuleUse::default();
        noted.note([("a", true), ("b", true)], 100);
        noted.note([("b", false)], 107);
        assert_eq!(noted.0.len(), 2);
        noted.note([("b", false)], 108);
        assert_eq!(noted.0.keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn the_text_is_read_back_and_broken_lines_are_left_out() {
        let mut noted = RuleUse::default();
        noted.note([("a", true), ("b", false)], 100);
        let text = noted.to_string();
        assert_eq!(text, "a 100 100 100\nb 100 100 0\n");
        assert_eq!(RuleUse::parse(&format!("{text}c 1\nd x 1 1\n\n")), noted);
    }
}
