//! Fixed window: at most `limit` units per aligned window.
//!
//! Largest intermediate: `used + cost`, below 2^54 and compared as `cost <= limit - used` in other hosts.

use crate::algorithm::machine::{LimitStatus, Machine, Step, Write};
use crate::answer::{Answer, Decline, Retry, Verdict};
use crate::limit::error::{LimitError, positive, positive_span};
use crate::plan::operation::{Mark, Operation};
use crate::time::{Span, Time};

/// At most `limit` units in each window of length `window`, aligned to 1970.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FixedWindow {
    limit: u64,
    window: Span,
}

/// What was used in the newest window seen.
///
/// The window's length is part of the state: a rule with another length sees that it must convert.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FixedWindowState {
    /// First instant of the window.
    pub start: Time,
    /// The window's length.
    pub window: Span,
    /// Units admitted in it.
    pub used: u64,
}

impl FixedWindow {
    /// A limit of `limit` units per `window`.
    pub fn new(limit: u64, window: Span) -> Result<FixedWindow, LimitError> {
        Ok(FixedWindow { limit: positive("limit", limit)?, window: positive_span("window", window)? })
    }

    /// Units per window.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The window's length.
    pub const fn window(&self) -> Span {
        self.window
    }

    /// The state as this limit sees it at `now`. Consumption counts until the window it was booked in is
    /// over, also if that window had another length.
    fn current(&self, state: Option<&FixedWindowState>, now: Time) -> Current {
        let now = state.map_or(now, |state| now.max(state.start));
        // A state of the same length begins where its window does: a division is the dearest step of a decision.
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
        Step { answer, write: Some(Write { change: left, dies_at: answer.reset_at }) }
    }

    /// What a charge of 1 to `limit` leaves behind, if it is admitted: all that a store must find out under a lock.
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

    /// The answer to the charge that left this behind.
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
        cost: u64,
    ) -> Step<FixedWindowState> {
        let Current { start, used, free_at } = current;
        let held = used > 0 && state.is_some_and(|state| mark == Mark::Window { start: state.start });
        if !held {
            return self.status(used, free_at).decline(Decline::NotHeld);
        }
        let given = cost.min(used);
        let end = start.plus(self.window);
        let next = FixedWindowState { start, window: self.window, used: used - given };
        self.status(next.used, end).write(Verdict::Done { amount: given }, Mark::None, next, end)
    }
}

/// The window in force and what counts in it.
#[derive(Clone, Copy)]
struct Current {
    start: Time,
    used: u64,
    /// When what counts now will count no more.
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
            Operation::Refund { mark, cost } => self.refund(state, current, mark, cost),
            _ => self.status(current.used, current.free_at).decline(Decline::NotSupported),
        }
    }

    fn commit(slot: &mut Option<FixedWindowState>, change: FixedWindowState) {
        *slot = Some(change);
    }
}
