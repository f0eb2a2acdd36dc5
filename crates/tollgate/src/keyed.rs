//! One limit for any number of keys, without rules.

use std::time::Duration;

use siphasher::sip128::{Hash128, SipHasher13};
use tollgate_core as core;
use tollgate_core::algorithm::quota::QuotaPeriod;
use tollgate_core::{Algorithm, Answer, LimitError, Operation, Retry, Span, Store, Time, Verdict};

use crate::clock::{AnyClock, Clock};
use crate::limit::Limit;
use crate::random::random;
use crate::store::memory::{ClassId, MemoryStore, Usage};

/// The smallest limiter: the same limit for each key, in memory, without rules.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Keyed, Limit};
///
/// let logins = Keyed::new(Limit::token_bucket(2, Duration::from_secs(1)).burst(5))?;
/// assert!((0..5).all(|_| logins.check("jane").allowed()));
///
/// let refused = logins.check("jane");
/// assert!(!refused.allowed());
/// assert!(refused.retry_after() <= Some(Duration::from_millis(500)));
/// assert!(logins.check("john").allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Keyed {
    limit: core::Limit,
    class: ClassId,
    store: MemoryStore<AnyClock>,
    /// Hashes keys with a random secret, so that callers cannot make keys that collide.
    hasher: SipHasher13,
}

/// The result of one check by [`Keyed`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyedDecision {
    answer: Answer,
    now: Time,
}

/// The keyed limiter could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyedError {
    /// The numbers of the limit are invalid.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The limit needs more than a key.
    #[error("`Keyed` does not support {}: {why}; use a `LocalLimiter`", algorithm.name())]
    Unsupported {
        /// The algorithm of the limit.
        algorithm: Algorithm,
        /// What it needs.
        why: &'static str,
    },
    /// The operating system has no random numbers.
    #[error("the operating system provides no random numbers")]
    Random(#[from] getrandom::Error),
}

impl Keyed {
    /// Creates a limiter with room for ten million keys.
    pub fn new(limit: impl Into<Limit>) -> Result<Keyed, KeyedError> {
        Keyed::with_store(limit.into().resolve()?, MemoryStore::with_clock(AnyClock::default()))
    }

    /// Creates a limiter with another clock, for tests: see [`ManualClock`](crate::ManualClock).
    pub fn with_clock(limit: impl Into<Limit>, clock: impl Clock + 'static) -> Result<Keyed, KeyedError> {
        Keyed::with_store(limit.into().resolve()?, MemoryStore::with_clock(AnyClock::custom(clock)))
    }

    /// Sets how many keys there is room for. Keys beyond that share one overflow key.
    #[must_use]
    pub fn keys_max(self, keys_max: usize) -> Keyed {
        Keyed { store: self.store.keys_max(keys_max), ..self }
    }

    /// Creates a limiter over this store, which must be used for nothing else.
    #[doc(hidden)]
    pub fn with_store(limit: core::Limit, store: MemoryStore<AnyClock>) -> Result<Keyed, KeyedError> {
        let why = match limit {
            core::Limit::Concurrency(_) => Some("leases are released by their holders"),
            core::Limit::Penalty(_) => Some("it counts reported failures"),
            core::Limit::Quota(quota) if matches!(quota.period(), QuotaPeriod::Calendar(_)) => {
                Some("its periods follow a calendar")
            }
            _ => None,
        };
        if let Some(why) = why {
            return Err(KeyedError::Unsupported { algorithm: limit.algorithm(), why });
        }
        let class = store.class_of(&limit);
        Ok(Keyed { limit, class, store, hasher: SipHasher13::new_with_key(&random()?) })
    }

    /// Checks the key, and charges 1 if it is allowed.
    #[inline]
    pub fn check(&self, key: impl AsRef<[u8]>) -> KeyedDecision {
        self.charge(key, 1)
    }

    /// Checks the key, and charges `cost` if it is allowed. A cost that exceeds the capacity is never allowed, and
    /// [`retry_after`](KeyedDecision::retry_after) is `None`.
    #[inline]
    pub fn charge(&self, key: impl AsRef<[u8]>, cost: u64) -> KeyedDecision {
        self.step(key.as_ref(), &Operation::charge(cost))
    }

    /// Decides as [`charge`](Keyed::charge) does, and charges nothing.
    pub fn peek(&self, key: impl AsRef<[u8]>, cost: u64) -> KeyedDecision {
        self.step(key.as_ref(), &Operation::Peek { cost })
    }

    /// Deletes the consumption of the key.
    pub fn reset(&self, key: impl AsRef<[u8]>) {
        self.step(key.as_ref(), &Operation::Reset { receipt_life: Span::ZERO });
    }

    /// How many keys have consumption, and for how many there is room.
    pub fn usage(&self) -> Usage {
        self.store.usage()
    }

