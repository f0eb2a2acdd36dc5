//! Model of concurrency: the list of leases.

use tollgate_core::{Decline, Mark, Operation, Time, Token};

use super::{AT_ONCE, Big, END, Expected, Oracle, Status, big, done, first, time};

/// The limit's numbers.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// Units that can be held at once.
    pub limit: u64,
    /// How long a lease lasts.
    pub lease_us: u64,
}

/// Every lease that was taken and not released, and the newest instant of a write.
#[derive(Default, Clone)]
pub struct ConcurrencyOracle {
    seen: Big,
    leases: Vec<(Token, Big, Big)>,
}

impl ConcurrencyOracle {
    fn live(&self, now: Big) -> impl Iterator<Item = (Token, Big, Big)> + '_ {
        let now = now.max(self.seen);
        self.leases.iter().copied().filter(move |&(_, until, _)| now < until)
    }

    fn held(&self, now: Big) -> Big {
        self.live(now).map(|(_, _, weight)| weight).sum()
    }

    fn find(&self, token: Token, now: Big) -> Option<(Big, Big)> {
        self.live(now).find(|&(other, _, _)| other == token).map(|(_, until, weight)| (until, weight))
    }

    fn status(&self, limit: Big, now: Big) -> Status {
        Status {
            limit,
            remaining: limit - self.held(now),
            reset_at: first(now.max(self.seen), |t| self.live(t).next().is_none()),
        }
    }

    /// Records a write: advances time, drops expired leases, and replaces or removes the lease of `token`.
    fn set(&mut self, now: Big, token: Token, lease: Option<(Big, Big)>) {
        let kept: Vec<_> = self.live(now).filter(|&(other, _, _)| other != token).collect();
        self.leases = kept;
        self.leases.extend(lease.map(|(until, weight)| (token, until, weight)));
        self.seen = now.max(self.seen);
    }
}

impl Oracle for ConcurrencyOracle {
    type Numbers = Numbers;

    fn step(&mut self, numbers: &Numbers, now: Time, operation: &Operation) -> Expected {
        let (limit, lease, now) = (Big::from(numbers.limit), Big::from(numbers.lease_us), big(now));
        let status = self.status(limit, now);
        let until = (now.max(self.seen) + lease).min(END);
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
                self.set(now, token, Some((until, cost.into())));
                let status = self.status(limit, now);
                status.written(AT_ONCE, Mark::Held { token, until: time(until) }, status.reset_at)
            }
            Operation::Renew { token } => {
                let Some((old, weight)) = self.find(token, now) else {
                    return status.declined(Decline::NotHeld);
                };
                let until = until.max(old);
                self.set(now, token, Some((until, weight)));
                let status = self.status(limit, now);
                status.written(done(weight), Mark::Held { token, until: time(until) }, status.reset_at)
            }
            Operation::Release { token } => {
                let Some((_, weight)) = self.find(token, now) else {
                    return status.declined(Decline::NotHeld);
                };
                self.set(now, token, None);
                let status = self.status(limit, now);
                status.written(done(weight), Mark::None, status.reset_at)
            }
            _ => status.declined(Decline::NotSupported),
        }
    }
}
