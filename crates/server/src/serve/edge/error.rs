//! Errors of requests, and how each transport reports them. This is the only place that maps one to the other.

use http::StatusCode;
use tollgate::core::{Decline, PlanError, StoreError};
use tollgate::headers::FALLBACK_RETRY_S;
use tollgate::limiter::{CheckError, FollowUpError, InvalidReceipts};
use tonic::{Code, Status};

use super::auth::AuthError;
use super::excerpt::Excerpt;
use super::request::RequestError;
use crate::protocol::Protocol;
use crate::serve::gate::ThrottleError;
use crate::serve::store::work_share::Overloaded;

/// Why a request got no answer from the limiter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EdgeError {
    kind: ErrorKind,
    message: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ErrorKind {
    /// The request is malformed.
    BadRequest,
    /// The request cannot be counted: a part of it exceeds a limit or is missing. A gateway must not let it pass.
    Uncountable,
    TokenRequired,
    UnknownToken,
    Forbidden,
    /// The token is bound to another attribute value.
    Bound,
    /// The token is bound to other rules than one that matches.
    RuleNotPermitted,
    /// The cost is more than a rule could ever admit.
    CostAboveCapacity,
    /// The request matches a rule with leases, and this transport could not release the lease.
    LeaseWithoutReceipt,
    /// No rule matches, so there is nothing to reset.
    NothingMatched,
    /// The receipt was changed, or belongs to another caller or another hash key.
    UnknownReceipt,
    /// A meter has no room for an addition.
    MeterFull,
    /// No concurrency rule matches, or the receipt holds no lease.
    NoLease,
    /// The lease has ended, and its holder must stop.
    LeaseLost,
    /// The reservation has ended and cannot be extended.
    ReservationEnded,
    /// A settlement names a rule that the receipt does not have, or leaves one out.
    UnknownRule,
    /// The request id was used for another request.
    IdReused,
    /// The caller has too many calls in flight.
    Overloaded,
    /// There is no decision, and the fault is ours.
    Undecided,
    StoreUnavailable,
}

impl EdgeError {
    pub(crate) fn bad_request(message: impl Into<String>) -> EdgeError {
        EdgeError { kind: ErrorKind::BadRequest, message: message.into() }
    }

    /// A request that cannot be counted, for example because a part is missing.
    pub(crate) fn uncountable(message: impl Into<String>) -> EdgeError {
        EdgeError { kind: ErrorKind::Uncountable, message: message.into() }
    }

    /// A reset of a request that no rule matches, or not the named one.
    pub(crate) fn nothing_matched(rule: Option<&str>) -> EdgeError {
        let message = match rule {
            None => "no rule matches these attributes, so nothing was reset; send the attributes of a check"
                .to_owned(),
            Some(rule) => format!(
                "rule {} does not match these attributes, so nothing was reset; send the attributes of a check",
                Excerpt::of(rule)
            ),
        };
        EdgeError { kind: ErrorKind::NothingMatched, message }
    }

    /// A call on meters that matches none.
    pub(crate) fn no_meter(rule: Option<&str>) -> EdgeError {
        let message = match rule {
            None => "no meter matches these attributes; send the attributes of a check, or add a rule with a meter".to_owned(),
            Some(rule) => format!(
                "rule {} is not a meter that matches these attributes; send the id of a rule with a meter",
                Excerpt::of(rule)
            ),
        };
        EdgeError { kind: ErrorKind::NothingMatched, message }
    }

    /// An addition to a meter that has room for less.
    pub(crate) fn meter_full(rule: &str, room: &str) -> EdgeError {
        let message = format!(
            "the meter of rule {rule:?} has room for {room} more, so nothing was added; subtract first, or add less"
        );
        EdgeError { kind: ErrorKind::MeterFull, message }
    }

    /// A request for a lease that no concurrency rule matches.
    pub(crate) fn no_lease_rule() -> EdgeError {
        let message = "no rule with a concurrency limit matches these attributes, so there is no lease; add such a rule, or \
                       use a check";
        EdgeError { kind: ErrorKind::NoLease, message: message.to_owned() }
    }

