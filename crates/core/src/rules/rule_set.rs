//! All rules that are in force together, compiled.

use std::collections::HashSet;

use super::condition::Condition;
use super::cost::Cost;
use super::hashed::SubjectTest;
use super::index::{Found, Index};
use super::overlay::{LimitChange, OverrideDraft, layer};
use super::placement::Placement;
use super::preparation::{AmbiguousPaths, Preparation, PreparedValues};
use super::rule::{Mode, Origin, Override, Rule};
use super::rule_limit::RuleLimit;
use super::subject_selector::ADDRESS;
use crate::limit::Algorithm;
use crate::limit::scale::ScaleError;
use crate::request::attributes::Attributes;
use crate::request::path::PATH;
use crate::time::Time;

/// The reason of a refusal because of the path.
const AMBIGUOUS_PATH: &str = "servers read this path in several ways";

/// All rules that are in force together. Valid by construction and read-only.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    pub(super) rules: Vec<Rule>,
    /// What was computed per rule.
    pub(super) compiled: Vec<Compiled>,
    pub(super) deny: Vec<ListEntry>,
    pub(super) bypass: Vec<ListEntry>,
    pub(super) placement: Placement,
    pub(super) unmatched: Unmatched,
    preparation: Preparation,
    /// Refuses targets that have several readings, or too many.
    pub(super) ambiguous_path: ListEntry,
    /// Whether a rule reads the path.
    reads_path: bool,
    /// Whether the attributes of a request may have to be prepared.
    prepares: bool,
    takes_leases: bool,
    has_postpaid: bool,
    has_shards: bool,
    has_names: bool,
    time_independent: bool,
    index: Index,
}

/// What happens to a request that no rule counts: none matches, or every rule that matches skips it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unmatched {
    /// The request is allowed.
    #[default]
    Allow,
    /// The request is refused.
    Refuse,
}

/// What is computed from a rule and the other rules.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    /// Ordered by precedence, highest first.
    pub(super) overrides: Vec<Override>,
    /// Index of the first rule that counts the same subjects.
    pub(super) same_subject_as: u32,
    /// Whether its keys use the hash tag of their partition.
    pub(super) uses_partition_tag: bool,
    /// Whether a subject can include an address.
    pub(super) counts_addresses: bool,
}

/// An entry of the deny list or the bypass list. No rule is checked for requests that match it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListEntry {
    /// Conditions that must all hold.
    pub conditions: Vec<Condition>,
    /// The subject under a rule that it is about, if it names one by its hash.
    pub subject: Option<SubjectTest>,
    /// When it ends.
    pub until: Option<Time>,
    /// For readers of the rules.
    pub reason: String,
    /// Where it is defined.
    pub origin: Origin,
}

/// Why rules do not form a valid rule set.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RuleSetError {
    /// Two rules have the same id and would share their state.
    #[error("duplicate rule id {id:?}")]
    DuplicateId {
        /// The id.
        id: String,
    },
    /// An override names a rule that does not exist.
    #[error("unknown rule {rule:?} in an override")]
    UnknownRule {
        /// The name.
        rule: String,
    },
    /// An override changes the algorithm, which would lose the consumption at each switch.
    #[error("an override of rule {rule:?} changes its algorithm; it can only change numbers, or deny")]
    OtherAlgorithm {
        /// The rule.
        rule: String,
    },
    /// An override multiplies a limit that has no multiple.
    #[error("an override of rule {rule:?} cannot scale its limit: {error}")]
    NotScalable {
        /// The rule.
        rule: String,
        /// Why.
        error: ScaleError,
    },
    /// The overrides of a rule that scale have too many limits below them.
    #[error("the overrides of rule {rule:?} have too many combinations; use fewer with `scale`")]
    TooManyLimits {
        /// The rule.
        rule: String,
    },
}

