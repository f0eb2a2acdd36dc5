//! Plans whose keys are in several slots of a cluster, which no script can reach at once.
//!
//! All parts are looked at first: a refusal ends it, and nothing was written. Then they are charged one after another, in a
//! fixed order, and if one of them refuses after all, what was charged before it is taken back. So a Plan is
//! never admitted unless every part of it was charged; between charge and taking back others may be refused for it; and
//! whoever dies in between has lost that charge.

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::{
    Answer, Item, Limit, Mark, Operation, Outcome, Plan, Span, StoreError, Subject, Time, Verdict,
};

use super::{Pending, RedisStore};
use crate::clock::Clock;

/// The items of a Plan that are in one slot.
struct Part<'r> {
    tag: Subject,
    /// Where they stand in the whole Plan.
    places: SmallVec<[usize; 4]>,
    plan: Plan<'r>,
}

/// Whether the keys may be in several slots: equal tags are equal slots.
pub(super) fn spans_slots(plan: &Plan<'_>) -> bool {
    let [first, others @ ..] = plan.items() else { return false };
    others.iter().any(|other| other.key.tag() != first.key.tag())
}

fn parts<'r>(plan: &Plan<'r>) -> Vec<Part<'r>> {
    let mut parts: Vec<Part<'r>> = Vec::new();
    for (place, item) in plan.items().iter().enumerate() {
        let tag = item.key.tag();
        match parts.iter_mut().find(|part| part.tag == tag) {
            Some(part) => part.places.push(place),
            None => parts.push(Part { tag, places: SmallVec::from_slice(&[place]), plan: Plan::new() }),
        }
    }
    // Whoever wants the same slots takes them in the same order, so that of two one gets all of them.
    parts.sort_by_key(|part| part.tag.to_u128());
    for part in &mut parts {
        part.plan = plan.part(|place| part.places.contains(&place));
    }
    parts
}

/// What was found so far, by place in the whole Plan.
struct Found {
    now: Time,
    answers: SmallVec<[Option<Answer>; 4]>,
}

impl Found {
    fn new(plan: &Plan<'_>) -> Found {
        Found { now: Time::ZERO, answers: SmallVec::from_elem(None, plan.items().len()) }
    }

    fn add(&mut self, part: &Part<'_>, outcome: &Outcome) {
        self.now = self.now.max(outcome.now);
        for (place, answer) in part.places.iter().zip(&outcome.answers) {
            self.answers[*place] = Some(*answer);
        }
    }

    fn blocks(&self, plan: &Plan<'_>) -> bool {
        let refuses = |answer: &Option<Answer>| answer.is_some_and(|answer| !answer.is_admitted());
        plan.items().iter().zip(&self.answers).any(|(item, answer)| item.blocking && refuses(answer))
    }

    fn whole(self) -> Outcome {
        Outcome { now: self.now, answers: self.answers.into_iter().flatten().collect() }
    }
}

impl<C: Clock + Send + Sync> RedisStore<C> {
    /// Carries out a Plan that spans slots.
    pub(super) async fn apply_in_parts(
        &self,
        plan: &Plan<'_>,
        deadline: Instant,
    ) -> Result<Outcome, StoreError> {
        let parts = parts(plan);
        if !plan.items().iter().any(Item::asks) {
            // Follow-ups stand each for itself.
            return self.ask_all(plan, &parts, Plan::clone, deadline).await.map(Found::whole);
        }
        let seen = self.ask_all(plan, &parts, peeking, deadline).await?;
        if seen.blocks(plan) {
            self.count_being_asked(plan, &seen);
            return self.refuse(plan, &parts, seen, deadline).await;
        }
        if plan.items().iter().all(|item| matches!(item.operation, Operation::Peek { .. })) {
            return Ok(seen.whole());
        }
        let mut found = Found::new(plan);
        let mut charged = Charged { store: self, plans: Vec::with_capacity(parts.len()) };
        for part in &parts {
            let outcome = self.decide(&part.plan, deadline).await?;
            found.add(part, &outcome);
            if found.blocks(plan) {
                charged.take_back(deadline).await;
                return self.refuse(plan, &parts, found, deadline).await;
            }
            charged.plans.push(part.plan.undo(&outcome));
        }
        charged.plans.clear();
        Ok(found.whole())
    }

