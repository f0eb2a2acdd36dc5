//! What one limit says to one operation.

use crate::plan::operation::Mark;
use crate::time::{Span, Time};

/// One limit's answer, consistent in itself: never refused with `remaining` at or above the cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Whether it may proceed, or what came of the operation.
    pub verdict: Verdict,
    /// The limit in force: capacity, window limit, quota or lease count.
    pub limit: u64,
    /// What is left after this operation, in whole units, rounded down.
    pub remaining: u64,
    /// When `remaining` is back to `limit` if nobody asks again.
    pub reset_at: Time,
    /// Where an admission was booked.
    pub mark: Mark,
}

/// The verdict. A refusal is a value; an error is something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It may proceed, after `delay` (zero except for shapers).
    Admitted {
        /// How long to wait first.
        delay: Span,
    },
    /// It may not proceed now.
    Refused(Retry),
    /// An operation that asks for no admission took effect on this many units.
    Done {
        /// Units refunded, released, settled, cancelled, or failures on record.
        amount: u64,
    },
    /// The operation could not be carried out; nothing changed.
    Declined(Decline),
}

/// When a refused charge would be admitted if nobody else asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// At this instant, and not one tick earlier.
    At(Time),
    /// Not by waiting: the limit never gives this back by itself.
    Never,
}

/// Why an operation was not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Decline {
    /// The algorithm has no such operation.
    #[error("this algorithm has no such operation")]
    NotSupported,
    /// What the receipt or token names is not held (any more): expired, given back before, or never taken.
    #[error("nothing is held under this receipt or token: it has expired, was given back, or never was")]
    NotHeld,
    /// It is held, but too many younger entries lie above it to find it with bounded work.
    #[error("too many newer requests lie above this one to take it back")]
    TooOld,
    /// The token already names a live lease or reservation.
    #[error("this token already names a live lease or reservation; choose a new one for each")]
    TokenInUse,
    /// The state holds as many reservations as it may.
    #[error("as many reservations are open as one subject may have; settle or cancel some first")]
    TooManyReservations,
    /// The store's clock is outside the periods the Plan carries: compute them again around this instant.
    #[error("the calendar periods of this plan do not cover the store's clock; compute them again")]
    Recompute {
        /// The instant they must cover.
        at: Time,
    },
    /// The sum would pass the largest exact integer.
    #[error("the counter would pass 2^53 - 1")]
    Overflow,
}

impl Answer {
    /// Whether the verdict lets the request proceed.
    pub const fn is_admitted(&self) -> bool {
        matches!(self.verdict, Verdict::Admitted { .. })
    }

    /// Whether the verdict refuses the request.
    pub const fn is_refused(&self) -> bool {
        matches!(self.verdict, Verdict::Refused(_))
    }
}
