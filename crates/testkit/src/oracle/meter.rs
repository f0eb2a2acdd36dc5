//! Model of the meter: the list of charges and refunds.

use tollgate_core::{Decline, Mark, Operation, Time};

use super::{AT_ONCE, Big, Booked, END, Expected, Oracle, Status, big, done, first, time};

/// The limit's numbers.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// The largest count, if there is a limit.
    pub limit: Option<u64>,
    /// How long the counter is kept after its last write.
    pub expiry_us: u64,
}

/// All charges and refunds since the counter last started from zero.
#[derive(Default, Clone)]
pub struct MeterOracle {
    touched: Option<Big>,
    costs: Vec<Big>,
}

impl MeterOracle {
    fn effective(&self, now: Big) -> Big {
        self.touched.map_or(now, |touched| now.max(touched))
    }

    fn value(&self, expiry: Big, now: Big) -> Big {
        let kept = self.touched.is_some_and(|touched| self.effective(now) < (touched + expiry).min(END));
        if kept { self.costs.iter().sum() } else { 0 }
    }

    fn status(&self, limit: Big, expiry: Big, now: Big) -> Status {
        let reset_at = first(self.effective(now), |t| self.value(expiry, t) == 0);
        Status { limit, remaining: limit - self.value(expiry, now), reset_at }
    }

    fn add(&mut self, expiry: Big, now: Big, cost: Big) {
        if self.value(expiry, now) == 0 {
            self.costs.clear();
        }
        let at = self.effective(now);
        self.costs.push(cost);
        self.touched = Some(at);
    }
}

impl Oracle for MeterOracle {
    type Numbers = Numbers;

    fn step(&mut self, numbers: &Numbers, now: Time, operation: &Operation) -> Expected {
        let limit = numbers.limit.map_or(END, Big::from);
        let (expiry, now) = (Big::from(numbers.expiry_us), big(now));
        let status = self.status(limit, expiry, now);
        match *operation {
            Operation::Peek { cost } => {
                self.clone().step(numbers, time(now), &Operation::charge(cost)).without_write()
            }
            Operation::Charge { cost, .. } => {
                let needed = Big::from(cost.max(1));
                if self.value(expiry, now) + needed > limit {
                    return status.refused(first(now, |t| self.value(expiry, t) + needed <= limit));
                }
                if cost == 0 {
                    return status.unchanged(AT_ONCE);
                }
                self.add(expiry, now, cost.into());
                let status = self.status(limit, expiry, now);
                status.written(AT_ONCE, Mark::Counter, status.reset_at)
            }
            Operation::Refund { mark, cost, amount } => {
                let value = self.value(expiry, now);
                if value == 0 || mark != Mark::Counter {
                    return status.declined(Decline::NotHeld);
                }
                let given = value.min(cost.min(amount).into());
                self.costs.push(-given);
                self.status(limit, expiry, now).amended(given)
            }
            Operation::Record { cost } => {
                let amount = Big::from(cost).min(END - self.value(expiry, now));
                if amount > 0 {
                    self.add(expiry, now, amount);
                }
                let overdraft = self.value(expiry, now) - limit;
                let free_at = first(now, |t| self.value(expiry, t) < limit);
                let status = self.status(limit, expiry, now);
                status.recorded(Booked { amount, overdraft, free_at }, Mark::Counter, status.reset_at)
            }
            Operation::Credit { cost } => {
                let given = self.value(expiry, now).min(cost.into());
                if given == 0 {
                    return status.unchanged(done(0));
                }
                self.costs.push(-given);
                self.status(limit, expiry, now).amended(given)
            }
            _ => status.declined(Decline::NotSupported),
        }
    }
}
