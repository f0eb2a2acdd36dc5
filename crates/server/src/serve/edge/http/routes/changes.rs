//! `/v1/overrides`, `/v1/deny` and `/v1/bypass`: live changes.

use std::borrow::Cow;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate_database::changes::{ChangeKind, LiveChange};

use crate::hex;
use crate::serve::control::spec::ChangeBody;
use crate::serve::control::{Author, Control, ControlError, WriteOutcome, now_us};
use crate::serve::edge::auth::{Caller, Peer};
use crate::serve::edge::error::EdgeError;
use crate::serve::edge::http::error::HttpError;
use crate::serve::edge::http::response::{self, HttpResponse, NO_STORE};
use crate::serve::server_state::ServerState;

/// The body of a call that ends a change.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RemoveBody {
    reason: Option<String>,
}

/// Lists the changes of one kind, or adds one.
pub(super) async fn all(
    kind: ChangeKind,
    parts: &Parts,
    body: &[u8],
    (peer, caller): (&Peer, &Caller),
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let control = control(state)?;
    if parts.method != Method::POST {
        query(parts, &[])?;
        let known = control.known();
        let items = known.changes.iter().filter(|change| change.kind == kind);
        let list = json!({
            "version": known.version.number,
            "head": hex::of(&known.version.head),
            "from": known.from.name(),
            "changes": items.map(|change| change_json(change, state)).collect::<Value>(),
        });
        return Ok(uncached(response::json(list.to_string())));
    }
    let is_trial = is_trial(parts)?;
    let body: ChangeBody = read(body)?;
    let author = author(peer, caller);
    let outcome = control.add(&state.gate, kind, &body, &author, is_trial).await.map_err(failed)?;
    let location = format!("{}/{}", parts.uri.path(), outcome.change.id);
    let mut response = written(&outcome, state, if is_trial { StatusCode::OK } else { StatusCode::CREATED });
    if !is_trial {
        let location = HeaderValue::from_str(&location)
            .map_err(|_| HttpError::bad_request("bad-request", "invalid `id`; use letters and digits"))?;
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Shows, changes or ends one change.
pub(super) async fn one(
    kind: ChangeKind,
    parts: &Parts,
    body: &[u8],
    (peer, caller): (&Peer, &Caller),
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let control = control(state)?;
    let id = parts.uri.path().rsplit('/').next().unwrap_or_default();
    let author = author(peer, caller);
    let outcome = match parts.method {
        Method::PATCH => {
            let is_trial = is_trial(parts)?;
            let body: ChangeBody = read(body)?;
            let meant = (kind, id, expected(parts)?);
            control.replace(&state.gate, meant, &body, &author, is_trial).await.map_err(failed)?
        }
        Method::DELETE => {
            let is_trial = is_trial(parts)?;
            let body: RemoveBody = read(body)?;
            let meant = (kind, id, expected(parts)?);
            let reason = body.reason.as_deref();
            control.remove(&state.gate, meant, reason, &author, is_trial).await.map_err(failed)?
        }
        _ => {
            query(parts, &[])?;
            let found = control.find(kind, id);
            let change = found.ok_or_else(|| failed(ControlError::Missing(id.to_owned())))?;
            let mut response = uncached(response::json(change_json(&change, state).to_string()));
            response.headers_mut().insert(header::ETAG, etag(&change));
            return Ok(response);
        }
    };
    Ok(written(&outcome, state, StatusCode::OK))
}

fn written(outcome: &WriteOutcome, state: &ServerState, status: StatusCode) -> HttpResponse {
    let mut body = match change_json(&outcome.change, state) {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    if let Some(effect) = outcome.effect {
        body.insert("effect".to_owned(), json!(effect.name()));
    }
    match outcome.version {
        Some(version) => body.insert("changes_version".to_owned(), json!(version.number)),
        None => body.insert("dry_run".to_owned(), json!(true)),
    };
    let mut response = uncached(response::json_with(status, Value::Object(body).to_string()));
    if outcome.version.is_some() {
        response.headers_mut().insert(header::ETAG, etag(&outcome.change));
    }
    response
}

/// A change as callers see it. Secrets are hashes.
fn change_json(change: &LiveChange, state: &ServerState) -> Value {
    let instant = |us: i64| Timestamp::from_microsecond(us).unwrap_or(Timestamp::UNIX_EPOCH).to_string();
    let unfit = state.gate.unfit_changes();
    let why = unfit.iter().find(|(id, _)| *id == change.id).map(|(_, why)| why);
    let has_ended = change.until_us.is_some_and(|until| until <= now_us());
    let mut members = Map::new();
    let mut put = |name: &str, value: Value| members.insert(name.to_owned(), value);
    put("id", json!(change.id));
    put("kind", json!(change.kind.name()));
    put("version", json!(change.version));
    put("until", json!(change.until_us.map(instant)));
    put("in_force", json!(!has_ended && why.is_none()));
    put("why_not", json!(if has_ended { Some("it has ended") } else { why.map(String::as_str) }));
    put("reason", json!(change.reason));
    put("author", json!(change.author));
    put("created_at", json!(instant(change.created_us)));
    put("changed_at", json!(instant(change.changed_us)));
    // What it says, as it was written.
    if let Ok(Value::Object(spec)) = serde_json::from_str(&change.spec) {
        for (name, value) in spec {
            put(&name, value);
        }
    }
    Value::Object(members)
}

fn etag(change: &LiveChange) -> HeaderValue {
    let text = format!("\"{}\"", change.version);
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("\"0\""))
}

/// The version that the caller has seen.
fn expected(parts: &Parts) -> Result<i64, HttpError> {
    let mut values = parts.headers.get_all(header::IF_MATCH).iter();
    let Some(value) = values.next() else {
        let detail = "missing If-Match; send the ETag of the change, which a GET returns";
        return Err(HttpError::new(StatusCode::PRECONDITION_REQUIRED, "if-match-required", detail));
    };
    let number = value.to_str().ok().and_then(|text| text.trim().strip_prefix('"')?.strip_suffix('"'));
    match number.and_then(|number| number.parse().ok()).filter(|_| values.next().is_none()) {
        Some(version) => Ok(version),
        None => {
            let detail = "If-Match is not an ETag of a change; send one, like \"3\"";
            Err(HttpError::new(StatusCode::PRECONDITION_FAILED, "stale", detail))
        }
    }
}

/// Whether the call only tries what it would do.
pub(super) fn is_trial(parts: &Parts) -> Result<bool, HttpError> {
    match query(parts, &["dry_run"])?.first() {
        None => Ok(false),
        Some((_, text)) if text == "true" => Ok(true),
        Some((_, text)) if text == "false" => Ok(false),
        Some(_) => Err(HttpError::bad_request("bad-query", "`dry_run` must be `true` or `false`")),
    }
}

/// The parameters of the query, without escapes. Unknown ones are refused: they may be values, which do not belong in URLs.
pub(super) fn query<'p>(parts: &'p Parts, known: &[&str]) -> Result<Vec<(String, Cow<'p, str>)>, HttpError> {
    let pairs = parts.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let mut found: Vec<(String, Cow<'_, str>)> = Vec::new();
    for pair in pairs {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !known.contains(&name) || found.iter().any(|(other, _)| other == name) {
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let detail = format!("unknown or repeated parameter in the query; known here: {known}");
            return Err(HttpError::bad_request("bad-query", detail));
        }
        let Ok(value) = percent_decode_str(value).decode_utf8() else {
            return Err(HttpError::bad_request("bad-query", format!("`{name}` is not UTF-8")));
        };
        found.push((name.to_owned(), value));
    }
    Ok(found)
}

pub(super) fn read<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, HttpError> {
    serde_json::from_slice(body).map_err(|error| {
        if error.is_data() {
            return HttpError::from(EdgeError::bad_request(error.to_string()));
        }
        HttpError::bad_request("not-json", format!("the body is not JSON: {error}"))
    })
}

fn author<'a>(peer: &Peer, caller: &'a Caller) -> Author<'a> {
    Author { name: caller.name(), address: peer.address }
}

