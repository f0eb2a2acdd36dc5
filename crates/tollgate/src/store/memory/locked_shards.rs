//! All shards of one Plan, locked together.

use smallvec::SmallVec;
use tollgate_core::{Change, HoldLookup, Item, Operation, State, Time, Write};

use super::classes::Classes;
use super::locked_shard::LockedShard;
use super::shard::{Shard, StoredState};
use super::state_key::StateKey;
use super::{MemoryStore, OVERFLOW_SHARD, shard_of};

/// Plans of up to this many items allocate nothing here.
pub(super) const INLINE_ITEMS: usize = 4;

/// Locked shards in ascending order of their numbers.
pub(super) struct LockedShards<'s, C> {
    store: &'s MemoryStore<C>,
    shards: SmallVec<[NumberedShard<'s>; INLINE_ITEMS]>,
    /// Whether this Plan looks for expired state after it unlocks.
    sweep: bool,
}

struct NumberedShard<'s> {
    number: usize,
    shard: LockedShard<'s>,
}

/// Where the state of one item is stored, or would be.
#[derive(Clone, Copy)]
pub(super) struct ItemLocation {
    /// Index among the locked shards.
    shard: usize,
    fingerprint: u128,
    /// The slot at the time of the lookup. A later eviction or write may move it.
    slot: Option<usize>,
    /// Whether it is the rule's overflow subject.
    is_overflow: bool,
}

impl<'s, C> LockedShards<'s, C> {
    /// Locks the shards of all these keys in ascending order, so that two Plans never deadlock.
    pub(super) fn lock(store: &'s MemoryStore<C>, items: &[Item<'_>]) -> LockedShards<'s, C> {
        let mut numbers = SmallVec::<[usize; INLINE_ITEMS]>::new();
        for item in items {
            numbers.push(shard_of(item.key.fingerprint()));
        }
        numbers.sort_unstable();
        numbers.dedup();
        let mut shards = SmallVec::new();
        for &number in &numbers {
            shards.push(NumberedShard { number, shard: store.shards[number].lock() });
        }
        LockedShards { store, shards, sweep: false }
    }

    /// Finds the state of an item. A new subject for which there is no room gets the overflow subject's.
    pub(super) fn locate(&mut self, item: &Item<'_>, now: Time) -> ItemLocation {
        let key = StateKey::of(item);
        let location = self.find(shard_of(key.fingerprint), key.fingerprint);
        let shard = &mut self.shards[location.shard].shard;
        if location.slot.is_some() || !self.store.overflows(&key, &item.operation, shard, now) {
            return location;
        }
        if self.shards.last().is_none_or(|last| last.number != OVERFLOW_SHARD) {
            let shard = self.store.shards[OVERFLOW_SHARD].lock();
            self.shards.push(NumberedShard { number: OVERFLOW_SHARD, shard });
        }
        ItemLocation { is_overflow: true, ..self.find(OVERFLOW_SHARD, key.overflow().fingerprint) }
    }

    fn find(&self, number: usize, fingerprint: u128) -> ItemLocation {
        let shard = self.index_of(number);
        let slot = self.shards[shard].shard.find(fingerprint);
        ItemLocation { shard, fingerprint, slot, is_overflow: false }
    }

    /// The number of the store.
    pub(super) fn node(&self) -> u64 {
        self.store.node
    }

    pub(super) fn classes(&self) -> &'s Classes {
        &self.store.classes
    }

    /// The index among the locked shards of the one that holds this key.
    #[inline]
    pub(super) fn index_of_key(&self, fingerprint: u128) -> usize {
        self.index_of(shard_of(fingerprint))
    }

    #[inline]
    fn index_of(&self, number: usize) -> usize {
        let index = self.shards.iter().position(|shard| shard.number == number);
        index.expect("the shards of all keys are locked")
    }

    #[inline]
    pub(super) fn shard(&self, index: usize) -> &Shard {
        &self.shards[index].shard
    }

    /// The shard, to write the state of this key. Clears the key's last refusal.
    #[inline]
    pub(super) fn shard_to_write(&mut self, index: usize, fingerprint: u128) -> &mut Shard {
        let NumberedShard { number, shard } = &mut self.shards[index];
        self.store.shards[*number].last_refusal.clear(fingerprint);
        shard
    }

    /// Reads the state at this location, unpacked if it was packed.
    pub(super) fn load(&self, location: &ItemLocation) -> StoredState {
        let shard = &self.shards[location.shard].shard;
        let slot = location.slot.filter(|&slot| shard.is_at(slot, location.fingerprint));
        match slot.or_else(|| location.slot.and_then(|_| shard.find(location.fingerprint))) {
            Some(slot) => shard.load(&self.store.classes, slot),
            None => StoredState::None,
        }
    }

    pub(super) fn state<'v>(&'v self, location: &ItemLocation, stored: &'v StoredState) -> Option<&'v State> {
        self.shards[location.shard].shard.state(stored)
    }

    /// The record under the token of an item at this location.
    pub(super) fn hold(&self, location: &ItemLocation, item: &Item<'_>) -> HoldLookup<'_> {
        let key = StateKey { fingerprint: location.fingerprint, ..StateKey::of(item) };
        self.shards[location.shard].shard.hold(&key, &item.operation)
    }

    pub(super) fn write(
        &mut self,
        location: &ItemLocation,
        item: &Item<'_>,
        write: Write<Change>,
        now: Time,
    ) {
        let key = StateKey::of(item);
        let key = if location.is_overflow { key.overflow() } else { key };
        let NumberedShard { number, shard } = &mut self.shards[location.shard];
        let added = shard.write(&self.store.classes, &key, location.slot, write, now);
        if let Operation::Reset { receipt_life } = item.operation {
            shard.returns.remember_reset(key.fingerprint, now, receipt_life);
        }
        if !location.is_overflow {
            self.store.shards[*number].last_refusal.clear(location.fingerprint);
            self.sweep |= self.store.count_keys(&key, added);
        }
    }

    /// Unlocks all shards, then looks for expired state if it is this Plan's turn.
    pub(super) fn unlock(self, now: Time) {
        let LockedShards { store, shards, sweep } = self;
        drop(shards);
        if sweep {
            store.sweep_next(now);
        }
    }
}
