//! Applies Plans whose keys are in several hash slots of a cluster, which no single script can reach.
//!
//! 1. Peek at all hash slots in parallel. If one refuses, the Plan is refused and nothing was written.
//! 2. Charge one hash slot after another, in a fixed order. If one refuses after all, refund what was charged.
//!
//! So a Plan is admitted only if all of it was charged. Between a charge and its refund, other Plans may be refused
//! because of it. If the process dies in between, the charge stays although the Plan was not admitted.
//!
//! Follow-ups, such as records, ask for nothing. Each hash slot gets its part at the same time and applies it once under the
//! same id. Nothing is undone: if a part got no answer, the caller sends the whole again under its id.
//!
//! Under a request id, each attempt has a number, which every hash slot stores with what it charged. A later attempt with
//! the same id builds on those charges and replaces the number. Then only the later attempt may refund them.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::stamped::Revision;
use tollgate_core::{
    Answer, Decline, Item, Limit, Mark, Operation, Outcome, Plan, Span, StoreError, Subject, Time, Verdict,
};

use crate::clock::Clock;
use crate::store::redis::RedisStore;
use crate::store::redis::error::RedisError;
use crate::store::redis::protocol::plan_codec::Attempt;

/// The items of a Plan that are in one hash slot.
struct SlotPlan<'r> {
    tag: Subject,
    /// The indexes of the items in the whole Plan.
    indexes: SmallVec<[usize; 4]>,
    plan: Plan<'r>,
}

/// Whether the keys may be in several hash slots: their hash tags differ.
pub(crate) fn may_span_hash_slots(plan: &Plan<'_>) -> bool {
    let [first, others @ ..] = plan.items() else { return false };
    others.iter().any(|other| other.key.tag() != first.key.tag())
}

fn split_by_hash_slot<'r>(plan: &Plan<'r>) -> Vec<SlotPlan<'r>> {
    let mut slot_plans: Vec<SlotPlan<'r>> = Vec::new();
    for (index, item) in plan.items().iter().enumerate() {
        let tag = item.key.tag();
        match slot_plans.iter_mut().find(|slot_plan| slot_plan.tag == tag) {
            Some(slot_plan) => slot_plan.indexes.push(index),
            None => {
                let indexes = SmallVec::from_slice(&[index]);
                slot_plans.push(SlotPlan { tag, indexes, plan: Plan::new() });
            }
        }
    }
    // With the same order everywhere, one of two competing Plans gets all hash slots.
    slot_plans.sort_by_key(|slot_plan| slot_plan.tag.to_u128());
    for slot_plan in &mut slot_plans {
        slot_plan.plan = plan.subset(|index| slot_plan.indexes.contains(&index));
    }
    slot_plans
}

/// Divides a Plan into those of its hash slots, under the same request id.
pub(crate) fn plans_by_hash_slot<'r>(plan: &Plan<'r>) -> impl Iterator<Item = Plan<'r>> + use<'r> {
    split_by_hash_slot(plan).into_iter().map(|slot_plan| slot_plan.plan)
}

/// The answers received so far, by index in the whole Plan.
#[derive(Clone)]
struct PartialOutcome {
    /// The earliest of the servers' times, so that no wait is too short.
    now: Option<Time>,
    answers: SmallVec<[Option<Answer>; 4]>,
    /// The revisions of recorded accounts, by index; empty without recorded items.
    revisions: Vec<Revision>,
    /// Whether every part so far repeats what its server answered before.
    replayed: bool,
}

impl PartialOutcome {
    fn new(plan: &Plan<'_>) -> PartialOutcome {
        let answers = SmallVec::from_elem(None, plan.items().len());
        PartialOutcome { now: None, answers, revisions: Vec::new(), replayed: true }
    }

    fn add(&mut self, slot_plan: &SlotPlan<'_>, outcome: &Outcome) {
        self.now = Some(self.now.map_or(outcome.now, |now| now.min(outcome.now)));
        self.replayed &= outcome.replayed;
        for (index, answer) in slot_plan.indexes.iter().zip(&outcome.answers) {
            self.answers[*index] = Some(*answer);
        }
        for (index, revision) in slot_plan.indexes.iter().zip(&outcome.revisions) {
            self.revisions.resize(self.answers.len(), Revision::default());
            self.revisions[*index] = *revision;
        }
    }

