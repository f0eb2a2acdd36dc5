//! What planning makes of a rule that matches: a charge, a record, or a follow-up.

use super::Request;
use crate::key::Key;
use crate::plan::operation::Operation;
use crate::plan::{Item, Plan, PlanError};
use crate::request::attributes::Attributes;
use crate::rules::cost::ResolvedCost;
use crate::rules::rule::Rule;

/// Where planning puts the items of the rules that match.
///
/// A trait, so that a check without postpaid rules runs no instruction more for them.
pub(super) trait PlanItems<'r> {
    /// Returns the cost of the request under a rule.
    #[inline(always)]
    fn cost(&self, rule: &Rule, attributes: &Attributes<'_>, request: &Request<'_>) -> ResolvedCost {
        rule.cost.resolve(attributes, request.cost)
    }

    /// Whether no other rule matters once one refuses without the store.
    #[inline(always)]
    fn end_at_refusal(&self) -> bool {
        true
    }

    /// Whether every shard of a sharded rule gets an item, with its part of the cost. A check asks one shard.
    #[inline(always)]
    fn reaches_all_shards(&self) -> bool {
        false
    }

    /// Adds the charge of a rule, or what replaces it.
    fn push(&mut self, rule: &Rule, cost: u64, charge: Item<'r>) -> Result<(), PlanError>;

    /// Adds a copy of the last item under another key.
    fn push_copy_of_last(&mut self, key: Key<'r>) -> Result<(), PlanError>;

    fn is_empty(&self) -> bool;
}

impl<'r> PlanItems<'r> for Plan<'r> {
    #[inline(always)]
    fn push(&mut self, _: &Rule, _: u64, charge: Item<'r>) -> Result<(), PlanError> {
        Plan::push(self, charge)
    }

    #[inline(always)]
    fn push_copy_of_last(&mut self, key: Key<'r>) -> Result<(), PlanError> {
        Plan::push_copy_of_last(self, key)
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.items().is_empty()
    }
}

/// A check, and what postpaid rules book whatever the check decides.
pub(super) struct PostpaidPlans<'p, 'r> {
    plan: &'p mut Plan<'r>,
    records: &'p mut Plan<'r>,
    /// Where the last item went; `None` if it was invalid.
    last: Option<Last>,
    /// The first charge that is invalid.
    pub(super) fault: Option<PlanError>,
}

#[derive(Clone, Copy)]
enum Last {
    Charge,
    Record,
}

impl<'p, 'r> PostpaidPlans<'p, 'r> {
    pub(super) const fn new(plan: &'p mut Plan<'r>, records: &'p mut Plan<'r>) -> PostpaidPlans<'p, 'r> {
        PostpaidPlans { plan, records, last: None, fault: None }
    }

    /// Remembers an invalid charge: the records do not depend on it.
    fn charge(&mut self, pushed: Result<(), PlanError>) {
        match pushed {
            Ok(()) => self.last = Some(Last::Charge),
            Err(fault) => {
                self.last = None;
                self.fault.get_or_insert(fault);
            }
        }
    }
}

impl<'r> PlanItems<'r> for PostpaidPlans<'_, 'r> {
    fn cost(&self, rule: &Rule, attributes: &Attributes<'_>, request: &Request<'_>) -> ResolvedCost {
        if rule.postpaid {
            let stated = request.states_cost.then_some(request.cost);
            return rule.cost.resolve_postpaid(attributes, stated);
        }
        rule.cost.resolve(attributes, request.cost)
    }

    fn end_at_refusal(&self) -> bool {
        false
    }

    fn push(&mut self, rule: &Rule, cost: u64, charge: Item<'r>) -> Result<(), PlanError> {
        if rule.postpaid && cost > 0 {
            self.last = Some(Last::Record);
            return self.records.push(Item { operation: Operation::Record { cost }, ..charge });
        }
        let pushed = self.plan.push(charge);
        self.charge(pushed);
        Ok(())
    }

    fn push_copy_of_last(&mut self, key: Key<'r>) -> Result<(), PlanError> {
        match self.last {
            None => Ok(()),
            Some(Last::Record) => self.records.push_copy_of_last(key),
            Some(Last::Charge) => {
                let pushed = self.plan.push_copy_of_last(key);
                self.charge(pushed);
                Ok(())
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.plan.items().is_empty() && self.records.items().is_empty()
    }
}

/// A follow-up on every rule that matches.
pub(super) struct FollowUpPlan<'p, 'r, F> {
    pub(super) plan: &'p mut Plan<'r>,
    pub(super) operation: F,
}

impl<'r, F: Fn(u64) -> Operation> PlanItems<'r> for FollowUpPlan<'_, 'r, F> {
    fn end_at_refusal(&self) -> bool {
        false
    }

    fn reaches_all_shards(&self) -> bool {
        true
    }

    fn push(&mut self, _: &Rule, cost: u64, charge: Item<'r>) -> Result<(), PlanError> {
        self.plan.push(Item { operation: (self.operation)(cost), ..charge })
    }

    fn push_copy_of_last(&mut self, key: Key<'r>) -> Result<(), PlanError> {
        self.plan.push_copy_of_last(key)
    }

    fn is_empty(&self) -> bool {
        self.plan.items().is_empty()
    }
}
