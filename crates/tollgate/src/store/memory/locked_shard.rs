//! A shard behind its lock, and the one key of it that threads seem to fight for.
//!
//! Threads that ask for the same key hand two cache lines to and fro: that of the lock and that of the key's slot. So who
//! finds the shard locked lifts the slot of its key out of the table and lays it beside the lock, where the next charge
//! of that key finds all it needs on one line. As a rule whoever had the lock asked for the same key; if not, nothing is
//! lost but a copy. Whoever wants anything else of the shard lays the slot back first: there is no other way in.

use std::hint::spin_loop;
use std::ops::{Deref, DerefMut};

use tollgate_core::Time;

use super::admitted_charge::Charged;
use super::classes::Classes;
use super::last_refusal::Refusal;
use super::shard::{Owner, Shard};
use super::slot::Slot;
use super::sync::{Mutex, MutexGuard};

/// Who finds a shard locked waits for so long between two looks, and looks so often before it sleeps. A shard is locked for
/// a few dozen nanoseconds: to look again at once takes the line away from whoever has it, to sleep costs microseconds.
/// In pauses of the processor, each some 15 to 50 nanoseconds. Plans of several keys do not wait like this: they hold other
/// shards meanwhile.
const PAUSES: u32 = 32;
const LOOKS: u32 = 16;

/// On cache lines of its own, so that neighbours do not slow each other down.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct Shelf {
    inside: Mutex<Inside>,
    pub(super) refusal: Refusal,
}

/// In this order, the lock, the lifted slot and what finding a key needs are on one line.
#[derive(Default)]
#[repr(C)]
struct Inside {
    /// Newer than what lies in its place in the table; empty if none is lifted.
    lifted: Slot,
    shard: Shard,
    /// Where the lifted slot belongs. Nothing moves in the table while there is one.
    lifted_from: usize,
}

/// The whole shard, locked, every slot in its place.
pub(super) struct Opened<'s>(MutexGuard<'s, Inside>);

/// The shard, locked for one charge.
pub(super) struct ForCharge<'s> {
    inside: MutexGuard<'s, Inside>,
    /// Whether somebody else held the lock: whoever comes next may want the same key.
    met_somebody: bool,
}

impl Shelf {
    pub(super) fn open(&self) -> Opened<'_> {
        Opened::new(self.inside.lock())
    }

    /// Unless somebody is busy there.
    pub(super) fn try_open(&self) -> Option<Opened<'_>> {
        self.inside.try_lock().map(Opened::new)
    }

    #[inline]
    pub(super) fn for_charge(&self) -> ForCharge<'_> {
        match self.inside.try_lock() {
            Some(inside) => ForCharge { inside, met_somebody: false },
            None => ForCharge { inside: self.wait(), met_somebody: true },
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) -> MutexGuard<'_, Inside> {
        for _ in 0..LOOKS {
            (0..PAUSES).for_each(|_| spin_loop());
            if let Some(inside) = self.inside.try_lock() {
                return inside;
            }
        }
        self.inside.lock()
    }
}

impl<'s> ForCharge<'s> {
    /// Charges the key if that has a short way, as nearly every check has. If not, nothing is written.
    // Always inlined: what it found is read again at once, and would go by way of memory.
    #[inline(always)]
    pub(super) fn charge<'l>(
        &mut self,
        classes: &Classes,
        owner: &Owner<'l>,
        now: Time,
        cost: u64,
    ) -> Option<Charged<'l>> {
        let Inside { lifted, shard, .. } = &mut *self.inside;
        if lifted.holds(owner.fingerprint) {
            let charged = owner.charge(classes, lifted, now, cost)?;
            lifted.set_values(charged.values());
            return Some(Charged::InSlot(charged));
        }
        // Any other key is where the table says.
        let at = shard.find(owner.fingerprint)?;
        let charged = shard.charge(classes, owner, at, now, cost)?;
        shard.commit(at, &charged);
        if self.met_somebody && matches!(charged, Charged::InSlot(_)) {
            self.inside.lift(at);
        }
        Some(charged)
    }

    pub(super) fn open(self) -> Opened<'s> {
        Opened::new(self.inside)
    }
}

impl Inside {
    #[cold]
    fn lift(&mut self, at: usize) {
        self.lay_back();
        (self.lifted, self.lifted_from) = (*self.shard.slot_mut(at), at);
    }

    fn lay_back(&mut self) {
        if !self.lifted.is_empty() {
            *self.shard.slot_mut(self.lifted_from) = self.lifted;
            self.lifted = Slot::EMPTY;
        }
    }
}

impl<'s> Opened<'s> {
    fn new(mut inside: MutexGuard<'s, Inside>) -> Opened<'s> {
        inside.lay_back();
        Opened(inside)
    }
}

impl Deref for Opened<'_> {
    type Target = Shard;

    fn deref(&self) -> &Shard {
        &self.0.shard
    }
}

impl DerefMut for Opened<'_> {
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.0.shard
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::algorithm::fixed_window::FixedWindow;
    use tollgate_core::{Limit, Operation, Span};

    use super::super::table::Table;
    use super::*;

    const NOW: Time = Time::from_us(7_000_000);

    fn limit() -> Limit {
        Limit::FixedWindow(FixedWindow::new(100, Span::from_secs(60)).expect("in range"))
    }

    fn owner(limit: &Limit, fingerprint: u128) -> Owner<'_> {
        Owner { fingerprint, scope: 0, ip_subjects_max: None, limit, class: None }
    }

    /// What is left for this key, asked of the whole shard.
    fn left(shard: &mut Opened<'_>, classes: &Classes, owner: &Owner<'_>) -> u64 {
        let at = shard.find(owner.fingerprint);
        shard.step(classes, owner, at, NOW, &Operation::Peek { cost: 0 }, |_| true).0.remaining
    }

    #[test]
    fn a_lifted_key_is_seen_by_everybody_as_it_is() {
        let (shelf, classes, limit) = (Shelf::default(), Classes::new(), limit());
        let keys = [1_u128, 2, 3 << 100].map(|fingerprint| owner(&limit, fingerprint));
        for key in &keys {
            shelf.open().step(&classes, key, None, NOW, &Operation::charge(1), |_| true);
        }
        let charge = |key: &Owner<'_>, met_somebody| {
            let mut shard = ForCharge { inside: shelf.inside.lock(), met_somebody };
            assert!(shard.charge(&classes, key, NOW, 10).is_some());
            shard.inside.lifted.holds(key.fingerprint)
        };
        assert!(!charge(&keys[0], false), "nobody fights for it");
        assert!(charge(&keys[0], true));
        assert!(charge(&keys[0], false), "it stays");
        assert!(!charge(&keys[1], false), "another key is charged beside it");
        assert!(charge(&keys[2], true), "another key takes its place");
        assert!(charge(&keys[0], true));
        let lefts = keys.each_ref().map(|key| left(&mut shelf.open(), &classes, key));
        assert_eq!(lefts, [59, 89, 89]);
        assert!(shelf.inside.lock().lifted.is_empty());
    }

    #[test]
    fn the_lock_the_lifted_slot_and_the_way_to_the_others_are_on_one_line() {
        let shelf = Shelf::default();
        let inside = shelf.inside.lock();
        let offset = |field: usize| field - std::ptr::from_ref(&shelf).addr();
        assert!(offset(std::ptr::from_ref(&inside.lifted).addr()) > 0, "the lock comes first");
        let end = offset(std::ptr::from_ref(&inside.shard).addr()) + Table::FINDING;
        assert!(end <= align_of::<Shelf>(), "{end}");
    }
}
