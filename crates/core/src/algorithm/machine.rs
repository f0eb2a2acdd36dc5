//! The shape all algorithms share: decide on a state that is only read, then commit a small change.

use crate::answer::{Answer, Decline, Verdict};
use crate::plan::operation::{Mark, Operation};
use crate::time::Time;

/// A limit as a pure state machine.
///
/// `decide` reads and never writes, so that a Plan can ask all its limits before the first write;
/// `commit` writes what a decision found and decides nothing.
pub trait Machine {
    /// What is kept between operations; no state at all means "nothing consumed".
    type State;
    /// What a decision wants written.
    type Change;

    /// The largest cost that could ever be admitted.
    fn capacity(&self) -> u64;

    /// The answer to `operation` at `now`, and the change that makes it so.
    fn decide(&self, state: Option<&Self::State>, now: Time, operation: &Operation) -> Step<Self::Change>;

    /// Writes a change that `decide` made for exactly this state.
    fn commit(slot: &mut Option<Self::State>, change: Self::Change);
}

/// An answer and what it changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step<C> {
    /// What to tell the caller.
    pub answer: Answer,
    /// What to write; `None` leaves the state as it is.
    pub write: Option<Write<C>>,
}

impl<C> Step<C> {
    /// The same answer, with nothing written and nothing booked.
    pub fn without_write(mut self) -> Step<C> {
        self.answer.mark = Mark::None;
        self.write = None;
        self
    }
}

/// A change, and how long the result must be kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write<C> {
    /// The change.
    pub change: C,
    /// From this instant on the written state is indistinguishable from no state. A store may forget it
    /// then, and never before.
    pub dies_at: Time,
}

/// How a limit stands at an instant: the numbers every answer carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitStatus {
    /// The limit in force.
    pub limit: u64,
    /// What is left.
    pub remaining: u64,
    /// When it will be all there again.
    pub reset_at: Time,
}

impl LimitStatus {
    /// An answer with these numbers that books nothing.
    pub const fn answer(self, verdict: Verdict) -> Answer {
        Answer {
            verdict,
            limit: self.limit,
            remaining: self.remaining,
            reset_at: self.reset_at,
            mark: Mark::None,
        }
    }

    /// A step that changes nothing.
    pub const fn unchanged<C>(self, verdict: Verdict) -> Step<C> {
        Step { answer: self.answer(verdict), write: None }
    }

    /// A step that declines.
    pub const fn decline<C>(self, why: Decline) -> Step<C> {
        self.unchanged(Verdict::Declined(why))
    }

    /// A step that writes, booked at `mark`.
    pub const fn write<C>(self, verdict: Verdict, mark: Mark, change: C, dies_at: Time) -> Step<C> {
        let mut answer = self.answer(verdict);
        answer.mark = mark;
        Step { answer, write: Some(Write { change, dies_at }) }
    }
}
