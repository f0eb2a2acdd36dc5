//! Commands that ask the gate, and their replies.

use std::sync::Arc;

use tollgate::Decision;
use tollgate::limiter::CheckError;

use super::check;
use super::reply::{Reply, RespVersion};
use super::throttle::ThrottleRequest;
use crate::serve::edge::auth::Caller;
use crate::serve::edge::error::EdgeError;
use crate::serve::edge::request::CheckRequest;
use crate::serve::gate::{Call, Edge, Gate, ThrottleError, Throttled};
use crate::serve::work_share::WorkPermit;

pub(crate) enum LimitCommand<'b> {
    Throttle(ThrottleRequest<'b>),
    Check(CheckRequest<'b>),
    Peek(CheckRequest<'b>),
    DeleteState(CheckRequest<'b>),
}

impl LimitCommand<'_> {
    /// Whether it must not run together with others: earlier charges must have been counted.
    pub(crate) const fn runs_alone(&self) -> bool {
        matches!(self, LimitCommand::DeleteState(_))
    }

    /// Runs the command and writes its reply, if the store answers at once. Otherwise nothing has happened.
    #[inline]
    pub(crate) fn run_now(&self, gate: &Gate, caller: &Caller, reply: &mut Reply<'_>) -> bool {
        match self {
            LimitCommand::Throttle(request) => {
                let call =
                    gate.throttle((Edge::Resp, caller), request.key, &request.limit, request.operation());
                let Call::Ready(throttled) = call else { return false };
                write_throttled(request, &throttled, reply);
            }
            // A bound token is rare, and a copy of the request is made for it.
            LimitCommand::Check(_) if caller.bound().is_some() => return false,
            LimitCommand::Check(request) => {
                if let Some(rule) = gate.unreturnable_lease(Edge::Resp, request.attributes()) {
                    reply.edge_error(&EdgeError::lease_without_receipt(&rule));
                    return true;
                }
                let Call::Ready(decided) = gate.check(Edge::Resp, request.request()) else { return false };
                write_decided(&decided, reply);
            }
            LimitCommand::Peek(_) | LimitCommand::DeleteState(_) => return false,
        }
        true
    }

    /// Runs the command, and returns its encoded reply.
    pub(crate) async fn run(
        self,
        gate: &Gate,
        caller: Arc<Caller>,
        _work: WorkPermit,
        version: RespVersion,
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let reply = &mut Reply::new(&mut out, version);
        match self {
            LimitCommand::Throttle(request) => {
                let edge = (Edge::Resp, &*caller);
                let call = gate.throttle(edge, request.key, &request.limit, request.operation());
                write_throttled(&request, &call.finish().await, reply);
            }
            LimitCommand::Check(request) => match caller.bind(request) {
                Ok(request) => {
                    if let Some(rule) = gate.unreturnable_lease(Edge::Resp, request.attributes()) {
                        reply.edge_error(&EdgeError::lease_without_receipt(&rule));
                        return out;
                    }
                    write_decided(&gate.check(Edge::Resp, request.request()).finish().await, reply);
                }
                Err(error) => reply.edge_error(&error.into()),
            },
            LimitCommand::Peek(request) => match caller.bind(request) {
                Ok(request) => write_decided(&gate.peek(request.request()).await, reply),
                Err(error) => reply.edge_error(&error.into()),
            },
            LimitCommand::DeleteState(request) => {
                match gate.reset(Edge::Resp, &caller, request.request(), None).await {
                    Ok(returned) if returned.is_empty() => {
                        reply.edge_error(&EdgeError::nothing_matched(None));
                    }
                    Ok(returned) => check::write_reset(&returned, reply),
                    Err(error) => reply.edge_error(&EdgeError::from(&error)),
                }
            }
        }
        out
    }
}

#[inline]
fn write_throttled(
    request: &ThrottleRequest<'_>,
    throttled: &Result<Throttled, ThrottleError>,
    reply: &mut Reply<'_>,
) {
    match throttled {
        Ok(Throttled { now, answer }) => {
            if request.write_reply(*now, answer, reply).is_none() {
                reply.edge_error(&EdgeError::from(&ThrottleError::Unanswered));
            }
        }
        Err(error) => reply.edge_error(&EdgeError::from(error)),
    }
}

#[inline]
fn write_decided(decided: &Result<Decision, CheckError>, reply: &mut Reply<'_>) {
    match decided {
        Ok(decision) => check::write_decision(decision, reply),
        Err(error) => reply.edge_error(&EdgeError::from(error)),
    }
}
