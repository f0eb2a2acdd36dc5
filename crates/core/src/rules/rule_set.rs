//! All rules together, compiled.

use std::collections::HashSet;

use super::condition::Condition;
use super::index::{Found, Index};
use super::placement::Placement;
use super::rule::{Mode, Origin, Override, Rule};
use super::rule_limit::RuleLimit;
use crate::attributes::Attributes;
use crate::limit::Algorithm;
use crate::time::Time;

/// What is in force, valid by construction and only read.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    pub(super) rules: Vec<Rule>,
    /// Per rule.
    pub(super) compiled: Vec<Compiled>,
    pub(super) deny: Vec<ListEntry>,
    pub(super) bypass: Vec<ListEntry>,
    pub(super) placement: Placement,
    leases: bool,
    timeless: bool,
    index: Index,
}

/// What follows from a rule and its company.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    /// The one that wins first.
    overrides: Vec<Override>,
    /// The first rule that counts the same subjects.
    pub(super) counts_like: u32,
    /// Whether its subjects lie in the slot of their partition.
    pub(super) shares_slot: bool,
}

/// Requests that no rule is asked about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListEntry {
    /// All of these must hold.
    pub conditions: Vec<Condition>,
    /// For people.
    pub reason: String,
    /// Where it is written.
    pub origin: Origin,
}

/// Rules that do not go together.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RuleSetError {
    /// Two rules would share their counters.
    #[error("two rules have the id {id:?}")]
    DuplicateId {
        /// The id.
        id: String,
    },
    /// An override of nothing.
    #[error("an override names the rule {rule:?}, which is not there")]
    UnknownRule {
        /// The name.
        rule: String,
    },
    /// Switching algorithms back and forth would forget what was consumed each time.
    #[error("an override of rule {rule:?} changes its algorithm; it may change numbers, or deny")]
    OtherAlgorithm {
        /// The rule.
        rule: String,
    },
}

impl RuleSet {
    /// Compiles rules, the overrides of them by rule id, requests that are always refused, requests that always pass,
    /// and where subjects lie in a cluster.
    pub fn new(
        rules: Vec<Rule>,
        overrides: Vec<(String, Override)>,
        deny: Vec<ListEntry>,
        bypass: Vec<ListEntry>,
        placement: Placement,
    ) -> Result<RuleSet, RuleSetError> {
        let mut ids = HashSet::new();
        if let Some(twice) = rules.iter().find(|rule| !ids.insert(rule.keyspace.rule())) {
            return Err(RuleSetError::DuplicateId { id: twice.keyspace.rule().to_owned() });
        }
        let mut by_rule: Vec<Vec<Override>> = vec![Vec::new(); rules.len()];
        // The later of equals wins: reversed, a stable sort leaves it in front.
        for (id, change) in overrides.into_iter().rev() {
            let Some(at) = rules.iter().position(|rule| rule.keyspace.rule() == id) else {
                return Err(RuleSetError::UnknownRule { rule: id });
            };
            let (own, other) = (rules[at].limit.algorithm(), change.limit.algorithm());
            if own.is_some() && other.is_some() && own != other {
                return Err(RuleSetError::OtherAlgorithm { rule: id });
            }
            by_rule[at].push(change);
        }
        for changes in &mut by_rule {
            changes.sort_by_key(|change| std::cmp::Reverse(change.rank()));
        }
        let index = Index::new(rules.iter().map(|rule| rule.conditions.as_slice()));
        let leases = rules.iter().any(|rule| rule.limit.algorithm() == Some(Algorithm::Concurrency));
        let by_calendar = |limit: &RuleLimit| matches!(limit, RuleLimit::Calendar { .. });
        let timeless = !rules.iter().any(|rule| by_calendar(&rule.limit))
            && !by_rule.iter().flatten().any(|change| change.until.is_some() || by_calendar(&change.limit));
        let partition = &placement.partition;
        let compile = |(rule, overrides): (&Rule, Vec<Override>)| Compiled {
            overrides,
            counts_like: rules.iter().take_while(|other| other.per != rule.per).count() as u32,
            shares_slot: !partition.is_empty() && partition.iter().all(|name| rule.per.always_includes(name)),
        };
        let compiled = rules.iter().zip(by_rule).map(compile).collect();
        Ok(RuleSet { rules, compiled, deny, bypass, placement, leases, timeless, index })
    }

    /// All rules, in the order of the file.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The overrides of the rule at this index, the one that wins first.
    pub fn overrides_of(&self, rule: usize) -> &[Override] {
        &self.compiled[rule].overrides
    }

    /// Requests that are always refused.
    pub fn deny(&self) -> &[ListEntry] {
        &self.deny
    }

    /// Requests that always pass.
    pub fn bypass(&self) -> &[ListEntry] {
        &self.bypass
    }

    /// The attributes by which subjects share a slot.
    pub fn partition(&self) -> &[String] {
        &self.placement.partition
    }

    /// Where subjects lie in a cluster.
    pub const fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The rule with this id, and its index.
    pub fn find(&self, id: &str) -> Option<(usize, &Rule)> {
        self.rules.iter().enumerate().find(|(_, rule)| rule.keyspace.rule() == id)
    }

    /// Whether a request may need a token, because some rule hands out leases.
    pub const fn takes_leases(&self) -> bool {
        self.leases
    }

    /// Whether Plans are the same at any time: no calendar, nothing that ends.
    pub const fn is_time_independent(&self) -> bool {
        self.timeless
    }

    /// The places of the rules that match, in the order of the file. Rules that are off match nothing.
    pub fn matching(&self, attributes: &Attributes<'_>) -> Found {
        let mut found = self.candidates(attributes);
        found.retain(|rule_index| self.matches(*rule_index, attributes));
        found
    }

    /// The places of the rules that may match, in the order of the file.
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

    /// What is in force for a request under the rule at this index, and which variant of the rule that is.
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

    /// What a variant of a rule allows (see [`Item::variant`](crate::plan::Item)), if there is such a rule and variant.
    pub fn variant(&self, rule_index: u32, variant: u32) -> Option<&RuleLimit> {
        let rule = self.rules.get(rule_index as usize)?;
        match variant.checked_sub(1) {
            None => Some(&rule.limit),
            Some(number) => Some(&self.overrides_of(rule_index as usize).get(number as usize)?.limit),
        }
    }
}

impl ListEntry {
    pub(super) fn holds(&self, attributes: &Attributes<'_>) -> bool {
        self.conditions.iter().all(|condition| condition.holds(attributes))
    }
}
