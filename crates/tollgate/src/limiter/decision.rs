//! A decision together with the rules that made it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::Guard;
use smallvec::SmallVec;
use tollgate_core::decision::{RetryAfter, RuleOutcome};
use tollgate_core::rules::{Planned, Rule, RuleSet};
use tollgate_core::{Limit, Mark, Plan, PlanDecision, Receipt, Subject, Time};

/// Few enough rules match one request that their accounts stay on the stack.
const INLINE: usize = 4;

/// Rules, and how often others had been in force before them.
pub(super) struct InForce {
    pub(super) rules: RuleSet,
    pub(super) version: u64,
    /// Tells the rules from others, the same on every server that read the same text; 0 if there is no text.
    pub(super) text_hash: u64,
}

/// The one answer: `allowed` and everything around it (see [`PlanDecision`](tollgate_core::PlanDecision) for the fields),
/// and the rules that it came from, as they were at that moment.
pub struct Decision {
    pub(super) in_force: Guard<Arc<InForce>>,
    pub(super) found: PlanDecision,
    pub(super) accounts: Accounts,
}

/// Where one rule's charge went.
#[derive(Clone, Copy)]
pub(super) struct Account {
    pub(super) tag: Subject,
    pub(super) subject: Subject,
}

/// Where the charges of a Plan went.
#[derive(Default)]
pub(super) struct Accounts {
    /// One for each item of the Plan.
    of_items: SmallVec<[Account; INLINE]>,
    /// The instant the Plan was made for.
    planned_for: Time,
}

impl Accounts {
    pub(super) fn note(&mut self, plan: &Plan<'_>, planned_for: Time) {
        self.planned_for = planned_for;
        for item in plan.items() {
            self.of_items.push(Account { tag: item.key.tag(), subject: item.key.subject() });
        }
    }

    pub(super) fn clear(&mut self) {
        self.of_items.clear();
    }
}

/// A charge that was booked.
pub(super) struct Charge<'d> {
    pub(super) rule: &'d Rule,
    pub(super) account: &'d Account,
    pub(super) limit: Limit,
    mark: Mark,
    cost: u64,
}

/// What one rule said, and the rule. Has the fields of [`RuleOutcome`].
#[derive(Clone, Copy)]
pub struct RuleView<'d> {
    decision: &'d Decision,
    rule: &'d Rule,
    outcome: &'d RuleOutcome,
    /// Whether the store was asked.
    asked: bool,
}

/// The answer to a request that no store has to be asked about.
pub(super) fn without_store(planned: &Planned<'_, ()>) -> PlanDecision {
    match *planned {
        Planned::Denied(_) | Planned::Plan { .. } => PlanDecision::from_list(false),
        Planned::Bypassed(_) => PlanDecision::from_list(true),
        Planned::Refused { rule, rule_index, variant, .. } => PlanDecision::refused_by_rule(RuleOutcome {
            rule_index,
            variant,
            algorithm: rule.limit.algorithm(),
            allowed: false,
            blocking: true,
            cost: 0,
            numbers: None,
        }),
    }
}

impl Decision {
    /// A decision that is still to be made.
    pub(super) fn new(in_force: Guard<Arc<InForce>>) -> Decision {
        Decision { in_force, found: PlanDecision::from_list(false), accounts: Accounts::default() }
    }

    /// The rule to tell the caller about: of a refusal the one with the longest wait, of an admission the one with the
    /// least left.
    pub fn headline(&self) -> Option<RuleView<'_>> {
        self.found.headline.map(|index| self.view(index))
    }

    /// What every rule said, in the order of the rules file.
    pub fn rules(&self) -> impl Iterator<Item = RuleView<'_>> {
        (0..self.found.rules.len()).map(|index| self.view(index))
    }

    /// Rules that would have refused had they been enforced.
    pub fn shadow_rejected(&self) -> impl Iterator<Item = RuleView<'_>> {
        self.rules().filter(|rule| !rule.blocking && !rule.allowed)
    }

    /// How long to wait before asking again. Zero if it is allowed, none if waiting does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.found.allowed {
            return Some(Duration::ZERO);
        }
        match self.headline()?.outcome.numbers?.retry_after {
            RetryAfter::Ms(ms) => Some(Duration::from_millis(ms)),
            RetryAfter::Never => None,
        }
    }

    /// How long an admission must wait before it proceeds: a shaper booked it a later slot.
    pub fn delay(&self) -> Duration {
        Duration::from_millis(self.found.delay_ms)
    }

    /// How often the rules had been replaced when it was made.
    pub fn rules_version(&self) -> u64 {
        self.in_force.version
    }

    /// What can be given back, one receipt for each rule that was charged and takes anything back.
    pub fn receipts(&self) -> Vec<Receipt> {
        self.charges()
            .map(|Charge { rule, account, mark, cost, .. }| Receipt {
                rule: rule.keyspace.rule().to_owned(),
                rules_version: self.in_force.version,
                tag: account.tag,
                subject: account.subject,
                mark,
                cost,
            })
            .collect()
    }

    /// The charges that were booked somewhere.
    pub(super) fn charges(&self) -> impl Iterator<Item = Charge<'_>> {
        let allowed = self.found.allowed;
        let booked = self.found.rules.iter().zip(&self.accounts.of_items).filter(move |_| allowed);
        booked.filter_map(|(outcome, account)| {
            let mark = outcome.numbers.map_or(Mark::None, |numbers| numbers.mark);
            if mark == Mark::None {
                return None;
            }
            let rule = &self.in_force.rules.rules()[outcome.rule_index as usize];
            let limit = self.limit_of(outcome).expect("what was charged has a limit");
            Some(Charge { rule, account, limit, mark, cost: outcome.cost })
        })
    }

    /// The limit that this outcome is about. Made again from the rules, which a decision keeps, rather than carried along:
    /// few look at it, and every decision is moved.
    fn limit_of(&self, outcome: &RuleOutcome) -> Option<Limit> {
        self.in_force.rules.variant(outcome.rule_index, outcome.variant)?.at(self.accounts.planned_for)
    }

    fn view(&self, index: usize) -> RuleView<'_> {
        let outcome = &self.found.rules[index];
        RuleView {
            decision: self,
            rule: &self.in_force.rules.rules()[outcome.rule_index as usize],
            outcome,
            asked: index < self.accounts.of_items.len(),
        }
    }
}

impl Deref for Decision {
    type Target = PlanDecision;

    fn deref(&self) -> &PlanDecision {
        &self.found
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules: Vec<_> = self.rules().collect();
        f.debug_struct("Decision")
            .field("allowed", &self.found.allowed)
            .field("headline", &self.headline().map(|rule| rule.id()))
            .field("source", &self.found.source)
            .field("rules", &rules)
            .finish_non_exhaustive()
    }
}

impl<'d> RuleView<'d> {
    /// The rule's id.
    pub fn id(&self) -> &'d str {
        self.rule.keyspace.rule()
    }

    /// The rule.
    pub const fn rule(&self) -> &'d Rule {
        self.rule
    }

    /// The limit in force, overrides considered; none for a rule that refused without asking the store.
    pub fn limit(&self) -> Option<Limit> {
        if self.asked { self.decision.limit_of(self.outcome) } else { None }
    }

    /// What it said.
    pub const fn outcome(&self) -> &'d RuleOutcome {
        self.outcome
    }
}

impl Deref for RuleView<'_> {
    type Target = RuleOutcome;

    fn deref(&self) -> &RuleOutcome {
        self.outcome
    }
}

impl fmt::Debug for RuleView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleView").field("id", &self.id()).field("outcome", self.outcome).finish()
    }
}
