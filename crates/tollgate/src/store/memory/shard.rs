//! A part of all keys, behind one lock.

use tollgate_core::{Answer, Change, Item, Limit, Operation, Span, State, Step, Subject, Time, Write};

use super::admitted_charge::{self, Charged, InSlot};
use super::classes::{ClassId, ClassKey, Classes, Form};
use super::heap::Heap;
use super::slot::{self, Slot, Values, pack, unpack};
use super::sync::Ordering;
use super::table::Table;

/// Dead state is kept this much longer: a clock set back by less than this finds everything as it was.
const MARGIN: Span = Span::from_secs(60);

/// Keys and their state. In this order, what finding a key needs comes first.
#[derive(Default)]
#[repr(C)]
pub(super) struct Shard {
    table: Table,
    heap: Heap,
    /// Where the next search for dead state starts.
    cursor: usize,
}

/// A key, and what its state is written under.
#[derive(Clone, Copy)]
pub(super) struct Owner<'i> {
    pub(super) fingerprint: u128,
    /// The fingerprint of the rule's scope.
    pub(super) scope: u128,
    /// Set if it counts as one of the rule's anonymous: how many of them have an account of their own.
    pub(super) ip_subjects_max: Option<u32>,
    pub(super) limit: &'i Limit,
    /// The class of its state if the caller knows it.
    pub(super) class: Option<ClassId>,
}

impl<'i> Owner<'i> {
    /// The owner of an item's own account.
    pub(super) fn of(item: &'i Item<'_>) -> Owner<'i> {
        Owner {
            fingerprint: item.key.fingerprint(),
            scope: item.key.scope().fingerprint(),
            ip_subjects_max: item.ip_subjects_max,
            limit: &item.limit,
            class: None,
        }
    }

    /// The owner of the account that those of its rule share for whom there is no room.
    pub(super) fn shared(self) -> Owner<'i> {
        // A key's fingerprint is that of its scope and its subject, as `Key` says.
        let fingerprint = self.scope ^ Subject::OVERFLOW.to_u128();
        Owner { fingerprint, ip_subjects_max: None, ..self }
    }

    const fn is_anonymous(&self) -> bool {
        self.ip_subjects_max.is_some()
    }

    /// Whether state of this class lies in its slot, written by the same limit under the same rule.
    #[inline]
    pub(super) fn wrote(&self, classes: &Classes, class: ClassId) -> bool {
        Some(class) == self.class || classes.get(class).is_packed(self.scope, self.is_anonymous(), self.limit)
    }

    /// What a charge comes to if its state lies in the slot and admits it. Writes nothing yet.
    #[inline(always)]
    pub(super) fn charge(&self, classes: &Classes, slot: &Slot, now: Time, cost: u64) -> Option<InSlot<'i>> {
        slot.class().filter(|&class| self.wrote(classes, class))?;
        admitted_charge::charge(self.limit, slot.values(), now, cost)
    }
}

/// The state of a key as it is found.
pub(super) enum View {
    None,
    Packed(State),
    /// Its place on the heap.
    Heap(u32),
}

impl Shard {
    #[inline]
    pub(super) fn find(&self, fingerprint: u128) -> Option<usize> {
        self.table.find(fingerprint).ok()
    }

    /// Whether this key is in this slot.
    pub(super) fn is_at(&self, at: usize, fingerprint: u128) -> bool {
        self.table.slots().get(at).is_some_and(|slot| slot.holds(fingerprint))
    }

    /// Takes in state from elsewhere, for a key that has none. Which limit wrote it will be known when one does again.
    pub(super) fn restore(&mut self, fingerprint: u128, state: State, dies_at: Time) {
        let index = self.heap.insert(state, dies_at);
        self.table.insert(Slot::new(fingerprint, ClassId::ANY, [u64::from(index), 0]));
    }

    /// The state in this slot.
    pub(super) fn view(&self, classes: &Classes, at: usize) -> View {
        let slot = self.table.slot(at);
        let Some(class) = slot.class() else { return View::None };
        match classes.get(class).form() {
            Form::Packed(limit) => unpack(limit, slot.values()).map_or(View::None, View::Packed),
            Form::Heap => View::Heap(slot.values()[0] as u32),
        }
    }

