//! Whether one limit admits more or less than another.

use std::cmp::Ordering;

use tollgate_core::Limit;
use tollgate_core::rules::RuleLimit;

/// How a limit compares with the one it replaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::rules) enum Effect {
    /// Neither number is lower.
    RaisesOrKeeps,
    /// At least one number is lower and none is higher.
    Lowers,
    /// One number is lower and another is higher.
    Mixed,
}

/// Compares the limit in force before an override with the limit of the override. Returns `None` if the two cannot be
/// compared.
pub(in crate::rules) fn effect(before: &RuleLimit, after: &RuleLimit) -> Option<Effect> {
    let orders = match (before, after) {
        (RuleLimit::Deny, _) => vec![Ordering::Greater],
        (_, RuleLimit::Deny) => vec![Ordering::Less],
        (
            RuleLimit::Calendar { allowance, grace, calendar },
            RuleLimit::Calendar { allowance: other, grace: other_grace, calendar: other_calendar },
        ) if calendar == other_calendar => vec![(other + other_grace).cmp(&(allowance + grace))],
        (RuleLimit::Fixed(before), RuleLimit::Fixed(after)) => fixed(before, after)?,
        _ => return None,
    };
    let (lower, higher) = (orders.contains(&Ordering::Less), orders.contains(&Ordering::Greater));
    Some(match (lower, higher) {
        (false, _) => Effect::RaisesOrKeeps,
        (true, false) => Effect::Lowers,
        (true, true) => Effect::Mixed,
    })
}

/// The order of each number that admits more if it is higher: `Less` if the second limit has the lower one.
fn fixed(before: &Limit, after: &Limit) -> Option<Vec<Ordering>> {
    let rate = |(amount, period): (u64, u64), (other, other_period): (u64, u64)| {
        (u128::from(other) * u128::from(period)).cmp(&(u128::from(amount) * u128::from(other_period)))
    };
    let windows = |one: (u64, u64), other: (u64, u64)| vec![rate(one, other), other.0.cmp(&one.0)];
    Some(match (before, after) {
        (Limit::FixedWindow(one), Limit::FixedWindow(other)) => {
            windows((one.limit(), one.window().us()), (other.limit(), other.window().us()))
        }
        (Limit::SlidingWindow(one), Limit::SlidingWindow(other)) => {
            windows((one.limit(), one.window().us()), (other.limit(), other.window().us()))
        }
        (Limit::SlidingLog(one), Limit::SlidingLog(other)) => {
            windows((one.limit(), one.window().us()), (other.limit(), other.window().us()))
        }
        (Limit::Bucket(one), Limit::Bucket(other)) => {
            let ticks = |(drain, scale): (u64, u64), tick_us: u64| (drain, scale.saturating_mul(tick_us));
            let order = rate(ticks(one.rate(), one.tick().us()), ticks(other.rate(), other.tick().us()));
            vec![order, other.capacity().cmp(&one.capacity())]
        }
        (Limit::Concurrency(one), Limit::Concurrency(other)) => vec![other.limit().cmp(&one.limit())],
        (Limit::Quota(one), Limit::Quota(other)) if one.period() == other.period() => {
            vec![(other.allowance() + other.grace()).cmp(&(one.allowance() + one.grace()))]
        }
        (Limit::Meter(_), Limit::Meter(_)) => vec![after.capacity().cmp(&before.capacity())],
        _ => return None,
    })
}
