//! The bound on the number of keys, and how expired state makes room.
//!
//! At the cap, expired state is removed first. State that still counts never is, because that would give credit. A
//! subject for which there is no room is counted under its rule's overflow subject, so that a flood of made-up subjects
//! shares one limit.

use tollgate_core::{Mark, Operation, Time};

use super::locked_shard::LockedShard;
use super::shard::Shard;
use super::state_key::StateKey;
use super::sync::{AtomicU64, AtomicUsize, Ordering};
use super::{MemoryStore, OVERFLOW_SHARD, SHARDS};
use crate::clock::Clock;

/// At the cap, this many slots of the key's shard and of this many other shards are examined for room. Small, because
/// every new subject pays for it.
const EVICTION_SLOTS: usize = 16;
const EVICTION_SHARDS: usize = 4;
/// One insert in this many examines this many slots of the next shard for expired state.
const SWEEP_EVERY: usize = 8;
const SWEEP_SLOTS: usize = 64;
/// The default cap: as many keys as fit into about half a gigabyte.
const KEYS_MAX: usize = 10_000_000;

/// The default bound on the bytes of large states, for each key of the cap, and at least in total.
const STATE_BYTES_PER_KEY: usize = 256;
const STATE_BYTES_MIN: usize = 1 << 30;

/// How full a store is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Keys that have state, including expired state that is not removed yet.
    pub keys: usize,
    /// The cap on keys.
    pub keys_max: usize,
    /// How many operations were counted under an overflow subject since the store was created.
    pub overflowed: u64,
}

pub(super) struct Capacity {
    keys: AtomicUsize,
    keys_max: usize,
    /// Bytes of large states in one shard. Keys are spread evenly, so that no shard needs to know the others.
    shard_bytes_max: usize,
    /// The shard to search next for expired state.
    sweep_next: AtomicUsize,
    overflowed: AtomicU64,
}

impl Capacity {
    pub(super) const fn new() -> Capacity {
        Capacity {
            keys: AtomicUsize::new(0),
            keys_max: KEYS_MAX,
            shard_bytes_max: default_state_bytes(KEYS_MAX) / SHARDS,
            sweep_next: AtomicUsize::new(0),
            overflowed: AtomicU64::new(0),
        }
    }
}

const fn default_state_bytes(keys_max: usize) -> usize {
    let bytes = keys_max.saturating_mul(STATE_BYTES_PER_KEY);
    if bytes > STATE_BYTES_MIN { bytes } else { STATE_BYTES_MIN }
}

impl<C: Clock> MemoryStore<C> {
    /// Sets the cap on keys. The default is ten million.
    ///
    /// A key takes about 48 bytes under a window, bucket, meter or penalty, and 150 to 250 under the others. To these add 8
    /// bytes for each part of a sliding window beyond six, 16 to 32 for each request in a log, and 150 to 250 for each lease
    /// (until its end) or reservation (until an hour after its end). Threads that insert at the same moment may exceed the cap by one key each.
    #[must_use]
    pub fn keys_max(self, keys_max: usize) -> MemoryStore<C> {
        let shard_bytes_max = default_state_bytes(keys_max) / SHARDS;
        MemoryStore { capacity: Capacity { keys_max, shard_bytes_max, ..self.capacity }, ..self }
    }

    /// Sets the bound on the bytes of states that do not fit into a slot, such as logs. Call it after
    /// [`keys_max`](MemoryStore::keys_max), which sets it to 256 bytes per key and at least 1 GiB.
    ///
    /// Beyond it, a subject without state is counted under its rule's overflow subject. The state of a subject that has some
    /// may still grow up to its limit.
    #[must_use]
    pub fn state_bytes_max(self, bytes: usize) -> MemoryStore<C> {
        MemoryStore { capacity: Capacity { shard_bytes_max: bytes / SHARDS, ..self.capacity }, ..self }
    }

