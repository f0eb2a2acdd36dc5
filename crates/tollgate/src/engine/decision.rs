//! A decision together with the rules that made it.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::Guard;
use smallvec::SmallVec;
use tollgate_core::decision::{Numbers, RetryAfter, RuleOutcome, Source};
use tollgate_core::limit::part::Shard;
use tollgate_core::plan::answer::AnsweredBy;
use tollgate_core::rules::{Planned, Rule, RuleLimit, RuleSet};
use tollgate_core::{
    Algorithm, Exactness, Item, Key, Limit, Mark, Nonce, Plan, PlanDecision, Receipt, Recording, Subject,
    Time,
};

use super::active_rules::ActiveRules;
use super::receipts::nonces::new_nonce;

/// Few rules match one request, so their accounts stay on the stack.
const INLINE: usize = 4;

/// The result of one check: whether the request is allowed, and what each rule decided.
///
/// The numbers ([`limit`](Decision::limit), [`remaining`](Decision::remaining), [`retry_after`](Decision::retry_after),
/// [`reset_at`](Decision::reset_at)) are those of the [headline](Decision::headline) rule: of a refusal the refusing rule
/// with the longest wait, of an admission the rule with the least remaining. [`rules`](Decision::rules) has the numbers of
/// every rule. A decision keeps the rules that made it, also after they are replaced.
pub struct Decision {
    pub(super) active: Guard<Arc<ActiveRules>>,
    pub(super) found: PlanDecision,
    pub(super) accounts: Accounts,
}

/// The key that one rule's charge went to.
#[derive(Clone, Copy)]
pub(super) struct Account {
    pub(super) tag: Subject,
    pub(super) subject: Subject,
    /// The shard of a sharded rule that was charged.
    pub(super) shard: Option<Shard>,
}

impl Account {
    #[inline]
    const fn of(item: &Item<'_>) -> Account {
        Account { tag: item.key.tag(), subject: item.key.subject(), shard: item.shard }
    }
}

/// The keys that the charges of a Plan went to.
#[derive(Default)]
pub(super) struct Accounts {
    /// One for each item of the Plan.
    of_items: SmallVec<[Account; INLINE]>,
    /// The instant the Plan was made for.
    planned_for: Time,
    /// The store's time of the charges.
    charged_at: Time,
    /// Made when the first receipt is: most decisions have none.
    nonce: OnceLock<Nonce>,
}

impl Accounts {
    #[inline]
    pub(super) fn note(&mut self, plan: &Plan<'_>, planned_for: Time, charged_at: Time) {
        (self.planned_for, self.charged_at) = (planned_for, charged_at);
        for item in plan.items() {
            self.of_items.push(Account::of(item));
        }
    }

    /// Adds the keys to which costs were booked beside the Plan.
    pub(super) fn note_records(&mut self, items: &[Item<'_>], booked_at: Option<Time>) {
        for item in items {
            self.of_items.push(Account::of(item));
        }
        if let Some(booked_at) = booked_at {
            self.charged_at = self.charged_at.max(booked_at);
        }
    }

    pub(super) fn clear(&mut self) {
        self.of_items.clear();
    }

    /// Sets the nonce of the charges, unless they have one.
    pub(super) fn set_nonce(&mut self, nonce: Nonce) {
        self.nonce.get_or_init(|| nonce);
    }
}

/// A charge that a store has booked, with all that gives it back.
#[derive(Clone, Copy)]
pub(super) struct Charge<'k> {
    pub(super) key: Key<'k>,
    pub(super) limit: Limit,
    pub(super) mark: Mark,
    pub(super) cost: u64,
    /// Whether the rule sets the cost itself.
    pub(super) fixed_cost: bool,
    /// Whether the rule can refuse.
    pub(super) blocking: bool,
    /// How the ledger records what follows.
    pub(super) ledger: Option<Recording>,
    pub(super) charged_at: Time,
    pub(super) nonce: Nonce,
}