    /// Removes all keys that have counted nothing for a minute, and returns their number. Checks remove some as they go.
    pub fn sweep(&self) -> usize {
        self.store.sweep()
    }

    /// The store behind it.
    #[doc(hidden)]
    pub const fn store(&self) -> &MemoryStore<AnyClock> {
        &self.store
    }

    #[inline]
    fn step(&self, key: &[u8], operation: &Operation) -> KeyedDecision {
        // Read first: the processor reads its counter while it hashes.
        let now = self.store.now();
        let Hash128 { h1, h2 } = self.hasher.hash(key);
        let fingerprint = u128::from(h1) << 64 | u128::from(h2);
        KeyedDecision { answer: self.store.step(fingerprint, &self.limit, self.class, operation, now), now }
    }
}

impl KeyedDecision {
    /// Whether the request may proceed.
    #[inline]
    pub const fn allowed(&self) -> bool {
        self.answer.is_admitted()
    }

    /// The limit in units.
    pub const fn limit(&self) -> u64 {
        self.answer.limit
    }

    /// Whole units that remain.
    pub const fn remaining(&self) -> u64 {
        self.answer.remaining
    }

    /// How long to wait before the same request is admitted. Zero if it is allowed; `None` if waiting does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.answer.verdict {
            Verdict::Refused(Retry::At(at)) => Some((at - self.now).into()),
            Verdict::Refused(Retry::Never) => None,
            Verdict::Admitted { .. }
            | Verdict::Done { .. }
            | Verdict::Recorded { .. }
            | Verdict::BookedLate { .. }
            | Verdict::Usage { .. }
            | Verdict::Declined(_) => Some(Duration::ZERO),
        }
    }

    /// How long an allowed request must wait before it proceeds: zero except under
    /// [`leaky_bucket_queue`](Limit::leaky_bucket_queue).
    pub fn delay(&self) -> Duration {
        match self.answer.verdict {
            Verdict::Admitted { delay } => delay.into(),
            _ => Duration::ZERO,
        }
    }

    /// The answer in the core's own form.
    #[doc(hidden)]
    pub const fn answer(&self) -> &Answer {
        &self.answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;
    use crate::limit::Meter;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_refused_key_is_allowed_after_exactly_retry_after() {
        let limits: [Limit; 6] = [
            Limit::token_bucket(1, SECOND).burst(2).into(),
            Limit::leaky_bucket(1, SECOND).capacity(2).into(),
            Limit::fixed_window(2, SECOND).into(),
            Limit::sliding_window(2, SECOND).buckets(4).into(),
            Limit::sliding_log(2, SECOND).into(),
            Limit::quota(2, SECOND).into(),
        ];
        for limit in limits {
            let clock = ManualClock::default();
            let keyed = Keyed::with_clock(limit, clock.clone()).unwrap();
            let first = keyed.check("k");
            assert_eq!((first.allowed(), first.limit(), first.remaining()), (true, 2, 1), "{limit:?}");
            assert_eq!(first.retry_after(), Some(Duration::ZERO), "{limit:?}");
            assert!(keyed.check("k").allowed(), "{limit:?}");
            let refused = keyed.check("k");
            let wait = refused.retry_after().expect("waiting helps");
            assert!(!refused.allowed() && !wait.is_zero(), "{limit:?}");
            clock.advance(wait - Duration::from_micros(1));
            assert!(!keyed.peek("k", 1).allowed(), "{limit:?}: a microsecond too early");
            clock.advance(Duration::from_micros(1));
            assert!(keyed.check("k").allowed(), "{limit:?}");
        }
    }

    #[test]
    fn a_queue_delays_and_a_meter_counts_until_it_is_reset() {
        let clock = ManualClock::default();
        let queue = Keyed::with_clock(Limit::leaky_bucket_queue(4, SECOND, 1), clock.clone()).unwrap();
        assert_eq!(queue.check("k").delay(), Duration::ZERO);
        assert_eq!(queue.check("k").delay(), Duration::from_millis(250));
        assert!(!queue.check("k").allowed());

        let meter = Keyed::with_clock(Limit::meter(1), clock.clone()).unwrap();
        assert!(meter.check("k").allowed() && !meter.check("k").allowed());
        meter.reset("k");
        assert!(meter.check("k").allowed());
        assert_eq!(meter.charge("k", 2).retry_after(), None, "the cost exceeds the capacity");
        assert!(Keyed::with_clock(Meter::unlimited().expiry(SECOND), clock).unwrap().check("k").allowed());
    }

    #[test]
    fn invalid_numbers_are_an_error() {
        assert!(matches!(Keyed::new(Limit::fixed_window(0, SECOND)), Err(KeyedError::Limit(_))));
    }
}
