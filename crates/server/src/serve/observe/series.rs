//! The counters of every rule. Their number depends on the rules alone, never on callers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::core::Attributes;
use tollgate::core::decision::{RuleOutcome, Source};
use tollgate::core::plan::answer::{AnsweredBy, PolicyKind};
use tollgate::core::rules::{FailurePolicy, Rule, RuleSet, SubjectSelector};

use super::counters::Counters;
use super::exposition::{Exposition, Kind};
use super::history::{Columns, Sums};
use super::subjects::RuleSubjects;

/// The result of a rule for one check.
const OUTCOMES: [&str; 6] =
    ["allowed", "refused", "shadow_allowed", "shadow_refused", "fallback_allowed", "fallback_refused"];
const REFUSED: usize = 1;
const SHADOW: usize = 2;
const FALLBACK: usize = 4;
/// The index after the outcomes: admitted with less than a tenth remaining.
const NEAR: usize = OUTCOMES.len();
/// Why a rule refused: its limit, a failure of the store, or the rule itself (it denies all, or the subject is missing).
const REASONS: [&str; 3] = ["limit", "store_failure", "rule"];
/// What each failure policy can answer.
const FALLBACKS: [(PolicyKind, &str); 7] = [
    (PolicyKind::Closed, "refused"),
    (PolicyKind::Open, "allowed"),
    (PolicyKind::Degraded, "allowed"),
    (PolicyKind::Local, "allowed"),
    (PolicyKind::Local, "refused"),
    (PolicyKind::Cap, "allowed"),
    (PolicyKind::Cap, "refused"),
];
/// One in this many admissions updates what remains.
const SAMPLED: u64 = 64;
/// With more kinds of subjects, a rule reports them as one.
const KINDS_MAX: usize = 32;

/// The counters of one version of the rules.
pub(crate) struct Table {
    version: u64,
    by_index: Vec<Arc<Series>>,
    by_id: HashMap<Arc<str>, Arc<Series>>,
}

/// The counters of one rule. They continue under the same id when the rules are replaced.
pub(crate) struct Series {
    rule: Arc<str>,
    algorithm: &'static str,
    outcomes: Counters,
    /// By [`FALLBACKS`].
    fallbacks: Counters,
    /// The failure policies that can answer for the rule.
    policies: Vec<PolicyKind>,
    /// By kind of subject, each by reason.
    refused: Vec<(String, Counters)>,
    /// What remained after one of the last admissions; [`UNKNOWN`] before the first.
    remaining: AtomicU64,
    pub(super) subjects: RuleSubjects,
}

const UNKNOWN: u64 = u64::MAX;

impl Table {
    /// The counters of these rules. Counters of the previous version continue.
    pub(crate) fn new(version: u64, rules: &RuleSet, before: Option<&Table>) -> Table {
        let series = |rule: &Rule| {
            let known = before.and_then(|table| table.by_id.get(rule.keyspace.rule()));
            let fresh = Series::new(rule);
            known.filter(|known| known.is_like(&fresh)).map_or_else(|| Arc::new(fresh), Arc::clone)
        };
        let by_index: Vec<Arc<Series>> = rules.rules().iter().map(series).collect();
        let by_id = by_index.iter().map(|series| (Arc::clone(&series.rule), Arc::clone(series))).collect();
        Table { version, by_index, by_id }
    }

    /// The counters of a rule in a decision of this version.
    pub(crate) fn of(&self, version: u64, outcome: &RuleOutcome, rule: &Rule) -> Option<&Series> {
        if version == self.version {
            return self.by_index.get(outcome.rule_index as usize).map(|series| &**series);
        }
        // Only while the rules are being replaced.
        self.by_id.get(rule.keyspace.rule()).map(|series| &**series)
    }

    /// The counters of every rule, in the order of the rules.
    pub(super) fn each(&self) -> impl Iterator<Item = &Series> {
        self.by_index.iter().map(|series| &**series)
    }

