//! The keys of one shard and their state.
//!
//! Packed state is stored in the key's slot of the table, larger state on the shard's heap.

pub(crate) mod slot;
pub(crate) mod table;

use tollgate_core::stamped::{self, StampedStep};
use tollgate_core::{
    Answer, Change, Decline, Hold, HoldChange, HoldLookup, HoldWrite, Limit, Operation, Span, State, Step,
    Time, Write,
};

use super::books::holds::{HoldId, Holds};
use super::books::returns::ReturnBook;
use super::classes::{ClassId, ClassKey, Classes, Form};
use super::fast_path::admitted_charge::AdmittedCharge;
use super::fast_path::plan_charges::HeapCharge;
use super::heap::Heap;
use super::state_key::StateKey;
use super::sync::Ordering;
use slot::{PackedState, Slot, pack, unpack};
use table::Table;

/// Expired state is kept this much longer, so that a clock set back by less finds everything as it was.
pub(super) const EXPIRED_KEPT: Span = Span::from_secs(60);

/// The same for anonymous subjects, of whom an attacker has many. Clocks are seldom corrected by more.
const EXPIRED_KEPT_ANONYMOUS: Span = Span::from_secs(1);

/// The table comes first: see [`ShardLock`](super::locked_shard::ShardLock).
#[derive(Default)]
#[repr(C)]
pub(super) struct Shard {
    table: Table,
    heap: Heap,
    holds: Holds,
    /// Where the next search for expired state starts.
    cursor: usize,
    pub(super) returns: ReturnBook,
}

/// The state of a key as it is stored.
pub(super) enum StoredState {
    None,
    /// Unpacked from its slot.
    Packed(State),
    /// Its index on the heap.
    Heap(u32),
}

impl Shard {
    /// What its heap takes.
    pub(super) const fn heap_bytes(&self) -> usize {
        self.heap.bytes()
    }

    /// Returns the slot of this key.
    #[inline]
    pub(super) fn find(&self, fingerprint: u128) -> Option<usize> {
        self.table.find(fingerprint).ok()
    }

    /// Whether this key is still in this slot.
    pub(super) fn is_at(&self, slot: usize, fingerprint: u128) -> bool {
        self.table.slots().get(slot).is_some_and(|slot| slot.holds(fingerprint))
    }

    #[inline]
    pub(super) fn slot_mut(&mut self, slot: usize) -> &mut Slot {
        self.table.slot_mut(slot)
    }

    /// The class of the key in this slot.
    #[inline]
    pub(super) fn class_at(&self, slot: usize) -> Option<ClassId> {
        self.table.slot(slot).class()
    }

    /// Reads the state in this slot.
    pub(super) fn load(&self, classes: &Classes, slot: usize) -> StoredState {
        let slot = self.table.slot(slot);
        let Some(class) = slot.class() else { return StoredState::None };
        match classes.get(class).form() {
            Form::Packed(limit) => unpack(limit, slot.state()).map_or(StoredState::None, StoredState::Packed),
            Form::Heap => StoredState::Heap(slot.heap_index()),
        }
    }

    pub(super) fn state<'v>(&'v self, stored: &'v StoredState) -> Option<&'v State> {
        match stored {
            StoredState::None => None,
            StoredState::Packed(state) => Some(state),
            StoredState::Heap(index) => self.heap.state(*index),
        }
    }

