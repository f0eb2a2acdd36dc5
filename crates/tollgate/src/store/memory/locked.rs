//! The shards of one Plan, locked together.

use smallvec::SmallVec;
use tollgate_core::{Answer, Change, Item, Operation, State, Time, Write};

use super::packed::Charged;
use super::shard::{Owner, Shard, View};
use super::sync::MutexGuard;
use super::{MemoryStore, OVERFLOW, shard_of};

/// As many shards as most Plans need.
const INLINE: usize = 4;

/// Shards in ascending order, each locked.
pub(super) struct Locked<'s, C> {
    store: &'s MemoryStore<C>,
    held: SmallVec<[Held<'s>; INLINE]>,
    /// Whether it is somebody's turn to look for dead state.
    sweep: bool,
}

struct Held<'s> {
    number: usize,
    shard: MutexGuard<'s, Shard>,
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

/// One for each item of a check.
pub(super) type Charges<'l> = SmallVec<[Charge<'l>; INLINE]>;

/// An admitted charge, on its way to be written.
pub(super) struct Charge<'l> {
    held: usize,
    found: Found<'l>,
}

enum Found<'l> {
    Packed { at: usize, charged: Charged<'l>, cost: u64 },
    OnHeap { index: u32, answer: Answer, write: Option<Write<Change>> },
}

impl Charge<'_> {
    /// What it is told, which can wait until the locks are gone.
    pub(super) fn answer(&self) -> Answer {
        match &self.found {
            Found::Packed { charged, cost, .. } => charged.answer(*cost),
            Found::OnHeap { answer, .. } => *answer,
        }
    }
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

    /// Charges all items of a check if each of their keys has state that admits, as nearly every check finds it. If not,
    /// nothing is written.
    pub(super) fn charge_all<'i>(
        &mut self,
        items: &'i [Item<'_>],
        now: Time,
        charges: &mut Charges<'i>,
    ) -> Option<()> {
        for item in items {
            let Operation::Charge { cost, .. } = item.operation else { return None };
            let owner = Owner::of(item);
            let Place { held, slot, .. } = self.find(shard_of(owner.fingerprint), owner.fingerprint);
            let (at, shard) = (slot?, &self.held[held].shard);
            let classes = &self.store.classes;
            let found = match shard.charge(classes, &owner, at, now, cost) {
                Some(charged) => Found::Packed { at, charged, cost },
                None => {
                    let (index, step) = shard.charge_on_heap(classes, &owner, at, now, &item.operation)?;
                    Found::OnHeap { index, answer: step.answer, write: step.write }
                }
            };
            charges.push(Charge { held, found });
        }
        for (charge, item) in charges.iter_mut().zip(items) {
            let Held { number, shard } = &mut self.held[charge.held];
            match &mut charge.found {
                Found::Packed { at, charged, .. } => shard.commit(*at, charged),
                Found::OnHeap { index, write, .. } => {
                    if let Some(write) = write.take() {
                        shard.commit_on_heap(*index, write);
                    }
                }
            }
            self.store.shards[*number].refusal.forget(item.key.fingerprint());
        }
        Some(())
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

    fn find(&self, number: usize, fingerprint: u128) -> Place {
        let held = self.held.iter().position(|held| held.number == number);
        let held = held.expect("the shards of all keys are locked");
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
