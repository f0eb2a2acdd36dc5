//! Metrics, logs and traces of checks: the one place where they are recorded.

mod auth_failures;
mod capture;
mod counters;
mod exposition;
mod histogram;
pub(crate) mod history;
pub(crate) mod log;
mod series;
mod store_calls;
mod subjects;
mod timed_store;
mod traces;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tollgate::Decision;
use tollgate::core::decision::Source;
use tollgate::core::rules::{Request, RuleSet};
use tollgate::core::{Subject, SubjectHashers};
use tollgate::limiter::{CheckError, FollowUpError, Returned, RuleDecision};

use super::gate::{Edge, Origin};
use crate::config::LogConfig;
use crate::text::excerpt;
pub(crate) use auth_failures::AuthFailures;
pub(crate) use capture::Capture;
use counters::Counters;
pub(crate) use exposition::{Exposition, Kind};
use history::{Columns, Sample, Sums};
use log::LogThrottle;
use series::Table;
pub(crate) use store_calls::StoreCalls;
pub(crate) use subjects::{By, CountedSubject, NearSubject, RecentRefusal, SUBJECTS_MAX};
use subjects::{RecentRefusals, RuleSubjects, Samplers};
pub(crate) use timed_store::TimedStore;
pub(crate) use traces::Traces;

/// Lists of subjects cover the current period and the one before.
pub(crate) const PERIOD_S: u32 = 300;

/// Counts, logs and traces decisions.
pub(crate) struct Recorder {
    rules: ArcSwap<Table>,
    edges: Counters,
    others: Counters,
    store: Arc<StoreCalls>,
    traces: Option<Traces>,
    capture: Option<Capture>,
    refusals_per_second: u32,
    refusals: LogThrottle,
    shadow_refusals: LogThrottle,
    undecided: LogThrottle,
    samplers: Samplers,
    recent: RecentRefusals,
}

/// The indexes of `edges` after those of the transports. An admission in which the store answered counts in none of them.
mod verdict {
    pub(super) const REFUSED: usize = 4;
    pub(super) const FALLBACK: usize = 5;
}

/// The indexes of `others`.
mod other {
    pub(super) const UNMATCHED: usize = 0;
    pub(super) const DENIED: usize = 1;
    pub(super) const BYPASSED: usize = 2;
    pub(super) const UNDECIDED: usize = 3;
    pub(super) const THROTTLE_ALLOWED: usize = 4;
    pub(super) const THROTTLE_REFUSED: usize = 5;
    pub(super) const DEGRADED: usize = 6;
    pub(super) const UNMATCHED_REFUSED: usize = 7;
}

/// Logs a refusal of a rule. A macro, because the name of an event is part of its callsite.
macro_rules! log_refusal {
    ($event:literal, $edge:expr, $request:expr, $decision:expr, $rule:expr, $wait:expr, $took:expr, $hashers:expr, $suppressed:expr) => {{
        let rule: Option<RuleDecision<'_>> = $rule;
        let (subject_kind, subject) = subject_fields(rule, $request, $hashers);
        let numbers = rule.and_then(|rule| rule.outcome().numbers);
        tracing::info!(
            event = $event,
            edge = $edge.name(),
            rule = rule.map(|rule| rule.id()),
            tenant = $request.attributes.get("tenant").map(|tenant| excerpt(tenant, 64)),
            subject_kind,
            subject,
            algorithm = rule.and_then(|rule| rule.outcome().algorithm).map(|algorithm| algorithm.name()),
            limit = numbers.map(|numbers| numbers.limit),
            remaining = numbers.map(|numbers| numbers.remaining),
            retry_after_ms = $wait.map(|wait: Duration| wait.as_millis() as u64),
            fallback = $decision.source() == Source::Fallback,
            store_latency_us = $took.map(|took: Duration| took.as_micros() as u64),
            suppressed = $suppressed,
            $event
        );
    }};
}

impl Recorder {
    pub(crate) fn new(
        rules: &RuleSet,
        store: Arc<StoreCalls>,
        log: &LogConfig,
        traces: Option<Traces>,
        capture: Option<Capture>,
    ) -> Recorder {
        Recorder {
            rules: ArcSwap::from_pointee(Table::new(0, rules, None)),
            edges: Counters::default(),
            others: Counters::default(),
            store,
            traces,
            capture,
            refusals_per_second: log.refusals_per_second,
            refusals: LogThrottle::default(),
            shadow_refusals: LogThrottle::default(),
            undecided: LogThrottle::default(),
            samplers: Samplers::default(),
            recent: RecentRefusals::default(),
        }
    }

    /// Switches to the counters of other rules.
    pub(crate) fn replace_rules(&self, version: u64, rules: &RuleSet) {
        self.rules.store(Arc::new(Table::new(version, rules, Some(&self.rules.load()))));
    }

