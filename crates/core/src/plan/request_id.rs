//! Request ids, which make a Plan idempotent: the same id charges once, and gives back once.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::key::Subject;
use crate::plan::Item;
use crate::plan::answer::Decline;
use crate::plan::operation::{Mark, Operation, Report};
use crate::plan::receipt::Nonce;
use crate::time::{Span, Time};

/// Default time for which a store remembers an id.
pub const HORIZON_DEFAULT: Span = Span::from_secs(60);

/// Distinguishes the content of a settlement that recorded from that of a refund, whose answers have another form.
pub(crate) const RECORD: u128 = 1;

/// A caller's id for one request, or the id of one return, bound to the content of the Plan.
///
/// For `horizon` after it applied a Plan under an id, a store returns the same answer to the same id and applies nothing
/// again. The same id with other content is an error. Refusals are not remembered, so they can be retried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestId {
    /// The caller's id, hashed like a subject, and with the kind of the Plan if it records, credits or extends; or the
    /// hash of a receipt's nonce and key.
    pub id: Subject,
    /// How long a store remembers it.
    pub horizon: Span,
    /// Hash of the content: version of the rules, keys, operations, costs, marks and tokens.
    pub content: u128,
    /// The store's time of the charge, if the Plan gives a charge back.
    pub charged_at: Option<Time>,
}

impl RequestId {
    /// Binds `id` to these items under this version of the rules.
    pub(crate) fn new(id: Subject, horizon: Span, rules_version: u64, items: &[Item<'_>]) -> RequestId {
        // Unkeyed: the digest never leaves the store, and a caller could send any content under its id anyway.
        let mut hasher = SipHasher24::new();
        hasher.write_u64(rules_version);
        for item in items {
            hasher.write_u128(item.key.fingerprint());
            write_content(&mut hasher, &item.operation);
        }
        RequestId {
            id: id_of_kind(id, items),
            horizon,
            content: hasher.finish128().as_u128(),
            charged_at: None,
        }
    }

    /// Returns the id of the return of one charge. All receipts for one charge have the same id, whatever part of it
    /// they give back, and whatever rules are in force.
    pub(crate) fn of_return(
        nonce: Nonce,
        mark: Mark,
        charged_at: Time,
        life: Span,
        item: &Item<'_>,
    ) -> RequestId {
        // The kind of the Plan is part of the hash, so that no id of a check is the id of a return. Unkeyed, so that
        // the id stays the same when the hash key changes. A nonce is not secret.
        let mut hasher = SipHasher24::new();
        hasher.write(b"return");
        hasher.write_u128(nonce.0);
        hasher.write_u128(item.key.fingerprint());
        let id = Subject::from_u128(hasher.finish128().as_u128());
        if mark != Mark::None {
            write_mark(&mut hasher, mark);
        }
        let content = hasher.finish128().as_u128();
        let is_record = matches!(item.operation, Operation::Record { .. });
        let content = if is_record { content ^ RECORD } else { content };
        RequestId { id, horizon: life, content, charged_at: Some(charged_at) }
    }

    /// Returns why a return is declined at `now`, if it is. `reset_at` is the last reset of the key that the store
    /// remembers.
    pub fn decline(&self, now: Time, reset_at: Option<Time>) -> Option<Decline> {
        let charged_at = self.charged_at?;
        if charged_at.plus(self.horizon) <= now {
            return Some(Decline::ReceiptExpired);
        }
        reset_at.filter(|&reset_at| charged_at <= reset_at).map(|_| Decline::ResetSince)
    }

    /// Returns when a store may forget a Plan that it applied at `now`. No receipt outlives the memory of its return,
    /// even if the clock was set back between the charge and the return.
    pub fn forgotten_at(&self, now: Time) -> Time {
        self.charged_at.map_or(now, |charged_at| now.max(charged_at)).plus(self.horizon)
    }
}

/// Returns the id under which a store remembers these items. So a caller may use the id of a check again for the record
/// that follows it.
fn id_of_kind(id: Subject, items: &[Item<'_>]) -> Subject {
    let kind = items.iter().find_map(|item| match item.operation {
        Operation::Record { .. } | Operation::RecordIn { .. } => Some("record"),
        Operation::Credit { .. } => Some("credit"),
        Operation::Extend { .. } => Some("extend"),
        _ => None,
    });
    let Some(kind) = kind else { return id };
    let mut hasher = SipHasher24::new();
    hasher.write(kind.as_bytes());
    hasher.write_u128(id.to_u128());
    Subject::from_u128(hasher.finish128().as_u128())
}

/// Adds the kind of the operation, its amount, and its token or mark. A caller that retries must send the same token,
/// because the first attempt may have taken a lease under it.
fn write_content(hasher: &mut SipHasher24, operation: &Operation) {
    let (kind, amount, token) = match *operation {
        Operation::Charge { cost, token } => (0, cost, token.0),
        Operation::Peek { cost } => (1, cost, 0),
        Operation::Refund { amount, .. } => (2, amount, 0),
        Operation::Renew { token } => (3, 0, token.0),
        Operation::Release { token } => (4, 0, token.0),
        Operation::Reserve { cost, token, .. } => (5, cost, token.0),
        Operation::Settle { actual, token } => (6, actual, token.0),
        Operation::Cancel { token } => (7, 0, token.0),
        Operation::Report { result: Report::Failure } => (8, 0, 0),
        Operation::Report { result: Report::Success } => (9, 0, 0),
        Operation::Reset { .. } => (10, 0, 0),
        Operation::Record { cost } => (11, cost, 0),
        Operation::Credit { cost } => (12, cost, 0),
        Operation::Extend { token, more, .. } => (13, more, token.0),
        Operation::LeaveAtMost { remaining } => (14, remaining, 0),
        Operation::Usage => (15, 0, 0),
        Operation::RecordIn { cost, start } => (16, cost, start.us().into()),
        // The following never have a request id.
        Operation::Restore(_) => (17, 0, 0),
        Operation::Extra(_) => (18, 0, 0),
        Operation::Adjust(_) => (19, 0, 0),
    };
    hasher.write_u8(kind);
    hasher.write_u64(amount);
    hasher.write_u128(token);
    if let Operation::Refund { mark, .. } = *operation {
        write_mark(hasher, mark);
    }
}

fn write_mark(hasher: &mut SipHasher24, mark: Mark) {
    let (kind, [first, second, third]) = mark.to_words();
    hasher.write_u8(kind);
    hasher.write_u64(first);
    hasher.write_u64(second);
    hasher.write_u64(third);
}
