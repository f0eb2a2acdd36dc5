//! One suite per algorithm: which numbers to try, how to make a machine from them, and which oracle to compare with.
//!
//! The machine is a parameter, so that the same suite runs on core, on the Lua twins and on every planted mutant.

use std::fmt::Debug;

use proptest::prelude::*;
use tollgate_core::algorithm::bucket::BucketKind;
use tollgate_core::algorithm::penalty::PenaltyNumbers;
use tollgate_core::algorithm::quota::QuotaPeriod;
use tollgate_core::algorithm::sliding_window::Counting;
use tollgate_core::calendar::Periods;
use tollgate_core::{Change, Limit, LimitError, Machine, Operation, Span, State, Step, Time};

use crate::oracle::{self, Oracle};

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

    /// Whether every cost is from 1 to 3, so that many charges fit under a limit.
    const SMALL_COSTS: bool = false;

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

use Ask::{
    Cancel, Charge, ChargeKnown, Failure, Lose, Peek, Refund, RefundOther, Release, Renew, Reserve, Settle,
    Success,
};

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

/// See [`oracle::fixed_window`].
pub struct FixedWindow;

impl Suite for FixedWindow {
    type Rule = oracle::fixed_window::Numbers;
    type Oracle = oracle::fixed_window::FixedWindowOracle;
    const NAME: &'static str = "fixed-window";
    const ASKS: &'static [Ask] = REFUNDABLE;

    fn rules() -> BoxedStrategy<Self::Rule> {
        (amounts(EXACT_MAX), spans())
            .prop_map(|(limit, window_us)| oracle::fixed_window::Numbers { limit, window_us })
            .boxed()
    }

    fn numbers(rule: &Self::Rule, _: Time) -> Self::Rule {
        *rule
    }

    fn span_us(rule: &Self::Rule) -> u64 {
        rule.window_us
    }
}

/// See [`oracle::sliding_window`].
pub struct SlidingWindow;

impl Suite for SlidingWindow {
    type Rule = oracle::sliding_window::Numbers;
    type Oracle = oracle::sliding_window::SlidingWindowOracle;
    const NAME: &'static str = "sliding-window";
    const ASKS: &'static [Ask] = REFUNDABLE;

    fn rules() -> BoxedStrategy<Self::Rule> {
        let buckets = prop_oneof![4 => 1..=7_u64, 1 => prop::sample::select(vec![12_u64, 60])];
        (amounts(EXACT_MAX), spans(), buckets, any::<bool>())
            .prop_map(|(limit, bucket_us, buckets, strict)| oracle::sliding_window::Numbers {
                limit,
                window_us: bucket_us * buckets,
                buckets,
                counting: if strict { Counting::Strict } else { Counting::Interpolated },
            })
            .boxed()
    }

    fn numbers(rule: &Self::Rule, _: Time) -> Self::Rule {
        *rule
    }

    fn span_us(rule: &Self::Rule) -> u64 {
        rule.window_us / rule.buckets
    }
}

/// See [`oracle::bucket_ring`].
pub struct BucketRing;

impl Suite for BucketRing {
    type Rule = oracle::sliding_window::Numbers;
    type Oracle = oracle::bucket_ring::BucketRingOracle;
    const NAME: &'static str = "bucket-ring";
    const ASKS: &'static [Ask] = REFUNDABLE;

    fn rules() -> BoxedStrategy<Self::Rule> {
        let buckets = prop::sample::select(vec![65_u64, 66, 100, 144, 1_440]);
        (amounts(EXACT_MAX), spans(), buckets, any::<bool>())
            .prop_map(|(limit, bucket_us, buckets, strict)| oracle::sliding_window::Numbers {
                limit,
                window_us: bucket_us * buckets,
                buckets,
                counting: if strict { Counting::Strict } else { Counting::Interpolated },
            })
            .boxed()
    }

    fn numbers(rule: &Self::Rule, _: Time) -> Self::Rule {
        *rule
    }

    /// A few buckets, so that charges spread over many of them.
    fn span_us(rule: &Self::Rule) -> u64 {
        rule.window_us / rule.buckets * 7
    }
}

/// Sliding windows of few and of many buckets that share a key: the form of the state changes.
pub struct AnyBuckets;

impl Suite for AnyBuckets {
    type Rule = oracle::sliding_window::Numbers;
    type Oracle = oracle::sliding_window::SlidingWindowOracle;
    const NAME: &'static str = "any-buckets";
    const ASKS: &'static [Ask] = &[Charge, Charge, Charge, Peek, Release];

