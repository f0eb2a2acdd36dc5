//! Errors for invalid limits. Each message says which numbers would be valid.

use crate::time::{EXACT_MAX, Span};

/// Why numbers do not make a valid limit.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LimitError {
    /// The number must be positive.
    #[error("{what} is zero; it must be at least 1 (to refuse everything, write `limit: deny`)")]
    Zero {
        /// Which number.
        what: &'static str,
    },
    /// The number exceeds its maximum.
    #[error("{what} is {found}; it can be at most {max}")]
    TooLarge {
        /// Which number.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The largest valid value.
        max: u64,
    },
    /// The window does not divide evenly into the buckets.
    #[error(
        "window {window} does not divide into {buckets} equal buckets of whole {tick}s; use {}",
        either(*.below, *.above)
    )]
    UnevenBuckets {
        /// The window.
        window: Span,
        /// The requested number of buckets.
        buckets: u64,
        /// The tick of which a bucket must be a multiple.
        tick: &'static str,
        /// The next smaller number of buckets that is valid, if any.
        below: Option<u64>,
        /// The next larger number of buckets that is valid, if any.
        above: Option<u64>,
    },
    /// Exact arithmetic would exceed 2^53 - 1.
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
    /// The weighted sum of an interpolated window would exceed 2^53 - 1.
    #[error(
        "{limit} units cannot be interpolated exactly over buckets of {bucket}; \
         use a limit of at most {limit_max}, more buckets, or `counting: strict`"
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

/// Returns `found` if it is positive and at most [`EXACT_MAX`].
pub fn positive(what: &'static str, found: u64) -> Result<u64, LimitError> {
    positive_at_most(what, found, EXACT_MAX)
}

/// Returns `found` if it is positive and at most `max`.
pub fn positive_at_most(what: &'static str, found: u64, max: u64) -> Result<u64, LimitError> {
    match found {
        0 => Err(LimitError::Zero { what }),
        found if found > max => Err(LimitError::TooLarge { what, found, max }),
        found => Ok(found),
    }
}

/// Returns `found` if it is not zero.
pub fn positive_span(what: &'static str, found: Span) -> Result<Span, LimitError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::bucket::Bucket;
    use crate::algorithm::concurrency::Concurrency;
    use crate::algorithm::fixed_window::FixedWindow;
    use crate::algorithm::sliding_log::SlidingLog;
    use crate::algorithm::sliding_window::{Counting, SlidingWindow};

    const MONTH: Span = Span::from_secs(31 * 86_400);

    #[test]
    fn zero_is_rejected_everywhere() {
        let second = Span::from_secs(1);
        let errors = [
            FixedWindow::new(0, second).unwrap_err(),
            FixedWindow::new(1, Span::ZERO).unwrap_err(),
            Bucket::tokens(0, second, 1).unwrap_err(),
            Bucket::tokens(1, Span::ZERO, 1).unwrap_err(),
            Bucket::tokens(1, second, 0).unwrap_err(),
            Bucket::queue(1, second, 0).unwrap_err(),
            SlidingLog::new(0, second).unwrap_err(),
            SlidingWindow::new(1, second, 0, Counting::Strict).unwrap_err(),
            Concurrency::new(0, second).unwrap_err(),
        ];
        assert!(errors.iter().all(|error| matches!(error, LimitError::Zero { .. })), "{errors:?}");
    }

    #[test]
    fn the_largest_exact_numbers_are_valid_and_one_more_is_not() {
        assert!(FixedWindow::new(EXACT_MAX, Span::MAX).is_ok());
        assert_eq!(
            FixedWindow::new(EXACT_MAX + 1, MONTH),
            Err(LimitError::TooLarge { what: "limit", found: EXACT_MAX + 1, max: EXACT_MAX })
        );
        assert!(Bucket::tokens(EXACT_MAX, Span::from_us(1), EXACT_MAX / 2).is_ok());
        assert!(Bucket::tokens(u64::MAX, MONTH, u64::MAX).is_err());
    }

    #[test]
    fn a_rate_that_does_not_fit_in_microseconds_counts_in_milliseconds() {
        let bucket = Bucket::tokens(999_983, MONTH, 999_983).unwrap();
        assert_eq!(bucket.tick(), crate::Tick::Milli);
        assert_eq!(Bucket::tokens(1_000_000, MONTH, 1_000_000).unwrap().tick(), crate::Tick::Micro);
    }

    #[test]
    fn an_inexact_rate_is_rejected_with_numbers_that_fit() {
        let (rate, capacity) = (999_999_937, 999_999_937);
        let error = Bucket::tokens(rate, MONTH, capacity).unwrap_err();
        let LimitError::Inexact { capacity_max: Some(capacity_max), amount_that_fits: Some(amount), .. } =
            error
        else {
            panic!("{error}");
        };
        assert!(Bucket::tokens(rate, MONTH, capacity_max).is_ok());
        assert!(Bucket::tokens(rate, MONTH, capacity_max + 1).is_err());
        assert!(Bucket::tokens(amount, MONTH, capacity).is_ok());
        assert!(amount.abs_diff(rate) < rate / 100, "{amount} is within 1 % of {rate}");
        let message = error.to_string();
        assert!(
            message.contains(&capacity_max.to_string()) && message.contains(&amount.to_string()),
            "{message}"
        );
    }

    #[test]
    fn uneven_buckets_are_rejected_with_the_nearest_valid_numbers() {
        let error = SlidingWindow::new(5, Span::from_secs(60), 7, Counting::Strict).unwrap_err();
        assert!(error.to_string().contains("use 6 or 8 buckets"), "{error}");
        let error = SlidingWindow::new(EXACT_MAX, MONTH, 1, Counting::Interpolated).unwrap_err();
        let LimitError::InexactWindow { limit_max, .. } = error else { panic!("{error}") };
        assert!(SlidingWindow::new(limit_max, MONTH, 1, Counting::Interpolated).is_ok());
    }
}
