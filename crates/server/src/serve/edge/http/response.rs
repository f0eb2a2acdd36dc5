//! Responses: small, complete, and made in one piece.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use tollgate::Decision;
use tollgate::headers::Dialect;
use tollgate::problem::MEDIA_TYPE;

use crate::reference;

pub(super) type HttpResponse = Response<Full<Bytes>>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM: HeaderValue = HeaderValue::from_static(MEDIA_TYPE);

/// For responses that hold for one request only.
pub(super) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

pub(super) fn new(status: StatusCode, media_type: HeaderValue, body: impl Into<Bytes>) -> HttpResponse {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    response
}

pub(super) fn json(body: impl Into<Bytes>) -> HttpResponse {
    new(StatusCode::OK, JSON, body)
}

pub(super) fn json_with(status: StatusCode, body: impl Into<Bytes>) -> HttpResponse {
    new(status, JSON, body)
}

pub(super) fn problem(status: StatusCode, body: String) -> HttpResponse {
    new(status, PROBLEM, body)
}

/// Adds the reference of a refusal, if there is one.
pub(super) fn add_reference(headers: &mut HeaderMap, reference: Option<String>) {
    let Some(reference) = reference else { return };
    // A reference is always ASCII.
    if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(reference)) {
        headers.insert(HeaderName::from_static(reference::HEADER), value);
    }
}

/// Adds the fields that describe the client's limit, what remains of it and when to retry.
pub(super) fn add_limit_headers(headers: &mut HeaderMap, dialect: Dialect, decision: &Decision) {
    for field in dialect.fields(decision) {
        // Values are always ASCII. One that is not would be left out rather than break the response.
        if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(field.value)) {
            headers.insert(HeaderName::from_static(field.name), value);
        }
    }
}
