//! Units held by leases or reservations, as sums by end. The size does not depend on the number of holds.
//!
//! - State: at most [`PAIRS_MAX`] pairs of an end and the units that count until then, ordered by end.
//! - An end is rounded up to a multiple of 1/32 of the hold's length, so equal holds need at most 64 pairs.
//! - If holds of many lengths fill the pairs, the next later pair takes a new hold. Without a later pair, the last pair moves
//!   out to the new end. So units may count longer than their hold, never shorter.
//! - Giving back takes units from the first pairs at or after the hold's end. Pairs at or after any instant always hold at
//!   least the units of all holds that end at or after it, so the units of one hold are never taken twice.

use crate::time::{EXACT_MAX, Span, Time};

/// Largest number of pairs.
pub const PAIRS_MAX: usize = 64;

/// Ends are rounded up to this part of the hold's length.
const PARTS: u64 = 32;

/// Units held, by the end until which they count.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HoldSums {
    /// Ordered by `end`, without duplicates. No pair is empty.
    pub pairs: Vec<Pair>,
}

/// Units that count until one end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair {
    /// First instant at which they no longer count.
    pub end: Time,
    /// The units.
    pub units: u64,
}

/// Returns the end of a hold of this length that starts at `now`.
pub fn end_of(now: Time, length: Span) -> Time {
    now.plus(length).ceil(Span::from_us((length.us() / PARTS).max(1)))
}

/// Returns the pairs that count at `now`.
pub fn live(sums: &HoldSums, now: Time) -> &[Pair] {
    &sums.pairs[sums.pairs.partition_point(|pair| pair.end <= now)..]
}

/// Returns the units of these pairs.
pub fn total(pairs: &[Pair]) -> u64 {
    pairs.iter().fold(0, |sum: u64, pair| sum.saturating_add(pair.units).min(EXACT_MAX))
}

/// Returns the first end by which `excess` of these units no longer count, or `None` if there are fewer.
pub fn ends_by(pairs: &[Pair], mut excess: u64) -> Option<Time> {
    let last = pairs.iter().find(|pair| {
        let enough = pair.units >= excess;
        excess = excess.saturating_sub(pair.units);
        enough
    });
    last.map(|pair| pair.end)
}

impl HoldSums {
    /// Copies pairs.
    pub fn of(pairs: &[Pair]) -> HoldSums {
        HoldSums { pairs: pairs.to_vec() }
    }

    /// Adds `units` that count until `end`.
    pub fn add(&mut self, end: Time, units: u64) {
        let index = self.pairs.partition_point(|pair| pair.end < end);
        let is_full = self.pairs.len() >= PAIRS_MAX;
        match self.pairs.get_mut(index) {
            Some(pair) if pair.end == end || is_full => pair.units += units,
            None if is_full => {
                if let Some(last) = self.pairs.last_mut() {
                    *last = Pair { end, units: last.units + units };
                }
            }
            _ => self.pairs.insert(index, Pair { end, units }),
        }
    }

    /// Takes `units` from the first pairs at or after `end`. Returns how many there were.
    pub fn take(&mut self, end: Time, units: u64) -> u64 {
        let mut missing = units;
        for pair in self.pairs.iter_mut().filter(|pair| pair.end >= end) {
            let taken = missing.min(pair.units);
            pair.units -= taken;
            missing -= taken;
        }
        self.pairs.retain(|pair| pair.units > 0);
        units - missing
    }

    /// Returns the last end, or `None` if nothing is held.
    pub fn last_end(&self) -> Option<Time> {
        self.pairs.last().map(|pair| pair.end)
    }
}
