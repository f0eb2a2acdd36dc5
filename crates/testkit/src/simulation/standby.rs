//! What the limiters in a server's process must do: a naive model of guard.md's `local` and `cap`, made of oracles.

use std::sync::Arc;

use tollgate::ManualClock;
use tollgate_core::{Item, Operation, Outcome, Plan, StoreError, Subject, Time};

use super::rules::{Policy, SimulatedRule};
use crate::model::Model;

/// The expected state of one process.
pub(super) struct Standby {
    rules: Arc<Vec<SimulatedRule>>,
    servers: u64,
    clock: ManualClock,
    model: Model<ManualClock>,
}

impl Standby {
    pub(super) fn new(rules: &Arc<Vec<SimulatedRule>>, servers: u64) -> Standby {
        let clock = ManualClock::default();
        Standby { rules: Arc::clone(rules), servers, model: Model::new(clock.clone()), clock }
    }

    fn rule(&self, item: &Item<'_>) -> &SimulatedRule {
        let id = item.key.keyspace().rule();
        self.rules.iter().find(|rule| rule.id == id).expect("every item has a rule")
    }

    /// Follows an answer of the store: at most the share of what is left there is left here.
    pub(super) fn follow(&mut self, plan: &Plan<'_>, outcome: &Outcome) {
        self.clock.set(outcome.now);
        for (item, answer) in plan.items().iter().zip(&outcome.answers) {
            let rule = self.rule(item);
            if !matches!(rule.policy, Policy::Percent(_) | Policy::Fair) {
                continue;
            }
            let Some(Ok(limit)) = rule.local_limit(self.servers, &item.limit) else { continue };
            let left_at_most = rule.share_of(answer.remaining, self.servers);
            let step = |operation| {
                let plan = Plan::of(Item { limit, operation, ..*item }).expect("one item is a valid Plan");
                self.model.apply_now(&plan).expect("a Plan without an id cannot fail").answers[0]
            };
            let left = step(Operation::Peek { cost: 0 }).remaining;
            if left > left_at_most {
                step(Operation::Record { cost: left - left_at_most });
            }
        }
    }

    /// Returns whether the failure policies must allow a Plan that the store did not answer, and charges it if so.
    pub(super) fn answer(&mut self, plan: &Plan<'_>, error: &StoreError, now: Time) -> bool {
        if matches!(error, StoreError::Misconfigured(_)) {
            return false;
        }
        self.clock.set(now);
        let mut asked = Plan::new();
        for item in plan.items() {
            let rule = self.rule(item);
            let key = match rule.policy {
                Policy::Closed => return false,
                Policy::Open => continue,
                Policy::Cap { .. } => item.key.keyspace().key(Subject::from_u128(1)),
                Policy::Percent(_) | Policy::Fair => item.key,
            };
            let Some(Ok(limit)) = rule.local_limit(self.servers, &item.limit) else { return false };
            // A cost above the capacity of the share is never admitted.
            if asked.push(Item { key, limit, ..*item }).is_err() {
                return false;
            }
        }
        let outcome = self.model.apply_now(&asked).expect("a Plan without an id cannot fail");
        outcome.answers.iter().all(|answer| answer.is_admitted())
    }
}
