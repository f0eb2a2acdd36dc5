//! One limit for any number of keys, and nothing else: no rules, no attributes, no Plans.

use siphasher::sip128::{Hash128, SipHasher13};
use tollgate_core::algorithm::quota::QuotaPeriod;
use tollgate_core::{Algorithm, Answer, Limit, Operation, Store};

use crate::clock::{Clock, FastClock};
use crate::limiter::{BuildError, random};
use crate::store::memory::{ClassId, MemoryStore};

/// The smallest limiter: each key gets the same limit, in memory.
///
/// ```
/// use tollgate::Keyed;
/// use tollgate::core::algorithm::bucket::Bucket;
/// use tollgate::core::{Limit, Span};
///
/// // Two a second, and five may be saved up.
/// let logins = Keyed::new(Limit::Bucket(Bucket::tokens(2, Span::from_secs(1), 5)?))?;
/// assert!((0..5).all(|_| logins.check("jane").is_admitted()));
/// assert!(logins.check("jane").is_refused());
/// assert!(logins.check("john").is_admitted());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Keyed<C = FastClock> {
    limit: Limit,
    class: ClassId,
    store: MemoryStore<C>,
    /// Starts the fingerprint of every key, with a secret of its own so that nobody can make keys that collide.
    hasher: SipHasher13,
}

/// No keyed limiter can be made of this.
#[derive(Debug, thiserror::Error)]
pub enum KeyedError {
    /// The limit needs more than a key.
    #[error("a keyed limiter cannot hold {}: {why}; use a `Limiter`", algorithm.name())]
    NeedsMore {
        /// What it is.
        algorithm: Algorithm,
        /// What it needs.
        why: &'static str,
    },
    /// The system gives no randomness.
    #[error(transparent)]
    Build(#[from] BuildError),
}

impl Keyed {
    /// A limiter on the machine's clock.
    pub fn new(limit: Limit) -> Result<Keyed, KeyedError> {
        Keyed::with_store(limit, MemoryStore::new())
    }
}

impl<C: Clock> Keyed<C> {
    /// A limiter on this store, which should be used for nothing else.
    pub fn with_store(limit: Limit, store: MemoryStore<C>) -> Result<Keyed<C>, KeyedError> {
        let why = match limit {
            Limit::Concurrency(_) => Some("its leases are given back by their holders"),
            Limit::Penalty(_) => Some("it lives by reports"),
            Limit::Quota(quota) if matches!(quota.period(), QuotaPeriod::Calendar(_)) => {
                Some("its periods follow a calendar")
            }
            _ => None,
        };
        if let Some(why) = why {
            return Err(KeyedError::NeedsMore { algorithm: limit.algorithm(), why });
        }
        let class = store.class_of(&limit);
        Ok(Keyed { limit, class, store, hasher: SipHasher13::new_with_key(&random()?) })
    }

    /// May this key go on? If so, it is charged 1.
    #[inline]
    pub fn check(&self, key: impl AsRef<[u8]>) -> Answer {
        self.charge(key, 1)
    }

    /// May this key spend `cost`? A cost above the limit's capacity is refused for ever.
    #[inline]
    pub fn charge(&self, key: impl AsRef<[u8]>, cost: u64) -> Answer {
        self.step(key.as_ref(), &Operation::charge(cost))
    }

    /// What [`charge`](Keyed::charge) would answer.
    pub fn peek(&self, key: impl AsRef<[u8]>, cost: u64) -> Answer {
        self.step(key.as_ref(), &Operation::Peek { cost })
    }

    /// Forgets what this key has consumed.
    pub fn reset(&self, key: impl AsRef<[u8]>) {
        self.step(key.as_ref(), &Operation::Reset);
    }

    /// The store behind it.
    pub fn store(&self) -> &MemoryStore<C> {
        &self.store
    }

    #[inline]
    fn step(&self, key: &[u8], operation: &Operation) -> Answer {
        // First, because the processor reads its counter beside the hash.
        let now = self.store.now();
        let Hash128 { h1, h2 } = self.hasher.hash(key);
        self.store.step(u128::from(h1) << 64 | u128::from(h2), &self.limit, self.class, operation, now)
    }
}
