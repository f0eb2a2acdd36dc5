//! A limit of any algorithm. Only this module dispatches on the algorithm.

pub mod error;
mod numbers;
pub mod part;
pub mod room;
pub mod scale;
pub mod share;

use crate::algorithm::bucket::{Bucket, BucketKind};
use crate::algorithm::bucket_ring::{BucketRing, BucketRingState, COUNTS_MAX, RingChange};
use crate::algorithm::concurrency::Concurrency;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::machine::{LimitStatus, Machine, Step};
use crate::algorithm::meter::Meter;
use crate::algorithm::penalty::Penalty;
use crate::algorithm::quota::{Quota, QuotaPeriod};
use crate::algorithm::sliding_log::SlidingLog;
use crate::algorithm::sliding_window::{Counting, SlidingWindow};
use crate::decision::exactness::Exactness;
use crate::plan::answer::{Answer, Decline, Retry, Verdict};
use crate::plan::hold::HoldLookup;
use crate::plan::operation::{Mark, Operation, Token};
use crate::state::{Change, State};
use crate::time::{Span, Tick, Time};

/// An algorithm and its numbers, valid by construction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Limit {
    /// At most N units per aligned window.
    FixedWindow(FixedWindow),
    /// At most N units over the last window, counted in buckets.
    SlidingWindow(SlidingWindow),
    /// At most N units in any window, exactly.
    SlidingLog(SlidingLog),
    /// Token bucket, leaky bucket as a meter, leaky bucket as a shaper.
    Bucket(Bucket),
    /// At most N units held at once.
    Concurrency(Concurrency),
    /// N units per calendar or rolling period.
    Quota(Quota),
    /// A plain counter.
    Meter(Meter),
    /// Waits that grow with failures.
    Penalty(Penalty),
}

