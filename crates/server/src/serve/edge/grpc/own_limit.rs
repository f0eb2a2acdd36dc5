//! Limits that descriptors bring along: fixed windows of the caller's own, beside all rules.
//!
//! They are charged one after another before the rules are asked, and taken back if something else refuses.

use tollgate::core::algorithm::fixed_window::FixedWindow;
use tollgate::core::{Limit, Mark, Operation, Span};

use super::proto::{RateLimitOverride, RateLimitUnit};
use super::question::{BadMessage, Question};
use crate::serve::gate::{Edge, Gate, ThrottleError, Throttled};

/// What a descriptor brings along.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OwnLimit {
    /// So much in a window.
    Some(Limit),
    /// Nothing at all.
    Nothing,
}

/// A descriptor that was charged to a limit of its own.
pub(super) struct Charged {
    /// Its place among the descriptors.
    pub(super) at: usize,
    pub(super) limit: OwnLimit,
    key: String,
    cost: u64,
    /// What the store found; none if there was no need to ask it, or it could not tell.
    pub(super) found: Option<Throttled>,
}

impl OwnLimit {
    /// The limit of the descriptor at this place, if it brings one along.
    pub(super) fn of(at: usize, question: &Question<'_>) -> Result<Option<OwnLimit>, BadMessage> {
        let Some(limit) = question.own_limit() else { return Ok(None) };
        let window = window(limit).ok_or(BadMessage::NoUnit(at))?;
        let window = FixedWindow::new(u64::from(limit.requests_per_unit), window);
        // The one thing that can be wrong with it is that it allows nothing.
        Ok(Some(window.map_or(OwnLimit::Nothing, |window| OwnLimit::Some(Limit::FixedWindow(window)))))
    }
}

/// A month has thirty days and a year 365, as in the service that Envoy's makers wrote.
fn window(limit: &RateLimitOverride) -> Option<Span> {
    const DAY_S: u64 = 86_400;
    let seconds = match RateLimitUnit::try_from(limit.unit).ok()? {
        RateLimitUnit::Unknown => return None,
        RateLimitUnit::Second => 1,
        RateLimitUnit::Minute => 60,
        RateLimitUnit::Hour => 3_600,
        RateLimitUnit::Day => DAY_S,
        RateLimitUnit::Month => 30 * DAY_S,
        RateLimitUnit::Year => 365 * DAY_S,
    };
    Some(Span::from_secs(seconds))
}

impl Charged {
    pub(super) fn is_admitted(&self) -> bool {
        self.found.is_some_and(|found| found.answer.is_admitted())
    }
}

/// Charges one after another; once one is refused, the others are only looked at.
pub(super) async fn charge(
    limits: impl IntoIterator<Item = (usize, OwnLimit)>,
    questions: &[Question<'_>],
    gate: &Gate,
) -> Vec<Charged> {
    let mut charged: Vec<Charged> = Vec::new();
    for (at, limit) in limits {
        let (key, cost) = (questions[at].own_key(), questions[at].cost);
        let goes_on = charged.iter().all(Charged::is_admitted);
        let operation = if goes_on { Operation::charge(cost) } else { Operation::Peek { cost } };
        let found = match limit {
            OwnLimit::Nothing => None,
            OwnLimit::Some(limit) => told(gate.throttle(Edge::Grpc, &key, &limit, operation).await),
        };
        charged.push(Charged { at, limit, key, cost, found });
    }
    charged
}

/// Takes back what was charged.
pub(super) async fn take_back(charged: &[Charged], gate: &Gate) {
    for Charged { limit, key, cost, found, .. } in charged {
        let (OwnLimit::Some(limit), Some(Throttled { answer, .. })) = (limit, found) else { continue };
        if answer.mark != Mark::None {
            told(gate.throttle(Edge::Grpc, key, limit, answer.mark.undo(*cost, limit)).await);
        }
    }
}

/// Whatever cannot be decided is refused: there is no rule that could say otherwise.
fn told(found: Result<Throttled, ThrottleError>) -> Option<Throttled> {
    match found {
        Ok(found) => Some(found),
        // It costs more than there ever is.
        Err(ThrottleError::Plan(_)) => None,
        Err(error @ (ThrottleError::Store(_) | ThrottleError::Unanswered)) => {
            tracing::debug!(event = "own_limit_undecided", "{error}");
            None
        }
    }
}
