//! HTTP: translates requests into calls of the gate, and results into responses.
//!
//! HTTP/1.1 without a router: the most frequent paths are compared first. A check goes from the bytes of its body to the
//! bytes of its response without a tree of values in between.

mod body;
mod error;
mod refusals;
pub(crate) mod request_body;
mod response;
mod route;
mod routes;
mod surface;
mod timeout_stream;
mod turn;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, Method, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::auth::{AuthError, Caller, Credentials, Peer};
use super::error::EdgeError;
use crate::protocol::Protocol;
use crate::serve::server_state::ServerState;
use error::HttpError;
use response::HttpResponse;
use route::{Route, RouteKind};
pub(crate) use surface::{Surface, is_loopback};
use timeout_stream::{PhaseCell, RequestPhase, TimeoutStream};
use turn::Turns;

const HEADERS_MAX: usize = 64;
/// Bytes of a request head that are read, and of responses that wait to be sent.
const BUFFER_MAX: usize = 32 * 1024;

/// Serves one connection until the client or the server closes it.
pub(crate) async fn serve<T>(stream: T, peer: Peer, surface: Surface, state: Arc<ServerState>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let phase = PhaseCell::default();
    if peer.is_for_health {
        // The timeout of the request head starts now, so that an idle client does not keep a place for health checks.
        phase.set(RequestPhase::Head);
    }
    let stream = TokioIo::new(TimeoutStream::new(stream, phase.clone()));
    let turns = Turns::default();
    let service = service_fn(|request: http::Request<Incoming>| {
        let turns = &turns;
        let is_batch = Route::of(request.uri().path()) == Some(Route::Batch);
        let (phase, state, peer) = (&phase, &*state, &peer);
        async move {
            phase.set(RequestPhase::Body);
            let call = refusals::ControlCall::of(&request);
            let response = respond(request, peer, surface, state, phase).await;
            let mut response = response.unwrap_or_else(|error| {
                if let Some(call) = call {
                    call.note_if_refused(&error, peer, state);
                }
                error.into_response()
            });
            if peer.is_for_health {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            phase.set(RequestPhase::Idle);
            turns.answered(if is_batch { turn::REQUESTS_MAX } else { 1 }).await;
            Ok::<HttpResponse, Infallible>(response)
        }
    });
    let mut http = http1::Builder::new();
    http.max_headers(HEADERS_MAX).max_buf_size(BUFFER_MAX).half_close(true).header_read_timeout(None);
    let mut connection = pin!(http.serve_connection(stream, service));
    let until_closed = async {
        tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = state.ending.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    let ended = turns.run(until_closed).await;
    // A client that disconnects in the middle of a request needs no report.
    drop(ended);
}

async fn respond(
    request: http::Request<Incoming>,
    peer: &Peer,
    surface: Surface,
    state: &ServerState,
    phase: &PhaseCell,
) -> Result<HttpResponse, HttpError> {
    let (parts, body) = request.into_parts();
    let route = Route::of(parts.uri.path()).ok_or_else(HttpError::not_found)?;
    surface.admit(route, &parts, &state.allowed_hosts)?;
    if peer.is_for_health && !route.is_health() {
        return Err(HttpError::too_many_connections());
    }
    if !route.methods().include(&parts.method) {
        return Err(HttpError::wrong_method(route));
    }
    let caller = &authorize_caller(route, &parts, peer, state)?;
    if route.kind() == RouteKind::Control {
        refusals::throttle(peer, caller, state)?;
    }
    let body = match parts.method {
        Method::POST | Method::PATCH | Method::DELETE if route != Route::Authorize => {
            body::read_json(&parts.headers, body).await?
        }
        _ => bytes::Bytes::new(),
    };
    phase.set(RequestPhase::Response);
    // A batch counts as its checks.
    let calls = usize::from(route.asks_store() && route != Route::Batch);
    let work = state.work.enter(caller, calls).map_err(EdgeError::from)?;
    let _turn = work.turn().await.map_err(EdgeError::from)?;
    routes::respond(route, &parts, &body, (peer, caller), state).await
}

fn authorize_caller(
    route: Route,
    parts: &Parts,
    peer: &Peer,
    state: &ServerState,
) -> Result<Caller, EdgeError> {
    let (access, needed) = (state.access.load(), route.needs(&parts.method));
    let authorization = parts.headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
    let credentials = Credentials::from_authorization(authorization);
    let authorized = match access.authorize(peer, credentials, needed) {
        // A proxy passes its client's `Authorization` on, which is not meant for this server.
        Err(AuthError::UnknownToken) if route == Route::Authorize => {
            access.authorize(peer, Credentials::None, needed)
        }
        authorized => authorized,
    };
    authorized.map_err(|error| state.auth_failures.note(error, Protocol::Http))
}