/// One rule's part of a [`Decision`].
#[derive(Clone, Copy)]
pub struct RuleDecision<'d> {
    decision: &'d Decision,
    rule: &'d Rule,
    outcome: &'d RuleOutcome,
    /// The key that the store was asked about. `None` if it was not asked.
    account: Option<&'d Account>,
}

/// The decision on a request that needs no store.
pub(super) fn without_store(planned: &Planned<'_, ()>) -> PlanDecision {
    match *planned {
        Planned::Denied(_) | Planned::Plan { .. } => PlanDecision::from_list(false),
        Planned::Bypassed(_) => PlanDecision::from_list(true),
        Planned::Unmatched { .. } => PlanDecision::refused_as_unmatched(),
        Planned::Refused { rule, rule_index, variant, .. } => PlanDecision::refused_by_rule(RuleOutcome {
            rule_index,
            variant,
            algorithm: rule.limit.algorithm(),
            allowed: false,
            blocking: true,
            cost: 0,
            by: AnsweredBy::Rule,
            numbers: None,
        }),
    }
}

impl Decision {
    /// A decision that is still to be made.
    // Always inlined: a returned decision would be copied to its place, with all the room for its rules.
    #[inline(always)]
    pub(super) fn new(active: Guard<Arc<ActiveRules>>) -> Decision {
        Decision { active, found: PlanDecision::from_list(false), accounts: Accounts::default() }
    }

    /// Whether the request may proceed.
    #[inline]
    pub fn allowed(&self) -> bool {
        self.found.allowed
    }

    /// The id of the headline rule. `None` if no rule matched, or the deny list or bypass list decided.
    pub fn rule(&self) -> Option<&str> {
        self.headline().map(|rule| rule.id())
    }

    /// The limit of the headline rule in units. `None` if there is no headline or the store did not answer.
    pub fn limit(&self) -> Option<u64> {
        self.headline()?.limit()
    }

    /// Whole units that remain under the headline rule. `None` if there is no headline or the store did not answer.
    pub fn remaining(&self) -> Option<u64> {
        self.headline()?.remaining()
    }

