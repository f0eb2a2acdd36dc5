//! A wait that can be ended early, once and for all.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use super::lock;

/// Open until it is closed.
#[derive(Debug, Default)]
pub(super) struct Gate {
    closed: Mutex<bool>,
    bell: Condvar,
}

impl Gate {
    pub(super) fn close(&self) {
        *lock(&self.closed) = true;
        self.bell.notify_all();
    }

    /// Waits until `then` or until the gate is closed. Returns whether it is still open.
    pub(super) fn open_until(&self, then: Instant) -> bool {
        let closed = lock(&self.closed);
        let wait = then.saturating_duration_since(Instant::now());
        let (closed, _) = self
            .bell
            .wait_timeout_while(closed, wait, |closed| !*closed)
            .unwrap_or_else(PoisonError::into_inner);
        !*closed
    }
}
