use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use ::tower::{Service, ServiceExt, service_fn};
use http::{HeaderMap, Request, Response};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};
use tollgate_core::Time;
use tower_layer::Layer;

use super::*;
use crate::store::down::DownStore;
use crate::wire::headers::{Dialect, Reset};
use crate::{Limiter, LocalLimiter, ManualClock};

type Answered = Result<Response<String>, Infallible>;

/// The clock does not move, so that buckets stay empty.
fn limiter(rules: &str) -> LocalLimiter {
    let clock = ManualClock::at(Time::from_us(1_000_000_000));
    let rules = format!("version: 1\nrules:\n{rules}");
    LocalLimiter::builder().clock(clock).rules_yaml(rules).build().unwrap_or_else(|error| panic!("{error}"))
}

fn layer(rules: &str) -> TollgateLayer<String> {
    TollgateLayer::new(limiter(rules))
}

/// A request without a body.
fn get(path: &str) -> Request<()> {
    Request::get(path).body(()).unwrap()
}

/// An inner service, and how often it was called.
fn counted() -> (
    impl Service<Request<()>, Response = Response<String>, Error = Infallible, Future = Ready<Answered>>
    + Clone
    + Send
    + 'static,
    Arc<AtomicU64>,
) {
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    let inner = service_fn(move |_: Request<()>| {
        count.fetch_add(1, Ordering::SeqCst);
        ready(Ok(Response::new("served".to_owned())))
    });
    (inner, calls)
}

fn shown(headers: &HeaderMap) -> Vec<String> {
    headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
}

const PER_PATH: &str = "  - { id: per-path, per: path, limit: { fixed-window: 2/min } }";

