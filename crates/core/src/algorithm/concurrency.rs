//! Concurrency: at most `limit` units held at once, each under a lease that expires.
//!
//! - Guarantee: live leases never hold more than `limit` units together.
//! - State: the newest effective instant of a write, and the leases, ordered by their end. A lease is its end in
//!   microseconds, its token and its weight in units.
//! - Admits cost c iff `weight of live leases + c <= limit`. A lease is live until its end.
//! - Retry at: when enough leases will have expired if none is renewed or released.
//! - Key may expire at: the end of the last lease.
//! - Refund: none. The owner of the token releases its lease.
//! - Largest intermediate: `held + cost`, at most `2 * LEASES_MAX`.

use crate::algorithm::machine::{LimitStatus, Machine, Step};
use crate::answer::{Decline, Retry, Verdict};
use crate::limit::error::{LimitError, positive_at_most, positive_span};
use crate::plan::operation::{Mark, Operation, Token};
use crate::time::{Span, Time};

/// Largest weight, and so the largest number of leases, that one subject can hold.
pub const LEASES_MAX: u64 = 1 << 16;

/// At most `limit` units held at once, in leases that end `lease` after they were taken or renewed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Concurrency {
    limit: u64,
    lease: Span,
}

/// The leases that may still be live.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConcurrencyState {
    /// The newest effective instant of a write.
    pub seen: Time,
    /// Ordered by `until`, earliest first.
    pub leases: Vec<Lease>,
}

/// A part of the limit that one owner holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// When it expires.
    pub until: Time,
    /// The owner's token.
    pub token: Token,
    /// Units held.
    pub weight: u64,
}

/// What a decision asks to change in the leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseChange {
    /// The effective instant. Leases that have expired by then are dropped.
    pub now: Time,
    /// Token of the lease to remove, if it exists.
    pub remove: Token,
    /// The lease to add.
    pub add: Option<Lease>,
}

impl Concurrency {
    /// Creates a limit of `limit` units at once, in leases of length `lease`.
    pub fn new(limit: u64, lease: Span) -> Result<Concurrency, LimitError> {
        Ok(Concurrency {
            limit: positive_at_most("limit", limit, LEASES_MAX)?,
            lease: positive_span("lease", lease)?,
        })
    }

    /// Returns the units that can be held at once.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns how long a lease lasts without renewal.
    pub const fn lease(&self) -> Span {
        self.lease
    }

    fn status(&self, live: Live<'_>) -> LimitStatus {
        LimitStatus {
            limit: self.limit,
            remaining: self.limit.saturating_sub(live.weight()),
            reset_at: live.leases.last().map_or(live.now, |lease| lease.until),
        }
    }

    fn charge(&self, live: Live<'_>, cost: u64, token: Token) -> Step<LeaseChange> {
        let held = live.weight();
        let needed = cost.max(1);
        let status = self.status(live);
        if live.find(token).is_some() {
            return status.decline(Decline::TokenInUse);
        }
        if held + needed > self.limit {
            return status.unchanged(Verdict::Refused(Retry::At(self.retry(live, held + needed))));
        }
        let admitted = Verdict::Admitted { delay: Span::ZERO };
        if cost == 0 {
            return status.unchanged(admitted);
        }
        let until = live.now.plus(self.lease);
        let reset_at = if live.leases.is_empty() { until } else { until.max(status.reset_at) };
        let change = LeaseChange {
            now: live.now,
            remove: Token::NONE,
            add: Some(Lease { until, token, weight: cost }),
        };
        LimitStatus { remaining: self.limit - held - cost, reset_at, ..status }.write(
            admitted,
            Mark::Held { token, until },
            change,
            reset_at,
        )
    }

    /// Returns when enough leases will have expired, if none is renewed.
    fn retry(&self, live: Live<'_>, wanted: u64) -> Time {
        let mut excess = wanted - self.limit;
        for lease in live.leases {
            if lease.weight >= excess {
                return lease.until;
            }
            excess -= lease.weight;
        }
        live.now
    }

    fn renew(&self, live: Live<'_>, token: Token) -> Step<LeaseChange> {
        let status = self.status(live);
        let Some(lease) = live.find(token) else {
            return status.decline(Decline::NotHeld);
        };
        let until = lease.until.max(live.now.plus(self.lease));
        let reset_at = status.reset_at.max(until);
        let change = LeaseChange { now: live.now, remove: token, add: Some(Lease { until, ..*lease }) };
        LimitStatus { reset_at, ..status }.write(
            Verdict::Done { amount: lease.weight },
            Mark::Held { token, until },
            change,
            reset_at,
        )
    }

    fn release(&self, live: Live<'_>, token: Token) -> Step<LeaseChange> {
        let status = self.status(live);
        let Some(lease) = live.find(token) else {
            return status.decline(Decline::NotHeld);
        };
        let rest = live.leases.iter().rev().find(|lease| lease.token != token);
        let reset_at = rest.map_or(live.now, |lease| lease.until);
        let remaining = self.limit.saturating_sub(live.weight() - lease.weight);
        let change = LeaseChange { now: live.now, remove: token, add: None };
        LimitStatus { remaining, reset_at, ..status }.write(
            Verdict::Done { amount: lease.weight },
            Mark::None,
            change,
            reset_at,
        )
    }
}

/// The leases that are live at one instant.
#[derive(Clone, Copy)]
struct Live<'s> {
    /// Effective instant.
    now: Time,
    leases: &'s [Lease],
}

impl<'s> Live<'s> {
    fn at(state: Option<&'s ConcurrencyState>, now: Time) -> Live<'s> {
        let Some(state) = state else { return Live { now, leases: &[] } };
        let now = now.max(state.seen);
        let ended = state.leases.partition_point(|lease| lease.until <= now);
        Live { now, leases: &state.leases[ended..] }
    }

    fn weight(self) -> u64 {
        self.leases.iter().map(|lease| lease.weight).sum()
    }

    fn find(self, token: Token) -> Option<&'s Lease> {
        self.leases.iter().find(|lease| lease.token == token)
    }
}

impl Machine for Concurrency {
    type State = ConcurrencyState;
    type Change = LeaseChange;

    fn capacity(&self) -> u64 {
        self.limit
    }

    fn decide(
        &self,
        state: Option<&ConcurrencyState>,
        now: Time,
        operation: &Operation,
    ) -> Step<LeaseChange> {
        let live = Live::at(state, now);
        match *operation {
            Operation::Charge { cost, token } => self.charge(live, cost, token),
            Operation::Peek { cost } => self.charge(live, cost, Token::NONE).without_write(),
            Operation::Renew { token } => self.renew(live, token),
            Operation::Release { token } => self.release(live, token),
            _ => self.status(live).decline(Decline::NotSupported),
        }
    }

    fn commit(slot: &mut Option<ConcurrencyState>, change: LeaseChange) {
        let state = slot.get_or_insert_default();
        state.seen = change.now;
        state.leases.retain(|lease| lease.until > change.now && lease.token != change.remove);
        if let Some(lease) = change.add {
            let index = state.leases.partition_point(|other| other.until <= lease.until);
            state.leases.insert(index, lease);
        }
    }
}
