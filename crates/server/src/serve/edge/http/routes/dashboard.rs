//! The files of the dashboard, and the paths that only it needs: the history and the events.

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::dashboard::Asset;
use crate::serve::edge::http::error::HttpError;
use crate::serve::edge::http::event_stream::{EventStream, ResponseBody};
use crate::serve::edge::http::response::{self, HttpResponse, NO_STORE};
use crate::serve::observe::history::Range;
use crate::serve::sampler;
use crate::serve::server_state::ServerState;

/// Scripts and styles of this server only, no markup from text, and no page of another site around it.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
);
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// A file of the dashboard.
pub(super) fn asset(asset: &'static Asset) -> HttpResponse {
    let mut response = response::new(StatusCode::OK, HeaderValue::from_static(asset.media_type), asset.text);
    add_security_headers(response.headers_mut());
    response
}

/// The history of a range, of all rules or of one.
pub(super) fn history(parts: &Parts, state: &ServerState) -> Result<HttpResponse, HttpError> {
    let (mut range, mut rule) = ("15m".to_owned(), None);
    for (name, value) in url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()) {
        match &*name {
            "range" => range = value.into_owned(),
            "rule" => rule = Some(value.into_owned()),
            _ => return Err(unknown_parameter(&["range", "rule"])),
        }
    }
    let Some(range) = Range::of(&range) else {
        let known = Range::NAMES.join(", ");
        return Err(HttpError::bad_request("invalid-query", format!("unknown range; use one of {known}")));
    };
    let report = state.history.report(range, rule.as_deref());
    let mut response = response::json(report.to_string());
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    Ok(response)
}

/// One event per second: the latest second, and the state of the server.
pub(super) fn events(parts: &Parts, state: &ServerState) -> Result<HttpResponse, HttpError> {
    if parts.uri.query().is_some() {
        return Err(unknown_parameter(&[]));
    }
    let (events, place) = state.history.follow().ok_or_else(HttpError::too_many_viewers)?;
    let body = EventStream::new(sampler::event(state), events, place, state.ending.clone());
    let mut response = HttpResponse::new(ResponseBody::Events(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, EVENTS);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Ok(response)
}

/// The query is not echoed: a caller may have put a token there.
fn unknown_parameter(known: &[&str]) -> HttpError {
    let detail = if known.is_empty() {
        "this path takes no parameters in its query; send a token as `Authorization: Bearer`".to_owned()
    } else {
        format!(
            "unknown parameter in the query; known are {}; send a token as `Authorization: Bearer`",
            known.join(", ")
        )
    };
    HttpError::bad_request("invalid-query", detail)
}

fn add_security_headers(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let resources = HeaderName::from_static("cross-origin-resource-policy");
    headers.insert(resources, HeaderValue::from_static("same-origin"));
    headers.insert(header::CACHE_CONTROL, NO_STORE);
}
