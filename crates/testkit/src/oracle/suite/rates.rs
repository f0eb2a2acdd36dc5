//! Suites of the algorithms without windows and holds: buckets, meters and penalties.

use proptest::prelude::*;
use tollgate_core::algorithm::bucket::BucketKind;
use tollgate_core::algorithm::penalty::PenaltyNumbers;
use tollgate_core::{Span, Time};

use super::Ask::{Charge, Credit, Failure, Peek, Record, Refund, Success};
use super::{Ask, EXACT_MAX, REFUNDABLE, Suite, amounts, spans};
use crate::oracle;

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
        &[Charge, Charge, Charge, Peek, Failure, Failure, Failure, Failure, Success, Refund, Record, Credit];

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
