//! Model of the sliding window: the units of each bucket, weighted one by one.

use std::collections::BTreeMap;

use tollgate_core::algorithm::sliding_window::Counting;
use tollgate_core::{Decline, Mark, Operation, Time};

use super::{AT_ONCE, Big, Booked, END, Expected, Oracle, Status, big, ceil_div, done, first, floor, time};

/// The limit's numbers.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// Units per window.
    pub limit: u64,
    /// The window's length.
    pub window_us: u64,
    /// Buckets per window.
    pub buckets: u64,
    /// How much of the oldest bucket counts.
    pub counting: Counting,
}

/// Units by the first instant of their bucket, and the buckets' length.
#[derive(Default, Clone)]
pub struct SlidingWindowOracle {
    length: Big,
    buckets: u64,
    newest: Option<Big>,
    units: BTreeMap<Big, Big>,
}

impl Numbers {
    pub(super) fn bucket(&self) -> Big {
        Big::from(self.window_us) / Big::from(self.buckets)
    }

    /// Interpolation counts in milliseconds if microseconds would exceed 2^53.
    pub(super) fn tick(&self) -> Big {
        match self.counting {
            Counting::Interpolated if Big::from(self.limit) * self.bucket() > END => 1_000,
            _ => 1,
        }
    }

    pub(super) fn most_per_bucket(&self) -> Big {
        match self.counting {
            Counting::Strict => END,
            Counting::Interpolated => END / (self.bucket() / self.tick()),
        }
    }
}

impl SlidingWindowOracle {
    fn effective(&self, now: Big) -> Big {
        self.newest.map_or(now, |newest| now.max(newest))
    }

    /// Returns the units per bucket of this limit. Units of another bucket length go to the bucket that contains the last
    /// instant of their old bucket.
    fn rebucketed(&self, numbers: &Numbers) -> BTreeMap<Big, Big> {
        let mut units = BTreeMap::new();
        for (&start, &count) in &self.units {
            let bucket = floor((start + self.length - 1).min(END), numbers.bucket());
            let sum = units.entry(bucket).or_insert(0);
            *sum = (*sum + count).min(numbers.most_per_bucket());
        }
        units
    }

    fn used(&self, numbers: &Numbers, now: Big) -> Big {
        let now = self.effective(now);
        let (bucket, tick) = (numbers.bucket(), numbers.tick());
        let oldest = floor(now, bucket) - Big::from(numbers.buckets) * bucket;
        let weigh = |(&start, &count): (&Big, &Big)| match numbers.counting {
            _ if start > oldest => count,
            Counting::Strict if start == oldest => count,
            Counting::Interpolated if start == oldest => {
                let left = bucket / tick - (now % bucket) / tick;
                ceil_div(count * left, bucket / tick)
            }
            _ => 0,
        };
        self.rebucketed(numbers).iter().map(weigh).sum::<Big>().min(END)
    }

    fn status(&self, numbers: &Numbers, now: Big) -> Status {
        let limit = Big::from(numbers.limit);
        Status {
            limit,
            remaining: limit - self.used(numbers, now),
            reset_at: first(self.effective(now), |t| self.used(numbers, t) == 0),
        }
    }

    fn write(&mut self, numbers: &Numbers, now: Big) {
        let bucket = numbers.bucket();
        let start = floor(self.effective(now), bucket);
        let oldest = start - Big::from(numbers.buckets) * bucket;
        let rebucketed = self.rebucketed(numbers);
        self.units.clear();
        for (at, count) in rebucketed.into_iter().filter(|&(at, _)| at >= oldest) {
            let sum = self.units.entry(at.min(start)).or_insert(0);
            *sum = (*sum + count).min(numbers.most_per_bucket());
        }
        (self.length, self.buckets, self.newest) = (bucket, numbers.buckets, Some(start));
    }
}

impl Oracle for SlidingWindowOracle {
    type Numbers = Numbers;

    fn step(&mut self, numbers: &Numbers, now: Time, operation: &Operation) -> Expected {
        let (asked_at, limit) = (big(now), Big::from(numbers.limit));
        let now = self.effective(asked_at);
        let status = self.status(numbers, now);
        match *operation {
            Operation::Peek { cost } => {
                self.clone().step(numbers, time(now), &Operation::charge(cost)).without_write()
            }
            Operation::Charge { cost, .. } => {
                let needed = Big::from(cost.max(1));
                if self.used(numbers, now) + needed > limit {
                    let retry = first(self.effective(now), |t| self.used(numbers, t) + needed <= limit);
                    return status.refused(retry);
                }
                if cost == 0 {
                    return status.unchanged(AT_ONCE);
                }
                let used = self.used(numbers, now) + Big::from(cost);
                self.write(numbers, now);
                let start = self.newest.unwrap_or(0);
                let sum = self.units.entry(start).or_insert(0);
                *sum = (*sum + Big::from(cost)).min(numbers.most_per_bucket());
                let status = Status { remaining: limit - used, ..self.status(numbers, now) };
                status.written(AT_ONCE, Mark::Window { start: time(start) }, status.reset_at)
            }
            Operation::Refund { mark, cost, amount } => {
                if self.newest.is_some() && (self.length, self.buckets) != (numbers.bucket(), numbers.buckets)
                {
                    return status.declined(Decline::WindowChanged);
                }
                let Mark::Window { start: at } = mark else { return status.declined(Decline::NotHeld) };
                let start = floor(self.effective(now), numbers.bucket());
                let oldest = start - Big::from(numbers.buckets) * numbers.bucket();
                let held = self.units.get(&big(at)).copied().unwrap_or(0);
                if held == 0 || !(oldest..=start).contains(&big(at)) {
                    return status.declined(Decline::NotHeld);
                }
                let before = self.used(numbers, now);
                self.units.insert(big(at), held - held.min(cost.min(amount).into()));
                self.status(numbers, now).amended(before - self.used(numbers, now))
            }
            Operation::Record { cost } => {
                let mut next = self.clone();
                next.write(numbers, now);
                let (start, sum) = (next.newest.unwrap_or(0), next.units.values().sum::<Big>());
                let newest = next.units.entry(start).or_insert(0);
                let room = (numbers.most_per_bucket() - *newest).min(END - sum).max(0);
                let amount = room.min(cost.into());
                *newest += amount;
                if amount > 0 {
                    *self = next;
                }
                let overdraft = self.used(numbers, now) - limit;
                let free_at = first(asked_at, |t| self.used(numbers, t) < limit);
                let status = self.status(numbers, now);
                let mark = Mark::Window { start: time(start) };
                status.recorded(Booked { amount, overdraft, free_at }, mark, status.reset_at)
            }
            Operation::Credit { cost } => {
                let before = self.used(numbers, now);
                if before == 0 || cost == 0 {
                    return status.unchanged(done(0));
                }
                self.write(numbers, now);
                let mut missing = Big::from(cost);
                for count in self.units.values_mut() {
                    let taken = missing.min(*count);
                    *count -= taken;
                    missing -= taken;
                }
                let (status, after) = (self.status(numbers, now), self.used(numbers, now));
                if after == 0 {
                    return status.amended(before);
                }
                status.written(done(before - after), Mark::None, status.reset_at)
            }
            _ => status.declined(Decline::NotSupported),
        }
    }
}
