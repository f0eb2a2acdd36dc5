//! The shards of one Plan, locked together.

use smallvec::SmallVec;
use tollgate_core::{Answer, Change, Item, Operation, State, Subject, Time, Write, writes_alone};

use super::shard::{Owner, Shard, View};
use super::sync::{MutexGuard, Ordering};
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
    pub(super) fingerprint: u128,
    /// The slot, unless it has moved since.
    slot: Option<usize>,
    /// Whether it is the account that a rule's overflowing subjects share.
    pub(super) shared: bool,
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
        let place = self.find(shard_of(item.key.fingerprint()), item.key.fingerprint());
        if place.slot.is_some() || !self.overflows(item, &place, now) {
            return place;
        }
        if self.held.last().is_none_or(|last| last.number != OVERFLOW) {
            let shard = self.store.lock(OVERFLOW);
            self.held.push(Held { number: OVERFLOW, shard });
        }
        self.store.overflowed.fetch_add(1, Ordering::Relaxed);
        let fingerprint = item.key.scope().key(Subject::OVERFLOW).fingerprint();
        Place { shared: true, ..self.find(OVERFLOW, fingerprint) }
    }

    fn find(&self, number: usize, fingerprint: u128) -> Place {
        let held = self.held.iter().position(|held| held.number == number);
        let held = held.expect("the shards of all keys are locked");
        Place { held, fingerprint, slot: self.held[held].shard.find(fingerprint), shared: false }
    }

    fn overflows(&mut self, item: &Item<'_>, place: &Place, now: Time) -> bool {
        match item.operation {
            Operation::Charge { .. }
            | Operation::Peek { .. }
            | Operation::Reserve { .. }
            | Operation::Report { .. } => {
                let store = self.store;
                let of_rule = item.strangers_max.is_none_or(|strangers_max| {
                    store.classes.strangers(item.key.scope().fingerprint()) < strangers_max as usize
                });
                !(of_rule && store.has_room(&mut self.held[place.held].shard, now))
            }
            // Tokens are unique: one that is unknown here may have been booked on the shared account.
            Operation::Renew { .. }
            | Operation::Release { .. }
            | Operation::Settle { .. }
            | Operation::Cancel { .. } => self.store.overflowed.load(Ordering::Relaxed) > 0,
            // A refund names no holder: on the shared account it could take what others were charged.
            Operation::Refund { .. } | Operation::Reset => false,
        }
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

    pub(super) fn write(&mut self, place: &Place, owner: &Owner<'_>, write: Write<Change>) {
        let shard = &mut self.held[place.held].shard;
        let more = shard.write(&self.store.classes, owner, place.slot, write);
        if !place.shared {
            self.store.shards[self.held[place.held].number].refusal.forget(place.fingerprint);
        }
        if !place.shared {
            self.store.count(more);
        }
        self.sweep |= more > 0 && MemoryStore::<C>::is_sweepers_turn(place.fingerprint);
    }

    /// Carries out the only item of a Plan.
    pub(super) fn step(&mut self, place: &Place, item: &Item<'_>, now: Time) -> Answer {
        let owner = Owner::at(item, place);
        let Held { number, shard } = &mut self.held[place.held];
        let keeps = |answer: &Answer| writes_alone(item, answer);
        let (answer, more) = shard.step(&self.store.classes, &owner, place.slot, now, &item.operation, keeps);
        if !place.shared {
            self.store.shards[*number].refusal.note(shard, &owner, place.slot, &item.operation, &answer);
            self.store.count(more);
        }
        self.sweep |= more > 0 && MemoryStore::<C>::is_sweepers_turn(place.fingerprint);
        answer
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

impl<'i> Owner<'i> {
    /// The owner of an item's own account.
    pub(super) fn of(item: &'i Item<'_>) -> Owner<'i> {
        Owner {
            fingerprint: item.key.fingerprint(),
            scope: item.key.scope().fingerprint(),
            stranger: item.strangers_max.is_some(),
            limit: &item.limit,
            class: None,
        }
    }

    /// The owner of the account where an item found its place.
    pub(super) fn at(item: &'i Item<'_>, place: &Place) -> Owner<'i> {
        let own = Owner::of(item);
        Owner { fingerprint: place.fingerprint, stranger: own.stranger && !place.shared, ..own }
    }
}
