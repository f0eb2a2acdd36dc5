//! Runs a script of operations on the real state machines and records the answers.

use super::chart::{Mark, Point, simplify};
use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::algorithm::hold_sums;
use tollgate_core::algorithm::quota::QuotaState;
use tollgate_core::{Account, Answer, Limit, Operation, Span, State, Time};
use tollgate_server::drawing::Look;

/// Start of all scripts: a full hour, so that windows of any usual length also begin here.
pub(super) const ORIGIN: Time = Time::from_us(1_800_000_000_000_000);

/// One operation, at a time in milliseconds after the origin.
pub(super) type Step = (u64, Operation);

/// The record of one script run.
pub(super) struct Trace {
    /// Every request for admission.
    pub(super) marks: Vec<Mark>,
    /// Values of the gauge.
    pub(super) level: Vec<Point>,
    /// Every answer, in the order of the script.
    pub(super) answers: Vec<Answer>,
}

/// One subject under one limit.
pub(super) struct Subject {
    limit: Limit,
    account: Account,
}

impl Subject {
    pub(super) fn new(limit: Limit) -> Subject {
        Subject { limit, account: Account::default() }
    }

    /// Applies one operation, commits its write and returns the answer.
    pub(super) fn apply(&mut self, now: Time, operation: &Operation) -> Answer {
        self.account.apply(&self.limit, now, operation)
    }

    pub(super) fn state(&self) -> Option<&State> {
        self.account.state.as_ref()
    }

    /// Returns the whole units that count against the limit.
    pub(super) fn used(&self, now: Time) -> f64 {
        let answer = self.limit.decide(self.state(), now, &Operation::Peek { cost: 0 }).answer;
        (answer.limit - answer.remaining) as f64
    }
}

/// The quantity that is recorded during a script.
#[derive(Clone, Copy)]
pub(super) enum Gauge {
    /// Whole units that count against the limit.
    Used,
    /// Level of a bucket, with its fraction.
    Debt(Bucket),
    /// Tokens left in a token bucket, with their fraction.
    Tokens(Bucket),
    /// Failures on record of a penalty.
    Failures,
    /// Consumption of a quota.
    Consumed,
    /// Consumption of a quota plus its open reservations.
    ConsumedAndReserved,
}

/// When and how often a gauge is sampled. It is also sampled before and after every step of the script.
#[derive(Clone, Copy)]
pub(super) struct Sampling {
    pub(super) gauge: Gauge,
    pub(super) from_ms: u64,
    pub(super) until_ms: u64,
    pub(super) every_ms: u64,
}

impl Gauge {
    /// Samples the gauge from the origin until `until_ms`.
    pub(super) const fn until(self, until_ms: u64) -> Sampling {
        Sampling { gauge: self, from_ms: 0, until_ms, every_ms: 20 }
    }

    fn read(self, subject: &Subject, now: Time) -> f64 {
        match self {
            Gauge::Used => subject.used(now),
            Gauge::Debt(bucket) => debt(&bucket, subject, now),
            Gauge::Tokens(bucket) => bucket.capacity() as f64 - debt(&bucket, subject, now),
            Gauge::Failures => match subject.state() {
                Some(State::Penalty(state)) if subject.used(now) > 0.0 => state.failures as f64,
                _ => 0.0,
            },
            Gauge::Consumed => quota(subject, now).map_or(0.0, |quota| quota.used as f64),
            Gauge::ConsumedAndReserved => quota(subject, now).map_or(0.0, |quota| {
                (quota.used + hold_sums::total(hold_sums::live(&quota.sums, now))) as f64
            }),
        }
    }

    /// Returns whether the value changes in steps, not continuously.
    const fn is_stepped(self) -> bool {
        !matches!(self, Gauge::Debt(_) | Gauge::Tokens(_))
    }
}

/// Runs `script`, which must be sorted by time.
pub(super) fn run(limit: Limit, script: &[Step], sampling: Sampling) -> Trace {
    let Sampling { gauge, from_ms, until_ms, every_ms } = sampling;
    let mut subject = Subject::new(limit);
    let (mut marks, mut answers, mut level) = (Vec::new(), Vec::new(), Vec::new());
    let mut read = |subject: &Subject, at_ms: u64| {
        level.push(Point { at: seconds(at_ms), value: gauge.read(subject, instant(at_ms)) });
    };
    let mut steps_left = script.iter().peekable();
    for sampled_ms in (from_ms..until_ms).step_by(every_ms as usize) {
        while let Some(&(at_ms, operation)) = steps_left.next_if(|&&(at_ms, _)| at_ms <= sampled_ms) {
            read(&subject, at_ms);
            let answer = subject.apply(instant(at_ms), &operation);
            read(&subject, at_ms);
            if let Some(cost) = operation.cost() {
                let look = if answer.is_admitted() { Look::Admitted } else { Look::Refused };
                marks.push(Mark { at: seconds(at_ms), look, cost });
            }
            answers.push(answer);
        }
        read(&subject, sampled_ms);
    }
    let level = simplify(if gauge.is_stepped() { stepped(level) } else { level });
    Trace { marks, level, answers }
}

/// Joins each point to the next by a horizontal and a vertical line.
fn stepped(points: Vec<Point>) -> Vec<Point> {
    let mut joined: Vec<Point> = Vec::with_capacity(2 * points.len());
    for point in points {
        if let Some(&last) = joined.last() {
            joined.push(Point { at: point.at, value: last.value });
        }
        joined.push(point);
    }
    joined
}

fn debt(bucket: &Bucket, subject: &Subject, now: Time) -> f64 {
    let Some(State::Bucket(state)) = subject.state() else { return 0.0 };
    let (drain, scale) = bucket.rate();
    let elapsed = (now - state.time).us() / bucket.tick().us();
    state.debt.saturating_sub(elapsed * drain) as f64 / scale as f64
}

/// Returns the state of a quota whose period is not over.
fn quota(subject: &Subject, now: Time) -> Option<&QuotaState> {
    match subject.state() {
        Some(State::Quota(quota)) if now < quota.end => Some(quota),
        _ => None,
    }
}

/// Returns the instant at `at_ms` milliseconds after the origin.
pub(super) fn instant(at_ms: u64) -> Time {
    ORIGIN.plus(Span::from_ms(at_ms))
}

/// Returns charges of one unit each.
pub(super) fn charges(at_ms: &[u64]) -> Vec<Step> {
    at_ms.iter().map(|&at_ms| (at_ms, Operation::charge(1))).collect()
}

/// Converts to seconds, the unit of the time axis.
pub(super) fn seconds(at_ms: u64) -> f64 {
    at_ms as f64 / 1_000.0
}
