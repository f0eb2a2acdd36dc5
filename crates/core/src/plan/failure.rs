//! The answers of failure policies, for a Plan that the store could not answer.
//!
//! Rules that are `closed` refuse; `open` and `degraded` rules admit. `local` and `cap` rules are decided together, all or
//! none, by a limiter in this process. If anything refuses, nothing is charged.

use smallvec::SmallVec;

use crate::decision::OnFailure;
use crate::plan::answer::{Answer, AnsweredBy, PolicyKind, Retry, Verdict};
use crate::plan::operation::Mark;
use crate::plan::{Item, Outcome, Plan};
use crate::store::StoreError;
use crate::time::{Span, Time};

/// Answers by limiters in this process.
pub trait LocalAnswers {
    /// Answers items whose policy is `local` or `cap`, all or none; `None` for an item that it cannot decide, which is
    /// then refused. If `charge` is false, it charges nothing, because another rule refuses.
    fn answer<'r>(
        &self,
        items: &mut dyn Iterator<Item = &Item<'r>>,
        now: Time,
        charge: bool,
    ) -> SmallVec<[Option<Answer>; 4]>;
}

/// No limiter in this process: `local` and `cap` refuse.
pub struct NoLocalAnswers;

impl LocalAnswers for NoLocalAnswers {
    fn answer<'r>(
        &self,
        items: &mut dyn Iterator<Item = &Item<'r>>,
        _: Time,
        _: bool,
    ) -> SmallVec<[Option<Answer>; 4]> {
        items.map(|_| None).collect()
    }
}

/// Returns the answers of the failure policies to a Plan that asks for admission.
pub fn answer_by_policies(
    plan: &Plan<'_>,
    error: &StoreError,
    now: Time,
    local: &impl LocalAnswers,
) -> Outcome {
    // Wrong credentials must never open anything.
    let may_open = !matches!(error, StoreError::Misconfigured(_));
    let kind = |item: &Item<'_>| if may_open { item.on_failure.kind() } else { PolicyKind::Closed };
    let refused = plan.items().iter().any(|item| item.blocking && kind(item) == PolicyKind::Closed);
    let is_local = |item: &&Item<'_>| matches!(kind(item), PolicyKind::Local | PolicyKind::Cap);
    let mut asked = plan.items().iter().filter(is_local);
    let mut decided = local.answer(&mut asked, now, !refused).into_iter();
    let answers = plan.items().iter().map(|item| match kind(item) {
        kind @ (PolicyKind::Local | PolicyKind::Cap) => match decided.next().flatten() {
            Some(answer) => Answer { by: AnsweredBy::Policy(kind), ..answer },
            None => same_for_all(item, PolicyKind::Closed, now),
        },
        kind => same_for_all(item, kind, now),
    });
    Outcome { now, answers: answers.collect(), replayed: false, revisions: Vec::new() }
}

/// The answer of a policy that does not count. It has no numbers.
fn same_for_all(item: &Item<'_>, kind: PolicyKind, now: Time) -> Answer {
    let verdict = match kind {
        PolicyKind::Open | PolicyKind::Degraded => Verdict::Admitted { delay: Span::ZERO },
        PolicyKind::Closed | PolicyKind::Local | PolicyKind::Cap => Verdict::Refused(Retry::At(now)),
    };
    let limit = item.limit.reported_limit();
    let by = AnsweredBy::Policy(kind);
    Answer { verdict, limit, remaining: 0, reset_at: now, mark: Mark::None, by }
}

impl OnFailure {
    /// Whether a limiter in this process answers.
    pub const fn is_local(self) -> bool {
        matches!(self, OnFailure::Local { .. } | OnFailure::Cap { .. })
    }
}
