//! Model of concurrency: every lease that was ever taken, and the units that count until each end.

use std::collections::BTreeMap;

use tollgate_core::{Decline, Mark, Operation, Time, Token, Verdict};

use super::held_units::{HeldUnits, rounded_end};
use super::{AT_ONCE, Big, Expected, Oracle, Status, big, done, first, small, time};

/// The limit's numbers.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// Units that can be held at once.
    pub limit: u64,
    /// How long a lease lasts.
    pub lease_us: u64,
}

/// The units that are held, the newest instant of a write, and all leases that were not released.
#[derive(Default, Clone)]
pub struct ConcurrencyOracle {
    seen: Big,
    units: HeldUnits,
    leases: BTreeMap<Token, Lease>,
    /// How often the account was lost. A lease from before a loss is not held.
    losses: u32,
}

#[derive(Clone, Copy)]
struct Lease {
    end: Big,
    weight: Big,
    losses: u32,
}

impl ConcurrencyOracle {
    fn held(&self, now: Big) -> Big {
        self.units.at(now.max(self.seen))
    }

    fn find(&self, token: Token, now: Big) -> Option<Lease> {
        let now = now.max(self.seen);
        let lease = self.leases.get(&token).copied();
        lease.filter(|lease| now < lease.end && lease.losses == self.losses)
    }

    fn status(&self, limit: Big, now: Big) -> Status {
        Status {
            limit,
            remaining: limit - self.held(now),
            reset_at: first(now.max(self.seen), |t| self.held(t) == 0),
        }
    }

    /// Takes the units of an old lease, books those of a new one, and returns the new numbers.
    fn set(&mut self, limit: Big, now: Big, token: Token, old: Option<Lease>, new: Option<Lease>) -> Status {
        self.seen = now.max(self.seen);
        self.units.expire(self.seen);
        if let Some(old) = old {
            self.units.take(old.end, old.weight);
            self.leases.remove(&token);
        }
        if let Some(new) = new {
            self.units.add(new.end, new.weight);
            self.leases.insert(token, new);
        }
        self.status(limit, now)
    }
}

impl Oracle for ConcurrencyOracle {
    type Numbers = Numbers;

    fn step(&mut self, numbers: &Numbers, now: Time, operation: &Operation) -> Expected {
        let (limit, now) = (Big::from(numbers.limit), big(now));
        let status = self.status(limit, now);
        let end = rounded_end(now.max(self.seen), numbers.lease_us.into());
        let held_until = |token: Token, end: Big| Mark::Held { token, until: time(end) };
        match *operation {
            Operation::Peek { cost } => {
                let without_token = Operation::Charge { cost, token: Token::NONE };
                self.clone().step(numbers, time(now), &without_token).without_write()
            }
            Operation::Charge { cost, token } => {
                let needed = Big::from(cost.max(1));
                if self.find(token, now).is_some() {
                    return status.declined(Decline::TokenInUse);
                }
                if self.held(now) + needed > limit {
                    return status.refused(first(now, |t| self.held(t) + needed <= limit));
                }
                if cost == 0 {
                    return status.unchanged(AT_ONCE);
                }
                let lease = Lease { end, weight: cost.into(), losses: self.losses };
                let status = self.set(limit, now, token, None, Some(lease));
                status.written(AT_ONCE, held_until(token, end), status.reset_at)
            }
            Operation::Renew { token } => {
                let Some(old) = self.find(token, now) else { return status.declined(Decline::NotHeld) };
                let new = Lease { end: end.max(old.end), ..old };
                let status = self.set(limit, now, token, Some(old), Some(new));
                status.written(done(old.weight), held_until(token, new.end), status.reset_at)
            }
            Operation::Release { token } => {
                let Some(old) = self.find(token, now) else { return status.declined(Decline::NotHeld) };
                let status = self.set(limit, now, token, Some(old), None);
                status.written(done(old.weight), Mark::None, status.reset_at)
            }
            Operation::Usage => status.unchanged(Verdict::Usage { used: 0, held: small(self.held(now)) }),
            _ => status.declined(Decline::NotSupported),
        }
    }

    fn lose(&mut self) {
        (self.seen, self.units) = (0, HeldUnits::default());
        self.losses += 1;
    }
}
