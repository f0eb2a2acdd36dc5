//! A limit of any algorithm, and the one place where algorithms are told apart.

pub mod error;

use crate::algorithm::bucket::{Bucket, BucketKind};
use crate::algorithm::concurrency::Concurrency;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::machine::{LimitStatus, Machine, Step, Write};
use crate::algorithm::meter::Meter;
use crate::algorithm::penalty::Penalty;
use crate::algorithm::quota::{Quota, QuotaPeriod};
use crate::algorithm::sliding_log::SlidingLog;
use crate::algorithm::sliding_window::{Counting, SlidingWindow};
use crate::answer::{Retry, Verdict};
use crate::exactness::Exactness;
use crate::plan::operation::{Mark, Operation};
use crate::state::{Change, State};
use crate::time::{Span, Tick, Time};

/// Numbers that were found to make sense, for one of the algorithms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Limit {
    /// At most so much per aligned window.
    FixedWindow(FixedWindow),
    /// At most so much over the last window, counted in buckets.
    SlidingWindow(SlidingWindow),
    /// At most so much in any window, exactly.
    SlidingLog(SlidingLog),
    /// Token bucket, leaky bucket as a meter, leaky bucket as a shaper.
    Bucket(Bucket),
    /// At most so much at once.
    Concurrency(Concurrency),
    /// So much per calendar period.
    Quota(Quota),
    /// A plain counter.
    Meter(Meter),
    /// Waits that grow with failures.
    Penalty(Penalty),
}

/// The algorithms by the names people use for them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Algorithm {
    /// `fixed-window`
    FixedWindow,
    /// `sliding-window`, strict or interpolated
    SlidingWindow,
    /// `sliding-log`
    SlidingLog,
    /// `token-bucket`
    TokenBucket,
    /// `leaky-bucket` with a capacity
    LeakyMeter,
    /// `leaky-bucket` with a queue
    LeakyShaper,
    /// `concurrency`
    Concurrency,
    /// `quota`
    Quota,
    /// `meter`
    Meter,
    /// `penalty`
    Penalty,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 10] = [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
        Algorithm::TokenBucket,
        Algorithm::LeakyMeter,
        Algorithm::LeakyShaper,
        Algorithm::Concurrency,
        Algorithm::Quota,
        Algorithm::Meter,
        Algorithm::Penalty,
    ];

    /// The name in rules, decisions and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::FixedWindow => "fixed-window",
            Algorithm::SlidingWindow => "sliding-window",
            Algorithm::SlidingLog => "sliding-log",
            Algorithm::TokenBucket => "token-bucket",
            Algorithm::LeakyMeter => "leaky-meter",
            Algorithm::LeakyShaper => "leaky-shaper",
            Algorithm::Concurrency => "concurrency",
            Algorithm::Quota => "quota",
            Algorithm::Meter => "meter",
            Algorithm::Penalty => "penalty",
        }
    }
}

