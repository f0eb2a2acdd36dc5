//! What is wrong with a request, for who sent it: a problem document that names the fix.

use http::{HeaderValue, StatusCode, header};
use tollgate::core::StoreError;
use tollgate::limiter::{CheckError, FollowUpError, InvalidReceipts};
use tollgate::problem::Problem;

use super::answer::{self, Answer};
use super::question::BadBody;
use super::route::Route;

/// More than this of what somebody sent is not told back.
const DETAIL_MAX: usize = 400;

/// A request that gets no decision.
#[derive(Debug)]
pub(super) struct Complaint {
    status: StatusCode,
    /// A name for programs; it stays the same from version to version.
    code: &'static str,
    /// The fix, for people.
    detail: String,
    /// A field that goes with the status.
    field: Option<(header::HeaderName, HeaderValue)>,
}

impl Complaint {
    pub(super) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Complaint {
        Complaint { status, code, detail: detail.into(), field: None }
    }

    pub(super) fn bad(code: &'static str, detail: impl Into<String>) -> Complaint {
        Complaint::new(StatusCode::BAD_REQUEST, code, detail)
    }

    pub(super) fn not_found() -> Complaint {
        let detail = "there is nothing at this path; GET /openapi.json lists all there is";
        Complaint::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    pub(super) fn wrong_method(route: Route) -> Complaint {
        let allowed = route.methods().allow();
        let detail = format!("this path takes {allowed}");
        let mut complaint = Complaint::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail);
        complaint.field = Some((header::ALLOW, HeaderValue::from_static(allowed)));
        complaint
    }

    pub(super) fn unauthorized(detail: &'static str) -> Complaint {
        let mut complaint = Complaint::new(StatusCode::UNAUTHORIZED, "unauthorized", detail);
        let scheme = HeaderValue::from_static(r#"Bearer realm="tollgate""#);
        complaint.field = Some((header::WWW_AUTHENTICATE, scheme));
        complaint
    }

    pub(super) fn forbidden() -> Complaint {
        let detail = "this token may not do that; use one with the scope that it needs";
        Complaint::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// The problem document.
    pub(super) fn document(&self) -> String {
        let title = self.status.canonical_reason().unwrap_or("Error");
        let detail: String = self.detail.chars().take(DETAIL_MAX).collect();
        let document = serde_json::json!({
            "type": "about:blank", "title": title, "status": self.status.as_u16(), "code": self.code, "detail": detail,
        });
        document.to_string()
    }

    pub(super) fn answer(self) -> Answer {
        let mut answer = answer::problem(self.status, self.document());
        if let Some((name, value)) = self.field {
            answer.headers_mut().insert(name, value);
        }
        answer
    }
}

impl From<BadBody> for Complaint {
    fn from(error: BadBody) -> Complaint {
        let code = match error {
            BadBody::NotJson(_) => "not-json",
            BadBody::NotAsked(_) => "bad-request",
        };
        Complaint::bad(code, error.to_string())
    }
}

/// A question that makes no sense under the rules in force, or has no answer.
impl From<CheckError> for Complaint {
    fn from(error: CheckError) -> Complaint {
        let problem = Problem::of_error(&error);
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Complaint::new(status, problem.code, error.to_string())
    }
}

impl From<StoreError> for Complaint {
    fn from(error: StoreError) -> Complaint {
        // What the store said is for the log: it may name hosts.
        Complaint::new(StatusCode::SERVICE_UNAVAILABLE, "store-unavailable", error.to_string())
    }
}

impl From<FollowUpError> for Complaint {
    fn from(error: FollowUpError) -> Complaint {
        match error {
            FollowUpError::Check(error) => error.into(),
            FollowUpError::Store(error) => error.into(),
        }
    }
}

impl From<InvalidReceipts> for Complaint {
    fn from(error: InvalidReceipts) -> Complaint {
        Complaint::new(StatusCode::UNPROCESSABLE_ENTITY, "receipt-unknown", error.to_string())
    }
}
