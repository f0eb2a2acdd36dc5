//! `/v1/leases` and `/v1/reservations`.

use http::{HeaderValue, StatusCode, header};
use serde_json::json;
use tollgate::problem::Problem;

use super::{answered, check};
use crate::protocol::Protocol;
use crate::serve::edge::auth::Caller;
use crate::serve::edge::calls::holds::ExtendRequest;
use crate::serve::edge::calls::{answer, holds};
use crate::serve::edge::http::error::HttpError;
use crate::serve::edge::http::request_body::BodyKind;
use crate::serve::edge::http::response::{self, HttpResponse};
use crate::serve::gate::Edge;
use crate::serve::server_state::ServerState;

/// A check that holds a lease until it is released or expires.
pub(super) async fn lease(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::Check.read(body)?;
    let held = holds::lease(&state.gate, (Edge::Http, caller), body.check_request()?).await?;
    let members =
        format!(r#""expires_at_ms":{},"lease_ms":{}"#, json!(held.expires_at_ms), json!(held.lasts_ms));
    Ok(check::decided(&held.decision, caller, state, &members))
}

/// Renews leases. A lost lease is an error: its holder must stop.
pub(super) async fn renew(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::Receipt.read(body)?;
    let renewed = holds::renew(&state.gate, caller, body.receipt()).await?;
    Ok(answered(&answer::renewed(&renewed)))
}

/// Releases leases. What other rules charged stays charged.
pub(super) async fn release(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::Receipt.read(body)?;
    let returned = holds::release(&state.gate, caller, body.receipt()).await?;
    Ok(answered(&answer::results(&returned)))
}

/// A check whose cost is an estimate, held until it is settled or cancelled, or expires.
pub(super) async fn reserve(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::Reserve.read(body)?;
    let (request, hold) = (body.check_request()?, body.hold()?);
    let held = holds::reserve(&state.gate, (Edge::Http, caller), request, hold).await?;
    let members =
        format!(r#""expires_at_ms":{},"ttl_ms":{}"#, json!(held.expires_at_ms), json!(held.lasts_ms));
    Ok(check::decided(&held.decision, caller, state, &members))
}

/// Holds more for a reservation. A refusal leaves it as it was.
pub(super) async fn extend(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::Extend.read(body)?;
    let request =
        ExtendRequest { receipt: body.receipt(), more: body.more()?, hold: body.hold()?, id: body.id()? };
    let extended = holds::extend(&state.gate, caller, &request).await?;
    let answer = answer::extended(&extended);
    let extension = &extended.extension;
    if extension.allowed {
        return Ok(answered(&answer));
    }
    let refusing = extension.rules.iter().filter(|rule| rule.blocking && !rule.allowed);
    let rule = extension.refused_by().map(|rule| rule.rule.as_str());
    let problem =
        Problem::quota_exceeded(rule, extension.retry_after(), refusing.map(|rule| rule.rule.as_str()));
    let mut json = "{".to_owned();
    problem.write_json_members(&mut json);
    json.push(',');
    // The members of the answer, without its first brace.
    json.push_str(&answer.to_string()[1..]);
    let mut response = response::problem(StatusCode::TOO_MANY_REQUESTS, json);
    response::add_reference(response.headers_mut(), extended.reference.clone());
    if let Some(wait) = extension.retry_after() {
        let wait_s = wait.as_millis().div_ceil(1_000) as u64;
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait_s.max(1)));
    }
    Ok(response)
}

/// Settles a reservation at what was really used.
pub(super) async fn settle(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::Settle.read(body)?;
    let settlement = body.settlement()?;
    let returned = holds::settle(&state.gate, (Protocol::Http, caller), body.receipt(), &settlement).await?;
    Ok(answered(&answer::returns(&returned)))
}

/// Gives back everything that a reservation holds or was charged.
pub(super) async fn cancel(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::Receipt.read(body)?;
    let returned = holds::cancel(&state.gate, caller, body.receipt()).await?;
    Ok(answered(&answer::returns(&returned)))
}
