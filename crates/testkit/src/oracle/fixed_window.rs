//! Model of the fixed window: the list of charges with their window.

use tollgate_core::{Decline, Mark, Operation, Time};

use super::{AT_ONCE, Big, Booked, END, Expected, Oracle, Status, big, done, first, floor, time};

/// The limit's numbers.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// Units per window.
    pub limit: u64,
    /// The window's length.
    pub window_us: u64,
}

/// All charges of the newest window seen.
#[derive(Default, Clone)]
pub struct FixedWindowOracle {
    window: Option<(Big, Big)>,
    length: Option<Big>,
    costs: Vec<Big>,
}

impl FixedWindowOracle {
    fn effective(&self, now: Big) -> Big {
        self.window.map_or(now, |(start, _)| now.max(start))
    }

    fn used(&self, now: Big) -> Big {
        let running = self.window.is_some_and(|(_, end)| self.effective(now) < end);
        if running { self.costs.iter().sum() } else { 0 }
    }

    fn status(&self, limit: Big, length: Big, now: Big) -> Status {
        let own_end = floor(self.effective(now), length) + length;
        let end = self.window.map(|(_, end)| end).filter(|&end| self.effective(now) < end).unwrap_or(own_end);
        Status { limit, remaining: limit - self.used(now), reset_at: end }
    }

    fn book(&mut self, length: Big, now: Big, cost: Big) -> (Big, Big) {
        if self.used(now) == 0 {
            self.costs.clear();
        }
        let start = floor(self.effective(now), length);
        self.window = Some((start, (start + length).min(END)));
        self.length = Some(length);
        self.costs.push(cost);
        (start, start + length)
    }
}

impl Oracle for FixedWindowOracle {
    type Numbers = Numbers;

    fn step(&mut self, numbers: &Numbers, now: Time, operation: &Operation) -> Expected {
        let (limit, length, now) = (Big::from(numbers.limit), Big::from(numbers.window_us), big(now));
        let status = self.status(limit, length, now);
        match *operation {
            Operation::Peek { cost } => {
                self.clone().step(numbers, time(now), &Operation::charge(cost)).without_write()
            }
            Operation::Charge { cost, .. } => {
                let needed = Big::from(cost.max(1));
                if self.used(now) + needed > limit {
                    return status.refused(first(now, |t| self.used(t) + needed <= limit));
                }
                if cost == 0 {
                    return status.unchanged(AT_ONCE);
                }
                let (start, end) = self.book(length, now, cost.into());
                self.status(limit, length, now).written(AT_ONCE, Mark::Window { start: time(start) }, end)
            }
            Operation::Refund { mark, cost, amount } => {
                if self.length.is_some_and(|other| other != length) {
                    return status.declined(Decline::WindowChanged);
                }
                let used = self.used(now);
                let here = self.window.is_some_and(|(start, _)| mark == Mark::Window { start: time(start) });
                if used == 0 || !here {
                    return status.declined(Decline::NotHeld);
                }
                let given = used.min(cost.min(amount).into());
                self.costs.push(-given);
                self.status(limit, length, now).amended(given)
            }
            Operation::Record { cost } => {
                let amount = Big::from(cost).min(END - self.used(now));
                let end = self.effective(now) - self.effective(now) % length + length;
                if amount > 0 {
                    self.book(length, now, amount);
                }
                let (overdraft, free_at) = (self.used(now) - limit, first(now, |t| self.used(t) < limit));
                let mark = Mark::Window { start: time(end - length) };
                self.status(limit, length, now).recorded(Booked { amount, overdraft, free_at }, mark, end)
            }
            Operation::Credit { cost } => {
                let given = self.used(now).min(cost.into());
                if given == 0 {
                    return status.unchanged(done(0));
                }
                self.costs.push(-given);
                self.status(limit, length, now).amended(given)
            }
            _ => status.declined(Decline::NotSupported),
        }
    }
}