    /// Returns how full the store is.
    pub fn usage(&self) -> Usage {
        Usage {
            keys: self.len(),
            keys_max: self.capacity.keys_max,
            overflowed: self.capacity.overflowed.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of keys that have state, including expired state that is not removed yet.
    pub fn len(&self) -> usize {
        self.capacity.keys.load(Ordering::Relaxed)
    }

    /// Returns whether no key has state.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all state that expired a minute ago, shard by shard, and returns the number of removed keys.
    ///
    /// Checks do a little of this as they go. Call it from a timer to free the memory of an idle store.
    pub fn sweep(&self) -> usize {
        let now = self.clock.now();
        (0..=OVERFLOW_SHARD)
            .map(|number| self.sweep_shard(number, self.shards[number].lock(), now, usize::MAX))
            .sum()
    }
}

impl<C> MemoryStore<C> {
    /// Whether a key without state is counted under the overflow subject.
    pub(super) fn overflows(
        &self,
        key: &StateKey<'_>,
        operation: &Operation,
        shard: &mut Shard,
        now: Time,
    ) -> bool {
        let overflows = match operation {
            Operation::Charge { .. }
            | Operation::Peek { .. }
            | Operation::Usage
            | Operation::Record { .. }
            | Operation::RecordIn { .. }
            | Operation::LeaveAtMost { .. }
            | Operation::Reserve { .. }
            | Operation::Restore(_)
            | Operation::Report { .. } => {
                let rule_has_room = key.ip_subjects_max.is_none_or(|ip_subjects_max| {
                    self.classes.anonymous(key.keyspace) < ip_subjects_max as usize
                });
                !(rule_has_room && self.has_room(shard, now))
            }
            // Tokens are unique: one that is unknown here may have been booked under the overflow subject.
            Operation::Renew { .. }
            | Operation::Release { .. }
            | Operation::Extend { .. }
            | Operation::Refund { mark: Mark::Held { .. }, .. }
            | Operation::Settle { .. }
            | Operation::Cancel { .. } => self.capacity.overflowed.load(Ordering::Relaxed) > 0,
            // These name no holder: under the overflow subject they could give back what others were charged.
            Operation::Refund { .. } | Operation::Credit { .. } | Operation::Reset { .. } => false,
            Operation::Extra(_) | Operation::Adjust(_) => false,
        };
        self.capacity.overflowed.fetch_add(u64::from(overflows), Ordering::Relaxed);
        overflows
    }

    /// Whether this shard may take one more key. At the cap, evicts an expired key from this shard or from one that is not
    /// locked.
    pub(super) fn has_room(&self, shard: &mut Shard, now: Time) -> bool {
        let has_bytes = shard.heap_bytes() < self.capacity.shard_bytes_max;
        if has_bytes && self.capacity.keys.load(Ordering::Relaxed) < self.capacity.keys_max {
            return true;
        }
        let evicted = shard.evict(&self.classes, now, EVICTION_SLOTS)
            || has_bytes
                && (0..EVICTION_SHARDS).any(|_| {
                    let number = self.capacity.sweep_next.fetch_add(1, Ordering::Relaxed) % SHARDS;
                    let shard = self.shards[number].try_lock();
                    shard.is_some_and(|mut shard| shard.evict(&self.classes, now, EVICTION_SLOTS))
                });
        self.add_keys(-isize::from(evicted));
        evicted
    }

    /// Counts the keys that a write added or removed. Returns whether the caller must look for expired state: one insert in
    /// [`SWEEP_EVERY`], chosen by hash.
    pub(super) fn count_keys(&self, key: &StateKey<'_>, added: isize) -> bool {
        self.add_keys(added);
        added > 0 && (key.fingerprint as usize).is_multiple_of(SWEEP_EVERY)
    }

    pub(super) fn add_keys(&self, added: isize) {
        if added != 0 {
            // Two's complement: adding the wrapped difference subtracts.
            self.capacity.keys.fetch_add(added as usize, Ordering::Relaxed);
        }
    }

    /// Removes expired state from the next shard, unless it is locked.
    pub(super) fn sweep_next(&self, now: Time) {
        let number = self.capacity.sweep_next.fetch_add(1, Ordering::Relaxed) % (SHARDS + 1);
        if let Some(shard) = self.shards[number].try_lock() {
            self.sweep_shard(number, shard, now, SWEEP_SLOTS);
        }
    }

    fn sweep_shard(&self, number: usize, mut shard: LockedShard<'_>, now: Time, slots: usize) -> usize {
        let swept = shard.sweep(&self.classes, now, slots);
        if number != OVERFLOW_SHARD {
            self.add_keys(-(swept as isize));
        }
        swept
    }
}
