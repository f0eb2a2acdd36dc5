//! A store whose calls are timed and whose errors are told.

use std::sync::Arc;
use std::time::Instant;

use tollgate::core::{Exactness, Outcome, Plan, Store, StoreError, Time};

use super::store_calls::StoreCalls;

/// Does what the store in it does.
pub(crate) struct Watched<S> {
    pub(crate) store: S,
    calls: Arc<StoreCalls>,
}

impl<S> Watched<S> {
    pub(crate) fn new(store: S, calls: Arc<StoreCalls>) -> Watched<S> {
        Watched { store, calls }
    }
}

impl<S: Store + Sync> Store for Watched<S> {
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        let began = Instant::now();
        let done = self.store.apply(plan).await;
        self.calls.note(began.elapsed(), done.as_ref().err());
        done
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        self.store.apply_unawaited(plan);
    }

    fn exactness(&self, plan: &Plan<'_>) -> Exactness {
        self.store.exactness(plan)
    }

    fn now(&self) -> Time {
        self.store.now()
    }
}
