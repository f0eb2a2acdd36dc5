//! What the load asks, under which rules, and what it is answered.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::redis::Value;
use crate::redis::admin::resp::command;
use crate::servers::random::Random;

/// The namespace of the keys in the store.
pub(super) const NAMESPACE: &str = "chaos";
/// The limit per subject of most rules.
pub(super) const LIMIT: u64 = 20;
/// The smaller limit of the two rules that are charged together.
pub(super) const LIMIT_SMALLER: u64 = 15;
/// The limit of the rule whose checks have request ids. It is never reached.
pub(super) const LIMIT_IDS: u64 = 1_000_000;
/// A quarter of [`LIMIT`].
pub(super) const SHARE: u64 = 5;
/// Capacity, and units per second, of the cap of a rule and of the bucket of the hot key.
pub(super) const PER_SECOND: u64 = 20;
/// The other value of [`LIMIT`] in a rules file that changes.
pub(super) const LIMIT_OTHER: u64 = 25;
/// Units per subject and window of the rule for invented addresses.
pub(super) const HOSTILE_LIMIT: u64 = 5;

/// The rules of the servers. One class of checks per failure policy, and those of two rules, one hot key, and request ids.
pub(super) fn rules(closed: u64, subjects_max: u64) -> String {
    format!(
        "version: 1
namespace: {NAMESPACE}
rules:
  - {{ id: closed, match: {{ class: closed }}, per: user, limit: {{ fixed-window: {closed}/30d }} }}
  - {{ id: open, match: {{ class: open }}, per: user, limit: {{ fixed-window: {LIMIT}/30d }}, on_failure: open }}
  - {{ id: local, match: {{ class: local }}, per: user, limit: {{ fixed-window: {LIMIT}/30d }}, on_failure: local 25% }}
  - {{ id: cap, match: {{ class: cap }}, per: user, limit: {{ fixed-window: {LIMIT}/30d }}, on_failure: cap {PER_SECOND}/s }}
  - {{ id: several-a, match: {{ class: several }}, per: user, limit: {{ fixed-window: {LIMIT}/30d }} }}
  - {{ id: several-b, match: {{ class: several }}, per: user, limit: {{ fixed-window: {LIMIT_SMALLER}/30d }} }}
  - {{ id: hot, match: {{ class: hot }}, per: user, limit: {{ token-bucket: {PER_SECOND}/s }} }}
  - {{ id: ids, match: {{ class: ids }}, per: user, limit: {{ fixed-window: {LIMIT_IDS}/30d }} }}
  - {{ id: hostile, match: {{ class: hostile }}, per: ip, limit: {{ fixed-window: {HOSTILE_LIMIT}/10s }}, ip_subjects_max: {subjects_max} }}
"
    )
}

/// A kind of check, with its own rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Class {
    Closed,
    Open,
    Local,
    Cap,
    Several,
    Hot,
    Ids,
}

impl Class {
    pub(super) const ALL: [Class; 7] =
        [Class::Closed, Class::Open, Class::Local, Class::Cap, Class::Several, Class::Hot, Class::Ids];

    /// Returns a class: 5 % have several rules, 1 % are for the hot key.
    pub(super) fn random(random: &mut Random) -> Class {
        match random.below(100) {
            0 => Class::Hot,
            1..6 => Class::Several,
            6..16 => Class::Open,
            16..26 => Class::Local,
            26..36 => Class::Cap,
            36..46 => Class::Ids,
            _ => Class::Closed,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Class::Closed => "closed",
            Class::Open => "open",
            Class::Local => "local",
            Class::Cap => "cap",
            Class::Several => "several",
            Class::Hot => "hot",
            Class::Ids => "ids",
        }
    }

    /// Returns the rules with a window that count its checks, with their limits. All of them are charged, or none.
    pub(super) const fn windows(self) -> &'static [(&'static str, u64)] {
        match self {
            Class::Closed => &[("closed", LIMIT)],
            Class::Open => &[("open", LIMIT)],
            Class::Local => &[("local", LIMIT)],
            Class::Cap => &[("cap", LIMIT)],
            Class::Several => &[("several-a", LIMIT), ("several-b", LIMIT_SMALLER)],
            Class::Ids => &[("ids", LIMIT_IDS)],
            // It has a bucket.
            Class::Hot => &[],
        }
    }

    /// Returns the most that a subject is admitted.
    pub(super) fn most(self) -> u64 {
        self.windows().iter().map(|(_, limit)| *limit).min().unwrap_or(u64::MAX)
    }
}

