//! Quota that is held for work whose cost is known only afterwards.

use tollgate_core::StoreError;

use super::{Decision, Limiter, LocalLimiter, Returned};
use crate::engine::poll_ready;

/// A decision whose cost is an estimate: quotas hold it until it is settled. Dropping it unsettled cancels it: every rule
/// gives back what it can.
///
/// A refused reservation holds nothing: look at [`allowed`](Reservation::allowed) first.
#[must_use = "dropping a reservation cancels it"]
pub struct Reservation {
    limiter: Limiter,
    /// `None` once it was settled or cancelled.
    decision: Option<Decision>,
}

impl Reservation {
    pub(super) fn new(limiter: Limiter, decision: Decision) -> Reservation {
        Reservation { limiter, decision: Some(decision.detached()) }
    }

    /// Whether the work may proceed.
    pub fn allowed(&self) -> bool {
        self.decision().allowed()
    }

    /// The decision.
    pub fn decision(&self) -> &Decision {
        self.decision.as_ref().expect("only a method that consumes the reservation takes its decision")
    }

    /// Reports the actual cost. Quotas count it instead of the estimate, also if it is higher. Rules of other kinds were
    /// charged the estimate and give back the difference if the actual cost is lower. Leases are released.
    ///
    /// Returns what each rule gave back: the estimate minus the actual cost, or zero. A quota whose hold has expired
    /// declines, and the actual cost is not counted there.
    pub async fn settle(mut self, actual: u64) -> Result<Vec<Returned>, StoreError> {
        let Some(decision) = self.decision.take() else { return Ok(Vec::new()) };
        self.limiter.settle(&decision, actual).await
    }

    /// Gives everything back, because the work was not done. Returns what each rule gave back.
    pub async fn cancel(mut self) -> Result<Vec<Returned>, StoreError> {
        let Some(decision) = self.decision.take() else { return Ok(Vec::new()) };
        self.limiter.refund(&decision).await
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(decision) = self.decision.take() {
            self.limiter.refund_unawaited(&decision);
        }
    }
}

/// A [`Reservation`] of a [`LocalLimiter`]: the same, without `await`.
#[must_use = "dropping a reservation cancels it"]
pub struct LocalReservation {
    limiter: LocalLimiter,
    /// `None` once it was settled or cancelled.
    decision: Option<Decision>,
}

impl LocalReservation {
    pub(super) fn new(limiter: LocalLimiter, decision: Decision) -> LocalReservation {
        LocalReservation { limiter, decision: Some(decision.detached()) }
    }

    /// Whether the work may proceed.
    pub fn allowed(&self) -> bool {
        self.decision().allowed()
    }

    /// The decision.
    pub fn decision(&self) -> &Decision {
        self.decision.as_ref().expect("only a method that consumes the reservation takes its decision")
    }

    /// Reports the actual cost. Quotas count it instead of the estimate, also if it is higher. Rules of other kinds were
    /// charged the estimate and give back the difference if the actual cost is lower. Leases are released.
    ///
    /// Returns what each rule gave back: the estimate minus the actual cost, or zero. A quota whose hold has expired
    /// declines, and the actual cost is not counted there.
    pub fn settle(mut self, actual: u64) -> Result<Vec<Returned>, StoreError> {
        let Some(decision) = self.decision.take() else { return Ok(Vec::new()) };
        poll_ready(self.limiter.engine.settle(&decision, actual))
    }

    /// Gives everything back, because the work was not done. Returns what each rule gave back.
    pub fn cancel(mut self) -> Result<Vec<Returned>, StoreError> {
        let Some(decision) = self.decision.take() else { return Ok(Vec::new()) };
        self.limiter.refund(&decision)
    }
}

impl Drop for LocalReservation {
    fn drop(&mut self) {
        if let Some(decision) = self.decision.take() {
            self.limiter.engine.refund_unawaited(&decision);
        }
    }
}