    /// Computes a charge to the key in this slot by the short path of its limit; `None` if it is not admitted or the
    /// limit has no short path. Writes nothing.
    #[inline(always)]
    pub(super) fn charge<'l>(
        &self,
        classes: &Classes,
        key: &StateKey<'l>,
        slot: usize,
        now: Time,
        cost: u64,
    ) -> Option<AdmittedCharge<'l>> {
        let slot = self.table.slot(slot);
        match key.limit {
            Limit::SlidingWindow(limit) if (1..=limit.limit()).contains(&cost) => {
                match self.heap.state(heap_index(classes, key, slot)?)? {
                    State::SlidingWindow(state) => {
                        Some(AdmittedCharge::SlidingWindow(limit, limit.try_charge(state, now, cost)?))
                    }
                    _ => None,
                }
            }
            _ => key.charge_packed(classes, slot, now, cost).map(AdmittedCharge::Packed),
        }
    }

    /// Writes what [`charge`](Shard::charge) computed.
    #[inline(always)]
    pub(super) fn commit(&mut self, slot: usize, charge: &AdmittedCharge<'_>) {
        let slot = self.table.slot_mut(slot);
        match charge {
            AdmittedCharge::SlidingWindow(limit, newest) => {
                self.heap.add_to_newest(slot.heap_index(), newest, limit.dies_at(newest));
            }
            AdmittedCharge::Packed(charge) => slot.set_state(charge.new_state()),
        }
    }

    /// Decides a charge to heap state of the key in this slot; `None` if it is not admitted or the state is not on the
    /// heap. Writes nothing.
    pub(super) fn charge_heap(
        &self,
        classes: &Classes,
        key: &StateKey<'_>,
        slot: usize,
        now: Time,
        operation: &Operation,
    ) -> Option<HeapCharge> {
        let index = heap_index(classes, key, self.table.slot(slot))?;
        let hold = self.hold(key, operation);
        let Step { answer, write } = key.limit.decide_hold(self.heap.state(index), hold, now, operation);
        answer.is_admitted().then_some(HeapCharge { index, answer, write })
    }

    /// The record under the operation's token.
    #[inline]
    pub(super) fn hold(&self, key: &StateKey<'_>, operation: &Operation) -> HoldLookup<'_> {
        match key.limit.hold_token(operation) {
            Some(token) => self.holds.get((key.fingerprint, token)),
            None => HoldLookup::None,
        }
    }

    /// Writes what [`charge_heap`](Shard::charge_heap) decided.
    pub(super) fn commit_heap(&mut self, fingerprint: u128, charge: &mut HeapCharge, now: Time) {
        if let Some(write) = charge.write.take() {
            if let Some(change) = write.change.hold_change() {
                self.holds.apply(fingerprint, &change, now);
            }
            self.heap.commit(charge.index, write);
        }
    }

    /// Applies one operation to the key, whose slot is given if it has one. Writes the result if `is_written` agrees.
    /// Returns the answer and the change in the number of keys.
    pub(super) fn apply(
        &mut self,
        classes: &Classes,
        key: &StateKey<'_>,
        slot: Option<usize>,
        now: Time,
        operation: &Operation,
        is_written: impl Fn(&Answer) -> bool,
    ) -> (Answer, isize) {
        let stored = slot.map_or(StoredState::None, |slot| self.load(classes, slot));
        let hold = self.hold(key, operation);
        let Step { answer, write } = key.limit.decide_hold(self.state(&stored), hold, now, operation);
        let write = write.filter(|_| is_written(&answer));
        (answer, write.map_or(0, |write| self.write(classes, key, slot, write, now)))
    }

    /// Applies one operation of a recorded rule. Returns the step and the change in the number of keys.
    pub(super) fn apply_stamped(
        &mut self,
        classes: &Classes,
        key: &StateKey<'_>,
        slot: Option<usize>,
        node: u64,
        now: Time,
        operation: &Operation,
    ) -> (StampedStep, isize) {
        let stored = slot.map_or(StoredState::None, |slot| self.load(classes, slot));
        let hold = self.hold(key, operation);
        let mut step = stamped::decide(key.limit, node, self.state(&stored), hold, now, operation);
        let added = step.step.write.take().map_or(0, |write| self.write(classes, key, slot, write, now));
        (step, added)
    }

    /// Returns the answer to an operation on the key that the store declines.
    pub(super) fn decline(
        &self,
        classes: &Classes,
        key: &StateKey<'_>,
        slot: Option<usize>,
        now: Time,
        why: Decline,
    ) -> Answer {
        let stored = slot.map_or(StoredState::None, |slot| self.load(classes, slot));
        key.limit.decline(self.state(&stored), now, why)
    }

    /// Writes a change that was decided on the current state of this key. `slot` is its slot if nothing has moved since.
    /// Returns the change in the number of keys.
    pub(super) fn write(
        &mut self,
        classes: &Classes,
        key: &StateKey<'_>,
        slot: Option<usize>,
        write: Write<Change>,
        now: Time,
    ) -> isize {
        if let Some(change) = write.change.hold_change() {
            self.holds.apply(key.fingerprint, &change, now);
        }
        let before = self.table.len();
        let slot = slot.filter(|&slot| self.is_at(slot, key.fingerprint));
        let slot = slot.or_else(|| self.find(key.fingerprint));
        let Some(dies_at) = write.dies_at else {
            if let Some(slot) = slot {
                self.amend(classes, slot, write.change);
            }
            return 0;
        };
        match new_state(&write.change) {
            NewState::None => {
                if let Some(slot) = slot {
                    self.remove(classes, slot);
                }
            }
            NewState::Packed(packed) => self.write_packed(classes, key, slot, packed, dies_at),
            NewState::Heap => self.write_heap(classes, key, slot, write.change, dies_at),
        }
        self.table.len() as isize - before as isize
    }

    /// Changes the state in this slot in place. The key keeps its class: the limit that wrote the state last may have
    /// other numbers than the one that changes it now.
    fn amend(&mut self, classes: &Classes, slot: usize, change: Change) {
        match (self.load(classes, slot), new_state(&change)) {
            (StoredState::Packed(_), NewState::Packed(packed)) => {
                self.table.slot_mut(slot).set_state(packed);
            }
            (StoredState::Heap(index), _) => {
                self.heap.commit(index, Write { change, dies_at: None });
            }
            (StoredState::None | StoredState::Packed(_), _) => (),
        }
    }

    fn write_packed(
        &mut self,
        classes: &Classes,
        key: &StateKey<'_>,
        slot: Option<usize>,
        packed: PackedState,
        dies_at: Time,
    ) {
        debug_assert_eq!(slot::dies_at(key.limit, packed), dies_at, "{:?}", key.limit);
        if let Some(slot) = slot
            && self.class_at(slot).is_some_and(|class| key.wrote(classes, class))
        {
            self.table.slot_mut(slot).set_state(packed);
            return;
        }
        let class = self.class_for(classes, key, slot, Form::Packed(*key.limit));
        if class != ClassId::UNKNOWN {
            self.put(classes, key, slot, class, packed);
        } else if let Some(state) = unpack(key.limit, packed) {
            // Class ids are exhausted: the state goes to the heap.
            let index = match slot.map(|slot| self.load(classes, slot)) {
                Some(StoredState::Heap(index)) => {
                    self.heap.put_back(index, state, dies_at);
                    index
                }
                _ => self.heap.insert(state, dies_at),
            };
            self.put(classes, key, slot, class, [u64::from(index), 0]);
        }
    }

    fn write_heap(
        &mut self,
        classes: &Classes,
        key: &StateKey<'_>,
        slot: Option<usize>,
        change: Change,
        dies_at: Time,
    ) {
        let index = slot.and_then(|slot| match self.load(classes, slot) {
            StoredState::Heap(index) => Some(index),
            StoredState::None | StoredState::Packed(_) => None,
        });
        let mut state = index.and_then(|index| self.heap.take(index));
        State::commit(&mut state, change);
        match (state, slot) {
            (Some(state), _) => {
                let class = self.class_for(classes, key, slot, Form::Heap);
                let index = match index {
                    Some(index) => {
                        self.heap.put_back(index, state, dies_at);
                        index
                    }
                    None => self.heap.insert(state, dies_at),
                };
                self.put(classes, key, slot, class, [u64::from(index), 0]);
            }
            (None, Some(slot)) => self.remove(classes, slot),
            (None, None) => (),
        }
    }

    /// The class for a write, usually the one that the slot has already.
    fn class_for(&self, classes: &Classes, key: &StateKey<'_>, slot: Option<usize>, form: Form) -> ClassId {
        let (keyspace, anonymous) = (key.keyspace, key.is_anonymous());
        let current = slot.and_then(|slot| self.class_at(slot));
        let current = current.filter(|&class| classes.get(class).matches(keyspace, anonymous, &form));
        current.unwrap_or_else(|| classes.intern(&ClassKey { keyspace, anonymous, form }))
    }

    /// Writes class and state into the slot, or into a new one.
    fn put(
        &mut self,
        classes: &Classes,
        key: &StateKey<'_>,
        slot: Option<usize>,
        class: ClassId,
        state: PackedState,
    ) {
        let Some(slot) = slot else {
            count_anonymous(classes, class, 1);
            self.table.insert(Slot::new(key.fingerprint, class, state));
            return;
        };
        let slot = self.table.slot_mut(slot);
        if let Some(old) = slot.class().filter(|&old| old != class) {
            let was_on_heap = *classes.get(old).form() == Form::Heap;
            if was_on_heap && *classes.get(class).form() != Form::Heap {
                self.heap.remove(slot.heap_index());
            }
            count_anonymous(classes, old, -1);
            count_anonymous(classes, class, 1);
        }
        slot.set(class, state);
    }

    fn remove(&mut self, classes: &Classes, slot: usize) {
        let slot = self.table.remove(slot);
        if let Some(class) = slot.class() {
            count_anonymous(classes, class, -1);
            if *classes.get(class).form() == Form::Heap {
                self.heap.remove(slot.heap_index());
            }
        }
    }

    /// Inserts state from a snapshot for a key without state. Its class becomes known when a limit writes it again.
    pub(super) fn restore(&mut self, fingerprint: u128, state: State, dies_at: Time) {
        let index = self.heap.insert(state, dies_at);
        self.table.insert(Slot::new(fingerprint, ClassId::UNKNOWN, [u64::from(index), 0]));
    }

    /// Inserts the record of a lease or reservation from a snapshot.
    pub(super) fn restore_hold(&mut self, (fingerprint, token): HoldId, write: HoldWrite, now: Time) {
        self.holds.apply(fingerprint, &HoldChange { token, record: Some(write) }, now);
    }

    /// Every record of a lease or reservation, and when it expires, for a snapshot.
    pub(super) fn iter_holds(&self) -> impl Iterator<Item = (HoldId, Hold, Time)> + '_ {
        self.holds.iter()
    }

    /// Examines the next `slots` slots and removes state that expired [`EXPIRED_KEPT`] ago, or
    /// [`EXPIRED_KEPT_ANONYMOUS`]. Returns the number of removed keys.
    pub(super) fn sweep(&mut self, classes: &Classes, now: Time, slots: usize) -> usize {
        let before = self.table.len();
        let mut remaining = slots.min(self.table.slots().len());
        while remaining > 0 {
            let slot = self.advance();
            if self
                .dies_at(classes, slot)
                .is_some_and(|dies_at| dies_at.plus(self.kept(classes, slot)) <= now)
            {
                self.remove(classes, slot);
                // Another key may have moved into this slot: examine it next.
                self.cursor = slot;
            } else {
                remaining -= 1;
            }
        }
        self.holds.sweep(now.minus(EXPIRED_KEPT), slots);
        let swept = before - self.table.len();
        if swept > 0 {
            self.table.shrink();
        }
        swept
    }

    /// Examines the next `slots` slots and removes one expired key, preferably one that expired [`EXPIRED_KEPT`] ago.
    /// Returns whether it did. State that still counts is never removed, because that would give credit.
    pub(super) fn evict(&mut self, classes: &Classes, now: Time, slots: usize) -> bool {
        let mut just_expired = None;
        for _ in 0..slots.min(self.table.slots().len()) {
            let slot = self.advance();
            match self.dies_at(classes, slot) {
                Some(dies_at) if dies_at.plus(self.kept(classes, slot)) <= now => {
                    self.remove(classes, slot);
                    return true;
                }
                Some(dies_at) if dies_at <= now => just_expired = just_expired.or(Some(slot)),
                _ => (),
            }
        }
        if let Some(slot) = just_expired {
            self.remove(classes, slot);
        }
        just_expired.is_some()
    }

    fn advance(&mut self) -> usize {
        let slot = if self.cursor < self.table.slots().len() { self.cursor } else { 0 };
        self.cursor = slot + 1;
        slot
    }

    /// How much longer expired state is kept.
    fn kept(&self, classes: &Classes, slot: usize) -> Span {
        let class = self.table.slot(slot).class();
        let is_anonymous = class.is_some_and(|class| classes.get(class).anonymous.is_some());
        if is_anonymous { EXPIRED_KEPT_ANONYMOUS } else { EXPIRED_KEPT }
    }

    fn dies_at(&self, classes: &Classes, slot: usize) -> Option<Time> {
        let slot = self.table.slot(slot);
        match classes.get(slot.class()?).form() {
            Form::Packed(limit) => Some(slot::dies_at(limit, slot.state())),
            Form::Heap => self.heap.dies_at(slot.heap_index()),
        }
    }

    /// Every key, its state and when the state expires, for a snapshot.
    pub(super) fn iter<'s>(&'s self, classes: &'s Classes) -> impl Iterator<Item = (u128, State, Time)> + 's {
        let slots = self.table.slots().iter().enumerate().filter(|(_, slot)| !slot.is_empty());
        slots.filter_map(|(index, slot)| {
            let state = match self.load(classes, index) {
                StoredState::Packed(state) => state,
                StoredState::Heap(index) => self.heap.state(index)?.clone(),
                StoredState::None => return None,
            };
            Some((slot.fingerprint(), state, self.dies_at(classes, index)?))
        })
    }
}

