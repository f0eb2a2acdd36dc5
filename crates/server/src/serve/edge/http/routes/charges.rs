//! `/v1/record`, `/v1/credit` and `/v1/usage`.

use super::answered;
use crate::serve::edge::auth::Caller;
use crate::serve::edge::calls::{answer, charges};
use crate::serve::edge::http::error::HttpError;
use crate::serve::edge::http::request_body::BodyKind;
use crate::serve::edge::http::response::HttpResponse;
use crate::serve::server_state::ServerState;

/// Books what was used, also beyond the limits.
pub(super) async fn record(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::Check.read(body)?;
    let recorded = charges::record(&state.gate, caller, body.check_request()?).await?;
    Ok(answered(&answer::recorded(&recorded)))
}

/// Takes consumption back without a receipt.
pub(super) async fn credit(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::Check.read(body)?;
    let returned = charges::credit(&state.gate, caller, body.check_request()?).await?;
    Ok(answered(&answer::credits(&returned)))
}

/// What the subjects of a request have used, under every rule that matches.
pub(super) async fn usage(
    body: &[u8],
    caller: &Caller,
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    let body = BodyKind::Usage.read(body)?;
    let usage = charges::usage(&state.gate, caller, body.check_request()?).await?;
    Ok(answered(&answer::usage(&usage)))
}