/// The algorithms, by the names that rules and metrics use.
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
    /// All algorithms.
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

    /// Returns its name in rules, decisions and metrics.
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
    /// Returns its algorithm.
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

    /// Returns the largest cost that it could ever admit.
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

    /// Returns the number that every answer carries as `limit`.
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

    /// Returns a quota or meter with corrections and grants of the ledger. The limit may then be 0. Others are unchanged.
    pub fn with_extra(&self, extra: i64) -> Limit {
        match self {
            Limit::Quota(quota) => Limit::Quota(quota.with_extra(extra)),
            Limit::Meter(meter) => Limit::Meter(meter.with_extra(extra)),
            limit => *limit,
        }
    }

    /// Returns the time to which its number refers: the window, the period that contains `at`, or the time that a full
    /// bucket takes to drain. `None` if no length of time brings units back.
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

    /// Returns the tick in which it counts time.
    pub const fn tick(&self) -> Tick {
        match self {
            Limit::SlidingWindow(limit) => limit.tick(),
            Limit::Bucket(limit) => limit.tick(),
            _ => Tick::Micro,
        }
    }

    /// Returns its exactness class when one store decides alone.
    #[inline]
    pub const fn exactness(&self) -> Exactness {
        match self {
            Limit::SlidingWindow(limit) => match limit.counting() {
                Counting::Strict => Exactness::Conservative,
                Counting::Interpolated => Exactness::Bounded,
            },
            _ => Exactness::Exact,
        }
    }

    /// Returns the answer to `operation` at `now`, and the change to write.
    ///
    /// State of another algorithm is ignored: a rule that changes its algorithm starts with nothing consumed.
    ///
    /// Operations on leases and reservations need [`decide_hold`](Limit::decide_hold).
    pub fn decide(&self, state: Option<&State>, now: Time, operation: &Operation) -> Step<Change> {
        self.decide_hold(state, HoldLookup::None, now, operation)
    }

    /// Returns the token under which a store keeps a record for this operation, if it has one.
    #[inline]
    pub fn hold_token(&self, operation: &Operation) -> Option<Token> {
        let token = match (self, *operation) {
            (
                Limit::Concurrency(_),
                Operation::Charge { token, .. } | Operation::Renew { token } | Operation::Release { token },
            )
            | (
                Limit::Quota(_),
                Operation::Reserve { token, .. }
                | Operation::Extend { token, .. }
                | Operation::Settle { token, .. }
                | Operation::Cancel { token }
                | Operation::Refund { mark: Mark::Held { token, .. }, .. },
            ) => token,
            _ => return None,
        };
        (token != Token::NONE).then_some(token)
    }

    /// Like [`decide`](Limit::decide), with the record that the store has under [`hold_token`](Limit::hold_token).
    pub fn decide_hold(
        &self,
        state: Option<&State>,
        hold: HoldLookup<'_>,
        now: Time,
        operation: &Operation,
    ) -> Step<Change> {
        if operation.cost().is_some_and(|cost| cost > self.capacity()) {
            return self.status(state, now).unchanged(Verdict::Refused(Retry::Never));
        }
        if let Operation::Reset { .. } = operation {
            let done = Verdict::Done { amount: 0 };
            return self.status(None, now).write(done, Mark::None, Change::Reset, now);
        }
        if let Operation::LeaveAtMost { remaining } = *operation {
            let status = self.status(state, now);
            return match status.remaining.saturating_sub(remaining) {
                0 => status.unchanged(Verdict::Done { amount: 0 }),
                excess => self.decide_hold(state, hold, now, &Operation::Record { cost: excess }),
            };
        }
        if let (Operation::RecordIn { cost, .. }, false) = (*operation, matches!(self, Limit::Quota(_))) {
            return self.decide_hold(state, hold, now, &Operation::Record { cost });
        }
        // Without leases and reservations, a record of no units says all.
        let has_holds = matches!(self, Limit::Concurrency(_) | Limit::Quota(_));
        if *operation == Operation::Usage && !has_holds {
            let mut step = self.decide_hold(state, hold, now, &Operation::Record { cost: 0 });
            if let Verdict::Recorded { overdraft, .. } = step.answer.verdict {
                let used = step.answer.limit.saturating_sub(step.answer.remaining).saturating_add(overdraft);
                step.answer.verdict = Verdict::Usage { used, held: 0 };
            }
            return step;
        }
        macro_rules! step {
            ($limit:ident, $kind:ident) => {{
                let state = match state {
                    Some(State::$kind(state)) => Some(state),
                    _ => None,
                };
                $limit.decide_hold(state, hold, now, operation).map(Change::$kind)
            }};
        }
        match self {
            Limit::FixedWindow(limit) => step!(limit, FixedWindow),
            Limit::SlidingWindow(limit) => decide_window(limit, state, now, operation),
            Limit::SlidingLog(limit) => step!(limit, SlidingLog),
            Limit::Bucket(limit) => step!(limit, Bucket),
            Limit::Concurrency(limit) => step!(limit, Concurrency),
            Limit::Quota(limit) => step!(limit, Quota),
            Limit::Meter(limit) => step!(limit, Meter),
            Limit::Penalty(limit) => step!(limit, Penalty),
        }
    }

    /// Returns the answer to an operation that a store declines before it asks the algorithm.
    pub fn decline(&self, state: Option<&State>, now: Time, why: Decline) -> Answer {
        self.status(state, now).answer(Verdict::Declined(why))
    }

    /// Returns its numbers at `now`.
    fn status(&self, state: Option<&State>, now: Time) -> LimitStatus {
        let answer = self.decide(state, now, &Operation::Peek { cost: 0 }).answer;
        LimitStatus { limit: answer.limit, remaining: answer.remaining, reset_at: answer.reset_at }
    }
}

/// Decides on the counts of a window with few buckets, or on the ring of one with many. State of the other form is
/// converted, so that a rule can change its number of buckets.
fn decide_window(
    limit: &SlidingWindow,
    state: Option<&State>,
    now: Time,
    operation: &Operation,
) -> Step<Change> {
    let is_counts = limit.buckets() <= COUNTS_MAX;
    let is_other_form = match state {
        Some(State::SlidingWindow(_)) => !is_counts,
        Some(State::BucketRing(_)) => is_counts,
        _ => false,
    };
    if let (true, Operation::Refund { .. }) = (is_other_form, operation) {
        // A refund converts nothing.
        let limit = Limit::SlidingWindow(*limit);
        return limit.status(state, now).decline(Decline::WindowChanged);
    }
    if is_counts {
        let converted = match state {
            Some(State::BucketRing(ring)) => ring.to_counts(),
            _ => None,
        };
        let state = match state {
            Some(State::SlidingWindow(counts)) => Some(counts),
            _ => converted.as_ref(),
        };
        return limit.decide(state, now, operation).map(Change::SlidingWindow);
    }
    let ring = BucketRing::new(*limit);
    match state {
        Some(State::SlidingWindow(counts)) => {
            let converted = BucketRingState::from_counts(counts);
            ring.decide(Some(&converted), now, operation).map(|change| {
                let mut state = Some(converted);
                BucketRing::commit(&mut state, change);
                Change::BucketRing(RingChange::Replace(state.unwrap_or_default()))
            })
        }
        Some(State::BucketRing(state)) => ring.decide(Some(state), now, operation).map(Change::BucketRing),
        _ => ring.decide(None, now, operation).map(Change::BucketRing),
    }
}
