//! Limits that [`Keyed`](crate::Keyed) applies, as typed constructors.

use std::time::Duration;

use tollgate_core as core;
use tollgate_core::LimitError;
use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::algorithm::fixed_window;
use tollgate_core::algorithm::meter;
use tollgate_core::algorithm::quota::{self, QuotaPeriod};
use tollgate_core::algorithm::sliding_log;
use tollgate_core::algorithm::sliding_window::{self, Counting};

/// An algorithm and its numbers. Each algorithm has one constructor; its options are methods of what the constructor
/// returns.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Limit;
///
/// const SECOND: Duration = Duration::from_secs(1);
/// let limits: [Limit; 4] = [
///     Limit::token_bucket(2, SECOND).burst(5).into(),
///     Limit::leaky_bucket(10, SECOND).capacity(50).into(),
///     Limit::fixed_window(100, 60 * SECOND).into(),
///     Limit::sliding_window(100, 60 * SECOND).buckets(12).into(),
/// ];
/// # let _ = limits;
/// ```
///
/// The numbers are validated when a [`Keyed`](crate::Keyed) is created. Rules have more algorithms: concurrency, penalty
/// and quotas by the calendar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Limit {
    /// See [`Limit::token_bucket`].
    TokenBucket(TokenBucket),
    /// See [`Limit::leaky_bucket`].
    LeakyBucket(LeakyBucket),
    /// See [`Limit::leaky_bucket_queue`].
    LeakyBucketQueue(LeakyBucketQueue),
    /// See [`Limit::fixed_window`].
    FixedWindow(FixedWindow),
    /// See [`Limit::sliding_window`].
    SlidingWindow(SlidingWindow),
    /// See [`Limit::sliding_log`].
    SlidingLog(SlidingLog),
    /// See [`Limit::quota`].
    Quota(Quota),
    /// See [`Limit::meter`].
    Meter(Meter),
}

/// Units that come back at a steady rate, up to a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenBucket {
    amount: u64,
    period: Duration,
    burst: u64,
}

/// Units that leak at a steady rate out of a bucket of limited capacity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeakyBucket {
    amount: u64,
    period: Duration,
    capacity: u64,
}

/// A queue that admits at a steady rate: it delays requests and refuses those beyond its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeakyBucketQueue {
    amount: u64,
    period: Duration,
    queue: u64,
}

/// Units per window that is aligned to the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FixedWindow {
    amount: u64,
    window: Duration,
}

/// Units in the last window, counted in buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlidingWindow {
    amount: u64,
    window: Duration,
    buckets: u64,
    counting: Counting,
}

/// Units in any window, counted exactly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlidingLog {
    amount: u64,
    window: Duration,
}

/// Units per period that starts with the first use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    amount: u64,
    period: Duration,
    grace: u64,
}

/// A counter that nothing but a reset or its expiry lowers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meter {
    amount: Option<u64>,
    expiry: Option<Duration>,
}

impl Limit {
    /// `amount` units come back per `period`; a key that was idle can use [`burst`](TokenBucket::burst) units at once
    /// (`amount` by default).
    pub const fn token_bucket(amount: u64, period: Duration) -> TokenBucket {
        TokenBucket { amount, period, burst: amount }
    }

    /// `amount` units leak out per `period`; the bucket holds [`capacity`](LeakyBucket::capacity) units (`amount` by
    /// default), and a request that does not fit is refused.
    pub const fn leaky_bucket(amount: u64, period: Duration) -> LeakyBucket {
        LeakyBucket { amount, period, capacity: amount }
    }

    /// `amount` requests proceed per `period`, evenly spaced: each is admitted with a delay. At most `queue` requests
    /// wait behind the one that proceeds; others are refused.
    pub const fn leaky_bucket_queue(amount: u64, period: Duration, queue: u64) -> LeakyBucketQueue {
        LeakyBucketQueue { amount, period, queue }
    }

    /// At most `amount` units per window. Windows are aligned to the clock.
    pub const fn fixed_window(amount: u64, window: Duration) -> FixedWindow {
        FixedWindow { amount, window }
    }

    /// At most `amount` units in the last window, counted in six [`buckets`](SlidingWindow::buckets) by default.
    pub const fn sliding_window(amount: u64, window: Duration) -> SlidingWindow {
        SlidingWindow { amount, window, buckets: BUCKETS_DEFAULT, counting: Counting::Strict }
    }

