//! What happens before, instead of and after a store that may not answer.
//!
//! [`Guarded`] wraps a remote store. Library and server use the same wrapper. Each layer is one file:
//!
//! 1. parts of a limit that this server has booked are spent without the store (`slices.rs`);
//! 2. the store answers, and the limiters in this process follow its numbers (`local_limiters.rs`);
//! 3. if it does not answer, the failure policy of each rule does (`tollgate_core::plan::failure`).
//!
//! The memory store does not fail and needs no guard.

mod fleet_size;
mod local_limiters;
mod slices;

use std::sync::Arc;

use tollgate_core::decision::exactness::Exactness;
use tollgate_core::plan::failure::answer_by_policies;
use tollgate_core::{Outcome, Plan, Store, StoreError, Time};

pub use fleet_size::FleetSize;
use local_limiters::LocalLimiters;
pub use slices::SliceCounts;
use slices::Slices;

/// A store whose failures are answered by the rules' failure policies.
pub struct Guarded<S> {
    store: S,
    slices: Slices,
    local: LocalLimiters,
}

impl<S> Guarded<S> {
    /// Guards a store. `fleet` says how many servers share it, for `local fair`.
    pub fn new(store: S, fleet: Arc<FleetSize>) -> Guarded<S> {
        Guarded { store, slices: Slices::new(Arc::clone(&fleet)), local: LocalLimiters::new(fleet) }
    }

    /// The store.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// The number of servers that share the store, as far as it is known.
    pub fn fleet(&self) -> &FleetSize {
        self.local.fleet()
    }

    /// What slices have done since the start.
    pub fn slice_counts(&self) -> SliceCounts {
        self.slices.counts()
    }
}

impl<S: Store> Guarded<S> {
    /// Gives unspent units of ended slices back to the store. Every check does this too, so only a server without checks
    /// needs it.
    pub fn return_ended_slices(&self) {
        self.slices.return_ended(&self.store);
    }
}

impl<S: Store + Sync> Store for Guarded<S> {
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        self.slices.return_ended(&self.store);
        let done = if Slices::serve(plan, &self.store) {
            self.slices.apply(plan, &self.store).await
        } else {
            self.slices.follow(plan);
            self.store.apply(plan).await
        };
        match &done {
            Ok(outcome) => self.local.follow(plan, outcome),
            Err(error) if is_answered_by_policies(plan, error) => {
                return Ok(answer_by_policies(plan, error, self.store.now(), &self.local));
            }
            Err(_) => (),
        }
        done
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        self.slices.follow(plan);
        self.store.apply_unawaited(plan);
    }

    /// Conservative for rules with slices: other servers may hold units that they have not spent.
    fn exactness(&self, plan: &Plan<'_>) -> Exactness {
        let is_sliced = plan.items().iter().any(|item| item.blocking && item.slices.is_some());
        let least = if is_sliced { Exactness::Conservative } else { Exactness::Exact };
        self.store.exactness(plan).max(least)
    }

    fn has_shared_clock(&self) -> bool {
        self.store.has_shared_clock()
    }

    fn generation(&self) -> u64 {
        self.store.generation()
    }

    fn now(&self) -> Time {
        self.store.now()
    }
}

/// Whether the failure policies answer. A follow-up has no policy: its caller must know that it was not applied.
fn is_answered_by_policies(plan: &Plan<'_>, error: &StoreError) -> bool {
    !matches!(error, StoreError::IdReused) && plan.items().iter().all(|item| item.asks_for_admission())
}

#[cfg(test)]
mod tests;
