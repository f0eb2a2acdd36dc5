//! Clocks of the memory store.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tollgate_core::Time;

/// A source of the current time. It may step backward: the algorithms never refill by that.
pub trait Clock: Send + Sync {
    /// The current time.
    fn now(&self) -> Time;
}

/// The system's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Time {
        SystemTime::now().into()
    }
}

/// The system's wall clock at a third of its cost: the processor's counter, corrected by the wall clock every millisecond.
///
/// It differs from [`SystemClock`] by at most the drift of the counter in [`FastClock::STALE_US`] plus the time to read
/// both, about a microsecond. If the wall clock is set forward or back, it follows within a millisecond. On a processor
/// without a steady counter it costs as much as the wall clock.
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
    /// The age at which the offset to the wall clock is read again.
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

    /// Reads the offset again. Two threads may do this at the same time: both find the same offset, to the microsecond.
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

/// A clock for tests: it moves only when it is set or advanced. Clones share the same time.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{LocalLimiter, ManualClock};
///
/// let clock = ManualClock::default();
/// let limiter = LocalLimiter::builder()
///     .rules_yaml("{ version: 1, rules: [{ id: daily, per: user, limit: { sliding-log: 1/d } }] }")
///     .clock(clock.clone())
///     .build()?;
/// assert!(limiter.check([("user", "u-7")])?.allowed());
/// assert!(!limiter.check([("user", "u-7")])?.allowed());
/// clock.advance(Duration::from_secs(86_400));
/// assert!(limiter.check([("user", "u-7")])?.allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    us: Arc<AtomicU64>,
}

impl ManualClock {
    /// Creates a clock that shows this time: a [`SystemTime`] or a [`Time`].
    pub fn at(now: impl Into<Time>) -> ManualClock {
        ManualClock { us: Arc::new(AtomicU64::new(now.into().us())) }
    }

    /// Sets the time, forward or back.
    pub fn set(&self, now: impl Into<Time>) {
        self.us.store(now.into().us(), Ordering::SeqCst);
    }

    /// Moves the time forward.
    pub fn advance(&self, by: Duration) {
        self.set(self.now().plus(by.into()));
    }
}

/// Starts in November 2023.
impl Default for ManualClock {
    fn default() -> ManualClock {
        ManualClock::at(Time::from_us(1_700_000_000_000_000))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time::from_us(self.us.load(Ordering::SeqCst))
    }
}

/// The clock of a limiter: the fast one without a call through a pointer, or any other.
#[doc(hidden)]
pub enum AnyClock {
    /// The system's clock.
    Fast(FastClock),
    /// A clock of the application.
    Custom(Arc<dyn Clock>),
}

impl AnyClock {
    /// Any other clock.
    pub fn custom(clock: impl Clock + 'static) -> AnyClock {
        AnyClock::Custom(Arc::new(clock))
    }
}

/// Cold, so that the fast clock's code stays small.
#[cold]
fn custom_now(clock: &dyn Clock) -> Time {
    clock.now()
}

impl Default for AnyClock {
    fn default() -> AnyClock {
        AnyClock::Fast(FastClock::new())
    }
}

impl Clock for AnyClock {
    #[inline]
    fn now(&self) -> Time {
        match self {
            AnyClock::Fast(clock) => clock.now(),
            AnyClock::Custom(clock) => custom_now(&**clock),
        }
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
    fn the_fast_clock_follows_the_wall_clock_within_a_millisecond() {
        let clock = FastClock::new();
        let mut widest = 0;
        for _ in 0..200_000 {
            let (before, now, after) = (SystemClock.now(), clock.now(), SystemClock.now());
            // The wall clock may be read on either side of a tick, and the thread may be preempted in between.
            let early = before.us().saturating_sub(now.us());
            let late = now.us().saturating_sub(after.us());
            widest = widest.max(early).max(late);
        }
        assert!(widest < 1_000, "off by {widest} us");
    }
}