#[tokio::test]
async fn a_refused_request_does_not_reach_the_service() {
    let (inner, calls) = counted();
    let service = layer(PER_PATH).layer(inner);
    for remaining in [1, 0] {
        let response = service.clone().oneshot(get("/a?query")).await.unwrap();
        assert_eq!((response.status().as_u16(), response.body().as_str()), (200, "served"));
        assert_eq!(
            shown(response.headers()),
            [
                r#"ratelimit-policy: "per-path";q=2;w=60"#.to_owned(),
                format!(r#"ratelimit: "per-path";r={remaining};t=20"#)
            ]
        );
    }
    let response = service.clone().oneshot(get("/a")).await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(
        shown(response.headers()),
        [
            "content-type: application/problem+json",
            r#"ratelimit-policy: "per-path";q=2;w=60"#,
            r#"ratelimit: "per-path";r=0;t=20"#,
            "retry-after: 20",
        ]
    );
    assert!(response.body().contains(r#""retry_after_ms":20000"#), "{}", response.body());
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    // Another path is another subject.
    assert_eq!(service.oneshot(get("/b")).await.unwrap().status(), 200);
}

#[tokio::test]
async fn the_default_attributes_are_method_path_and_peer_address() {
    let rules = "
  - { id: posts, match: { method: POST }, per: all, limit: deny }
  - { id: per-address, per: ip, missing: skip, limit: { fixed-window: 1/min } }";
    let (inner, _) = counted();
    let service = layer(rules).layer(inner);
    let status = async |request| service.clone().oneshot(request).await.unwrap().status().as_u16();
    let from = |peer: &str| {
        let mut request = get("/");
        request.extensions_mut().insert(peer.parse::<SocketAddr>().unwrap());
        request
    };
    assert_eq!(status(Request::post("/").body(()).unwrap()).await, 403);
    // No peer address is known, and headers are not read.
    for _ in 0..2 {
        assert_eq!(
            status(Request::get("/").header("x-forwarded-for", "192.0.2.1").body(()).unwrap()).await,
            200
        );
    }
    assert_eq!(status(from("192.0.2.1:1000")).await, 200);
    assert_eq!(status(from("192.0.2.1:2000")).await, 429);
    assert_eq!(status(from("192.0.2.2:1000")).await, 200);
    // A whole /64 is one client.
    assert_eq!(status(from("[2001:db8::1]:1")).await, 200);
    assert_eq!(status(from("[2001:db8::2]:1")).await, 429);
}

#[tokio::test]
async fn attributes_and_cost_can_be_set_by_functions() {
    let (inner, _) = counted();
    let service = layer("  - { id: per-key, per: [tenant, api_key], limit: { fixed-window: 10/min } }")
        .describe(|request, about| {
            // Borrowed from the request, owned, and from outside of both.
            if let Some(key) = request.headers.get("x-api-key").and_then(|key| key.to_str().ok()) {
                about.set("api_key", key);
            }
            about.set("tenant", "overwritten");
            about.set("tenant", request.uri.path().to_uppercase());
        })
        .cost(|request| request.uri.query().and_then(|cost| cost.parse().ok()).unwrap_or(1))
        .layer(inner);
    let status = async |uri: &str, key: &str| {
        let request = Request::get(uri).header("x-api-key", key).body(()).unwrap();
        service.clone().oneshot(request).await.unwrap().status().as_u16()
    };
    assert_eq!(status("/a?10", "k").await, 200);
    assert_eq!(status("/A", "k").await, 429);
    assert_eq!(status("/a", "l").await, 200);
    assert_eq!(status("/b", "k").await, 200);
    // The cost exceeds the capacity.
    assert_eq!(status("/c?11", "k").await, 413);
}

#[tokio::test]
async fn a_custom_refusal_still_gets_the_header_fields() {
    let (inner, _) = counted();
    let service = TollgateLayer::answering(limiter(PER_PATH), |rejection| {
        let text = match rejection {
            Rejection::Refused(decision) => format!("later: {}", decision.rule().unwrap()),
            Rejection::Undecided(error) => format!("never: {error}"),
        };
        Response::builder().status(420).header("retry-after", "77").body(text).unwrap()
    })
    .cost(|request| request.uri.query().and_then(|cost| cost.parse().ok()).unwrap_or(1))
    .layer(inner);
    assert_eq!(service.clone().oneshot(get("/?2")).await.unwrap().status(), 200);
    let refused = service.clone().oneshot(get("/")).await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.body().as_str()), (420, "later: per-path"));
    assert_eq!(refused.headers()["ratelimit"], r#""per-path";r=0;t=20"#);
    assert_eq!(refused.headers().get_all("retry-after").iter().collect::<Vec<_>>(), ["77"]);
    let undecided = service.oneshot(get("/?3")).await.unwrap();
    assert!(undecided.body().starts_with("never: "), "{}", undecided.body());
}

#[tokio::test]
async fn allowed_responses_have_no_fields_if_switched_off() {
    let (inner, _) = counted();
    let service = layer(PER_PATH).headers_when_allowed(false).layer(inner);
    for _ in 0..2 {
        assert_eq!(shown(service.clone().oneshot(get("/")).await.unwrap().headers()), [""; 0]);
    }
    assert!(service.oneshot(get("/")).await.unwrap().headers().contains_key("ratelimit"));
}

#[tokio::test]
async fn fields_of_an_inner_layer_are_kept() {
    let nested = |dialect| {
        let (inner, _) = counted();
        let inner = layer("  - { id: inner, per: path, limit: { fixed-window: 2/min } }")
            .dialect(dialect)
            .layer(inner);
        layer("  - { id: outer, per: all, limit: { fixed-window: 9/min } }").dialect(dialect).layer(inner)
    };
    let response = nested(Dialect::Ietf08).oneshot(get("/")).await.unwrap();
    let policies: Vec<_> = response.headers().get_all("ratelimit-policy").iter().collect();
    assert_eq!(policies, [r#""inner";q=2;w=60"#, r#""outer";q=9;w=60"#]);

    let response = nested(Dialect::XRateLimit { reset: Reset::Delta }).oneshot(get("/")).await.unwrap();
    let limits: Vec<_> = response.headers().get_all("x-ratelimit-limit").iter().collect();
    assert_eq!(limits, ["2"]);
}

/// Time is paused, so that a timeout ends as soon as every task waits.
#[tokio::test(start_paused = true)]
async fn a_lease_is_held_until_the_response_or_until_the_request_is_dropped() {
    let (started, mut starts) = mpsc::unbounded_channel();
    let inner = service_fn(move |_: Request<()>| {
        let (answer, answered) = oneshot::channel::<()>();
        started.send(answer).unwrap();
        async move {
            answered.await.unwrap();
            Ok::<_, Infallible>(Response::new(String::new()))
        }
    });
    let service = layer("  - { id: at-once, per: all, limit: { concurrency: 1, lease: 30s } }").layer(inner);
    let start = || tokio::spawn(timeout(Duration::from_secs(1), service.clone().oneshot(get("/"))));
    let status = async |call: JoinHandle<Result<Answered, Elapsed>>| {
        call.await.unwrap().expect("a response in time").unwrap().status().as_u16()
    };

    let first = start();
    let answer = starts.recv().await.unwrap();
    assert_eq!(status(start()).await, 429);
    answer.send(()).unwrap();
    assert_eq!(status(first).await, 200);

    let second = start();
    let _unanswered = starts.recv().await.unwrap();
    assert_eq!(status(start()).await, 429);
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());

    let third = start();
    let answer = timeout(Duration::from_secs(1), starts.recv()).await.expect("the lease is free").unwrap();
    answer.send(()).unwrap();
    assert_eq!(status(third).await, 200);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_slot_in_the_queue() {
    let inner = service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(Instant::now()))));
    let limiter = limiter("  - { id: shaped, per: all, limit: { leaky-bucket: 10/s, queue: 2 } }");
    let service =
        TollgateLayer::answering(limiter, |_| Response::builder().status(429).body(Instant::now()).unwrap())
            .layer(inner);
    let start = Instant::now();
    for (status, after_ms) in [(200, 0), (200, 100), (200, 200), (429, 0)] {
        let asked = Instant::now();
        let response = service.clone().oneshot(get("/")).await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(*response.body() - asked, Duration::from_millis(after_ms));
    }
    // The limiter's clock does not move; the waits were tokio's.
    assert_eq!(start.elapsed(), Duration::from_millis(300));
}

/// Must be polled ready before each call, as tower requires. A clone has not been polled.
struct RequiresReady {
    ready: bool,
}

impl Clone for RequiresReady {
    fn clone(&self) -> RequiresReady {
        RequiresReady { ready: false }
    }
}

impl Service<Request<()>> for RequiresReady {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Answered>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Ready<Answered> {
        assert!(self.ready, "called without poll_ready");
        self.ready = false;
        ready(Ok(Response::new(String::new())))
    }
}

#[tokio::test]
async fn the_service_that_was_polled_ready_is_called() {
    let mut service = layer(PER_PATH).layer(RequiresReady { ready: false });
    for _ in 0..2 {
        let response = service.ready().await.unwrap().call(get("/")).await.unwrap();
        assert_eq!(response.status(), 200);
    }
}

#[tokio::test]
async fn a_request_that_a_failure_policy_allows_is_marked_degraded() {
    let rules = "
version: 1
rules:
  - { id: soft, match: { path: /soft }, per: all, limit: { fixed-window: 1/min }, on_failure: degraded }
  - { id: open, match: { path: /open }, per: all, limit: { fixed-window: 1/min }, on_failure: open }
  - { id: hard, match: { path: /hard }, per: all, limit: { fixed-window: 1/min }, on_failure: closed }";
    let inner = service_fn(|request: Request<()>| {
        let degraded = request.extensions().get::<Degraded>().is_some();
        ready(Ok::<_, Infallible>(Response::new(format!("degraded: {degraded}"))))
    });
    let limiter = Limiter::builder().custom_store(DownStore).rules_yaml(rules).build().await.unwrap();
    let service = TollgateLayer::new(limiter).layer(inner);
    for (path, policy) in [("/soft", "degraded"), ("/open", "open")] {
        let response = service.clone().oneshot(get(path)).await.unwrap();
        assert_eq!(response.body(), "degraded: true");
        assert_eq!(shown(response.headers()), [format!("x-ratelimit-fallback: {policy}")]);
    }
    assert_eq!(service.oneshot(get("/hard")).await.unwrap().status(), 503);
}
