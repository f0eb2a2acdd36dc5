//! What an operator asks about itself and about the servers: `/v1/whoami` and `/v1/fleet`.

use http::header;
use serde_json::json;

use super::answered;
use crate::serve::edge::auth::Caller;
use crate::serve::edge::http::response::{HttpResponse, NO_STORE};
use crate::serve::server_state::ServerState;

/// The name of the caller as logs state it, and its scopes. The dashboard offers only what they permit.
pub(super) fn whoami(caller: &Caller) -> HttpResponse {
    let scopes: Vec<&str> = caller.scopes().names().collect();
    uncached(answered(&json!({
        "name": caller.name(),
        "anonymous": caller.is_anonymous(),
        "scopes": scopes,
    })))
}

/// The servers that share the store; `servers` is null if it is not shared.
pub(super) fn fleet(state: &ServerState) -> HttpResponse {
    let fleet = match &state.others {
        Some(others) => others.borrow().servers_json(),
        None => json!({ "unheard": false, "servers": null }),
    };
    uncached(answered(&fleet))
}

fn uncached(mut response: HttpResponse) -> HttpResponse {
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response
}
