//! Parts of a limit, each with a separate key: sharded rules.
//!
//! A rule with n shards has n keys for each subject, in as many hash slots as there are. Each key has a part of the limit,
//! and the parts add up to the limit. A request asks one shard only, so the sum admitted never exceeds the limit, and a
//! request may be refused while another shard still has room.

use std::num::NonZeroU8;

use crate::algorithm::bucket::{Bucket, BucketKind};
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::quota::{Quota, QuotaPeriod};
use crate::algorithm::sliding_window::SlidingWindow;
use crate::limit::Limit;
use crate::time::Span;

/// Into how many parts a rule's limit is divided.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shards {
    count: NonZeroU8,
}

/// One of the parts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shard {
    /// Less than the number of parts.
    index: u8,
    of: Shards,
}

impl Shards {
    /// Smallest number of parts.
    pub const MIN: u64 = 2;
    /// Largest number of parts. Usage, records and resets ask all of them.
    pub const MAX: u64 = 32;

    /// Returns this number of parts, or `None` if it is out of range.
    pub fn new(count: u64) -> Option<Shards> {
        if !(Shards::MIN..=Shards::MAX).contains(&count) {
            return None;
        }
        u8::try_from(count).ok().and_then(NonZeroU8::new).map(|count| Shards { count })
    }

    /// Returns the number of parts.
    pub const fn count(self) -> u64 {
        self.count.get() as u64
    }

    /// Returns the shard that a request with this seed asks.
    pub const fn of_seed(self, seed: u64) -> Shard {
        Shard { index: (seed % self.count()) as u8, of: self }
    }

    /// Returns all shards, in order.
    pub fn all(self) -> impl Iterator<Item = Shard> {
        (0..self.count.get()).map(move |index| Shard { index, of: self })
    }

    /// Returns the shard with the smallest part.
    pub const fn smallest(self) -> Shard {
        Shard { index: self.count.get() - 1, of: self }
    }
}

impl Shard {
    /// Returns its number, counted from 0.
    pub const fn index(self) -> u64 {
        self.index as u64
    }

    /// Returns the shards that it is one of.
    pub const fn of(self) -> Shards {
        self.of
    }

    /// Returns its part of some units: the first `units mod n` shards have one more than the others.
    pub const fn part_of(self, units: u64) -> u64 {
        let count = self.of.count();
        units / count + if self.index() < units % count { 1 } else { 0 }
    }

    /// Returns the shard that is `steps` further on, after the last one the first again.
    #[must_use]
    pub const fn plus(self, steps: u64) -> Shard {
        let count = self.of.count();
        Shard { index: ((self.index() + steps % count) % count) as u8, of: self.of }
    }
}

impl Limit {
    /// Returns one shard's part of this limit, or `None` if the limit cannot be divided into that number of parts.
    ///
    /// The parts of all shards add up to the limit: capacities by whole units, rates exactly.
    pub fn part(&self, shard: Shard) -> Option<Limit> {
        let part = |units: u64| shard.part_of(units);
        match *self {
            Limit::FixedWindow(limit) => {
                FixedWindow::new(part(limit.limit()), limit.window()).ok().map(Limit::FixedWindow)
            }
            Limit::SlidingWindow(limit) => {
                SlidingWindow::new(part(limit.limit()), limit.window(), limit.buckets(), limit.counting())
                    .ok()
                    .map(Limit::SlidingWindow)
            }
            Limit::Bucket(limit) => part_of_bucket(&limit, shard).map(Limit::Bucket),
            Limit::Quota(limit) => match limit.period() {
                QuotaPeriod::Calendar(_) => {
                    Quota::new(part(limit.allowance()), part(limit.grace()), limit.period())
                        .ok()
                        .map(Limit::Quota)
                }
                // Each shard would start its period at its own first charge.
                QuotaPeriod::Rolling(_) => None,
            },
            Limit::SlidingLog(_) | Limit::Concurrency(_) | Limit::Meter(_) | Limit::Penalty(_) => None,
        }
    }
}

