//! Waiting for admission, for workers who would rather be late than refused.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tollgate_core::rules::Request;
use tollgate_core::{Algorithm, Store};

use super::follow_up::undo;
use super::{CheckError, Decision, Limiter, Permit};

/// No admission in time.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// It could not have been admitted before the deadline, so nobody waited for it.
    #[error("not admitted in time")]
    TooLate {
        /// The last refusal, or the admission whose delay was too long.
        decision: Box<Decision>,
    },
    /// There is no answer.
    #[error(transparent)]
    Check(#[from] CheckError),
}

impl<S: Store> Limiter<S> {
    /// Waits until the request is admitted, at most `within`, and then until its slot has come if a rule shapes.
    ///
    /// Who could not make it in time is told at once, and nothing is charged. A wait is as long as the rules say, so a
    /// lone caller asks twice at most; among many, whoever asks first at that instant gets it and the others wait anew.
    /// A place under a concurrency rule may be given back at any moment: who waits for one looks ten times a second or
    /// more often, until the deadline.
    ///
    /// Dropping the future ends it: before admission nothing has been charged; while it waits for its slot, everything
    /// is given back that can be (a slot of a shaper cannot: others are booked behind it).
    ///
    /// Needs a tokio runtime with timers.
    pub async fn acquire<'a>(
        &self,
        request: impl Into<Request<'a>>,
        within: Duration,
    ) -> Result<Permit<S>, AcquireError> {
        let request = request.into();
        let deadline = Instant::now() + within.min(LONGEST);
        let mut pause = PAUSE_MIN;
        loop {
            // Asked first without charging: a shaper admits at once, but perhaps for after the deadline.
            let mut decision = self.peek(request).await?;
            if decision.allowed && Instant::now() + decision.delay() <= deadline {
                decision = self.check(request).await?;
            }
            if decision.allowed {
                return self.wait_for_slot(decision, deadline).await;
            }
            match wake(&decision, Instant::now(), deadline, pause) {
                Some(wake) => sleep_until(wake).await,
                None => return Err(AcquireError::TooLate { decision: Box::new(decision) }),
            }
            pause = PAUSE_MAX.min(pause * 2);
        }
    }

    /// Waits until an admission may proceed. What waits is given back if it is dropped.
    async fn wait_for_slot(&self, decision: Decision, deadline: Instant) -> Result<Permit<S>, AcquireError> {
        let delay = decision.delay();
        if Instant::now() + delay > deadline {
            // Somebody was faster between the two questions.
            self.follow_up_unawaited(&undo(&decision));
            return Err(AcquireError::TooLate { decision: Box::new(decision) });
        }
        let mut waiting = Waiting { limiter: self, decision: Some(decision) };
        if !delay.is_zero() {
            sleep(delay).await;
        }
        let decision = waiting.decision.take().expect("only the end of the wait takes it");
        Ok(self.permit(decision))
    }
}

/// A refusal names a whole number of milliseconds; a wait of none would spin.
const SHORTEST: Duration = Duration::from_millis(1);
/// Who waits for ever, waits this long: an instant beyond what the clock can tell does not exist.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);
/// Who waits for a place looks for one that often, first and at last.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// When to ask again after a refusal; not at all if that would be too late.
fn wake(refusal: &Decision, now: Instant, deadline: Instant, pause: Duration) -> Option<Instant> {
    let wait = refusal.retry_after()?.max(SHORTEST);
    let by_leases = refusal.headline().is_some_and(|rule| rule.algorithm == Some(Algorithm::Concurrency));
    if by_leases {
        return (now < deadline).then(|| deadline.min(now + wait.min(pause)));
    }
    Some(now + wait).filter(|&wake| wake <= deadline)
}

/// An admission whose slot has not come yet. Dropped, it is given back.
struct Waiting<'l, S: Store> {
    limiter: &'l Limiter<S>,
    decision: Option<Decision>,
}

impl<S: Store> Drop for Waiting<'_, S> {
    fn drop(&mut self) {
        if let Some(decision) = &self.decision {
            self.limiter.follow_up_unawaited(&undo(decision));
        }
    }
}
