//! Calls of control routes: how many a caller may make, and those that were refused.

use http::{Method, StatusCode, header};

use super::error::HttpError;
use super::route::{Route, RouteKind};
use crate::serve::edge::auth::{Caller, Credentials, Peer};
use crate::serve::server_state::ServerState;

/// A call that the audit trail counts if it is refused.
pub(super) struct ControlCall {
    route: String,
    authorization: Option<Vec<u8>>,
}

impl ControlCall {
    /// `None` if it is not a call of a control route.
    pub(super) fn of<B>(request: &http::Request<B>) -> Option<ControlCall> {
        let path = request.uri().path();
        let route = Route::of(path).filter(|route| route.kind() == RouteKind::Control)?;
        // Ids are left out, so that calls of many ids are one row.
        let path = match route {
            Route::Change(_) => path.rsplit_once('/').map_or(path, |(list, _)| list),
            _ => path,
        };
        let method = match *request.method() {
            Method::GET | Method::HEAD => "GET",
            Method::POST => "POST",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "other",
        };
        let authorization = request.headers().get(header::AUTHORIZATION);
        Some(ControlCall {
            route: format!("{method} {path}"),
            authorization: authorization.map(|value| value.as_bytes().to_vec()),
        })
    }

    /// Counts the call if it was refused, not merely wrong.
    #[cold]
    pub(super) fn note_if_refused(self, error: &HttpError, peer: &Peer, state: &ServerState) {
        let Some(control) = &state.control else { return };
        let refused = [
            StatusCode::UNAUTHORIZED,
            StatusCode::FORBIDDEN,
            StatusCode::MISDIRECTED_REQUEST,
            StatusCode::TOO_MANY_REQUESTS,
        ];
        if !refused.contains(&error.status()) {
            return;
        }
        let credentials = Credentials::from_authorization(self.authorization.as_deref());
        let caller = state.access.load().authenticate(peer, credentials);
        let name = caller.as_ref().map_or("(unknown token)", Caller::name);
        control.note_refusal(name, peer.address.to_string(), &self.route, error.code());
    }
}

/// Refuses a caller that makes too many calls of control routes.
pub(super) fn throttle(peer: &Peer, caller: &Caller, state: &ServerState) -> Result<(), HttpError> {
    let Some(control) = &state.control else { return Ok(()) };
    let key = match caller.is_anonymous() {
        true => peer.address.to_string(),
        false => format!("token {}", caller.name()),
    };
    match control.throttled(&key) {
        None => Ok(()),
        Some(wait) => {
            let detail = "too many calls of control routes with this token; wait, then repeat the call";
            Err(HttpError::wait("too-many-calls", detail, wait))
        }
    }
}
