//! The clock that measures how long something in this process may be used.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// A clock that never steps back: the system's, or one that a simulation controls.
#[derive(Clone, Default)]
pub struct MonotonicClock {
    simulated: Option<Arc<dyn Fn() -> Instant + Send + Sync>>,
}

impl MonotonicClock {
    /// Creates a clock that shows what `now` returns.
    pub fn simulated(now: impl Fn() -> Instant + Send + Sync + 'static) -> MonotonicClock {
        MonotonicClock { simulated: Some(Arc::new(now)) }
    }

    /// Returns the current instant.
    #[inline]
    pub fn now(&self) -> Instant {
        self.simulated.as_ref().map_or_else(Instant::now, |now| now())
    }
}

impl fmt::Debug for MonotonicClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MonotonicClock").field("simulated", &self.simulated.is_some()).finish()
    }
}
