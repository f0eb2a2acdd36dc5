//! The charges of a Plan of several items, when every key has state and every charge is admitted.
//!
//! That is the case of nearly every check. All charges are computed before the first is written, and the answers are
//! computed after the shards are unlocked. Any other Plan is evaluated as a whole.
//!
//! Gain: without it, a Plan of three charges costs 2.9 times the CPU (docs/decisions/0004, row "Plan charges").

use smallvec::SmallVec;
use tollgate_core::{Answer, Change, Item, Operation, Time, Write};

use crate::store::memory::fast_path::admitted_charge::AdmittedCharge;
use crate::store::memory::locked_shards::{INLINE_ITEMS, LockedShards};
use crate::store::memory::state_key::StateKey;

#[derive(Default)]
pub(crate) struct PlanCharges<'i> {
    /// One per item, in order.
    charges: SmallVec<[PlanCharge<'i>; INLINE_ITEMS]>,
    /// Apart from the others, because they are large and most Plans have none.
    heap_charges: SmallVec<[HeapCharge; INLINE_ITEMS]>,
}

struct PlanCharge<'i> {
    /// Index among the locked shards.
    shard: usize,
    slot: usize,
    charge: Charge<'i>,
}

enum Charge<'i> {
    /// The charge and its cost.
    Short(AdmittedCharge<'i>, u64),
    /// Index among the heap charges.
    Heap(usize),
}

/// An admitted charge on heap state, decided by the algorithm itself.
///
/// Gain: without it, a Plan of a bucket, a quota and a window costs 2.2 times the CPU (docs/decisions/0004, row "heap
/// charges").
pub(crate) struct HeapCharge {
    pub(crate) index: u32,
    pub(crate) answer: Answer,
    pub(crate) write: Option<Write<Change>>,
}

impl<'i> PlanCharges<'i> {
    /// Computes every charge and writes nothing. Returns `None` if the Plan must be evaluated as a whole.
    // Filled in place: returning the charges by value costs 16 % of a Plan of three charges.
    #[inline]
    pub(crate) fn compute<C>(
        &mut self,
        shards: &LockedShards<'_, C>,
        items: &'i [Item<'_>],
        now: Time,
    ) -> Option<()> {
        for item in items {
            let Operation::Charge { cost, .. } = item.operation else { return None };
            if item.is_stamped() {
                return None;
            }
            let key = StateKey::of(item);
            let index = shards.index_of_key(key.fingerprint);
            let (shard, classes) = (shards.shard(index), shards.classes());
            let slot = shard.find(key.fingerprint)?;
            let charge = if let Some(charge) = shard.charge(classes, &key, slot, now, cost) {
                Charge::Short(charge, cost)
            } else {
                self.heap_charges.push(shard.charge_heap(classes, &key, slot, now, &item.operation)?);
                Charge::Heap(self.heap_charges.len() - 1)
            };
            self.charges.push(PlanCharge { shard: index, slot, charge });
        }
        Some(())
    }

    /// Writes all new states.
    #[inline]
    pub(crate) fn commit<C>(&mut self, shards: &mut LockedShards<'_, C>, items: &[Item<'_>], now: Time) {
        for (PlanCharge { shard, slot, charge }, item) in self.charges.iter().zip(items) {
            let fingerprint = item.key.fingerprint();
            let shard = shards.shard_to_write(*shard, fingerprint);
            match charge {
                Charge::Short(charge, _) => shard.commit(*slot, charge),
                Charge::Heap(index) => shard.commit_heap(fingerprint, &mut self.heap_charges[*index], now),
            }
        }
    }

    #[inline]
    pub(crate) fn push_answers(&self, answers: &mut SmallVec<[Answer; INLINE_ITEMS]>) {
        for PlanCharge { charge, .. } in &self.charges {
            match charge {
                Charge::Short(charge, cost) => answers.push(charge.answer(*cost)),
                Charge::Heap(index) => answers.push(self.heap_charges[*index].answer),
            }
        }
    }
}
