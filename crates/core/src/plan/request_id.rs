//! Request ids, which make a check idempotent: the same id charges once.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::key::Subject;
use crate::plan::Item;
use crate::plan::operation::{Operation, Report, Token};
use crate::time::Span;

/// Default time for which a store remembers an id.
pub const HORIZON_DEFAULT: Span = Span::from_secs(60);

/// A caller's id for one request, bound to the content of the request.
///
/// For `horizon` after it charged a Plan under an id, a store returns the same answer to the same id and charges nothing
/// again. The same id with other content is an error. Refusals are not remembered, so they can be retried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestId {
    /// The caller's id, hashed like a subject.
    pub id: Subject,
    /// How long a store remembers it.
    pub horizon: Span,
    /// Hash of the request's content: version of the rules, keys, operations, costs and tokens.
    pub content: u128,
}

impl RequestId {
    /// Binds `id` to these items under this version of the rules.
    pub(crate) fn new(id: Subject, horizon: Span, rules_version: u64, items: &[Item<'_>]) -> RequestId {
        // Unkeyed: the digest never leaves the store, and a caller could send any content under its id anyway.
        let mut hasher = SipHasher24::new();
        hasher.write_u64(rules_version);
        for item in items {
            let (kind, amount, token) = content(&item.operation);
            hasher.write_u128(item.key.fingerprint());
            hasher.write_u8(kind);
            hasher.write_u64(amount);
            hasher.write_u128(token.0);
        }
        RequestId { id, horizon, content: hasher.finish128().as_u128() }
    }
}

/// Returns the kind of the operation, its amount and its token. A caller that retries must send the same token, because
/// the first attempt may have taken a lease under it.
const fn content(operation: &Operation) -> (u8, u64, Token) {
    match *operation {
        Operation::Charge { cost, token } => (0, cost, token),
        Operation::Peek { cost } => (1, cost, Token::NONE),
        Operation::Refund { cost, .. } => (2, cost, Token::NONE),
        Operation::Renew { token } => (3, 0, token),
        Operation::Release { token } => (4, 0, token),
        Operation::Reserve { cost, token, .. } => (5, cost, token),
        Operation::Settle { actual, token } => (6, actual, token),
        Operation::Cancel { token } => (7, 0, token),
        Operation::Report { result: Report::Failure } => (8, 0, Token::NONE),
        Operation::Report { result: Report::Success } => (9, 0, Token::NONE),
        Operation::Reset => (10, 0, Token::NONE),
    }
}
