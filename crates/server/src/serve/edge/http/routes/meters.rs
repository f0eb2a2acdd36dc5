//! `/v1/meters`.

use super::answered;
use crate::serve::edge::auth::Caller;
use crate::serve::edge::calls::meters::{self, Meters};
use crate::serve::edge::http::error::HttpError;
use crate::serve::edge::http::request_body::BodyKind;
use crate::serve::edge::http::response::HttpResponse;
use crate::serve::gate::Edge;
use crate::serve::server_state::ServerState;

/// The meters that match, rule by rule.
pub(super) async fn read(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::MeterRead.read(body)?;
    let meant = Meters { rule: body.rule(), scale: body.scale()? };
    Ok(answered(&meters::read(&state.gate, caller, body.check_request()?, meant).await?))
}

/// Adds to the meters that match.
pub(super) async fn add(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::MeterChange.read(body)?;
    let meant = Meters { rule: body.rule(), scale: body.scale()? };
    let (request, amount) = (body.check_request()?, body.meter_amount()?);
    Ok(answered(&meters::add(&state.gate, caller, request, amount, meant).await?))
}

/// Subtracts from the meters that match.
pub(super) async fn subtract(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::MeterChange.read(body)?;
    let meant = Meters { rule: body.rule(), scale: body.scale()? };
    let (request, amount) = (body.check_request()?, body.meter_amount()?);
    Ok(answered(&meters::subtract(&state.gate, caller, request, amount, meant).await?))
}

/// Sets the meters that match to zero.
pub(super) async fn reset(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::Reset.read(body)?;
    let request = body.check_request()?;
    Ok(answered(&meters::reset(&state.gate, (Edge::Http, caller), &request, body.rule()).await?))
}