    /// How many checks each rule has matched since the start.
    pub(super) fn matched(&self) -> Vec<(Arc<str>, u64)> {
        let sum = |series: &Series| (0..OUTCOMES.len()).map(|number| series.outcomes.sum(number)).sum();
        self.by_index.iter().map(|series| (Arc::clone(&series.rule), sum(series))).collect()
    }

    /// What every rule has counted since the start.
    pub(crate) fn sums(&self) -> Vec<(Arc<str>, Sums)> {
        self.by_index.iter().map(|series| (Arc::clone(&series.rule), series.sums())).collect()
    }

    pub(crate) fn write(&self, page: &mut Exposition) {
        let mut family =
            page.family("rate_limit_checks_total", Kind::Counter, "Checks that a rule matched, by outcome.");
        for series in &self.by_index {
            for (number, outcome) in OUTCOMES.iter().enumerate() {
                let labels = [("rule", &*series.rule), ("algorithm", series.algorithm), ("outcome", outcome)];
                family.sample(&labels, series.outcomes.sum(number));
            }
        }
        let mut family = page.family(
            "rate_limit_rejected_total",
            Kind::Counter,
            "Refusals by rule, kind of subject and reason.",
        );
        for series in &self.by_index {
            for (kind, counters) in &series.refused {
                for (number, reason) in REASONS.iter().enumerate() {
                    let labels = [("rule", &*series.rule), ("subject_kind", kind), ("reason", reason)];
                    family.sample(&labels, counters.sum(number));
                }
            }
        }
        let mut family = page.family(
            "rate_limit_shadow_rejected_total",
            Kind::Counter,
            "Checks that a shadow rule would have refused.",
        );
        for series in &self.by_index {
            family.sample(&[("rule", &series.rule)], series.outcomes.sum(SHADOW + REFUSED));
        }
        let mut family = page.family(
            "rate_limit_near_limit_total",
            Kind::Counter,
            "Admissions that left less than a tenth of the limit.",
        );
        for series in &self.by_index {
            family.sample(&[("rule", &series.rule)], series.outcomes.sum(NEAR));
        }
        let mut family = page.family(
            "rate_limit_fallback_total",
            Kind::Counter,
            "Checks that a rule's failure policy answered because the store did not.",
        );
        for series in &self.by_index {
            for (number, (policy, outcome)) in FALLBACKS.iter().enumerate() {
                if series.policies.contains(policy) {
                    let labels = [("rule", &*series.rule), ("policy", policy.name()), ("outcome", outcome)];
                    family.sample(&labels, series.fallbacks.sum(number));
                }
            }
        }
        let mut family = page.family(
            "rate_limit_remaining",
            Kind::Gauge,
            "What remained after one of the last admissions; one in 64 is sampled.",
        );
        for series in &self.by_index {
            let remaining = series.remaining.load(Ordering::Relaxed);
            if remaining != UNKNOWN {
                family.sample(&[("rule", &series.rule)], remaining);
            }
        }
    }
}

impl Series {
    fn new(rule: &Rule) -> Series {
        Series {
            rule: Arc::from(rule.keyspace.rule()),
            algorithm: rule.limit.algorithm().map_or("deny", |algorithm| algorithm.name()),
            outcomes: Counters::default(),
            fallbacks: Counters::default(),
            policies: policies(&rule.on_failure),
            refused: kinds(&rule.per).into_iter().map(|kind| (kind, Counters::default())).collect(),
            remaining: AtomicU64::new(UNKNOWN),
            subjects: RuleSubjects::default(),
        }
    }

    /// The id of the rule.
    pub(super) fn rule(&self) -> &str {
        &self.rule
    }

