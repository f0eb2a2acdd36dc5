//! One shard behind its lock, with a hot slot next to the lock.
//!
//! Threads that contend for one key pass two cache lines around: that of the lock and that of the key's slot. A thread
//! that finds the shard locked therefore moves the slot of its key out of the table into the hot slot, on the line of
//! the lock. The thread that held the lock usually wanted the same key; if not, the move costs one copy. Every access
//! other than a charge writes the hot slot back first: [`LockedShard`] is the only way to the whole shard.
//!
//! Gain: without it, one key on two threads costs 1.6 times the CPU (docs/decisions/0004, row "hot slot").

use std::hint::spin_loop;
use std::ops::{Deref, DerefMut};

use tollgate_core::Time;

use super::classes::Classes;
use super::fast_path::admitted_charge::AdmittedCharge;
use super::fast_path::last_refusal::LastRefusal;
use super::shard::Shard;
use super::shard::slot::Slot;
use super::state_key::StateKey;
use super::sync::{Mutex, MutexGuard};

/// How often a thread that finds the shard locked tries again before it sleeps, and how many pauses of the processor
/// (15 to 50 ns each) it waits in between. A shard is locked for a few dozen nanoseconds: trying again at once takes the
/// cache line away from the holder, and sleeping costs microseconds. Plans of several keys do not wait like this, because
/// they hold other shards meanwhile.
///
/// Gain: without it, a sliding window on two threads costs 1.1 to 1.4 times the time (docs/decisions/0004, row "spin
/// wait").
const ATTEMPTS: u32 = 16;
const PAUSES: u32 = 32;

/// A shard, its lock and its last refusal, on separate cache lines from other shards.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct ShardLock {
    mutex: Mutex<Contents>,
    pub(super) last_refusal: LastRefusal,
}

/// The field order puts the lock, the hot slot and what a lookup reads on one cache line.
#[derive(Default)]
#[repr(C)]
struct Contents {
    /// Newer than the slot at `hot_slot_index` of the table; empty if no slot was moved here.
    hot_slot: Slot,
    shard: Shard,
    /// Where the hot slot belongs. Slots of the table do not move while the hot slot is in use.
    hot_slot_index: usize,
}

/// The whole shard, locked, with the hot slot written back.
pub(super) struct LockedShard<'s>(MutexGuard<'s, Contents>);

/// The shard, locked for one charge.
pub(super) struct LockedForCharge<'s> {
    contents: MutexGuard<'s, Contents>,
    /// Another thread held the lock, so the next thread may want the same key.
    contended: bool,
}

impl ShardLock {
    pub(super) fn lock(&self) -> LockedShard<'_> {
        LockedShard::new(self.mutex.lock())
    }

    /// Returns `None` if another thread holds the lock.
    pub(super) fn try_lock(&self) -> Option<LockedShard<'_>> {
        self.mutex.try_lock().map(LockedShard::new)
    }

    #[inline]
    pub(super) fn lock_for_charge(&self) -> LockedForCharge<'_> {
        match self.mutex.try_lock() {
            Some(contents) => LockedForCharge { contents, contended: false },
            None => LockedForCharge { contents: self.lock_contended(), contended: true },
        }
    }

    /// Waits a little between attempts, then sleeps in the mutex.
    #[cold]
    #[inline(never)]
    fn lock_contended(&self) -> MutexGuard<'_, Contents> {
        for _ in 0..ATTEMPTS {
            (0..PAUSES).for_each(|_| spin_loop());
            if let Some(contents) = self.mutex.try_lock() {
                return contents;
            }
        }
        self.mutex.lock()
    }
}

impl<'s> LockedForCharge<'s> {
    /// Charges the key if its state admits it by the short path; otherwise writes nothing and returns `None`.
    // Always inlined: the caller reads the charge at once, and it would be passed through memory.
    #[inline(always)]
    pub(super) fn charge<'l>(
        &mut self,
        classes: &Classes,
        key: &StateKey<'l>,
        now: Time,
        cost: u64,
    ) -> Option<AdmittedCharge<'l>> {
        let Contents { hot_slot, shard, .. } = &mut *self.contents;
        if hot_slot.holds(key.fingerprint) {
            let charge = key.charge_packed(classes, hot_slot, now, cost)?;
            hot_slot.set_state(charge.new_state());
            return Some(AdmittedCharge::Packed(charge));
        }
        let slot = shard.find(key.fingerprint)?;
        let charge = shard.charge(classes, key, slot, now, cost)?;
        shard.commit(slot, &charge);
        if self.contended && matches!(charge, AdmittedCharge::Packed(_)) {
            self.contents.move_to_hot_slot(slot);
        }
        Some(charge)
    }

    pub(super) fn into_whole(self) -> LockedShard<'s> {
        LockedShard::new(self.contents)
    }
}

