//! The last refusal of a shard, returned again without the lock.
//!
//! A refused client that retries at once is the most frequent caller of a busy limiter. Until the retry instant that the
//! refusal named, the same request gets the same answer, unless something is written under the key. So the answer is
//! kept next to the shard's lock and read without it.
//!
//! Gain: without it, refused requests of one key cost 1.9 times the CPU on one thread and 3.8 times on two
//! (docs/decisions/0004, row "last refusal").

use std::sync::atomic::fence;

use tollgate_core::plan::answer::AnsweredBy;
use tollgate_core::{Answer, Limit, Mark, Operation, Retry, Time, Verdict};

use crate::store::memory::classes::{ClassId, Classes};
use crate::store::memory::shard::Shard;
use crate::store::memory::state_key::StateKey;
use crate::store::memory::sync::{AtomicU64, Ordering};

/// A seqlock: the holder of the shard's lock writes, any thread reads. The version is odd during a write; a reader that
/// sees it odd or changed reads nothing.
#[derive(Default)]
pub(crate) struct LastRefusal {
    version: AtomicU64,
    /// The key (two words), the class of its state, the retry instant, the reset instant, the limit.
    words: [AtomicU64; WORDS],
}

const WORDS: usize = 6;

impl LastRefusal {
    /// Returns the refusal if it answers this operation on this key and its retry instant is still ahead.
    #[inline]
    pub(crate) fn get(
        &self,
        classes: &Classes,
        key: &StateKey<'_>,
        operation: &Operation,
        now: Time,
    ) -> Option<Answer> {
        // Usually another key, so the rest is kept out of the caller.
        let same = self.words[0].load(Ordering::Relaxed) == key.fingerprint as u64;
        if same { self.get_same(classes, key, operation, now) } else { None }
    }

    #[inline(never)]
    fn get_same(
        &self,
        classes: &Classes,
        key: &StateKey<'_>,
        operation: &Operation,
        now: Time,
    ) -> Option<Answer> {
        let version = self.version.load(Ordering::Acquire);
        if !is_lasting(key.limit, operation) {
            return None;
        }
        let [low, high, class, retry_at, reset_at, limit] =
            std::array::from_fn(|word| self.words[word].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let torn = version % 2 == 1 || self.version.load(Ordering::Relaxed) != version;
        let same = u128::from(high) << 64 | u128::from(low) == key.fingerprint && now.us() < retry_at;
        let class = ClassId::new(class as u32).filter(|_| same && !torn)?;
        key.wrote(classes, class).then(|| Answer {
            verdict: Verdict::Refused(Retry::At(Time::from_us(retry_at))),
            limit,
            remaining: 0,
            reset_at: Time::from_us(reset_at),
            mark: Mark::None,
            by: AnsweredBy::Store,
        })
    }

    /// Stores the answer if it is a refusal that lasts until its retry instant; clears the key's refusal if the key
    /// changed. The caller holds the shard's lock, and the state of a refused key is still in `slot`.
    pub(crate) fn update(
        &self,
        shard: &Shard,
        key: &StateKey<'_>,
        slot: Option<usize>,
        operation: &Operation,
        answer: &Answer,
    ) {
        let Verdict::Refused(Retry::At(retry_at)) = answer.verdict else {
            return self.clear(key.fingerprint);
        };
        if let Some(class) = slot.and_then(|slot| shard.class_at(slot))
            && answer.remaining == 0
            && is_lasting(key.limit, operation)
        {
            let low = key.fingerprint as u64;
            let high = (key.fingerprint >> 64) as u64;
            let class = u64::from(class.get());
            self.write([low, high, class, retry_at.us(), answer.reset_at.us(), answer.limit]);
        }
    }

    /// Clears the refusal if it is this key's, because the key changes. The caller holds the shard's lock.
    #[inline]
    pub(crate) fn clear(&self, fingerprint: u128) {
        if self.words[0].load(Ordering::Relaxed) == fingerprint as u64 {
            self.write([0; WORDS]);
        }
    }

    fn write(&self, words: [u64; WORDS]) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}

/// Whether a refusal with nothing remaining stays the same until its retry instant: one unit of these limits stays
/// unavailable until then. Not so for a penalty, which may count refused attempts.
const fn is_lasting(limit: &Limit, operation: &Operation) -> bool {
    matches!(limit, Limit::FixedWindow(_) | Limit::Bucket(_) | Limit::Meter(_))
        && matches!(operation, Operation::Charge { cost: 1, .. } | Operation::Peek { cost: 1 })
}
