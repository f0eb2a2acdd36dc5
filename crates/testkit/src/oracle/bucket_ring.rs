//! Model of a sliding window of many buckets: the list of charges, each at the start of its bucket.

use std::collections::BTreeMap;

use tollgate_core::algorithm::sliding_window::Counting;
use tollgate_core::{Decline, Mark, Operation, Time};

use super::sliding_window::Numbers;
use super::{AT_ONCE, Big, Booked, END, Expected, Oracle, Status, big, ceil_div, done, first, floor, time};

/// How many of the newest buckets with charges a refund reaches.
const REACH: usize = 16;

/// Units by the first instant of their bucket, and the buckets' length. A bucket that was refunded stays, with 0 units.
#[derive(Default, Clone)]
pub struct BucketRingOracle {
    length: Big,
    units: BTreeMap<Big, Big>,
}

impl BucketRingOracle {
    fn effective(&self, now: Big) -> Big {
        self.units.keys().next_back().map_or(now, |newest| now.max(*newest))
    }

    /// Returns the start of the bucket in which a stored bucket counts: the one that contains its last instant.
    fn counted_start(&self, numbers: &Numbers, start: Big) -> Big {
        floor((start + self.length - 1).min(END), numbers.bucket())
    }

    /// Returns the start of the oldest bucket that counts at `now`.
    fn oldest(numbers: &Numbers, now: Big) -> Big {
        floor(now, numbers.bucket()) - Big::from(numbers.buckets) * numbers.bucket()
    }

    fn used(&self, numbers: &Numbers, now: Big) -> Big {
        let now = self.effective(now);
        let (bucket, tick, oldest) = (numbers.bucket(), numbers.tick(), Self::oldest(numbers, now));
        let (mut newer, mut in_oldest) = (0, 0);
        for (&start, &count) in &self.units {
            match self.counted_start(numbers, start) {
                start if start > oldest => newer += count,
                start if start == oldest => in_oldest += count,
                _ => (),
            }
        }
        let weighed = match numbers.counting {
            Counting::Strict => in_oldest,
            Counting::Interpolated => {
                let left = bucket / tick - (now % bucket) / tick;
                ceil_div(in_oldest.min(numbers.most_per_bucket()) * left, bucket / tick)
            }
        };
        (newer + weighed).min(END)
    }

    fn status(&self, numbers: &Numbers, now: Big) -> Status {
        let limit = Big::from(numbers.limit);
        Status {
            limit,
            remaining: limit - self.used(numbers, now),
            reset_at: first(self.effective(now), |t| self.used(numbers, t) == 0),
        }
    }

    /// Drops buckets that no longer count, and cuts the others to this limit's buckets, none later than the current one.
    fn prune(&mut self, numbers: &Numbers, now: Big) {
        let (start, oldest) = (floor(now, numbers.bucket()), Self::oldest(numbers, now));
        let mut kept = BTreeMap::new();
        for (&at, &count) in &self.units {
            let at = self.counted_start(numbers, at);
            if at >= oldest {
                *kept.entry(at.min(start)).or_insert(0) += count;
            }
        }
        (self.units, self.length) = (kept, numbers.bucket());
    }
}

impl Oracle for BucketRingOracle {
    type Numbers = Numbers;

    fn step(&mut self, numbers: &Numbers, now: Time, operation: &Operation) -> Expected {
        let (asked_at, limit) = (big(now), Big::from(numbers.limit));
        let now = self.effective(asked_at);
        let status = self.status(numbers, now);
        let lifetime = Big::from(numbers.buckets + 1) * numbers.bucket();
        match *operation {
            Operation::Peek { cost } => {
                self.clone().step(numbers, time(now), &Operation::charge(cost)).without_write()
            }
            Operation::Charge { cost, .. } => {
                let needed = Big::from(cost.max(1));
                if self.used(numbers, now) + needed > limit {
                    return status.refused(first(now, |t| self.used(numbers, t) + needed <= limit));
                }
                if cost == 0 {
                    return status.unchanged(AT_ONCE);
                }
                self.prune(numbers, now);
                let start = floor(now, numbers.bucket());
                *self.units.entry(start).or_insert(0) += Big::from(cost);
                let mark = Mark::Window { start: time(start) };
                self.status(numbers, now).written(AT_ONCE, mark, start + lifetime)
            }
            Operation::Refund { mark: Mark::Window { start }, cost, amount } => {
                let start = big(start);
                let held = self.units.get(&start).copied();
                let newer = self.units.range(start..).count();
                match held {
                    Some(_) if self.length == numbers.bucket() && start >= Self::oldest(numbers, now) => (),
                    _ => return status.declined(Decline::NotHeld),
                }
                if newer > REACH {
                    return status.declined(Decline::TooOld);
                }
                let given = held.unwrap_or(0).min(cost.min(amount).into());
                if given == 0 {
                    return status.declined(Decline::NotHeld);
                }
                let before = self.used(numbers, now);
                *self.units.entry(start).or_insert(0) -= given;
                self.status(numbers, now).amended(before - self.used(numbers, now))
            }
            Operation::Refund { .. } => status.declined(Decline::NotHeld),
            Operation::Record { cost } => {
                let start = floor(now, numbers.bucket());
                let since = |from: Big| -> Big {
                    let counts =
                        self.units.iter().filter(|(at, _)| self.counted_start(numbers, **at) >= from);
                    counts.map(|(_, count)| count).sum()
                };
                let room = numbers.most_per_bucket() - since(start);
                let room = room.min(END - since(Self::oldest(numbers, now))).max(0);
                let amount = room.min(cost.into());
                if amount > 0 {
                    self.prune(numbers, now);
                    *self.units.entry(start).or_insert(0) += amount;
                }
                let overdraft = self.used(numbers, now) - limit;
                let free_at = first(asked_at, |t| self.used(numbers, t) < limit);
                let (status, mark) = (self.status(numbers, now), Mark::Window { start: time(start) });
                status.recorded(Booked { amount, overdraft, free_at }, mark, start + lifetime)
            }
            Operation::Credit { cost } => {
                let before = self.used(numbers, now);
                if before == 0 || cost == 0 {
                    return status.unchanged(done(0));
                }
                let (oldest, mut missing) = (Self::oldest(numbers, now), Big::from(cost));
                let mut left = BTreeMap::new();
                for (&at, &count) in &self.units {
                    let counts = self.counted_start(numbers, at) >= oldest;
                    let taken = missing.min(count);
                    // The first bucket that keeps something ends the search. Empty ones before it are dropped.
                    if counts && (count > taken || !left.is_empty()) {
                        left.insert(at, count - taken);
                    }
                    missing -= if counts { taken } else { 0 };
                }
                let (is_empty, newest) = (left.is_empty(), self.units.keys().next_back().copied());
                // Without units, the newest bucket stays, so that time does not run backwards.
                left.extend(newest.filter(|_| is_empty).map(|newest| (newest, 0)));
                self.units = left;
                let (status, after) = (self.status(numbers, now), self.used(numbers, now));
                if is_empty {
                    return status.amended(before);
                }
                status.written(done(before - after), Mark::None, status.reset_at)
            }
            _ => status.declined(Decline::NotSupported),
        }
    }
}
