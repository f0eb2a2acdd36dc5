//! One rule's numbers in whole seconds, as header fields have them.

use tollgate_core::{Limit, Time};

use crate::limiter::RuleDecision;

/// The numbers of one rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Line<'d> {
    pub(super) id: &'d str,
    pub(super) blocking: bool,
    /// Units per window, or the capacity.
    pub(super) limit: u64,
    pub(super) remaining: u64,
    /// The window, the period or the time to fill, if the limit has one.
    pub(super) window_s: Option<u64>,
    /// The wait until the whole limit is available.
    pub(super) reset_after_s: u64,
    /// The same as seconds since 1970.
    pub(super) reset_at_s: u64,
    /// Whether the units are concurrent requests.
    pub(super) counts_concurrency: bool,
}

impl<'d> Line<'d> {
    /// `None` if the numbers are unknown.
    pub(super) fn of(rule: RuleDecision<'d>) -> Option<Line<'d>> {
        let (numbers, limit) = (rule.outcome().numbers?, rule.limit_in_force()?);
        // A calendar period ends at the reset, so the instant before it belongs to the period.
        let before_reset = Time::from_us(numbers.reset_at_ms.saturating_mul(1_000).saturating_sub(1));
        Some(Line {
            id: rule.id(),
            blocking: rule.blocking(),
            limit: numbers.limit,
            remaining: numbers.remaining,
            window_s: limit.window(before_reset).map(|window| window.secs_ceil()),
            reset_after_s: numbers.reset_after_ms.div_ceil(1_000),
            reset_at_s: numbers.reset_at_ms.div_ceil(1_000),
            counts_concurrency: matches!(limit, Limit::Concurrency(_)),
        })
    }
}
