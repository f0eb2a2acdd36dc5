//! A Plan on states that are already in hand: the step every store must make indivisible.

use smallvec::SmallVec;

use crate::algorithm::machine::{Step, Write};
use crate::answer::{Answer, Verdict};
use crate::plan::operation::{Mark, Operation};
use crate::plan::{INLINE, Item, Outcome, Plan};
use crate::state::{Change, State};
use crate::time::{Span, Time};

/// What came out, and what to write. The writes are all there is: an item without one leaves its key alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evaluation {
    /// One answer per item.
    pub outcome: Outcome,
    /// Index of the item and what to write under its key.
    pub writes: SmallVec<[(usize, Write<Change>); INLINE]>,
}

/// Decides every item of `plan` at `now` on the states that `state_of` finds for them, all before the first write.
///
/// If a blocking item does not admit, no item is charged; the only write left is that of a penalty that counts
/// being asked while it refuses. An item that does not block is written iff every blocking one admits and it
/// admits itself.
pub fn evaluate<'s>(plan: &Plan<'_>, now: Time, state_of: impl Fn(usize) -> Option<&'s State>) -> Evaluation {
    let mut answers = SmallVec::<[Answer; INLINE]>::new();
    let mut writes = SmallVec::<[(usize, Write<Change>); INLINE]>::new();
    let mut blocked = false;
    for (index, item) in plan.items().iter().enumerate() {
        let Step { answer, write } = item.limit.decide(state_of(index), now, &item.operation);
        blocked |= item.asks_for_admission() && item.blocking && !answer.is_admitted();
        answers.push(answer);
        writes.extend(write.map(|write| (index, write)));
    }
    if blocked {
        for (index, item) in plan.items().iter().enumerate() {
            uncharge(&mut answers[index], item, state_of(index), now);
        }
    }
    writes.retain(|(index, _)| {
        let refused = answers[*index].is_refused();
        if refused { plan.items()[*index].blocking } else { !blocked }
    });
    Evaluation { outcome: Outcome { now, answers }, writes }
}

/// Whether a Plan of one item is written: always, if it wants to be, but for a penalty that does not block and refuses.
pub const fn single_item_writes(item: &Item<'_>, answer: &Answer) -> bool {
    item.blocking || !answer.is_refused()
}

/// An item that would have been admitted on its own says so, with the numbers of nothing charged.
fn uncharge(answer: &mut Answer, item: &Item<'_>, state: Option<&State>, now: Time) {
    if answer.is_admitted() {
        let status = item.limit.decide(state, now, &Operation::Peek { cost: 0 }).answer;
        *answer = Answer { verdict: Verdict::Admitted { delay: Span::ZERO }, mark: Mark::None, ..status };
    }
}