impl RuleSet {
    /// Compiles rules, their overrides by rule id, the deny list, the bypass list and the placement in a cluster.
    pub fn new(
        rules: Vec<Rule>,
        overrides: Vec<(String, OverrideDraft)>,
        deny: Vec<ListEntry>,
        bypass: Vec<ListEntry>,
        placement: Placement,
    ) -> Result<RuleSet, RuleSetError> {
        let mut ids = HashSet::new();
        if let Some(twice) = rules.iter().find(|rule| !ids.insert(rule.keyspace.rule())) {
            return Err(RuleSetError::DuplicateId { id: twice.keyspace.rule().to_owned() });
        }
        let mut by_rule: Vec<Vec<OverrideDraft>> = vec![Vec::new(); rules.len()];
        for (id, draft) in overrides {
            let Some(at) = rules.iter().position(|rule| rule.keyspace.rule() == id) else {
                return Err(RuleSetError::UnknownRule { rule: id });
            };
            if let LimitChange::To(limit) = &draft.change {
                rules[at].check_change(limit)?;
            }
            by_rule[at].push(draft);
        }
        let layers = rules.iter().zip(by_rule).map(|(rule, drafts)| layer(rule, drafts, Vec::new(), false));
        let by_rule = layers.collect::<Result<Vec<Vec<Override>>, RuleSetError>>()?;
        let index = Index::new(rules.iter().map(|rule| rule.conditions.as_slice()));
        let has_postpaid = rules.iter().any(|rule| rule.postpaid);
        let has_shards = rules.iter().any(|rule| rule.shards.is_some());
        let has_names = rules.iter().any(|rule| rule.ledger_name.is_some());
        let partition = &placement.partition;
        let compile = |(rule, overrides): (&Rule, Vec<Override>)| Compiled {
            overrides,
            same_subject_as: rules.iter().take_while(|other| other.per != rule.per).count() as u32,
            uses_partition_tag: !partition.is_empty()
                && partition.iter().all(|name| rule.per.always_includes(name)),
            counts_addresses: rule.per.parts.iter().flatten().any(|name| name == ADDRESS),
        };
        let compiled = rules.iter().zip(by_rule).map(compile).collect();
        let mut set = RuleSet {
            rules,
            compiled,
            deny,
            bypass,
            placement,
            preparation: Preparation::default(),
            ambiguous_path: ListEntry { reason: AMBIGUOUS_PATH.to_owned(), ..ListEntry::default() },
            reads_path: false,
            prepares: false,
            unmatched: Unmatched::Allow,
            takes_leases: false,
            has_postpaid,
            has_shards,
            has_names,
            time_independent: false,
            index,
        };
        set.derive();
        Ok(set)
    }

    /// Computes what depends on all rules, overrides and lists.
    pub(super) fn derive(&mut self) {
        let overrides = || self.compiled.iter().flat_map(|compiled| &compiled.overrides);
        // A rule that denies may have an override with a concurrency limit.
        let mut limits =
            self.rules.iter().map(|rule| &rule.limit).chain(overrides().map(|change| &change.limit));
        let takes_leases = limits.any(|limit| limit.algorithm() == Some(Algorithm::Concurrency));
        let by_calendar = |limit: &RuleLimit| matches!(limit, RuleLimit::Calendar { .. });
        let time_independent = !self.rules.iter().any(|rule| by_calendar(&rule.limit))
            && !overrides().any(|change| change.until.is_some() || by_calendar(&change.limit))
            && !self.deny.iter().chain(&self.bypass).any(|entry| entry.until.is_some());
        (self.takes_leases, self.time_independent) = (takes_leases, time_independent);
        self.reads_path = self.some_part_reads_path();
        self.prepares = self.reads_path
            || !self.preparation.normalize.is_empty()
            || self.preparation.ambiguous_paths == AmbiguousPaths::Refuse;
    }

    /// Returns these rules with another preparation of attributes.
    #[must_use]
    pub fn with_preparation(mut self, preparation: Preparation) -> RuleSet {
        self.preparation = preparation;
        self.derive();
        self
    }

    /// Returns how attributes are prepared before rules see them.
    pub const fn preparation(&self) -> &Preparation {
        &self.preparation
    }

    /// Returns the attribute values that rules see instead of those of the request; `None` if they are the same.
    #[inline]
    pub fn prepare(&self, attributes: &Attributes<'_>) -> Option<Box<PreparedValues>> {
        if self.prepares { self.preparation.prepare(attributes) } else { None }
    }

    fn some_part_reads_path(&self) -> bool {
        let reads = |conditions: &[Condition]| conditions.iter().any(|condition| condition.attribute == PATH);
        let in_rule = |rule: &Rule| {
            let by_cost = match &rule.cost {
                Cost::Table { attribute, .. } => attribute == PATH,
                // Which attributes an expression reads is not known here.
                Cost::Expression { .. } => true,
                Cost::FromRequest | Cost::One | Cost::Constant(_) => false,
            };
            by_cost
                || reads(&rule.conditions)
                || rule.per.parts.iter().flatten().any(|name| name == PATH)
                || rule.on_failure.by.as_ref().is_some_and(|(name, _)| name == PATH)
        };
        self.rules.iter().any(in_rule)
            || self
                .compiled
                .iter()
                .flat_map(|compiled| &compiled.overrides)
                .any(|change| reads(&change.conditions))
            || self.deny.iter().chain(&self.bypass).any(|entry| {
                let of_subject = entry.subject.as_ref().map(|subject| subject.per.parts.iter().flatten());
                reads(&entry.conditions) || of_subject.into_iter().flatten().any(|name| name == PATH)
            })
    }

