//! What follows a check: refunds, reports and resets.

use http::request::Parts;
use serde_json::{Value, json};

use super::{answered, changes};
use crate::serve::edge::auth::{Caller, Peer};
use crate::serve::edge::calls::resets::Reset;
use crate::serve::edge::calls::{answer, holds};
use crate::serve::edge::error::EdgeError;
use crate::serve::edge::http::error::HttpError;
use crate::serve::edge::http::request_body::BodyKind;
use crate::serve::edge::http::response::HttpResponse;
use crate::serve::gate::Edge;
use crate::serve::server_state::ServerState;

/// Refunds what a receipt charged, or a part of it.
pub(super) async fn refund(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::Refund.read(body)?;
    let returned = holds::refund(&state.gate, caller, body.receipt(), body.amount()).await?;
    Ok(answered(&answer::returns(&returned)))
}

/// Reports the result of an attempt to penalty limits.
pub(super) async fn report(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::Report.read(body)?;
    let request = caller.bind(body.check_request()?).map_err(EdgeError::from)?;
    let returned = state.gate.report(request.request(), body.result()).await?;
    Ok(answered(&answer::results(&returned)))
}

/// Deletes the consumption of the subjects of a request, under all rules that match it or one of them.
pub(super) async fn reset(
    parts: &Parts,
    body: &[u8],
    (peer, caller): (&Peer, &Caller),
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let is_trial = changes::is_trial(parts)?;
    let body = BodyKind::Reset.read(body)?;
    let request = body.check_request()?;
    let reset = Reset { request: request.request(), rule: body.rule(), reason: body.reason() };
    if is_trial {
        let subjects = reset.subjects(&state.gate);
        if subjects.is_empty() {
            return Err(EdgeError::nothing_matched(body.rule()).into());
        }
        let rules: Vec<Value> =
            subjects.iter().map(|(rule, subject)| json!({ "rule": rule, "subject": subject })).collect();
        return Ok(answered(&json!({ "dry_run": true, "results": rules })));
    }
    // The row comes first: a reset without a row must not happen.
    reset.audit(caller, peer.address, state).await.map_err(changes::failed)?;
    let returned = state.gate.reset(Edge::Http, caller, request.request(), body.rule()).await?;
    if returned.is_empty() {
        return Err(EdgeError::nothing_matched(body.rule()).into());
    }
    Ok(answered(&answer::results(&returned)))
}
