//! Model of the quota: the units used in the newest period, and the list of reservations.

use tollgate_core::algorithm::quota::QuotaPeriod;
use tollgate_core::{Decline, Mark, Operation, Time, Token};

use super::{AT_ONCE, Big, END, Expected, Oracle, Status, big, done, first, time};

/// The limit's numbers, with the periods that the caller computed.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// Units per period.
    pub allowance: u64,
    /// Extra units that are admitted.
    pub grace: u64,
    /// The periods.
    pub period: QuotaPeriod,
}

/// The newest period seen, and what happened in it.
#[derive(Default, Clone)]
pub struct QuotaOracle {
    record: Option<Record>,
}

#[derive(Clone)]
struct Record {
    start: Big,
    end: Big,
    seen: Big,
    costs: Vec<Big>,
    held: Vec<(Token, Big, Big)>,
}

/// Largest number of open reservations.
const MOST_HELD: usize = 4_096;

impl QuotaOracle {
    fn effective(&self, now: Big) -> Big {
        self.record.as_ref().map_or(now, |record| now.max(record.seen))
    }

    /// Returns the end of the newest period under these numbers. A rolling period keeps its start.
    fn recorded_end(&self, numbers: &Numbers) -> Option<Big> {
        self.record.as_ref().map(|record| match numbers.period {
            QuotaPeriod::Calendar(_) => record.end,
            QuotaPeriod::Rolling(length) => (record.start + Big::from(length.us())).min(END),
        })
    }

    fn running(&self, numbers: &Numbers, now: Big) -> Option<&Record> {
        let running = self.recorded_end(numbers).is_some_and(|end| self.effective(now) < end);
        self.record.as_ref().filter(|_| running)
    }

    fn used(&self, numbers: &Numbers, now: Big) -> Big {
        self.running(numbers, now).map_or(0, |record| record.costs.iter().sum())
    }

    fn held(&self, numbers: &Numbers, now: Big) -> Vec<(Token, Big, Big)> {
        let at = self.effective(now);
        let held = self.running(numbers, now).map(|record| record.held.clone()).unwrap_or_default();
        held.into_iter().filter(|&(_, until, _)| at < until).collect()
    }

    fn taken(&self, numbers: &Numbers, now: Big) -> Big {
        self.used(numbers, now) + self.held(numbers, now).iter().map(|&(_, _, cost)| cost).sum::<Big>()
    }

    fn find(&self, numbers: &Numbers, now: Big, token: Token) -> Option<Big> {
        self.held(numbers, now).into_iter().find(|&(other, _, _)| other == token).map(|(_, _, cost)| cost)
    }

    /// Returns the period in force, or `None` if the caller's periods do not cover `now`.
    fn period(&self, numbers: &Numbers, now: Big) -> Option<(Big, Big)> {
        let at = self.effective(now);
        match numbers.period {
            QuotaPeriod::Calendar(periods) => {
                let starts = periods.starts().map(big);
                starts.windows(2).find(|pair| pair[0] <= at && at < pair[1]).map(|pair| (pair[0], pair[1]))
            }
            QuotaPeriod::Rolling(length) => {
                let start = self.running(numbers, now).map_or(at, |record| record.start);
                Some((start, (start + Big::from(length.us())).min(END)))
            }
        }
    }

    fn status(&self, numbers: &Numbers, now: Big, fresh_end: Big) -> Status {
        let allowance = Big::from(numbers.allowance);
        let reset_at = match (self.running(numbers, now), numbers.period) {
            (Some(_), _) => self.recorded_end(numbers).unwrap_or(fresh_end),
            (None, QuotaPeriod::Calendar(_)) => fresh_end,
            (None, QuotaPeriod::Rolling(_)) => self.effective(now),
        };
        Status { limit: allowance, remaining: allowance - self.taken(numbers, now), reset_at }
    }

    fn write(&mut self, numbers: &Numbers, now: Big, (start, end): (Big, Big), cost: Big) {
        let held = self.held(numbers, now);
        let mut costs = self.running(numbers, now).map(|record| record.costs.clone()).unwrap_or_default();
        costs.push(cost);
        self.record = Some(Record { start, end, seen: self.effective(now), costs, held });
    }

    /// Returns the status even if the caller's periods do not cover `now`.
    fn any_status(&self, numbers: &Numbers, now: Big) -> Status {
        match self.period(numbers, now) {
            Some((_, end)) => self.status(numbers, now, end),
            None => {
                let at = self.effective(now);
                Status { limit: numbers.allowance.into(), remaining: 0, reset_at: at }
            }
        }
    }

