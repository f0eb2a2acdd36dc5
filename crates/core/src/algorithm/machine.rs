//! The interface of all algorithms: decide without writing, then commit a small change.

use crate::plan::answer::{Answer, AnsweredBy, Decline, Verdict};
use crate::plan::hold::{HoldChange, HoldLookup};
use crate::plan::operation::{Mark, Operation};
use crate::time::Time;

/// A limit as a pure state machine.
///
/// `decide` only reads, so a Plan can decide all its items before the first write. `commit` only writes.
pub trait Machine {
    /// What a store keeps between operations. `None` means that nothing is consumed.
    type State;
    /// What `decide` asks a store to write.
    type Change;

    /// Returns the largest cost that this limit could ever admit.
    fn capacity(&self) -> u64;

    /// Returns the answer to `operation` at `now`, and the change to write.
    fn decide(&self, state: Option<&Self::State>, now: Time, operation: &Operation) -> Step<Self::Change>;

    /// Like [`decide`](Machine::decide), with the record that the store has under the operation's token.
    fn decide_hold(
        &self,
        state: Option<&Self::State>,
        _hold: HoldLookup<'_>,
        now: Time,
        operation: &Operation,
    ) -> Step<Self::Change> {
        self.decide(state, now, operation)
    }

    /// Applies a change that `decide` returned for exactly this state.
    fn commit(slot: &mut Option<Self::State>, change: Self::Change);

    /// Returns what a change asks to write to the record of the operation's token.
    fn hold_change(_change: &Self::Change) -> Option<HoldChange> {
        None
    }
}

/// An answer, and the write that it needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step<C> {
    /// The answer to the caller.
    pub answer: Answer,
    /// What to write. `None` leaves the state unchanged.
    pub write: Option<Write<C>>,
}

impl<C> Step<C> {
    /// Converts the change.
    #[inline]
    pub fn map<D>(self, convert: impl FnOnce(C) -> D) -> Step<D> {
        let write = self.write.map(|Write { change, dies_at }| Write { change: convert(change), dies_at });
        Step { answer: self.answer, write }
    }

    /// Drops the write and the mark, and keeps the answer. A peek is a charge without its write.
    pub fn without_write(mut self) -> Step<C> {
        self.answer.mark = Mark::None;
        self.write = None;
        self
    }
}

/// A change, and how long a store must keep the result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write<C> {
    /// The change.
    pub change: C,
    /// From this instant on, the written state is indistinguishable from no state. A store may delete it then, but not
    /// earlier. `None` keeps the expiry that the state already has.
    pub dies_at: Option<Time>,
}

/// A limit's numbers at one instant. Every answer carries them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitStatus {
    /// The limit in force.
    pub limit: u64,
    /// Whole units left.
    pub remaining: u64,
    /// When `remaining` is back to `limit` if no more requests arrive.
    pub reset_at: Time,
}

impl LimitStatus {
    /// Returns an answer with these numbers and no mark.
    #[inline]
    pub const fn answer(self, verdict: Verdict) -> Answer {
        Answer {
            verdict,
            limit: self.limit,
            remaining: self.remaining,
            reset_at: self.reset_at,
            mark: Mark::None,
            by: AnsweredBy::Store,
        }
    }

    /// Returns a step that writes nothing.
    pub const fn unchanged<C>(self, verdict: Verdict) -> Step<C> {
        Step { answer: self.answer(verdict), write: None }
    }

    /// Returns a step that declines the operation and writes nothing.
    pub const fn decline<C>(self, why: Decline) -> Step<C> {
        self.unchanged(Verdict::Declined(why))
    }

    /// Returns a step that writes `change`. `mark` lets a later operation find the charge again.
    pub const fn write<C>(self, verdict: Verdict, mark: Mark, change: C, dies_at: Time) -> Step<C> {
        let mut answer = self.answer(verdict);
        answer.mark = mark;
        Step { answer, write: Some(Write { change, dies_at: Some(dies_at) }) }
    }

    /// Returns a step that writes `change` and keeps the state's expiry.
    pub const fn amend<C>(self, verdict: Verdict, change: C) -> Step<C> {
        Step { answer: self.answer(verdict), write: Some(Write { change, dies_at: None }) }
    }
}
