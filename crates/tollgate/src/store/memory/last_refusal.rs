//! The last refusal of each shard, told again without a lock.
//!
//! Somebody who is refused and asks again at once is the most frequent caller of a busy limiter. Until the instant that
//! the refusal named, the answer to the same question stays the same to the last digit, unless something is written under
//! the key; so it is remembered beside the shard's lock and read without taking it.

use std::sync::atomic::fence;

use tollgate_core::{Answer, Limit, Mark, Operation, Retry, Time, Verdict};

use super::classes::{ClassId, Classes};
use super::shard::{Owner, Shard};
use super::sync::{AtomicU64, Ordering};

/// One refusal. Written only by whoever holds the shard's lock, read by anybody: the version is odd while it changes, and
/// who sees it change reads nothing.
#[derive(Default)]
pub(super) struct Refusal {
    version: AtomicU64,
    /// The key, the class of its state, the retry instant, the reset instant, the limit.
    words: [AtomicU64; WORDS],
}

const WORDS: usize = 6;

impl Refusal {
    /// The answer to this question, if it is the one that was refused and still is.
    #[inline]
    pub(super) fn recall(
        &self,
        classes: &Classes,
        owner: &Owner<'_>,
        operation: &Operation,
        now: Time,
    ) -> Option<Answer> {
        // As a rule it is another key.
        let same = self.words[0].load(Ordering::Relaxed) == owner.fingerprint as u64;
        if same { self.recall_same(classes, owner, operation, now) } else { None }
    }

    #[inline(never)]
    fn recall_same(
        &self,
        classes: &Classes,
        owner: &Owner<'_>,
        operation: &Operation,
        now: Time,
    ) -> Option<Answer> {
        let version = self.version.load(Ordering::Acquire);
        if !is_lasting(owner.limit, operation) {
            return None;
        }
        let [low, high, class, retry_at, reset_at, limit] =
            std::array::from_fn(|word| self.words[word].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let torn = version % 2 == 1 || self.version.load(Ordering::Relaxed) != version;
        let same = u128::from(high) << 64 | u128::from(low) == owner.fingerprint && now.us() < retry_at;
        let class = ClassId::new(class as u32).filter(|_| same && !torn)?;
        owner.wrote(classes, class).then(|| Answer {
            verdict: Verdict::Refused(Retry::At(Time::from_us(retry_at))),
            limit,
            remaining: 0,
            reset_at: Time::from_us(reset_at),
            mark: Mark::None,
        })
    }

    /// Remembers the answer to this question if it is a refusal that will stay as it is, and forgets what was remembered
    /// of the key if it has changed. The caller holds the shard's lock, and a refused key is still in slot `at`.
    pub(super) fn note(
        &self,
        shard: &Shard,
        owner: &Owner<'_>,
        at: Option<usize>,
        operation: &Operation,
        answer: &Answer,
    ) {
        let Verdict::Refused(Retry::At(retry_at)) = answer.verdict else {
            return self.forget(owner.fingerprint);
        };
        if let Some(class) = at.and_then(|at| shard.class_at(at))
            && answer.remaining == 0
            && is_lasting(owner.limit, operation)
        {
            let low = owner.fingerprint as u64;
            let high = (owner.fingerprint >> 64) as u64;
            let numbers = [retry_at.us(), answer.reset_at.us(), answer.limit];
            let [retry_at, reset_at, limit] = numbers;
            self.write([low, high, u64::from(class.get()), retry_at, reset_at, limit]);
        }
    }

    /// Forgets what was remembered of this key, because it changes. The caller holds the shard's lock.
    #[inline]
    pub(super) fn forget(&self, fingerprint: u128) {
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

/// Whether a refusal of this stays the same until the instant it names. Asking for one unit of these finds nothing left
/// until then; a penalty may count being asked.
const fn is_lasting(limit: &Limit, operation: &Operation) -> bool {
    matches!(limit, Limit::FixedWindow(_) | Limit::Bucket(_) | Limit::Meter(_))
        && matches!(operation, Operation::Charge { cost: 1, .. } | Operation::Peek { cost: 1 })
}
