//! The prefilter: a limiter in this process that refuses a flood of attempts before the store is asked.
//!
//! A rule with `prefilter: 300%` has the same limit at three times its numbers here. Every attempt is charged, whatever is
//! decided afterwards, and nothing is given back.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::limit::share::Share;
use tollgate_core::plan::answer::{Answer, AnsweredBy};
use tollgate_core::plan::layers::LayerView;
use tollgate_core::{Item, Limit, Operation, Outcome, Plan, Time};

use crate::clock::FastClock;
use crate::store::memory::{MemoryStore, empty_outcome};

/// Number of subjects that are counted separately. Further ones of a rule share one state.
const SUBJECTS_MAX: usize = 1_000_000;

pub(super) struct Prefilter {
    /// On the instants that the caller passes; its own clock is not used.
    state: MemoryStore<FastClock>,
    refused: AtomicU64,
}

impl Prefilter {
    pub(super) fn new() -> Prefilter {
        Prefilter { state: MemoryStore::new().keys_max(SUBJECTS_MAX), refused: AtomicU64::new(0) }
    }

    /// Number of checks that it refused.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Counts an attempt. Returns the refusal if a rule has had too many.
    pub(super) fn before(&self, plan: &Plan<'_>, now: impl Fn() -> Time) -> Option<Outcome> {
        // A repeat under an id must get the answer of the first attempt, which only the store knows.
        if plan.request_id().is_some() || !plan.items().iter().any(has_prefilter) {
            return None;
        }
        let now = now();
        let mut refused = false;
        let answer = |item: &Item<'_>| match self.attempt(item, now) {
            Some(refusal) => {
                refused = true;
                refusal
            }
            None => Answer::not_asked(&item.limit, now),
        };
        let answers = plan.items().iter().map(answer).collect();
        if !refused {
            return None;
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Some(Outcome { now, answers, replayed: false, revisions: Vec::new() })
    }

    /// Returns what it would do with each item now.
    pub(super) fn view(&self, plan: &Plan<'_>, now: impl Fn() -> Time) -> Vec<(usize, LayerView)> {
        if plan.request_id().is_some() || !plan.items().iter().any(has_prefilter) {
            return Vec::new();
        }
        let now = now();
        let view = |item: &Item<'_>| {
            let limit = share_of(item)?;
            let operation = Operation::Peek { cost: item.operation.cost()? };
            let answer = self.apply(Item { limit, operation, ..*item }, now)?;
            let (limit, remaining, refuses) = (answer.limit, answer.remaining, answer.is_refused());
            Some(LayerView::Prefilter { limit, remaining, refuses })
        };
        plan.items().iter().enumerate().filter_map(|(index, item)| Some((index, view(item)?))).collect()
    }

    /// Charges one attempt. Returns the rule's refusal if it does not fit.
    fn attempt(&self, item: &Item<'_>, now: Time) -> Option<Answer> {
        let answer = self.apply(Item { limit: share_of(item)?, ..*item }, now)?;
        if !answer.is_refused() {
            return None;
        }
        // The numbers of the rule, not those of the prefilter: its limit is used up, too.
        let limit = item.limit.reported_limit();
        Some(Answer { limit, remaining: 0, by: AnsweredBy::Prefilter, ..answer })
    }

    fn apply(&self, item: Item<'_>, now: Time) -> Option<Answer> {
        let plan = Plan::of(Item { ip_subjects_max: None, ..item }).ok()?;
        let mut outcome = empty_outcome(now);
        self.state.apply_into(&plan, now, &mut outcome).ok()?;
        outcome.answers.first().copied()
    }
}

/// The limit of attempts. `None` if the item has no prefilter.
fn share_of(item: &Item<'_>) -> Option<Limit> {
    let share = Share::scale(item.layers.prefilter_percent).filter(|_| has_prefilter(item))?;
    item.limit.share(share)
}

/// Whether a rule has a prefilter for this item. Shadow rules refuse nothing, so they have none.
fn has_prefilter(item: &Item<'_>) -> bool {
    let layers = item.layers;
    layers.prefilter_percent > 0
        && item.blocking
        && !layers.postpaid
        && matches!(item.operation, Operation::Charge { .. })
}