/// The same amount in n times the period, and a part of the capacity. `None` if a tick cannot express that rate exactly.
fn part_of_bucket(limit: &Bucket, shard: Shard) -> Option<Bucket> {
    let make = match limit.kind() {
        BucketKind::Tokens => Bucket::tokens,
        BucketKind::Meter => Bucket::meter,
        BucketKind::Queue => return None,
    };
    let (amount, ticks) = limit.rate();
    let period = ticks.checked_mul(limit.tick().us())?.checked_mul(shard.of().count())?;
    make(amount, Span::from_us(period), shard.part_of(limit.capacity())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::concurrency::Concurrency;
    use crate::algorithm::sliding_log::SlidingLog;
    use crate::algorithm::sliding_window::Counting;

    fn shards(count: u64) -> Shards {
        Shards::new(count).unwrap()
    }

    #[test]
    fn the_first_shards_have_one_unit_more() {
        let parts: Vec<u64> = shards(8).all().map(|shard| shard.part_of(803)).collect();
        assert_eq!(parts, [101, 101, 101, 100, 100, 100, 100, 100]);
        assert_eq!(shards(8).smallest().part_of(803), 100);
    }

    #[test]
    fn the_parts_of_every_limit_add_up_to_it() {
        let minute = Span::from_secs(60);
        let limits = [
            Limit::FixedWindow(FixedWindow::new(103, minute).unwrap()),
            Limit::SlidingWindow(SlidingWindow::new(103, minute, 6, Counting::Strict).unwrap()),
            Limit::Bucket(Bucket::tokens(7, Span::from_secs(1), 103).unwrap()),
            Limit::Bucket(Bucket::meter(7, Span::from_us(3), 103).unwrap()),
        ];
        for limit in limits {
            for count in 2..=32 {
                let parts = shards(count).all().map(|shard| limit.part(shard).unwrap());
                assert_eq!(parts.map(|part| part.capacity()).sum::<u64>(), 103, "{limit:?} in {count}");
            }
        }
    }

    #[test]
    fn the_rates_of_all_parts_of_a_bucket_add_up_exactly() {
        for (rate, period_us) in [(7, 1_000_000), (1_000_000, 1_000_000), (3, 7), (1, 86_400_000_000)] {
            let whole = Bucket::tokens(rate, Span::from_us(period_us), 1_000).unwrap();
            for count in [2, 3, 8, 31, 32] {
                let Some(Limit::Bucket(part)) = Limit::Bucket(whole).part(shards(count).smallest()) else {
                    panic!("{rate} per {period_us} us in {count}");
                };
                let per_us = |bucket: &Bucket| {
                    let (drain, scale) = bucket.rate();
                    (u128::from(drain), u128::from(scale) * u128::from(bucket.tick().us()))
                };
                let ((drain, time), (part_drain, part_time)) = (per_us(&whole), per_us(&part));
                assert_eq!(
                    part_drain * u128::from(count) * time,
                    drain * part_time,
                    "{rate}/{period_us}/{count}"
                );
            }
        }
    }

    #[test]
    fn limits_without_parts_have_none() {
        let shard = shards(2).of_seed(0);
        let second = Span::from_secs(1);
        for limit in [
            Limit::Concurrency(Concurrency::new(8, second).unwrap()),
            Limit::SlidingLog(SlidingLog::new(8, second).unwrap()),
            Limit::Quota(Quota::new(8, 0, QuotaPeriod::Rolling(second)).unwrap()),
            Limit::Bucket(Bucket::queue(8, second, 8).unwrap()),
            Limit::FixedWindow(FixedWindow::new(1, second).unwrap()),
        ] {
            let parts = shards(2).all().filter(|shard| limit.part(*shard).is_some()).count();
            assert!(parts < 2, "{limit:?} has {parts} parts");
        }
        assert!(Limit::FixedWindow(FixedWindow::new(2, second).unwrap()).part(shard).is_some());
        assert_eq!((Shards::new(1), Shards::new(33)), (None, None));
    }

    #[test]
    fn shards_follow_each_other_in_a_circle() {
        let first = shards(3).of_seed(4);
        assert_eq!(first.index(), 1);
        let order: Vec<u64> = (0..4).map(|steps| first.plus(steps).index()).collect();
        assert_eq!(order, [1, 2, 0, 1]);
    }
}