impl Contents {
    #[cold]
    fn move_to_hot_slot(&mut self, slot: usize) {
        self.write_back_hot_slot();
        (self.hot_slot, self.hot_slot_index) = (*self.shard.slot_mut(slot), slot);
    }

    fn write_back_hot_slot(&mut self) {
        if !self.hot_slot.is_empty() {
            *self.shard.slot_mut(self.hot_slot_index) = self.hot_slot;
            self.hot_slot = Slot::EMPTY;
        }
    }
}

impl<'s> LockedShard<'s> {
    fn new(mut contents: MutexGuard<'s, Contents>) -> LockedShard<'s> {
        contents.write_back_hot_slot();
        LockedShard(contents)
    }
}

impl Deref for LockedShard<'_> {
    type Target = Shard;

    #[inline]
    fn deref(&self) -> &Shard {
        &self.0.shard
    }
}

impl DerefMut for LockedShard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.0.shard
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::algorithm::fixed_window::FixedWindow;
    use tollgate_core::{Limit, Operation, Span};

    use super::*;
    use crate::store::memory::shard::table::Table;

    const NOW: Time = Time::from_us(7_000_000);

    fn limit() -> Limit {
        Limit::FixedWindow(FixedWindow::new(100, Span::from_secs(60)).expect("in range"))
    }

    fn key(limit: &Limit, fingerprint: u128) -> StateKey<'_> {
        StateKey { fingerprint, keyspace: 0, ip_subjects_max: None, is_anonymous: false, limit, class: None }
    }

    /// What remains for this key, read through the whole shard.
    fn remaining(shard: &mut LockedShard<'_>, classes: &Classes, key: &StateKey<'_>) -> u64 {
        let slot = shard.find(key.fingerprint);
        shard.apply(classes, key, slot, NOW, &Operation::Peek { cost: 0 }, |_| true).0.remaining
    }

    #[test]
    fn charges_to_the_hot_slot_are_seen_through_the_whole_shard() {
        let (lock, classes, limit) = (ShardLock::default(), Classes::new(), limit());
        let keys = [1_u128, 2, 3 << 100].map(|fingerprint| key(&limit, fingerprint));
        for key in &keys {
            lock.lock().apply(&classes, key, None, NOW, &Operation::charge(1), |_| true);
        }
        let charge = |key: &StateKey<'_>, contended| {
            let mut shard = LockedForCharge { contents: lock.mutex.lock(), contended };
            assert!(shard.charge(&classes, key, NOW, 10).is_some());
            shard.contents.hot_slot.holds(key.fingerprint)
        };
        assert!(!charge(&keys[0], false), "no contention");
        assert!(charge(&keys[0], true));
        assert!(charge(&keys[0], false), "the slot stays hot");
        assert!(!charge(&keys[1], false), "another key is charged in the table");
        assert!(charge(&keys[2], true), "another contended key replaces it");
        assert!(charge(&keys[0], true));
        let remaining = keys.each_ref().map(|key| remaining(&mut lock.lock(), &classes, key));
        assert_eq!(remaining, [59, 89, 89]);
        assert!(lock.mutex.lock().hot_slot.is_empty());
    }

    #[test]
    fn lock_hot_slot_and_lookup_fields_share_one_cache_line() {
        let lock = ShardLock::default();
        let contents = lock.mutex.lock();
        let offset = |field: usize| field - std::ptr::from_ref(&lock).addr();
        assert!(offset(std::ptr::from_ref(&contents.hot_slot).addr()) > 0, "the lock comes first");
        let end = offset(std::ptr::from_ref(&contents.shard).addr()) + Table::LOOKUP_BYTES;
        assert!(end <= align_of::<ShardLock>(), "{end}");
    }
}
