//! Responses: small, complete, and made in one piece.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use tollgate::Decision;
use tollgate::headers::Dialect;
use tollgate::problem::MEDIA_TYPE;

pub(super) type Answer = Response<Full<Bytes>>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM: HeaderValue = HeaderValue::from_static(MEDIA_TYPE);

/// What was decided once is no answer to the next request.
pub(super) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

pub(super) fn of(status: StatusCode, media_type: HeaderValue, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, media_type);
    answer
}

pub(super) fn json(body: impl Into<Bytes>) -> Answer {
    of(StatusCode::OK, JSON, body)
}

pub(super) fn problem(status: StatusCode, body: String) -> Answer {
    of(status, PROBLEM, body)
}

/// Says where the client stands.
pub(super) fn tell(headers: &mut HeaderMap, dialect: Dialect, decision: &Decision) {
    for field in dialect.fields(decision) {
        // Values are ASCII by construction; one that is not would be left out rather than break the answer.
        if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(field.value)) {
            headers.insert(HeaderName::from_static(field.name), value);
        }
    }
}
