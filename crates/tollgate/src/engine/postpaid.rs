//! Checks under rules of which some are postpaid: costs are known only after the work.
//!
//! A request that states no cost asks postpaid rules with cost 0: it is admitted while anything is left. A stated cost has
//! already been spent. It is booked in a separate Plan, whatever the other rules decide.

use std::sync::Arc;

use arc_swap::Guard;
use tollgate_core::decision::Source;
use tollgate_core::rules::Request;
use tollgate_core::{Answer, Item, Operation, Plan, PlanDecision, Store, Time};

use super::active_rules::ActiveRules;
use super::decision::Accounts;
use super::follow_up::{Answered, FollowUpError, OnceId};
use super::{CheckError, CheckInProgress, Decision, Engine, Inner, Intent};

/// Separates the ids of these records from those of other follow-ups.
const PURPOSE: &str = "booked by a check";

/// A decision, and whether the stated costs were booked under postpaid rules.
pub struct Booking<T> {
    /// The decision.
    pub decided: Result<T, CheckError>,
    /// Whether nothing is left to book. If not, the store did not answer.
    pub is_booked: bool,
}

impl<S: Store> CheckInProgress<'_, S> {
    /// Makes the Plan of the check, and the records that are booked beside it. Returns whether the store must be asked for
    /// the check. The records are valid also if the check is not.
    pub(super) fn plan_postpaid<'r>(
        &self,
        active: &'r ActiveRules,
        plan: &mut Plan<'r>,
        records: &mut Plan<'r>,
        found: &mut PlanDecision,
    ) -> Result<bool, CheckError> {
        plan.clear();
        records.clear();
        let rules = &active.rules;
        let planned = rules.plan_postpaid(&self.request, &self.engine.hashers, self.now, plan, records);
        self.engine.store.place_subjects(records);
        self.engine.note_names(rules, &self.request, records);
        let planned = planned?;
        Ok(self.prepare(active, &planned, plan, found))
    }
}

impl<S: Store> Inner<S> {
    /// The records of requests at an instant. Requests of one subject are booked once under a rule, at their highest cost.
    fn records_at<'r>(
        &self,
        active: &'r ActiveRules,
        requests: &[Request<'_>],
        intent: Intent,
        now: Time,
    ) -> Vec<Item<'r>> {
        let mut items: Vec<Item<'r>> = Vec::new();
        for request in requests {
            let (mut plan, mut records) = (Plan::new(), Plan::new());
            // An error of the check was returned by its own Plan, and does not concern the records.
            drop(active.rules.plan_postpaid(request, &self.hashers, now, &mut plan, &mut records));
            if !matches!(intent, Intent::Charge) {
                records.peek_records();
            }
            self.store.place_subjects(&mut records);
            for item in records.items() {
                match items.iter_mut().find(|known| known.key.fingerprint() == item.key.fingerprint()) {
                    Some(known) if cost(known) < cost(item) => *known = *item,
                    Some(_) => {}
                    None => items.push(*item),
                }
            }
        }
        items
    }
}

fn cost(item: &Item<'_>) -> u64 {
    match item.operation {
        Operation::Record { cost } => cost,
        _ => 0,
    }
}

impl<S: Store> Engine<S> {
    /// Decides like [`decide`](Engine::decide), and books stated costs under postpaid rules.
    pub(super) async fn decide_postpaid(
        &self,
        active: Guard<Arc<ActiveRules>>,
        request: Request<'_>,
        intent: Intent,
    ) -> Result<Decision, CheckError> {
        self.decide_booking(active, request, intent, request.id).await.decided
    }