    /// Records a check. `took` is the time that the store took, if it had to be awaited.
    pub(crate) fn decided(
        &self,
        origin: &Origin<'_>,
        request: &Request<'_>,
        decided: &Result<Decision, CheckError>,
        took: Option<Duration>,
        hashers: &SubjectHashers,
    ) {
        self.edges.add(origin.edge as usize);
        if let Some(traces) = &self.traces {
            traces.note(origin, decided, took.unwrap_or_default());
        }
        let decision = match decided {
            Ok(decision) => decision,
            Err(error) => return self.record_undecided(origin.edge, error),
        };
        if let Some(capture) = &self.capture {
            capture.note(request, decision);
        }
        let ruleless = match decision.source() {
            Source::Unmatched if decision.allowed() => Some(other::UNMATCHED),
            Source::Unmatched => Some(other::UNMATCHED_REFUSED),
            Source::List if decision.allowed() => Some(other::BYPASSED),
            Source::List => Some(other::DENIED),
            Source::Store
            | Source::Slice
            | Source::Memory
            | Source::Prefilter
            | Source::Fallback
            | Source::Rule => None,
        };
        if let Some(reason) = ruleless {
            self.others.add(reason);
        } else {
            let table = self.rules.load();
            let version = decision.rules_version();
            let weight = self.samplers.weight(!decision.allowed());
            if weight > 0 {
                note_subjects(&table, weight, decision, request);
            }
            for rule in decision.rules() {
                let outcome = rule.outcome();
                if !outcome.allowed && !outcome.blocking && decision.source() == Source::Store {
                    self.log_shadow_refusal(origin.edge, request, decision, &rule, took, hashers);
                }
                if let Some(series) = table.of(version, outcome, rule.rule()) {
                    series.note(outcome, decision.source(), rule.rule(), request.attributes);
                }
            }
        }
        if decision.degraded() {
            self.others.add(other::DEGRADED);
        }
        if decision.source() == Source::Fallback {
            self.edges.add(verdict::FALLBACK);
        }
        if !decision.allowed() {
            self.edges.add(verdict::REFUSED);
            self.recent.note(decision);
        }
        if !decision.allowed()
            && tracing::enabled!(tracing::Level::INFO)
            && let Some(suppressed) = self.refusals.pass(self.refusals_per_second)
        {
            let wait = decision.retry_after();
            log_refusal!(
                "refused",
                origin.edge,
                request,
                decision,
                decision.headline(),
                wait,
                took,
                hashers,
                suppressed
            );
        }
    }

    /// Logs what a shadow rule would have refused, so that its effect is known before it is enforced.
    #[cold]
    fn log_shadow_refusal(
        &self,
        edge: Edge,
        request: &Request<'_>,
        decision: &Decision,
        rule: &RuleDecision<'_>,
        took: Option<Duration>,
        hashers: &SubjectHashers,
    ) {
        if tracing::enabled!(tracing::Level::INFO)
            && let Some(suppressed) = self.shadow_refusals.pass(self.refusals_per_second)
        {
            let wait = rule.retry_after();
            log_refusal!(
                "shadow_refused",
                edge,
                request,
                decision,
                Some(*rule),
                wait,
                took,
                hashers,
                suppressed
            );
        }
    }

    #[cold]
    fn record_undecided(&self, edge: Edge, error: &CheckError) {
        self.others.add(other::UNDECIDED);
        // Callers get the other errors, and can fix them.
        if let CheckError::Undecided(_) = error
            && let Some(suppressed) = self.undecided.pass(1)
        {
            tracing::warn!(event = "undecided", edge = edge.name(), suppressed, "{error}");
        }
    }

    /// Logs a reset, with the name of the token that permitted it.
    pub(crate) fn reset(
        &self,
        edge: Edge,
        token: &str,
        request: &Request<'_>,
        rule: Option<&str>,
        reset: &Result<Vec<Returned>, FollowUpError>,
    ) {
        let tenant = request.attributes.get("tenant").map(|tenant| excerpt(tenant, 64));
        let (edge, rule) = (edge.name(), rule.map(|rule| excerpt(rule, 64)));
        match reset {
            Ok(returned) => {
                let rules: Vec<&str> = returned.iter().map(|returned| returned.rule.as_str()).collect();
                let rules = rules.join(",");
                let matched = returned.len();
                tracing::info!(
                    event = "reset",
                    edge,
                    token,
                    tenant,
                    rule,
                    matched,
                    rules,
                    "consumption was reset"
                );
            }
            Err(error) => {
                tracing::warn!(event = "reset_failed", edge, token, tenant, rule, "{error}");
            }
        }
    }

    /// Records a charge under the caller's own limit.
    pub(crate) fn throttled(&self, edge: Edge, admitted: bool) {
        self.edges.add(edge as usize);
        self.others.add(if admitted { other::THROTTLE_ALLOWED } else { other::THROTTLE_REFUSED });
        if !admitted {
            self.edges.add(verdict::REFUSED);
        }
    }

    /// How many checks each rule has matched since the start.
    pub(crate) fn matched(&self) -> Vec<(Arc<str>, u64)> {
        self.rules.load().matched()
    }

