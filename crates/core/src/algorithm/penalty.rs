//! Penalty: every failure past the free ones makes the wait longer; a success clears it.
//!
//! Largest intermediate: `base * factor^n`, computed saturating and cut to `longest`.

use crate::algorithm::machine::{LimitStatus, Machine, Step};
use crate::answer::{Decline, Retry, Verdict};
use crate::limit::error::{LimitError, positive_at_most, positive_span};
use crate::plan::operation::{Mark, Operation, Report};
use crate::time::{EXACT_MAX, Span, Time};

/// The most failures that may be free.
pub const FREE_MAX: u64 = 1_000;
/// The steepest growth.
pub const FACTOR_MAX: u64 = 16;
/// After this many waits even a factor of 2 has outgrown every span: counting on would say nothing.
const GROWTH_STEPS: u64 = 64;

/// After `free` failures the next one makes the caller wait `base`, each further one `factor` times as long.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Penalty {
    free: u64,
    base: Span,
    factor: u64,
    longest: Span,
    memory: Span,
    count_refused: bool,
}

/// The numbers of a penalty, as a rule gives them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PenaltyNumbers {
    /// Failures without consequence.
    pub free: u64,
    /// The first wait.
    pub base: Span,
    /// How much longer each next wait is.
    pub factor: u64,
    /// No wait is longer.
    pub longest: Span,
    /// How long after the end of a wait the failures are remembered.
    pub memory: Span,
    /// Whether asking while refused counts as a failure too.
    pub count_refused: bool,
}

/// Failures on record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PenaltyState {
    /// How many.
    pub failures: u64,
    /// The end of the wait, or the newest failure if that was free. Memory runs from here.
    pub until: Time,
}

impl Penalty {
    /// A penalty with these numbers.
    pub fn new(numbers: PenaltyNumbers) -> Result<Penalty, LimitError> {
        let PenaltyNumbers { free, base, factor, longest, memory, count_refused } = numbers;
        if free > FREE_MAX {
            return Err(LimitError::TooLarge { what: "free", found: free, max: FREE_MAX });
        }
        if base > longest {
            return Err(LimitError::TooLarge { what: "base", found: base.us(), max: longest.us() });
        }
        Ok(Penalty {
            free,
            base: positive_span("base", base)?,
            factor: positive_at_most("factor", factor, FACTOR_MAX)?,
            longest,
            memory: positive_span("memory", memory)?,
            count_refused,
        })
    }

    /// The numbers it was made of.
    pub const fn numbers(&self) -> PenaltyNumbers {
        PenaltyNumbers {
            free: self.free,
            base: self.base,
            factor: self.factor,
            longest: self.longest,
            memory: self.memory,
            count_refused: self.count_refused,
        }
    }

    fn current(&self, state: Option<&PenaltyState>, now: Time) -> PenaltyState {
        let live = state.filter(|state| now < state.until.plus(self.memory));
        live.copied().unwrap_or(PenaltyState { failures: 0, until: Time::ZERO })
    }

    /// The record after one more failure at `now`.
    fn failed(&self, current: PenaltyState, now: Time) -> PenaltyState {
        let failures = (current.failures + 1).min(self.free + GROWTH_STEPS);
        let wait = match failures.checked_sub(self.free + 1) {
            None => Span::ZERO,
            Some(steps) => {
                let growth = self.factor.saturating_pow(steps as u32);
                Span::from_us(self.base.us().saturating_mul(growth)).min(self.longest)
            }
        };
        PenaltyState { failures, until: current.until.max(now.plus(wait)) }
    }

    /// Whether an attempt at `now` must wait. Free failures never make it: not even on a clock set back.
    fn waits(&self, current: PenaltyState, now: Time) -> bool {
        current.failures > self.free && now < current.until
    }

    fn status(&self, current: PenaltyState, now: Time) -> LimitStatus {
        LimitStatus {
            limit: self.free + 1,
            remaining: if self.waits(current, now) {
                0
            } else {
                (self.free + 1).saturating_sub(current.failures).max(1)
            },
            reset_at: if current.failures == 0 { now } else { current.until.plus(self.memory) },
        }
    }

    fn attempt(&self, current: PenaltyState, now: Time) -> Step<Option<PenaltyState>> {
        if !self.waits(current, now) {
            return self.status(current, now).unchanged(Verdict::Admitted { delay: Span::ZERO });
        }
        if !self.count_refused {
            return self.refuse(current, now);
        }
        let next = self.failed(current, now);
        let status = self.status(next, now);
        status.write(Verdict::Refused(Retry::At(next.until)), Mark::None, Some(next), status.reset_at)
    }

    fn refuse(&self, current: PenaltyState, now: Time) -> Step<Option<PenaltyState>> {
        self.status(current, now).unchanged(Verdict::Refused(Retry::At(current.until)))
    }

    /// What an attempt would meet. Looking is not asking: it never counts as a failure.
    fn peek(&self, current: PenaltyState, now: Time) -> Step<Option<PenaltyState>> {
        if self.waits(current, now) { self.refuse(current, now) } else { self.attempt(current, now) }
    }

    fn report(&self, current: PenaltyState, now: Time, result: Report) -> Step<Option<PenaltyState>> {
        match result {
            Report::Failure => {
                let next = self.failed(current, now);
                let status = self.status(next, now);
                status.write(Verdict::Done { amount: next.failures }, Mark::None, Some(next), status.reset_at)
            }
            Report::Success => {
                let clear = PenaltyState { failures: 0, until: Time::ZERO };
                let done = Verdict::Done { amount: current.failures };
                self.status(clear, now).write(done, Mark::None, None, now)
            }
        }
    }
}

impl Machine for Penalty {
    type State = PenaltyState;
    type Change = Option<PenaltyState>;

    fn capacity(&self) -> u64 {
        EXACT_MAX
    }

    fn decide(
        &self,
        state: Option<&PenaltyState>,
        now: Time,
        operation: &Operation,
    ) -> Step<Option<PenaltyState>> {
        let current = self.current(state, now);
        match *operation {
            Operation::Charge { cost: 0, .. } | Operation::Peek { .. } => self.peek(current, now),
            Operation::Charge { .. } => self.attempt(current, now),
            Operation::Report { result } => self.report(current, now, result),
            _ => self.status(current, now).decline(Decline::NotSupported),
        }
    }

    fn commit(slot: &mut Option<PenaltyState>, change: Option<PenaltyState>) {
        *slot = change;
    }
}