    /// Asks all parts at once.
    async fn ask_all<'p>(
        &self,
        plan: &Plan<'_>,
        parts: &[Part<'p>],
        question: impl Fn(&Plan<'p>) -> Plan<'p>,
        deadline: Instant,
    ) -> Result<Found, StoreError> {
        let questions: Vec<Plan<'p>> = parts.iter().map(|part| question(&part.plan)).collect();
        let asked = questions.iter().map(|question| self.begin(question, deadline));
        let asked: Vec<Pending> = asked.collect::<Result<_, _>>()?;
        let mut found = Found::new(plan);
        for ((part, question), pending) in parts.iter().zip(&questions).zip(asked) {
            found.add(part, &self.finish(question, pending, deadline).await?);
        }
        Ok(found)
    }

    /// A penalty may count that it was asked while it refuses.
    fn count_being_asked(&self, plan: &Plan<'_>, seen: &Found) {
        for (place, item) in plan.items().iter().enumerate() {
            let counts = matches!(item.limit, Limit::Penalty(limit) if limit.numbers().count_refused);
            let refuses = seen.answers[place].is_some_and(|answer| !answer.is_admitted());
            if counts && refuses && item.blocking && matches!(item.operation, Operation::Charge { .. }) {
                self.let_go(&plan.part(|kept| kept == place));
            }
        }
    }

    /// Who would have been admitted says so, with the numbers of nothing charged.
    async fn refuse(
        &self,
        plan: &Plan<'_>,
        parts: &[Part<'_>],
        mut found: Found,
        deadline: Instant,
    ) -> Result<Outcome, StoreError> {
        let standing = self.ask_all(plan, parts, looking, deadline).await?;
        for (answer, standing) in found.answers.iter_mut().zip(standing.answers) {
            if answer.is_none_or(|answer| answer.is_admitted()) {
                let verdict = Verdict::Admitted { delay: Span::ZERO };
                *answer = standing.map(|standing| Answer { verdict, mark: Mark::None, ..standing });
            }
        }
        Ok(found.whole())
    }
}

/// What a charge would find.
fn peeking<'p>(plan: &Plan<'p>) -> Plan<'p> {
    let mut plan = plan.clone();
    plan.peek();
    plan
}

/// How things stand, whoever asks.
fn looking<'p>(plan: &Plan<'p>) -> Plan<'p> {
    let mut plan = plan.clone().nameless();
    plan.look();
    plan
}

/// What was charged of a Plan that is not charged whole yet. It is taken back if nobody waits any more, unless it can be
/// asked for again under its id.
struct Charged<'s, 'r, C: Clock + Send + Sync> {
    store: &'s RedisStore<C>,
    /// What takes it back.
    plans: Vec<Plan<'r>>,
}

impl<C: Clock + Send + Sync> Charged<'_, '_, C> {
    async fn take_back(mut self, deadline: Instant) {
        let mut plans = std::mem::take(&mut self.plans);
        plans.retain(|plan| !plan.items().is_empty());
        let begun = plans.iter().map(|plan| self.store.begin_undo(plan, deadline));
        let begun: Vec<_> = begun.collect();
        for (plan, pending) in plans.iter().zip(begun) {
            if let Ok(pending) = pending {
                // If it is lost, so is the charge: the worst that this can come to.
                drop(self.store.finish(plan, pending, deadline).await);
            }
        }
    }
}

impl<C: Clock + Send + Sync> Drop for Charged<'_, '_, C> {
    fn drop(&mut self) {
        for plan in self.plans.iter().filter(|plan| plan.request().is_none() && !plan.items().is_empty()) {
            self.store.let_go(plan);
        }
    }
}
