//! A store wrapper that measures calls and logs errors.

use std::sync::Arc;
use std::time::Instant;

use tollgate::core::{Exactness, Outcome, Plan, Store, StoreError, Time};

use super::store_calls::StoreCalls;

/// Forwards to its store.
pub(crate) struct TimedStore<S> {
    pub(crate) store: S,
    calls: Arc<StoreCalls>,
}

impl<S> TimedStore<S> {
    pub(crate) fn new(store: S, calls: Arc<StoreCalls>) -> TimedStore<S> {
        TimedStore { store, calls }
    }
}

impl<S: Store + Sync> Store for TimedStore<S> {
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        let started = Instant::now();
        let done = self.store.apply(plan).await;
        self.calls.note(started.elapsed(), done.as_ref().err());
        done
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        self.store.apply_unawaited(plan);
    }

    fn exactness(&self, plan: &Plan<'_>) -> Exactness {
        self.store.exactness(plan)
    }

    fn has_shared_clock(&self) -> bool {
        self.store.has_shared_clock()
    }

    fn generation(&self) -> u64 {
        self.store.generation()
    }

    fn is_unapplied(&self, error: &StoreError) -> bool {
        self.store.is_unapplied(error)
    }

    fn now(&self) -> Time {
        self.store.now()
    }
}