impl Limit {
    /// Which algorithm it is.
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Limit::FixedWindow(_) => Algorithm::FixedWindow,
            Limit::SlidingWindow(_) => Algorithm::SlidingWindow,
            Limit::SlidingLog(_) => Algorithm::SlidingLog,
            Limit::Bucket(bucket) => match bucket.kind() {
                BucketKind::Tokens => Algorithm::TokenBucket,
                BucketKind::Meter => Algorithm::LeakyMeter,
                BucketKind::Queue => Algorithm::LeakyShaper,
            },
            Limit::Concurrency(_) => Algorithm::Concurrency,
            Limit::Quota(_) => Algorithm::Quota,
            Limit::Meter(_) => Algorithm::Meter,
            Limit::Penalty(_) => Algorithm::Penalty,
        }
    }

    /// The largest cost that could ever be admitted.
    pub fn capacity(&self) -> u64 {
        match self {
            Limit::FixedWindow(limit) => Machine::capacity(limit),
            Limit::SlidingWindow(limit) => Machine::capacity(limit),
            Limit::SlidingLog(limit) => Machine::capacity(limit),
            Limit::Bucket(limit) => Machine::capacity(limit),
            Limit::Concurrency(limit) => Machine::capacity(limit),
            Limit::Quota(limit) => Machine::capacity(limit),
            Limit::Meter(limit) => Machine::capacity(limit),
            Limit::Penalty(limit) => Machine::capacity(limit),
        }
    }

    /// The number that every answer tells as the limit in force.
    pub const fn reported_limit(&self) -> u64 {
        match self {
            Limit::FixedWindow(limit) => limit.limit(),
            Limit::SlidingWindow(limit) => limit.limit(),
            Limit::SlidingLog(limit) => limit.limit(),
            Limit::Bucket(limit) => limit.capacity(),
            Limit::Concurrency(limit) => limit.limit(),
            Limit::Quota(limit) => limit.allowance(),
            Limit::Meter(limit) => limit.limit(),
            Limit::Penalty(limit) => limit.numbers().free + 1,
        }
    }

    /// The time its number stands for: the window, the period that holds `at`, or the time a bucket takes to fill.
    /// None where no length of time brings units back.
    pub fn window(&self, at: Time) -> Option<Span> {
        match self {
            Limit::FixedWindow(limit) => Some(limit.window()),
            Limit::SlidingWindow(limit) => Some(limit.window()),
            Limit::SlidingLog(limit) => Some(limit.window()),
            Limit::Bucket(limit) => Some(limit.fill_time()),
            Limit::Quota(limit) => match limit.period() {
                QuotaPeriod::Calendar(periods) => periods.containing(at).map(|(start, end)| end - start),
                QuotaPeriod::Rolling(length) => Some(length),
            },
            Limit::Concurrency(_) | Limit::Meter(_) | Limit::Penalty(_) => None,
        }
    }

    /// The resolution in which it counts time.
    pub const fn tick(&self) -> Tick {
        match self {
            Limit::SlidingWindow(limit) => limit.tick(),
            Limit::Bucket(limit) => limit.tick(),
            _ => Tick::Micro,
        }
    }

    /// What its numbers are worth when one store decides alone.
    pub const fn exactness(&self) -> Exactness {
        match self {
            Limit::SlidingWindow(limit) => match limit.counting() {
                Counting::Strict => Exactness::Conservative,
                Counting::Interpolated => Exactness::Bounded,
            },
            _ => Exactness::Exact,
        }
    }

    /// The answer to `operation` at `now`, and the change that makes it so.
    ///
    /// State of another algorithm counts as none: a rule that changes its algorithm starts afresh.
    pub fn decide(&self, state: Option<&State>, now: Time, operation: &Operation) -> Step<Change> {
        if operation.cost().is_some_and(|cost| cost > self.capacity()) {
            return self.status(state, now).unchanged(Verdict::Refused(Retry::Never));
        }
        if *operation == Operation::Reset {
            let done = Verdict::Done { amount: 0 };
            return self.status(None, now).write(done, Mark::None, Change::Reset, now);
        }
        macro_rules! step {
            ($limit:ident, $kind:ident) => {{
                let state = match state {
                    Some(State::$kind(state)) => Some(state),
                    _ => None,
                };
                let Step { answer, write } = $limit.decide(state, now, operation);
                let write =
                    write.map(|Write { change, dies_at }| Write { change: Change::$kind(change), dies_at });
                Step { answer, write }
            }};
        }
        match self {
            Limit::FixedWindow(limit) => step!(limit, FixedWindow),
            Limit::SlidingWindow(limit) => step!(limit, SlidingWindow),
            Limit::SlidingLog(limit) => step!(limit, SlidingLog),
            Limit::Bucket(limit) => step!(limit, Bucket),
            Limit::Concurrency(limit) => step!(limit, Concurrency),
            Limit::Quota(limit) => step!(limit, Quota),
            Limit::Meter(limit) => step!(limit, Meter),
            Limit::Penalty(limit) => step!(limit, Penalty),
        }
    }

    /// How it stands at `now`, nothing asked.
    fn status(&self, state: Option<&State>, now: Time) -> LimitStatus {
        let answer = self.decide(state, now, &Operation::Peek { cost: 0 }).answer;
        LimitStatus { limit: answer.limit, remaining: answer.remaining, reset_at: answer.reset_at }
    }
}
