//! One rule and its overrides.

use std::collections::HashMap;

use super::condition::Condition;
use super::cost::Cost;
use super::rule_limit::RuleLimit;
use super::rule_set::RuleSetError;
use super::subject_selector::SubjectSelector;
use crate::decision::OnFailure;
use crate::key::{Keyspace, Subject};
use crate::limit::part::Shards;
use crate::plan::layers::Layers;
use crate::plan::recording::Recording;
use crate::plan::slice::SliceHold;
use crate::request::attributes::Attributes;
use crate::time::Time;

/// Which requests are limited, per which subject, by which limit.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its namespace and id.
    pub keyspace: Keyspace,
    /// For readers of the rules.
    pub description: String,
    /// Conditions that must all hold.
    pub conditions: Vec<Condition>,
    /// Which subject is counted.
    pub per: SubjectSelector,
    /// Largest number of anonymous subjects that are counted separately. Further ones share the overflow subject.
    pub ip_subjects_max: Option<u32>,
    /// What happens when a request has no subject.
    pub missing: Missing,
    /// The limit.
    pub limit: RuleLimit,
    /// How the cost of a request is computed.
    pub cost: Cost,
    /// Whether costs are known only after the work: a request that states no cost asks with cost 0, and a stated cost is
    /// booked without asking.
    pub postpaid: bool,
    /// How long a server may spend a part of the limit that it has booked in the store. The limits of the rule and of its
    /// overrides have their [margin](crate::limit::Limit::with_slice_margin).
    pub slices: Option<SliceHold>,
    /// Into how many keys each subject is divided. `None` if it has one. The limits of the rule and of its overrides can be
    /// [divided](crate::limit::Limit::part) so.
    pub shards: Option<Shards>,
    /// How the ledger records what the rule admits. `None` if it does not.
    pub ledger: Option<Recording>,
    /// The attribute whose value names the account in the ledger. `None` if the ledger keeps hashes only.
    pub ledger_name: Option<String>,
    /// What to answer if the store cannot decide.
    pub on_failure: FailurePolicy,
    /// Which layers may answer before a remote store is asked.
    pub layers: Layers,
    /// Whether it is enforced.
    pub mode: Mode,
    /// The share of subjects for which it is enforced.
    pub rollout: Rollout,
    /// Labels for readers and metrics.
    pub tags: Vec<String>,
    /// Attributes whose values may be shown beside a subject's hash.
    pub show: Vec<String>,
    /// Where it is defined.
    pub origin: Origin,
}

/// What happens when no attribute of a rule's `per` is present.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Missing {
    /// The rule does not apply.
    #[default]
    Skip,
    /// The request is refused.
    Refuse,
}

/// Whether a rule is enforced.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mode {
    /// The rule counts and refuses.
    #[default]
    Enforce,
    /// The rule counts and reports, but never refuses.
    Shadow,
    /// The rule is ignored.
    Off,
}

/// The share of subjects for which a rule is enforced. For the others it is a shadow rule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rollout {
    /// In hundredths of a percent, at most 10,000.
    basis_points: u16,
}

impl Rollout {
    /// All subjects.
    pub const ALL: Rollout = Rollout { basis_points: 10_000 };

    /// Creates a share in hundredths of a percent. Returns `None` above 10,000.
    pub const fn new(basis_points: u16) -> Option<Rollout> {
        if basis_points > 10_000 { None } else { Some(Rollout { basis_points }) }
    }

    /// Returns the share in hundredths of a percent.
    pub const fn basis_points(self) -> u16 {
        self.basis_points
    }

    /// Whether it includes this subject. The same on every server, and stable while the share grows.
    pub const fn includes(self, subject: Subject) -> bool {
        // Uses neither the low bits, which select map entries, nor the high bits, which select shards.
        ((subject.to_u128() >> 32) as u32 % 10_000) < self.basis_points as u32
    }
}

/// A failure policy that may depend on the request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FailurePolicy {
    /// The policy for all other requests.
    pub default: OnFailure,
    /// An attribute, and policies by its value.
    pub by: Option<(String, HashMap<String, OnFailure>)>,
}

impl FailurePolicy {
    /// Returns the policy for this request.
    #[inline]
    pub fn for_request(&self, attributes: &Attributes<'_>) -> OnFailure {
        match &self.by {
            None => self.default,
            Some((name, policies)) => {
                let special = attributes.get(name).and_then(|value| policies.get(value));
                special.copied().unwrap_or(self.default)
            }
        }
    }
}

/// Another limit for the requests of one rule that meet its conditions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Override {
    /// Conditions that must all hold.
    pub conditions: Vec<Condition>,
    /// The limit that replaces the rule's.
    pub limit: RuleLimit,
    /// When it ends. An override with an end is an emergency and beats those without.
    pub until: Option<Time>,
    /// For readers of the rules.
    pub reason: String,
    /// Where it is defined.
    pub origin: Origin,
    /// Whether it is a live change, which comes before those of the rules file.
    pub live: bool,
    /// Whether its limit is a multiple of what would otherwise apply.
    pub scaled: bool,
    /// Whether it is the multiple of another override's limit, and another entry has the multiple of the rule's own.
    pub is_part: bool,
}

impl Rule {
    /// Checks that an override may replace the limit by this one.
    pub(super) fn check_change(&self, limit: &RuleLimit) -> Result<(), RuleSetError> {
        let (own, other) = (self.limit.algorithm(), limit.algorithm());
        if own.is_some() && other.is_some() && own != other {
            return Err(RuleSetError::OtherAlgorithm { rule: self.keyspace.rule().to_owned() });
        }
        Ok(())
    }
}

impl Override {
    /// Whether it applies to this request. If the path has several readings, one that denies applies in any of them, and
    /// one with other numbers only in all of them.
    pub fn holds(&self, attributes: &Attributes<'_>, now: Time) -> bool {
        let denies = self.limit == RuleLimit::Deny;
        self.until.is_none_or(|until| now < until)
            && self.conditions.iter().all(|condition| match denies {
                true => condition.holds(attributes),
                false => condition.holds_in_every_reading(attributes),
            })
    }

    /// Returns its precedence among those of the file, or among live ones: the highest rank wins, and of equals the last.
    pub fn rank(&self) -> (bool, usize) {
        (self.until.is_some(), self.conditions.len())
    }
}

/// Where a rule, override or list entry is defined.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// The file.
    pub file: String,
    /// The line, counted from 1. 0 if it does not come from a file.
    pub line: u32,
}
