//! What a replay counts.

use std::collections::{BTreeMap, HashMap};

use tollgate::core::Subject;
use tollgate::core::decision::Source;
use tollgate::core::rules::{RuleSet, SubjectSelector};
use tollgate::core::{Attributes, Time};
use tollgate::limiter::CheckError;
use tollgate::{Algorithm, Decision};

use super::live::Live;
use super::subjects::{SubjectKey, Subjects};
use super::timeline::Timeline;
use super::trace::Trace;

/// Refused subjects whose attribute values are kept for reports that show them.
const VALUES_MAX: usize = 10_000;

/// What was counted under one rule set.
pub(in crate::simulate) struct Tally {
    pub(in crate::simulate) requests: u64,
    pub(in crate::simulate) refused: u64,
    pub(in crate::simulate) unmatched: u64,
    pub(in crate::simulate) denied: u64,
    pub(in crate::simulate) bypassed: u64,
    /// Requests that could not be decided, by the error.
    pub(in crate::simulate) undecided: BTreeMap<String, u64>,
    pub(in crate::simulate) first: Option<Time>,
    pub(in crate::simulate) last: Time,
    pub(in crate::simulate) timeline: Timeline,
    pub(in crate::simulate) rules: Vec<RuleTally>,
    /// The attribute values of refused subjects, if they are kept.
    pub(in crate::simulate) values: Option<HashMap<SubjectKey, String>>,
}

/// What was counted under one rule.
pub(in crate::simulate) struct RuleTally {
    pub(in crate::simulate) id: String,
    pub(in crate::simulate) algorithm: Option<Algorithm>,
    pub(in crate::simulate) checks: u64,
    pub(in crate::simulate) refused: u64,
    /// Requests that the rule would have refused, if it were enforced.
    pub(in crate::simulate) shadow_refused: u64,
    pub(in crate::simulate) timeline: Timeline,
    pub(in crate::simulate) subjects: Subjects,
    live: Live,
    /// The checks under the rule's own limit, if they are kept.
    trace: Option<Trace>,
}

impl RuleTally {
    /// The largest number of subjects that had state at once.
    pub(in crate::simulate) const fn peak_subjects(&self) -> u64 {
        self.live.peak()
    }

    /// The number of subjects that were refused at least once.
    pub(in crate::simulate) fn subjects_hit(&self) -> u64 {
        self.subjects.values().filter(|subject| subject.refused > 0).count() as u64
    }
}

impl Tally {
    pub(super) fn new(rules: &RuleSet, keeps_values: bool) -> Tally {
        let rules = rules.rules().iter().map(|rule| {
            let limit = rule.limit.at(Time::from_us(1));
            let window_us =
                limit.and_then(|limit| limit.window(Time::from_us(1))).map_or(1, |window| window.us());
            RuleTally {
                id: rule.keyspace.rule().to_owned(),
                algorithm: rule.limit.algorithm(),
                checks: 0,
                refused: 0,
                shadow_refused: 0,
                timeline: Timeline::default(),
                subjects: Subjects::default(),
                live: Live::new(window_us),
                trace: None,
            }
        });
        Tally {
            requests: 0,
            refused: 0,
            unmatched: 0,
            denied: 0,
            bypassed: 0,
            undecided: BTreeMap::new(),
            first: None,
            last: Time::ZERO,
            timeline: Timeline::default(),
            rules: rules.collect(),
            values: keeps_values.then(HashMap::new),
        }
    }

    pub(super) fn keep_traces(&mut self) {
        self.rules.iter_mut().for_each(|rule| rule.trace = Some(Trace::default()));
    }

    /// Takes the checks of each rule, if they were kept.
    pub(in crate::simulate) fn take_traces(&mut self) -> Vec<(String, Trace)> {
        self.rules.iter_mut().filter_map(|rule| Some((rule.id.clone(), rule.trace.take()?))).collect()
    }

    #[inline]
    fn begin(&mut self, at: Time) {
        self.requests += 1;
        self.first.get_or_insert(at);
        self.last = at;
    }

    /// Counts a request that could not be decided, such as one whose cost is above a capacity.
    #[cold]
    pub(super) fn note_undecided(&mut self, at: Time, error: &CheckError) {
        const KINDS_MAX: usize = 20;
        self.begin(at);
        self.timeline.note(at, false);
        let text = error.to_string();
        if self.undecided.len() < KINDS_MAX || self.undecided.contains_key(&text) {
            *self.undecided.entry(text).or_default() += 1;
        } else {
            *self.undecided.entry("other errors".to_owned()).or_default() += 1;
        }
    }

    /// Counts a decision.
    #[inline]
    pub(super) fn note(&mut self, at: Time, decision: &Decision, attributes: &Attributes<'_>) {
        self.begin(at);
        let refused = !decision.allowed();
        self.refused += u64::from(refused);
        self.timeline.note(at, refused);
        match decision.source() {
            Source::Unmatched => self.unmatched += 1,
            Source::List if refused => self.denied += 1,
            Source::List => self.bypassed += 1,
            _ => (),
        }
        for rule in decision.rules() {
            let outcome = rule.outcome();
            let tally = &mut self.rules[outcome.rule_index as usize];
            tally.checks += 1;
            let refuses = !outcome.allowed && outcome.blocking;
            tally.refused += u64::from(refuses);
            tally.shadow_refused += u64::from(!outcome.allowed && !outcome.blocking);
            tally.timeline.note(at, refuses);
            let Some(subject) = rule.subject() else { continue };
            let counted = tally.subjects.entry(subject.into()).or_default();
            counted.checks = counted.checks.saturating_add(1);
            if let Some(trace) = &mut tally.trace
                && outcome.variant == 0
            {
                trace.push(at, subject, outcome.cost);
            }
            if let Some(numbers) = &outcome.numbers {
                let until = Time::from_us(numbers.reset_at_ms.saturating_mul(1_000)).max(at);
                counted.ends_in = tally.live.note(at, until, counted.ends_in);
            }
            if !outcome.allowed {
                counted.refused = counted.refused.saturating_add(u32::from(refuses));
                if refuses && let Some(values) = &mut self.values {
                    keep_values(values, subject, &rule.rule().per, attributes);
                }
            }
        }
    }
}

#[cold]
fn keep_values(
    values: &mut HashMap<SubjectKey, String>,
    subject: Subject,
    per: &SubjectSelector,
    attributes: &Attributes<'_>,
) {
    if values.len() >= VALUES_MAX {
        return;
    }
    let Ok(parts) = per.find(attributes) else { return };
    let text = parts.parts.iter().map(|(kind, value)| format!("{kind}={value}")).collect::<Vec<_>>();
    values.entry(subject.into()).or_insert_with(|| text.join(" "));
}
