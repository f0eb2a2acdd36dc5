//! Admissions that release their leases when they are dropped.

use tollgate_core::StoreError;

use super::{Decision, KeepAlive, Limiter, LocalLimiter, Returned};
use crate::engine::poll_ready;

/// A decision that holds leases of concurrency limits until it is dropped. Then the leases are released; what other
/// rules were charged stays charged.
///
/// A refused permit holds nothing: look at [`allowed`](Permit::allowed) first.
#[must_use = "dropping a permit releases its leases"]
pub struct Permit {
    limiter: Limiter,
    /// `None` once it was released or kept.
    decision: Option<Decision>,
}

impl Permit {
    pub(super) fn new(limiter: Limiter, decision: Decision) -> Permit {
        Permit { limiter, decision: Some(decision.detached()) }
    }

    /// Whether the request may proceed.
    pub fn allowed(&self) -> bool {
        self.decision().allowed()
    }

    /// The decision.
    pub fn decision(&self) -> &Decision {
        self.decision.as_ref().expect("only a method that consumes the permit takes its decision")
    }

    /// Extends the leases by another lease time. Returns whether all of them are still held: if not, one has ended and
    /// others may hold its place.
    pub async fn renew(&self) -> Result<bool, StoreError> {
        self.limiter.renew(self.decision()).await
    }

    /// Renews the leases in the background until the returned guard is dropped. Then they are released.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn keep_alive(mut self) -> KeepAlive {
        let decision =
            self.decision.take().expect("only a method that consumes the permit takes its decision");
        self.limiter.keep_alive(decision)
    }

    /// Releases the leases. Returns what each rule gave back; a rule whose lease has ended declines.
    pub async fn release(mut self) -> Result<Vec<Returned>, StoreError> {
        let Some(decision) = self.decision.take() else { return Ok(Vec::new()) };
        self.limiter.release(&decision).await
    }

    /// Leaves the leases to expire, and returns the decision.
    pub fn forget(mut self) -> Decision {
        self.decision.take().expect("only a method that consumes the permit takes its decision")
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(decision) = self.decision.take() {
            self.limiter.release_unawaited(&decision);
        }
    }
}

/// A [`Permit`] of a [`LocalLimiter`]: the same, without `await`.
#[must_use = "dropping a permit releases its leases"]
pub struct LocalPermit {
    limiter: LocalLimiter,
    /// `None` once it was released or kept.
    decision: Option<Decision>,
}

impl LocalPermit {
    pub(super) fn new(limiter: LocalLimiter, decision: Decision) -> LocalPermit {
        LocalPermit { limiter, decision: Some(decision.detached()) }
    }

    /// Whether the request may proceed.
    pub fn allowed(&self) -> bool {
        self.decision().allowed()
    }

    /// The decision.
    pub fn decision(&self) -> &Decision {
        self.decision.as_ref().expect("only a method that consumes the permit takes its decision")
    }

    /// Extends the leases by another lease time. Returns whether all of them are still held: if not, one has ended and
    /// others may hold its place.
    pub fn renew(&self) -> Result<bool, StoreError> {
        poll_ready(self.limiter.engine.renew(self.decision()))
    }

    /// Renews the leases in the background until the returned guard is dropped. Then they are released.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn keep_alive(mut self) -> KeepAlive {
        let decision =
            self.decision.take().expect("only a method that consumes the permit takes its decision");
        self.limiter.engine.keep_alive(decision)
    }

    /// Releases the leases. Returns what each rule gave back; a rule whose lease has ended declines.
    pub fn release(mut self) -> Result<Vec<Returned>, StoreError> {
        let Some(decision) = self.decision.take() else { return Ok(Vec::new()) };
        poll_ready(self.limiter.engine.release(&decision))
    }

    /// Leaves the leases to expire, and returns the decision.
    pub fn forget(mut self) -> Decision {
        self.decision.take().expect("only a method that consumes the permit takes its decision")
    }
}

impl Drop for LocalPermit {
    fn drop(&mut self) {
        if let Some(decision) = self.decision.take() {
            self.limiter.engine.release_unawaited(&decision);
        }
    }
}
