//! Plans whose keys are in several slots of a cluster, which no script can reach at once.
//!
//! All parts are looked at first: a refusal ends it, and nothing was written. Then they are charged one after another, in a
//! fixed order, and if one of them refuses after all, what was charged before it is taken back. So a Plan is never admitted
//! unless every part of it was charged; between charge and taking back others may be refused for it; and whoever dies in
//! between has lost that charge.
//!
//! Under a request id every attempt has a number, which is remembered in each slot with what it booked there. Whoever comes
//! with the same id builds on that and puts their own number in its place: then only they may take it back.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::{
    Answer, Item, Limit, Mark, Operation, Outcome, Plan, Span, StoreError, Subject, Time, Verdict,
};

use crate::clock::Clock;
use crate::store::redis::error::RedisError;
use crate::store::redis::protocol::wire::Attempt;
use crate::store::redis::{PART, RedisStore, Share};

/// The items of a Plan that are in one slot.
struct Part<'r> {
    tag: Subject,
    /// Where they stand in the whole Plan.
    places: SmallVec<[usize; 4]>,
    plan: Plan<'r>,
}

/// Whether the keys may be in several slots: equal tags are equal slots.
pub(crate) fn spans_slots(plan: &Plan<'_>) -> bool {
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
        part.plan = plan.subset(|place| part.places.contains(&place));
    }
    parts
}

/// What was found so far, by place in the whole Plan.
#[derive(Clone)]
struct Found {
    /// The earliest of the servers' clocks: no wait that is told is too short.
    now: Option<Time>,
    answers: SmallVec<[Option<Answer>; 4]>,
}

impl Found {
    fn new(plan: &Plan<'_>) -> Found {
        Found { now: None, answers: SmallVec::from_elem(None, plan.items().len()) }
    }

    fn add(&mut self, part: &Part<'_>, outcome: &Outcome) {
        self.now = Some(self.now.map_or(outcome.now, |now| now.min(outcome.now)));
        for (place, answer) in part.places.iter().zip(&outcome.answers) {
            self.answers[*place] = Some(*answer);
        }
    }

    fn blocks(&self, plan: &Plan<'_>) -> bool {
        let refuses = |answer: &Option<Answer>| answer.is_some_and(|answer| !answer.is_admitted());
        plan.items().iter().zip(&self.answers).any(|(item, answer)| item.blocking && refuses(answer))
    }

    fn is_empty(&self) -> bool {
        self.now.is_none()
    }

    fn whole(self) -> Outcome {
        Outcome { now: self.now.unwrap_or(Time::ZERO), answers: self.answers.into_iter().flatten().collect() }
    }
}

