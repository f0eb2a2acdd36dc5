//! Bounds the number of Plans in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::store::redis::error::RedisError;

/// A fixed number of permits.
#[derive(Debug)]
pub(crate) struct PermitPool {
    taken: Arc<AtomicUsize>,
    max: usize,
}

/// Allows one Plan to be in flight. Dropping it returns it to the pool.
#[derive(Debug)]
pub(crate) struct Permit {
    taken: Arc<AtomicUsize>,
}

impl PermitPool {
    pub(crate) fn new(max: usize) -> PermitPool {
        PermitPool { taken: Arc::default(), max }
    }

    /// Takes a permit, or fails with [`RedisError::Busy`].
    pub(crate) fn take(&self) -> Result<Permit, RedisError> {
        let permit = Permit { taken: Arc::clone(&self.taken) };
        let before = self.taken.fetch_add(1, Ordering::Relaxed);
        // If this is one too many, dropping it corrects the count.
        if before < self.max { Ok(permit) } else { Err(RedisError::Busy) }
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
