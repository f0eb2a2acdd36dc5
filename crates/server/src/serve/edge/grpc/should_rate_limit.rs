//! `ShouldRateLimit`: from a message to a message.

use std::sync::Arc;

use http::HeaderMap;
use hyper::body::Incoming;
use tollgate::core::rules::Request;
use tollgate::limiter::CheckError;
use tollgate::{Attributes, Decision};
use tonic::Status;
use tonic::body::Body;

use super::own_limit::{self, Charged, OwnLimit};
use super::proto::{RateLimitRequest, RateLimitResponse};
use super::question::{self, MESSAGE_MAX, Question};
use super::{answer, unary};
use crate::serve::gate::{Edge, Origin};
use crate::serve::shared::Shared;

pub(super) const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
pub(super) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

pub(super) async fn answer(request: http::Request<Incoming>, shared: Arc<Shared>) -> http::Response<Body> {
    let (head, body) = request.into_parts();
    let message = match unary::receive(body, MESSAGE_MAX).await {
        Ok(Some(message)) => message,
        // What becomes of one that is too large is for us to say.
        Ok(None) => return unary::answer(&answer::too_large()),
        Err(status) => return status.into_http(),
    };
    let origin = origin(&head.headers);
    let answer = match decide_now(&message, origin, &shared) {
        Some(answer) => answer,
        // In a box, because what this takes would be moved around for every check.
        None => Box::pin(decide(&message, origin, &shared)).await,
    };
    match answer {
        Ok(answer) => unary::answer(&answer),
        Err(status) => status.into_http(),
    }
}

fn origin(headers: &HeaderMap) -> Origin<'_> {
    let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok());
    Origin { edge: Edge::Grpc, traceparent }
}

/// The answer, if nothing has to be waited for and there is one question: as a rule.
fn decide_now(
    message: &RateLimitRequest,
    origin: Origin<'_>,
    shared: &Shared,
) -> Option<Result<RateLimitResponse, Status>> {
    let questions = match read(message, shared) {
        Ok(questions) => questions,
        Err(status) => return Some(Err(status)),
    };
    let [only] = questions.as_slice() else { return None };
    if only.own_limit().is_some() {
        return None;
    }
    let attributes = only.attributes();
    let decided = shared.gate.check_now(origin, Request::new(&attributes).cost(only.cost))?;
    Some(told(&decided, shared))
}

fn told(decided: &Result<Decision, CheckError>, shared: &Shared) -> Result<RateLimitResponse, Status> {
    match decided {
        Ok(decision) => Ok(answer::of_decisions(std::slice::from_ref(decision), shared.dialect)),
        Err(error) => answer::of_error(error, 1),
    }
}

fn read<'m>(message: &'m RateLimitRequest, shared: &'m Shared) -> Result<Vec<Question<'m>>, Status> {
    question::read(message, &shared.grpc.names, shared.prefixes).map_err(bad)
}

fn bad(error: question::BadMessage) -> Status {
    Status::invalid_argument(error.to_string())
}

async fn decide(
    message: &RateLimitRequest,
    origin: Origin<'_>,
    shared: &Shared,
) -> Result<RateLimitResponse, Status> {
    let questions = read(message, shared)?;
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
    told(&shared.gate.check(origin, request).await, shared)
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
    let is_admitted = |decisions: &Vec<Decision>| decisions.iter().all(|decision| decision.allowed());
    if !goes_on || !decided.as_ref().is_ok_and(is_admitted) {
        own_limit::take_back(&charged, &shared.gate).await;
    }
    let answer = match decided {
        Ok(decisions) => answer::of_decisions(&decisions, shared.dialect),
        Err(error) => answer::of_error(&error, requests.len())?,
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