    /// A receipt without a lease, where one is needed.
    pub(crate) fn no_lease() -> EdgeError {
        let message = "this receipt holds no lease; use the receipt of a lease, or refund this one";
        EdgeError { kind: ErrorKind::NoLease, message: message.to_owned() }
    }

    /// A lease that cannot be renewed.
    pub(crate) fn lease_lost(rule: &str, why: Decline) -> EdgeError {
        let message = format!("the lease of rule {rule:?} is lost: {why}; stop, or request a new one");
        EdgeError { kind: ErrorKind::LeaseLost, message }
    }

    /// A reservation that cannot be extended.
    pub(crate) fn reservation_ended(rule: &str, why: Decline) -> EdgeError {
        let message = format!("the reservation of rule {rule:?} has ended: {why}; stop, or make a new one");
        EdgeError { kind: ErrorKind::ReservationEnded, message }
    }

    /// A settlement with an amount for a rule that the receipt does not have.
    pub(crate) fn not_reserved(rule: &str) -> EdgeError {
        let message = format!("the receipt has no rule {}; name rules of the reservation", Excerpt::of(rule));
        EdgeError { kind: ErrorKind::UnknownRule, message }
    }

    /// A settlement without an amount for a rule of the receipt.
    pub(crate) fn unsettled(rule: &str) -> EdgeError {
        let message =
            format!("the settlement has no amount for rule {rule:?}; name it, or send a common amount");
        EdgeError { kind: ErrorKind::UnknownRule, message }
    }

    /// A message of more bytes than a transport reads.
    pub(crate) fn message_too_large(bytes_max: usize) -> EdgeError {
        EdgeError {
            kind: ErrorKind::Uncountable,
            message: format!("the message has more than {bytes_max} bytes"),
        }
    }

    /// A request under a concurrency rule, on a transport that returns no receipt.
    #[cold]
    pub(crate) fn lease_without_receipt(rule: &str) -> EdgeError {
        EdgeError {
            kind: ErrorKind::LeaseWithoutReceipt,
            message: format!(
                "rule {rule:?} takes a lease, which nothing could release here; use POST /v1/leases, or exclude these requests \
                 from the rule with `match`"
            ),
        }
    }

    /// An error of authentication or authorisation, with the hint that fits the transport.
    pub(crate) fn auth(error: AuthError, protocol: Protocol) -> EdgeError {
        let kind = match error {
            AuthError::TokenRequired => ErrorKind::TokenRequired,
            AuthError::UnknownToken => ErrorKind::UnknownToken,
            AuthError::Forbidden(_) => ErrorKind::Forbidden,
        };
        let message = match (protocol, error) {
            // Redis clients know the first words of these.
            (Protocol::Resp, AuthError::TokenRequired) => {
                "Authentication required; send AUTH with a token".to_owned()
            }
            (Protocol::Resp, AuthError::UnknownToken) => {
                "invalid username-password pair or user is disabled; the password is a token".to_owned()
            }
            (Protocol::Resp, AuthError::Forbidden(needed)) => {
                format!("this needs a token with the scope '{needed}'; send AUTH with one")
            }
            (_, AuthError::TokenRequired) => {
                "a token is required; send it as Authorization: Bearer TOKEN".to_owned()
            }
            (_, AuthError::UnknownToken) => {
                "unknown token; send a known one as Authorization: Bearer TOKEN".to_owned()
            }
            (_, AuthError::Forbidden(needed)) => {
                format!(
                    "this needs a token with the scope '{needed}'; send one as Authorization: Bearer TOKEN"
                )
            }
        };
        EdgeError { kind, message }
    }

