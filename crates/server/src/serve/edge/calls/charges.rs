//! Charges after the fact, and what was used.

use tollgate::limiter::{Recorded, Returned, RuleUsage};

use crate::serve::edge::auth::Caller;
use crate::serve::edge::error::EdgeError;
use crate::serve::edge::request::CheckRequest;
use crate::serve::gate::Gate;

/// Books what was used, also beyond the limits.
pub(crate) async fn record(
    gate: &Gate,
    caller: &Caller,
    request: CheckRequest<'_>,
) -> Result<Recorded, EdgeError> {
    let request = caller.bind(request)?;
    gate.record(request.request()).await.map_err(|error| EdgeError::from(&error))
}

/// Takes consumption back without a receipt, never below zero.
pub(crate) async fn credit(
    gate: &Gate,
    caller: &Caller,
    request: CheckRequest<'_>,
) -> Result<Vec<Returned>, EdgeError> {
    let request = caller.bind(request)?;
    gate.credit(request.request()).await.map_err(|error| EdgeError::from(&error))
}

/// What the subjects of a request have used, under every rule that matches.
pub(crate) async fn usage(
    gate: &Gate,
    caller: &Caller,
    request: CheckRequest<'_>,
) -> Result<Vec<RuleUsage>, EdgeError> {
    let request = caller.bind(request)?;
    gate.usage(request.request()).await.map_err(|error| EdgeError::from(&error))
}
