//! Adds to the meters among the rules of a request, or subtracts from them, and changes no other rule.

use tollgate_core::decision::Undecided;
use tollgate_core::rules::{Planned, Request};
use tollgate_core::{
    Decline, Item, Limit, Operation, Plan, PlanError, Store, StoreError, Time, Token, Verdict,
};

use super::once::one_per_rule;
use super::{FollowUpError, Returned};
use crate::engine::active_rules::ActiveRules;
use crate::engine::{CheckError, Engine};

/// What one meter counts after an addition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterValue {
    /// The rule's id.
    pub rule: String,
    /// Units counted.
    pub value: u64,
    /// The largest value that an addition may reach.
    pub limit: u64,
    /// Units that can still be added.
    pub remaining: u64,
}

/// The result of an addition to meters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MeterSum {
    /// It was added to all of them. The list is empty if no meter matched.
    Added {
        /// The new values.
        meters: Vec<MeterValue>,
        /// Whether the request id was used before, so that these are the values of that time.
        replayed: bool,
    },
    /// One has no room for the amount, and it was added to none.
    Full {
        /// The meter without room, as it is.
        meter: MeterValue,
    },
}

impl<S: Store> Engine<S> {
    /// Adds `amount` units to every meter that matches the request and whose rule `is_meant` accepts: to all of them, or
    /// if one is full to none. The cost of the request does not matter. A request id adds once.
    pub async fn add_to_meters(
        &self,
        request: Request<'_>,
        amount: u64,
        is_meant: impl Fn(&str) -> bool + Send + Sync,
    ) -> Result<MeterSum, FollowUpError> {
        let active = self.inner.rules.load_full();
        let add = Operation::charge(amount);
        let mut plan = Plan::new();
        for item in self.meters_at(&active, request, self.inner.store.now(), add, &is_meant)? {
            plan.push(item)?;
        }
        if plan.items().is_empty() {
            return Ok(MeterSum::Added { meters: Vec::new(), replayed: false });
        }
        if let Some(id) = request.id {
            let id = self.inner.hashers.current().subject([("addition to meters", id)]);
            plan.set_request_id(id, self.inner.horizon, active.text_hash);
        }
        let outcome = match self.inner.store.apply(&plan).await {
            Ok(outcome) => outcome,
            Err(StoreError::IdReused) => return Err(CheckError::IdReused.into()),
            Err(error) => return Err(error.into()),
        };
        let mut meters: Vec<MeterValue> = Vec::new();
        for (item, answer) in plan.items().iter().zip(&outcome.answers) {
            let meter = MeterValue {
                rule: item.key.keyspace().rule().to_owned(),
                value: answer.limit.saturating_sub(answer.remaining),
                limit: answer.limit,
                remaining: answer.remaining,
            };
            match answer.verdict {
                Verdict::Refused(_) if item.blocking => return Ok(MeterSum::Full { meter }),
                Verdict::Admitted { .. } | Verdict::Refused(_) => {}
                Verdict::Declined(why) => return Err(undecided(&meter.rule, why)),
                _ => return Err(undecided(&meter.rule, Decline::NotSupported)),
            }
            // While a hash key is replaced, a rule counts under both keys. The higher count decides.
            match meters.last_mut() {
                Some(other) if other.rule == meter.rule => {
                    if meter.value > other.value {
                        *other = meter;
                    }
                }
                _ => meters.push(meter),
            }
        }
        Ok(MeterSum::Added { meters, replayed: outcome.replayed })
    }

    /// Subtracts `amount` units from every meter that matches the request and whose rule `is_meant` accepts, but not below
    /// zero. The amounts say by how much each fell. The list is empty if no meter matched. A request id subtracts once.
    pub async fn subtract_from_meters(
        &self,
        request: Request<'_>,
        amount: u64,
        is_meant: impl Fn(&str) -> bool + Send + Sync,
    ) -> Result<Vec<Returned>, FollowUpError> {
        let active = self.inner.rules.load_full();
        let id = self.once_id("subtraction from meters", request.id, active.text_hash);
        let subtract = Operation::Credit { cost: amount };
        let plan = |now: Time| self.meters_at(&active, request, now, subtract, &is_meant);
        let answers = self.apply_once(id, plan).await?;
        let returned = answers.iter().map(|answered| {
            (answered.item.rule_index, Returned::new(&answered.item, &answered.answer, answered.replayed))
        });
        Ok(one_per_rule(returned, |one, other| one.amount.unwrap_or(0) >= other.amount.unwrap_or(0)))
    }

    /// The same operation on each of the meters.
    fn meters_at<'r>(
        &self,
        active: &'r ActiveRules,
        request: Request<'_>,
        now: Time,
        operation: Operation,
        is_meant: &impl Fn(&str) -> bool,
    ) -> Result<Vec<Item<'r>>, PlanError> {
        let matching = Request { cost: 0, token: Token(1), ..request };
        let planned = active.rules.plan(&matching, &self.inner.hashers, now)?;
        let Planned::Plan { mut plan, .. } = planned else { return Ok(Vec::new()) };
        self.inner.store.place_subjects(&mut plan);
        let meters = plan
            .items()
            .iter()
            .filter(|item| matches!(item.limit, Limit::Meter(_)) && is_meant(item.key.keyspace().rule()));
        Ok(meters.map(|item| Item { operation, ..*item }).collect())
    }
}

fn undecided(rule: &str, why: Decline) -> FollowUpError {
    CheckError::Undecided(Undecided { rule: rule.to_owned(), why }).into()
}
