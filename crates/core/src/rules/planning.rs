//! From a request to a Plan, and the story of how it came about.

use super::cost::ResolvedCost;
use super::placement::Placement;
use super::rule::{Missing, Mode, Override, Rule};
use super::rule_limit::RuleLimit;
use super::rule_set::{ListEntry, RuleSet};
use super::subject_selector::SubjectParts;
use crate::attributes::Attributes;
use crate::key::{Key, Subject, SubjectHasher, SubjectHashers};
use crate::plan::operation::{Operation, Token};
use crate::plan::{Item, Plan, PlanError};
use crate::time::Time;

/// A check, before rules have been looked at.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What is known of it.
    pub attributes: &'a Attributes<'a>,
    /// What the caller says it costs, for rules that do not say it themselves.
    pub cost: u64,
    /// The token of any lease it takes.
    pub token: Token,
    /// Its id, if it may be sent more than once and is to be charged once.
    pub id: Option<&'a str>,
}

impl<'a> Request<'a> {
    /// A request that costs 1 unless a rule says otherwise.
    pub const fn new(attributes: &'a Attributes<'a>) -> Request<'a> {
        Request { attributes, cost: 1, token: Token::NONE, id: None }
    }

    /// The same at another cost.
    #[must_use]
    pub const fn cost(self, cost: u64) -> Request<'a> {
        Request { cost, ..self }
    }

    /// The same under an id of the caller's own: sent again within the limiter's horizon, it gets the same answer and is
    /// not charged again. Only what was admitted is remembered. Never take an id from whom the limit is meant for.
    #[must_use]
    pub const fn id(self, id: &'a str) -> Request<'a> {
        Request { id: Some(id), ..self }
    }

    /// The same with a token of the caller's own for any lease it takes.
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

/// What the rules make of a request.
#[derive(Clone, Debug)]
pub enum Planned<'r, P = Plan<'r>> {
    /// On the deny list: refused before any store is asked.
    Denied(&'r ListEntry),
    /// On the bypass list: allowed before any store is asked.
    Bypassed(&'r ListEntry),
    /// A rule refuses without asking: it allows nothing, or the subject it demands is not there.
    Refused {
        /// The rule.
        rule: &'r Rule,
        /// Where it stands.
        rule_index: u32,
        /// Which of its limits it refuses by (see [`Item::variant`]).
        variant: u32,
        /// Whether the subject is missing.
        missing: bool,
    },
    /// To be asked of the store.
    Plan {
        /// The Plan, or nothing where it was made elsewhere.
        plan: P,
        /// Rules that matched but found no subject: to be counted.
        skipped: u32,
        /// Rules whose cost expression failed: to be counted and logged.
        cost_failed: u32,
    },
}

/// How one rule looks at a request.
#[derive(Clone, Debug)]
pub struct RuleTrace<'r, 'a> {
    /// The rule.
    pub rule: &'r Rule,
    /// The conditions that do not hold; it matches if there are none and it is not off.
    pub unmet: Vec<&'r super::condition::Condition>,
    /// Who is counted, or the chain of attributes none of which is there.
    pub subject: Result<SubjectParts<'a>, &'a [String]>,
    /// The override that gives the number in force, if one does.
    pub changed_by: Option<&'r Override>,
    /// The number in force.
    pub limit: &'r RuleLimit,
    /// What it costs.
    pub cost: ResolvedCost,
    /// Whether the subject is in the rollout.
    pub in_rollout: bool,
    /// Whether its refusal counts.
    pub blocking: bool,
}

impl RuleSet {
    /// The Plan for a request at `now`, or what is decided without one.
    ///
    /// `now` is the caller's clock: it chooses calendar periods and ends overrides, and the store corrects the former.
    /// While one hash key takes the place of another, every rule is charged under both (see [`SubjectHashers`]); who is
    /// in a rollout is decided by the current one.
    pub fn plan<'r>(
        &'r self,
        request: &Request<'_>,
        hashers: &SubjectHashers,
        now: Time,
    ) -> Result<Planned<'r>, PlanError> {
        let mut plan = Plan::new();
        Ok(match self.plan_into(request, hashers, now, &mut plan)? {
            Planned::Denied(exception) => Planned::Denied(exception),
            Planned::Bypassed(exception) => Planned::Bypassed(exception),
            Planned::Refused { rule, rule_index, variant, missing } => {
                Planned::Refused { rule, rule_index, variant, missing }
            }
            Planned::Plan { plan: (), skipped, cost_failed } => Planned::Plan { plan, skipped, cost_failed },
        })
    }

    /// [`plan`](RuleSet::plan) into an empty Plan that is there already: a Plan is large, and moving it costs more than
    /// making it.
    pub fn plan_into<'r>(
        &'r self,
        request: &Request<'_>,
        hashers: &SubjectHashers,
        now: Time,
        plan: &mut Plan<'r>,
    ) -> Result<Planned<'r, ()>, PlanError> {
        let attributes = request.attributes;
        if let Some(denied) = self.deny.iter().find(|exception| exception.holds(attributes)) {
            return Ok(Planned::Denied(denied));
        }
        if let Some(bypassed) = self.bypass.iter().find(|exception| exception.holds(attributes)) {
            return Ok(Planned::Bypassed(bypassed));
        }
        let (mut skipped, mut cost_failed) = (0, 0);
        // Rules that follow each other mostly count the same subjects: found and hashed once.
        let (mut counted_like, mut subjects) = (None, SubjectParts::default());
        for &rule_index in &self.candidates(attributes) {
            if !self.matches(rule_index, attributes) {
                continue;
            }
            let rule_index = rule_index as usize;
            let rule = &self.rules[rule_index];
            let like = self.compiled[rule_index].counts_like;
            let subject = match counted_like {
                Some((known, subject)) if known == like => subject,
                _ if rule.per.find_into(attributes, &mut subjects).is_ok() => {
                    let subject = subjects.hash(hashers.current());
                    counted_like = Some((like, subject));
                    subject
                }
                _ => {
                    counted_like = None;
                    match rule.missing {
                        Missing::Skip => skipped += 1,
                        Missing::Refuse if rule.mode == Mode::Enforce => {
                            let rule_index = rule_index as u32;
                            return Ok(Planned::Refused { rule, rule_index, variant: 0, missing: true });
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
                    return Ok(Planned::Refused {
                        rule,
                        rule_index: rule_index as u32,
                        variant,
                        missing: false,
                    });
                }
                continue;
            };
            let ResolvedCost { cost, failed } = rule.cost.of(attributes, request.cost);
            cost_failed += u32::from(failed);
            let item = Item {
                key: self.key(rule_index, &subjects, subject, hashers.current()),
                limit,
                operation: Operation::Charge { cost, token: request.token },
                blocking,
                on_failure: rule.on_failure.of(attributes),
                rule_index: rule_index as u32,
                variant,
                ip_subjects_max: rule.ip_subjects_max.filter(|_| subjects.is_anonymous()),
            };
            plan.push(item)?;
            if let Some(previous) = hashers.previous() {
                let key = self.key(rule_index, &subjects, subjects.hash(previous), previous);
                plan.push_last_under(key)?;
            }
        }
        Ok(Planned::Plan { plan: (), skipped, cost_failed })
    }

    /// How every rule looks at a request, whether it matches or not.
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
                cost: rule.cost.of(attributes, request.cost),
                in_rollout: hash.is_some_and(|hash| rule.rollout.includes(hash)),
                blocking: hash.is_some_and(|hash| rule.blocks(hash)),
            }
        };
        self.rules.iter().enumerate().map(explain).collect()
    }

    /// A tag depends on nothing but the rule's own subject, or one subject's count would be split over slots.
    fn key(
        &self,
        rule_index: usize,
        subjects: &SubjectParts<'_>,
        subject: Subject,
        hasher: &SubjectHasher,
    ) -> Key<'_> {
        let keyspace = &self.rules[rule_index].keyspace;
        let Placement { partition, slots } = &self.placement;
        let tag = if self.compiled[rule_index].shares_slot {
            subjects.hash_partition(hasher, partition)
        } else {
            subject
        };
        keyspace.key_tagged(slots.map_or(tag, |slots| tag.slot_tag(slots)), subject)
    }
}

impl Rule {
    /// Whether its refusal counts for this subject.
    fn blocks(&self, subject: Subject) -> bool {
        self.mode == Mode::Enforce && self.rollout.includes(subject)
    }
}
