//! The call `ShouldRateLimit`: from a message to a response.

use std::sync::Arc;

use hyper::body::Incoming;
use tollgate::Decision;
use tollgate::core::rules::Request;
use tollgate::limiter::CheckError;
use tonic::body::Body;

use super::credit::Credit;
use super::descriptor_request::{DescriptorRequest, MESSAGE_BYTES_MAX, read};
use super::message::RateLimitRequest;
use super::own_limit::{self, Charged, OwnLimit};
use super::proto::RateLimitResponse;
use super::{response, unary};
use crate::access::Scopes;
use crate::protocol::Protocol;
use crate::serve::edge::auth::{Caller, Needs};
use crate::serve::edge::error::EdgeError;
use crate::serve::edge::request::CheckRequest;
use crate::serve::gate::{Edge, Origin};
use crate::serve::server_state::ServerState;

pub(super) const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
pub(super) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

pub(super) async fn respond(
    request: http::Request<Incoming>,
    caller: &Caller,
    state: Arc<ServerState>,
) -> http::Response<Body> {
    let (head, body) = request.into_parts();
    let message: RateLimitRequest = match unary::receive(body, MESSAGE_BYTES_MAX).await {
        Ok(Some(message)) => message,
        Ok(None) => return response::error(&EdgeError::message_too_large(MESSAGE_BYTES_MAX), 0),
        Err(status) => return status.into_http(),
    };
    let origin = Origin::from_headers(Edge::Grpc, &head.headers);
    match decide_in_turn(&message, origin, caller, &state).await {
        Ok(decided) => unary::response(&decided),
        Err(error) => response::error(&error, message.descriptors.len()),
    }
}

async fn decide_in_turn(
    message: &RateLimitRequest,
    origin: Origin<'_>,
    caller: &Caller,
    state: &ServerState,
) -> Result<RateLimitResponse, EdgeError> {
    let work = state.work.enter(caller, message.descriptors.len())?;
    let _turn = work.turn().await?;
    decide(message, origin, caller, state).await
}

async fn decide(
    message: &RateLimitRequest,
    origin: Origin<'_>,
    caller: &Caller,
    state: &ServerState,
) -> Result<RateLimitResponse, EdgeError> {
    let descriptors = read(message, &state.grpc.names, state.prefixes)?;
    match descriptors.as_slice() {
        [only] if only.own_limit().is_none() && !only.hits.is_credit() => {
            let request = caller.bind(only.check_request()?)?;
            refuse_leases(std::slice::from_ref(&request), state)?;
            let decided = state.gate.check(origin, request.request()).finish().await;
            let decision = decided.as_ref().map_err(EdgeError::from)?;
            Ok(response::from_decisions(std::slice::from_ref(decision), state.dialect, &state.gate))
        }
        // Boxed, because its size would be moved around for every check.
        _ => Box::pin(decide_together(&descriptors, origin, caller, state)).await,
    }
}

/// Decides several descriptors as one: all are charged or none. Those with limits come first. Those that give back do so in
/// any case, and last: what they give back does not help the others.
async fn decide_together(
    descriptors: &[DescriptorRequest<'_>],
    origin: Origin<'_>,
    caller: &Caller,
    state: &ServerState,
) -> Result<RateLimitResponse, EdgeError> {
    let (mut limits, mut credits) = (Vec::new(), Vec::new());
    let mut requests: Vec<CheckRequest<'_>> = Vec::new();
    for (index, descriptor) in descriptors.iter().enumerate() {
        let request = caller.bind(descriptor.check_request()?)?;
        if descriptor.hits.is_credit() {
            let needs = Needs::Scope(Scopes::RECORD);
            caller.authorize(needs).map_err(|error| state.auth_failures.note(error, Protocol::Grpc))?;
            credits.push(Credit::new(index, descriptor, request)?);
            continue;
        }
        match OwnLimit::of(index, descriptor)? {
            Some(limit) => limits.push((index, limit)),
            None => requests.push(request),
        }
    }
    refuse_leases(&requests, state)?;
    let requests: Vec<Request<'_>> = requests.iter().map(CheckRequest::request).collect();
    let charged = own_limit::charge(limits, descriptors, caller, &state.gate).await;
    let are_admitted = charged.iter().all(Charged::is_admitted);
    let decided = if are_admitted {
        state.gate.check_together(origin, &requests).await
    } else {
        peek(&requests, state).await
    };
    let all_allowed = |decisions: &Vec<Decision>| decisions.iter().all(|decision| decision.allowed());
    if !are_admitted || !decided.as_ref().is_ok_and(all_allowed) {
        own_limit::refund(&charged, caller, &state.gate).await;
    }
    let mut credited = Vec::new();
    for credit in &credits {
        credited.push(credit.apply(caller, &state.gate).await);
    }
    let decisions = decided.as_ref().map_err(EdgeError::from)?;
    Ok(response::with_others(
        response::from_decisions(decisions, state.dialect, &state.gate),
        &charged,
        &credited,
    ))
}

/// Envoy does not say when a request ends, so nothing could release a lease.
fn refuse_leases(requests: &[CheckRequest<'_>], state: &ServerState) -> Result<(), EdgeError> {
    let mut leases =
        requests.iter().filter_map(|request| state.gate.unreturnable_lease(Edge::Grpc, request.attributes()));
    leases.next().map_or(Ok(()), |rule| Err(EdgeError::lease_without_receipt(&rule)))
}

async fn peek(requests: &[Request<'_>], state: &ServerState) -> Result<Vec<Decision>, CheckError> {
    let mut decisions = Vec::new();
    for request in requests {
        decisions.push(state.gate.peek(*request).await?);
    }
    Ok(decisions)
}
