//! The name of a request that may be sent more than once and is to be charged once.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::key::Subject;
use crate::plan::Item;
use crate::plan::operation::{Operation, Report, Token};
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
    /// Tells what is asked for from anything else: version of the rules, keys, operations, costs and tokens.
    pub content: u128,
}

impl RequestId {
    /// Binds `id` to these items under this version of the rules.
    pub(crate) fn new(id: Subject, horizon: Span, rules_version: u64, items: &[Item<'_>]) -> RequestId {
        // No secret: the digest never leaves the store, and who holds the id could send anything under it anyway.
        let mut hasher = SipHasher24::new();
        hasher.write_u64(rules_version);
        for item in items {
            let (kind, amount, token) = asked(&item.operation);
            hasher.write_u128(item.key.fingerprint());
            hasher.write_u8(kind);
            hasher.write_u64(amount);
            hasher.write_u128(token.0);
        }
        RequestId { id, horizon, content: hasher.finish128().as_u128() }
    }
}

/// Which operation, for how much, and under which token: who sends a request again sends its token again, because what
/// is held is held under the first.
const fn asked(operation: &Operation) -> (u8, u64, Token) {
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
