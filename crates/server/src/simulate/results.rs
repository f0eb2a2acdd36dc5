//! The results of a simulation, as reports and requirements see them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tollgate::Algorithm;
use tollgate::core::Time;

use super::replay::{RuleTally, Tally, Timeline};
use super::rule_set::NotSimulated;
use super::suggest::Suggestion;
use super::traffic::log::LogSummary;

/// Subjects of a list in a report.
const LISTED_MAX: usize = 50;

/// What a simulation found.
pub(crate) struct Results {
    pub(super) new: SetResults,
    /// The rule set that it is compared with.
    pub(super) old: Option<SetResults>,
    pub(super) newly_refused: Subjects,
    pub(super) newly_allowed: Subjects,
    /// The subjects that were refused most under the new rules.
    pub(super) top: Vec<SubjectResult>,
    pub(super) not_simulated: Vec<NotSimulated>,
    pub(super) inputs: Vec<LogSummary>,
    pub(super) synthetic: Option<String>,
    /// Proposed numbers, if they were asked for.
    pub(super) suggestions: Option<Vec<Suggestion>>,
    pub(super) took: Duration,
}

/// The results of one rule set.
pub(super) struct SetResults {
    pub(super) name: String,
    pub(super) requests: u64,
    pub(super) refused: u64,
    pub(super) unmatched: u64,
    pub(super) denied: u64,
    pub(super) bypassed: u64,
    pub(super) undecided: Vec<(String, u64)>,
    pub(super) span: Option<(Time, Time)>,
    pub(super) timeline: Timeline,
    pub(super) rules: Vec<RuleResults>,
}

/// The results of one rule.
pub(super) struct RuleResults {
    pub(super) id: String,
    pub(super) algorithm: Option<Algorithm>,
    pub(super) checks: u64,
    pub(super) refused: u64,
    pub(super) shadow_refused: u64,
    pub(super) subjects: u64,
    pub(super) subjects_hit: u64,
    pub(super) peak_subjects: u64,
    pub(super) timeline: Timeline,
}

/// Subjects that only one of two rule sets refuses.
#[derive(Default)]
pub(super) struct Subjects {
    number: usize,
    /// Those with the most refusals.
    pub(super) listed: Vec<SubjectResult>,
}

impl Subjects {
    pub(super) const fn len(&self) -> usize {
        self.number
    }
}

/// One subject and its refusals.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SubjectResult {
    /// The beginning of its hash, as logs and `why` show it.
    pub(super) subject: String,
    /// Its attribute values, if reports show them.
    pub(super) values: Option<String>,
    /// The rule that refused it most.
    pub(super) rule: String,
    pub(super) checks: u64,
    pub(super) refused: u64,
}

/// A subject's refusals under the rule that refused it most.
#[derive(Clone, Copy)]
struct Refusals {
    rule: usize,
    refused: u32,
    checks: u32,
}

type SubjectKey = super::replay::SubjectKey;

impl SetResults {
    fn of(name: String, tally: &Tally) -> SetResults {
        SetResults {
            name,
            requests: tally.requests,
            refused: tally.refused,
            unmatched: tally.unmatched,
            denied: tally.denied,
            bypassed: tally.bypassed,
            undecided: tally.undecided.iter().map(|(error, count)| (error.clone(), *count)).collect(),
            span: tally.first.map(|first| (first, tally.last)),
            timeline: tally.timeline.clone(),
            rules: tally.rules.iter().map(RuleResults::of).collect(),
        }
    }

    pub(super) fn rule(&self, id: &str) -> Option<&RuleResults> {
        self.rules.iter().find(|rule| rule.id == id)
    }
}

impl RuleResults {
    fn of(tally: &RuleTally) -> RuleResults {
        RuleResults {
            id: tally.id.clone(),
            algorithm: tally.algorithm,
            checks: tally.checks,
            refused: tally.refused,
            shadow_refused: tally.shadow_refused,
            subjects: tally.subjects.len() as u64,
            subjects_hit: tally.subjects_hit(),
            peak_subjects: tally.peak_subjects(),
            timeline: tally.timeline.clone(),
        }
    }
}

