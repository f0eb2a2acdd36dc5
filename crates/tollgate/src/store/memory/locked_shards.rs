//! The shards of one Plan, locked together.

use smallvec::SmallVec;
use tollgate_core::{Change, Item, State, Time, Write};

use super::classes::Classes;
use super::locked_shard::Opened;
use super::shard::{Owner, Shard, View};
use super::{MemoryStore, OVERFLOW, shard_of};

/// As many shards as most Plans need.
pub(super) const INLINE: usize = 4;

/// Shards in ascending order, each locked.
pub(super) struct Locked<'s, C> {
    store: &'s MemoryStore<C>,
    held: SmallVec<[Held<'s>; INLINE]>,
    /// Whether it is somebody's turn to look for dead state.
    sweep: bool,
}

struct Held<'s> {
    number: usize,
    shard: Opened<'s>,
}

/// Where the state of one item is, or would be.
#[derive(Clone, Copy)]
pub(super) struct Place {
    held: usize,
    fingerprint: u128,
    /// The slot, unless it has moved since.
    slot: Option<usize>,
    /// Whether it is the account that a rule's overflowing subjects share.
    shared: bool,
}

impl<'s, C> Locked<'s, C> {
    /// Locks the shards of all these keys, always in the same order, so that no two Plans wait for each other.
    pub(super) fn new(store: &'s MemoryStore<C>, items: &[Item<'_>]) -> Locked<'s, C> {
        let mut numbers = SmallVec::<[usize; INLINE]>::new();
        for item in items {
            numbers.push(shard_of(item.key.fingerprint()));
        }
        numbers.sort_unstable();
        numbers.dedup();
        let mut held = SmallVec::new();
        for &number in &numbers {
            held.push(Held { number, shard: store.lock(number) });
        }
        Locked { store, held, sweep: false }
    }

    /// Finds the account of an item. A new subject for which there is no room gets the one that such subjects share.
    pub(super) fn place(&mut self, item: &Item<'_>, now: Time) -> Place {
        let owner = Owner::of(item);
        let place = self.find(shard_of(owner.fingerprint), owner.fingerprint);
        let shard = &mut self.held[place.held].shard;
        if place.slot.is_some() || !self.store.overflows(&owner, &item.operation, shard, now) {
            return place;
        }
        if self.held.last().is_none_or(|last| last.number != OVERFLOW) {
            let shard = self.store.lock(OVERFLOW);
            self.held.push(Held { number: OVERFLOW, shard });
        }
        Place { shared: true, ..self.find(OVERFLOW, owner.shared().fingerprint) }
    }

    pub(super) fn classes(&self) -> &'s Classes {
        &self.store.classes
    }

    /// Which of the locked shards holds this key.
    #[inline]
    pub(super) fn held_of(&self, fingerprint: u128) -> usize {
        self.held_at(shard_of(fingerprint))
    }

    #[inline]
    fn held_at(&self, number: usize) -> usize {
        let held = self.held.iter().position(|held| held.number == number);
        held.expect("the shards of all keys are locked")
    }

    #[inline]
    pub(super) fn shard(&self, held: usize) -> &Shard {
        &self.held[held].shard
    }

    /// The same to write something under this key, of which nothing must be remembered then.
    #[inline]
    pub(super) fn change(&mut self, held: usize, fingerprint: u128) -> &mut Shard {
        let Held { number, shard } = &mut self.held[held];
        self.store.shards[*number].refusal.forget(fingerprint);
        shard
    }

    fn find(&self, number: usize, fingerprint: u128) -> Place {
        let held = self.held_at(number);
        Place { held, fingerprint, slot: self.held[held].shard.find(fingerprint), shared: false }
    }

    /// The state there, packed state unpacked.
    pub(super) fn view(&self, place: &Place) -> View {
        let shard = &self.held[place.held].shard;
        let slot = place.slot.filter(|&slot| shard.is_at(slot, place.fingerprint));
        match slot.or_else(|| place.slot.and_then(|_| shard.find(place.fingerprint))) {
            Some(slot) => shard.view(&self.store.classes, slot),
            None => View::None,
        }
    }

    /// The state behind a view.
    pub(super) fn state<'v>(&'v self, place: &Place, view: &'v View) -> Option<&'v State> {
        match view {
            View::None => None,
            View::Packed(state) => Some(state),
            View::Heap(index) => self.held[place.held].shard.on_heap(*index),
        }
    }

    pub(super) fn write(&mut self, place: &Place, item: &Item<'_>, write: Write<Change>) {
        let own = Owner::of(item);
        let owner = if place.shared { own.shared() } else { own };
        let Held { number, shard } = &mut self.held[place.held];
        let more = shard.write(&self.store.classes, &owner, place.slot, write);
        if !place.shared {
            self.store.shards[*number].refusal.forget(place.fingerprint);
        }
        self.sweep |= self.store.count_written(&owner, place.shared, more);
    }

    /// Lets go of all shards, and looks for dead state if it is this Plan's turn to.
    pub(super) fn unlock(self, now: Time) {
        let Locked { store, held, sweep } = self;
        drop(held);
        if sweep {
            store.sweep_next(now);
        }
    }
}
