//! One subject's state under one limit, with the records of its leases and reservations: a store for one key.

use std::collections::BTreeMap;

use crate::algorithm::machine::Write;
use crate::limit::Limit;
use crate::plan::answer::Answer;
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

// The tests of `HoldSums` are here, because its file is copied to plant mutants.
#[cfg(test)]
mod tests {
    use crate::algorithm::hold_sums::{HoldSums, PAIRS_MAX};
    use crate::time::Time;

    fn sums(ends_us: impl Iterator<Item = u64>) -> HoldSums {
        let mut sums = HoldSums::default();
        ends_us.for_each(|end| sums.add(Time::from_us(end), 1));
        sums
    }

    fn units(sums: &HoldSums) -> Vec<(u64, u64)> {
        sums.pairs.iter().map(|pair| (pair.end.us(), pair.units)).collect()
    }

    #[test]
    fn a_full_state_adds_to_the_next_later_pair_or_moves_the_last_one_out() {
        let mut full = sums((1..=64).map(|n| n * 10));
        full.add(Time::from_us(15), 5);
        assert_eq!((full.pairs.len(), units(&full)[1]), (PAIRS_MAX, (20, 6)));
        full.add(Time::from_us(700), 7);
        assert_eq!((full.pairs.len(), units(&full)[63]), (PAIRS_MAX, (700, 8)));
    }

    #[test]
    fn giving_back_takes_from_the_first_pairs_at_or_after_the_end_and_removes_empty_ones() {
        let mut some = sums([10, 20, 20, 30, 40].into_iter());
        some.take(Time::from_us(15), 3);
        assert_eq!(units(&some), [(10, 1), (40, 1)]);
    }
}
