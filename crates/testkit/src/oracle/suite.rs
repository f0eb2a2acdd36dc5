//! One suite per algorithm: which numbers to try, how to make a machine from them, and which oracle to compare with.
//!
//! The machine is a parameter, so that the same suite runs on core, on the Lua twins and on every planted mutant.

mod holds;
mod rates;
mod windows;

use std::fmt::Debug;

use proptest::prelude::*;
use tollgate_core::{Change, Limit, LimitError, Machine, Operation, State, Step, Time};

pub use self::holds::{Concurrency, Quota, QuotaRule, Reservations};
pub use self::rates::{Bucket, Meter, Penalty};
pub use self::windows::{AnyBuckets, BucketRing, FixedWindow, SlidingLog, SlidingWindow};
use crate::oracle::Oracle;

/// What to try for one algorithm.
pub trait Suite {
    /// The numbers of a rule.
    type Rule: Copy + Debug;
    /// The oracle.
    type Oracle: Oracle + Clone;

    /// The algorithm's name.
    const NAME: &'static str;

    /// Operations to generate, weighted by how often they are listed: all that the algorithm supports, and one that it
    /// does not.
    const ASKS: &'static [Ask];

    /// Largest cost of a record.
    const RECORD_MAX: u64 = EXACT_MAX;

    /// Largest number of steps in a history.
    const STEPS_MAX: usize = 96;

    /// Whether every cost is from 1 to 3, so that many charges fit under a limit.
    const SMALL_COSTS: bool = false;

    /// Number of steps with the first of `ASKS` before the generated ones, all at one instant. They fill a state that
    /// generated steps would fill too seldom.
    const FILL: u32 = 0;

    /// Whether time mostly moves by small parts of the span, so that a filled state stays filled.
    const STEADY: bool = false;

    /// Generates numbers, including extremes.
    fn rules() -> BoxedStrategy<Self::Rule>;

    /// Returns the numbers in a Plan of a caller whose clock is at `now`.
    fn numbers(rule: &Self::Rule, now: Time) -> <Self::Oracle as Oracle>::Numbers;

    /// Returns a typical span of this rule, by which generated time moves.
    fn span_us(rule: &Self::Rule) -> u64;
}

/// An operation to generate.
#[derive(Clone, Copy, Debug)]
pub enum Ask {
    /// A charge, mostly under a new token.
    Charge,
    /// A charge under a token that was used before.
    ChargeKnown,
    /// A peek.
    Peek,
    /// What is used and held.
    Usage,
    /// A record, mostly small, sometimes far above the capacity.
    Record,
    /// A record in the period of an earlier charge, or in one that began a while ago.
    RecordIn,
    /// A credit, mostly small, sometimes of everything.
    Credit,
    /// The refund of an earlier charge.
    Refund,
    /// A refund of another amount than was charged.
    RefundOther,
    /// Renewal of a lease.
    Renew,
    /// Release of a lease.
    Release,
    /// A reservation.
    Reserve,
    /// Extension of a reservation.
    Extend,
    /// Settlement of a reservation.
    Settle,
    /// Cancellation of a reservation.
    Cancel,
    /// Loss of the account's state by a reset or an eviction.
    Lose,
    /// Report of a failure.
    Failure,
    /// Report of a success.
    Success,
}

use Ask::{Charge, Credit, Peek, Record, Refund, RefundOther, Release};

const REFUNDABLE: &[Ask] = &[
    Charge,
    Charge,
    Charge,
    Charge,
    Charge,
    Charge,
    Charge,
    Charge,
    Charge,
    Peek,
    Refund,
    Refund,
    RefundOther,
    Record,
    Record,
    Credit,
    Release,
];

/// Creates a machine from a suite's numbers.
pub type Make<S, M> = fn(&<<S as Suite>::Oracle as Oracle>::Numbers) -> Result<M, LimitError>;

/// A machine whose state can be cloned and printed.
pub trait TestMachine: Machine<State: Clone + Debug> {}
impl<M: Machine<State: Clone + Debug>> TestMachine for M {}

/// A limit as the machine that stores use: it finds state of any algorithm and form.
#[derive(Clone, Copy, Debug)]
pub struct LimitMachine(pub Limit);

impl Machine for LimitMachine {
    type State = State;
    type Change = Change;

    fn capacity(&self) -> u64 {
        self.0.capacity()
    }

    fn decide(&self, state: Option<&State>, now: Time, operation: &Operation) -> Step<Change> {
        self.0.decide(state, now, operation)
    }

    fn commit(slot: &mut Option<State>, change: Change) {
        State::commit(slot, change);
    }
}

