//! The name of a request that may be sent more than once and is to be charged once.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::key::Subject;
use crate::operation::{Operation, Report};
use crate::plan::Item;
use crate::time::Span;

/// How long an id is remembered unless told otherwise.
pub const HORIZON_DEFAULT: Span = Span::from_secs(60);

/// A caller's id for one request, bound to what the request asks for.
///
/// A store that has booked a Plan under an id answers the same id in the same way for `horizon`, and books nothing again.
/// The same id for anything else is an error. Only what was booked is remembered: a refusal may be asked again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestId {
    /// The caller's id, hashed like a subject.
    pub id: Subject,
    /// How long it is remembered.
    pub horizon: Span,
    /// Tells what is asked for from anything else: version of the rules, keys, operations and costs.
    pub content: u128,
}

impl RequestId {
    /// Binds `id` to these items under this version of the rules.
    pub(crate) fn new(id: Subject, horizon: Span, rules_version: u64, items: &[Item<'_>]) -> RequestId {
        // No secret: the digest never leaves the store, and who holds the id could send anything under it anyway.
        let mut hasher = SipHasher24::new();
        hasher.write_u64(rules_version);
        for item in items {
            let (kind, amount) = asked(&item.operation);
            hasher.write_u128(item.key.fingerprint());
            hasher.write_u8(kind);
            hasher.write_u64(amount);
        }
        RequestId { id, horizon, content: hasher.finish128().as_u128() }
    }
}

/// Which operation, and for how much. Tokens are left out: they are made anew for every attempt.
const fn asked(operation: &Operation) -> (u8, u64) {
    match *operation {
        Operation::Charge { cost, .. } => (0, cost),
        Operation::Peek { cost } => (1, cost),
        Operation::Refund { cost, .. } => (2, cost),
        Operation::Renew { .. } => (3, 0),
        Operation::Release { .. } => (4, 0),
        Operation::Reserve { cost, .. } => (5, cost),
        Operation::Settle { actual, .. } => (6, actual),
        Operation::Cancel { .. } => (7, 0),
        Operation::Report { result: Report::Failure } => (8, 0),
        Operation::Report { result: Report::Success } => (9, 0),
        Operation::Reset => (10, 0),
    }
}
