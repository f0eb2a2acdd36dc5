//! From calls and the end state of the store to figures.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::{Limit, Span, Time};

use super::place::{Contents, Names, WINDOW};
use super::traffic::{Answer, Call, Class, LIMIT_OTHER, PER_SECOND, SHARE, WallClock};
use crate::drill::DrillError;
use crate::history::{CallResult, Checker, History, Record};

/// What the store may have lost, so that it may admit it again.
pub(super) enum Lost {
    /// Nothing.
    Nothing,
    /// Admissions that a replica did not have at this instant.
    Missing { contents: Contents, at: Instant },
    /// Everything that was admitted before this instant, in this number of steps.
    Before { at: Instant, times: u64 },
    /// This many admissions.
    AtMost(u64),
}

/// What the account needs to know about a fault.
pub(super) struct Facts {
    pub(super) lost: Lost,
    /// The limit of the rule `closed` changed during the run.
    pub(super) changing_limit: bool,
    /// The store's clock is not the one of this machine.
    pub(super) shifted_clock: bool,
    /// Between these instants no policy may admit anything.
    pub(super) closed_between: Option<(Instant, Instant)>,
    /// The end of the fault.
    pub(super) ended: Instant,
    /// From this instant on, no policy may answer.
    pub(super) settled: Instant,
}

impl Facts {
    /// Returns how often the bucket of the hot key may become full at once.
    fn refills(&self) -> u64 {
        let lost = match self.lost {
            Lost::Nothing => 0,
            Lost::Before { times, .. } => times,
            Lost::Missing { .. } | Lost::AtMost(_) => 1,
        };
        lost + u64::from(self.shifted_clock)
    }
}

/// Answers of failure policies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ByPolicy {
    /// Refused by `closed`.
    pub closed: u64,
    /// Answered by `open`.
    pub open: u64,
    /// Answered by `local 25%`.
    pub local: u64,
    /// Answered by `cap`.
    pub cap: u64,
    /// Answers that the policy does not allow.
    pub wrong: u64,
    /// Admissions while Redis refused the servers for a mistake, which opens nothing.
    pub opened: u64,
}

/// Percentiles of latencies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Latencies {
    /// The median.
    pub p50: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The 99.9th percentile.
    pub p999: Duration,
    /// The slowest.
    pub max: Duration,
}

/// The figures of all calls.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Figures {
    pub(super) checks: u64,
    pub(super) over_admitted: u64,
    pub(super) falsely_refused: u64,
    pub(super) double_charged: u64,
    pub(super) partly_charged: u64,
    pub(super) lost: u64,
    pub(super) lost_max: u64,
    pub(super) id_conflicts: u64,
    pub(super) by_policy: ByPolicy,
    pub(super) unanswered: u64,
    pub(super) overloaded: u64,
    pub(super) latencies: Latencies,
    pub(super) recovered_after: Duration,
    /// Answers of policies long after the fault.
    pub(super) late_policy: u64,
}

/// The calls on one subject.
#[derive(Default)]
struct Subject {
    /// Instants of admissions by the store. A request id counts once.
    admitted: Vec<(Instant, Instant)>,
    /// Calls that may have been charged, including admissions.
    possible: u64,
    ids_admitted: BTreeSet<u64>,
    ids_possible: BTreeSet<u64>,
}

impl Subject {
    fn add(&mut self, call: &Call) {
        let is_new = |ids: &mut BTreeSet<u64>| call.check.id.is_none_or(|id| ids.insert(id));
        if call.answer.is_admitted_by_store() && is_new(&mut self.ids_admitted) {
            self.admitted.push((call.sent, call.done));
        }
        let may_count = call.answer.is_admitted_by_store() || call.answer.may_be_charged();
        if may_count && is_new(&mut self.ids_possible) {
            self.possible += 1;
        }
    }

    fn admitted(&self) -> u64 {
        self.admitted.len() as u64
    }
}