/// A check to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Check {
    pub(super) class: Class,
    pub(super) user: u32,
    /// The request id. A repetition has the same one.
    pub(super) id: Option<u64>,
    pub(super) is_repetition: bool,
}

impl Check {
    /// Appends the command. Users of another `seed` are other subjects.
    pub(super) fn write(&self, seed: u64, bytes: &mut Vec<u8>) {
        let (user, id) = (user_name(seed, self.user), self.id.map(|id| format!("{seed}-{id}")));
        let mut words = vec!["TG.CHECK", "class", self.class.name(), "user", &user];
        if let Some(id) = &id {
            words.extend(["ID", id]);
        }
        let words: Vec<&[u8]> = words.into_iter().map(str::as_bytes).collect();
        bytes.extend(command(&words));
    }
}

pub(super) fn user_name(seed: u64, user: u32) -> String {
    format!("{seed}-{user}")
}

/// What a check was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// The store decided.
    Store { allowed: bool },
    /// The server repeated a refusal of the store.
    Remembered,
    /// A failure policy answered.
    Policy { allowed: bool, degraded: bool },
    /// The server refused to ask, because too much is in flight.
    Overloaded,
    /// Another error.
    Error,
    /// The connection ended before an answer.
    Lost,
    /// No server could be reached.
    Unsent,
}

impl Answer {
    /// Reads a reply to `TG.CHECK`.
    pub(super) fn of(reply: &Value) -> Answer {
        let fields = match reply {
            Value::Error(text) if text.starts_with("OVERLOADED") => return Answer::Overloaded,
            Value::Array(fields) => fields,
            _ => return Answer::Error,
        };
        let field = |name: &[u8]| {
            fields.chunks(2).find_map(|pair| match pair {
                [Value::Bulk(found), value] if found == name => Some(value),
                _ => None,
            })
        };
        let is_one = |name| field(name) == Some(&Value::Integer(1));
        let (allowed, degraded) = (is_one(b"allowed"), is_one(b"degraded"));
        match field(b"source") {
            Some(Value::Bulk(source)) => match source.as_slice() {
                b"store" => Answer::Store { allowed },
                b"memory" if !allowed => Answer::Remembered,
                b"fallback" => Answer::Policy { allowed, degraded },
                _ => Answer::Error,
            },
            _ => Answer::Error,
        }
    }

    /// Whether the store may have charged the check, although it is not known to have admitted it.
    pub(super) const fn may_be_charged(self) -> bool {
        matches!(self, Answer::Policy { .. } | Answer::Error | Answer::Lost)
    }

    pub(super) const fn is_admitted_by_store(self) -> bool {
        matches!(self, Answer::Store { allowed: true })
    }
}

/// A check and its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) check: Check,
    /// The number of the server, and of its process.
    pub(super) server: u32,
    pub(super) life: u32,
    /// When it should have been sent.
    pub(super) due: Instant,
    pub(super) sent: Instant,
    pub(super) done: Instant,
    pub(super) answer: Answer,
}

/// Converts instants to the clock that Redis reads on this machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct WallClock {
    began: Instant,
    began_us: u64,
}

impl WallClock {
    pub(super) fn start() -> WallClock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        WallClock { began: Instant::now(), began_us: since }
    }

    pub(super) fn us(&self, instant: Instant) -> u64 {
        self.began_us + instant.saturating_duration_since(self.began).as_micros() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart_by_their_source() {
        let reply = |allowed: i64, source: &str, degraded: i64| {
            Value::Array(vec![
                Value::Bulk(b"allowed".to_vec()),
                Value::Integer(allowed),
                Value::Bulk(b"source".to_vec()),
                Value::Bulk(source.into()),
                Value::Bulk(b"degraded".to_vec()),
                Value::Integer(degraded),
            ])
        };
        let cases = [
            (reply(1, "store", 0), Answer::Store { allowed: true }),
            (reply(0, "store", 0), Answer::Store { allowed: false }),
            (reply(0, "memory", 0), Answer::Remembered),
            (reply(1, "memory", 0), Answer::Error),
            (reply(1, "fallback", 1), Answer::Policy { allowed: true, degraded: true }),
            (reply(0, "fallback", 0), Answer::Policy { allowed: false, degraded: false }),
            (Value::Error("OVERLOADED too many".into()), Answer::Overloaded),
            (Value::Error("ERR no".into()), Answer::Error),
        ];
        for (reply, answer) in cases {
            assert_eq!(Answer::of(&reply), answer, "{reply:?}");
        }
    }
}