    /// What went wrong and what to do about it, for the caller.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The status of an HTTP response.
    pub(crate) const fn http_status(&self) -> StatusCode {
        match self.kind {
            ErrorKind::BadRequest | ErrorKind::Uncountable => StatusCode::BAD_REQUEST,
            ErrorKind::TokenRequired | ErrorKind::UnknownToken => StatusCode::UNAUTHORIZED,
            // A gateway denies what gets this status.
            ErrorKind::Forbidden
            | ErrorKind::Bound
            | ErrorKind::RuleNotPermitted
            | ErrorKind::LeaseWithoutReceipt => StatusCode::FORBIDDEN,
            ErrorKind::CostAboveCapacity => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::NothingMatched
            | ErrorKind::UnknownReceipt
            | ErrorKind::NoLease
            | ErrorKind::UnknownRule => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::IdReused | ErrorKind::LeaseLost | ErrorKind::ReservationEnded => StatusCode::CONFLICT,
            ErrorKind::MeterFull | ErrorKind::Overloaded => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Undecided => StatusCode::INTERNAL_SERVER_ERROR,
            ErrorKind::StoreUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Seconds after which a retry may succeed; `None` if waiting does not help.
    pub(crate) const fn retry_after_s(&self) -> Option<u64> {
        match self.kind {
            ErrorKind::Overloaded => Some(1),
            ErrorKind::StoreUnavailable => Some(FALLBACK_RETRY_S),
            _ => None,
        }
    }

    /// The `code` of a problem document. Programs depend on it.
    pub(crate) const fn problem_code(&self) -> &'static str {
        match self.kind {
            ErrorKind::BadRequest | ErrorKind::Uncountable => "bad-request",
            ErrorKind::TokenRequired | ErrorKind::UnknownToken => "unauthorized",
            ErrorKind::Forbidden => "forbidden",
            ErrorKind::Bound => "attribute-bound",
            ErrorKind::RuleNotPermitted => "rule-not-permitted",
            ErrorKind::CostAboveCapacity => "cost-above-capacity",
            ErrorKind::LeaseWithoutReceipt => "lease-without-receipt",
            ErrorKind::NothingMatched => "nothing-matched",
            ErrorKind::UnknownReceipt => "receipt-unknown",
            ErrorKind::MeterFull => "meter-full",
            ErrorKind::NoLease => "no-lease",
            ErrorKind::LeaseLost => "lease-lost",
            ErrorKind::ReservationEnded => "reservation-ended",
            ErrorKind::UnknownRule => "rule-unknown",
            ErrorKind::IdReused => "request-id-reused",
            ErrorKind::Overloaded => "too-many-in-flight",
            ErrorKind::Undecided => "undecided",
            ErrorKind::StoreUnavailable => "store-unavailable",
        }
    }

    /// The first word of a RESP error.
    pub(crate) const fn resp_prefix(&self) -> &'static str {
        match self.kind {
            ErrorKind::TokenRequired => "NOAUTH",
            ErrorKind::UnknownToken => "WRONGPASS",
            ErrorKind::Forbidden | ErrorKind::Bound | ErrorKind::RuleNotPermitted => "NOPERM",
            // Not `TRYAGAIN`: cluster clients repeat what gets that, and it may have been charged.
            ErrorKind::StoreUnavailable => "UNAVAILABLE",
            ErrorKind::Overloaded => "OVERLOADED",
            ErrorKind::LeaseLost | ErrorKind::ReservationEnded => "NOTHELD",
            ErrorKind::UnknownReceipt => "NORECEIPT",
            ErrorKind::MeterFull => "FULL",
            ErrorKind::BadRequest
            | ErrorKind::Uncountable
            | ErrorKind::CostAboveCapacity
            | ErrorKind::LeaseWithoutReceipt
            | ErrorKind::NothingMatched
            | ErrorKind::NoLease
            | ErrorKind::UnknownRule
            | ErrorKind::IdReused
            | ErrorKind::Undecided => "ERR",
        }
    }