    /// At most `amount` units in any window, exactly. Takes memory for each admitted request.
    pub const fn sliding_log(amount: u64, window: Duration) -> SlidingLog {
        SlidingLog { amount, window }
    }

    /// At most `amount` units per period. A key's period starts with its first use.
    pub const fn quota(amount: u64, period: Duration) -> Quota {
        Quota { amount, period, grace: 0 }
    }

    /// At most `amount` units until the key is reset or expires.
    pub const fn meter(amount: u64) -> Meter {
        Meter { amount: Some(amount), expiry: None }
    }

    /// The limit as the algorithms take it.
    pub(crate) fn resolve(self) -> Result<core::Limit, LimitError> {
        Ok(match self {
            Limit::TokenBucket(TokenBucket { amount, period, burst }) => {
                core::Limit::Bucket(Bucket::tokens(amount, period.into(), burst)?)
            }
            Limit::LeakyBucket(LeakyBucket { amount, period, capacity }) => {
                core::Limit::Bucket(Bucket::meter(amount, period.into(), capacity)?)
            }
            Limit::LeakyBucketQueue(LeakyBucketQueue { amount, period, queue }) => {
                core::Limit::Bucket(Bucket::queue(amount, period.into(), queue)?)
            }
            Limit::FixedWindow(FixedWindow { amount, window }) => {
                core::Limit::FixedWindow(fixed_window::FixedWindow::new(amount, window.into())?)
            }
            Limit::SlidingWindow(SlidingWindow { amount, window, buckets, counting }) => {
                let window = window.into();
                core::Limit::SlidingWindow(sliding_window::SlidingWindow::new(
                    amount, window, buckets, counting,
                )?)
            }
            Limit::SlidingLog(SlidingLog { amount, window }) => {
                core::Limit::SlidingLog(sliding_log::SlidingLog::new(amount, window.into())?)
            }
            Limit::Quota(Quota { amount, period, grace }) => {
                core::Limit::Quota(quota::Quota::new(amount, grace, QuotaPeriod::Rolling(period.into()))?)
            }
            Limit::Meter(Meter { amount, expiry }) => {
                core::Limit::Meter(meter::Meter::new(amount, expiry.map(Into::into))?)
            }
        })
    }
}

/// As in a rules file.
const BUCKETS_DEFAULT: u64 = 6;

impl TokenBucket {
    /// Sets how many units an idle key can use at once.
    #[must_use]
    pub const fn burst(self, burst: u64) -> TokenBucket {
        TokenBucket { burst, ..self }
    }
}

impl LeakyBucket {
    /// Sets how many units the bucket holds.
    #[must_use]
    pub const fn capacity(self, capacity: u64) -> LeakyBucket {
        LeakyBucket { capacity, ..self }
    }
}

impl SlidingWindow {
    /// Sets how many buckets the window has: more buckets follow the window more closely and take more memory.
    #[must_use]
    pub const fn buckets(self, buckets: u64) -> SlidingWindow {
        SlidingWindow { buckets, ..self }
    }

    /// Counts the oldest bucket by the part of it that is still in the window. By default it counts whole, so that the
    /// limit is never exceeded.
    #[must_use]
    pub const fn interpolated(self) -> SlidingWindow {
        SlidingWindow { counting: Counting::Interpolated, ..self }
    }
}

impl Quota {
    /// Admits this many units more, which are not shown as remaining.
    #[must_use]
    pub const fn grace(self, grace: u64) -> Quota {
        Quota { grace, ..self }
    }
}

impl Meter {
    /// Counts without a limit.
    pub const fn unlimited() -> Meter {
        Meter { amount: None, expiry: None }
    }

    /// Sets how long an unused key keeps its count.
    #[must_use]
    pub const fn expiry(self, expiry: Duration) -> Meter {
        Meter { expiry: Some(expiry), ..self }
    }
}

macro_rules! into_limit {
    ($($algorithm:ident),+) => {
        $(
            impl From<$algorithm> for Limit {
                fn from(limit: $algorithm) -> Limit {
                    Limit::$algorithm(limit)
                }
            }
        )+
    };
}

into_limit!(TokenBucket, LeakyBucket, LeakyBucketQueue, FixedWindow, SlidingWindow, SlidingLog, Quota, Meter);
