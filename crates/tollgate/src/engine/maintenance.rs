//! What a guarded store needs besides checks: parts of limits that this server holds and does not spend are given back, and
//! what was admitted without the store is posted.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tollgate_core::Store;

use super::Engine;
use crate::guard::{Guarded, PostCounts};

/// How often something may be due. If nothing is, nothing is sent to the store.
const EVERY: Duration = Duration::from_millis(100);

impl<S: Store + Send + Sync + 'static> Engine<Guarded<S>> {
    /// Starts the task that gives ended slices back while no check does it, and posts what was admitted without the store.
    /// It ends with the last clone of the engine. Without a tokio runtime there is no task: then the next check gives slices
    /// back, and nothing is posted.
    pub fn start_maintenance(&self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let inner = Arc::downgrade(&self.inner);
        // Not awaited: it ends by itself.
        drop(runtime.spawn(async move {
            loop {
                tokio::time::sleep(EVERY).await;
                let Some(inner) = inner.upgrade() else { return };
                inner.store.maintain().await;
                if let Some(PostCounts { posted_units, lost_units, .. }) = inner.store.post_report() {
                    log_posts(posted_units, lost_units);
                }
            }
        }));
    }
}

fn log_posts(posted_units: u64, lost_units: u64) {
    tracing::info!(
        event = "local_admissions_posted",
        posted_units,
        lost_units,
        "what quotas and meters admitted without the store is booked there; what may be booked already is not"
    );
}