    /// The status of a gRPC call; `None` if the answer is a refusal.
    ///
    /// A gateway may let requests pass when it gets an error. What clients can cause is therefore refused.
    pub(crate) fn grpc_status(&self) -> Option<Status> {
        let code = match self.kind {
            ErrorKind::Uncountable
            | ErrorKind::CostAboveCapacity
            | ErrorKind::Bound
            | ErrorKind::RuleNotPermitted
            | ErrorKind::LeaseWithoutReceipt
            | ErrorKind::MeterFull
            | ErrorKind::Overloaded => return None,
            ErrorKind::BadRequest => Code::InvalidArgument,
            ErrorKind::NothingMatched
            | ErrorKind::UnknownReceipt
            | ErrorKind::NoLease
            | ErrorKind::UnknownRule => Code::NotFound,
            ErrorKind::LeaseLost | ErrorKind::ReservationEnded => Code::FailedPrecondition,
            ErrorKind::TokenRequired | ErrorKind::UnknownToken => Code::Unauthenticated,
            ErrorKind::Forbidden => Code::PermissionDenied,
            ErrorKind::IdReused | ErrorKind::Undecided => Code::Internal,
            ErrorKind::StoreUnavailable => Code::Unavailable,
        };
        Some(Status::new(code, &*self.message))
    }
}

impl From<RequestError> for EdgeError {
    fn from(error: RequestError) -> EdgeError {
        let kind = match &error {
            RequestError::Bound(_) => ErrorKind::Bound,
            error if error.is_too_large() => ErrorKind::Uncountable,
            _ => ErrorKind::BadRequest,
        };
        EdgeError { kind, message: error.to_string() }
    }
}

impl From<Overloaded> for EdgeError {
    #[cold]
    fn from(_: Overloaded) -> EdgeError {
        let message =
            "too many requests of this caller wait for the store; send fewer at a time, and retry later";
        EdgeError { kind: ErrorKind::Overloaded, message: message.to_owned() }
    }
}

impl From<&PlanError> for ErrorKind {
    fn from(error: &PlanError) -> ErrorKind {
        match error {
            PlanError::CostAboveCapacity { .. } | PlanError::CostTooLarge { .. } => {
                ErrorKind::CostAboveCapacity
            }
            PlanError::NotPermitted { .. } => ErrorKind::RuleNotPermitted,
            _ => ErrorKind::Undecided,
        }
    }
}

impl From<&CheckError> for EdgeError {
    #[cold]
    fn from(error: &CheckError) -> EdgeError {
        let kind = match error {
            CheckError::Plan(error) => error.into(),
            CheckError::Undecided(_) => ErrorKind::Undecided,
            CheckError::IdReused => ErrorKind::IdReused,
        };
        let message = match error {
            CheckError::Plan(PlanError::NotPermitted { rule }) => format!(
                "the token is not bound to rule {rule:?}, which counts this request; send other attributes, or use a token \
                 that is bound to this rule too"
            ),
            error => error.to_string(),
        };
        EdgeError { kind, message }
    }
}

impl From<&StoreError> for EdgeError {
    /// What the store said is for the log: it may name hosts.
    #[cold]
    fn from(error: &StoreError) -> EdgeError {
        let (kind, advice) = match error {
            StoreError::IdReused => (ErrorKind::IdReused, ""),
            StoreError::Transient(_) => {
                (ErrorKind::StoreUnavailable, "; whether the request was counted is unknown")
            }
            StoreError::Misconfigured(_) | StoreError::Corrupt { .. } => {
                (ErrorKind::StoreUnavailable, "; see the server's log")
            }
        };
        EdgeError { kind, message: format!("{error}{advice}") }
    }
}

impl From<InvalidReceipts> for EdgeError {
    fn from(error: InvalidReceipts) -> EdgeError {
        EdgeError { kind: ErrorKind::UnknownReceipt, message: error.to_string() }
    }
}

impl From<&FollowUpError> for EdgeError {
    fn from(error: &FollowUpError) -> EdgeError {
        match error {
            FollowUpError::Check(error) => error.into(),
            FollowUpError::Store(error @ StoreError::Transient(_)) => {
                let mut error = EdgeError::from(error);
                error.message.push_str("; send it again under the same id, which counts once");
                error
            }
            FollowUpError::Store(error) => error.into(),
        }
    }
}

