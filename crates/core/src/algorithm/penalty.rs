//! Penalty: each failure after the free ones makes the wait longer, and a success clears it.
//!
//! - Guarantee: no attempt is admitted during a wait. Free failures cause no wait.
//! - State: failures on record, and the end of the wait in microseconds.
//! - Admits any cost iff `failures <= free` or `now >= until`. A charge writes nothing, except when it is refused and
//!   refused attempts count as failures.
//! - Retry at: the end of the wait.
//! - Key may expire at: the end of the wait + `memory`.
//! - Refund: none. `report(success)` clears the failures.
//! - Largest intermediate: `base * factor^n`, saturating and at most `longest`.

use crate::algorithm::machine::{LimitStatus, Machine, Step};
use crate::limit::error::{LimitError, positive_at_most, positive_span};
use crate::plan::answer::{Decline, Retry, Verdict};
use crate::plan::operation::{Mark, Operation, Report};
use crate::time::{EXACT_MAX, Span, Time};

/// Largest number of free failures.
pub const FREE_MAX: u64 = 1_000;
/// Largest growth factor.
pub const FACTOR_MAX: u64 = 16;
/// Failures after the free ones that are counted. After this many, even a factor of 2 exceeds every span.
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

/// The numbers of a penalty, as configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PenaltyNumbers {
    /// Failures that cause no wait.
    pub free: u64,
    /// The first wait.
    pub base: Span,
    /// Factor by which each further wait grows.
    pub factor: u64,
    /// The longest wait.
    pub longest: Span,
    /// How long failures are remembered after the end of a wait.
    pub memory: Span,
    /// Whether a refused attempt counts as a failure.
    pub count_refused: bool,
}

/// The failures on record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PenaltyState {
    /// Number of failures.
    pub failures: u64,
    /// End of the wait, or the instant of the newest failure if that was free. `memory` starts here.
    pub until: Time,
}

impl Penalty {
    /// Creates a penalty with these numbers.
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

    /// Returns its numbers.
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

    /// Returns the state after one more failure at `now`.
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

    /// Whether an attempt at `now` must wait. Free failures never cause a wait, even if the clock was set back.
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

    /// Returns the answer that an attempt would get. A peek never counts as a failure.
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