    /// Decides like [`decide`](Engine::decide), and books stated costs under this id.
    async fn decide_booking(
        &self,
        active: Guard<Arc<ActiveRules>>,
        request: Request<'_>,
        intent: Intent,
        booking_id: Option<&str>,
    ) -> Booking<Decision> {
        let mut decision = Decision::new(active);
        let Decision { active, found, accounts } = &mut decision;
        let mut check = CheckInProgress::new(&self.inner, &active.rules, request, intent);
        let (mut plan, mut records) = (Plan::new(), Plan::new());
        let checked = self.check_beside(active, &mut check, &mut plan, &mut records, found, accounts).await;
        let mut is_booked = true;
        if !records.items().is_empty() {
            match self.book(active, &[request], intent, booking_id).await {
                Ok(booked) => {
                    is_booked = booked.is_some();
                    add(&booked, records.items(), found, accounts);
                }
                Err(error) => return Booking { decided: Err(error), is_booked: true },
            }
        }
        drop((plan, records));
        Booking { decided: checked.map(|()| decision), is_booked }
    }

    /// Checks as [`check`](Engine::check) does, and books stated costs under this id. If they are not booked, the caller may
    /// call [`book_stated`](Engine::book_stated) with the same id.
    pub async fn check_booking(&self, request: Request<'_>, id: &str) -> Booking<Decision> {
        let active = self.inner.rules.load();
        if active.rules.has_postpaid() {
            return self.decide_booking(active, request, Intent::Charge, Some(id)).await;
        }
        Booking { decided: self.decide(active, request, Intent::Charge).await, is_booked: true }
    }

    /// Books the stated costs of requests that were checked together, once under an id. Returns whether the store did.
    pub async fn book_stated(&self, requests: &[Request<'_>], id: &str) -> Result<bool, CheckError> {
        let active = self.inner.rules.load_full();
        Ok(self.book(&active, requests, Intent::Charge, Some(id)).await?.is_some())
    }

    async fn check_beside<'r>(
        &self,
        active: &'r ActiveRules,
        check: &mut CheckInProgress<'_, S>,
        plan: &mut Plan<'r>,
        records: &mut Plan<'r>,
        found: &mut PlanDecision,
        accounts: &mut Accounts,
    ) -> Result<(), CheckError> {
        while check.plan_postpaid(active, plan, records, found)? {
            let outcome = self.inner.store.apply(plan).await;
            if check.conclude(plan, outcome.as_ref(), found, accounts)? {
                found.exactness = found.exactness.max(self.inner.store.exactness(plan));
                break;
            }
        }
        Ok(())
    }

    /// Books the stated costs of requests that are checked together. Returns the answers, or `None` if the store failed.
    pub(super) async fn book<'r>(
        &self,
        active: &'r ActiveRules,
        requests: &[Request<'_>],
        intent: Intent,
        id: Option<&str>,
    ) -> Result<Option<Vec<Answered<'r>>>, CheckError> {
        let id = match intent {
            Intent::Charge => self.once_id(PURPOSE, id, active.text_hash),
            _ => OnceId::NONE,
        };
        let plan = |now: Time| Ok(self.inner.records_at(active, requests, intent, now));
        match self.apply_once(id, plan).await {
            Ok(booked) => Ok(Some(booked)),
            Err(FollowUpError::Check(error)) => Err(error),
            // The decision says that the store did not answer, as it does for a check.
            Err(FollowUpError::Store(_)) => Ok(None),
        }
    }
}

/// Adds what was booked to the decision on a request with these records.
pub(super) fn add(
    booked: &Option<Vec<Answered<'_>>>,
    records: &[Item<'_>],
    found: &mut PlanDecision,
    accounts: &mut Accounts,
) {
    // A refusal without the store has no accounts, and names the rule that refuses.
    if matches!(found.source, Source::List | Source::Rule) {
        return;
    }
    let find = |item: &Item<'_>| {
        let key = item.key.fingerprint();
        let answered = booked.iter().flatten().find(|answered| answered.item.key.fingerprint() == key);
        answered.map(|answered| (answered.now, answered.answer))
    };
    let answers: Option<Vec<(Time, Answer)>> = records.iter().map(find).collect();
    found.add_records(records, answers.as_deref());
    accounts.note_records(records, answers.iter().flatten().map(|(now, _)| *now).min());
}
