//! The calls of one caller that wait for the store.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A number of calls.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// Identifies the caller as long as the process runs.
    caller: u64,
    calls: AtomicUsize,
}

impl Default for InFlight {
    fn default() -> InFlight {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        InFlight { caller: NEXT.fetch_add(1, Ordering::Relaxed), calls: AtomicUsize::new(0) }
    }
}

impl InFlight {
    /// The caller, among all of this process.
    pub(crate) const fn caller(&self) -> u64 {
        self.caller
    }

    /// Adds calls, and returns how many there were before.
    pub(crate) fn add(&self, calls: usize) -> usize {
        self.calls.fetch_add(calls, Ordering::Relaxed)
    }

    pub(crate) fn remove(&self, calls: usize) {
        self.calls.fetch_sub(calls, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}
