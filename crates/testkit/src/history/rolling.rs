//! Bounds for the periods of a rolling quota.
//!
//! A period begins with the first charge after the previous period has ended. The intervals of the charges give bounds
//! for the start of the first period. Those bounds and the intervals give bounds for the next one, and so on.

use super::certain::{Found, within};
use super::charge::{Charge, Charges};

/// Bounds for the instant at which one period began.
#[derive(Clone, Copy)]
struct Began {
    earliest: u64,
    latest: u64,
    /// From here on, nothing belongs to an earlier period.
    own_from: u64,
}

/// The periods of one key in order, as far as it is certain that there was another.
pub(super) struct RollingPeriods {
    length_us: u64,
    began: Vec<Began>,
}

impl RollingPeriods {
    pub(super) fn of(charges: &Charges<'_>, length_us: u64) -> RollingPeriods {
        let latest = Lowest::new(charges.certain.iter().map(|charge| (charge.start, charge.end)));
        let earliest = Lowest::new(charges.possible.iter().map(|charge| (charge.end, charge.start)));
        let mut began = Vec::new();
        let (mut own_from, mut not_before) = (0, 0);
        // A charge that is certainly after the previous period is in this one, or this one began earlier.
        while let (Some(latest), Some(start)) = (latest.from(own_from), earliest.from(not_before)) {
            let earliest = start.max(not_before);
            began.push(Began { earliest, latest, own_from });
            own_from = latest.saturating_add(length_us);
            not_before = earliest.saturating_add(length_us);
        }
        RollingPeriods { length_us, began }
    }

    /// Returns periods in which certainly more than `bound` was admitted.
    pub(super) fn overfull_periods(&self, certain: &[Charge<'_>], bound: u128) -> Vec<Found> {
        let spans = self.began.iter().filter_map(|began| {
            let last = began.earliest.saturating_add(self.length_us) - 1;
            let first = began.own_from.max(began.earliest);
            let sum = within(certain, first, last).map(|charge| u128::from(charge.cost)).sum();
            (sum > bound).then_some(Found { first, last, sum, bound })
        });
        spans.collect()
    }

    /// Returns the first instant at which a charge that happened at `end` or earlier certainly no longer counts.
    pub(super) fn over_by(&self, end: u64) -> u64 {
        let own = end.saturating_add(self.length_us);
        // Its period is this one or an earlier one, so it has ended when this one ends.
        let holding =
            self.began.partition_point(|began| began.earliest.saturating_add(self.length_us) <= end);
        self.began.get(holding).map_or(own, |began| own.min(began.latest.saturating_add(self.length_us)))
    }
}

/// Finds the smallest value among the pairs whose key is at or above a number.
struct Lowest {
    /// Sorted by key. Each value is the smallest from there on.
    pairs: Vec<(u64, u64)>,
}

impl Lowest {
    fn new(pairs: impl Iterator<Item = (u64, u64)>) -> Lowest {
        let mut pairs: Vec<(u64, u64)> = pairs.collect();
        pairs.sort_unstable();
        let mut lowest = u64::MAX;
        for (_, value) in pairs.iter_mut().rev() {
            lowest = lowest.min(*value);
            *value = lowest;
        }
        Lowest { pairs }
    }

    fn from(&self, key: u64) -> Option<u64> {
        let at = self.pairs.partition_point(|pair| pair.0 < key);
        self.pairs.get(at).map(|pair| pair.1)
    }
}
