//! What a guarded store needs besides checks: parts of limits that this server holds and does not spend are given back.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tollgate_core::Store;

use super::Engine;
use crate::guard::Guarded;

/// How often ended slices are looked for. Without ended slices, nothing is sent to the store.
const EVERY: Duration = Duration::from_millis(100);

impl<S: Store + Send + Sync + 'static> Engine<Guarded<S>> {
    /// Starts the task that gives ended slices back while no check does it. It ends with the last clone of the engine.
    /// Without a tokio runtime there is no task: then the next check gives them back.
    pub fn start_maintenance(&self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let inner = Arc::downgrade(&self.inner);
        // Not awaited: it ends by itself.
        drop(runtime.spawn(async move {
            loop {
                tokio::time::sleep(EVERY).await;
                let Some(inner) = inner.upgrade() else { return };
                inner.store.return_ended_slices();
            }
        }));
    }
}