    fn sums(&self) -> Sums {
        let mut sums = [0; Columns::COUNT];
        sums[Columns::ALLOWED] = self.outcomes.sum(0);
        sums[Columns::REFUSED] = self.outcomes.sum(REFUSED);
        sums[Columns::SHADOW_REFUSED] = self.outcomes.sum(SHADOW + REFUSED);
        sums[Columns::FALLBACK] = self.outcomes.sum(FALLBACK) + self.outcomes.sum(FALLBACK + REFUSED);
        sums[Columns::NEAR_LIMIT] = self.outcomes.sum(NEAR);
        sums
    }

    fn is_like(&self, other: &Series) -> bool {
        let kinds = |series: &Series| series.refused.iter().map(|(kind, _)| kind.clone()).collect::<Vec<_>>();
        self.algorithm == other.algorithm && self.policies == other.policies && kinds(self) == kinds(other)
    }

    /// Counts the result of the rule.
    pub(crate) fn note(
        &self,
        outcome: &RuleOutcome,
        source: Source,
        rule: &Rule,
        attributes: &Attributes<'_>,
    ) {
        let fallback = source == Source::Fallback;
        let offset = match (fallback, outcome.blocking) {
            (true, _) => FALLBACK,
            (false, false) => SHADOW,
            (false, true) => 0,
        };
        if let AnsweredBy::Policy(policy) = outcome.by {
            let result = if outcome.allowed { "allowed" } else { "refused" };
            if let Some(number) = FALLBACKS.iter().position(|fallback| *fallback == (policy, result)) {
                self.fallbacks.add(number);
            }
        }
        let before = self.outcomes.add(offset + if outcome.allowed { 0 } else { REFUSED });
        if outcome.allowed {
            let Some(numbers) = &outcome.numbers else { return };
            if numbers.remaining < numbers.limit / 10 {
                self.outcomes.add(NEAR);
            }
            if before.is_multiple_of(SAMPLED) {
                self.remaining.store(numbers.remaining, Ordering::Relaxed);
            }
        } else if outcome.blocking {
            let reason = match source {
                Source::Fallback => 1,
                Source::Rule | Source::List => 2,
                Source::Store | Source::Slice | Source::Memory | Source::Prefilter | Source::Unmatched => 0,
            };
            let kind = kind(&rule.per, attributes).filter(|&kind| kind < self.refused.len());
            if let Some((_, counters)) = self.refused.get(kind.unwrap_or(0)) {
                counters.add(reason);
            }
        }
    }
}

/// The policies that a rule names, and `closed`, which answers if the store refuses our credentials.
fn policies(on_failure: &FailurePolicy) -> Vec<PolicyKind> {
    let by_value = on_failure.by.iter().flat_map(|(_, policies)| policies.values());
    let named: Vec<PolicyKind> = by_value.chain([&on_failure.default]).map(|policy| policy.kind()).collect();
    let is_possible = |kind: &PolicyKind| *kind == PolicyKind::Closed || named.contains(kind);
    PolicyKind::ALL.into_iter().filter(is_possible).collect()
}

/// Every kind of subject, like `tenant+api_key`, in the order of [`kind`].
fn kinds(per: &SubjectSelector) -> Vec<String> {
    let count: usize = per.parts.iter().map(Vec::len).try_fold(1, usize::checked_mul).unwrap_or(usize::MAX);
    if per.parts.is_empty() {
        return vec!["everybody".to_owned()];
    }
    if count > KINDS_MAX {
        return vec!["any".to_owned()];
    }
    let mut kinds = vec![String::new()];
    for chain in &per.parts {
        kinds = kinds
            .iter()
            .flat_map(|before| {
                let plus = if before.is_empty() { "" } else { "+" };
                chain.iter().map(move |name| format!("{before}{plus}{name}"))
            })
            .collect();
    }
    kinds
}

/// The index of the kind of this request's subject.
fn kind(per: &SubjectSelector, attributes: &Attributes<'_>) -> Option<usize> {
    per.parts.iter().try_fold(0_usize, |number, chain| {
        let here =
            chain.iter().position(|name| attributes.get(name).is_some_and(|value| !value.is_empty()))?;
        number.checked_mul(chain.len())?.checked_add(here)
    })
}