impl From<&ThrottleError> for EdgeError {
    #[cold]
    fn from(error: &ThrottleError) -> EdgeError {
        match error {
            ThrottleError::Plan(plan) => EdgeError { kind: plan.into(), message: error.to_string() },
            ThrottleError::Store(error) => error.into(),
            ThrottleError::Unanswered => EdgeError { kind: ErrorKind::Undecided, message: error.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate::problem::Problem;

    use super::*;
    use crate::access::Scopes;

    #[test]
    fn every_error_has_its_form_on_every_transport() {
        let transient = StoreError::Transient("10.0.0.7:6379 is down".into());
        let auth = |error, protocol| EdgeError::auth(error, protocol);
        for (error, http, resp, grpc) in [
            (EdgeError::bad_request("x"), (400, "bad-request"), "ERR", Some(Code::InvalidArgument)),
            (RequestError::NoName.into(), (400, "bad-request"), "ERR", Some(Code::InvalidArgument)),
            (RequestError::TooManyAttributes.into(), (400, "bad-request"), "ERR", None),
            (RequestError::Bound(Excerpt::of("tenant")).into(), (403, "attribute-bound"), "NOPERM", None),
            (
                (&CheckError::Plan(PlanError::NotPermitted { rule: "r".into() })).into(),
                (403, "rule-not-permitted"),
                "NOPERM",
                None,
            ),
            (EdgeError::message_too_large(1), (400, "bad-request"), "ERR", None),
            (EdgeError::uncountable("x"), (400, "bad-request"), "ERR", None),
            (
                auth(AuthError::TokenRequired, Protocol::Http),
                (401, "unauthorized"),
                "NOAUTH",
                Some(Code::Unauthenticated),
            ),
            (
                auth(AuthError::UnknownToken, Protocol::Resp),
                (401, "unauthorized"),
                "WRONGPASS",
                Some(Code::Unauthenticated),
            ),
            (
                auth(AuthError::Forbidden(Scopes::READ), Protocol::Grpc),
                (403, "forbidden"),
                "NOPERM",
                Some(Code::PermissionDenied),
            ),
            (Overloaded.into(), (429, "too-many-in-flight"), "OVERLOADED", None),
            (EdgeError::lease_without_receipt("exports"), (403, "lease-without-receipt"), "ERR", None),
            ((&CheckError::IdReused).into(), (409, "request-id-reused"), "ERR", Some(Code::Internal)),
            (InvalidReceipts.into(), (422, "receipt-unknown"), "NORECEIPT", Some(Code::NotFound)),
            (EdgeError::meter_full("r", "0"), (429, "meter-full"), "FULL", None),
            (EdgeError::no_lease(), (422, "no-lease"), "ERR", Some(Code::NotFound)),
            (EdgeError::not_reserved("r"), (422, "rule-unknown"), "ERR", Some(Code::NotFound)),
            (
                EdgeError::lease_lost("r", Decline::NotHeld),
                (409, "lease-lost"),
                "NOTHELD",
                Some(Code::FailedPrecondition),
            ),
            (
                EdgeError::reservation_ended("r", Decline::NotHeld),
                (409, "reservation-ended"),
                "NOTHELD",
                Some(Code::FailedPrecondition),
            ),
            ((&transient).into(), (503, "store-unavailable"), "UNAVAILABLE", Some(Code::Unavailable)),
        ] {
            let error: EdgeError = error;
            assert_eq!((error.http_status().as_u16(), error.problem_code()), http, "{error:?}");
            assert_eq!(error.resp_prefix(), resp, "{error:?}");
            assert_eq!(error.grpc_status().map(|status| status.code()), grpc, "{error:?}");
            assert!(!error.message().contains("10.0.0.7"), "no host is revealed");
        }
    }

    /// The library's own layer reports the same errors over HTTP.
    #[test]
    fn a_check_that_fails_has_the_status_and_code_of_the_library() {
        let not_permitted = CheckError::Plan(PlanError::NotPermitted { rule: "r".into() });
        for error in [CheckError::IdReused, not_permitted] {
            let (problem, ours) = (Problem::of_error(&error), EdgeError::from(&error));
            assert_eq!((problem.status, problem.code), (ours.http_status().as_u16(), ours.problem_code()));
        }
    }
}