    /// Reads the counters for the history.
    pub(crate) fn sample(&self, at_s: u64) -> Sample {
        let rules = self.rules.load().sums();
        let checks: u64 = Edge::ALL.iter().map(|&edge| self.edges.sum(edge as usize)).sum();
        let refused = self.edges.sum(verdict::REFUSED);
        let undecided = self.others.sum(other::UNDECIDED);
        let mut total: Sums = [0; Columns::COUNT];
        // Not one instant: a check may be counted as refused before it is counted.
        total[Columns::ALLOWED] = checks.saturating_sub(refused + undecided);
        total[Columns::REFUSED] = refused;
        total[Columns::FALLBACK] = self.edges.sum(verdict::FALLBACK);
        Sample { at_s, total, rules, store: self.store.latencies.sums() }
    }

    pub(crate) fn write(&self, page: &mut Exposition) {
        self.rules.load().write(page);
        let mut family = page.family("rate_limit_requests_total", Kind::Counter, "Checks by transport.");
        for edge in Edge::ALL {
            family.sample(&[("edge", edge.name())], self.edges.sum(edge as usize));
        }
        let mut family = page.family(
            "rate_limit_ruleless_total",
            Kind::Counter,
            "Checks that no rule answered: no rule matched, or a list decided.",
        );
        for (number, reason) in [
            (other::UNMATCHED, "unmatched"),
            (other::UNMATCHED_REFUSED, "unmatched_refused"),
            (other::DENIED, "denied"),
            (other::BYPASSED, "bypassed"),
        ] {
            family.sample(&[("reason", reason)], self.others.sum(number));
        }
        page.single(
            "rate_limit_undecided_total",
            Kind::Counter,
            "Checks that ended in an error, such as a cost above the capacity.",
            self.others.sum(other::UNDECIDED),
        );
        page.single(
            "rate_limit_degraded_total",
            Kind::Counter,
            "Checks that were allowed as degraded because the store did not answer.",
            self.others.sum(other::DEGRADED),
        );
        let mut family = page.family(
            "rate_limit_throttle_total",
            Kind::Counter,
            "Charges under limits that callers sent along (CL.THROTTLE, or `limit` of a descriptor).",
        );
        for (number, outcome) in [(other::THROTTLE_ALLOWED, "allowed"), (other::THROTTLE_REFUSED, "refused")]
        {
            family.sample(&[("outcome", outcome)], self.others.sum(number));
        }
        if let Some(capture) = &self.capture {
            capture.write(page);
        }
        self.store.write(page);
    }

    /// The last refusals of these subjects.
    pub(crate) fn recent_refusals(&self, subjects: &[Subject]) -> Vec<RecentRefusal> {
        self.recent.of(subjects)
    }

    /// The lists of subjects of every rule, with the rule's id.
    pub(crate) fn each_subjects<T>(&self, mut look: impl FnMut(&str, &RuleSubjects) -> T) -> Vec<T> {
        self.rules.load().each().map(|series| look(series.rule(), &series.subjects)).collect()
    }

    /// Called every second.
    pub(crate) fn begin_second(&self) {
        if self.samplers.begin_second().is_multiple_of(PERIOD_S) {
            drop(self.each_subjects(|_, subjects| subjects.begin_period()));
        }
    }

    /// Sends the remaining traces.
    pub(crate) fn end(&self) {
        if let Some(traces) = &self.traces {
            traces.end();
        }
        if let Some(capture) = &self.capture {
            capture.end();
        }
    }
}

/// Notes the subjects of a check in the lists of its rules.
#[cold]
#[inline(never)]
fn note_subjects(table: &Table, weight: u32, decision: &Decision, request: &Request<'_>) {
    let is_fallback = decision.source() == Source::Fallback;
    for rule in decision.rules() {
        let outcome = rule.outcome();
        // A failure policy says nothing about a subject.
        let Some(subject) = rule.subject().filter(|_| !is_fallback) else { continue };
        let Some(series) = table.of(decision.rules_version(), outcome, rule.rule()) else { continue };
        let by = match (outcome.allowed, outcome.blocking) {
            (true, _) => By::Used,
            (false, true) => By::Refused,
            (false, false) => By::ShadowRefused,
        };
        let of = (rule.rule(), request.attributes);
        series.subjects.note(by, subject, weight, outcome.numbers.as_ref(), of);
    }
}

/// The subject of a rule in the log: its kind and the beginning of its hash.
fn subject_fields(
    rule: Option<RuleDecision<'_>>,
    request: &Request<'_>,
    hashers: &SubjectHashers,
) -> (Option<String>, Option<String>) {
    let Some(subject) = rule.and_then(|rule| rule.rule().per.find(request.attributes).ok()) else {
        return (None, None);
    };
    let kinds: Vec<&str> = subject.parts.iter().map(|&(kind, _)| kind).collect();
    (Some(kinds.join("+")), Some(subject.hash(hashers.current()).prefix()))
}
