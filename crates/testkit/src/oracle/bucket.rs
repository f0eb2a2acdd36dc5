//! Model of token bucket, leaky meter and leaky shaper: a debt as a fraction.

use tollgate_core::algorithm::bucket::BucketKind;
use tollgate_core::{Decline, Mark, Operation, Span, Time, Verdict};

use super::{Big, Booked, END, Expected, Oracle, Status, big, ceil_div, done, first, floor, small, time};

/// The limit's numbers.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// Units per period.
    pub rate: u64,
    /// The period.
    pub period_us: u64,
    /// The capacity, or the queue length of a shaper.
    pub capacity: u64,
    /// Token bucket, meter or shaper.
    pub kind: BucketKind,
}

/// A debt of `debt / scale` units at the instant `at`.
#[derive(Default, Clone)]
pub struct BucketOracle {
    owed: Option<Owed>,
}

#[derive(Clone, Copy)]
struct Owed {
    debt: Big,
    scale: Big,
    at: Big,
}

/// A record brings about at most the debt that drains in this time, or in two fill times if they are longer.
const MONTH_US: Big = 31 * 24 * 3_600 * 1_000_000;

/// The rate as a fraction per tick.
struct Rate {
    tick: Big,
    drain: Big,
    scale: Big,
}

impl Numbers {
    fn ceiling(&self) -> Big {
        match self.kind {
            BucketKind::Queue => Big::from(self.capacity) + 1,
            BucketKind::Tokens | BucketKind::Meter => self.capacity.into(),
        }
    }

    /// Uses microseconds if twice the capacity fits, otherwise milliseconds.
    fn rate(&self) -> Rate {
        let per = |tick: Big| {
            let (rate, ticks) = (Big::from(self.rate), Big::from(self.period_us) / tick);
            let common = euclid(rate, ticks);
            Rate { tick, drain: rate / common, scale: ticks / common }
        };
        let micro = per(1);
        if 2 * self.ceiling() * micro.scale <= END { micro } else { per(1_000) }
    }
}

fn euclid(mut a: Big, mut b: Big) -> Big {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl BucketOracle {
    fn effective(&self, rate: &Rate, now: Big) -> Big {
        let now = floor(now, rate.tick);
        self.owed.map_or(now, |owed| now.max(ceil_div(owed.at, rate.tick) * rate.tick))
    }

    /// Returns the debt in this rate's scale.
    fn debt(&self, numbers: &Numbers, rate: &Rate, now: Big) -> Big {
        let Some(owed) = self.owed else { return 0 };
        let ticks = (self.effective(rate, now) - ceil_div(owed.at, rate.tick) * rate.tick) / rate.tick;
        let most = END - numbers.ceiling() * rate.scale;
        let debt = ceil_div(owed.debt * rate.scale, owed.scale).min(most);
        (debt - ticks * rate.drain).max(0)
    }

    fn status(&self, numbers: &Numbers, rate: &Rate, now: Big) -> Status {
        let free = numbers.ceiling() * rate.scale - self.debt(numbers, rate, now);
        Status {
            limit: numbers.ceiling(),
            remaining: free.max(0) / rate.scale,
            reset_at: first(self.effective(rate, now), |t| self.debt(numbers, rate, t) == 0),
        }
    }
}

impl Oracle for BucketOracle {
    type Numbers = Numbers;

    fn step(&mut self, numbers: &Numbers, now: Time, operation: &Operation) -> Expected {
        let (rate, now) = (numbers.rate(), big(now));
        let at = self.effective(&rate, now);
        let debt = self.debt(numbers, &rate, now);
        let status = self.status(numbers, &rate, now);
        let full = numbers.ceiling() * rate.scale;
        let refundable = numbers.kind != BucketKind::Queue;
        match *operation {
            Operation::Peek { cost } => {
                self.clone().step(numbers, time(now), &Operation::charge(cost)).without_write()
            }
            Operation::Charge { cost, .. } => {
                let needed = Big::from(cost.max(1)) * rate.scale;
                if debt + needed > full {
                    return status.refused(first(at, |t| self.debt(numbers, &rate, t) + needed <= full));
                }
                // A shaper delays until everything before it has drained.
                let delay = if refundable { 0 } else { ceil_div(debt, rate.drain) * rate.tick };
                let admitted = Verdict::Admitted { delay: Span::from_us(small(delay)) };
                if cost == 0 {
                    return status.unchanged(admitted);
                }
                let mark = if refundable { Mark::At { time: time(at) } } else { Mark::None };
                self.owed = Some(Owed { debt: debt + Big::from(cost) * rate.scale, scale: rate.scale, at });
                let status = self.status(numbers, &rate, now);
                status.written(admitted, mark, status.reset_at)
            }
            Operation::Refund { mark: Mark::At { time: charged_at }, cost, amount } if refundable => {
                let Some(owed) = self.owed else { return status.declined(Decline::NotHeld) };
                let drained_since = |instant: Big| {
                    let ticks = (at - instant).max(0) / rate.tick;
                    (ticks * rate.drain).min(END)
                };
                // What the numbers that charged say is left of the charge.
                let cost = Big::from(cost).min((END - full) / rate.scale);
                let left = cost * rate.scale - drained_since(floor(big(charged_at), rate.tick));
                let left = left.min(Big::from(amount).min(cost) * rate.scale).max(0);
                // Both in the scale of the debt: what is given rounds down, what has drained rounds up.
                let given = (left * owed.scale / rate.scale).min(END);
                let drained = drained_since(ceil_div(owed.at, rate.tick) * rate.tick);
                let drained = ceil_div(drained * owed.scale, rate.scale).min(END);
                let given = given.min(owed.debt - drained);
                if given <= 0 {
                    return status.declined(Decline::NotHeld);
                }
                self.owed = Some(Owed { debt: owed.debt - given, ..owed });
                self.status(numbers, &rate, now).amended(given / owed.scale)
            }
            Operation::Refund { .. } if refundable => status.declined(Decline::NotHeld),
            Operation::Record { cost } => {
                let month = MONTH_US / rate.tick * rate.drain;
                let most = month.max(2 * full).min(END - full);
                let amount = Big::from(cost).min((most - debt).max(0) / rate.scale);
                if amount > 0 {
                    self.owed = Some(Owed { debt: debt + amount * rate.scale, scale: rate.scale, at });
                }
                let owes = |t: Big| self.debt(numbers, &rate, t);
                let free_at = if refundable {
                    first(now, |t| owes(t) + rate.scale <= full)
                } else {
                    now + ceil_div(debt, rate.drain) * rate.tick
                };
                let overdraft = ceil_div((owes(now) - full).max(0), rate.scale);
                let mark = if refundable { Mark::At { time: time(at) } } else { Mark::None };
                let status = self.status(numbers, &rate, now);
                status.recorded(Booked { amount, overdraft, free_at }, mark, status.reset_at)
            }
            Operation::Credit { cost } if refundable => {
                let given = debt.min(Big::from(cost) * rate.scale);
                if given == 0 {
                    return status.unchanged(done(0));
                }
                self.owed = Some(Owed { debt: debt - given, scale: rate.scale, at });
                let status = self.status(numbers, &rate, now);
                if given == debt {
                    return status.amended(given / rate.scale);
                }
                status.written(done(given / rate.scale), Mark::None, status.reset_at)
            }
            _ => status.declined(Decline::NotSupported),
        }
    }
}
