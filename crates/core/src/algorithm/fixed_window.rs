//! Fixed window: at most `limit` units in each aligned window.
//!
//! - Guarantee: no window admits more than `limit` units. A burst across a window's end can get up to `2 * limit`.
//!   Records are not admitted and may exceed it.
//! - State: start of the newest window seen and its length, both in microseconds, and the units used in it.
//! - Admits cost c iff `used + c <= limit`.
//! - Retry at: the end of the window whose units are counted.
//! - Key may expire at: the same instant.
//! - Refund: only while the window of the charge is the one in the state, and has the same length.
//! - Record: adds to the units used, up to 2^53 - 1. Credit: subtracts, but not below zero, and keeps the expiry.
//! - Largest intermediate: `used + cost`, below 2^54. Lua compares `cost <= limit - used` instead.

use crate::algorithm::machine::{LimitStatus, Machine, Step, Write};
use crate::limit::error::{LimitError, positive, positive_span};
use crate::plan::answer::{Answer, Decline, Retry, Verdict};
use crate::plan::operation::{Mark, Operation};
use crate::time::{EXACT_MAX, Span, Time};

/// At most `limit` units in each window of length `window`, aligned to 1970.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FixedWindow {
    limit: u64,
    window: Span,
}

/// The units used in the newest window seen.
///
/// The state includes the window's length, so that a limit with another length knows that it must convert.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FixedWindowState {
    /// First instant of the window.
    pub start: Time,
    /// The window's length.
    pub window: Span,
    /// Units charged in the window.
    pub used: u64,
}

impl FixedWindow {
    /// Creates a limit of `limit` units per `window`.
    pub fn new(limit: u64, window: Span) -> Result<FixedWindow, LimitError> {
        Ok(FixedWindow { limit: positive("limit", limit)?, window: positive_span("window", window)? })
    }

    /// Returns the units per window.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the window's length.
    pub const fn window(&self) -> Span {
        self.window
    }

    /// Returns the window in force at `now` and the units that count. Units count until the window in which they were
    /// charged ends, even if that window had another length.
    fn current(&self, state: Option<&FixedWindowState>, now: Time) -> Current {
        let now = state.map_or(now, |state| now.max(state.start));
        // Avoids a division, the most expensive step of a decision: a state of the same length knows its start.
        let same = state.filter(|state| state.window == self.window && now < state.start.plus(self.window));
        let start = same.map_or_else(|| now.floor(self.window), |state| state.start);
        let held =
            state.map(|state| (state.used, state.start.plus(state.window))).filter(|&(_, end)| now < end);
        let (used, free_at) = held.unwrap_or((0, start.plus(self.window)));
        Current { start, used, free_at }
    }

    fn status(&self, used: u64, reset_at: Time) -> LimitStatus {
        LimitStatus { limit: self.limit, remaining: self.limit.saturating_sub(used), reset_at }
    }

    fn charge(&self, current: Current, cost: u64) -> Step<FixedWindowState> {
        let Current { start, used, free_at } = current;
        if used + cost.max(1) > self.limit {
            return self.status(used, free_at).unchanged(Verdict::Refused(Retry::At(free_at)));
        }
        if cost == 0 {
            return self.status(used, free_at).unchanged(Verdict::Admitted { delay: Span::ZERO });
        }
        let left = FixedWindowState { start, window: self.window, used: used + cost };
        let answer = self.admission_answer(&left);
        Step { answer, write: Some(Write { change: left, dies_at: Some(answer.reset_at) }) }
    }

    /// Returns the state after a charge of 1 to `limit` units, or `None` if it is refused.
    ///
    /// This is all that a store must compute under a lock. [`admission_answer`](Self::admission_answer) does the rest.
    #[inline]
    pub fn try_charge(
        &self,
        state: Option<&FixedWindowState>,
        now: Time,
        cost: u64,
    ) -> Option<FixedWindowState> {
        let Current { start, used, .. } = self.current(state, now);
        let used = used + cost;
        (used <= self.limit).then_some(FixedWindowState { start, window: self.window, used })
    }

    /// Returns the answer to the charge that produced the state `left`.
    #[inline]
    pub fn admission_answer(&self, left: &FixedWindowState) -> Answer {
        let status = self.status(left.used, left.start.plus(self.window));
        let mark = Mark::Window { start: left.start };
        Answer { mark, ..status.answer(Verdict::Admitted { delay: Span::ZERO }) }
    }

    fn refund(
        &self,
        state: Option<&FixedWindowState>,
        current: Current,
        mark: Mark,
        amount: u64,
    ) -> Step<FixedWindowState> {
        let Current { used, free_at, .. } = current;
        let status = self.status(used, free_at);
        match state {
            Some(state) if state.window != self.window => status.decline(Decline::WindowChanged),
            Some(state) if used > 0 && mark == (Mark::Window { start: state.start }) => {
                let given = amount.min(used);
                let next = FixedWindowState { used: used - given, ..*state };
                self.status(next.used, free_at).amend(Verdict::Done { amount: given }, next)
            }
            _ => status.decline(Decline::NotHeld),
        }
    }

    fn record(&self, current: Current, now: Time, cost: u64) -> Step<FixedWindowState> {
        let Current { start, used, free_at } = current;
        let amount = cost.min(EXACT_MAX - used);
        let left = FixedWindowState { start, window: self.window, used: used + amount };
        let free_at = if amount == 0 { free_at } else { start.plus(self.window) };
        let recorded = Verdict::Recorded {
            amount,
            overdraft: left.used.saturating_sub(self.limit),
            free_at: if left.used < self.limit { now } else { free_at },
        };
        let status = self.status(left.used, free_at);
        if amount == 0 {
            return status.unchanged(recorded);
        }
        status.write(recorded, Mark::Window { start }, left, free_at)
    }

    /// Takes units out of the window in the state, whatever its length, as long as it counts.
    fn credit(
        &self,
        state: Option<&FixedWindowState>,
        current: Current,
        cost: u64,
    ) -> Step<FixedWindowState> {
        let Current { used, free_at, .. } = current;
        let amount = cost.min(used);
        let (status, done) = (self.status(used - amount, free_at), Verdict::Done { amount });
        match state {
            Some(state) if amount > 0 => {
                status.amend(done, FixedWindowState { used: used - amount, ..*state })
            }
            _ => status.unchanged(done),
        }
    }
}

/// The window in force, and the units that count.
#[derive(Clone, Copy)]
struct Current {
    start: Time,
    used: u64,
    /// When `used` stops counting.
    free_at: Time,
}

impl Machine for FixedWindow {
    type State = FixedWindowState;
    type Change = FixedWindowState;

    fn capacity(&self) -> u64 {
        self.limit
    }

    fn decide(
        &self,
        state: Option<&FixedWindowState>,
        now: Time,
        operation: &Operation,
    ) -> Step<FixedWindowState> {
        let current = self.current(state, now);
        match *operation {
            Operation::Charge { cost, .. } => self.charge(current, cost),
            Operation::Peek { cost } => self.charge(current, cost).without_write(),
            Operation::Refund { mark, cost, amount } => self.refund(state, current, mark, amount.min(cost)),
            Operation::Record { cost } => self.record(current, now, cost),
            Operation::Credit { cost } => self.credit(state, current, cost),
            _ => self.status(current.used, current.free_at).decline(Decline::NotSupported),
        }
    }

    fn commit(slot: &mut Option<FixedWindowState>, change: FixedWindowState) {
        *slot = Some(change);
    }
}
