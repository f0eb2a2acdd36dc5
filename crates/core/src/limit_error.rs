//! Why numbers do not make a limit, in words that say which numbers would.

use crate::time::{EXACT_MAX, Span};

/// Numbers that no limit can be made of.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LimitError {
    /// Zero where only a positive number means something.
    #[error("{what} is zero; it must be at least 1 (to refuse everything, write `limit: deny`)")]
    Zero {
        /// Which number.
        what: &'static str,
    },
    /// Above the largest number allowed.
    #[error("{what} is {found}; it can be at most {max}")]
    TooLarge {
        /// Which number.
        what: &'static str,
        /// What was given.
        found: u64,
        /// What would fit.
        max: u64,
    },
    /// A window that cannot be cut into so many equal buckets.
    #[error(
        "a window of {window} cannot be cut into {buckets} equal buckets of whole {tick}s; {} would do",
        either(*.below, *.above)
    )]
    UnevenBuckets {
        /// The window.
        window: Span,
        /// The buckets asked for.
        buckets: u64,
        /// The tick in which it must divide.
        tick: &'static str,
        /// The next smaller number of buckets that divides, if any.
        below: Option<u64>,
        /// The next larger one, if any.
        above: Option<u64>,
    },
    /// Exact arithmetic would pass 2^53.
    #[error(
        "{rate} per {period} with a capacity of {capacity} cannot be counted exactly; {}",
        what_fits(*.period, *.capacity_max, *.amount_that_fits)
    )]
    Inexact {
        /// Units per period.
        rate: u64,
        /// The period.
        period: Span,
        /// The capacity.
        capacity: u64,
        /// The largest capacity that fits at this rate, if any does.
        capacity_max: Option<u64>,
        /// A near amount per period that fits with this capacity, if any does.
        amount_that_fits: Option<u64>,
    },
    /// A window's weighted sum would pass 2^53.
    #[error(
        "interpolating {limit} units over buckets of {bucket} cannot be done exactly: \
         the limit can be at most {limit_max}, or choose more buckets, or `counting: strict`"
    )]
    InexactWindow {
        /// The limit.
        limit: u64,
        /// The bucket length.
        bucket: Span,
        /// The largest limit that fits.
        limit_max: u64,
    },
}

/// `found`, if it is a positive exact integer.
pub fn amount(what: &'static str, found: u64) -> Result<u64, LimitError> {
    at_most(what, found, EXACT_MAX)
}

/// `found`, if it is positive and at most `max`.
pub fn at_most(what: &'static str, found: u64, max: u64) -> Result<u64, LimitError> {
    match found {
        0 => Err(LimitError::Zero { what }),
        found if found > max => Err(LimitError::TooLarge { what, found, max }),
        found => Ok(found),
    }
}

/// `found`, if it is not empty.
pub fn span(what: &'static str, found: Span) -> Result<Span, LimitError> {
    if found.is_zero() { Err(LimitError::Zero { what }) } else { Ok(found) }
}

fn what_fits(period: Span, capacity_max: Option<u64>, amount: Option<u64>) -> String {
    let capacity = capacity_max.map(|max| format!("at this rate a capacity of at most {max} fits"));
    let amount = amount.map(|amount| format!("with this capacity {amount} per {period} fits"));
    match (capacity, amount) {
        (Some(capacity), Some(amount)) => format!("{capacity}; {amount}"),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => "choose a smaller capacity and a period of whole milliseconds".to_owned(),
    }
}

fn either(below: Option<u64>, above: Option<u64>) -> String {
    match (below, above) {
        (Some(below), Some(above)) => format!("{below} or {above} buckets"),
        (Some(only), None) | (None, Some(only)) => format!("{only} buckets"),
        (None, None) => "a window of whole milliseconds".to_owned(),
    }
}
