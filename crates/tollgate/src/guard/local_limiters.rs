//! Limiters in this process that stand in for the store: `local` with a share of each limit, `cap` with one bucket per rule.
//!
//! Every answer of the store raises their consumption to its level, times the share. So a subject that has used its share
//! while the store was there does not get a second one when it is away, and a store that comes and goes adds nothing.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::limit::share::Share;
use tollgate_core::plan::answer::{Answer, AnsweredBy, Retry, Verdict};
use tollgate_core::plan::failure::LocalAnswers;
use tollgate_core::{Item, Limit, Mark, OnFailure, Operation, Outcome, Plan, Subject, Time};

use super::FleetSize;
use crate::clock::FastClock;
use crate::store::memory::{MemoryStore, empty_outcome};

/// The subject under which a `cap` counts all subjects of its rule.
const WHOLE_RULE: Subject = Subject::from_u128(0x6361_7000_7275_6c65);

pub(super) struct LocalLimiters {
    /// On the instants that the caller passes; its own clock is not used.
    state: MemoryStore<FastClock>,
    fleet: Arc<FleetSize>,
}

impl LocalLimiters {
    pub(super) fn new(fleet: Arc<FleetSize>) -> LocalLimiters {
        LocalLimiters { state: MemoryStore::new(), fleet }
    }

    pub(super) fn fleet(&self) -> &FleetSize {
        &self.fleet
    }

    /// Follows an answer of the store: what is left locally is at most the share of what the store has left.
    pub(super) fn follow(&self, plan: &Plan<'_>, outcome: &Outcome) {
        for (item, answer) in plan.items().iter().zip(&outcome.answers) {
            let OnFailure::Local { percent } = item.on_failure else { continue };
            let counts = answer.by == AnsweredBy::Store && !matches!(answer.verdict, Verdict::Declined(_));
            let Some(share) = self.share(percent).filter(|_| counts) else { continue };
            let Some(limit) = item.limit.share(share) else { continue };
            let operation = Operation::LeaveAtMost { remaining: share.of(answer.remaining) };
            // One item without admission is always a valid Plan.
            if let Ok(raised) = Plan::of(Item { limit, operation, ..*item }) {
                self.apply(&raised, outcome.now);
            }
        }
    }

    fn share(&self, percent: Option<u8>) -> Option<Share> {
        match percent {
            Some(percent) => Share::percent(percent),
            None => self.fleet.servers().and_then(Share::one_of),
        }
    }

    /// The item that replaces one of the Plan. `None` if its limit has no share, or holds something.
    fn stand_in<'r>(&self, item: &Item<'r>) -> Option<Item<'r>> {
        if !matches!(item.operation, Operation::Charge { .. } | Operation::Peek { .. }) {
            return None;
        }
        match item.on_failure {
            OnFailure::Local { percent } => {
                Some(Item { limit: item.limit.share(self.share(percent)?)?, ..*item })
            }
            OnFailure::Cap { amount, period } => {
                let limit = Limit::Bucket(Bucket::tokens(amount, period, amount).ok()?);
                let key = item.key.keyspace().key_tagged(WHOLE_RULE, WHOLE_RULE);
                Some(Item { key, limit, ip_subjects_max: None, ..*item })
            }
            OnFailure::Open | OnFailure::Closed | OnFailure::Degraded => None,
        }
    }

    fn apply(&self, plan: &Plan<'_>, now: Time) -> Outcome {
        let mut outcome = empty_outcome(now);
        let applied = self.state.apply_into(plan, now, &mut outcome);
        debug_assert!(applied.is_ok(), "a Plan without a request id cannot fail in memory: {applied:?}");
        outcome
    }
}

impl LocalAnswers for LocalLimiters {
    fn answer<'r>(
        &self,
        items: &mut dyn Iterator<Item = &Item<'r>>,
        now: Time,
        charge: bool,
    ) -> SmallVec<[Option<Answer>; 4]> {
        let mut plan = Plan::new();
        let mut refused = !charge;
        // Where the answer to each item is: in the Outcome of the local Plan, or already known.
        let places: SmallVec<[Place; 4]> = items
            .map(|item| {
                let Some(own) = self.stand_in(item) else {
                    refused |= item.blocking;
                    return Place::Undecided;
                };
                match plan.push_or_merge(own) {
                    Ok(index) => Place::Asked(index),
                    // The share could never admit this cost.
                    Err(_) => {
                        refused |= item.blocking;
                        Place::Known(too_large(&own.limit, now))
                    }
                }
            })
            .collect();
        if refused {
            plan.peek();
        }
        let outcome = self.apply(&plan, now);
        let answer = |place: Place| match place {
            Place::Undecided => None,
            // Local admissions have no receipts: what they counted is forgotten, never given back.
            Place::Asked(index) => Some(Answer { mark: Mark::None, ..outcome.answers[index] }),
            Place::Known(answer) => Some(answer),
        };
        places.into_iter().map(answer).collect()
    }
}

enum Place {
    Undecided,
    Asked(usize),
    Known(Answer),
}

/// The refusal of a cost above the capacity of the share.
fn too_large(limit: &Limit, now: Time) -> Answer {
    Answer {
        verdict: Verdict::Refused(Retry::Never),
        limit: limit.reported_limit(),
        remaining: 0,
        reset_at: now,
        mark: Mark::None,
        by: AnsweredBy::Store,
    }
}