    /// State that lies on the heap.
    pub(super) fn on_heap(&self, index: u32) -> Option<&State> {
        self.heap.state(index)
    }

    /// What the charge of the key in slot `at` comes to, if its limit has a short way and admits it, as nearly every check
    /// finds it. Writes nothing yet.
    #[inline(always)]
    pub(super) fn charge<'l>(
        &self,
        classes: &Classes,
        owner: &Owner<'l>,
        at: usize,
        now: Time,
        cost: u64,
    ) -> Option<Charged<'l>> {
        let slot = self.table.slot(at);
        match owner.limit {
            Limit::SlidingWindow(limit) if (1..=limit.limit()).contains(&cost) => {
                match self.heap.state(self.on_heap_of(classes, owner, slot)?)? {
                    State::SlidingWindow(state) => {
                        Some(Charged::SlidingWindow(limit, limit.charged(state, now, cost)?))
                    }
                    _ => None,
                }
            }
            _ => owner.charge(classes, slot, now, cost).map(Charged::InSlot),
        }
    }

    /// Writes what [`charge`](Shard::charge) found.
    #[inline(always)]
    pub(super) fn commit(&mut self, at: usize, charged: &Charged<'_>) {
        let slot = self.table.slot_mut(at);
        match charged {
            Charged::SlidingWindow(limit, left) => {
                self.heap.add(slot.values()[0] as u32, left, limit.over_at(left));
            }
            Charged::InSlot(charged) => slot.set_values(charged.values()),
        }
    }

    #[inline]
    pub(super) fn slot_mut(&mut self, at: usize) -> &mut Slot {
        self.table.slot_mut(at)
    }

    /// What the charge of the key in slot `at` comes to, if its state lies on the heap and admits it, and where it lies
    /// there. Writes nothing yet.
    pub(super) fn charge_on_heap(
        &self,
        classes: &Classes,
        owner: &Owner<'_>,
        at: usize,
        now: Time,
        operation: &Operation,
    ) -> Option<(u32, Step<Change>)> {
        let index = self.on_heap_of(classes, owner, self.table.slot(at))?;
        let step = owner.limit.decide(self.heap.state(index), now, operation);
        step.answer.is_admitted().then_some((index, step))
    }

    /// Where on the heap the state of this slot lies, if it was written under the same rule.
    #[inline]
    fn on_heap_of(&self, classes: &Classes, owner: &Owner<'_>, slot: &Slot) -> Option<u32> {
        let class = classes.get(slot.class()?);
        class.is(owner.scope, owner.is_anonymous(), &Form::Heap).then_some(slot.values()[0] as u32)
    }

    /// Writes what [`charge_on_heap`](Shard::charge_on_heap) found.
    pub(super) fn commit_on_heap(&mut self, index: u32, write: Write<Change>) {
        self.heap.commit(index, write);
    }

    /// One operation on the key in slot `at`, if it has one; `keeps` says whether what it wants written is. Gives the answer
    /// and how many keys more or less there are.
    pub(super) fn step(
        &mut self,
        classes: &Classes,
        owner: &Owner<'_>,
        at: Option<usize>,
        now: Time,
        operation: &Operation,
        keeps: impl Fn(&Answer) -> bool,
    ) -> (Answer, isize) {
        let view = at.map_or(View::None, |at| self.view(classes, at));
        let state = match &view {
            View::None => None,
            View::Packed(state) => Some(state),
            View::Heap(index) => self.on_heap(*index),
        };
        let Step { answer, write } = owner.limit.decide(state, now, operation);
        let kept = write.filter(|_| keeps(&answer));
        (answer, kept.map_or(0, |write| self.write(classes, owner, at, write)))
    }

    /// Writes a change that was made for the state of this key as it is; `at` is its slot if nothing has moved. Says how
    /// many keys more or less there are.
    pub(super) fn write(
        &mut self,
        classes: &Classes,
        owner: &Owner<'_>,
        at: Option<usize>,
        write: Write<Change>,
    ) -> isize {
        let before = self.table.len();
        let at = at.filter(|&at| self.is_at(at, owner.fingerprint)).or_else(|| self.find(owner.fingerprint));
        match form_of(&write.change) {
            Packed::Gone => {
                if let Some(at) = at {
                    self.remove(classes, at);
                }
            }
            Packed::Values(values) => {
                self.write_values(classes, owner, at, values, write.dies_at);
            }
            Packed::TooLarge => self.write_to_heap(classes, at, owner, write),
        }
        self.table.len() as isize - before as isize
    }

    fn write_values(
        &mut self,
        classes: &Classes,
        owner: &Owner<'_>,
        at: Option<usize>,
        values: Values,
        dies_at: Time,
    ) -> isize {
        debug_assert_eq!(slot::dies_at(owner.limit, values), dies_at, "{:?}", owner.limit);
        if let Some((at, class)) = self.same_class(classes, at, owner) {
            self.table.slot_mut(at).set(class, values);
            return 0;
        }
        let class = self.class(classes, at, owner, Form::Packed(*owner.limit));
        if class != ClassId::ANY {
            self.put(classes, at, owner, class, values);
        } else if let Some(state) = unpack(owner.limit, values) {
            // So many limits are about that there is no number left for this one: its state lies on the heap, whole.
            let index = match at.map(|at| self.view(classes, at)) {
                Some(View::Heap(index)) => {
                    self.heap.put_back(index, state, dies_at);
                    index
                }
                _ => self.heap.insert(state, dies_at),
            };
            self.put(classes, at, owner, class, [u64::from(index), 0]);
        }
        isize::from(at.is_none())
    }

    /// The slot and its class, if this same limit wrote it under the same rule.
    #[inline]
    fn same_class(
        &self,
        classes: &Classes,
        at: Option<usize>,
        owner: &Owner<'_>,
    ) -> Option<(usize, ClassId)> {
        let (at, class) = at.and_then(|at| Some((at, self.class_at(at)?)))?;
        owner.wrote(classes, class).then_some((at, class))
    }

    fn write_to_heap(
        &mut self,
        classes: &Classes,
        at: Option<usize>,
        owner: &Owner<'_>,
        write: Write<Change>,
    ) {
        let held = at.and_then(|at| match self.view(classes, at) {
            View::Heap(index) => Some(index),
            View::None | View::Packed(_) => None,
        });
        let mut state = held.and_then(|index| self.heap.take(index));
        State::commit(&mut state, write.change);
        match (state, at) {
            (Some(state), _) => {
                let class = self.class(classes, at, owner, Form::Heap);
                let index = match held {
                    Some(index) => {
                        self.heap.put_back(index, state, write.dies_at);
                        index
                    }
                    None => self.heap.insert(state, write.dies_at),
                };
                self.put(classes, at, owner, class, [u64::from(index), 0]);
            }
            (None, Some(at)) => self.remove(classes, at),
            (None, None) => (),
        }
    }

    /// The class for a write: as a rule the one that the slot has already.
    fn class(&self, classes: &Classes, at: Option<usize>, owner: &Owner<'_>, form: Form) -> ClassId {
        let (scope, anonymous) = (owner.scope, owner.is_anonymous());
        let same = at.and_then(|at| self.class_at(at));
        let same = same.filter(|&class| classes.get(class).is(scope, anonymous, &form));
        same.unwrap_or_else(|| classes.intern(&ClassKey { scope, anonymous, form }))
    }

    /// The class of the key in this slot.
    #[inline]
    pub(super) fn class_at(&self, at: usize) -> Option<ClassId> {
        self.table.slot(at).class()
    }

    fn put(
        &mut self,
        classes: &Classes,
        at: Option<usize>,
        owner: &Owner<'_>,
        class: ClassId,
        values: Values,
    ) {
        let Some(at) = at else {
            count_anonymous(classes, class, 1);
            self.table.insert(Slot::new(owner.fingerprint, class, values));
            return;
        };
        let slot = self.table.slot(at);
        if let Some(old) = slot.class().filter(|&old| old != class) {
            let was_on_heap = *classes.get(old).form() == Form::Heap;
            if was_on_heap && *classes.get(class).form() != Form::Heap {
                self.heap.remove(slot.values()[0] as u32);
            }
            count_anonymous(classes, old, -1);
            count_anonymous(classes, class, 1);
        }
        self.table.slot_mut(at).set(class, values);
    }

    fn remove(&mut self, classes: &Classes, at: usize) {
        let slot = self.table.remove(at);
        if let Some(class) = slot.class() {
            count_anonymous(classes, class, -1);
            if *classes.get(class).form() == Form::Heap {
                self.heap.remove(slot.values()[0] as u32);
            }
        }
    }

    /// Looks at the next `slots` slots and forgets what has been dead for a while. Says how many keys.
    pub(super) fn sweep(&mut self, classes: &Classes, now: Time, slots: usize) -> usize {
        let before = self.table.len();
        let mut left = slots.min(self.table.slots().len());
        while left > 0 {
            let at = self.advance();
            if self.dies_at(classes, at).is_some_and(|dies_at| dies_at.plus(MARGIN) <= now) {
                self.remove(classes, at);
                // Another slot may have moved up to here: looked at next, and not instead of one further on.
                self.cursor = at;
            } else {
                left -= 1;
            }
        }
        let swept = before - self.table.len();
        if swept > 0 {
            self.table.shrink();
        }
        swept
    }

    /// Looks at the next `slots` slots and forgets one key whose state is as good as none: best one that has been so for
    /// a while. Says whether it did. State that still counts is never forgotten: that would hand out credit.
    pub(super) fn evict(&mut self, classes: &Classes, now: Time, slots: usize) -> bool {
        let mut full_credit = None;
        for _ in 0..slots.min(self.table.slots().len()) {
            let at = self.advance();
            match self.dies_at(classes, at) {
                Some(dies_at) if dies_at.plus(MARGIN) <= now => {
                    self.remove(classes, at);
                    return true;
                }
                Some(dies_at) if dies_at <= now => full_credit = full_credit.or(Some(at)),
                _ => (),
            }
        }
        if let Some(at) = full_credit {
            self.remove(classes, at);
        }
        full_credit.is_some()
    }

    /// Everything that has state, for a snapshot.
    pub(super) fn iter<'s>(&'s self, classes: &'s Classes) -> impl Iterator<Item = (u128, State, Time)> + 's {
        let slots = self.table.slots().iter().enumerate().filter(|(_, slot)| !slot.is_empty());
        slots.filter_map(|(at, slot)| {
            let state = match self.view(classes, at) {
                View::Packed(state) => state,
                View::Heap(index) => self.heap.state(index)?.clone(),
                View::None => return None,
            };
            Some((slot.fingerprint(), state, self.dies_at(classes, at)?))
        })
    }

    fn advance(&mut self) -> usize {
        let at = if self.cursor < self.table.slots().len() { self.cursor } else { 0 };
        self.cursor = at + 1;
        at
    }

    fn dies_at(&self, classes: &Classes, at: usize) -> Option<Time> {
        let slot = self.table.slot(at);
        match classes.get(slot.class()?).form() {
            Form::Packed(limit) => Some(slot::dies_at(limit, slot.values())),
            Form::Heap => self.heap.dies_at(slot.values()[0] as u32),
        }
    }
}

/// How a change is kept.
enum Packed {
    Gone,
    Values(Values),
    TooLarge,
}

fn form_of(change: &Change) -> Packed {
    let state = match change {
        Change::Reset | Change::Penalty(None) => return Packed::Gone,
        Change::FixedWindow(state) => State::FixedWindow(*state),
        Change::Bucket(state) => State::Bucket(*state),
        Change::Meter(state) => State::Meter(*state),
        Change::Penalty(Some(state)) => State::Penalty(*state),
        Change::SlidingWindow(_) | Change::SlidingLog(_) | Change::Concurrency(_) | Change::Quota(_) => {
            return Packed::TooLarge;
        }
    };
    pack(&state).map_or(Packed::TooLarge, Packed::Values)
}

fn count_anonymous(classes: &Classes, class: ClassId, by: isize) {
    if let Some(anonymous) = &classes.get(class).anonymous {
        // Two's complement: adding the wrapped difference takes away.
        anonymous.fetch_add(by as usize, Ordering::Relaxed);
    }
}
