//! HTTP: translates requests into questions to the gate, and answers into responses.
//!
//! HTTP/1.1 without a router: what is asked most is compared first, and a check goes from the bytes of its body to the
//! bytes of its answer with no tree of values in between.

mod answer;
mod authorize;
mod body;
mod caller;
mod check;
mod complaint;
mod explain;
mod follow_up;
mod pace;
mod pages;
mod question;
mod route;
mod status;
mod target;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::serve::shared::{Peer, Shared};
use answer::Answer;
use complaint::Complaint;
use pace::{Pace, Patient, Phase};
use route::Route;

const HEADERS_MAX: usize = 64;
/// The most of a head that is read, and the most of answers that waits to be sent.
const BUFFER_MAX: usize = 32 * 1024;

/// Serves one connection until it ends, or until the server does.
pub(crate) async fn serve<T>(stream: T, peer: Peer, shared: Arc<Shared>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let pace = Pace::default();
    let stream = TokioIo::new(Patient::new(stream, pace.clone()));
    let service = service_fn(|request: http::Request<Incoming>| {
        let (pace, shared) = (&pace, &*shared);
        async move {
            pace.enter(Phase::Body);
            let answer = respond(request, peer, shared, pace).await.unwrap_or_else(Complaint::answer);
            pace.enter(Phase::Idle);
            Ok::<Answer, Infallible>(answer)
        }
    });
    let mut http = http1::Builder::new();
    http.max_headers(HEADERS_MAX).max_buf_size(BUFFER_MAX).half_close(true).header_read_timeout(None);
    let mut connection = pin!(http.serve_connection(stream, service));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = shared.ending.cancelled() => {
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
    shared: &Shared,
    pace: &Pace,
) -> Result<Answer, Complaint> {
    let (parts, body) = request.into_parts();
    let route = Route::of(parts.uri.path()).ok_or_else(Complaint::not_found)?;
    if !route.methods().allow_this(&parts.method) {
        return Err(Complaint::wrong_method(route));
    }
    caller::admit(route, &parts.headers, peer, shared)?;
    let body = match route.methods() {
        route::Methods::Post => body::read_json(&parts.headers, body).await?,
        // Nothing is asked in there.
        route::Methods::Get | route::Methods::Any => bytes::Bytes::new(),
    };
    pace.enter(Phase::Answer);
    match route {
        Route::Check => check::check(&parts.headers, &body, shared).await,
        Route::Authorize => authorize::authorize(&parts, peer, shared).await,
        Route::Batch => check::batch(&body, shared).await,
        Route::Peek => check::peek(&body, shared).await,
        Route::Lease => check::lease(&body, shared).await,
        Route::Renew => follow_up::renew(&body, shared).await,
        Route::Release => follow_up::release(&body, shared).await,
        Route::Refund => follow_up::refund(&body, shared).await,
        Route::Report => follow_up::report(&body, shared).await,
        Route::Rules => Ok(pages::rules(shared)),
        Route::Health => Ok(pages::health()),
        Route::Ready => Ok(pages::ready(shared)),
        Route::Metrics => Ok(pages::metrics(shared)),
        Route::Explain => explain::explain(&body, shared).await,
        Route::OpenApi => Ok(pages::openapi()),
        Route::Status => Ok(status::page(shared)),
        Route::Style => Ok(status::style()),
    }
}
