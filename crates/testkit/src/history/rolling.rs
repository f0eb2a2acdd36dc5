//! Where the periods of a quota that starts with its first use can have begun.
//!
//! A period begins with the first charge after the one before it has ended. From the intervals of the charges
//! follow bounds for the first beginning, and from those and the intervals bounds for the next, and so on.

use super::certain::{Found, within};
use super::charge::{Charge, Charges};

/// Bounds for the instant at which one period began.
#[derive(Clone, Copy)]
struct Began {
    earliest: u64,
    latest: u64,
    /// Whatever happens from here on is not in an earlier period.
    own_from: u64,
}

/// The periods of one key, in order, as long as it is certain that there was another.
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
        // A charge that certainly comes after the period before belongs to this one or makes it older.
        while let (Some(latest), Some(start)) = (latest.from(own_from), earliest.from(not_before)) {
            let earliest = start.max(not_before);
            began.push(Began { earliest, latest, own_from });
            own_from = latest.saturating_add(length_us);
            not_before = earliest.saturating_add(length_us);
        }
        RollingPeriods { length_us, began }
    }

    /// Periods that certainly hold more than `bound`.
    pub(super) fn crowded(&self, certain: &[Charge<'_>], bound: u128) -> Vec<Found> {
        let spans = self.began.iter().filter_map(|began| {
            let last = began.earliest.saturating_add(self.length_us) - 1;
            let first = began.own_from.max(began.earliest);
            let sum = within(certain, first, last).map(|charge| u128::from(charge.cost)).sum();
            (sum > bound).then_some(Found { first, last, sum, bound })
        });
        spans.collect()
    }

    /// The first instant at which a charge that happened at `end` or earlier certainly counts no more.
    pub(super) fn over_by(&self, end: u64) -> u64 {
        let own = end.saturating_add(self.length_us);
        // Its period is this one or an earlier one, so it is over when this one is.
        let holding =
            self.began.partition_point(|began| began.earliest.saturating_add(self.length_us) <= end);
        self.began.get(holding).map_or(own, |began| own.min(began.latest.saturating_add(self.length_us)))
    }
}

/// Answers which is the smallest value among the pairs whose key is at or above a number.
struct Lowest {
    /// By key; the value is the smallest from there on.
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
