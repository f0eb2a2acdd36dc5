//! What each path does: reads the body, makes the call, and writes the response.

mod audit;
mod authorize;
mod changes;
mod charges;
mod check;
mod dashboard;
mod explain;
mod follow_up;
mod holds;
mod ledger;
mod meters;
mod operators;
mod pages;
mod top;

use http::request::Parts;
use serde_json::Value;

use super::error::HttpError;
use super::response::{self, HttpResponse};
use super::route::Route;
use crate::serve::edge::auth::{Caller, Peer};
use crate::serve::server_state::ServerState;

/// Responds to a request that is authorised and whose body is read.
pub(super) async fn respond(
    route: Route,
    parts: &Parts,
    body: &[u8],
    (peer, caller): (&Peer, &Caller),
    state: &ServerState,
) -> Result<HttpResponse, HttpError> {
    match route {
        Route::Check => check::check(&parts.headers, body, caller, state).await,
        Route::Authorize => authorize::authorize(parts, peer, caller, state).await,
        Route::Batch => check::batch(body, caller, state).await,
        Route::Peek => check::peek(body, caller, state).await,
        Route::Lease => holds::lease(body, caller, state).await,
        Route::Renew => holds::renew(body, caller, state).await,
        Route::Release => holds::release(body, caller, state).await,
        Route::Refund => follow_up::refund(body, caller, state).await,
        Route::Report => follow_up::report(body, caller, state).await,
        Route::Reserve => holds::reserve(body, caller, state).await,
        Route::Extend => holds::extend(body, caller, state).await,
        Route::Settle => holds::settle(body, caller, state).await,
        Route::Cancel => holds::cancel(body, caller, state).await,
        Route::Record => charges::record(body, caller, state).await,
        Route::Credit => charges::credit(body, caller, state).await,
        Route::Usage => charges::usage(body, caller, state).await,
        Route::Meters => meters::read(body, caller, state).await,
        Route::MeterAdd => meters::add(body, caller, state).await,
        Route::MeterSubtract => meters::subtract(body, caller, state).await,
        Route::MeterReset => meters::reset(body, caller, state).await,
        Route::Reset => follow_up::reset(parts, body, (peer, caller), state).await,
        Route::Changes(kind) => changes::all(kind, parts, body, (peer, caller), state).await,
        Route::Change(kind) => changes::one(kind, parts, body, (peer, caller), state).await,
        Route::Audit => audit::page(parts, state).await,
        Route::LedgerUsage => ledger::usage(parts, state).await,
        Route::LedgerEntries => ledger::entries(parts, state).await,
        Route::LedgerHeads => ledger::heads(parts, state).await,
        Route::LedgerCorrections => ledger::correct(parts, body, (peer, caller), state).await,
        Route::Rules => pages::rules(parts, state),
        Route::Doctor => Ok(pages::doctor(state)),
        Route::Top => top::top(parts.uri.query().unwrap_or_default(), state),
        Route::Health => Ok(pages::health()),
        Route::Ready => Ok(pages::ready(state)),
        Route::Metrics => Ok(pages::metrics(state)),
        Route::Explain => explain::explain(body, state).await,
        Route::OpenApi => Ok(pages::openapi()),
        Route::History => dashboard::history(parts, state),
        Route::Events => dashboard::events(parts, state),
        Route::Whoami => Ok(operators::whoami(caller)),
        Route::Fleet => Ok(operators::fleet(state)),
        Route::Dashboard(asset) => Ok(dashboard::asset(asset)),
    }
}

/// The result of a call as a response.
fn answered(answer: &Value) -> HttpResponse {
    response::json(answer.to_string())
}