impl<C: Clock + Send + Sync> RedisStore<C> {
    /// Carries out a Plan that spans slots.
    pub(crate) async fn apply_in_parts(
        &self,
        plan: &Plan<'_>,
        deadline: Instant,
    ) -> Result<Outcome, StoreError> {
        // One for all parts, or they would take each other's places.
        let _permit = self.inner.permits.take()?;
        let parts = parts(plan);
        if !plan.items().iter().any(Item::asks_for_admission) {
            // Follow-ups stand each for itself.
            return match self.ask_all(plan, &parts, Plan::clone, deadline).await {
                (found, None) => Ok(found.whole()),
                (found, Some(error)) if found.is_empty() => Err(error),
                (_, Some(error)) => Err(partly(error)),
            };
        }
        let (seen, failed) = self.ask_all(plan, &parts, peeking, deadline).await;
        if seen.blocks(plan) {
            self.count_being_asked(plan, &seen);
            return Ok(self.refuse(plan, &parts, seen, deadline).await);
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if plan.items().iter().all(|item| matches!(item.operation, Operation::Peek { .. })) {
            return Ok(seen.whole());
        }
        let mut found = seen;
        let attempt = attempt();
        let mut charged = Charged { store: self, attempt, plans: Vec::with_capacity(parts.len()) };
        for (number, part) in parts.iter().enumerate() {
            let decided = self.decide(&part.plan, deadline, Share::Part(Attempt::Part(attempt))).await;
            let outcome = decided.map_err(|error| if number > 0 { partly(error) } else { error })?;
            found.add(part, &outcome);
            if found.blocks(plan) {
                charged.take_back();
                return Ok(self.refuse(plan, &parts, found, deadline).await);
            }
            charged.plans.push(part.plan.undo(&outcome));
        }
        charged.plans.clear();
        Ok(found.whole())
    }

    /// Asks all parts at once and waits for all of them. Gives what was found, and what went wrong if anything did.
    async fn ask_all<'p>(
        &self,
        plan: &Plan<'_>,
        parts: &[Part<'p>],
        question: impl Fn(&Plan<'p>) -> Plan<'p>,
        deadline: Instant,
    ) -> (Found, Option<StoreError>) {
        let questions: Vec<Plan<'p>> = parts.iter().map(|part| question(&part.plan)).collect();
        let asked: Vec<_> = questions.iter().map(|question| self.begin(question, deadline, PART)).collect();
        let (mut found, mut failed) = (Found::new(plan), None);
        for ((part, question), pending) in parts.iter().zip(&questions).zip(asked) {
            let outcome = match pending {
                Ok(pending) => self.finish(question, pending, deadline).await,
                Err(error) => Err(error.into()),
            };
            match outcome {
                Ok(outcome) => found.add(part, &outcome),
                // Of several it is told which may have been done.
                Err(error) if failed.as_ref().is_none_or(|known| !may_be_done(known)) => failed = Some(error),
                Err(_) => (),
            }
        }
        (found, failed)
    }

    /// A penalty may count that it was asked while it refuses.
    fn count_being_asked(&self, plan: &Plan<'_>, seen: &Found) {
        for (place, item) in plan.items().iter().enumerate() {
            let counts = matches!(item.limit, Limit::Penalty(limit) if limit.numbers().count_refused);
            let refuses = seen.answers[place].is_some_and(|answer| !answer.is_admitted());
            if counts && refuses && item.blocking && matches!(item.operation, Operation::Charge { .. }) {
                self.let_go(&plan.subset(|kept| kept == place), PART);
            }
        }
    }

    /// A refusal stands, whatever else can be found out: who would have been admitted says so, with the numbers of nothing
    /// charged. If its server does not answer, those of nobody ever charged are as good as any.
    async fn refuse(
        &self,
        plan: &Plan<'_>,
        parts: &[Part<'_>],
        mut found: Found,
        deadline: Instant,
    ) -> Outcome {
        let (standing, _) = self.ask_all(plan, parts, looking, deadline).await;
        let now = found.now.unwrap_or(Time::ZERO);
        for (place, item) in plan.items().iter().enumerate() {
            let answer = &mut found.answers[place];
            if answer.is_none_or(|answer| answer.is_admitted()) {
                let fresh = || item.limit.decide(None, now, &Operation::Peek { cost: 0 }).answer;
                let standing = standing.answers[place].or(*answer).unwrap_or_else(fresh);
                let verdict = Verdict::Admitted { delay: Span::ZERO };
                *answer = Some(Answer { verdict, mark: Mark::None, ..standing });
            }
        }
        found.whole()
    }
}

/// Some of it was carried out.
fn partly(error: StoreError) -> StoreError {
    match error {
        StoreError::Transient(cause) | StoreError::Misconfigured(cause) if cause.is::<RedisError>() => {
            match cause.downcast::<RedisError>() {
                Ok(cause) => RedisError::Partly(Arc::new(*cause)).into(),
                Err(cause) => StoreError::Transient(cause),
            }
        }
        other => other,
    }
}

fn may_be_done(error: &StoreError) -> bool {
    let (StoreError::Transient(cause) | StoreError::Misconfigured(cause)) = error else { return false };
    cause.downcast_ref().is_some_and(RedisError::may_be_done)
}

/// What a charge would find.
fn peeking<'p>(plan: &Plan<'p>) -> Plan<'p> {
    let mut plan = plan.clone();
    plan.peek();
    plan
}

/// How things stand, whoever asks.
fn looking<'p>(plan: &Plan<'p>) -> Plan<'p> {
    let mut plan = plan.clone().without_request_id();
    plan.peek_status();
    plan
}

/// A number like no other attempt's.
fn attempt() -> u64 {
    // At most 2^53 - 1, and never 0. Without randomness attempts under one id cannot be told apart; that is all.
    getrandom::u64().map_or(1, |drawn| drawn >> 11 | 1)
}

/// What was charged of a Plan that is not charged whole yet.
struct Charged<'s, 'r, C: Clock + Send + Sync> {
    store: &'s RedisStore<C>,
    attempt: u64,
    /// What takes it back.
    plans: Vec<Plan<'r>>,
}

impl<C: Clock + Send + Sync> Charged<'_, '_, C> {
    /// It never will be. Nobody waits for that: what is lost on the way is lost to the subject, the worst it can come to.
    fn take_back(&mut self) {
        for plan in self.plans.drain(..).filter(|plan| !plan.items().is_empty()) {
            self.store.let_go(&plan, Share::Part(Attempt::TakeBack(self.attempt)));
        }
    }
}

impl<C: Clock + Send + Sync> Drop for Charged<'_, '_, C> {
    /// Something failed, or nobody waits any more. What has an id can be asked for again under it.
    fn drop(&mut self) {
        self.plans.retain(|plan| plan.request_id().is_none());
        self.take_back();
    }
}
