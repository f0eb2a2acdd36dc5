//! Units held by leases or reservations, by the end until which they count. At most 64 ends.

use std::collections::BTreeMap;

use super::{Big, END, ceil_div};

/// Most ends at once.
const ENDS_MAX: usize = 64;

/// Units by end.
#[derive(Default, Clone, Debug)]
pub(super) struct HeldUnits {
    by_end: BTreeMap<Big, Big>,
}

/// Returns the end of a hold of this length: the first multiple of a 32nd of its length at or after `now + length`.
pub(super) fn rounded_end(now: Big, length: Big) -> Big {
    let part = (length / 32).max(1);
    (ceil_div((now + length).min(END), part) * part).min(END)
}

impl HeldUnits {
    /// Returns the units that count at `now`.
    pub(super) fn at(&self, now: Big) -> Big {
        self.by_end.iter().filter(|(end, _)| now < **end).map(|(_, units)| units).sum()
    }

    /// Drops the units that no longer count.
    pub(super) fn expire(&mut self, now: Big) {
        self.by_end.retain(|end, _| now < *end);
    }

    /// Adds units until `end`. If there are too many ends, the next later one takes them, or the last one moves to `end`.
    pub(super) fn add(&mut self, end: Big, units: Big) {
        let mut end = end;
        if !self.by_end.contains_key(&end) && self.by_end.len() == ENDS_MAX {
            match self.by_end.range(end..).next() {
                Some((&later, _)) => end = later,
                None => {
                    let (_, moved) = self.by_end.pop_last().expect("the ends are many");
                    self.by_end.insert(end, moved);
                }
            }
        }
        *self.by_end.entry(end).or_insert(0) += units;
    }

    /// Takes units, one after the other, from the first end at or after `end` that has some.
    pub(super) fn take(&mut self, end: Big, mut units: Big) {
        while units > 0 {
            let Some((&first, &held)) = self.by_end.range(end..).next() else { return };
            let taken = units.min(held);
            units -= taken;
            if taken == held {
                self.by_end.remove(&first);
            } else {
                self.by_end.insert(first, held - taken);
            }
        }
    }
}
