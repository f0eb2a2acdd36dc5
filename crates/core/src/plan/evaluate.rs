//! Applies a Plan to states that were already read. Every store must make this step atomic.

use smallvec::SmallVec;

use crate::algorithm::machine::{Step, Write};
use crate::plan::answer::{Answer, Decline, Verdict};
use crate::plan::hold::HoldLookup;
use crate::plan::operation::{Mark, Operation};
use crate::plan::{INLINE, Item, Outcome, Plan};
use crate::stamped::{self, NODE_UNKNOWN, Revision, StampedStep};
use crate::state::{Change, State};
use crate::time::{Span, Time};

/// The Outcome of a Plan, and all writes that it needs. An item without a write leaves its key unchanged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evaluation {
    /// One answer per item.
    pub outcome: Outcome,
    /// Index of the item, and what to write under its key.
    pub writes: SmallVec<[(usize, Write<Change>); INLINE]>,
}

/// Decides every item of a `plan` without leases and reservations. See [`evaluate_holds`].
pub fn evaluate<'s>(plan: &Plan<'_>, now: Time, state_of: impl Fn(usize) -> Option<&'s State>) -> Evaluation {
    evaluate_holds(plan, now, state_of, |_| HoldLookup::None)
}

/// Decides every item of `plan` at `now`. `state_of` returns the state of the item with that index, `hold_of` the record
/// under its token.
///
/// If a blocking item does not admit, no item is charged. The only remaining write is that of a blocking penalty that
/// counts refused attempts. A non-blocking item is written iff every blocking item admits and it admits itself.
pub fn evaluate_holds<'s>(
    plan: &Plan<'_>,
    now: Time,
    state_of: impl Fn(usize) -> Option<&'s State>,
    hold_of: impl Fn(usize) -> HoldLookup<'s>,
) -> Evaluation {
    evaluate_stamped(plan, now, NODE_UNKNOWN, state_of, hold_of)
}

/// Like [`evaluate_holds`], on the node of this number, which stamps the state of recorded rules.
///
/// If the state of any item is not verified, nothing of the Plan is written, whether the item blocks or not.
pub fn evaluate_stamped<'s>(
    plan: &Plan<'_>,
    now: Time,
    node: u64,
    state_of: impl Fn(usize) -> Option<&'s State>,
    hold_of: impl Fn(usize) -> HoldLookup<'s>,
) -> Evaluation {
    let mut answers = SmallVec::<[Answer; INLINE]>::new();
    let mut writes = SmallVec::<[(usize, Write<Change>); INLINE]>::new();
    let (mut blocked, mut revisions) = (false, Vec::new());
    for (index, item) in plan.items().iter().enumerate() {
        let (state, hold) = (state_of(index), hold_of(index));
        let Step { answer, write } = if item.is_stamped() {
            let StampedStep { step, revision } =
                stamped::decide(&item.limit, node, state, hold, now, &item.operation);
            revisions.resize(index, Revision::default());
            revisions.push(revision);
            step
        } else {
            item.limit.decide_hold(state, hold, now, &item.operation)
        };
        blocked |= item.asks_for_admission() && item.blocking && !answer.is_admitted();
        blocked |= answer.verdict == Verdict::Declined(Decline::Unverified);
        answers.push(answer);
        writes.extend(write.map(|write| (index, write)));
    }
    if blocked {
        for (index, item) in plan.items().iter().enumerate() {
            uncharge(&mut answers[index], item, node, state_of(index), now);
        }
    }
    writes.retain(|(index, _)| {
        let refused = answers[*index].is_refused();
        if refused { plan.items()[*index].blocking } else { !blocked }
    });
    Evaluation { outcome: Outcome { now, answers, replayed: false, revisions }, writes }
}

/// Whether a store writes the change of a Plan's only item. The exception is a non-blocking penalty that refuses.
pub const fn single_item_writes(item: &Item<'_>, answer: &Answer) -> bool {
    item.blocking || !answer.is_refused()
}

/// Replaces an admission by one that charged nothing: the item alone would have been admitted.
fn uncharge(answer: &mut Answer, item: &Item<'_>, node: u64, state: Option<&State>, now: Time) {
    if answer.is_admitted() {
        let peek = Operation::Peek { cost: 0 };
        let status = if item.is_stamped() {
            stamped::decide(&item.limit, node, state, HoldLookup::None, now, &peek).step.answer
        } else {
            item.limit.decide(state, now, &peek).answer
        };
        *answer = Answer { verdict: Verdict::Admitted { delay: Span::ZERO }, mark: Mark::None, ..status };
    }
}
