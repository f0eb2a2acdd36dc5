//! Turns a request into a Plan, and explains how each rule sees a request.

mod plan_items;

use super::cost::ResolvedCost;
use super::placement::Placement;
use super::rule::{Missing, Mode, Override, Rule};
use super::rule_limit::RuleLimit;
use super::rule_set::{ListEntry, RuleSet, Unmatched};
use super::subject_selector::SubjectParts;
use crate::key::{Key, Subject, SubjectHasher, SubjectHashers};
use crate::plan::operation::{Operation, Token};
use crate::plan::{Item, Plan, PlanError};
use crate::request::attributes::Attributes;
use crate::time::Time;
use plan_items::{FollowUpPlan, PlanItems, PostpaidPlans};

/// A request to check.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its attributes.
    pub attributes: &'a Attributes<'a>,
    /// Its cost, for rules that take the cost from the request. 1 if it states none.
    pub cost: u64,
    /// Whether it states its cost. A postpaid rule books a stated cost, and asks with cost 0 otherwise.
    pub states_cost: bool,
    /// Token of the leases that it takes.
    pub token: Token,
    /// Its request id, which makes it idempotent.
    pub id: Option<&'a str>,
    /// The ids of the rules that may count it; `None` for all. If another rule matches, no rule counts it, and planning
    /// fails with [`PlanError::NotPermitted`].
    pub permitted_rules: Option<&'a [String]>,
}

impl<'a> Request<'a> {
    /// Creates a request that states no cost: it costs 1.
    pub const fn new(attributes: &'a Attributes<'a>) -> Request<'a> {
        Request {
            attributes,
            cost: 1,
            states_cost: false,
            token: Token::NONE,
            id: None,
            permitted_rules: None,
        }
    }

    /// States the cost.
    #[must_use]
    pub const fn cost(self, cost: u64) -> Request<'a> {
        Request { cost, states_cost: true, ..self }
    }

    /// Sets the request id. A repeat within the limiter's horizon gets the same answer and is not charged again.
    ///
    /// Only admissions are remembered. Never take the id from the client that is being limited.
    #[must_use]
    pub const fn id(self, id: &'a str) -> Request<'a> {
        Request { id: Some(id), ..self }
    }

    /// Sets the only rules that may count it.
    #[must_use]
    pub const fn permitted_rules(self, ids: &'a [String]) -> Request<'a> {
        Request { permitted_rules: Some(ids), ..self }
    }

    /// Sets the token of the leases that it takes.
    #[must_use]
    pub const fn token(self, token: Token) -> Request<'a> {
        Request { token, ..self }
    }
}

impl<'a> From<&'a Attributes<'a>> for Request<'a> {
    fn from(attributes: &'a Attributes<'a>) -> Request<'a> {
        Request::new(attributes)
    }
}

