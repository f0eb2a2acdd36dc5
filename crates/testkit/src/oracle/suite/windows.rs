//! Suites of the windows: fixed, sliding with few and with many buckets, and the log.

use proptest::prelude::*;
use tollgate_core::Time;
use tollgate_core::algorithm::sliding_window::Counting;

use super::Ask::{Charge, Peek, Record, Release};
use super::{Ask, EXACT_MAX, REFUNDABLE, Suite, amounts, spans};
use crate::oracle;

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

/// Generates sliding windows with this number of buckets, strict and interpolated.
fn window_rules(
    limits: impl Strategy<Value = u64> + 'static,
    buckets_us: impl Strategy<Value = u64> + 'static,
    buckets: impl Strategy<Value = u64> + 'static,
) -> BoxedStrategy<oracle::sliding_window::Numbers> {
    (limits, buckets_us, buckets, any::<bool>())
        .prop_map(|(limit, bucket_us, buckets, strict)| oracle::sliding_window::Numbers {
            limit,
            window_us: bucket_us * buckets,
            buckets,
            counting: if strict { Counting::Strict } else { Counting::Interpolated },
        })
        .boxed()
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
        window_rules(amounts(EXACT_MAX), spans(), buckets)
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
        window_rules(amounts(EXACT_MAX), spans(), buckets)
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
    const ASKS: &'static [Ask] = &[Charge, Charge, Charge, Peek, Record, Release];
    // More would be cut differently by the two forms.
    const RECORD_MAX: u64 = 2_000;

    fn rules() -> BoxedStrategy<Self::Rule> {
        let buckets = prop::sample::select(vec![1_u64, 6, 64, 65, 100, 1_440]);
        window_rules(1..1_000_u64, 1..10_000_000_u64, buckets)
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
