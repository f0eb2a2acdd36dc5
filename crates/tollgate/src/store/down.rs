//! A store that never answers, for tests.

use super::{Outcome, Plan, Store, StoreError, Time};

/// Fails every call with a temporary error, so that failure policies answer.
pub(crate) struct DownStore;

impl Store for DownStore {
    async fn apply(&self, _: &Plan<'_>) -> Result<Outcome, StoreError> {
        Err(StoreError::Transient("unreachable".into()))
    }

    fn apply_unawaited(&self, _: &Plan<'_>) {}

    fn now(&self) -> Time {
        Time::ZERO
    }
}
