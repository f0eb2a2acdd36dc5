//! Limits that descriptors carry: fixed windows of the caller, independent of all rules.
//!
//! They are charged one after another before the rules are checked, and refunded if anything else refuses.

use tollgate::core::algorithm::fixed_window::FixedWindow;
use tollgate::core::{Limit, Mark, Operation, Span};

use super::descriptor_request::{DescriptorRequest, MessageError};
use super::proto::{RateLimitOverride, RateLimitUnit};
use crate::serve::edge::auth::Caller;
use crate::serve::gate::{Edge, Gate, Throttled};

/// The longest window in seconds: a leap year, as for other limits that callers send along.
const WINDOW_MAX_S: u64 = 366 * 86_400;

/// The limit of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OwnLimit {
    Some(Limit),
    /// It allows nothing.
    Nothing,
}

/// A descriptor that was charged to its own limit.
pub(super) struct Charged {
    /// Its index among the descriptors.
    pub(super) index: usize,
    pub(super) limit: OwnLimit,
    key: String,
    cost: u64,
    /// The store's result; `None` if the store was not asked or could not decide.
    pub(super) found: Option<Throttled>,
}

impl OwnLimit {
    /// The limit of the descriptor with this index, if it carries one.
    pub(super) fn of(
        index: usize,
        descriptor: &DescriptorRequest<'_>,
    ) -> Result<Option<OwnLimit>, MessageError> {
        let Some(limit) = descriptor.own_limit() else { return Ok(None) };
        let window = window(index, limit)?;
        let window = FixedWindow::new(u64::from(limit.requests_per_unit), window);
        // The only invalid fixed window is one that allows nothing.
        Ok(Some(window.map_or(OwnLimit::Nothing, |window| OwnLimit::Some(Limit::FixedWindow(window)))))
    }
}

/// A month has 30 days and a year 365, as in Envoy's reference service.
fn window(index: usize, limit: &RateLimitOverride) -> Result<Span, MessageError> {
    const DAY_S: u64 = 86_400;
    let unit = match RateLimitUnit::try_from(limit.unit).unwrap_or(RateLimitUnit::Unknown) {
        RateLimitUnit::Unknown => return Err(MessageError::NoUnit(index)),
        RateLimitUnit::Second => 1,
        RateLimitUnit::Minute => 60,
        RateLimitUnit::Hour => 3_600,
        RateLimitUnit::Day => DAY_S,
        RateLimitUnit::Month => 30 * DAY_S,
        RateLimitUnit::Year => 365 * DAY_S,
    };
    match unit * u64::from(limit.unit_multiplier.unwrap_or(1)) {
        seconds @ 1..=WINDOW_MAX_S => Ok(Span::from_secs(seconds)),
        _ => Err(MessageError::UnitMultiplier(index)),
    }
}

impl Charged {
    pub(super) fn is_admitted(&self) -> bool {
        self.found.is_some_and(|found| found.answer.is_admitted())
    }
}

/// Charges one after another. After a refusal, the others are only peeked at.
pub(super) async fn charge(
    limits: impl IntoIterator<Item = (usize, OwnLimit)>,
    descriptors: &[DescriptorRequest<'_>],
    caller: &Caller,
    gate: &Gate,
) -> Vec<Charged> {
    let mut charged: Vec<Charged> = Vec::new();
    for (index, limit) in limits {
        let (key, cost) = (descriptors[index].own_key(), descriptors[index].hits.own_cost());
        let are_admitted = charged.iter().all(Charged::is_admitted);
        let operation = if are_admitted { Operation::charge(cost) } else { Operation::Peek { cost } };
        let found = match limit {
            OwnLimit::Nothing => None,
            // What cannot be decided is refused: no rule says otherwise.
            OwnLimit::Some(limit) => {
                gate.throttle((Edge::Grpc, caller), &key, &limit, operation).finish().await.ok()
            }
        };
        charged.push(Charged { index, limit, key, cost, found });
    }
    charged
}

/// Refunds what was charged.
pub(super) async fn refund(charged: &[Charged], caller: &Caller, gate: &Gate) {
    for Charged { limit, key, cost, found, .. } in charged {
        let (OwnLimit::Some(limit), Some(Throttled { answer, .. })) = (limit, found) else { continue };
        if answer.mark != Mark::None {
            // The gate records a failure. The charge then expires with its window.
            let undo = answer.mark.undo(*cost, limit);
            drop(gate.throttle((Edge::Grpc, caller), key, limit, undo).finish().await);
        }
    }
}
