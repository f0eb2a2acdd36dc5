//! Quota that is held for work whose cost is known only afterwards.

use std::time::Duration;

use tollgate_core::{Decline, Receipt, StoreError};

use super::{Actual, Decision, Extension, FollowUpError, Limiter, LocalLimiter, Returned};
use crate::engine::poll_ready;

/// A decision whose cost is an estimate: quotas hold it until it is settled. Dropping it unsettled cancels it: every rule
/// gives back what it can.
///
/// A refused reservation holds nothing: look at [`allowed`](Reservation::allowed) first.
#[must_use = "dropping a reservation cancels it"]
pub struct Reservation {
    limiter: Limiter,
    /// `None` once it was settled or cancelled.
    held: Option<HeldDecision>,
}

/// A decision and what stands for it now.
struct HeldDecision {
    decision: Decision,
    hold: Duration,
    /// The receipts after the last extension. `None` if there was none: those of the decision count.
    receipts: Option<Vec<Receipt>>,
    /// The id and the amount of an extension whose answer was lost.
    unanswered: Option<(String, u64)>,
}

impl HeldDecision {
    fn new(decision: Decision, hold: Duration) -> HeldDecision {
        HeldDecision { decision: decision.detached(), hold, receipts: None, unanswered: None }
    }

    fn receipts(&self) -> Vec<Receipt> {
        self.receipts.clone().unwrap_or_else(|| self.decision.receipts())
    }

    /// The id of the next extension: that of the same extension if its answer was lost.
    fn next_id(&mut self, more: u64, new_id: impl FnOnce() -> String) -> String {
        match self.unanswered.take() {
            Some((id, same)) if same == more => id,
            _ => new_id(),
        }
    }

    /// Keeps what an extension changed.
    fn keep(&mut self, id: String, more: u64, extension: &Result<Extension, FollowUpError>) {
        match extension {
            Ok(extension) if extension.allowed => self.receipts = Some(extension.receipts.clone()),
            Ok(_) => {}
            Err(_) => self.unanswered = Some((id, more)),
        }
    }
}

impl Reservation {
    pub(super) fn new(limiter: Limiter, decision: Decision, hold: Duration) -> Reservation {
        Reservation { limiter, held: Some(HeldDecision::new(decision, hold)) }
    }

    /// Whether the work may proceed.
    pub fn allowed(&self) -> bool {
        self.decision().allowed()
    }

    /// The decision on the reservation, before any extension.
    pub fn decision(&self) -> &Decision {
        let held = self.held.as_ref();
        &held.expect("only a method that consumes the reservation takes its decision").decision
    }

    /// The receipts that stand for the reservation now. Another process can extend, settle or cancel by them.
    pub fn receipts(&self) -> Vec<Receipt> {
        self.held.as_ref().map(HeldDecision::receipts).unwrap_or_default()
    }

    /// Holds `more` units while the work goes on, under all rules or none. The holds end not before the time of the
    /// reservation, counted from now. If it is refused, the reservation stays as it was. If it has ended, the extension is
    /// declined.
    ///
    /// Rules that set the cost themselves, leases and queues are not asked again. After an error it is unknown whether
    /// the reservation was raised: call it again with the same amount, which raises it at most once.
    pub async fn extend(&mut self, more: u64) -> Result<Extension, FollowUpError> {
        let Some(held) = self.held.as_mut().filter(|held| held.decision.allowed()) else {
            return Ok(Extension::without_store(Some(Decline::NotHeld), Vec::new()));
        };
        let id = held.next_id(more, || self.limiter.new_id());
        let extension = self.limiter.extend_receipts(&held.receipts(), more, held.hold, Some(&id)).await;
        held.keep(id, more, &extension);
        extension
    }

    /// Reports the actual cost. Quotas count it instead of what is held, also if it is higher. Rules of other kinds were
    /// charged what is held: they give back the difference, or book it if the actual cost is higher. Rules that set the
    /// cost themselves keep what they were charged. Leases are released.
    ///
    /// Returns what each rule gave back, and what it booked in addition. A quota whose hold has ended books the actual
    /// cost, once, and says [`Decline::BookedLate`].
    pub async fn settle(self, actual: u64) -> Result<Vec<Returned>, StoreError> {
        self.settle_each(Actual::same(actual)).await
    }

