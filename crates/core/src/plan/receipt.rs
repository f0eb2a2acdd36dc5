//! Receipts: proof of one admission, needed to give it back.

use std::fmt;

use crate::key::{Keyspace, KeyspaceError, Subject};
use crate::limit::Limit;
use crate::plan::operation::{Mark, Operation, Token};
use crate::plan::recording::Recording;
use crate::time::{EXACT_MAX, Span, Time};

/// Default time for which a receipt can be used, and for which a store remembers its return.
pub const RECEIPT_LIFE_DEFAULT: Span = Span::from_secs(3_600);

const VERSION: u8 = 2;
/// In the byte with the kind of the mark: the rule sets the cost itself.
const FIXED_COST: u8 = 0x80;
/// In the same byte: the rule cannot refuse.
const SHADOW: u8 = 0x40;
/// Version, kind of the mark, algorithm, number of the limit's words, lengths of namespace and rule id.
const HEAD: usize = 6;
/// Words before those of the limit: tag, subject and nonce (2 words each), time of the charge, cost, mark (3 words).
const WORDS: usize = 11;

/// Proof of one admission under one rule. Opaque to callers.
///
/// It carries the numbers that charged, so it is worth the same whatever rules and overrides are in force when it comes
/// back. Its bytes are a head of single bytes (version, kind of the mark, algorithm, number of the limit's words, lengths
/// of namespace and rule id; the highest bits of the second byte are flags), then 64-bit little-endian words (tag, subject, nonce, time of the charge, cost, mark,
/// limit), then namespace and rule id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// The namespace of the rule set.
    pub namespace: String,
    /// Id of the rule that admitted the request.
    pub rule: String,
    /// The hash tag of the key.
    pub tag: Subject,
    /// The subject that was charged.
    pub subject: Subject,
    /// The limit that charged, with overrides.
    pub limit: Limit,
    /// Where the charge was recorded.
    pub mark: Mark,
    /// The store's time of the charge.
    pub charged_at: Time,
    /// Units charged.
    pub cost: u64,
    /// Whether the rule sets the cost itself, so that the actual cost of a reservation does not change it.
    pub fixed_cost: bool,
    /// Whether the rule can refuse. A shadow rule cannot.
    pub blocking: bool,
    /// How the ledger records what follows the charge. `None` if it does not.
    pub ledger: Option<Recording>,
    /// Identifies the charge: all receipts for one charge have the same nonce.
    pub nonce: Nonce,
}

/// A number that is unique to one admission.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nonce(pub u128);

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The bytes are not a receipt of this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid receipt: {0}")]
pub struct ReceiptError(&'static str);

impl Receipt {
    /// Returns the operation that gives back up to `amount` units of the charge: release of a lease, cancellation of a
    /// reservation, or refund. A lease and a reservation are given back whole.
    pub const fn undo(&self, amount: u64) -> Operation {
        self.mark.undo_partial(self.cost, amount, &self.limit)
    }

    /// Returns the keyspace of its rule, which need not exist any more.
    pub fn keyspace(&self) -> Result<Keyspace, KeyspaceError> {
        Keyspace::new(&self.namespace, &self.rule)
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
        let (kind, mark) = self.mark.to_words();
        let fixed_cost = if self.fixed_cost { FIXED_COST } else { 0 };
        let kind = kind | fixed_cost | if self.blocking { 0 } else { SHADOW };
        let kind = kind | Recording::to_flags(self.ledger);
        let (algorithm, limit) = self.limit.to_words();
        // Namespace and rule id are at most 64 bytes long (see `Keyspace::new`).
        let (namespace, rule) = (self.namespace.as_bytes(), self.rule.as_bytes());
        let mut bytes =
            vec![VERSION, kind, algorithm, limit.len() as u8, namespace.len() as u8, rule.len() as u8];
        let wide = [self.tag.to_u128(), self.subject.to_u128(), self.nonce.0];
        let wide = wide.into_iter().flat_map(|number| [(number >> 64) as u64, number as u64]);
        let words = wide.chain([self.charged_at.us(), self.cost]).chain(mark).chain(limit);
        words.for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes.extend_from_slice(namespace);
        bytes.extend_from_slice(rule);
        bytes
    }

    /// Decodes bytes from an untrusted source.
    pub fn decode(bytes: &[u8]) -> Result<Receipt, ReceiptError> {
        let Some(([version, kind, algorithm, limit_words, namespace_len, rule_len], rest)) =
            bytes.split_first_chunk::<HEAD>()
        else {
            return Err(ReceiptError("too short"));
        };
        if *version != VERSION {
            return Err(ReceiptError("unsupported version"));
        }
        let (limit_words, namespace_len) = (usize::from(*limit_words), usize::from(*namespace_len));
        let length = (WORDS + limit_words) * 8 + namespace_len + usize::from(*rule_len);
        if rest.len() != length {
            return Err(ReceiptError("wrong length"));
        }
        let (words, names) = rest.split_at((WORDS + limit_words) * 8);
        let names = std::str::from_utf8(names).map_err(|_| ReceiptError("name is not UTF-8"))?;
        let (namespace, rule) =
            names.split_at_checked(namespace_len).ok_or(ReceiptError("name is not UTF-8"))?;
        let words: Vec<u64> = words.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let wide = |index: usize| u128::from(words[index]) << 64 | u128::from(words[index + 1]);
        let (charged_at, cost, mark) = (words[6], words[7], [words[8], words[9], words[10]]);
        if [charged_at, cost, mark[0]].into_iter().any(|number| number > EXACT_MAX) {
            return Err(ReceiptError("number out of range"));
        }
        Ok(Receipt {
            namespace: namespace.to_owned(),
            rule: rule.to_owned(),
            tag: Subject::from_u128(wide(0)),
            subject: Subject::from_u128(wide(2)),
            limit: Limit::from_words(*algorithm, &words[WORDS..]).ok_or(ReceiptError("invalid limit"))?,
            mark: Mark::from_words(*kind & !(FIXED_COST | SHADOW | Recording::FLAGS), mark)
                .ok_or(ReceiptError("unknown kind of mark"))?,
            charged_at: Time::from_us(charged_at),
            cost,
            fixed_cost: *kind & FIXED_COST != 0,
            blocking: *kind & SHADOW == 0,
            ledger: Recording::from_flags(*kind),
            nonce: Nonce(wide(4)),
        })
    }
}