    fn refund(&mut self, numbers: &Numbers, now: Big, mark: Mark, amount: Big) -> Expected {
        let status = self.any_status(numbers, now);
        let at = self.effective(now);
        let Some(record) = &mut self.record else { return status.declined(Decline::NotHeld) };
        // The end of the period of the charge under the numbers that charged.
        let end = match numbers.period {
            QuotaPeriod::Rolling(length) => Some((record.start + Big::from(length.us())).min(END)),
            QuotaPeriod::Calendar(periods) => {
                let starts = periods.starts().map(big);
                starts.windows(2).find(|pair| pair[0] == record.start).map(|pair| pair[1])
            }
        };
        let Some(end) = end.filter(|_| mark == Mark::Window { start: time(record.start) }) else {
            return status.declined(Decline::NotHeld);
        };
        if record.end != end {
            return status.declined(Decline::WindowChanged);
        }
        let used: Big = record.costs.iter().sum();
        if used == 0 || at >= end {
            return status.declined(Decline::NotHeld);
        }
        let given = used.min(amount);
        record.costs.push(-given);
        self.any_status(numbers, now).amended(given)
    }

    fn drop_held(&mut self, token: Token) {
        if let Some(record) = &mut self.record {
            record.held.retain(|&(other, _, _)| other != token);
        }
    }
}

impl Oracle for QuotaOracle {
    type Numbers = Numbers;

    fn step(&mut self, numbers: &Numbers, now: Time, operation: &Operation) -> Expected {
        let now = big(now);
        let ceiling = Big::from(numbers.allowance) + Big::from(numbers.grace);
        if let Operation::Refund { mark, cost, amount } = *operation {
            return self.refund(numbers, now, mark, cost.min(amount).into());
        }
        let Some(period) = self.period(numbers, now) else {
            let at = self.effective(now);
            let status = Status { limit: numbers.allowance.into(), remaining: 0, reset_at: at };
            return status.declined(Decline::Recompute { at: time(at) });
        };
        let (start, end) = period;
        let status = self.status(numbers, now, end);
        let refusal = |needed: Big| {
            let fits = |t: Big| self.taken(numbers, t) + needed <= ceiling;
            (!fits(now)).then(|| status.refused(first(now, fits)))
        };
        match *operation {
            Operation::Peek { cost } => {
                self.clone().step(numbers, time(now), &Operation::charge(cost)).without_write()
            }
            Operation::Charge { cost, .. } => {
                if let Some(refused) = refusal(Big::from(cost.max(1))) {
                    return refused;
                }
                if cost == 0 {
                    return status.unchanged(AT_ONCE);
                }
                self.write(numbers, now, period, cost.into());
                self.status(numbers, now, end).written(AT_ONCE, Mark::Window { start: time(start) }, end)
            }
            Operation::Reserve { cost, token, hold } => {
                if self.find(numbers, now, token).is_some() {
                    return status.declined(Decline::TokenInUse);
                }
                if let Some(refused) = refusal(Big::from(cost.max(1))) {
                    return refused;
                }
                if self.held(numbers, now).len() >= MOST_HELD {
                    return status.declined(Decline::TooManyReservations);
                }
                if cost == 0 {
                    return status.unchanged(AT_ONCE);
                }
                let until = (self.effective(now) + Big::from(hold.us())).min(end);
                self.write(numbers, now, period, 0);
                if let Some(record) = &mut self.record {
                    record.held.push((token, until, cost.into()));
                }
                // The answer counts the reservation even if it expires at once.
                let status = self.status(numbers, now, end);
                let over = if until > self.effective(now) { 0 } else { Big::from(cost) };
                let status = Status { remaining: status.remaining - over, ..status };
                status.written(AT_ONCE, Mark::Held { token, until: time(until) }, end)
            }
            Operation::Settle { token, actual } => {
                let used = self.used(numbers, now);
                if self.find(numbers, now, token).is_none() {
                    return status.declined(Decline::NotHeld);
                }
                if used + Big::from(actual) > END {
                    return status.declined(Decline::Overflow);
                }
                self.write(numbers, now, period, actual.into());
                self.drop_held(token);
                let mark = Mark::Window { start: time(start) };
                self.status(numbers, now, end).written(done(actual.into()), mark, end)
            }
            Operation::Cancel { token } => {
                let Some(cost) = self.find(numbers, now, token) else {
                    return status.declined(Decline::NotHeld);
                };
                self.write(numbers, now, period, 0);
                self.drop_held(token);
                self.status(numbers, now, end).written(done(cost), Mark::None, end)
            }
            _ => status.declined(Decline::NotSupported),
        }
    }
}
