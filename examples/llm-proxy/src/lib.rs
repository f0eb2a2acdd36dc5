//! A streaming proxy with a token budget: reserve the prompt, extend while tokens are sent, settle what was used.

mod model;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::stream;
use tokio::sync::mpsc;
use tollgate::{Extension, Limiter, Request, Reservation};

pub use model::Model;

/// Tokens by which a reservation is extended. A stream never sends a token that is not held.
pub const STEP: u64 = 256;

/// Events that wait for a slow client.
const EVENTS_MAX: usize = 16;

/// How often a settlement is sent if the store does not answer.
const SETTLE_ATTEMPTS: u32 = 5;

/// What all requests share.
pub struct Proxy {
    /// The budgets.
    pub limiter: Limiter,
    /// The model behind the proxy.
    pub model: Model,
    /// When the hold of a stream expires if the proxy dies. Each extension starts it again.
    pub hold: Duration,
}

/// Why a stream ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Complete,
    Budget,
    ClientGone,
    StoreDown,
}

impl End {
    const fn name(self) -> &'static str {
        match self {
            End::Complete => "complete",
            End::Budget => "budget",
            End::ClientGone => "client gone",
            End::StoreDown => "store down",
        }
    }
}

/// The routes of the proxy.
pub fn router(proxy: Proxy) -> Router {
    Router::new().route("/v1/chat", post(chat)).with_state(Arc::new(proxy))
}

/// Answers a prompt. The header `x-tenant` names the tenant (a real proxy would take it from a verified key), and
/// `x-tokens` the length of the answer.
async fn chat(State(proxy): State<Arc<Proxy>>, headers: HeaderMap, prompt: String) -> Response {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(tenant) = text("x-tenant") else {
        return (StatusCode::BAD_REQUEST, "missing header x-tenant").into_response();
    };
    let wanted = text("x-tokens").and_then(|tokens| tokens.parse().ok()).unwrap_or(100);
    let prompt_tokens = proxy.model.count(&prompt);
    let request = Request::from([("tenant", tenant)]).cost(prompt_tokens);
    let reservation = match proxy.limiter.reserve(request, proxy.hold).await {
        Ok(reservation) if reservation.allowed() => reservation,
        Ok(refused) => return too_many(&refused),
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    let (events, mut received) = mpsc::channel(EVENTS_MAX);
    // A separate task: it settles also if the client goes away.
    tokio::spawn(async move { answer(&proxy, reservation, prompt_tokens, wanted, events).await });
    Sse::new(stream::poll_fn(move |context| {
        received.poll_recv(context).map(|event| event.map(Ok::<_, Infallible>))
    }))
    .into_response()
}

fn too_many(refused: &Reservation) -> Response {
    let wait = refused.decision().retry_after().map_or(1, |wait| wait.as_secs_f64().ceil() as u64);
    let headers = [(header::RETRY_AFTER, wait.to_string())];
    (StatusCode::TOO_MANY_REQUESTS, headers, "the token budget is used up").into_response()
}

/// Streams the answer, and settles what it used.
async fn answer(
    proxy: &Proxy,
    mut reservation: Reservation,
    prompt_tokens: u64,
    wanted: u64,
    events: mpsc::Sender<Event>,
) {
    let (mut held, mut used) = (prompt_tokens, prompt_tokens);
    let mut answer = proxy.model.answer(wanted);
    let end = loop {
        if answer.is_complete() {
            break End::Complete;
        }
        if used == held {
            match extend(&mut reservation).await {
                Ok(0) => break End::Budget,
                Ok(more) => held += more,
                Err(_) => break End::StoreDown,
            }
        }
        let token = answer.next().await;
        used += 1;
        if events.send(Event::default().data(token)).await.is_err() {
            break End::ClientGone;
        }
    };
    settle(proxy, reservation, used).await;
    // The client may have gone. Then the event is lost.
    drop(events.send(Event::default().event("end").data(end.name())).await);
}

/// Holds more tokens: a step, or what is left of the budget if that is less. Returns how many.
async fn extend(reservation: &mut Reservation) -> Result<u64, tollgate::FollowUpError> {
    let step = reservation.extend(STEP).await?;
    if step.allowed {
        return Ok(STEP);
    }
    let rest = left(&step).min(STEP);
    if rest == 0 || step.declined.is_some() {
        return Ok(0);
    }
    let last = reservation.extend(rest).await?;
    Ok(if last.allowed { rest } else { 0 })
}

fn left(refused: &Extension) -> u64 {
    refused.rules.iter().map(|rule| rule.remaining).min().unwrap_or(0)
}

/// Settles, also if the store is away for a moment: by receipts, a settlement can be sent again and counts once.
async fn settle(proxy: &Proxy, reservation: Reservation, used: u64) {
    let receipts = reservation.receipts();
    let mut settled = reservation.settle(used).await;
    for attempt in 1..SETTLE_ATTEMPTS {
        let Err(error) = &settled else { return };
        eprintln!("not settled: {error}");
        tokio::time::sleep(Duration::from_millis(100) * attempt).await;
        settled = proxy.limiter.settle_receipts(&receipts, used).await;
    }
    if let Err(error) = settled {
        eprintln!("{used} tokens were not settled, and their hold expires: {error}");
    }
}
