//! gRPC: Envoy's rate limit service, health, and reflection by setting. Translates messages into questions to the gate, and
//! answers into messages.
//!
//! A connection is served by hyper and not by tonic's own server, so that limits, the end and who may ask are ours.

mod answer;
mod caller;
mod health;
mod own_limit;
mod preface;
pub(crate) mod proto;
mod question;
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

use crate::access::Scopes;
use crate::serve::shared::{Peer, Shared};
use health::Health;
pub(crate) use question::Names;

/// What is made of messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Messages {
    /// Whether clients are told which services there are.
    pub(crate) reflection: bool,
    /// Which entries of descriptors are attributes under another name as well.
    pub(crate) names: Names,
}

/// Requests of one connection at a time.
const STREAMS_MAX: u32 = 200;
/// All header fields of a request together, as HTTP/2 counts them.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;
/// What a stream may send before it is read: a message and what is around it.
const STREAM_WINDOW: u32 = 80 * 1024;
/// What all streams of a connection may send before it is read.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Streams that a client opens and takes back before they were looked at. More, and it is turned away.
const RESETS_MAX: usize = 20;
/// Streams that we had to end because of what the client did.
const ERRORS_MAX: usize = 100;
/// Bytes of a question about the services there are.
const REFLECTION_MAX: usize = 16 * 1024;
/// How long the first message of other calls than checks may take.
const OTHERWISE_MAX: Duration = Duration::from_secs(5);
/// A connection on which nothing comes for so long is asked whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// How long it may take to answer that.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves one connection until it ends, or until the server does.
pub(crate) async fn serve<T>(stream: T, peer: Peer, shared: Arc<Shared>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Whoever speaks no HTTP/2, or says nothing, is its own affair.
    let Some(stream) = preface::wait_for(stream).await else { return };
    let health = Arc::new(Health::new().await);
    let service = service_fn(|request: http::Request<Incoming>| {
        let (health, shared) = (Arc::clone(&health), Arc::clone(&shared));
        // In a box, because it is moved several times before it runs.
        Box::pin(async move { Ok::<_, Infallible>(respond(request, peer, shared, health).await) })
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
        () = shared.ending.cancelled() => {
            // Whoever watches would otherwise be waited for.
            health.end().await;
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // A client that goes away in the middle is its own affair.
    drop(ended);
}

async fn respond(
    request: http::Request<Incoming>,
    peer: Peer,
    shared: Arc<Shared>,
    health: Arc<Health>,
) -> http::Response<Body> {
    if !speaks_grpc(request.headers()) {
        let mut answer = http::Response::new(Body::empty());
        *answer.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return answer;
    }
    let path = request.uri().path();
    let needed = match service_of(&request) {
        "/grpc.health.v1.Health" => Scopes::NONE,
        "/grpc.reflection.v1.ServerReflection" | "/grpc.reflection.v1alpha.ServerReflection" => Scopes::READ,
        _ => Scopes::CHECK,
    };
    if let Err(status) = caller::admit(needed, request.headers(), peer, &shared) {
        return status.into_http();
    }
    if path == should_rate_limit::PATH {
        return should_rate_limit::answer(request, shared).await;
    }
    // In a box, because what one of these takes would be moved around for every check.
    let otherwise = timeout(OTHERWISE_MAX, Box::pin(respond_otherwise(request, shared, health)));
    otherwise.await.unwrap_or_else(|_| Status::deadline_exceeded("the message took too long").into_http())
}

async fn respond_otherwise(
    request: http::Request<Incoming>,
    shared: Arc<Shared>,
    health: Arc<Health>,
) -> http::Response<Body> {
    match service_of(&request) {
        "/grpc.health.v1.Health" => health.answer(request).await,
        "/grpc.reflection.v1.ServerReflection" if shared.grpc.reflection => {
            match proto::reflection().build_v1() {
                Ok(reflection) => {
                    let mut reflection = reflection.max_decoding_message_size(REFLECTION_MAX);
                    infallible(reflection.call(request).await)
                }
                Err(error) => Status::internal(error.to_string()).into_http(),
            }
        }
        "/grpc.reflection.v1alpha.ServerReflection" if shared.grpc.reflection => {
            match proto::reflection().build_v1alpha() {
                Ok(reflection) => {
                    let mut reflection = reflection.max_decoding_message_size(REFLECTION_MAX);
                    infallible(reflection.call(request).await)
                }
                Err(error) => Status::internal(error.to_string()).into_http(),
            }
        }
        _ => Status::unimplemented(
            "there is envoy.service.ratelimit.v3.RateLimitService and grpc.health.v1.Health",
        )
        .into_http(),
    }
}

fn service_of<B>(request: &http::Request<B>) -> &str {
    request.uri().path().rsplit_once('/').map_or("", |(service, _)| service)
}

fn infallible(answer: Result<http::Response<Body>, Infallible>) -> http::Response<Body> {
    match answer {
        Ok(answer) => answer,
        Err(never) => match never {},
    }
}

fn speaks_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}
