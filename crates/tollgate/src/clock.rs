//! Where a store in memory takes its time from.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
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

/// The machine's wall clock at a third of its cost: the processor's own counter, set by the wall clock again and again.
///
/// It is never further from [`SystemClock`] than what the counter drifts in [`FastClock::STALE_US`] and what it takes to
/// read both, about a microsecond; a wall clock that is set forward or back is followed within that time. Where the
/// processor has no steady counter it costs as much as the wall clock.
#[derive(Debug)]
pub struct FastClock {
    counter: quanta::Clock,
    start: u64,
    /// Microseconds per count, in units of 2^-64: one multiplication instead of three.
    count_us: u64,
    /// Wall clock minus counter, in microseconds.
    offset_us: AtomicI64,
    /// When the offset was read, on the counter.
    read_at_us: AtomicU64,
}

impl FastClock {
    /// An offset older than this is read anew.
    pub const STALE_US: u64 = 1_000;

    /// Reads the wall clock once.
    pub fn new() -> FastClock {
        let counter = quanta::Clock::new();
        let start = counter.raw();
        let counts = 1_u64 << 40;
        let count_us = (u128::from(counter.delta_as_nanos(0, counts)) << (u64::BITS - 40)) / 1_000;
        let count_us = u64::try_from(count_us).unwrap_or(u64::MAX);
        let clock = FastClock {
            counter,
            start,
            count_us,
            offset_us: AtomicI64::new(0),
            read_at_us: AtomicU64::new(0),
        };
        clock.set(clock.counted_us());
        clock
    }

    #[inline]
    fn counted_us(&self) -> u64 {
        let counts = self.counter.raw().saturating_sub(self.start);
        ((u128::from(counts) * u128::from(self.count_us)) >> u64::BITS) as u64
    }

    /// Two threads may do this at once: both find the same offset, to the microsecond.
    #[cold]
    fn set(&self, counted_us: u64) -> i64 {
        let offset_us = (SystemClock.now().us() as i64).wrapping_sub(counted_us as i64);
        self.offset_us.store(offset_us, Ordering::Relaxed);
        self.read_at_us.store(counted_us, Ordering::Relaxed);
        offset_us
    }
}

impl Default for FastClock {
    fn default() -> FastClock {
        FastClock::new()
    }
}

impl Clock for FastClock {
    #[inline]
    fn now(&self) -> Time {
        let counted_us = self.counted_us();
        let age_us = counted_us.saturating_sub(self.read_at_us.load(Ordering::Relaxed));
        let offset_us = if age_us > FastClock::STALE_US {
            self.set(self.counted_us())
        } else {
            self.offset_us.load(Ordering::Relaxed)
        };
        Time::from_us(counted_us.saturating_add_signed(offset_us))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fast_clock_shows_what_the_wall_clock_shows() {
        let clock = FastClock::new();
        let mut widest = 0;
        for _ in 0..200_000 {
            let (before, now, after) = (SystemClock.now(), clock.now(), SystemClock.now());
            // The wall clock may be read on either side of a tick, and the thread may be put aside in between.
            let early = before.us().saturating_sub(now.us());
            let late = now.us().saturating_sub(after.us());
            widest = widest.max(early).max(late);
        }
        assert!(widest < 1_000, "off by {widest} us");
    }
}
