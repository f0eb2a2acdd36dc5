//! Overrides as they are written, their order, and what becomes of those that multiply.
//!
//! An override that [scales](LimitChange::Scale) multiplies what would otherwise apply. What that is depends on the request, so
//! such an override becomes several: one for each limit below it, with the conditions of both. Then a check finds its limit
//! as it finds any other, and a rule set without such overrides is the same as before.

use std::cmp::Reverse;

use super::condition::Condition;
use super::rule::{Origin, Override, Rule};
use super::rule_limit::RuleLimit;
use super::rule_set::{ListEntry, RuleSet, RuleSetError};
use crate::limit::scale::{Scale, ScaleError};
use crate::time::Time;

/// Limits of one rule, at most. Each override that scales has one for each limit below it.
const LIMITS_MAX: usize = 10_000;

/// What an override does to the limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LimitChange {
    /// Replaces it.
    To(RuleLimit),
    /// Multiplies what would otherwise apply.
    Scale(Scale),
}

/// An override as it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OverrideDraft {
    /// Conditions that must all hold.
    pub conditions: Vec<Condition>,
    /// What it does.
    pub change: LimitChange,
    /// When it ends.
    pub until: Option<Time>,
    /// For readers of the rules.
    pub reason: String,
    /// Where it is defined.
    pub origin: Origin,
}

impl OverrideDraft {
    /// Returns its precedence: the highest rank wins, and of equals the last one.
    pub fn rank(&self) -> (bool, usize) {
        (self.until.is_some(), self.conditions.len())
    }
}

/// Live changes, to apply over a rule set. Each list is in the order in which its entries were made.
#[derive(Clone, Debug, Default)]
pub struct LiveChanges {
    /// Overrides, by the id of their rule.
    pub overrides: Vec<(String, OverrideDraft)>,
    /// Entries of the deny list.
    pub deny: Vec<ListEntry>,
    /// Entries of the bypass list.
    pub bypass: Vec<ListEntry>,
}

impl LiveChanges {
    /// Whether it has no change.
    pub fn is_empty(&self) -> bool {
        self.overrides.is_empty() && self.deny.is_empty() && self.bypass.is_empty()
    }
}

/// Returns the overrides of a rule in order of precedence: the drafts, in the order in which they were written, over those
/// that exist.
pub(super) fn layer(
    rule: &Rule,
    drafts: Vec<OverrideDraft>,
    below: Vec<Override>,
    live: bool,
) -> Result<Vec<Override>, RuleSetError> {
    let mut drafts: Vec<OverrideDraft> = drafts.into_iter().rev().collect();
    // Stable, so that the later of equals comes first and wins.
    drafts.sort_by_key(|draft| Reverse(draft.rank()));
    // From the lowest up, so that what is below each is known.
    let mut found: Vec<Override> = below;
    let mut replacing = found.clone();
    let mut blocks: Vec<Vec<Override>> = Vec::new();
    for draft in drafts.into_iter().rev() {
        let block = match draft.change {
            LimitChange::To(limit) => {
                let OverrideDraft { conditions, until, reason, origin, .. } = draft;
                let one = Override {
                    conditions,
                    limit,
                    until,
                    reason,
                    origin,
                    live,
                    scaled: false,
                    is_part: false,
                };
                // Scales of one layer do not multiply each other: only limits are below them.
                replacing.insert(0, one.clone());
                vec![one]
            }
            LimitChange::Scale(scale) => scaled(rule, &draft, scale, &replacing, live)?,
        };
        blocks.push(block);
        if found.len() + blocks.iter().map(Vec::len).sum::<usize>() > LIMITS_MAX {
            return Err(RuleSetError::TooManyLimits { rule: rule.keyspace.rule().to_owned() });
        }
    }
    let mut ordered: Vec<Override> = blocks.into_iter().rev().flatten().collect();
    ordered.append(&mut found);
    Ok(ordered)
}

fn scaled(
    rule: &Rule,
    draft: &OverrideDraft,
    scale: Scale,
    below: &[Override],
    live: bool,
) -> Result<Vec<Override>, RuleSetError> {
    let id = || rule.keyspace.rule().to_owned();
    let multiply = |limit: &RuleLimit| {
        let scaled =
            scale.of_limit(limit).map_err(|error| RuleSetError::NotScalable { rule: id(), error })?;
        if let Some(shards) = rule.shards
            && let Some(whole) = scaled.at(Time::ZERO)
            && !shards.all().all(|shard| whole.part(shard).is_some())
        {
            let error = ScaleError::NotDivisible(shards.count());
            return Err(RuleSetError::NotScalable { rule: id(), error });
        }
        if !rule.postpaid {
            return Ok(scaled);
        }
        scaled
            .with_room_for_records()
            .map_err(|error| RuleSetError::NotScalable { rule: id(), error: error.into() })
    };
    let with = |conditions: Vec<Condition>, until, limit, is_part| Override {
        conditions,
        limit,
        until,
        reason: draft.reason.clone(),
        origin: draft.origin.clone(),
        live,
        scaled: true,
        is_part,
    };
    let mut all = Vec::with_capacity(below.len() + 1);
    for other in below {
        let conditions = draft.conditions.iter().chain(&other.conditions).cloned().collect();
        let until = match (draft.until, other.until) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        all.push(with(conditions, until, multiply(&other.limit)?, true));
    }
    all.push(with(draft.conditions.clone(), draft.until, multiply(&rule.limit)?, false));
    Ok(all)
}

impl RuleSet {
    /// Returns these rules with live changes over them. Precedence: deny, bypass, live override, override of the file, rule;
    /// among live overrides: with an end, then more conditions, then the newest.
    pub fn with_live(&self, changes: LiveChanges) -> Result<RuleSet, RuleSetError> {
        let LiveChanges { overrides, deny, bypass } = changes;
        let mut by_rule: Vec<Vec<OverrideDraft>> = vec![Vec::new(); self.rules.len()];
        for (id, draft) in overrides {
            let at = self.find(&id).map(|(at, _)| at).ok_or(RuleSetError::UnknownRule { rule: id })?;
            if let LimitChange::To(limit) = &draft.change {
                self.rules[at].check_change(limit)?;
            }
            by_rule[at].push(draft);
        }
        let mut set = self.clone();
        for (at, drafts) in by_rule.into_iter().enumerate().filter(|(_, drafts)| !drafts.is_empty()) {
            let below = std::mem::take(&mut set.compiled[at].overrides);
            set.compiled[at].overrides = layer(&self.rules[at], drafts, below, true)?;
        }
        set.deny.extend(deny);
        set.bypass.extend(bypass);
        set.derive();
        Ok(set)
    }

    /// Returns these rules with other overrides: those of each rule, in order of precedence.
    #[must_use]
    pub fn with_overrides(mut self, overrides: Vec<Vec<Override>>) -> RuleSet {
        for (compiled, overrides) in self.compiled.iter_mut().zip(overrides) {
            compiled.overrides = overrides;
        }
        self.derive();
        self
    }

    /// Returns a rule set with one of the rules alone, without the lists. `None` if no rule has this id.
    pub fn only(&self, id: &str) -> Option<RuleSet> {
        let (at, rule) = self.find(id)?;
        let placement = self.placement.clone();
        let set = RuleSet::new(vec![rule.clone()], Vec::new(), Vec::new(), Vec::new(), placement).ok()?;
        // Without normal forms, other subjects would be found.
        let mut set = set.with_preparation(self.preparation().clone());
        set.compiled[0].overrides.clone_from(&self.compiled[at].overrides);
        set.derive();
        Some(set)
    }
}
