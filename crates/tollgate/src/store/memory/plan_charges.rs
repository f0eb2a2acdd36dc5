//! The charges of a Plan of several items whose keys all have state that admits, as nearly every check finds it: each is
//! found before the first is written, and told after the locks are gone.

use smallvec::SmallVec;
use tollgate_core::{Answer, Change, Item, Operation, Time, Write};

use super::admitted_charge::Charged;
use super::locked_shards::{INLINE, Locked};
use super::shard::Owner;

/// One for each item.
pub(super) struct Charges<'i> {
    found: SmallVec<[Found<'i>; INLINE]>,
    /// Those that have no short way, in the same order. They are large, so they lie apart, and nobody pays for them who has none.
    long: SmallVec<[Long; INLINE]>,
}

struct Found<'i> {
    /// Which of the locked shards, and which slot there.
    held: usize,
    at: usize,
    /// `None` for the next of those that have no short way.
    short: Option<(Charged<'i>, u64)>,
}

/// An admitted charge on state that lies on the heap.
struct Long {
    index: u32,
    answer: Answer,
    write: Option<Write<Change>>,
}

impl<'i> Charges<'i> {
    pub(super) fn new() -> Charges<'i> {
        Charges { found: SmallVec::new(), long: SmallVec::new() }
    }

    /// Finds what each item comes to; `None` if the Plan is more than charges that are all admitted.
    #[inline]
    pub(super) fn find<C>(&mut self, locked: &Locked<'_, C>, items: &'i [Item<'_>], now: Time) -> Option<()> {
        for item in items {
            let Operation::Charge { cost, .. } = item.operation else { return None };
            let owner = Owner::of(item);
            let held = locked.held_of(owner.fingerprint);
            let (shard, classes) = (locked.shard(held), locked.classes());
            let at = shard.find(owner.fingerprint)?;
            let short = shard.charge(classes, &owner, at, now, cost).map(|charged| (charged, cost));
            if short.is_none() {
                let (index, step) = shard.charge_on_heap(classes, &owner, at, now, &item.operation)?;
                self.long.push(Long { index, answer: step.answer, write: step.write });
            }
            self.found.push(Found { held, at, short });
        }
        Some(())
    }

    /// Writes all of them.
    #[inline]
    pub(super) fn commit<C>(&mut self, locked: &mut Locked<'_, C>, items: &[Item<'_>]) {
        let mut long = self.long.iter_mut();
        for (found, item) in self.found.iter().zip(items) {
            let shard = locked.change(found.held, item.key.fingerprint());
            if let Some((charged, _)) = &found.short {
                shard.commit(found.at, charged);
            } else if let Some(Long { index, write, .. }) = long.next()
                && let Some(write) = write.take()
            {
                shard.commit_on_heap(*index, write);
            }
        }
    }

    /// What they are told.
    #[inline]
    pub(super) fn tell(&self, answers: &mut SmallVec<[Answer; INLINE]>) {
        let mut long = self.long.iter();
        for found in &self.found {
            if let Some((charged, cost)) = &found.short {
                answers.push(charged.answer(*cost));
            } else if let Some(Long { answer, .. }) = long.next() {
                answers.push(*answer);
            }
        }
    }
}