/// The Plan of a request, or a decision that needs no store.
#[derive(Clone, Debug)]
pub enum Planned<'r, P = Plan<'r>> {
    /// The deny list matched. The request is refused without the store.
    Denied(&'r ListEntry),
    /// The bypass list matched. The request is allowed without the store.
    Bypassed(&'r ListEntry),
    /// A rule refuses without the store: it denies everything, or its required subject is missing.
    Refused {
        /// The rule.
        rule: &'r Rule,
        /// Its index in the rule set.
        rule_index: u32,
        /// Which of its limits refuses (see [`Item::variant`]).
        variant: u32,
        /// Whether the subject is missing.
        missing: bool,
    },
    /// No rule counts the request, and the rule set [refuses](Unmatched::Refuse) such requests without the store.
    Unmatched {
        /// Number of rules that matched but found no subject.
        skipped: u32,
    },
    /// The store must decide.
    Plan {
        /// The Plan, or `()` if the caller passed a Plan to fill.
        plan: P,
        /// Number of rules that matched but found no subject. The caller counts them.
        skipped: u32,
        /// Number of rules whose cost expression failed. The caller counts and logs them.
        cost_failed: u32,
    },
}

impl<'r> Planned<'r, ()> {
    /// Returns the same with the Plan that was filled.
    pub fn with_plan(self, plan: Plan<'r>) -> Planned<'r> {
        match self {
            Planned::Denied(exception) => Planned::Denied(exception),
            Planned::Bypassed(exception) => Planned::Bypassed(exception),
            Planned::Refused { rule, rule_index, variant, missing } => {
                Planned::Refused { rule, rule_index, variant, missing }
            }
            Planned::Unmatched { skipped } => Planned::Unmatched { skipped },
            Planned::Plan { plan: (), skipped, cost_failed } => Planned::Plan { plan, skipped, cost_failed },
        }
    }
}

/// How one rule sees a request.
#[derive(Clone, Debug)]
pub struct RuleTrace<'r, 'a> {
    /// The rule.
    pub rule: &'r Rule,
    /// The conditions that do not hold. The rule matches if this is empty and the rule is not off.
    pub unmet: Vec<&'r super::condition::Condition>,
    /// The subject, or the fallback chain without a present attribute.
    pub subject: Result<SubjectParts<'a>, &'a [String]>,
    /// The override that applies, if one does.
    pub changed_by: Option<&'r Override>,
    /// The limit in force.
    pub limit: &'r RuleLimit,
    /// The cost of the request.
    pub cost: ResolvedCost,
    /// Whether the rollout includes the subject.
    pub in_rollout: bool,
    /// Whether its refusal would refuse the request.
    pub blocking: bool,
}

impl RuleSet {
    /// Returns the Plan of a request at `now`, or a decision that needs no store.
    ///
    /// `now` is the caller's time. It selects calendar periods, which the store checks by its own clock, and it ends
    /// overrides. During a rotation of the hash key every rule is charged under both keys (see [`SubjectHashers`]). The
    /// current key decides which subjects are in a rollout.
    pub fn plan<'r>(
        &'r self,
        request: &Request<'_>,
        hashers: &SubjectHashers,
        now: Time,
    ) -> Result<Planned<'r>, PlanError> {
        let mut plan = Plan::new();
        let planned = self.plan_into(request, hashers, now, &mut plan)?;
        Ok(planned.with_plan(plan))
    }

    /// Like [`plan`](RuleSet::plan), but fills an empty Plan. Moving a Plan costs more than making it.
    ///
    /// Postpaid rules ask for the cost as others do. [`plan_postpaid`](RuleSet::plan_postpaid) treats them as such.
    pub fn plan_into<'r>(
        &'r self,
        request: &Request<'_>,
        hashers: &SubjectHashers,
        now: Time,
        plan: &mut Plan<'r>,
    ) -> Result<Planned<'r, ()>, PlanError> {
        self.plan_to(request, hashers, now, plan)
    }

    /// Like [`plan_into`](RuleSet::plan_into), for rules of which some are postpaid. Costs that postpaid rules book go to
    /// `records`, whatever the other rules decide, and also if the request is refused without the store. If no cost is
    /// stated, they ask with cost 0. An invalid charge is an error, and the records are valid nevertheless.
    pub fn plan_postpaid<'r>(
        &'r self,
        request: &Request<'_>,
        hashers: &SubjectHashers,
        now: Time,
        plan: &mut Plan<'r>,
        records: &mut Plan<'r>,
    ) -> Result<Planned<'r, ()>, PlanError> {
        let mut plans = PostpaidPlans::new(plan, records);
        let planned = self.plan_to(request, hashers, now, &mut plans)?;
        plans.fault.map_or(Ok(planned), Err)
    }

    /// Fills an empty Plan with one operation on the key of every rule that matches. `operation` gets the cost of the
    /// request under the rule. Rules that refuse without the store are left out.
    pub fn plan_follow_up<'r>(
        &'r self,
        request: &Request<'_>,
        hashers: &SubjectHashers,
        now: Time,
        operation: impl Fn(u64) -> Operation,
        plan: &mut Plan<'r>,
    ) -> Result<(), PlanError> {
        self.plan_to(request, hashers, now, &mut FollowUpPlan { plan, operation }).map(drop)
    }

    fn plan_to<'r>(
        &'r self,
        request: &Request<'_>,
        hashers: &SubjectHashers,
        now: Time,
        plans: &mut impl PlanItems<'r>,
    ) -> Result<Planned<'r, ()>, PlanError> {
        let values = self.prepare(request.attributes);
        let replaced;
        let attributes = match &values {
            None => request.attributes,
            Some(values) if values.is_refused() => return Ok(Planned::Denied(&self.ambiguous_path)),
            Some(values) => {
                replaced = values.replace_in(request.attributes);
                &replaced
            }
        };
        if let Some(denied) = self.deny.iter().find(|exception| exception.denies(attributes, now)) {
            return Ok(Planned::Denied(denied));
        }
        if let Some(bypassed) = self.bypass.iter().find(|exception| exception.bypasses(attributes, now)) {
            return Ok(Planned::Bypassed(bypassed));
        }
        if let Some(permitted) = request.permitted_rules {
            self.check_permitted(permitted, attributes)?;
        }
        let (mut skipped, mut cost_failed) = (0, 0);
        let mut refused = None;
        // Consecutive rules mostly count the same subject, so it is found and hashed once.
        let (mut last_subject, mut subjects) = (None, SubjectParts::default());
        for &rule_index in &self.candidates(attributes) {
            if !self.matches(rule_index, attributes) {
                continue;
            }
            let rule_index = rule_index as usize;
            let rule = &self.rules[rule_index];
            let same_as = self.compiled[rule_index].same_subject_as;
            let subject = match last_subject {
                Some((last, subject)) if last == same_as => subject,
                _ if rule.per.find_into(attributes, &mut subjects).is_ok() => {
                    let subject = subjects.hash(hashers.current());
                    last_subject = Some((same_as, subject));
                    subject
                }
                _ => {
                    last_subject = None;
                    match rule.missing {
                        Missing::Skip => skipped += 1,
                        Missing::Refuse if rule.mode == Mode::Enforce => {
                            let rule_index = rule_index as u32;
                            let refusal = Planned::Refused { rule, rule_index, variant: 0, missing: true };
                            if plans.end_at_refusal() {
                                return Ok(refusal);
                            }
                            refused.get_or_insert(refusal);
                        }
                        Missing::Refuse => skipped += 1,
                    }
                    continue;
                }
            };
            let blocking = rule.blocks(subject);
            let (variant, in_force) = self.in_force(rule_index, attributes, now);
            let Some(limit) = in_force.at(now) else {
                if blocking {
                    let rule_index = rule_index as u32;
                    let refusal = Planned::Refused { rule, rule_index, variant, missing: false };
                    if plans.end_at_refusal() {
                        return Ok(refusal);
                    }
                    refused.get_or_insert(refusal);
                }
                continue;
            };
            let ResolvedCost { cost, failed } = plans.cost(rule, attributes, request);
            cost_failed += u32::from(failed);
            let item = Item {
                key: self.key(rule_index, &subjects, subject, hashers.current()),
                limit,
                operation: Operation::Charge { cost, token: request.token },
                blocking,
                on_failure: rule.on_failure.for_request(attributes),
                layers: rule.layers,
                rule_index: rule_index as u32,
                variant,
                ip_subjects_max: rule.ip_subjects_max.filter(|_| subjects.is_anonymous()),
                slices: rule.slices,
                // What a shadow rule counts is not consumption that anybody is billed for.
                ledger: rule.ledger.filter(|_| blocking),
            };
            plans.push(rule, cost, item)?;
            if let Some(previous) = hashers.previous() {
                let key = self.key(rule_index, &subjects, subjects.hash(previous), previous);
                plans.push_copy_of_last(key)?;
            }
        }
        if let Some(refused) = refused {
            return Ok(refused);
        }
        if self.unmatched == Unmatched::Refuse && plans.is_empty() {
            return Ok(Planned::Unmatched { skipped });
        }
        Ok(Planned::Plan { plan: (), skipped, cost_failed })
    }

    /// Checks that no other rule matches, before anything is planned.
    #[cold]
    fn check_permitted(&self, permitted: &[String], attributes: &Attributes<'_>) -> Result<(), PlanError> {
        let matching = self.candidates(attributes).into_iter().filter(|rule| self.matches(*rule, attributes));
        let mut ids = matching.map(|rule| self.rules[rule as usize].keyspace.rule());
        match ids.find(|id| permitted.iter().all(|permitted| permitted != id)) {
            None => Ok(()),
            Some(rule) => Err(PlanError::NotPermitted { rule: rule.to_owned() }),
        }
    }

    /// Returns how every rule sees a request, whether it matches or not. Its attributes are prepared (see
    /// [`RuleSet::prepare`]).
    pub fn explain<'r, 'a>(
        &'r self,
        request: &Request<'a>,
        hasher: &SubjectHasher,
        now: Time,
    ) -> Vec<RuleTrace<'r, 'a>>
    where
        'r: 'a,
    {
        let attributes = request.attributes;
        let explain = |(rule_index, rule): (usize, &'r Rule)| {
            let subject = rule.per.find(attributes);
            let hash = subject.as_ref().ok().map(|subjects| subjects.hash(hasher));
            let (variant, limit) = self.in_force(rule_index, attributes, now);
            let changed_by =
                variant.checked_sub(1).map(|number| &self.overrides_of(rule_index)[number as usize]);
            RuleTrace {
                rule,
                unmet: rule.conditions.iter().filter(|condition| !condition.holds(attributes)).collect(),
                subject,
                changed_by,
                limit,
                cost: if rule.postpaid {
                    rule.cost.resolve_postpaid(attributes, request.states_cost.then_some(request.cost))
                } else {
                    rule.cost.resolve(attributes, request.cost)
                },
                in_rollout: hash.is_some_and(|hash| rule.rollout.includes(hash)),
                blocking: hash.is_some_and(|hash| rule.blocks(hash)),
            }
        };
        self.rules.iter().enumerate().map(explain).collect()
    }

    /// Returns the key of a subject. The hash tag depends only on the subject, so that its count stays in one place.
    fn key(
        &self,
        rule_index: usize,
        subjects: &SubjectParts<'_>,
        subject: Subject,
        hasher: &SubjectHasher,
    ) -> Key<'_> {
        let keyspace = &self.rules[rule_index].keyspace;
        let Placement { partition, slots } = &self.placement;
        let tag = if self.compiled[rule_index].uses_partition_tag {
            subjects.hash_partition(hasher, partition)
        } else {
            subject
        };
        keyspace.key_tagged(slots.map_or(tag, |slots| tag.slot_tag(slots)), subject)
    }
}

impl Rule {
    /// Whether its refusal refuses requests of this subject.
    fn blocks(&self, subject: Subject) -> bool {
        self.mode == Mode::Enforce && self.rollout.includes(subject)
    }
}