    /// Reports the actual cost as [`settle`](Self::settle) does, with another amount for the rules that it names.
    pub async fn settle_each(mut self, actual: Actual) -> Result<Vec<Returned>, StoreError> {
        let Some(held) = self.held.take() else { return Ok(Vec::new()) };
        match &held.receipts {
            Some(receipts) => self.limiter.settle_receipts(receipts, actual).await,
            None => self.limiter.settle(&held.decision, &actual).await,
        }
    }

    /// Gives everything back, because the work was not done. Returns what each rule gave back.
    pub async fn cancel(mut self) -> Result<Vec<Returned>, StoreError> {
        let Some(held) = self.held.take() else { return Ok(Vec::new()) };
        match &held.receipts {
            Some(receipts) => self.limiter.cancel_receipts(receipts).await,
            None => self.limiter.refund(&held.decision).await,
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        match &held.receipts {
            Some(receipts) => self.limiter.cancel_unawaited(receipts),
            None => self.limiter.refund_unawaited(&held.decision),
        }
    }
}

/// A [`Reservation`] of a [`LocalLimiter`]: the same, without `await`.
#[must_use = "dropping a reservation cancels it"]
pub struct LocalReservation {
    limiter: LocalLimiter,
    /// `None` once it was settled or cancelled.
    held: Option<HeldDecision>,
}

impl LocalReservation {
    pub(super) fn new(limiter: LocalLimiter, decision: Decision, hold: Duration) -> LocalReservation {
        LocalReservation { limiter, held: Some(HeldDecision::new(decision, hold)) }
    }

    /// Whether the work may proceed.
    pub fn allowed(&self) -> bool {
        self.decision().allowed()
    }

    /// The decision on the reservation, before any extension.
    pub fn decision(&self) -> &Decision {
        let held = self.held.as_ref();
        &held.expect("only a method that consumes the reservation takes its decision").decision
    }

    /// The receipts that stand for the reservation now.
    pub fn receipts(&self) -> Vec<Receipt> {
        self.held.as_ref().map(HeldDecision::receipts).unwrap_or_default()
    }

    /// Holds `more` units while the work goes on, under all rules or none. See [`Reservation::extend`].
    pub fn extend(&mut self, more: u64) -> Result<Extension, FollowUpError> {
        let Some(held) = self.held.as_mut().filter(|held| held.decision.allowed()) else {
            return Ok(Extension::without_store(Some(Decline::NotHeld), Vec::new()));
        };
        let id = held.next_id(more, || self.limiter.engine.new_id());
        let extension = self.limiter.extend_receipts(&held.receipts(), more, held.hold, Some(&id));
        held.keep(id, more, &extension);
        extension
    }

    /// Reports the actual cost. See [`Reservation::settle`].
    pub fn settle(self, actual: u64) -> Result<Vec<Returned>, StoreError> {
        self.settle_each(Actual::same(actual))
    }

    /// Reports the actual cost as [`settle`](Self::settle) does, with another amount for the rules that it names.
    pub fn settle_each(mut self, actual: Actual) -> Result<Vec<Returned>, StoreError> {
        let Some(held) = self.held.take() else { return Ok(Vec::new()) };
        match &held.receipts {
            Some(receipts) => self.limiter.settle_receipts(receipts, actual),
            None => poll_ready(self.limiter.engine.settle(&held.decision, &actual)),
        }
    }

    /// Gives everything back, because the work was not done. Returns what each rule gave back.
    pub fn cancel(mut self) -> Result<Vec<Returned>, StoreError> {
        let Some(held) = self.held.take() else { return Ok(Vec::new()) };
        match &held.receipts {
            Some(receipts) => self.limiter.cancel_receipts(receipts),
            None => self.limiter.refund(&held.decision),
        }
    }
}

impl Drop for LocalReservation {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        match &held.receipts {
            Some(receipts) => self.limiter.engine.cancel_receipts_unawaited(receipts),
            None => self.limiter.engine.refund_unawaited(&held.decision),
        }
    }
}
