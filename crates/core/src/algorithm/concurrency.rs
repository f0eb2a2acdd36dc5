//! Concurrency: at most `limit` units held at once, each under a lease that expires.
//!
//! - Guarantee: live leases never hold more than `limit` units together.
//! - State: the newest effective instant of a write, the account's generation, and the units held, as sums by end
//!   (`hold_sums.rs`). Each lease has a separate record with its generation, end and weight (`plan/hold.rs`).
//! - Admits cost c iff `live units + c <= limit`. Units are live until the end of their pair, which is the lease's end
//!   unless holds of many lengths share the account.
//! - A lease ends at most 1/32 of its length later than asked.
//! - Retry at: when enough leases will have expired if none is renewed or released.
//! - Key may expire at: the end of the last pair. A lease's record: the end of the lease.
//! - Refund: none. The owner of the token releases its lease.
//! - Largest intermediate: `held + cost`, at most `2 * LEASES_MAX`.

use crate::algorithm::hold_sums::{self, HoldSums, Pair};
use crate::algorithm::machine::{LimitStatus, Machine, Step};
use crate::limit::error::{LimitError, positive_at_most, positive_span};
use crate::plan::answer::{Decline, Retry, Verdict};
use crate::plan::hold::{Generation, Hold, HoldChange, HoldLookup, HoldStatus, HoldWrite};
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

/// The units that may still be held.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConcurrencyState {
    /// The newest effective instant of a write.
    pub seen: Time,
    /// Distinguishes this state from one that was reset or evicted.
    pub generation: Generation,
    /// Units held, by end.
    pub sums: HoldSums,
}

/// What a decision asks to write: the new state, and the change to the lease's record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseChange {
    /// The new state.
    pub state: ConcurrencyState,
    /// The change to the lease's record.
    pub hold: HoldChange,
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

    /// Returns how long a lease lasts without renewal, before its end is rounded up.
    pub const fn lease(&self) -> Span {
        self.lease
    }

    fn status(&self, now: Time, pairs: &[Pair]) -> LimitStatus {
        LimitStatus {
            limit: self.limit,
            remaining: self.limit.saturating_sub(hold_sums::total(pairs)),
            reset_at: pairs.last().map_or(now, |pair| pair.end),
        }
    }

    fn charge(&self, live: &Live<'_>, hold: HoldLookup<'_>, cost: u64, token: Token) -> Step<LeaseChange> {
        let held = hold_sums::total(live.pairs);
        let needed = cost.max(1);
        let status = self.status(live.now, live.pairs);
        if live.find(hold).is_some() {
            return status.decline(Decline::TokenInUse);
        }
        if held + needed > self.limit {
            let retry = hold_sums::ends_by(live.pairs, held + needed - self.limit).unwrap_or(live.now);
            return status.unchanged(Verdict::Refused(Retry::At(retry)));
        }
        let admitted = Verdict::Admitted { delay: Span::ZERO };
        if cost == 0 {
            return status.unchanged(admitted);
        }
        if hold == HoldLookup::NoRoom {
            return status.decline(Decline::TooManyReservations);
        }
        let end = hold_sums::end_of(live.now, self.lease);
        let mut sums = HoldSums::of(live.pairs);
        sums.add(end, cost);
        let generation = live.generation.unwrap_or(Generation::new(live.now, token));
        let lease = Hold { generation, end, units: cost, status: HoldStatus::Open };
        self.set(live.now, sums, admitted, token, lease)
    }

    fn renew(&self, live: &Live<'_>, hold: HoldLookup<'_>, token: Token) -> Step<LeaseChange> {
        let Some(lease) = live.find(hold) else {
            return self.status(live.now, live.pairs).decline(Decline::NotHeld);
        };
        let end = lease.end.max(hold_sums::end_of(live.now, self.lease));
        let mut sums = HoldSums::of(live.pairs);
        sums.take(lease.end, lease.units);
        sums.add(end, lease.units);
        self.set(live.now, sums, Verdict::Done { amount: lease.units }, token, Hold { end, ..*lease })
    }

    fn release(&self, live: &Live<'_>, hold: HoldLookup<'_>, token: Token) -> Step<LeaseChange> {
        let Some(lease) = live.find(hold) else {
            return self.status(live.now, live.pairs).decline(Decline::NotHeld);
        };
        let mut sums = HoldSums::of(live.pairs);
        sums.take(lease.end, lease.units);
        let status = self.status(live.now, &sums.pairs);
        let state = ConcurrencyState { seen: live.now, generation: lease.generation, sums };
        let change = LeaseChange { state, hold: HoldChange { token, record: None } };
        status.write(Verdict::Done { amount: lease.units }, Mark::None, change, status.reset_at)
    }

    /// Writes the sums and the record of a lease that is taken or renewed.
    fn set(
        &self,
        now: Time,
        sums: HoldSums,
        verdict: Verdict,
        token: Token,
        lease: Hold,
    ) -> Step<LeaseChange> {
        let status = self.status(now, &sums.pairs);
        let state = ConcurrencyState { seen: now, generation: lease.generation, sums };
        let record = Some(HoldWrite { hold: lease, dies_at: lease.end });
        let mark = Mark::Held { token, until: lease.end };
        let change = LeaseChange { state, hold: HoldChange { token, record } };
        status.write(verdict, mark, change, status.reset_at)
    }
}

/// What is held at one instant.
struct Live<'s> {
    /// Effective instant.
    now: Time,
    pairs: &'s [Pair],
    /// `None` if there is no state.
    generation: Option<Generation>,
}

impl<'s> Live<'s> {
    fn at(state: Option<&'s ConcurrencyState>, now: Time) -> Live<'s> {
        let Some(state) = state else { return Live { now, pairs: &[], generation: None } };
        let now = now.max(state.seen);
        Live { now, pairs: hold_sums::live(&state.sums, now), generation: Some(state.generation) }
    }

    /// Returns the lease if its units are held.
    fn find<'h>(&self, hold: HoldLookup<'h>) -> Option<&'h Hold> {
        let generation = self.generation?;
        hold.record().filter(|lease| lease.is_held(self.now, generation))
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
        self.decide_hold(state, HoldLookup::None, now, operation)
    }

    fn decide_hold(
        &self,
        state: Option<&ConcurrencyState>,
        hold: HoldLookup<'_>,
        now: Time,
        operation: &Operation,
    ) -> Step<LeaseChange> {
        let live = Live::at(state, now);
        match *operation {
            Operation::Charge { cost, token } => self.charge(&live, hold, cost, token),
            Operation::Peek { cost } => {
                self.charge(&live, HoldLookup::None, cost, Token::NONE).without_write()
            }
            Operation::Renew { token } => self.renew(&live, hold, token),
            Operation::Release { token } => self.release(&live, hold, token),
            Operation::Usage => self
                .status(live.now, live.pairs)
                .unchanged(Verdict::Usage { used: 0, held: hold_sums::total(live.pairs) }),
            _ => self.status(live.now, live.pairs).decline(Decline::NotSupported),
        }
    }

    fn commit(slot: &mut Option<ConcurrencyState>, change: LeaseChange) {
        *slot = Some(change.state);
    }

    fn hold_change(change: &LeaseChange) -> Option<HoldChange> {
        Some(change.hold)
    }
}
