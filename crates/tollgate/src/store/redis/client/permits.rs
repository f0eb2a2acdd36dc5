//! Bounds the number of Plans in flight, and follows how many of them the store answers in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::window::Window;
use crate::store::redis::error::RedisError;

/// A fixed number of permits.
#[derive(Debug)]
pub(crate) struct PermitPool {
    taken: Arc<AtomicUsize>,
    max: usize,
    window: Window,
}

/// Allows one Plan to be in flight. Dropping it returns it to the pool.
#[derive(Debug)]
pub(crate) struct Permit {
    taken: Arc<AtomicUsize>,
}

impl PermitPool {
    /// A pool of `max` permits. `useful_max` is how many Plans a larger number cannot make faster.
    pub(crate) fn new(max: usize, useful_max: usize, deadline: Duration) -> PermitPool {
        PermitPool { taken: Arc::default(), max, window: Window::new(deadline, max.min(useful_max)) }
    }

    /// Takes a permit, or fails with [`RedisError::Busy`].
    pub(crate) fn take(&self) -> Result<Permit, RedisError> {
        let permit = Permit { taken: Arc::clone(&self.taken) };
        let before = self.taken.fetch_add(1, Ordering::Relaxed);
        // If this is one too many, dropping it corrects the count.
        if before < self.max { Ok(permit) } else { Err(RedisError::Busy) }
    }

    /// The number of Plans that can be in flight so that replies come within half of the deadline.
    pub(crate) fn window(&self) -> usize {
        self.window.plans()
    }

    /// Records the reply to a Plan that was queued at this instant and still has its permit.
    pub(crate) fn record_reply(&self, queued: Instant) {
        self.window.record(queued, Instant::now(), self.taken());
    }

    /// The number of permits taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
