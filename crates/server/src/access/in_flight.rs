//! The calls of one caller that wait for the store.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of calls.
#[derive(Debug, Default)]
pub(crate) struct InFlight(AtomicUsize);

impl InFlight {
    /// Adds calls, and returns how many there were before.
    pub(crate) fn add(&self, calls: usize) -> usize {
        self.0.fetch_add(calls, Ordering::Relaxed)
    }

    pub(crate) fn remove(&self, calls: usize) {
        self.0.fetch_sub(calls, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