/// The heap index of the state in this slot, if it was written under the same rule.
#[inline]
fn heap_index(classes: &Classes, key: &StateKey<'_>, slot: &Slot) -> Option<u32> {
    let class = classes.get(slot.class()?);
    class.matches(key.keyspace, key.is_anonymous(), &Form::Heap).then_some(slot.heap_index())
}

/// Where the state after a change is stored.
enum NewState {
    None,
    Packed(PackedState),
    Heap,
}

fn new_state(change: &Change) -> NewState {
    let state = match change {
        Change::Reset | Change::Penalty(None) => return NewState::None,
        Change::FixedWindow(state) => State::FixedWindow(*state),
        Change::Bucket(state) => State::Bucket(*state),
        Change::Meter(state) => State::Meter(*state),
        Change::Penalty(Some(state)) => State::Penalty(*state),
        Change::SlidingWindow(_)
        | Change::BucketRing(_)
        | Change::SlidingLog(_)
        | Change::Concurrency(_)
        | Change::Stamped(_)
        | Change::Quota(_) => return NewState::Heap,
    };
    pack(&state).map_or(NewState::Heap, NewState::Packed)
}

fn count_anonymous(classes: &Classes, class: ClassId, by: isize) {
    if let Some(anonymous) = &classes.get(class).anonymous {
        // Two's complement: adding the wrapped difference subtracts.
        anonymous.fetch_add(by as usize, Ordering::Relaxed);
    }
}
