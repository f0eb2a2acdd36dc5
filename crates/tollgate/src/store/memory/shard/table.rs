//! A hash table of slots sorted by hash, with gaps.
//!
//! The home of a hash is its position in proportion to its size. A slot is stored at its home or in the next free
//! position after it. So slots are sorted, a search ends at the first larger hash, and a resize fills the new table from
//! left to right in one pass. The number of homes need not be a power of two: the table grows by a tenth, so little more
//! than a fifth of its memory is gaps. Doubling would waste up to more than half.

use super::slot::Slot;

/// The table grows above this load.
const LOAD_MAX: (usize, usize) = (6, 7);
/// The table shrinks below this load.
const LOAD_MIN: (usize, usize) = (1, 3);
/// The fewest homes to grow by, and the slots after the last home.
const GROWTH_MIN: usize = 8;

/// The fields that a lookup reads come first: see [`ShardLock`](crate::store::memory::locked_shard::ShardLock).
#[derive(Default)]
#[repr(C)]
pub(crate) struct Table {
    slots: Box<[Slot]>,
    /// The number of homes. There are more slots, for those stored after their home at the end.
    homes: usize,
    len: usize,
}

impl Table {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// All slots, including empty ones.
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The number of leading bytes that a lookup reads.
    #[cfg(test)]
    pub(crate) const LOOKUP_BYTES: usize = std::mem::offset_of!(Table, len);

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot>()
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.homes as u128) >> u64::BITS) as usize
    }

    /// Returns the slot of this key, or as an error the slot where it belongs.
    #[inline]
    pub(crate) fn find(&self, fingerprint: u128) -> Result<usize, usize> {
        let hash = fingerprint as u64;
        let mut at = self.home(hash);
        while let Some(slot) = self.slots.get(at) {
            if slot.hash > hash || slot.is_empty() {
                break;
            }
            if slot.fingerprint() == fingerprint {
                return Ok(at);
            }
            at += 1;
        }
        Err(at)
    }

    #[inline]
    pub(crate) fn slot(&self, at: usize) -> &Slot {
        &self.slots[at]
    }

    #[inline]
    pub(crate) fn slot_mut(&mut self, at: usize) -> &mut Slot {
        &mut self.slots[at]
    }

    /// Inserts a key that [`find`](Table::find) did not find.
    pub(crate) fn insert(&mut self, slot: Slot) {
        if self.len + 1 > self.homes * LOAD_MAX.0 / LOAD_MAX.1 {
            self.resize(self.homes + (self.homes / 10).max(GROWTH_MIN));
        }
        let at = match self.find(slot.fingerprint()) {
            Ok(at) | Err(at) => at,
        };
        let end = self.slots[at..].iter().position(Slot::is_empty).map(|gap| at + gap);
        match end {
            Some(end) => self.slots.copy_within(at..end, at + 1),
            None => {
                let mut slots = std::mem::take(&mut self.slots).into_vec();
                slots.reserve_exact(GROWTH_MIN);
                slots.insert(at, Slot::EMPTY);
                slots.extend(std::iter::repeat_n(Slot::EMPTY, GROWTH_MIN - 1));
                self.slots = slots.into_boxed_slice();
            }
        }
        self.slots[at] = slot;
        self.len += 1;
    }

    /// Removes a key. Slots that were displaced by it move one position toward their home.
    pub(crate) fn remove(&mut self, at: usize) -> Slot {
        let removed = self.slots[at];
        let behind = &self.slots[at + 1..];
        let at_home =
            |(offset, slot): (usize, &Slot)| slot.is_empty() || self.home(slot.hash) == at + 1 + offset;
        let end =
            behind.iter().enumerate().position(at_home).map_or(self.slots.len(), |offset| at + 1 + offset);
        self.slots.copy_within(at + 1..end, at);
        self.slots[end - 1] = Slot::EMPTY;
        self.len -= 1;
        removed
    }

    /// Frees memory if most of the table is gaps.
    pub(crate) fn shrink(&mut self) {
        if self.homes > GROWTH_MIN && self.len < self.homes * LOAD_MIN.0 / LOAD_MIN.1 {
            self.resize((self.len * LOAD_MAX.1 / LOAD_MAX.0 + GROWTH_MIN).min(self.homes));
        }
    }

    fn resize(&mut self, homes: usize) {
        let old = std::mem::take(&mut self.slots);
        self.homes = homes;
        // Slots after the last home, for displaced slots. If they do not suffice, the loop adds more.
        let mut slots = vec![Slot::EMPTY; homes + GROWTH_MIN];
        let mut free = 0;
        for slot in old.into_iter().filter(|slot| !slot.is_empty()) {
            let at = self.home(slot.hash).max(free);
            if at < slots.len() {
                slots[at] = slot;
            } else {
                slots.push(slot);
            }
            free = at + 1;
        }
        self.slots = slots.into_boxed_slice();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::store::memory::classes::ClassId;

    fn slot(fingerprint: u128) -> Slot {
        Slot::new(fingerprint, ClassId::UNKNOWN, [1, 2])
    }

    /// Few different hashes, so that they collide at both ends and in the middle.
    fn fingerprint() -> impl Strategy<Value = u128> {
        let hash =
            prop_oneof![0..3_u64, u64::MAX - 3..=u64::MAX, (0..8_u64).prop_map(|n| n << 60), any::<u64>()];
        (hash, 0..3_u64).prop_map(|(hash, rest)| u128::from(rest) << 64 | u128::from(hash))
    }

    proptest! {
        #[test]
        fn finds_exactly_the_keys_that_were_inserted_and_not_removed(
            steps in prop::collection::vec((any::<bool>(), fingerprint()), 1..400)
        ) {
            let (mut table, mut model) = (Table::default(), BTreeSet::new());
            for (insert, fingerprint) in steps {
                prop_assert_eq!(table.find(fingerprint).is_ok(), model.contains(&fingerprint));
                match (insert, table.find(fingerprint)) {
                    (true, Err(_)) => {
                        table.insert(slot(fingerprint));
                        model.insert(fingerprint);
                    }
                    (false, Ok(at)) => {
                        prop_assert_eq!(table.remove(at).fingerprint(), fingerprint);
                        model.remove(&fingerprint);
                        table.shrink();
                    }
                    _ => (),
                }
                prop_assert_eq!(table.len(), model.len());
                let held: Vec<u64> = table.slots().iter().filter(|slot| !slot.is_empty()).map(|s| s.hash).collect();
                prop_assert!(held.is_sorted());
                for &known in &model {
                    prop_assert!(table.find(known).is_ok_and(|at| table.slot(at).fingerprint() == known));
                }
            }
        }
    }

    #[test]
    fn a_growing_table_uses_less_than_42_bytes_per_key() {
        let mut table = Table::default();
        let mut hash = 1_u128;
        for count in 1..20_000_usize {
            hash = hash.wrapping_mul(0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645).wrapping_add(99);
            table.insert(slot(hash));
            if count > 2_000 {
                assert!(table.bytes() < count * 42, "{count} keys in {} bytes", table.bytes());
            }
        }
    }
}
