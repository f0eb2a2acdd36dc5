//! gRPC: Envoy's rate limit service, health checks and, by setting, server reflection. Translates messages into calls of
//! the gate, and results into messages.
//!
//! hyper serves the connections instead of tonic's server, so that limits, shutdown and access work as on other transports.

mod credit;
pub(crate) mod descriptor_request;
mod health;
pub(crate) mod message;
mod own_limit;
mod preface;
pub(crate) mod proto;
mod response;
mod should_rate_limit;
mod unary;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;

use super::auth::{Credentials, Needs, Peer};
use crate::access::Scopes;
use crate::protocol::Protocol;
use crate::serve::server_state::ServerState;
use health::Health;

/// Concurrent requests of one connection.
const STREAMS_MAX: u32 = 200;
/// Bytes of all header fields of a request, as HTTP/2 counts them.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;
/// Bytes that a stream may send before they are read: one message and its frames.
const STREAM_WINDOW: u32 = 80 * 1024;
/// Bytes that all streams of a connection may send before they are read.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Streams that a client may open and reset before they are accepted. With more, the connection is closed.
const RESETS_MAX: usize = 20;
/// Streams that the server may reset because of errors of the client.
const ERRORS_MAX: usize = 100;
/// Bytes of a reflection request.
const REFLECTION_MAX: usize = 16 * 1024;
/// Timeout for the first message of calls other than checks.
const OTHER_CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// An idle connection gets a ping after this time.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// Timeout for the reply to a ping.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves one connection until the client or the server closes it.
pub(crate) async fn serve<T>(stream: T, peer: Peer, state: Arc<ServerState>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // A client that does not speak HTTP/2 is disconnected.
    let Some(stream) = preface::wait_for(stream).await else { return };
    let health = Arc::new(Health::new().await);
    let service = service_fn(|request: http::Request<Incoming>| {
        let (health, state, peer) = (Arc::clone(&health), Arc::clone(&state), peer.clone());
        // Boxed, because it is moved several times before it runs.
        Box::pin(async move { Ok::<_, Infallible>(respond(request, peer, state, health).await) })
    });
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADERS_BYTES_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(ERRORS_MAX)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = state.ending.cancelled() => {
            // Ends the streams of clients that watch the health, which would keep the connection open.
            health.end().await;
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // A client that disconnects in the middle of a request needs no report.
    drop(ended);
}

async fn respond(
    request: http::Request<Incoming>,
    peer: Peer,
    state: Arc<ServerState>,
    health: Arc<Health>,
) -> http::Response<Body> {
    if !is_grpc(request.headers()) {
        let mut response = http::Response::new(Body::empty());
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return response;
    }
    let needed = match service_of(&request) {
        "/grpc.health.v1.Health" => Needs::Nothing,
        "/grpc.reflection.v1.ServerReflection" | "/grpc.reflection.v1alpha.ServerReflection" => {
            Needs::Scope(Scopes::READ)
        }
        _ => Needs::Scope(Scopes::CHECK),
    };
    let authorization = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes());
    let credentials = Credentials::from_authorization(authorization);
    let caller = match state.access.load().authorize(&peer, credentials, needed) {
        Ok(caller) => caller,
        Err(error) => return response::error(&state.auth_failures.note(error, Protocol::Grpc), 0),
    };
    if request.uri().path() == should_rate_limit::PATH {
        return should_rate_limit::respond(request, &caller, state).await;
    }
    // Boxed, because its size would be moved around for every check.
    let other_call = timeout(OTHER_CALL_TIMEOUT, Box::pin(respond_to_other_call(request, state, health)));
    other_call.await.unwrap_or_else(|_| Status::deadline_exceeded("the message took too long").into_http())
}

async fn respond_to_other_call(
    request: http::Request<Incoming>,
    state: Arc<ServerState>,
    health: Arc<Health>,
) -> http::Response<Body> {
    match service_of(&request) {
        "/grpc.health.v1.Health" => health.respond(request).await,
        "/grpc.reflection.v1.ServerReflection" if state.grpc.reflection => {
            match proto::reflection().build_v1() {
                Ok(reflection) => {
                    let mut reflection = reflection.max_decoding_message_size(REFLECTION_MAX);
                    infallible(reflection.call(request).await)
                }
                Err(error) => Status::internal(error.to_string()).into_http(),
            }
        }
        "/grpc.reflection.v1alpha.ServerReflection" if state.grpc.reflection => {
            match proto::reflection().build_v1alpha() {
                Ok(reflection) => {
                    let mut reflection = reflection.max_decoding_message_size(REFLECTION_MAX);
                    infallible(reflection.call(request).await)
                }
                Err(error) => Status::internal(error.to_string()).into_http(),
            }
        }
        _ => Status::unimplemented(
            "unknown service; known are envoy.service.ratelimit.v3.RateLimitService and grpc.health.v1.Health",
        )
        .into_http(),
    }
}

fn service_of<B>(request: &http::Request<B>) -> &str {
    request.uri().path().rsplit_once('/').map_or("", |(service, _)| service)
}

fn infallible(result: Result<http::Response<Body>, Infallible>) -> http::Response<Body> {
    match result {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}
