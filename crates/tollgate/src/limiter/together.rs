//! Several requests as one: all of them are charged or none.

use std::sync::Arc;

use arc_swap::Guard;
use smallvec::SmallVec;
use tollgate_core::rules::Request;
use tollgate_core::{Outcome, Plan, Store, StoreError};

use super::decision::{Decision, InForce};
use super::{CheckError, Checking, Intent, Limiter};

/// Where the items of one request's own Plan are in the Plan of all.
type Places = SmallVec<[usize; 4]>;

/// One request among others.
struct Part<'q, 'r, S> {
    checking: Checking<'q, S>,
    /// None if it was decided without the store.
    asked: Option<(Plan<'r>, Places)>,
}

impl<S: Store> Limiter<S> {
    /// May these proceed, all of them? If so, each is charged to every rule it meets; if one may not, none is charged.
    ///
    /// It is one step on the store, however many they are. Where several of them lead to the same account of a rule, that
    /// is charged once, at the highest of their costs. There is a decision for each: one that is allowed beside one that is
    /// not was charged nothing. Request ids are not looked at.
    pub async fn check_together(&self, requests: &[Request<'_>]) -> Result<Vec<Decision>, CheckError> {
        let in_force = self.inner.rules.load_full();
        let decision = |_| Decision::new(Guard::from_inner(Arc::clone(&in_force)));
        let mut decisions: Vec<Decision> = requests.iter().map(decision).collect();
        let mut parts: Vec<Part<'_, '_, S>> = Vec::new();
        for request in requests {
            let request = Request { id: None, ..*request };
            let checking = Checking::new(&self.inner, &in_force.rules, request, Intent::Charge);
            parts.push(Part { checking, asked: None });
        }
        loop {
            let plan = plan_all(&in_force, &mut parts, &mut decisions)?;
            let outcome = self.inner.store.apply(&plan).await;
            if conclude_all(&mut parts, outcome.as_ref(), &mut decisions)? {
                let exactness = self.inner.store.exactness(&plan);
                for decision in &mut decisions {
                    decision.found.exactness = decision.found.exactness.max(exactness);
                }
                break;
            }
        }
        drop(parts);
        Ok(decisions)
    }
}

/// The Plan of all. If one of them is refused without asking, the others only look.
fn plan_all<'r, S: Store>(
    in_force: &'r InForce,
    parts: &mut [Part<'_, 'r, S>],
    decisions: &mut [Decision],
) -> Result<Plan<'r>, CheckError> {
    let mut all = Plan::new();
    let mut refused = false;
    for (part, decision) in parts.iter_mut().zip(decisions) {
        decision.accounts.clear();
        let mut plan = Plan::new();
        part.asked = None;
        if part.checking.plan(in_force, &mut plan, &mut decision.found)? {
            let places: Result<Places, _> =
                plan.items().iter().map(|item| all.push_or_merge(*item)).collect();
            part.asked = Some((plan, places?));
        } else {
            refused |= !decision.found.allowed;
        }
    }
    if refused {
        all.peek();
    }
    Ok(all)
}

/// Makes the decisions. Says whether all are made; if not, the Plan must be made for another instant.
fn conclude_all<S: Store>(
    parts: &mut [Part<'_, '_, S>],
    outcome: Result<&Outcome, &StoreError>,
    decisions: &mut [Decision],
) -> Result<bool, CheckError> {
    let mut corrected = None;
    for (part, decision) in parts.iter_mut().zip(decisions) {
        let Some((plan, places)) = &part.asked else { continue };
        let own = outcome.map(|outcome| Outcome {
            now: outcome.now,
            answers: places.iter().map(|place| outcome.answers[*place]).collect(),
        });
        let Decision { found, accounts, .. } = decision;
        if !part.checking.conclude(plan, own.as_ref().map_err(|error| *error), found, accounts)? {
            corrected = Some(part.checking.now);
        }
    }
    let Some(now) = corrected else { return Ok(true) };
    for part in parts {
        (part.checking.now, part.checking.corrected) = (now, true);
    }
    Ok(false)
}
