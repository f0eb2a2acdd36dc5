//! Suites of the algorithms with holds: concurrency and quota.

use proptest::prelude::*;
use tollgate_core::algorithm::quota::QuotaPeriod;
use tollgate_core::time::calendar::Periods;
use tollgate_core::{Span, Time};

use super::Ask::{
    Cancel, Charge, ChargeKnown, Credit, Extend, Lose, Peek, Record, RecordIn, Refund, RefundOther, Release,
    Renew, Reserve, Settle, Usage,
};
use super::{Ask, EXACT_MAX, Suite, amounts, spans};
use crate::oracle;

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
        Usage,
        Renew,
        Renew,
        Release,
        Release,
        Settle,
        Record,
        Credit,
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

impl QuotaRule {
    fn new((allowance, grace, length_us, rolling): (u64, u64, u64, bool)) -> QuotaRule {
        QuotaRule { allowance, grace, length_us, rolling }
    }
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
        Usage,
        Refund,
        RefundOther,
        Reserve,
        Reserve,
        Reserve,
        Extend,
        Extend,
        Record,
        Record,
        RecordIn,
        RecordIn,
        Credit,
        Settle,
        Settle,
        Cancel,
        Cancel,
        Renew,
        Lose,
    ];

    fn rules() -> BoxedStrategy<QuotaRule> {
        let grace = prop_oneof![Just(0_u64), 1..=5_u64];
        (amounts(EXACT_MAX - 5), grace, spans(), any::<bool>()).prop_map(QuotaRule::new).boxed()
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
    const STEPS_MAX: usize = 192;
    const SMALL_COSTS: bool = true;
    /// More than the 64 ends of a full state.
    const FILL: u32 = 72;
    const STEADY: bool = true;
    const ASKS: &'static [Ask] =
        &[Reserve, Reserve, Reserve, Reserve, Reserve, Reserve, Extend, Extend, Settle, Cancel, Cancel, Peek];

    fn rules() -> BoxedStrategy<QuotaRule> {
        (300..10_000_u64, 0..5_u64, 200_000_000..10_000_000_000_u64, any::<bool>())
            .prop_map(QuotaRule::new)
            .boxed()
    }

    fn numbers(rule: &QuotaRule, now: Time) -> oracle::quota::Numbers {
        Quota::numbers(rule, now)
    }

    /// Shorter than most reservations, which last up to 100 s.
    fn span_us(_: &QuotaRule) -> u64 {
        8_000_000
    }
}
