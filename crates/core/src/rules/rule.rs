//! One rule, and what changes its numbers for some.

use std::collections::HashMap;

use super::condition::Condition;
use super::cost::Cost;
use super::rule_limit::RuleLimit;
use super::subject_selector::SubjectSelector;
use crate::attributes::Attributes;
use crate::decision::OnFailure;
use crate::key::{Keyspace, Subject};
use crate::time::Time;

/// Which requests, on whose account, how much.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Namespace and id.
    pub keyspace: Keyspace,
    /// For people.
    pub description: String,
    /// All of these must hold.
    pub conditions: Vec<Condition>,
    /// Who is counted.
    pub per: SubjectSelector,
    /// How many subjects known by nothing but their address are counted one by one; further ones share one account.
    pub ip_subjects_max: Option<u32>,
    /// What a request without a subject gets.
    pub missing: Missing,
    /// What is allowed.
    pub limit: RuleLimit,
    /// What a request costs.
    pub cost: Cost,
    /// What happens when the store cannot answer.
    pub on_failure: FailurePolicy,
    /// Whether it counts.
    pub mode: Mode,
    /// For whom it is enforced.
    pub rollout: Rollout,
    /// For people and metrics.
    pub tags: Vec<String>,
    /// Where it is written.
    pub origin: Origin,
}

/// What a rule does with a request in which none of the subject's attributes is there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Missing {
    /// The rule does not apply.
    #[default]
    Skip,
    /// The request is refused.
    Refuse,
}

/// Whether a rule counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mode {
    /// It refuses.
    #[default]
    Enforce,
    /// It is counted and never refuses.
    Shadow,
    /// It is as if it were not there.
    Off,
}

/// The share of subjects for which a rule is enforced; for the others it is a shadow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rollout {
    /// In hundredths of a percent, at most 10 000.
    basis_points: u16,
}

impl Rollout {
    /// Everybody.
    pub const ALL: Rollout = Rollout { basis_points: 10_000 };

    /// So many hundredths of a percent; `None` above all.
    pub const fn new(basis_points: u16) -> Option<Rollout> {
        if basis_points > 10_000 { None } else { Some(Rollout { basis_points }) }
    }

    /// In hundredths of a percent.
    pub const fn basis_points(self) -> u16 {
        self.basis_points
    }

    /// Whether this subject is in, the same on every server and for as long as the share does not shrink.
    pub const fn includes(self, subject: Subject) -> bool {
        // The low bits pick places in maps and the high ones shards: these are neither.
        ((subject.to_u128() >> 32) as u32 % 10_000) < self.basis_points as u32
    }
}

/// A failure policy that may depend on the request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FailurePolicy {
    /// For all others.
    pub default: OnFailure,
    /// By the value of an attribute.
    pub by: Option<(String, HashMap<String, OnFailure>)>,
}

impl FailurePolicy {
    /// The policy for this request.
    pub fn of(&self, attributes: &Attributes<'_>) -> OnFailure {
        let special = self.by.as_ref().and_then(|(name, policies)| policies.get(attributes.get(name)?));
        special.copied().unwrap_or(self.default)
    }
}

/// Other numbers for some requests under a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Override {
    /// All of these must hold.
    pub conditions: Vec<Condition>,
    /// What is allowed instead.
    pub limit: RuleLimit,
    /// It holds until then. An override that ends is an emergency and beats all that do not.
    pub until: Option<Time>,
    /// For people.
    pub reason: String,
    /// Where it is written.
    pub origin: Origin,
}

impl Override {
    /// Whether it applies.
    pub fn holds(&self, attributes: &Attributes<'_>, now: Time) -> bool {
        self.until.is_none_or(|until| now < until)
            && self.conditions.iter().all(|condition| condition.holds(attributes))
    }

    /// What makes it beat others, before its place in the file.
    pub fn rank(&self) -> (bool, usize) {
        (self.until.is_some(), self.conditions.len())
    }
}

/// Where something is written, for people.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// The file.
    pub file: String,
    /// The line in it, from 1; 0 if it was not written in lines.
    pub line: u32,
}