impl Results {
    /// Compares what was counted under the new rules and the old ones.
    pub(super) fn new(new: (String, Tally), old: Option<(String, Tally)>) -> Results {
        let (new_name, mut new) = new;
        let mut old = old;
        if let Some((_, old)) = &mut old {
            new.timeline.align(&mut old.timeline);
        }
        let refused_new = refusals(&new);
        let refused_old = old.as_ref().map(|(_, old)| refusals(old));
        let top = listed(&refused_new, &new, |_| true);
        let (newly_refused, newly_allowed) = match (&refused_old, &old) {
            (Some(refused_old), Some((_, old))) => (
                listed(&refused_new, &new, |subject| !refused_old.contains_key(subject)),
                listed(refused_old, old, |subject| !refused_new.contains_key(subject)),
            ),
            _ => (Subjects::default(), Subjects::default()),
        };
        Results {
            old: old.as_ref().map(|(name, tally)| SetResults::of(name.clone(), tally)),
            new: SetResults::of(new_name, &new),
            newly_refused,
            newly_allowed,
            top: top.listed,
            not_simulated: Vec::new(),
            inputs: Vec::new(),
            synthetic: None,
            suggestions: None,
            took: Duration::ZERO,
        }
    }

    /// The share of unreadable lines, as a number and the number of all lines.
    pub(super) fn unreadable(&self) -> (u64, u64) {
        let sum = |of: fn(&LogSummary) -> u64| self.inputs.iter().map(of).sum();
        (sum(|log| log.counts.unreadable), sum(|log| log.counts.lines))
    }

    /// Unreadable lines by what is wrong, the most frequent first.
    pub(super) fn unreadable_reasons(&self) -> Vec<(&'static str, u64)> {
        let mut reasons: BTreeMap<&'static str, u64> = BTreeMap::new();
        for (reason, count) in self.inputs.iter().flat_map(|log| &log.counts.reasons) {
            *reasons.entry(reason).or_default() += count;
        }
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        reasons
    }
}

fn refusals(tally: &Tally) -> HashMap<SubjectKey, Refusals> {
    let mut refused: HashMap<SubjectKey, Refusals> = HashMap::new();
    for (index, rule) in tally.rules.iter().enumerate() {
        for (subject, counted) in rule.subjects.iter().filter(|(_, counted)| counted.refused > 0) {
            let of_rule = Refusals { rule: index, refused: counted.refused, checks: counted.checks };
            let most = refused.entry(*subject).or_insert(of_rule);
            if of_rule.refused > most.refused {
                *most = of_rule;
            }
        }
    }
    refused
}

/// The number of these subjects, and those with the most refusals. Of equals, the lower hash comes first, so that two runs
/// print the same.
fn listed(
    refused: &HashMap<SubjectKey, Refusals>,
    tally: &Tally,
    is_wanted: impl Fn(&SubjectKey) -> bool,
) -> Subjects {
    let mut wanted: Vec<_> = refused.iter().filter(|(subject, _)| is_wanted(subject)).collect();
    let number = wanted.len();
    let order =
        |(subject, refusals): &(&SubjectKey, &Refusals)| (std::cmp::Reverse(refusals.refused), **subject);
    if number > LISTED_MAX {
        wanted.select_nth_unstable_by_key(LISTED_MAX, order);
        wanted.truncate(LISTED_MAX);
    }
    wanted.sort_unstable_by_key(order);
    let result = |(subject, refusals): (&SubjectKey, &Refusals)| SubjectResult {
        subject: subject.subject().prefix(),
        values: tally.values.as_ref().and_then(|values| values.get(subject).cloned()),
        rule: tally.rules[refusals.rule].id.clone(),
        checks: refusals.checks.into(),
        refused: refusals.refused.into(),
    };
    Subjects { number, listed: wanted.into_iter().map(result).collect() }
}