    /// Whether a blocking item was not admitted.
    fn is_refused(&self, plan: &Plan<'_>) -> bool {
        let refuses = |answer: &Option<Answer>| answer.is_some_and(|answer| !answer.is_admitted());
        let blocks =
            plan.items().iter().zip(&self.answers).any(|(item, answer)| item.blocking && refuses(answer));
        blocks || self.is_unverified()
    }

    /// Whether the state of a recorded rule must be restored first. Then nothing may be charged.
    fn is_unverified(&self) -> bool {
        let unverified = Verdict::Declined(Decline::Unverified);
        self.answers.iter().flatten().any(|answer| answer.verdict == unverified)
    }

    fn is_empty(&self) -> bool {
        self.now.is_none()
    }

    fn into_outcome(self) -> Outcome {
        let replayed = self.replayed && !self.is_empty();
        let answers = self.answers.into_iter().flatten().collect();
        let revisions = self.revisions;
        Outcome { now: self.now.unwrap_or(Time::ZERO), answers, replayed, revisions }
    }
}

impl<C: Clock + Send + Sync> RedisStore<C> {
    /// Applies a Plan over several hash slots.
    pub(crate) async fn apply_per_hash_slot(
        &self,
        plan: &Plan<'_>,
        deadline: Instant,
    ) -> Result<Outcome, StoreError> {
        // One permit for the whole Plan: with one for each hash slot, Plans could block each other.
        let _permit = self.inner.context.permits.take()?;
        let slot_plans = split_by_hash_slot(plan);
        if !plan.items().iter().any(Item::asks_for_admission) {
            // The items of a follow-up do not depend on each other.
            return match self.call_all(plan, &slot_plans, Plan::clone, deadline).await {
                (received, None) => Ok(received.into_outcome()),
                (received, Some(error)) if received.is_empty() => Err(error),
                (_, Some(error)) => Err(partially_applied(error)),
            };
        }
        let (peeked, error) = self.call_all(plan, &slot_plans, peek, deadline).await;
        if peeked.is_refused(plan) {
            self.count_refused_attempts(plan, &peeked);
            return Ok(self.refuse(plan, &slot_plans, peeked, deadline).await);
        }
        if let Some(error) = error {
            return Err(error);
        }
        if plan.items().iter().all(|item| matches!(item.operation, Operation::Peek { .. })) {
            return Ok(peeked.into_outcome());
        }
        // The time of the charges, not that of the peeks: a repeat under the same id must get the same time.
        let mut received = PartialOutcome { now: None, replayed: true, ..peeked };
        let attempt = new_attempt_number();
        let mut charged =
            ChargedSlots { store: self, attempt, refunds: Vec::with_capacity(slot_plans.len()) };
        for (index, slot_plan) in slot_plans.iter().enumerate() {
            let result = self.call(&slot_plan.plan, deadline, Attempt::Charge(attempt), None).await;
            let outcome = result.map_err(|error| if index > 0 { partially_applied(error) } else { error })?;
            received.add(slot_plan, &outcome);
            if received.is_refused(plan) {
                charged.refund();
                return Ok(self.refuse(plan, &slot_plans, received, deadline).await);
            }
            charged.refunds.push(slot_plan.plan.undo(&outcome));
        }
        charged.refunds.clear();
        Ok(received.into_outcome())
    }

