//! Slots in the order of their hashes, with gaps.
//!
//! A hash names a place in proportion to its size. A slot lies there or as soon after it as there is room, so slots are
//! sorted, a search ends at the first larger hash, and a larger table is filled from left to right in one pass. The
//! number of places need not be a power of two: the table grows by a tenth, so that of its memory never much more than
//! a fifth is gaps (doubling would waste up to more than half).

use super::slot::Slot;

/// The table grows when more than so much of it is filled.
const FULL: (usize, usize) = (6, 7);
/// And shrinks when less than so much is.
const SPARSE: (usize, usize) = (1, 3);
/// By this much it grows, at least.
const GROWTH_MIN: usize = 8;

/// In this order, what finding a key needs comes first.
#[derive(Default)]
#[repr(C)]
pub(super) struct Table {
    slots: Box<[Slot]>,
    /// How many places hashes name. There are a few slots more, for those that lie after their place at the end.
    places: usize,
    len: usize,
}

impl Table {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// All slots, empty ones among them.
    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// So many bytes, from its beginning on, finding a key looks at.
    #[cfg(test)]
    pub(super) const FINDING: usize = std::mem::offset_of!(Table, len);

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot>()
    }

    #[inline]
    fn place(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.places as u128) >> u64::BITS) as usize
    }

    /// Where this key is, or where it would have to be.
    #[inline]
    pub(super) fn find(&self, fingerprint: u128) -> Result<usize, usize> {
        let hash = fingerprint as u64;
        let mut at = self.place(hash);
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
    pub(super) fn slot(&self, at: usize) -> &Slot {
        &self.slots[at]
    }

    #[inline]
    pub(super) fn slot_mut(&mut self, at: usize) -> &mut Slot {
        &mut self.slots[at]
    }

    /// Puts in a key that [`find`](Table::find) did not find.
    pub(super) fn insert(&mut self, slot: Slot) {
        if self.len + 1 > self.places * FULL.0 / FULL.1 {
            self.resize(self.places + (self.places / 10).max(GROWTH_MIN));
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

    /// Takes a key out. Slots that lay after their place because of it move up.
    pub(super) fn remove(&mut self, at: usize) -> Slot {
        let removed = self.slots[at];
        let behind = &self.slots[at + 1..];
        let in_place =
            |(offset, slot): (usize, &Slot)| slot.is_empty() || self.place(slot.hash) == at + 1 + offset;
        let end =
            behind.iter().enumerate().position(in_place).map_or(self.slots.len(), |offset| at + 1 + offset);
        self.slots.copy_within(at + 1..end, at);
        self.slots[end - 1] = Slot::EMPTY;
        self.len -= 1;
        removed
    }

    /// Gives memory back if most of it is gaps.
    pub(super) fn shrink(&mut self) {
        if self.places > GROWTH_MIN && self.len < self.places * SPARSE.0 / SPARSE.1 {
            self.resize((self.len * FULL.1 / FULL.0 + GROWTH_MIN).min(self.places));
        }
    }

    fn resize(&mut self, places: usize) {
        let old = std::mem::take(&mut self.slots);
        self.places = places;
        // Whoever lies after the last place needs a slot too; if these are not enough, more are made as they fill up.
        let mut slots = vec![Slot::EMPTY; places + GROWTH_MIN];
        let mut free = 0;
        for slot in old.into_iter().filter(|slot| !slot.is_empty()) {
            let at = self.place(slot.hash).max(free);
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

    use super::super::classes::ClassId;
    use super::*;

    fn slot(fingerprint: u128) -> Slot {
        Slot::new(fingerprint, ClassId::ANY, [1, 2])
    }

    /// Few different hashes, so that they crowd and collide, at both ends and in the middle.
    fn fingerprint() -> impl Strategy<Value = u128> {
        let hash =
            prop_oneof![0..3_u64, u64::MAX - 3..=u64::MAX, (0..8_u64).prop_map(|n| n << 60), any::<u64>()];
        (hash, 0..3_u64).prop_map(|(hash, rest)| u128::from(rest) << 64 | u128::from(hash))
    }

    proptest! {
        #[test]
        fn holds_what_was_put_in_and_not_taken_out(
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
    fn gaps_take_little_more_than_a_fifth() {
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