    /// How long to wait before the same request is admitted. Zero if it is allowed; `None` if waiting does not help or
    /// the wait is unknown.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.found.allowed {
            return Some(Duration::ZERO);
        }
        self.headline()?.retry_after()
    }

    /// When the headline rule has its whole limit available again if nothing else is charged.
    pub fn reset_at(&self) -> Option<SystemTime> {
        self.headline()?.reset_at()
    }

    /// How long an allowed request must wait before it proceeds: a leaky-bucket queue booked a later slot for it. Zero
    /// under all other limits.
    pub fn delay(&self) -> Duration {
        Duration::from_millis(self.found.delay_ms)
    }

    /// Which part of the system decided: the store, a list, a rule, or the failure policies.
    #[inline]
    pub fn source(&self) -> Source {
        self.found.source
    }

    /// What the decision guarantees: the weakest guarantee of the rules that block.
    #[inline]
    pub fn exactness(&self) -> Exactness {
        self.found.exactness
    }

    /// Whether the request is allowed although the store did not answer, because a rule says `on_failure: degraded` or
    /// `open`. Callers can save work.
    #[inline]
    pub fn degraded(&self) -> bool {
        self.found.degraded
    }

    /// The rule that headers and error bodies describe.
    pub fn headline(&self) -> Option<RuleDecision<'_>> {
        self.found.headline.map(|index| self.view(index))
    }

    /// Every matched rule's own decision, in the order of the rules file. Postpaid rules that booked a cost come last.
    pub fn rules(&self) -> impl Iterator<Item = RuleDecision<'_>> {
        (0..self.found.rules.len()).map(|index| self.view(index))
    }

    /// The attributes that the headline rule counts by, if it refused the request because one of them is missing: one
    /// list of alternatives for each part of `per`.
    pub fn missing_subject(&self) -> Option<&[Vec<String>]> {
        let rule = self.headline().filter(|_| !self.found.allowed && self.found.source == Source::Rule)?;
        let outcome = rule.outcome();
        let refused_by = self.active.rules.variant(outcome.rule_index, outcome.variant);
        (refused_by != Some(&RuleLimit::Deny)).then_some(&rule.rule().per.parts)
    }

    /// Shadow rules that would have refused the request.
    pub fn shadow_rejected(&self) -> impl Iterator<Item = RuleDecision<'_>> {
        self.rules().filter(|rule| !rule.blocking() && !rule.allowed())
    }

    /// The rules that made the decision.
    #[doc(hidden)]
    pub fn rule_set(&self) -> &RuleSet {
        &self.active.rules
    }

    /// How often the rules had been replaced when the decision was made.
    pub fn rules_version(&self) -> u64 {
        self.active.version
    }

    /// Receipts for everything that can be given back: one for each rule that was charged and can give back. A
    /// receipt is enough to give its charge back, once, so treat receipts like secrets.
    pub fn receipts(&self) -> Vec<Receipt> {
        self.charges()
            .map(|Charge { key, limit, mark, cost, fixed_cost, blocking, ledger, charged_at, nonce }| {
                Receipt {
                    namespace: key.keyspace().namespace().to_owned(),
                    rule: key.keyspace().rule().to_owned(),
                    tag: key.tag(),
                    subject: key.subject(),
                    limit,
                    mark,
                    charged_at,
                    cost,
                    fixed_cost,
                    blocking,
                    ledger,
                    nonce,
                }
            })
            .collect()
    }

    /// When it was made, by the store's clock. 1970 if the store was not asked.
    #[doc(hidden)]
    pub const fn decided_at(&self) -> Time {
        self.accounts.charged_at
    }

    /// The decision in the core's own form, with numbers in milliseconds.
    #[doc(hidden)]
    pub const fn plan_decision(&self) -> &PlanDecision {
        &self.found
    }

    /// The charges that the store has booked.
    pub(super) fn charges(&self) -> impl Iterator<Item = Charge<'_>> {
        let allowed = self.found.allowed;
        let booked = self.found.rules.iter().zip(&self.accounts.of_items).filter(move |_| allowed);
        let mut last_rule = None;
        booked.filter_map(move |(outcome, account)| {
            // While a hash key is replaced, the second item of a rule is a copy that the ledger leaves out.
            let is_copy = last_rule.replace(outcome.rule_index) == Some(outcome.rule_index);
            let mark = outcome.numbers.map_or(Mark::None, |numbers| numbers.mark);
            if mark == Mark::None {
                return None;
            }
            let rule = &self.active.rules.rules()[outcome.rule_index as usize];
            let limit = self.limit_of(outcome, account.shard).expect("a charged rule has a limit");
            Some(Charge {
                key: rule.keyspace.key_tagged(account.tag, account.subject),
                limit,
                mark,
                cost: outcome.cost,
                fixed_cost: rule.cost.is_fixed(),
                blocking: outcome.blocking,
                ledger: rule.ledger.filter(|_| outcome.blocking && !is_copy),
                charged_at: self.accounts.charged_at,
                nonce: *self.accounts.nonce.get_or_init(new_nonce),
            })
        })
    }

    /// The limit that this outcome is about. Made again from the rules, which a decision keeps, instead of carried along:
    /// few callers need it, and every decision is moved.
    fn limit_of(&self, outcome: &RuleOutcome, shard: Option<Shard>) -> Option<Limit> {
        let limit =
            self.active.rules.variant(outcome.rule_index, outcome.variant)?.at(self.accounts.planned_for)?;
        match shard {
            None => Some(limit),
            Some(shard) => limit.part(shard),
        }
    }

    fn view(&self, index: usize) -> RuleDecision<'_> {
        let outcome = &self.found.rules[index];
        RuleDecision {
            decision: self,
            rule: &self.active.rules.rules()[outcome.rule_index as usize],
            outcome,
            account: self.accounts.of_items.get(index),
        }
    }

    /// The same decision with an owned reference to its rules. For decisions that live long: a guard occupies one of the
    /// few fast slots of its thread.
    pub(crate) fn detached(self) -> Decision {
        let Decision { active, found, accounts } = self;
        Decision { active: Guard::from_inner(Guard::into_inner(active)), found, accounts }
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules: Vec<_> = self.rules().collect();
        f.debug_struct("Decision")
            .field("allowed", &self.found.allowed)
            .field("headline", &self.rule())
            .field("source", &self.found.source)
            .field("rules", &rules)
            .finish_non_exhaustive()
    }
}