    fn rules() -> BoxedStrategy<Self::Rule> {
        let buckets = prop::sample::select(vec![1_u64, 6, 64, 65, 100, 1_440]);
        (1..1_000_u64, 1..10_000_000_u64, buckets, any::<bool>())
            .prop_map(|(limit, bucket_us, buckets, strict)| oracle::sliding_window::Numbers {
                limit,
                window_us: bucket_us * buckets,
                buckets,
                counting: if strict { Counting::Strict } else { Counting::Interpolated },
            })
            .boxed()
    }

    fn numbers(rule: &Self::Rule, _: Time) -> Self::Rule {
        *rule
    }

    fn span_us(rule: &Self::Rule) -> u64 {
        rule.window_us / rule.buckets * 3
    }
}

/// See [`oracle::sliding_log`].
pub struct SlidingLog;

impl Suite for SlidingLog {
    type Rule = oracle::sliding_log::Numbers;
    type Oracle = oracle::sliding_log::SlidingLogOracle;
    const NAME: &'static str = "sliding-log";
    const ASKS: &'static [Ask] = REFUNDABLE;

    fn rules() -> BoxedStrategy<Self::Rule> {
        (amounts(1 << 52), spans(), prop_oneof![2 => Just(1_000_u64), 1 => 1..=8_u64])
            .prop_map(|(limit, window_us, entries)| oracle::sliding_log::Numbers {
                limit,
                window_us,
                entries,
            })
            .boxed()
    }

    fn numbers(rule: &Self::Rule, _: Time) -> Self::Rule {
        *rule
    }

    fn span_us(rule: &Self::Rule) -> u64 {
        rule.window_us
    }
}

/// See [`oracle::bucket`]: token bucket, leaky meter and leaky shaper.
pub struct Bucket;

impl Suite for Bucket {
    type Rule = oracle::bucket::Numbers;
    type Oracle = oracle::bucket::BucketOracle;
    const NAME: &'static str = "bucket";
    const ASKS: &'static [Ask] = REFUNDABLE;

    fn rules() -> BoxedStrategy<Self::Rule> {
        let kinds = prop::sample::select(vec![BucketKind::Tokens, BucketKind::Meter, BucketKind::Queue]);
        (amounts(EXACT_MAX), spans(), amounts(1 << 52), kinds)
            .prop_map(|(rate, period_us, capacity, kind)| oracle::bucket::Numbers {
                rate,
                period_us,
                capacity,
                kind,
            })
            .boxed()
    }

    fn numbers(rule: &Self::Rule, _: Time) -> Self::Rule {
        *rule
    }

    fn span_us(rule: &Self::Rule) -> u64 {
        (rule.period_us / rule.rate.min(rule.period_us)).max(1)
    }
}

/// See [`oracle::concurrency`].
pub struct Concurrency;

impl Suite for Concurrency {
    type Rule = oracle::concurrency::Numbers;
    type Oracle = oracle::concurrency::ConcurrencyOracle;
    const NAME: &'static str = "concurrency";
    const ASKS: &'static [Ask] = &[
        Charge,
        Charge,
        Charge,
        Charge,
        Charge,
        Charge,
        ChargeKnown,
        Peek,
        Renew,
        Renew,
        Release,
        Release,
        Settle,
        Lose,
    ];

    fn rules() -> BoxedStrategy<Self::Rule> {
        (amounts(1 << 16), spans())
            .prop_map(|(limit, lease_us)| oracle::concurrency::Numbers { limit, lease_us })
            .boxed()
    }

    fn numbers(rule: &Self::Rule, _: Time) -> Self::Rule {
        *rule
    }

    fn span_us(rule: &Self::Rule) -> u64 {
        rule.lease_us
    }
}

/// A quota rule with periods of one length: calendar periods of a caller, or rolling.
#[derive(Clone, Copy, Debug)]
pub struct QuotaRule {
    allowance: u64,
    grace: u64,
    length_us: u64,
    rolling: bool,
}

/// See [`oracle::quota`].
pub struct Quota;

