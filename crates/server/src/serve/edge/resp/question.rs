//! What has to be asked of the gate, and the answer or the error that comes of it.

use tollgate::Decision;
use tollgate::core::StoreError;
use tollgate::limiter::{CheckError, FollowUpError};

use super::reply::{Protocol, Reply};
use super::{check, throttle};
use crate::serve::gate::{Edge, Gate, ThrottleError, Throttled};

pub(crate) enum Question<'b> {
    Throttle(throttle::Question<'b>),
    Check(check::Question<'b>),
    Peek(check::Question<'b>),
    Forget(check::Question<'b>),
}

impl Question<'_> {
    /// Whether it must not be asked together with others: what came before it must have been counted.
    pub(crate) const fn stands_alone(&self) -> bool {
        matches!(self, Question::Forget(_))
    }

    /// The whole answer, however long the store takes.
    pub(crate) async fn ask(self, gate: &Gate, protocol: Protocol) -> Vec<u8> {
        let mut out = Vec::new();
        let reply = &mut Reply::new(&mut out, protocol);
        match self {
            Question::Throttle(question) => {
                let found =
                    gate.throttle(Edge::Resp, question.key, &question.limit, question.operation()).await;
                throttled(&question, &found, reply);
            }
            Question::Check(question) => decided(&gate.check(Edge::Resp, question.request()).await, reply),
            Question::Peek(question) => decided(&gate.peek(question.request()).await, reply),
            Question::Forget(question) => match gate.reset(question.request()).await {
                Ok(returned) => check::forgotten(&returned, reply),
                Err(FollowUpError::Check(error)) => undecided(&error, reply),
                Err(FollowUpError::Store(error)) => unavailable(&error, reply),
            },
        }
        out
    }
}

/// The answer, if nothing has to be waited for.
#[inline]
pub(crate) fn throttle_now(question: &throttle::Question<'_>, gate: &Gate, reply: &mut Reply<'_>) -> bool {
    let found = gate.throttle_now(Edge::Resp, question.key, &question.limit, question.operation());
    found.inspect(|found| throttled(question, found, reply)).is_some()
}

/// The answer, if nothing has to be waited for.
#[inline]
pub(crate) fn check_now(question: &check::Question<'_>, gate: &Gate, reply: &mut Reply<'_>) -> bool {
    gate.check_now(Edge::Resp, question.request()).inspect(|found| decided(found, reply)).is_some()
}

#[inline]
fn throttled(
    question: &throttle::Question<'_>,
    throttled: &Result<Throttled, ThrottleError>,
    reply: &mut Reply<'_>,
) {
    match throttled {
        Ok(Throttled { now, answer }) => {
            if question.answer(*now, answer, reply).is_none() {
                reply.error("ERR", ThrottleError::Unanswered);
            }
        }
        Err(error @ (ThrottleError::Plan(_) | ThrottleError::Unanswered)) => reply.error("ERR", error),
        Err(ThrottleError::Store(error)) => unavailable(error, reply),
    }
}

#[inline]
fn decided(decided: &Result<Decision, CheckError>, reply: &mut Reply<'_>) {
    match decided {
        Ok(decision) => check::answer(decision, reply),
        Err(error) => undecided(error, reply),
    }
}

#[cold]
fn undecided(error: &CheckError, reply: &mut Reply<'_>) {
    reply.error("ERR", error);
}

/// Not `TRYAGAIN`: clients of clusters send what gets that again by themselves, and it may have been charged.
#[cold]
fn unavailable(error: &StoreError, reply: &mut Reply<'_>) {
    let advice = match error {
        StoreError::Transient(_) => "; whether it was counted is not known",
        _ => "; the server's log says more",
    };
    reply.error("UNAVAILABLE", format_args!("{error}{advice}"));
}