impl<'d> RuleDecision<'d> {
    /// The rule's id.
    pub fn id(&self) -> &'d str {
        self.rule.keyspace.rule()
    }

    /// Whether this rule alone admits the request.
    #[inline]
    pub const fn allowed(&self) -> bool {
        self.outcome.allowed
    }

    /// Whether this rule can refuse the request. A shadow rule cannot.
    #[inline]
    pub const fn blocking(&self) -> bool {
        self.outcome.blocking
    }

    /// How many units the request costs under this rule.
    pub const fn cost(&self) -> u64 {
        self.outcome.cost
    }

    /// How the rule counts. `None` for `limit: deny`.
    pub const fn algorithm(&self) -> Option<Algorithm> {
        self.outcome.algorithm
    }

    /// The limit in units. `None` if the store did not answer or was not asked.
    pub fn limit(&self) -> Option<u64> {
        self.numbers().map(|numbers| numbers.limit)
    }

    /// Whole units that remain. `None` if the store did not answer or was not asked.
    pub fn remaining(&self) -> Option<u64> {
        self.numbers().map(|numbers| numbers.remaining)
    }

    /// How long to wait before this rule admits the request: zero if it does. `None` if waiting does not help or the
    /// wait is unknown.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.outcome.numbers?.retry_after {
            RetryAfter::Ms(ms) => Some(Duration::from_millis(ms)),
            RetryAfter::Never => None,
        }
    }

    /// How long this rule makes the request wait before it proceeds.
    pub fn delay(&self) -> Duration {
        Duration::from_millis(self.numbers().map_or(0, |numbers| numbers.delay_ms))
    }

    /// When the whole limit is available again if nothing else is charged.
    pub fn reset_at(&self) -> Option<SystemTime> {
        self.numbers().map(|numbers| UNIX_EPOCH + Duration::from_millis(numbers.reset_at_ms))
    }

    const fn numbers(&self) -> Option<&'d Numbers> {
        self.outcome.numbers.as_ref()
    }

    /// The rule in the core's own form.
    #[doc(hidden)]
    pub const fn rule(&self) -> &'d Rule {
        self.rule
    }

    /// The limit that applied, overrides included. `None` for a rule that refused without asking the store.
    #[doc(hidden)]
    pub fn limit_in_force(&self) -> Option<Limit> {
        self.decision.limit_of(self.outcome, self.account?.shard)
    }

    /// The subject that was counted. `None` for a rule that refused without asking the store.
    #[doc(hidden)]
    #[inline]
    pub fn subject(&self) -> Option<Subject> {
        // The shard of a subject is made by the same step as the subject of a shard.
        self.account.map(|account| match account.shard {
            None => account.subject,
            Some(shard) => account.subject.of_shard(shard),
        })
    }

    /// The shard that was asked, if the rule is sharded.
    #[doc(hidden)]
    pub fn shard(&self) -> Option<Shard> {
        self.account?.shard
    }

    /// The outcome in the core's own form, with numbers in milliseconds.
    #[doc(hidden)]
    pub const fn outcome(&self) -> &'d RuleOutcome {
        self.outcome
    }
}

impl fmt::Debug for RuleDecision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleDecision").field("id", &self.id()).field("outcome", self.outcome).finish()
    }
}
