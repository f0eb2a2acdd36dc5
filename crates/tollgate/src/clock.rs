//! Where a store in memory takes its time from.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tollgate_core::{Span, Time};

/// Tells the time. It may step backward; the algorithms see to it that nothing is refilled by that.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Time;
}

/// The machine's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Time {
        // A clock set before 1970 reads as 1970: time that has not come yet refills nothing.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time::from_us(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }
}

/// A clock that stands still until it is told otherwise.
#[derive(Debug, Default)]
pub struct ManualClock {
    us: AtomicU64,
}

impl ManualClock {
    /// A clock that stands at `now`.
    pub const fn at(now: Time) -> ManualClock {
        ManualClock { us: AtomicU64::new(now.us()) }
    }

    /// Sets it, forward or back.
    pub fn set(&self, now: Time) {
        self.us.store(now.us(), Ordering::SeqCst);
    }

    /// Sets it forward.
    pub fn advance(&self, by: Span) {
        self.set(self.now().plus(by));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time::from_us(self.us.load(Ordering::SeqCst))
    }
}

impl<C: Clock + ?Sized> Clock for &C {
    fn now(&self) -> Time {
        (**self).now()
    }
}
