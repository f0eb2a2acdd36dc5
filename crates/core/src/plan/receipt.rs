//! What an admission hands out so that it can be taken back.

use crate::decision::PlanDecision;
use crate::key::Subject;
use crate::limit::Limit;
use crate::plan::Plan;
use crate::plan::operation::{Mark, Operation, Token};
use crate::time::{EXACT_MAX, Time};

const VERSION: u8 = 1;

/// Proof of one admission under one rule, opaque to whoever holds it.
///
/// Its bytes are: version, mark kind, length of the rule id, then as 64-bit little-endian words the version of the
/// rules, tag (2 words), subject (2 words), cost and the mark's three words, then the rule id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// The rule that admitted it.
    pub rule: String,
    /// The version of the rule set in force then.
    pub rules_version: u64,
    /// What decides the key's slot.
    pub tag: Subject,
    /// Who was charged.
    pub subject: Subject,
    /// Where it was booked.
    pub mark: Mark,
    /// How much it took.
    pub cost: u64,
}

/// Bytes that are no receipt of this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this is no receipt: {0}")]
pub struct ReceiptError(&'static str);

impl Receipt {
    /// The receipts of an admitted check: one for each rule that booked something and enforces it.
    pub fn of(plan: &Plan<'_>, decision: &PlanDecision, rules_version: u64) -> Vec<Receipt> {
        let booked = plan.items().iter().zip(&decision.rules).filter(|_| decision.allowed);
        booked
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

    /// The operation that gives it back to `limit`: release of a lease, cancel of a reservation, or refund.
    pub const fn undo(&self, limit: &Limit) -> Operation {
        self.mark.undo(self.cost, limit)
    }

    /// The token, if it is held under one.
    pub const fn token(&self) -> Option<Token> {
        match self.mark {
            Mark::Held { token, .. } => Some(token),
            _ => None,
        }
    }

    /// As bytes.
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

    /// From bytes that anybody may have sent.
    pub fn decode(bytes: &[u8]) -> Result<Receipt, ReceiptError> {
        let [VERSION, kind, rule_len, rest @ ..] = bytes else {
            return Err(ReceiptError("it is too short or of another version"));
        };
        let Some((words, rule)) = rest.split_at_checked(9 * 8) else {
            return Err(ReceiptError("it is too short"));
        };
        if rule.len() != usize::from(*rule_len) {
            return Err(ReceiptError("its length is wrong"));
        }
        let rule = std::str::from_utf8(rule).map_err(|_| ReceiptError("its rule id is not text"))?;
        let word = |index: usize| {
            words[index * 8..][..8].iter().rev().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte))
        };
        let wide = |index: usize| u128::from(word(index)) << 64 | u128::from(word(index + 1));
        let exact = |index: usize| Some(word(index)).filter(|&number| number <= EXACT_MAX);
        let (Some(cost), Some(instant)) = (exact(5), exact(6)) else {
            return Err(ReceiptError("a number is out of range"));
        };
        let mark = match kind {
            0 => Mark::None,
            1 => Mark::Window { start: Time::from_us(instant) },
            2 => Mark::At { time: Time::from_us(instant) },
            3 => Mark::Held { token: Token(wide(7)), until: Time::from_us(instant) },
            4 => Mark::Counter,
            _ => return Err(ReceiptError("its kind is not known")),
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
