//! Waiting for admission, for workers that prefer a delay to a refusal.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tollgate_core::rules::Request;
use tollgate_core::{Algorithm, Store};

use super::{CheckError, Decision, Engine};

/// The request was not admitted in time.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// The request could not be admitted before the deadline. Returned as soon as that is known.
    #[error("not admitted in time")]
    TooLate {
        /// The last refusal, or the admission whose delay was too long.
        decision: Box<Decision>,
    },
    /// The check could not be decided.
    #[error(transparent)]
    Check(#[from] CheckError),
}

impl<S: Store> Engine<S> {
    /// Waits until the request is admitted and its slot has come. See [`Limiter::acquire`](crate::Limiter::acquire).
    pub(crate) async fn acquire(
        &self,
        request: Request<'_>,
        within: Duration,
    ) -> Result<Decision, AcquireError> {
        let deadline = Instant::now() + within.min(WITHIN_MAX);
        let mut pause = PAUSE_MIN;
        loop {
            // Peeks first: a shaper admits immediately, but perhaps for a slot after the deadline.
            // The peek and the check ask the same shard, and every attempt another one.
            let request = Request { seed: self.inner.new_seed(), ..request };
            let mut decision = self.peek(request).await?;
            if decision.allowed() && Instant::now() + decision.delay() <= deadline {
                decision = self.check(request).await?;
            }
            if decision.allowed() {
                return self.wait_for_slot(decision, deadline).await;
            }
            match wake(&decision, Instant::now(), deadline, pause) {
                Some(wake) => sleep_until(wake).await,
                None => return Err(AcquireError::TooLate { decision: Box::new(decision) }),
            }
            pause = PAUSE_MAX.min(pause * 2);
        }
    }

    /// Waits until an admission may proceed. If the wait is dropped, the admission is given back.
    async fn wait_for_slot(&self, decision: Decision, deadline: Instant) -> Result<Decision, AcquireError> {
        let delay = decision.delay();
        if Instant::now() + delay > deadline {
            // Another request took the slot between the peek and the check.
            self.refund_unawaited(&decision);
            return Err(AcquireError::TooLate { decision: Box::new(decision) });
        }
        let mut waiting = WaitingForSlot { engine: self, decision: Some(decision) };
        if !delay.is_zero() {
            sleep(delay).await;
        }
        Ok(waiting.decision.take().expect("only the end of the wait takes it"))
    }
}

/// Waits are whole milliseconds; a wait of zero would spin.
const WAIT_MIN: Duration = Duration::from_millis(1);
/// Avoids overflow of `Instant`.
const WITHIN_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);
/// How often a request that waits for a lease looks for a free one, at first and at last.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// When to check again after a refusal; `None` if that would be too late.
fn wake(refusal: &Decision, now: Instant, deadline: Instant, pause: Duration) -> Option<Instant> {
    let wait = refusal.retry_after()?.max(WAIT_MIN);
    let by_leases = refusal.headline().is_some_and(|rule| rule.algorithm() == Some(Algorithm::Concurrency));
    if by_leases {
        return (now < deadline).then(|| deadline.min(now + wait.min(pause)));
    }
    Some(now + wait).filter(|&wake| wake <= deadline)
}

/// An admission whose slot has not come yet. Dropping it gives it back.
struct WaitingForSlot<'l, S: Store> {
    engine: &'l Engine<S>,
    decision: Option<Decision>,
}

impl<S: Store> Drop for WaitingForSlot<'_, S> {
    fn drop(&mut self) {
        if let Some(decision) = &self.decision {
            self.engine.refund_unawaited(decision);
        }
    }
}
