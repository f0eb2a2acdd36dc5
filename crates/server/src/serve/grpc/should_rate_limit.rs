//! `ShouldRateLimit`: from a message to a message.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::body::Incoming;
use tokio::time::timeout;
use tollgate::limiter::CheckError;
use tollgate::{Attributes, Decision, Request};
use tonic::body::Body;
use tonic::codec::Streaming;
use tonic::metadata::MetadataMap;
use tonic::server::{ClientStreamingService, Grpc};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::answer;
use super::own_limit::{self, Charged, OwnLimit};
use super::proto::{RateLimitRequest, RateLimitResponse};
use super::question::{self, MESSAGE_MAX, Question};
use crate::serve::gate::{Edge, Origin};
use crate::serve::shared::Shared;

pub(super) const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
pub(super) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// How long a message may take to come in.
const WAIT_MAX: Duration = Duration::from_secs(5);

pub(super) async fn answer(request: http::Request<Incoming>, shared: Arc<Shared>) -> http::Response<Body> {
    let codec = ProstCodec::<RateLimitResponse, RateLimitRequest>::default();
    let mut grpc = Grpc::new(codec).max_decoding_message_size(MESSAGE_MAX);
    grpc.client_streaming(Asked(shared), request).await
}

/// Takes the message out of the stream itself, because what becomes of one that is too large is for us to say.
struct Asked(Arc<Shared>);

impl ClientStreamingService<RateLimitRequest> for Asked {
    type Response = RateLimitResponse;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<RateLimitResponse>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Streaming<RateLimitRequest>>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let (metadata, _, mut stream) = request.into_parts();
            let answer = match receive(&mut stream).await? {
                Some(message) => decide(&message, origin(&metadata), &shared).await?,
                None => answer::too_large(),
            };
            Ok(tonic::Response::new(answer))
        })
    }
}

/// The message; `None` if it is too large.
async fn receive(stream: &mut Streaming<RateLimitRequest>) -> Result<Option<RateLimitRequest>, Status> {
    let mut next = pin!(stream.message());
    // As a rule it is there, and needs no timer.
    let received = match poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await {
        Poll::Ready(received) => received,
        Poll::Pending => match timeout(WAIT_MAX, next).await {
            Ok(received) => received,
            Err(_) => Err(Status::deadline_exceeded("the message took too long")),
        },
    };
    match received {
        Ok(Some(message)) => Ok(Some(message)),
        Ok(None) => Err(Status::invalid_argument("there is no message")),
        Err(status) if status.code() == Code::OutOfRange => Ok(None),
        // It is not what it should be, and that is not our fault.
        Err(status) if status.code() == Code::Internal => Err(Status::invalid_argument(status.message())),
        Err(status) => Err(status),
    }
}

fn origin(metadata: &MetadataMap) -> Origin<'_> {
    let traceparent = metadata.get("traceparent").and_then(|value| value.to_str().ok());
    Origin { edge: Edge::Grpc, traceparent }
}

async fn decide(
    message: &RateLimitRequest,
    origin: Origin<'_>,
    shared: &Shared,
) -> Result<RateLimitResponse, Status> {
    let bad = |error: question::BadMessage| Status::invalid_argument(error.to_string());
    let questions = question::read(message, &shared.grpc.names, shared.prefixes).map_err(bad)?;
    let mut limits = Vec::new();
    for (at, question) in questions.iter().enumerate() {
        limits.extend(OwnLimit::of(at, question).map_err(bad)?.map(|limit| (at, limit)));
    }
    match questions.as_slice() {
        [only] if limits.is_empty() => one(only, origin, shared).await,
        _ => several(&questions, limits, origin, shared).await,
    }
}

async fn one(
    question: &Question<'_>,
    origin: Origin<'_>,
    shared: &Shared,
) -> Result<RateLimitResponse, Status> {
    let attributes = question.attributes();
    let request = Request::new(&attributes).cost(question.cost);
    let decided = match shared.gate.check_now(origin, request) {
        Some(decided) => decided,
        None => shared.gate.check(origin, request).await,
    };
    match decided {
        Ok(decision) => Ok(answer::of_decisions(std::slice::from_ref(&decision), shared.dialect)),
        Err(error) => answer::of_error(error, 1),
    }
}

/// Those that bring a limit along come first; the rules are asked about all others as one.
async fn several(
    questions: &[Question<'_>],
    limits: Vec<(usize, OwnLimit)>,
    origin: Origin<'_>,
    shared: &Shared,
) -> Result<RateLimitResponse, Status> {
    let charged = own_limit::charge(limits, questions, &shared.gate).await;
    let ruled: Vec<&Question<'_>> =
        questions.iter().filter(|question| question.own_limit().is_none()).collect();
    let attributes: Vec<Attributes<'_>> = ruled.iter().map(|question| question.attributes()).collect();
    let asked = ruled.iter().zip(&attributes);
    let requests: Vec<Request<'_>> =
        asked.map(|(question, attributes)| Request::new(attributes).cost(question.cost)).collect();
    let goes_on = charged.iter().all(Charged::is_admitted);
    let decided = if goes_on {
        shared.gate.check_together(origin, &requests).await
    } else {
        look(&requests, shared).await
    };
    let is_admitted = |decisions: &Vec<Decision>| decisions.iter().all(|decision| decision.allowed);
    if !goes_on || !decided.as_ref().is_ok_and(is_admitted) {
        own_limit::take_back(&charged, &shared.gate).await;
    }
    let answer = match decided {
        Ok(decisions) => answer::of_decisions(&decisions, shared.dialect),
        Err(error) => answer::of_error(error, requests.len())?,
    };
    Ok(answer::with_own_limits(answer, &charged))
}

async fn look(requests: &[Request<'_>], shared: &Shared) -> Result<Vec<Decision>, CheckError> {
    let mut decisions = Vec::new();
    for request in requests {
        decisions.push(shared.gate.peek(*request).await?);
    }
    Ok(decisions)
}
