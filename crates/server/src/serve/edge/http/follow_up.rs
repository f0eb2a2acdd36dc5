//! What follows a check: refunds, leases, reports and resets.

use http::StatusCode;
use serde_json::{Value, json};
use tollgate::core::{Decline, Receipt};
use tollgate::limiter::Returned;

use super::error::HttpError;
use super::request_body::BodyKind;
use super::response::{self, HttpResponse};
use crate::serve::edge::auth::Caller;
use crate::serve::edge::error::EdgeError;
use crate::serve::gate::Edge;
use crate::serve::server_state::ServerState;

/// Refunds what a receipt charged, or a part of it.
pub(super) async fn refund(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::Refund.read(body)?;
    let receipts = state.gate.open(body.receipt(), caller)?;
    let returned = state.gate.refund(&receipts, body.amount()).await?;
    Ok(refunds(&returned))
}

/// Renews leases. A lost lease is an error: its holder must stop.
pub(super) async fn renew(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let leases = leases(body, caller, state)?;
    let returned = state.gate.renew(&leases).await?;
    if let Some((lost, why)) = returned.iter().find_map(|rule| Some((&rule.rule, rule.amount.err()?))) {
        let detail = format!("the lease of rule {lost:?} is lost: {why}; stop, or request a new one");
        return Err(HttpError::new(StatusCode::CONFLICT, "lease-lost", detail));
    }
    Ok(results(&returned))
}

/// Releases leases. What other rules charged stays charged.
pub(super) async fn release(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let leases = leases(body, caller, state)?;
    let returned = state.gate.release(&leases).await?;
    Ok(results(&returned))
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
    Ok(results(&returned))
}

/// Deletes the consumption of the subjects of a request, under all rules that match it or one of them.
pub(super) async fn reset(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::Reset.read(body)?;
    let request = body.check_request()?;
    let returned = state.gate.reset(Edge::Http, caller, request.request(), body.rule()).await?;
    if returned.is_empty() {
        return Err(EdgeError::nothing_matched(body.rule()).into());
    }
    Ok(results(&returned))
}

fn receipts(body: &[u8], caller: &Caller, state: &ServerState) -> Result<Vec<Receipt>, HttpError> {
    let body = BodyKind::Receipt.read(body)?;
    Ok(state.gate.open(body.receipt(), caller)?)
}

fn leases(body: &[u8], caller: &Caller, state: &ServerState) -> Result<Vec<Receipt>, HttpError> {
    let receipts = receipts(body, caller, state)?;
    if receipts.iter().all(|receipt| receipt.token().is_none()) {
        let detail =
            "this receipt holds no lease; use a receipt of /v1/leases, or refund this one with /v1/refund";
        return Err(HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, "no-lease", detail));
    }
    Ok(receipts)
}

/// The result of each rule.
fn results(returned: &[Returned]) -> HttpResponse {
    response::json(json!({ "rules": returned.iter().map(result).collect::<Value>() }).to_string())
}

/// The result of each rule, and whether the receipt was returned before.
fn refunds(returned: &[Returned]) -> HttpResponse {
    let rules = returned.iter().map(|returned| {
        let mut rule = result(returned);
        rule["already_returned"] = returned.already_returned.into();
        rule
    });
    response::json(json!({ "rules": rules.collect::<Value>() }).to_string())
}

fn result(returned: &Returned) -> Value {
    match returned.amount {
        Ok(amount) => json!({ "rule": returned.rule, "amount": amount, "declined": null }),
        Err(why) => json!({ "rule": returned.rule, "amount": 0, "declined": declined(why) }),
    }
}

const fn declined(why: Decline) -> &'static str {
    match why {
        Decline::NotSupported => "not-supported",
        Decline::NotHeld => "not-held",
        Decline::TooOld => "too-old",
        Decline::TokenInUse => "token-in-use",
        Decline::TooManyReservations => "too-many-reservations",
        Decline::BookedLate => "booked-late",
        Decline::Recompute { .. } => "recompute",
        Decline::ReceiptExpired => "receipt-expired",
        Decline::ResetSince => "reset-since",
        Decline::WindowChanged => "window-changed",
        Decline::Overflow => "overflow",
    }
}