    /// Sets what happens to requests that no rule counts.
    #[must_use]
    pub fn with_unmatched(self, unmatched: Unmatched) -> RuleSet {
        RuleSet { unmatched, ..self }
    }

    /// Returns what happens to requests that no rule counts.
    pub const fn unmatched(&self) -> Unmatched {
        self.unmatched
    }

    /// Returns all rules, in the order of the file.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the overrides of the rule at this index, in order of precedence.
    pub fn overrides_of(&self, rule: usize) -> &[Override] {
        &self.compiled[rule].overrides
    }

    /// Returns the deny list.
    pub fn deny(&self) -> &[ListEntry] {
        &self.deny
    }

    /// Returns the bypass list.
    pub fn bypass(&self) -> &[ListEntry] {
        &self.bypass
    }

    /// Returns the attributes by which subjects share a hash tag.
    pub fn partition(&self) -> &[String] {
        &self.placement.partition
    }

    /// Returns how subjects are distributed over hash slots.
    pub const fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Returns the rule with this id, and its index.
    pub fn find(&self, id: &str) -> Option<(usize, &Rule)> {
        self.rules.iter().enumerate().find(|(_, rule)| rule.keyspace.rule() == id)
    }

    /// Whether some rule takes leases, so that a request may need a token.
    pub const fn takes_leases(&self) -> bool {
        self.takes_leases
    }

    /// Whether some rule is postpaid, so that a request may book a cost beside its check.
    #[inline]
    pub const fn has_postpaid(&self) -> bool {
        self.has_postpaid
    }

    /// Whether some rule names its accounts in the ledger.
    #[inline]
    pub const fn has_names(&self) -> bool {
        self.has_names
    }

    /// Whether some rule is sharded, so that a request needs a seed.
    #[inline]
    pub const fn has_shards(&self) -> bool {
        self.has_shards
    }

    /// Whether Plans do not depend on the time: no calendar quota, and no override with an end.
    pub const fn is_time_independent(&self) -> bool {
        self.time_independent
    }

    /// Returns the indexes of the rules that match, in the order of the file. Rules that are off never match.
    pub fn matching(&self, attributes: &Attributes<'_>) -> Found {
        let values = self.prepare(attributes);
        let replaced = values.as_ref().map(|values| values.replace_in(attributes));
        let attributes = replaced.as_ref().unwrap_or(attributes);
        let mut found = self.candidates(attributes);
        found.retain(|rule_index| self.matches(*rule_index, attributes));
        found
    }

    /// Returns the indexes of the rules that may match, in the order of the file.
    #[inline]
    pub(super) fn candidates(&self, attributes: &Attributes<'_>) -> Found {
        self.index.candidates(attributes)
    }

    /// Whether a candidate matches.
    #[inline]
    pub(super) fn matches(&self, rule_index: u32, attributes: &Attributes<'_>) -> bool {
        let rule = &self.rules[rule_index as usize];
        rule.mode != Mode::Off && self.index.confirms(rule_index, &rule.conditions, attributes)
    }

    /// Returns the limit in force for a request under this rule, and its variant (see [`Item::variant`](crate::plan::Item::variant)).
    #[inline]
    pub(super) fn in_force(
        &self,
        rule_index: usize,
        attributes: &Attributes<'_>,
        now: Time,
    ) -> (u32, &RuleLimit) {
        let overrides = &self.compiled[rule_index].overrides;
        match overrides.iter().position(|change| change.holds(attributes, now)) {
            None => (0, &self.rules[rule_index].limit),
            Some(number) => (number as u32 + 1, &overrides[number].limit),
        }
    }

    /// Returns the limit of a rule's variant (see [`Item::variant`](crate::plan::Item::variant)), if it exists.
    pub fn variant(&self, rule_index: u32, variant: u32) -> Option<&RuleLimit> {
        let rule = self.rules.get(rule_index as usize)?;
        match variant.checked_sub(1) {
            None => Some(&rule.limit),
            Some(number) => Some(&self.overrides_of(rule_index as usize).get(number as usize)?.limit),
        }
    }
}

impl ListEntry {
    /// Whether a deny list with this entry refuses: one reading of the path is enough.
    pub(super) fn denies(&self, attributes: &Attributes<'_>, now: Time) -> bool {
        self.until.is_none_or(|until| now < until)
            && self.conditions.iter().all(|condition| condition.holds(attributes))
            && self.subject.as_ref().is_none_or(|subject| subject.holds(attributes))
    }

    /// Whether a bypass list with this entry allows: every reading of the path must match.
    pub(super) fn bypasses(&self, attributes: &Attributes<'_>, now: Time) -> bool {
        self.until.is_none_or(|until| now < until)
            && self.conditions.iter().all(|condition| condition.holds_in_every_reading(attributes))
            && self.subject.as_ref().is_none_or(|subject| subject.holds(attributes))
    }
}
