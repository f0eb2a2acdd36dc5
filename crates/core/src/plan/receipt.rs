//! Receipts: proof of one admission, needed to give it back.

use crate::decision::PlanDecision;
use crate::key::Subject;
use crate::limit::Limit;
use crate::plan::Plan;
use crate::plan::operation::{Mark, Operation, Token};
use crate::time::{EXACT_MAX, Time};

const VERSION: u8 = 1;

/// Proof of one admission under one rule. Opaque to callers.
///
/// Its bytes are: version, mark kind, length of the rule id, then as 64-bit little-endian words the version of the
/// rules, tag (2 words), subject (2 words), cost and the mark's three words, then the rule id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// Id of the rule that admitted the request.
    pub rule: String,
    /// Version of the rule set that was in force.
    pub rules_version: u64,
    /// The hash tag of the key.
    pub tag: Subject,
    /// The subject that was charged.
    pub subject: Subject,
    /// Where the charge was recorded.
    pub mark: Mark,
    /// Units charged.
    pub cost: u64,
}

/// The bytes are not a receipt of this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid receipt: {0}")]
pub struct ReceiptError(&'static str);

impl Receipt {
    /// Returns the receipts of an allowed check: one for each item that recorded a charge.
    pub fn of(plan: &Plan<'_>, decision: &PlanDecision, rules_version: u64) -> Vec<Receipt> {
        let charged = plan.items().iter().zip(&decision.rules).filter(|_| decision.allowed);
        charged
            .filter_map(|(item, rule)| {
                let mark = rule.numbers.map(|numbers| numbers.mark).filter(|&mark| mark != Mark::None)?;
                Some(Receipt {
                    rule: item.key.keyspace().rule().to_owned(),
                    rules_version,
                    tag: item.key.tag(),
                    subject: item.key.subject(),
                    mark,
                    cost: rule.cost,
                })
            })
            .collect()
    }

    /// Returns the operation that gives the charge back: release of a lease, cancellation of a reservation, or refund.
    pub const fn undo(&self, limit: &Limit) -> Operation {
        self.mark.undo(self.cost, limit)
    }

    /// Returns the token of its lease or reservation, if it has one.
    pub const fn token(&self) -> Option<Token> {
        match self.mark {
            Mark::Held { token, .. } => Some(token),
            _ => None,
        }
    }

    /// Encodes it as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, words) = match self.mark {
            Mark::None => (0, [0, 0, 0]),
            Mark::Window { start } => (1, [start.us(), 0, 0]),
            Mark::At { time } => (2, [time.us(), 0, 0]),
            Mark::Held { token, until } => (3, [until.us(), (token.0 >> 64) as u64, token.0 as u64]),
            Mark::Counter => (4, [0, 0, 0]),
        };
        let (tag, subject) = (self.tag.to_u128(), self.subject.to_u128());
        let head = [
            self.rules_version,
            (tag >> 64) as u64,
            tag as u64,
            (subject >> 64) as u64,
            subject as u64,
            self.cost,
        ];
        // A rule id is at most 64 bytes long (see `Keyspace::new`).
        let mut bytes = vec![VERSION, kind, self.rule.len() as u8];
        head.iter().chain(&words).for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes.extend_from_slice(self.rule.as_bytes());
        bytes
    }

    /// Decodes bytes from an untrusted source.
    pub fn decode(bytes: &[u8]) -> Result<Receipt, ReceiptError> {
        let [VERSION, kind, rule_len, rest @ ..] = bytes else {
            return Err(ReceiptError("too short, or unsupported version"));
        };
        let Some((words, rule)) = rest.split_at_checked(9 * 8) else {
            return Err(ReceiptError("too short"));
        };
        if rule.len() != usize::from(*rule_len) {
            return Err(ReceiptError("wrong length"));
        }
        let rule = std::str::from_utf8(rule).map_err(|_| ReceiptError("rule id is not UTF-8"))?;
        let word = |index: usize| {
            words[index * 8..][..8].iter().rev().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte))
        };
        let wide = |index: usize| u128::from(word(index)) << 64 | u128::from(word(index + 1));
        let exact = |index: usize| Some(word(index)).filter(|&number| number <= EXACT_MAX);
        let (Some(cost), Some(instant)) = (exact(5), exact(6)) else {
            return Err(ReceiptError("number out of range"));
        };
        let mark = match kind {
            0 => Mark::None,
            1 => Mark::Window { start: Time::from_us(instant) },
            2 => Mark::At { time: Time::from_us(instant) },
            3 => Mark::Held { token: Token(wide(7)), until: Time::from_us(instant) },
            4 => Mark::Counter,
            _ => return Err(ReceiptError("unknown kind of mark")),
        };
        Ok(Receipt {
            rule: rule.to_owned(),
            rules_version: word(0),
            tag: Subject::from_u128(wide(1)),
            subject: Subject::from_u128(wide(3)),
            mark,
            cost,
        })
    }
}