/// Computes all figures.
pub(super) fn figures(
    calls: &[Call],
    contents: &Contents,
    names: &Names,
    clock: &WallClock,
    facts: &Facts,
) -> Result<Figures, DrillError> {
    let mut figures = Figures { checks: calls.len() as u64, ..Figures::default() };
    let mut subjects: HashMap<(Class, u32), Subject> = HashMap::new();
    for call in calls {
        subjects.entry((call.check.class, call.check.user)).or_default().add(call);
        match call.answer {
            Answer::Lost | Answer::Unsent => figures.unanswered += 1,
            Answer::Overloaded => figures.overloaded += 1,
            _ => (),
        }
    }
    for ((class, user), subject) in &subjects {
        let charged = contents.charged(names, *class, *user)?;
        let (Some(least), Some(most)) = (charged.iter().min(), charged.iter().max()) else { continue };
        figures.lost += subject.admitted().saturating_sub(*least);
        figures.double_charged += most.saturating_sub(subject.possible);
        figures.partly_charged += most - least;
        let limit = match class {
            Class::Closed if facts.changing_limit => LIMIT_OTHER,
            _ => class.most(),
        };
        figures.over_admitted += subject.admitted().saturating_sub(limit);
        figures.lost_max += match &facts.lost {
            Lost::Nothing | Lost::AtMost(_) => 0,
            Lost::Before { at, .. } => subject.admitted.iter().filter(|(sent, _)| sent <= at).count() as u64,
            Lost::Missing { contents, at } => {
                let had = contents.charged(names, *class, *user)?.into_iter().min().unwrap_or(0);
                let by_then = subject.admitted.iter().filter(|(_, done)| done <= at).count() as u64;
                by_then.saturating_sub(had)
            }
        };
    }
    if let Lost::AtMost(most) = facts.lost {
        figures.lost_max = most;
    }
    check_history(calls, clock, facts, &mut figures)?;
    figures.by_policy = by_policy(calls, facts);
    figures.latencies = latencies(calls);
    figures.recovered_after = recovered_after(calls, facts.ended);
    let is_late = |call: &&Call| call.sent >= facts.settled && matches!(call.answer, Answer::Policy { .. });
    figures.late_policy = calls.iter().filter(is_late).count() as u64;
    Ok(figures)
}

/// Runs the history checker over every rule.
fn check_history(
    calls: &[Call],
    clock: &WallClock,
    facts: &Facts,
    figures: &mut Figures,
) -> Result<(), DrillError> {
    let window = |limit| Ok::<_, DrillError>(Limit::FixedWindow(FixedWindow::new(limit, WINDOW)?));
    let bucket = Limit::Bucket(Bucket::tokens(PER_SECOND, Span::from_secs(1), PER_SECOND)?);
    for class in Class::ALL {
        let history: History = calls
            .iter()
            .filter(|call| call.check.class == class)
            .filter_map(|call| record(call, clock))
            .collect();
        if class == Class::Hot {
            figures.over_admitted += over_bucket(calls, facts.refills());
            if !facts.shifted_clock {
                let verdict = Checker::new(bucket).check(&history);
                figures.falsely_refused += verdict.falsely_refused.len() as u64;
                // A bucket that the store lost is full again, which the checker does not know.
                let is_lossless = matches!(facts.lost, Lost::Nothing);
                figures.over_admitted += if is_lossless { verdict.excess() as u64 } else { 0 };
            }
            continue;
        }
        // A refusal by several rules has one of them as its reason: the smaller limit.
        let verdict = Checker::new(window(class.most())?).check(&history);
        figures.falsely_refused += verdict.falsely_refused.len() as u64;
        figures.id_conflicts += verdict.id_conflicts.len() as u64;
    }
    Ok(())
}

fn record(call: &Call, clock: &WallClock) -> Option<Record> {
    let answer = match call.answer {
        Answer::Store { allowed: true } => CallResult::Allow,
        Answer::Store { allowed: false } | Answer::Remembered => CallResult::Refuse,
        Answer::Policy { .. } => CallResult::Degraded,
        Answer::Error | Answer::Lost => CallResult::Unknown,
        Answer::Overloaded | Answer::Unsent => return None,
    };
    let end = if call.answer.may_be_charged() { Time::MAX } else { Time::from_us(clock.us(call.done)) };
    let start = Time::from_us(clock.us(call.sent));
    let record = Record::new(call.check.user.to_string(), 1, answer, start, end).by(call.server);
    Some(match call.check.id {
        Some(id) => record.with_id(id.into()),
        None => record,
    })
}

/// Returns what the hot key was admitted beyond its bucket, if that became full at once so often.
fn over_bucket(calls: &[Call], refills: u64) -> u64 {
    let hot = || calls.iter().filter(|call| call.check.class == Class::Hot);
    let admitted = hot().filter(|call| call.answer.is_admitted_by_store()).count() as u64;
    admitted.saturating_sub(PER_SECOND * (1 + refills) + refilled(hot().collect::<Vec<_>>().as_slice()))
}

/// Returns what a bucket gets between the first and the last of these calls, rounded up.
fn refilled(calls: &[&Call]) -> u64 {
    let first = calls.iter().map(|call| call.sent).min();
    let last = calls.iter().map(|call| call.done).max();
    let span = first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first);
    (span.as_secs_f64() * PER_SECOND as f64).ceil() as u64
}

