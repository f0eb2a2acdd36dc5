//! Drives the real state machines through a script and records what they did.

use super::chart::{Mark, Point, simplify};
use super::svg::Look;
use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::algorithm::quota::QuotaState;
use tollgate_core::{Answer, Limit, Operation, Span, State, Time};

/// Where the scripts begin: a full hour, so that windows of any usual length begin here too.
pub(super) const ORIGIN: Time = Time::from_us(1_800_000_000_000_000);

/// One thing that happens, so many milliseconds after the origin.
pub(super) type Line = (u64, Operation);

/// What became of a script.
pub(super) struct Trace {
    /// Every request for admission.
    pub(super) marks: Vec<Mark>,
    /// What the gauge showed.
    pub(super) level: Vec<Point>,
    /// Every answer, in the order of the script.
    pub(super) answers: Vec<Answer>,
}

/// One subject under one limit.
pub(super) struct Subject {
    limit: Limit,
    state: Option<State>,
}

impl Subject {
    pub(super) fn new(limit: Limit) -> Subject {
        Subject { limit, state: None }
    }

    /// Asks, and commits what was decided.
    pub(super) fn ask(&mut self, now: Time, operation: &Operation) -> Answer {
        let step = self.limit.decide(self.state.as_ref(), now, operation);
        if let Some(write) = step.write {
            State::commit(&mut self.state, write.change);
        }
        step.answer
    }

    pub(super) fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// What counts against the limit, in whole units.
    pub(super) fn used(&self, now: Time) -> f64 {
        let answer = self.limit.decide(self.state.as_ref(), now, &Operation::Peek { cost: 0 }).answer;
        (answer.limit - answer.remaining) as f64
    }
}

/// What is recorded between the lines of a script.
#[derive(Clone, Copy)]
pub(super) enum Gauge {
    /// What counts against the limit, in whole units.
    Used,
    /// What a bucket holds, with its fraction.
    Debt(Bucket),
    /// What a token bucket still has, with its fraction.
    Tokens(Bucket),
    /// The failures that a penalty remembers.
    Failures,
    /// What was consumed of a quota.
    Consumed,
    /// What was consumed of a quota and what is reserved.
    Taken,
}

/// When, and how often, a gauge is read. It is read around every line of the script as well.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    pub(super) gauge: Gauge,
    pub(super) from_ms: u64,
    pub(super) until_ms: u64,
    pub(super) every_ms: u64,
}

impl Gauge {
    /// Read often enough for a picture of `until_ms` milliseconds.
    pub(super) const fn until(self, until_ms: u64) -> Reading {
        Reading { gauge: self, from_ms: 0, until_ms, every_ms: 20 }
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
            Gauge::Taken => quota(subject, now).map_or(0.0, |quota| {
                let held = quota.reservations.iter().filter(|held| held.until > now);
                (quota.used + held.map(|held| held.cost).sum::<u64>()) as f64
            }),
        }
    }

    /// Whether it goes from one whole number to another at once.
    const fn is_stepped(self) -> bool {
        !matches!(self, Gauge::Debt(_) | Gauge::Tokens(_))
    }
}

/// Runs `script`, which must be in the order of time.
pub(super) fn run(limit: Limit, script: &[Line], reading: Reading) -> Trace {
    let Reading { gauge, from_ms, until_ms, every_ms } = reading;
    let mut subject = Subject::new(limit);
    let (mut marks, mut answers, mut level) = (Vec::new(), Vec::new(), Vec::new());
    let mut read = |subject: &Subject, at_ms: u64| {
        level.push(Point { at: seconds(at_ms), value: gauge.read(subject, instant(at_ms)) });
    };
    let mut lines = script.iter().peekable();
    for sampled_ms in (from_ms..until_ms).step_by(every_ms as usize) {
        while let Some(&(at_ms, operation)) = lines.next_if(|&&(at_ms, _)| at_ms <= sampled_ms) {
            read(&subject, at_ms);
            let answer = subject.ask(instant(at_ms), &operation);
            read(&subject, at_ms);
            if let Some(cost) = operation.cost() {
                let look = if answer.is_admitted() { Look::Admitted } else { Look::Refused };
                marks.push(Mark { at: seconds(at_ms), look, cost });
            }
            answers.push(answer);
        }
        read(&subject, sampled_ms);
    }
    let level = simplify(if gauge.is_stepped() { steps(level) } else { level });
    Trace { marks, level, answers }
}

/// The same points, each joined to the next by a level line and an upright one.
fn steps(points: Vec<Point>) -> Vec<Point> {
    let mut steps: Vec<Point> = Vec::with_capacity(2 * points.len());
    for point in points {
        if let Some(&last) = steps.last() {
            steps.push(Point { at: point.at, value: last.value });
        }
        steps.push(point);
    }
    steps
}

fn debt(bucket: &Bucket, subject: &Subject, now: Time) -> f64 {
    let Some(State::Bucket(state)) = subject.state() else { return 0.0 };
    let (drain, scale) = bucket.rate();
    let elapsed = (now - state.time).us() / bucket.tick().us();
    state.debt.saturating_sub(elapsed * drain) as f64 / scale as f64
}

/// The state of a quota whose period is not over.
fn quota(subject: &Subject, now: Time) -> Option<&QuotaState> {
    match subject.state() {
        Some(State::Quota(quota)) if now < quota.end => Some(quota),
        _ => None,
    }
}

/// The instant so many milliseconds after the origin.
pub(super) fn instant(at_ms: u64) -> Time {
    ORIGIN.plus(Span::from_ms(at_ms))
}

/// Charges of one unit each.
pub(super) fn charges(at_ms: &[u64]) -> Vec<Line> {
    at_ms.iter().map(|&at_ms| (at_ms, Operation::charge(1))).collect()
}

/// Pictures count in seconds after the origin.
pub(super) fn seconds(at_ms: u64) -> f64 {
    at_ms as f64 / 1_000.0
}