/// The control plane, if there is a database.
pub(super) fn control(state: &ServerState) -> Result<&Arc<Control>, HttpError> {
    state.control.as_ref().ok_or_else(|| {
        let detail = "live changes are off; start the server with database: sqlite:PATH or postgres://…";
        HttpError::new(StatusCode::CONFLICT, "no-database", detail)
    })
}

/// How a failed write is answered.
pub(super) fn failed(error: ControlError) -> HttpError {
    let (status, code) = match &error {
        ControlError::Invalid(_) => (StatusCode::BAD_REQUEST, "invalid-change"),
        ControlError::Lowers(_) => (StatusCode::CONFLICT, "lowers"),
        ControlError::Missing(_) => (StatusCode::NOT_FOUND, "no-such-change"),
        ControlError::Exists(_) => (StatusCode::CONFLICT, "id-taken"),
        ControlError::Stale(_) => (StatusCode::PRECONDITION_FAILED, "stale"),
        ControlError::TooMany => (StatusCode::CONFLICT, "too-many-changes"),
        ControlError::NotShared => (StatusCode::CONFLICT, "database-not-shared"),
        ControlError::Database(_) => (StatusCode::SERVICE_UNAVAILABLE, "database-unavailable"),
    };
    HttpError::new(status, code, error.to_string())
}

fn uncached(mut response: HttpResponse) -> HttpResponse {
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response
}