impl Suite for Quota {
    type Rule = QuotaRule;
    type Oracle = oracle::quota::QuotaOracle;
    const NAME: &'static str = "quota";
    const ASKS: &'static [Ask] = &[
        Charge,
        Charge,
        Charge,
        Charge,
        Charge,
        Peek,
        Refund,
        RefundOther,
        Reserve,
        Reserve,
        Reserve,
        Settle,
        Settle,
        Cancel,
        Cancel,
        Renew,
        Lose,
    ];

    fn rules() -> BoxedStrategy<QuotaRule> {
        let grace = prop_oneof![Just(0_u64), 1..=5_u64];
        (amounts(EXACT_MAX - 5), grace, spans(), any::<bool>())
            .prop_map(|(allowance, grace, length_us, rolling)| QuotaRule {
                allowance,
                grace,
                length_us,
                rolling,
            })
            .boxed()
    }

    fn numbers(rule: &QuotaRule, now: Time) -> oracle::quota::Numbers {
        let length = Span::from_us(rule.length_us);
        let period = if rule.rolling {
            QuotaPeriod::Rolling(length)
        } else {
            let current = now.floor(length).max(Time::ZERO.plus(length));
            let next = current.plus(length);
            let starts = [current.minus(length), current, next, next.plus(length)];
            QuotaPeriod::Calendar(Periods::new(starts).expect("periods of one length are in order"))
        };
        oracle::quota::Numbers { allowance: rule.allowance, grace: rule.grace, period }
    }

    fn span_us(rule: &QuotaRule) -> u64 {
        rule.length_us
    }
}

/// Quotas with more reservations at once than there are ends.
pub struct Reservations;

impl Suite for Reservations {
    type Rule = QuotaRule;
    type Oracle = oracle::quota::QuotaOracle;
    const NAME: &'static str = "reservations";
    const SMALL_COSTS: bool = true;
    const ASKS: &'static [Ask] = &[
        Reserve, Reserve, Reserve, Reserve, Reserve, Reserve, Reserve, Reserve, Reserve, Reserve, Reserve,
        Reserve, Reserve, Reserve, Reserve, Reserve, Reserve, Reserve, Reserve, Reserve, Reserve, Reserve,
        Reserve, Reserve, Reserve, Reserve, Settle, Cancel, Cancel, Peek,
    ];

    fn rules() -> BoxedStrategy<QuotaRule> {
        (300..10_000_u64, 0..5_u64, 200_000_000..10_000_000_000_u64, any::<bool>())
            .prop_map(|(allowance, grace, length_us, rolling)| QuotaRule {
                allowance,
                grace,
                length_us,
                rolling,
            })
            .boxed()
    }

    fn numbers(rule: &QuotaRule, now: Time) -> oracle::quota::Numbers {
        Quota::numbers(rule, now)
    }

    fn span_us(rule: &QuotaRule) -> u64 {
        rule.length_us
    }
}

/// See [`oracle::meter`].
pub struct Meter;

impl Suite for Meter {
    type Rule = oracle::meter::Numbers;
    type Oracle = oracle::meter::MeterOracle;
    const NAME: &'static str = "meter";
    const ASKS: &'static [Ask] = REFUNDABLE;

    fn rules() -> BoxedStrategy<Self::Rule> {
        (prop::option::of(amounts(EXACT_MAX)), spans())
            .prop_map(|(limit, expiry_us)| oracle::meter::Numbers { limit, expiry_us })
            .boxed()
    }

    fn numbers(rule: &Self::Rule, _: Time) -> Self::Rule {
        *rule
    }

    fn span_us(rule: &Self::Rule) -> u64 {
        rule.expiry_us
    }
}

/// See [`oracle::penalty`].
pub struct Penalty;

impl Suite for Penalty {
    type Rule = PenaltyNumbers;
    type Oracle = oracle::penalty::PenaltyOracle;
    const NAME: &'static str = "penalty";
    const ASKS: &'static [Ask] =
        &[Charge, Charge, Charge, Peek, Failure, Failure, Failure, Failure, Success, Refund];

    fn rules() -> BoxedStrategy<PenaltyNumbers> {
        (0..=4_u64, spans(), 1..=5_u64, spans(), spans(), any::<bool>())
            .prop_map(|(free, base, factor, longest, memory, count_refused)| PenaltyNumbers {
                free,
                base: Span::from_us(base),
                factor,
                longest: Span::from_us(longest.max(base)),
                memory: Span::from_us(memory),
                count_refused,
            })
            .boxed()
    }

    fn numbers(rule: &PenaltyNumbers, _: Time) -> PenaltyNumbers {
        *rule
    }

    fn span_us(rule: &PenaltyNumbers) -> u64 {
        rule.base.us()
    }
}