fn by_policy(calls: &[Call], facts: &Facts) -> ByPolicy {
    let mut found = ByPolicy::default();
    let mut shares: BTreeMap<(u32, u32, u32), u64> = BTreeMap::new();
    let mut caps: BTreeMap<(u32, u32), Vec<&Call>> = BTreeMap::new();
    for call in calls {
        let Answer::Policy { allowed, degraded } = call.answer else { continue };
        let is_right = match call.check.class {
            Class::Open => {
                found.open += 1;
                allowed == degraded
            }
            Class::Local => {
                found.local += 1;
                if allowed {
                    *shares.entry((call.server, call.life, call.check.user)).or_default() += 1;
                }
                true
            }
            Class::Cap => {
                found.cap += 1;
                if allowed {
                    caps.entry((call.server, call.life)).or_default().push(call);
                }
                true
            }
            _ => {
                found.closed += 1;
                !allowed
            }
        };
        found.wrong += u64::from(!is_right);
        match facts.closed_between {
            Some((from, until)) => {
                found.opened += u64::from(allowed && call.sent >= from && call.done <= until);
            }
            // An open rule refuses nothing, if the store is only away.
            None => found.wrong += u64::from(call.check.class == Class::Open && !allowed),
        }
    }
    found.wrong += shares.values().map(|admitted| admitted.saturating_sub(SHARE)).sum::<u64>();
    let over_cap = |calls: &Vec<&Call>| (calls.len() as u64).saturating_sub(PER_SECOND + refilled(calls));
    found.wrong += caps.values().map(over_cap).sum::<u64>();
    found
}

fn latencies(calls: &[Call]) -> Latencies {
    let answered = calls.iter().filter(|call| !matches!(call.answer, Answer::Lost | Answer::Unsent));
    let mut times: Vec<Duration> =
        answered.map(|call| call.done.saturating_duration_since(call.due)).collect();
    times.sort_unstable();
    let at = |part: f64| times.get((times.len().saturating_sub(1) as f64 * part) as usize).copied();
    let at = |part| at(part).unwrap_or_default();
    Latencies { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) }
}

/// Returns how long the slowest server took until the store answered one of its checks.
fn recovered_after(calls: &[Call], ended: Instant) -> Duration {
    let mut first: BTreeMap<u32, Instant> = BTreeMap::new();
    for call in calls.iter().filter(|call| matches!(call.answer, Answer::Store { .. }) && call.done >= ended)
    {
        let at = first.entry(call.server).or_insert(call.done);
        *at = (*at).min(call.done);
    }
    first.values().map(|at| *at - ended).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::traffic::Check;

    fn call(class: Class, user: u32, id: Option<u64>, answer: Answer) -> Call {
        let now = Instant::now();
        let check = Check { class, user, id, is_repetition: false };
        Call { check, server: 0, life: 1, due: now, sent: now, done: now, answer }
    }

    fn facts() -> Facts {
        Facts {
            lost: Lost::Nothing,
            changing_limit: false,
            shifted_clock: false,
            closed_between: None,
            ended: Instant::now(),
            settled: Instant::now(),
        }
    }

    #[test]
    fn answers_that_a_policy_does_not_allow_are_counted() {
        let (yes, no) = (
            Answer::Policy { allowed: true, degraded: false },
            Answer::Policy { allowed: false, degraded: false },
        );
        let flagged = Answer::Policy { allowed: true, degraded: true };
        let wrong = |calls: &[Call]| by_policy(calls, &facts()).wrong;
        let times = |count, class, answer| vec![call(class, 7, None, answer); count];
        assert_eq!(wrong(&times(9, Class::Closed, no)), 0);
        assert_eq!(wrong(&times(9, Class::Several, yes)), 9, "closed rules refuse");
        assert_eq!(wrong(&times(9, Class::Open, flagged)), 0);
        assert_eq!(wrong(&times(9, Class::Open, yes)), 9, "open rules flag what they admit");
        assert_eq!(wrong(&times(9, Class::Open, no)), 9, "open rules admit");
        assert_eq!(wrong(&times(5, Class::Local, yes)), 0);
        assert_eq!(wrong(&times(6, Class::Local, yes)), 1, "one more than the share");
        assert_eq!(wrong(&times(20, Class::Cap, yes)), 0);
        assert_eq!(wrong(&times(23, Class::Cap, yes)), 3, "three more than the cap");
        let begin = Instant::now();
        let misconfigured = call(Class::Open, 7, None, flagged);
        let closed = Facts { closed_between: Some((begin, Instant::now())), ..facts() };
        assert_eq!(by_policy(&[misconfigured], &closed).opened, 1, "a mistake opens nothing");
    }

    #[test]
    fn a_request_id_counts_once_and_what_may_be_charged_counts_as_possible() {
        let mut subject = Subject::default();
        let (admitted, lost) = (Answer::Store { allowed: true }, Answer::Lost);
        for (id, answer) in [(1, lost), (1, admitted), (1, admitted), (2, lost), (3, Answer::Unsent)] {
            subject.add(&call(Class::Ids, 7, Some(id), answer));
        }
        assert_eq!((subject.admitted(), subject.possible), (1, 2));
        for answer in [admitted, lost, Answer::Store { allowed: false }, Answer::Remembered] {
            subject.add(&call(Class::Closed, 7, None, answer));
        }
        assert_eq!((subject.admitted(), subject.possible), (2, 4));
    }
}
