//! Requests that get no decision: a problem document that names the fix.

use http::{HeaderValue, StatusCode, header};
use tollgate::core::StoreError;
use tollgate::limiter::{CheckError, FollowUpError, InvalidReceipts};

use super::request_body::BodyError;
use super::response::{self, HttpResponse};
use super::route::Route;
use crate::serve::edge::error::EdgeError;

/// Characters of `detail`. Longer input is not echoed.
const DETAIL_CHARS_MAX: usize = 400;

/// A response that is not a decision.
#[derive(Debug)]
pub(super) struct HttpError {
    status: StatusCode,
    /// A name for programs; it stays the same from version to version.
    code: &'static str,
    /// What is wrong and how to fix it, for people.
    detail: String,
    /// A header field that belongs to the status.
    field: Option<(header::HeaderName, HeaderValue)>,
}

impl HttpError {
    pub(super) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> HttpError {
        HttpError { status, code, detail: detail.into(), field: None }
    }

    pub(super) fn bad_request(code: &'static str, detail: impl Into<String>) -> HttpError {
        HttpError::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// Replaces the status, if there is another one.
    #[must_use]
    pub(super) fn with_status(self, status: Option<StatusCode>) -> HttpError {
        HttpError { status: status.unwrap_or(self.status), ..self }
    }

    pub(super) fn not_found() -> HttpError {
        let detail = "no such path; GET /openapi.json lists all paths";
        HttpError::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    /// A path that only the listener of this setting serves.
    pub(super) fn not_here(setting: &str) -> HttpError {
        let detail = format!("this path is served on the listener of the setting `{setting}` only");
        HttpError::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    /// A connection beyond the limit can only ask for the health of the server.
    pub(super) fn too_many_connections() -> HttpError {
        let detail = "the server has too many connections; use another server, or try again";
        let mut error = HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "too-many-connections", detail);
        error.field = Some((header::RETRY_AFTER, HeaderValue::from_static("1")));
        error
    }

    pub(super) fn wrong_method(route: Route) -> HttpError {
        let allowed = route.methods().allow();
        let detail = format!("this path takes {allowed}");
        let mut error = HttpError::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail);
        error.field = Some((header::ALLOW, HeaderValue::from_static(allowed)));
        error
    }

    /// A call that must wait.
    pub(super) fn wait(code: &'static str, detail: &str, wait: std::time::Duration) -> HttpError {
        let mut error = HttpError::new(StatusCode::TOO_MANY_REQUESTS, code, detail);
        let wait_s = wait.as_millis().div_ceil(1_000).max(1);
        error.field =
            Some((header::RETRY_AFTER, HeaderValue::from(u64::try_from(wait_s).unwrap_or(u64::MAX))));
        error
    }

    pub(super) const fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) const fn code(&self) -> &'static str {
        self.code
    }

    /// The problem document.
    pub(super) fn document(&self) -> String {
        let title = self.status.canonical_reason().unwrap_or("Error");
        let detail: String = self.detail.chars().take(DETAIL_CHARS_MAX).collect();
        let document = serde_json::json!({
            "type": "about:blank", "title": title, "status": self.status.as_u16(), "code": self.code, "detail": detail,
        });
        document.to_string()
    }

    pub(super) fn into_response(self) -> HttpResponse {
        let mut response = response::problem(self.status, self.document());
        if let Some((name, value)) = self.field {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

impl From<EdgeError> for HttpError {
    fn from(error: EdgeError) -> HttpError {
        let status = error.http_status();
        let mut http = HttpError::new(status, error.problem_code(), error.message());
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static(r#"Bearer realm="tollgate""#);
            http.field = Some((header::WWW_AUTHENTICATE, scheme));
        } else if let Some(wait_s) = error.retry_after_s() {
            http.field = Some((header::RETRY_AFTER, HeaderValue::from(wait_s)));
        }
        http
    }
}

impl From<BodyError> for HttpError {
    fn from(error: BodyError) -> HttpError {
        match error {
            BodyError::NotJson(_) => HttpError::bad_request("not-json", error.to_string()),
            BodyError::Shape(_) => EdgeError::bad_request(error.to_string()).into(),
            BodyError::Request(error) => EdgeError::from(error).into(),
        }
    }
}

impl From<CheckError> for HttpError {
    fn from(error: CheckError) -> HttpError {
        EdgeError::from(&error).into()
    }
}

impl From<StoreError> for HttpError {
    fn from(error: StoreError) -> HttpError {
        EdgeError::from(&error).into()
    }
}

impl From<FollowUpError> for HttpError {
    fn from(error: FollowUpError) -> HttpError {
        EdgeError::from(&error).into()
    }
}

impl From<InvalidReceipts> for HttpError {
    fn from(error: InvalidReceipts) -> HttpError {
        EdgeError::from(error).into()
    }
}