    /// Sends a variant of each part in parallel and waits for all. Returns the answers, and an error if there was one.
    async fn call_all<'p>(
        &self,
        plan: &Plan<'_>,
        slot_plans: &[SlotPlan<'p>],
        variant: impl Fn(&Plan<'p>) -> Plan<'p>,
        deadline: Instant,
    ) -> (PartialOutcome, Option<StoreError>) {
        let variants: Vec<Plan<'p>> = slot_plans.iter().map(|slot_plan| variant(&slot_plan.plan)).collect();
        let receivers: Vec<_> =
            variants.iter().map(|plan| self.send(plan, deadline, Attempt::Unnumbered, None)).collect();
        let (mut received, mut first_error) = (PartialOutcome::new(plan), None);
        for ((slot_plan, variant), receiver) in slot_plans.iter().zip(&variants).zip(receivers) {
            let result = match receiver {
                Ok(receiver) => self.receive(variant, receiver, deadline).await,
                Err(error) => Err(error.into()),
            };
            match result {
                Ok(outcome) => received.add(slot_plan, &outcome),
                // Of several errors, prefer one after which the part may have been applied.
                Err(error) if first_error.as_ref().is_none_or(|known| !may_have_applied(known)) => {
                    first_error = Some(error);
                }
                Err(_) => (),
            }
        }
        (received, first_error)
    }

    /// Charges the penalties that count attempts while they refuse.
    fn count_refused_attempts(&self, plan: &Plan<'_>, peeked: &PartialOutcome) {
        for (index, item) in plan.items().iter().enumerate() {
            let counts = matches!(item.limit, Limit::Penalty(limit) if limit.numbers().count_refused);
            let refuses = peeked.answers[index].is_some_and(|answer| !answer.is_admitted());
            if counts && refuses && item.blocking && matches!(item.operation, Operation::Charge { .. }) {
                self.send_unawaited(&plan.subset(|kept| kept == index), Attempt::Unnumbered, None);
            }
        }
    }

    /// Completes the answers of a refused Plan. Items that would have been admitted say so, with the numbers of a state
    /// without the charge. If their server does not answer, the numbers are those of a state without consumption.
    async fn refuse(
        &self,
        plan: &Plan<'_>,
        slot_plans: &[SlotPlan<'_>],
        mut received: PartialOutcome,
        deadline: Instant,
    ) -> Outcome {
        let (current, _) = self.call_all(plan, slot_plans, peek_status, deadline).await;
        let now = received.now.unwrap_or(Time::ZERO);
        for (index, item) in plan.items().iter().enumerate() {
            let answer = &mut received.answers[index];
            if answer.is_none_or(|answer| answer.is_admitted()) {
                let unused = || item.limit.decide(None, now, &Operation::Peek { cost: 0 }).answer;
                let current = current.answers[index].or(*answer).unwrap_or_else(unused);
                let verdict = Verdict::Admitted { delay: Span::ZERO };
                *answer = Some(Answer { verdict, mark: Mark::None, ..current });
            }
        }
        received.into_outcome()
    }
}

fn partially_applied(error: StoreError) -> StoreError {
    match error {
        StoreError::Transient(cause) | StoreError::Misconfigured(cause) if cause.is::<RedisError>() => {
            match cause.downcast::<RedisError>() {
                Ok(cause) => RedisError::PartiallyApplied(Arc::new(*cause)).into(),
                Err(cause) => StoreError::Transient(cause),
            }
        }
        other => other,
    }
}

fn may_have_applied(error: &StoreError) -> bool {
    let (StoreError::Transient(cause) | StoreError::Misconfigured(cause)) = error else { return false };
    cause.downcast_ref().is_some_and(RedisError::may_have_applied)
}

/// The Plan with every charge replaced by a peek.
fn peek<'p>(plan: &Plan<'p>) -> Plan<'p> {
    let mut plan = plan.clone();
    plan.peek();
    plan
}

/// The Plan as a query of the current numbers: cost 0, without a request id.
fn peek_status<'p>(plan: &Plan<'p>) -> Plan<'p> {
    let mut plan = plan.clone().without_request_id();
    plan.peek_status();
    plan
}

/// A random number from 1 to 2^53 - 1.
fn new_attempt_number() -> u64 {
    // Without randomness, attempts under one id have the same number and may refund each other's charges.
    getrandom::u64().map_or(1, |random| random >> 11 | 1)
}

/// The hash slots charged so far. Refunds them if it is dropped before the whole Plan is charged.
struct ChargedSlots<'s, 'r, C: Clock + Send + Sync> {
    store: &'s RedisStore<C>,
    attempt: u64,
    refunds: Vec<Plan<'r>>,
}

impl<C: Clock + Send + Sync> ChargedSlots<'_, '_, C> {
    /// Sends the refunds without waiting. If one is lost, the subject has been charged too much, never too little.
    fn refund(&mut self) {
        for plan in self.refunds.drain(..).filter(|plan| !plan.items().is_empty()) {
            self.store.send_unawaited(&plan, Attempt::Refund(self.attempt), None);
        }
    }
}

impl<C: Clock + Send + Sync> Drop for ChargedSlots<'_, '_, C> {
    /// A call failed, or the caller stopped waiting. Under a request id nothing is refunded: the caller can try again.
    fn drop(&mut self) {
        self.refunds.retain(|plan| plan.request_id().is_none());
        self.refund();
    }
}
