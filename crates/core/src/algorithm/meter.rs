//! Meter: a plain counter with an optional limit, which expires when it is not written for long enough.
//!
//! - Guarantee: charges never bring the counter above `limit`. Records may.
//! - State: the count in units, and the instant of the last write in microseconds.
//! - Admits cost c iff `value + c <= limit`.
//! - Retry at: when the counter expires, if it is not written before.
//! - Key may expire at: last write + `expiry`.
//! - Refund: subtracts, but not below zero.
//! - Record: adds, up to 2^53 - 1. Credit: subtracts like a refund.
//! - Largest intermediate: `value + cost`. Lua compares `cost <= limit - value` instead.

use crate::algorithm::machine::{LimitStatus, Machine, Step, Write};
use crate::limit::error::{LimitError, positive, positive_span};
use crate::plan::answer::{Answer, Decline, Retry, Verdict};
use crate::plan::operation::{Mark, Operation};
use crate::time::{EXACT_MAX, Span, Time};

/// Default time without writes after which a meter expires. No state is kept forever.
pub const EXPIRY_DEFAULT: Span = Span::from_secs(10 * 366 * 86_400);

/// A counter that admits up to `limit`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Meter {
    limit: u64,
    expiry: Span,
}

/// A count and when it was last written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MeterState {
    /// Units counted.
    pub value: u64,
    /// When it was last written.
    pub touched: Time,
}

impl Meter {
    /// Creates a counter. Without a limit it stops at 2^53 - 1, the largest exact integer.
    pub fn new(limit: Option<u64>, expiry: Option<Span>) -> Result<Meter, LimitError> {
        Ok(Meter {
            limit: positive("limit", limit.unwrap_or(EXACT_MAX))?,
            expiry: positive_span("expiry", expiry.unwrap_or(EXPIRY_DEFAULT))?,
        })
    }

    /// Returns the largest count that is admitted.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns how long the counter is kept after its last write.
    pub const fn expiry(&self) -> Span {
        self.expiry
    }

    /// Returns the meter with corrections and grants. Its limit may be 0.
    pub(crate) fn with_extra(&self, extra: i64) -> Meter {
        Meter { limit: self.limit.saturating_add_signed(extra).min(EXACT_MAX), ..*self }
    }

    fn current(&self, state: Option<&MeterState>, now: Time) -> MeterState {
        let touched = state.map_or(now, |state| now.max(state.touched));
        let live = state.filter(|state| touched < state.touched.plus(self.expiry));
        MeterState { value: live.map_or(0, |state| state.value), touched }
    }

    fn status(&self, value: u64, reset_at: Time) -> LimitStatus {
        LimitStatus { limit: self.limit, remaining: self.limit.saturating_sub(value), reset_at }
    }

    fn charge(&self, state: Option<&MeterState>, now: Time, cost: u64) -> Step<MeterState> {
        let MeterState { value, touched } = self.current(state, now);
        if value + cost.max(1) > self.limit {
            let free_at = self.free_at(state, value, touched);
            return self.status(value, free_at).unchanged(Verdict::Refused(Retry::At(free_at)));
        }
        if cost == 0 {
            let status = self.status(value, self.free_at(state, value, touched));
            return status.unchanged(Verdict::Admitted { delay: Span::ZERO });
        }
        let left = MeterState { value: value + cost, touched };
        let answer = self.admission_answer(&left);
        Step { answer, write: Some(Write { change: left, dies_at: Some(answer.reset_at) }) }
    }

    /// Returns the state after a charge of 1 to `limit` units, or `None` if it is refused.
    ///
    /// This is all that a store must compute under a lock. [`admission_answer`](Self::admission_answer) does the rest.
    #[inline]
    pub fn try_charge(&self, state: Option<&MeterState>, now: Time, cost: u64) -> Option<MeterState> {
        let MeterState { value, touched } = self.current(state, now);
        (value + cost <= self.limit).then_some(MeterState { value: value + cost, touched })
    }

    /// Returns the answer to the charge that produced the state `left`.
    #[inline]
    pub fn admission_answer(&self, left: &MeterState) -> Answer {
        let status = self.status(left.value, left.touched.plus(self.expiry));
        Answer { mark: Mark::Counter, ..status.answer(Verdict::Admitted { delay: Span::ZERO }) }
    }

    fn refund(&self, state: Option<&MeterState>, now: Time, mark: Mark, amount: u64) -> Step<MeterState> {
        let MeterState { value, touched } = self.current(state, now);
        let held = state.filter(|_| value > 0 && mark == Mark::Counter);
        let Some(state) = held else {
            return self.status(value, self.free_at(state, value, touched)).decline(Decline::NotHeld);
        };
        let given = amount.min(value);
        let next = MeterState { value: value - given, ..*state };
        let free_at = self.free_at(Some(&next), next.value, touched);
        self.status(next.value, free_at).amend(Verdict::Done { amount: given }, next)
    }

    fn record(&self, state: Option<&MeterState>, now: Time, cost: u64) -> Step<MeterState> {
        let MeterState { value, touched } = self.current(state, now);
        let amount = cost.min(EXACT_MAX - value);
        let left = MeterState { value: value + amount, touched };
        let free_at =
            if amount == 0 { self.free_at(state, value, touched) } else { touched.plus(self.expiry) };
        let recorded = Verdict::Recorded {
            amount,
            overdraft: left.value.saturating_sub(self.limit),
            free_at: if left.value < self.limit { now } else { free_at },
        };
        let status = self.status(left.value, free_at);
        if amount == 0 {
            return status.unchanged(recorded);
        }
        status.write(recorded, Mark::Counter, left, free_at)
    }

    fn credit(&self, state: Option<&MeterState>, now: Time, cost: u64) -> Step<MeterState> {
        let MeterState { value, touched } = self.current(state, now);
        let amount = cost.min(value);
        let next = state.map(|state| MeterState { value: value - amount, ..*state });
        let status = self.status(value - amount, self.free_at(next.as_ref(), value - amount, touched));
        match next {
            Some(next) if amount > 0 => status.amend(Verdict::Done { amount }, next),
            _ => status.unchanged(Verdict::Done { amount }),
        }
    }

    /// Returns when the counter is zero again if it is not written before.
    fn free_at(&self, state: Option<&MeterState>, value: u64, now: Time) -> Time {
        state.filter(|_| value > 0).map_or(now, |state| state.touched.plus(self.expiry))
    }
}

impl Machine for Meter {
    type State = MeterState;
    type Change = MeterState;

    fn capacity(&self) -> u64 {
        self.limit
    }

    fn decide(&self, state: Option<&MeterState>, now: Time, operation: &Operation) -> Step<MeterState> {
        match *operation {
            Operation::Charge { cost, .. } => self.charge(state, now, cost),
            Operation::Peek { cost } => self.charge(state, now, cost).without_write(),
            Operation::Refund { mark, cost, amount } => self.refund(state, now, mark, amount.min(cost)),
            Operation::Record { cost } => self.record(state, now, cost),
            Operation::Credit { cost } => self.credit(state, now, cost),
            _ => {
                let MeterState { value, touched } = self.current(state, now);
                self.status(value, self.free_at(state, value, touched)).decline(Decline::NotSupported)
            }
        }
    }

    fn commit(slot: &mut Option<MeterState>, change: MeterState) {
        *slot = Some(change);
    }
}
