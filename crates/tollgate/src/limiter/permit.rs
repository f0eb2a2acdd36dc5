//! An admission that gives its leases back.

use std::ops::Deref;

use tollgate_core::rules::Request;
use tollgate_core::{Limit, Mark, Operation, Plan, Receipt, Store, StoreError};

use super::follow_up::plan_of;
use super::{CheckError, Decision, Limiter, Returned};

/// A decision that holds places under concurrency rules for as long as it lives. When it is dropped they are given
/// back; what other rules were charged stays charged.
///
/// A refused one holds nothing: look at `allowed` first.
#[must_use = "dropping a permit gives its leases back"]
pub struct Permit<S: Store = crate::MemoryStore> {
    limiter: Limiter<S>,
    /// Taken when it is given back by hand.
    decision: Option<Decision>,
}

impl<S: Store> Limiter<S> {
    /// [`check`](Limiter::check), as a guard: places under concurrency rules are given back when it is dropped.
    pub async fn lease<'a>(&self, request: impl Into<Request<'a>>) -> Result<Permit<S>, CheckError> {
        Ok(self.permit(self.check(request).await?))
    }

    pub(super) fn permit(&self, decision: Decision) -> Permit<S> {
        Permit { limiter: self.clone(), decision: Some(decision) }
    }
}

impl<S: Store> Permit<S> {
    /// Says that the work goes on, so that the leases do not run out. A rule that declines has let its lease end.
    pub async fn renew(&self) -> Result<Vec<Returned>, StoreError> {
        let plan = leases(self, |token| Operation::Renew { token });
        self.limiter.follow_up(&plan).await
    }

    /// Gives the leases back and says what became of them.
    pub async fn release(mut self) -> Result<Vec<Returned>, StoreError> {
        let Some(decision) = self.decision.take() else { return Ok(Vec::new()) };
        let plan = leases(&decision, |token| Operation::Release { token });
        self.limiter.follow_up(&plan).await
    }

    /// Keeps the leases until they run out by themselves, and gives out the decision.
    pub fn keep(mut self) -> Option<Decision> {
        self.decision.take()
    }
}

impl<S: Store> Deref for Permit<S> {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        self.decision.as_ref().expect("a permit has its decision until it is consumed")
    }
}

impl<S: Store> Drop for Permit<S> {
    fn drop(&mut self) {
        if let Some(decision) = self.decision.take() {
            self.limiter.follow_up_unawaited(&leases(&decision, |token| Operation::Release { token }));
        }
    }
}

fn leases(decision: &Decision, operation: impl Fn(tollgate_core::Token) -> Operation) -> Plan<'_> {
    plan_of(decision, |receipt: &Receipt, limit: &Limit| match (receipt.mark, limit) {
        (Mark::Held { token, .. }, Limit::Concurrency(_)) => Some(operation(token)),
        _ => None,
    })
}
