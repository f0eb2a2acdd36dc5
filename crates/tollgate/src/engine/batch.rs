//! Several requests in one atomic step: all of them are charged, or none.

use std::sync::Arc;

use arc_swap::Guard;
use smallvec::SmallVec;
use tollgate_core::rules::Request;
use tollgate_core::{Outcome, Plan, Store, StoreError};

use super::active_rules::ActiveRules;
use super::{Booking, CheckError, CheckInProgress, Decision, Engine, Intent, nonces, postpaid};

/// The indexes of one request's items in the Plan of all requests.
type Indexes = SmallVec<[usize; 4]>;

/// One request of several.
struct Part<'q, 'r, S> {
    check: CheckInProgress<'q, S>,
    /// `None` if it was decided without the store.
    asked: Option<(Plan<'r>, Indexes)>,
    /// What postpaid rules book, whatever the check decides.
    records: Plan<'r>,
}

impl<S: Store> Engine<S> {
    /// Checks several requests in one step. See [`Limiter::check_all`](crate::Limiter::check_all).
    pub async fn check_all(&self, requests: &[Request<'_>]) -> Result<Vec<Decision>, CheckError> {
        self.check_all_booking(requests, None).await.decided
    }

    /// Checks several requests in one step, and books stated costs under an id. See
    /// [`check_booking`](Engine::check_booking).
    pub async fn check_all_booking(
        &self,
        requests: &[Request<'_>],
        booking_id: Option<&str>,
    ) -> Booking<Vec<Decision>> {
        let active = self.inner.rules.load_full();
        let decision = |_| Decision::new(Guard::from_inner(Arc::clone(&active)));
        let mut decisions: Vec<Decision> = requests.iter().map(decision).collect();
        // Requests that share a key share its charge, so their receipts must be returned once together.
        let nonce = nonces::new_nonce();
        decisions.iter_mut().for_each(|decision| decision.accounts.set_nonce(nonce));
        let mut parts: Vec<Part<'_, '_, S>> = Vec::new();
        for request in requests {
            let request = Request { id: None, ..*request };
            let check = CheckInProgress::new(&self.inner, &active.rules, request, Intent::Charge);
            parts.push(Part { check, asked: None, records: Plan::new() });
        }
        let mut is_booked = true;
        let checked = self.check_parts(&active, &mut parts, &mut decisions).await;
        if parts.iter().any(|part| !part.records.items().is_empty()) {
            let requests: Vec<Request<'_>> = parts.iter().map(|part| part.check.request).collect();
            let booked = match self.book(&active, &requests, Intent::Charge, booking_id).await {
                Ok(booked) => booked,
                Err(error) => return Booking { decided: Err(error), is_booked: true },
            };
            is_booked = booked.is_some();
            for (part, decision) in parts.iter().zip(&mut decisions) {
                let Decision { found, accounts, .. } = decision;
                postpaid::add(&booked, part.records.items(), found, accounts);
            }
        }
        drop(parts);
        Booking { decided: checked.map(|()| decisions), is_booked }
    }

    async fn check_parts<'r>(
        &self,
        active: &'r ActiveRules,
        parts: &mut [Part<'_, 'r, S>],
        decisions: &mut [Decision],
    ) -> Result<(), CheckError> {
        loop {
            let plan = plan_all(active, parts, decisions)?;
            let outcome = self.inner.store.apply(&plan).await;
            if conclude_all(parts, outcome.as_ref(), decisions)? {
                let exactness = self.inner.store.exactness(&plan);
                for decision in decisions {
                    decision.found.exactness = decision.found.exactness.max(exactness);
                }
                return Ok(());
            }
        }
    }
}

/// Makes one Plan for all requests. If one of them is refused without the store, the Plan only peeks.
fn plan_all<'r, S: Store>(
    active: &'r ActiveRules,
    parts: &mut [Part<'_, 'r, S>],
    decisions: &mut [Decision],
) -> Result<Plan<'r>, CheckError> {
    let mut all = Plan::new();
    let (mut refused, mut invalid) = (false, None);
    for (part, decision) in parts.iter_mut().zip(decisions) {
        decision.accounts.clear();
        let mut plan = Plan::new();
        part.asked = None;
        let asks = if active.rules.has_postpaid() {
            part.check.plan_postpaid(active, &mut plan, &mut part.records, &mut decision.found)
        } else {
            part.check.plan(active, &mut plan, &mut decision.found)
        };
        match asks {
            Ok(true) => {
                let indexes: Result<Indexes, _> =
                    plan.items().iter().map(|item| all.push_or_merge(*item)).collect();
                part.asked = Some((plan, indexes?));
            }
            Ok(false) => refused |= !decision.found.allowed,
            // The records of the other requests are planned nevertheless.
            Err(error) => {
                invalid.get_or_insert(error);
            }
        }
    }
    if let Some(error) = invalid {
        return Err(error);
    }
    if refused {
        all.peek();
    }
    Ok(all)
}

/// Makes the decisions. Returns whether all are made; if not, the Plan must be made for another instant.
fn conclude_all<S: Store>(
    parts: &mut [Part<'_, '_, S>],
    outcome: Result<&Outcome, &StoreError>,
    decisions: &mut [Decision],
) -> Result<bool, CheckError> {
    let mut corrected = None;
    for (part, decision) in parts.iter_mut().zip(decisions) {
        let Some((plan, indexes)) = &part.asked else { continue };
        let own = outcome.map(|outcome| Outcome {
            now: outcome.now,
            answers: indexes.iter().map(|index| outcome.answers[*index]).collect(),
            replayed: false,
            revisions: Vec::new(),
        });
        let Decision { found, accounts, .. } = decision;
        if !part.check.conclude(plan, own.as_ref().map_err(|error| *error), found, accounts)? {
            corrected = Some(part.check.now);
        }
    }
    let Some(now) = corrected else { return Ok(true) };
    for part in parts {
        (part.check.now, part.check.corrected) = (now, true);
    }
    Ok(false)
}
