//! HTTP: translates requests into calls of the gate, and results into responses.
//!
//! HTTP/1.1 without a router: the most frequent paths are compared first. A check goes from the bytes of its body to the
//! bytes of its response without a tree of values in between.

mod authorize;
mod body;
mod check;
mod error;
mod explain;
mod follow_up;
mod pages;
pub(crate) mod request_body;
mod response;
mod route;
mod status_page;
mod surface;
mod timeout_stream;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::{HeaderMap, HeaderValue, header};
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
use route::Route;
pub(crate) use surface::{Surface, is_loopback};
use timeout_stream::{PhaseCell, RequestPhase, TimeoutStream};

const HEADERS_MAX: usize = 64;
/// Bytes of a request head that are read, and of responses that wait to be sent.
const BUFFER_MAX: usize = 32 * 1024;

/// Requests of one connection that are answered before other connections of its thread get their turn.
const REQUESTS_PER_TURN: u32 = 8;

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
    let answered = AtomicU32::new(0);
    let service = service_fn(|request: http::Request<Incoming>| {
        let answered = &answered;
        let (phase, state, peer) = (&phase, &*state, &peer);
        async move {
            phase.set(RequestPhase::Body);
            let response = respond(request, peer, surface, state, phase).await;
            let mut response = response.unwrap_or_else(HttpError::into_response);
            if peer.is_for_health {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            phase.set(RequestPhase::Idle);
            // A pipeline ends its turn, so that other connections of this thread get theirs.
            if answered.fetch_add(1, Ordering::Relaxed) % REQUESTS_PER_TURN == REQUESTS_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
            Ok::<HttpResponse, Infallible>(response)
        }
    });
    let mut http = http1::Builder::new();
    http.max_headers(HEADERS_MAX).max_buf_size(BUFFER_MAX).half_close(true).header_read_timeout(None);
    let mut connection = pin!(http.serve_connection(stream, service));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = state.ending.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
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
    let caller = &authorize_caller(route, &parts.headers, peer, state)?;
    let body = match route.methods() {
        route::Methods::Post => body::read_json(&parts.headers, body).await?,
        route::Methods::Get | route::Methods::Any => bytes::Bytes::new(),
    };
    phase.set(RequestPhase::Response);
    // A batch counts as its checks.
    let calls = usize::from(route.asks_store() && route != Route::Batch);
    let _work = state.work.enter(caller, calls).map_err(EdgeError::from)?;
    match route {
        Route::Check => check::check(&parts.headers, &body, caller, state).await,
        Route::Authorize => authorize::authorize(&parts, peer, caller, state).await,
        Route::Batch => check::batch(&body, caller, state).await,
        Route::Peek => check::peek(&body, caller, state).await,
        Route::Lease => check::lease(&body, caller, state).await,
        Route::Renew => follow_up::renew(&body, caller, state).await,
        Route::Release => follow_up::release(&body, caller, state).await,
        Route::Refund => follow_up::refund(&body, caller, state).await,
        Route::Report => follow_up::report(&body, caller, state).await,
        Route::Reset => follow_up::reset(&body, caller, state).await,
        Route::Rules => Ok(pages::rules(state)),
        Route::Health => Ok(pages::health()),
        Route::Ready => Ok(pages::ready(state)),
        Route::Metrics => Ok(pages::metrics(state)),
        Route::Explain => explain::explain(&body, state).await,
        Route::OpenApi => Ok(pages::openapi()),
        Route::Status => Ok(status_page::page(state)),
        Route::Style => Ok(status_page::style()),
    }
}

fn authorize_caller(
    route: Route,
    headers: &HeaderMap,
    peer: &Peer,
    state: &ServerState,
) -> Result<Caller, EdgeError> {
    let (access, needed) = (state.access.load(), route.needs());
    let authorization = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
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
