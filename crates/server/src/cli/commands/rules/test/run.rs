//! Runs tests: the requests of every step in memory, and the comparison with what is expected.

use std::collections::BTreeSet;

use anyhow::Result;
use tollgate::core::SubjectHasher;
use tollgate::core::decision::{RetryAfter, Source};
use tollgate::core::rules::Request;
use tollgate::core::{Attributes, Time};
use tollgate::{Decision, LocalLimiter, ManualClock};

use super::file::{Decider, Step, Test};
use crate::cli::terminal::duration;

/// A test and the results of its steps.
pub(super) struct TestResult {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) start: Time,
    pub(super) steps: Vec<StepResult>,
}

/// A step, what was decided, and how that differs from what is expected.
pub(super) struct StepResult {
    pub(super) step: Step,
    pub(super) observed: Observed,
    pub(super) differences: Vec<Difference>,
}

/// An expectation that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Difference {
    /// The key of the step.
    pub(super) key: &'static str,
    pub(super) expected: String,
    pub(super) got: String,
}

/// What the requests of a step were answered.
#[derive(Default)]
pub(super) struct Observed {
    pub(super) allowed: u64,
    pub(super) shadow_refused: u64,
    /// What refused; if nothing was refused, what decided the last request.
    pub(super) deciders: BTreeSet<Decider>,
    /// The wait of the last refusal.
    pub(super) retry_after: Option<RetryAfter>,
    pub(super) last: Option<Decision>,
    /// Why a request could not be decided. The step ends there.
    pub(super) error: Option<String>,
}

impl TestResult {
    pub(super) fn passed(&self) -> bool {
        self.steps.iter().all(|step| step.differences.is_empty())
    }
}

/// Runs a test from an empty store.
pub(super) fn run_test(test: Test, hasher: &SubjectHasher) -> Result<TestResult> {
    let Test { name, line, rules, start, steps } = test;
    let clock = ManualClock::at(start);
    let limiter = LocalLimiter::builder()
        .rules((*rules).clone())
        .clock(clock.clone())
        .hash_key(hasher.clone())
        .build()?;
    let steps = steps.into_iter().map(|step| {
        clock.set(step.at);
        let observed = observe(&limiter, &step);
        let differences = compare(&step, &observed);
        StepResult { step, observed, differences }
    });
    Ok(TestResult { name, line, start, steps: steps.collect() })
}

fn observe(limiter: &LocalLimiter, step: &Step) -> Observed {
    let mut attributes = Attributes::new();
    for (name, value) in &step.attributes {
        attributes.set(name, value);
    }
    let mut observed = Observed::default();
    let mut last_decider = None;
    for number in 1..=step.times {
        let request = Request::new(&attributes);
        let request = step.cost.map_or(request, |cost| request.cost(cost));
        let decision = match limiter.check(request) {
            Ok(decision) => decision,
            Err(error) => {
                observed.error = Some(format!("request {number} could not be decided: {error}"));
                break;
            }
        };
        let decider = decider(&decision);
        if decision.allowed() {
            observed.allowed += 1;
            last_decider = Some(decider);
        } else {
            observed.deciders.insert(decider);
            let numbers = decision.headline().and_then(|rule| rule.outcome().numbers);
            observed.retry_after = numbers.map(|numbers| numbers.retry_after);
        }
        observed.shadow_refused += u64::from(decision.shadow_rejected().next().is_some());
        observed.last = Some(decision);
    }
    if observed.deciders.is_empty() {
        observed.deciders.extend(last_decider);
    }
    observed
}

fn decider(decision: &Decision) -> Decider {
    match (decision.headline(), decision.source()) {
        (Some(rule), _) => Decider::Rule(rule.id().to_owned()),
        (None, Source::List) if decision.allowed() => Decider::BypassList,
        (None, Source::List) => Decider::DenyList,
        (None, _) => Decider::Unmatched,
    }
}

fn compare(step: &Step, observed: &Observed) -> Vec<Difference> {
    let mut differences = Vec::new();
    if let Some(error) = &observed.error {
        let expected = "a decision for every request".to_owned();
        differences.push(Difference { key: "error", expected, got: error.clone() });
    }
    let mut differ = |key, expected: Option<String>, got: String| {
        if let Some(expected) = expected
            && expected != got
        {
            differences.push(Difference { key, expected, got });
        }
    };
    let expected = &step.expected;
    differ("allowed", Some(expected.allowed.to_string()), observed.allowed.to_string());
    if let Some(by) = &expected.decided_by {
        let key = if matches!(by, Decider::Rule(_)) { "rule" } else { "by" };
        let got: Vec<_> = observed.deciders.iter().map(Decider::name).collect();
        differ(key, Some(by.name().to_owned()), or_nothing(got.join(", ")));
    }
    let remaining = observed.last.as_ref().and_then(Decision::remaining);
    differ(
        "remaining",
        expected.remaining.map(|remaining| remaining.to_string()),
        or_nothing(remaining.map(|remaining| remaining.to_string()).unwrap_or_default()),
    );
    differ(
        "retry_after",
        expected.retry_after.map(wait),
        observed.retry_after.map_or_else(|| "no refusal with a wait".to_owned(), wait),
    );
    differ(
        "shadow_refused",
        expected.shadow_refused.map(|number| number.to_string()),
        observed.shadow_refused.to_string(),
    );
    differences
}

fn or_nothing(text: String) -> String {
    if text.is_empty() { "nothing".to_owned() } else { text }
}

/// Formats a wait.
pub(super) fn wait(retry_after: RetryAfter) -> String {
    match retry_after {
        RetryAfter::Ms(ms) => duration(ms),
        RetryAfter::Never => "never".to_owned(),
    }
}

impl Decider {
    /// The id of the rule, or the word of `by`.
    pub(super) fn name(&self) -> &str {
        match self {
            Decider::Rule(id) => id,
            Decider::DenyList => "deny",
            Decider::BypassList => "bypass",
            Decider::Unmatched => "unmatched",
        }
    }
}
