//! One subject's state under one limit, with the records of its leases and reservations: a store for one key.

use std::collections::BTreeMap;

use crate::algorithm::machine::Write;
use crate::answer::Answer;
use crate::limit::Limit;
use crate::plan::hold::Hold;
use crate::plan::operation::{Operation, Token};
use crate::state::{Change, State};
use crate::time::Time;

/// The state of one subject, and its records. For tests, pictures and estimates.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// The state.
    pub state: Option<State>,
    /// The records of leases and reservations, by token. None is ever removed because of its age.
    pub holds: BTreeMap<Token, Hold>,
}

impl Account {
    /// Applies one operation, writes its change and returns the answer.
    pub fn apply(&mut self, limit: &Limit, now: Time, operation: &Operation) -> Answer {
        let hold = limit.hold_token(operation).and_then(|token| self.holds.get(&token));
        let step = limit.decide_hold(self.state.as_ref(), hold.into(), now, operation);
        if let Some(write) = step.write {
            self.commit(write);
        }
        step.answer
    }

    /// Writes a change that was decided on this account.
    pub fn commit(&mut self, write: Write<Change>) {
        if let Some(change) = write.change.hold_change() {
            match change.record {
                Some(record) => self.holds.insert(change.token, record.hold),
                None => self.holds.remove(&change.token),
            };
        }
        State::commit(&mut self.state, write.change);
    }
}
