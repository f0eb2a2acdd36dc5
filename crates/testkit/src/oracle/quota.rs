//! Model of the quota: the units used and held in the newest period, and every reservation that was ever made.

use std::collections::BTreeMap;

use tollgate_core::algorithm::quota::QuotaPeriod;
use tollgate_core::{Decline, Mark, Operation, Time, Token, Verdict};

use super::held_units::{HeldUnits, rounded_end};
use super::{AT_ONCE, Big, Booked, END, Expected, Oracle, Status, big, done, first, small, time};

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

/// The newest period seen, what happened in it, and all reservations.
#[derive(Default, Clone)]
pub struct QuotaOracle {
    record: Option<Record>,
    reservations: BTreeMap<Token, Reservation>,
    /// How many accounts there were: one more after each loss and in each new period. A reservation is held in its own.
    accounts: u32,
}

#[derive(Clone)]
struct Record {
    start: Big,
    end: Big,
    seen: Big,
    costs: Vec<Big>,
    held: HeldUnits,
}

#[derive(Clone, Copy)]
struct Reservation {
    end: Big,
    units: Big,
    account: u32,
    settled: Option<Verdict>,
    cancelled: bool,
}

/// How long a reservation is remembered after its end.
const REMEMBERED_US: Big = 3_600_000_000;

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

    fn reserved(&self, numbers: &Numbers, now: Big) -> Big {
        self.running(numbers, now).map_or(0, |record| record.held.at(self.effective(now)))
    }

    fn taken(&self, numbers: &Numbers, now: Big) -> Big {
        self.used(numbers, now) + self.reserved(numbers, now)
    }

    /// Returns the reservation if its units are held.
    fn find(&self, numbers: &Numbers, now: Big, token: Token) -> Option<Reservation> {
        self.running(numbers, now)?;
        let open = |it: &Reservation| {
            it.settled.is_none()
                && !it.cancelled
                && self.effective(now) < it.end
                && it.account == self.accounts
        };
        self.reservations.get(&token).copied().filter(open)
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

    /// Records a write of `cost` more units and returns what is held.
    fn write(&mut self, numbers: &Numbers, now: Big, (start, end): (Big, Big), cost: Big) -> &mut HeldUnits {
        let seen = self.effective(now);
        let (mut costs, mut held) = match self.running(numbers, now) {
            Some(record) => (record.costs.clone(), record.held.clone()),
            None => {
                self.accounts += 1;
                Default::default()
            }
        };
        costs.push(cost);
        held.expire(seen);
        &mut self.record.insert(Record { start, end, seen, costs, held }).held
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
}

impl Oracle for QuotaOracle {
    type Numbers = Numbers;

    fn step(&mut self, numbers: &Numbers, now: Time, operation: &Operation) -> Expected {
        let now = big(now);
        let ceiling = Big::from(numbers.allowance) + Big::from(numbers.grace);
        if let Operation::Refund { mark, cost, amount } = *operation
            && !matches!(mark, Mark::Held { .. })
        {
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
                if cost == 0 {
                    return status.unchanged(AT_ONCE);
                }
                let (at, units) = (self.effective(now), Big::from(cost));
                let until = rounded_end(at, hold.us().into()).min(end);
                let held = self.write(numbers, now, period, 0);
                if until > at {
                    held.add(until, units);
                }
                let account = self.accounts;
                let made = Reservation { end: until, units, account, settled: None, cancelled: false };
                self.reservations.insert(token, made);
                // The answer counts the reservation even if it expires at once.
                let status = self.status(numbers, now, end);
                let over = if until > at { 0 } else { units };
                let status = Status { remaining: status.remaining - over, ..status };
                status.written(AT_ONCE, Mark::Held { token, until: time(until) }, end)
            }
            Operation::Extend { token, more, hold } => {
                let Some(found) = self.find(numbers, now, token) else {
                    return status.declined(Decline::NotHeld);
                };
                if let Some(refused) = refusal(Big::from(more.max(1))) {
                    return refused;
                }
                if more == 0 {
                    return status.unchanged(AT_ONCE);
                }
                let until = rounded_end(self.effective(now), hold.us().into()).min(end).max(found.end);
                let units = found.units + Big::from(more);
                let held = self.write(numbers, now, period, 0);
                held.take(found.end, found.units);
                held.add(until, units);
                self.reservations.insert(token, Reservation { end: until, units, ..found });
                let mark = Mark::Held { token, until: time(until) };
                self.status(numbers, now, end).written(AT_ONCE, mark, end)
            }
            // Takes back what an extension added.
            Operation::Refund { mark: Mark::Held { token, .. }, cost, amount } => {
                let Some(found) = self.find(numbers, now, token).filter(|found| found.units > 0) else {
                    return status.declined(Decline::NotHeld);
                };
                let given = found.units.min(cost.min(amount).into());
                self.write(numbers, now, period, 0).take(found.end, given);
                self.reservations.insert(token, Reservation { units: found.units - given, ..found });
                self.status(numbers, now, end).written(done(given), Mark::None, end)
            }
            Operation::RecordIn { cost, start: asked } if big(asked) != start => {
                let length = match numbers.period {
                    QuotaPeriod::Calendar(_) => None,
                    QuotaPeriod::Rolling(length) => Some(Big::from(length.us())),
                };
                let length = length.filter(|_| self.running(numbers, now).is_none());
                let asked_end = length.map(|length| (big(asked) + length).min(END));
                let at = self.effective(now);
                let Some(end) = asked_end.filter(|end| big(asked) <= at && at < *end) else {
                    return status.declined(Decline::WindowChanged);
                };
                if cost == 0 {
                    let booked = Booked { amount: 0, overdraft: -Big::from(numbers.allowance), free_at: now };
                    return status.recorded(booked, Mark::None, end);
                }
                self.write(numbers, now, (big(asked), end), cost.into());
                let overdraft = Big::from(cost) - Big::from(numbers.allowance);
                let free_at = if Big::from(cost) < ceiling { now } else { end };
                let mark = Mark::Window { start: asked };
                self.status(numbers, now, end).recorded(
                    Booked { amount: cost.into(), overdraft, free_at },
                    mark,
                    end,
                )
            }
            Operation::Record { cost } | Operation::RecordIn { cost, .. } => {
                let amount = Big::from(cost).min((END - self.taken(numbers, now)).max(0));
                if amount > 0 {
                    self.write(numbers, now, period, amount);
                }
                let overdraft = self.taken(numbers, now) - Big::from(numbers.allowance);
                let free_at = first(now, |t| self.taken(numbers, t) < ceiling);
                let mark = Mark::Window { start: time(start) };
                self.status(numbers, now, end).recorded(Booked { amount, overdraft, free_at }, mark, end)
            }
            Operation::Usage => {
                let (used, held) = (self.used(numbers, now), self.reserved(numbers, now));
                status.unchanged(Verdict::Usage { used: small(used), held: small(held) })
            }
            Operation::Credit { cost } => {
                let given = self.used(numbers, now).min(cost.into());
                let Some(record) = self.record.as_mut().filter(|_| given > 0) else {
                    return status.unchanged(done(0));
                };
                record.costs.push(-given);
                self.status(numbers, now, end).amended(given)
            }
            Operation::Settle { token, actual } => {
                let at = self.effective(now);
                let known = self.reservations.get(&token).copied();
                let known = known.filter(|it| at < (it.end + REMEMBERED_US).min(END));
                let Some(known) = known else { return status.declined(Decline::NotHeld) };
                if let Some(first_answer) = known.settled {
                    return status.unchanged(first_answer);
                }
                let (held, late) = (self.find(numbers, now, token).is_some(), known.end <= at);
                if known.cancelled || !held && !late {
                    return status.declined(Decline::NotHeld);
                }
                let given_back = if held { known.units } else { 0 };
                if self.taken(numbers, now) - given_back + Big::from(actual) > END {
                    return status.declined(Decline::Overflow);
                }
                let units = self.write(numbers, now, period, actual.into());
                if held {
                    units.take(known.end, known.units);
                }
                let verdict = if held {
                    done(actual.into())
                } else {
                    Verdict::BookedLate { amount: small(actual.into()) }
                };
                self.reservations.insert(token, Reservation { settled: Some(verdict), ..known });
                let mark = Mark::Window { start: time(start) };
                self.status(numbers, now, end).written(verdict, mark, end)
            }
            Operation::Cancel { token } => {
                let Some(found) = self.find(numbers, now, token) else {
                    return status.declined(Decline::NotHeld);
                };
                self.write(numbers, now, period, 0).take(found.end, found.units);
                self.reservations.insert(token, Reservation { cancelled: true, ..found });
                self.status(numbers, now, end).written(done(found.units), Mark::None, end)
            }
            _ => status.declined(Decline::NotSupported),
        }
    }

    fn lose(&mut self) {
        self.record = None;
        self.accounts += 1;
    }
}