/// Returns the constructor of an algorithm's machine in a module, from the suite's numbers.
#[macro_export]
macro_rules! make {
    (fixed_window, $($at:ident)::+) => {
        |n: &$crate::oracle::fixed_window::Numbers| {
            $($at)::+::FixedWindow::new(n.limit, tollgate_core::Span::from_us(n.window_us))
        }
    };
    (sliding_window, $($at:ident)::+) => {
        |n: &$crate::oracle::sliding_window::Numbers| {
            use tollgate_core::algorithm::sliding_window::Counting;
            let counting = match n.counting {
                Counting::Strict => $($at)::+::Counting::Strict,
                Counting::Interpolated => $($at)::+::Counting::Interpolated,
            };
            $($at)::+::SlidingWindow::new(n.limit, tollgate_core::Span::from_us(n.window_us), n.buckets, counting)
        }
    };
    (bucket_ring, $($at:ident)::+) => {
        |n: &$crate::oracle::sliding_window::Numbers| {
            let window = tollgate_core::Span::from_us(n.window_us);
            let window = tollgate_core::algorithm::sliding_window::SlidingWindow::new(n.limit, window, n.buckets, n.counting)?;
            Ok($($at)::+::BucketRing::new(window))
        }
    };
    (sliding_log, $($at:ident)::+) => {
        |n: &$crate::oracle::sliding_log::Numbers| {
            $($at)::+::SlidingLog::with_entries(n.limit, tollgate_core::Span::from_us(n.window_us), n.entries)
        }
    };
    (bucket, $($at:ident)::+) => {
        |n: &$crate::oracle::bucket::Numbers| {
            use tollgate_core::algorithm::bucket::BucketKind;
            let period = tollgate_core::Span::from_us(n.period_us);
            match n.kind {
                BucketKind::Tokens => $($at)::+::Bucket::tokens(n.rate, period, n.capacity),
                BucketKind::Meter => $($at)::+::Bucket::meter(n.rate, period, n.capacity),
                BucketKind::Queue => $($at)::+::Bucket::queue(n.rate, period, n.capacity),
            }
        }
    };
    (concurrency, $($at:ident)::+) => {
        |n: &$crate::oracle::concurrency::Numbers| {
            $($at)::+::Concurrency::new(n.limit, tollgate_core::Span::from_us(n.lease_us))
        }
    };
    (quota, $($at:ident)::+) => {
        |n: &$crate::oracle::quota::Numbers| {
            use tollgate_core::algorithm::quota::QuotaPeriod;
            let period = match n.period {
                QuotaPeriod::Calendar(periods) => $($at)::+::QuotaPeriod::Calendar(periods),
                QuotaPeriod::Rolling(length) => $($at)::+::QuotaPeriod::Rolling(length),
            };
            $($at)::+::Quota::new(n.allowance, n.grace, period)
        }
    };
    (meter, $($at:ident)::+) => {
        |n: &$crate::oracle::meter::Numbers| {
            $($at)::+::Meter::new(n.limit, Some(tollgate_core::Span::from_us(n.expiry_us)))
        }
    };
    (penalty, $($at:ident)::+) => {
        |n: &tollgate_core::algorithm::penalty::PenaltyNumbers| {
            $($at)::+::Penalty::new($($at)::+::PenaltyNumbers {
                free: n.free,
                base: n.base,
                factor: n.factor,
                longest: n.longest,
                memory: n.memory,
                count_refused: n.count_refused,
            })
        }
    };
}

/// Common and odd spans, from a microsecond to a month.
const SPANS_US: [u64; 12] = [
    1,
    7,
    1_000,
    9_999,
    1_000_000,
    10_000_000,
    60_000_000,
    3_600_000_000,
    86_400_000_000,
    2_592_000_000_000,
    2_678_400_000_000,
    1_000_003,
];

fn spans() -> impl Strategy<Value = u64> {
    prop_oneof![4 => prop::sample::select(&SPANS_US[..]), 1 => 1..100_u64, 1 => 1..10_000_000_000_u64]
}

/// Generates mostly small limits, and primes and the largest exact integers.
fn amounts(max: u64) -> impl Strategy<Value = u64> {
    let extremes = [1, 2, 3, 999_983, 1 << 31, 1 << 52, (1 << 53) - 2, (1 << 53) - 1];
    prop_oneof![
        8 => 1..=12_u64,
        2 => 1..=1_000_000_u64,
        2 => prop::sample::select(extremes.to_vec()),
        1 => 1..=max,
    ]
    .prop_map(move |amount| amount.min(max))
}

const EXACT_MAX: u64 = (1 << 53) - 1;
