//! A multiple of a limit, for overrides that multiply what would otherwise apply.

use std::fmt;
use std::str::FromStr;

use crate::algorithm::bucket::{Bucket, BucketKind};
use crate::algorithm::concurrency::Concurrency;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::meter::Meter;
use crate::algorithm::quota::Quota;
use crate::algorithm::sliding_log::SlidingLog;
use crate::algorithm::sliding_window::SlidingWindow;
use crate::limit::Limit;
use crate::limit::error::LimitError;
use crate::rules::RuleLimit;
use crate::time::{EXACT_MAX, Span};

const THOUSAND: u64 = 1_000;
const THOUSANDTHS_MAX: u64 = 1_000 * THOUSAND;

/// Makes a bucket of a rate, a period and a capacity.
type MakeBucket = fn(u64, Span, u64) -> Result<Bucket, LimitError>;

/// By how much a limit is multiplied: 0.001 to 1000, in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Scale {
    thousandths: u64,
}

/// The text is not a scale.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid scale; write a number from 0.001 to 1000 with at most three decimals, like 2 or 0.5")]
pub struct ScaleParseError;

/// Why a limit has no multiple.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScaleError {
    /// The limit has no number that can be multiplied.
    #[error("a {0} limit cannot be scaled")]
    NotScalable(&'static str),
    /// The numbers would be out of range.
    #[error("the scaled numbers are out of range: {0}")]
    OutOfRange(#[from] LimitError),
}

impl Scale {
    /// Returns the units multiplied, rounded down, and at least 1.
    pub const fn of(self, units: u64) -> u64 {
        let scaled = units as u128 * self.thousandths as u128 / THOUSAND as u128;
        if scaled == 0 {
            1
        } else if scaled > EXACT_MAX as u128 {
            EXACT_MAX
        } else {
            scaled as u64
        }
    }

    /// Returns the limit with its rate and its capacity multiplied. Windows, periods and leases stay.
    pub fn of_limit(self, limit: &RuleLimit) -> Result<RuleLimit, ScaleError> {
        Ok(match limit {
            RuleLimit::Deny => RuleLimit::Deny,
            RuleLimit::Calendar { allowance, grace, calendar } => {
                let grace = if *grace == 0 { 0 } else { self.of(*grace) };
                RuleLimit::quota(self.of(*allowance), grace, calendar.clone())?
            }
            RuleLimit::Fixed(limit) => RuleLimit::Fixed(self.of_fixed(limit)?),
        })
    }

    fn of_fixed(self, limit: &Limit) -> Result<Limit, ScaleError> {
        Ok(match *limit {
            Limit::FixedWindow(limit) => {
                Limit::FixedWindow(FixedWindow::new(self.of(limit.limit()), limit.window())?)
            }
            Limit::SlidingWindow(limit) => Limit::SlidingWindow(SlidingWindow::new(
                self.of(limit.limit()),
                limit.window(),
                limit.buckets(),
                limit.counting(),
            )?),
            Limit::SlidingLog(limit) => {
                let (units, window) = (self.of(limit.limit()), limit.window());
                let default = SlidingLog::new(limit.limit(), window)?.entries();
                Limit::SlidingLog(match limit.entries() == default {
                    true => SlidingLog::new(units, window)?,
                    false => SlidingLog::with_entries(units, window, limit.entries())?,
                })
            }
            Limit::Bucket(limit) => Limit::Bucket(self.of_bucket(&limit)?),
            Limit::Concurrency(limit) => {
                Limit::Concurrency(Concurrency::new(self.of(limit.limit()), limit.lease())?)
            }
            Limit::Quota(limit) => {
                let grace = if limit.grace() == 0 { 0 } else { self.of(limit.grace()) };
                Limit::Quota(Quota::new(self.of(limit.allowance()), grace, limit.period())?)
            }
            Limit::Meter(limit) => {
                // Without a limit, a meter stops at the largest exact integer.
                let units = if limit.limit() == EXACT_MAX { EXACT_MAX } else { self.of(limit.limit()) };
                Limit::Meter(Meter::new(Some(units), Some(limit.expiry()))?)
            }
            Limit::Penalty(_) => return Err(ScaleError::NotScalable("penalty")),
        })
    }

    /// Exactly the multiple of the rate, if its fraction fits; otherwise the closest lower one in whole microseconds.
    fn of_bucket(self, limit: &Bucket) -> Result<Bucket, LimitError> {
        let (amount, ticks) = limit.rate();
        let period_us = u128::from(ticks) * u128::from(limit.tick().us());
        let (make, capacity): (MakeBucket, u64) = match limit.kind() {
            BucketKind::Tokens => (Bucket::tokens, self.of(limit.capacity())),
            BucketKind::Meter => (Bucket::meter, self.of(limit.capacity())),
            // One unit proceeds, the others wait.
            BucketKind::Queue => (Bucket::queue, self.of(limit.capacity() - 1)),
        };
        let fit = |number: u128| u64::try_from(number).ok();
        let exact = || {
            let (rate, period) =
                (u128::from(amount) * u128::from(self.thousandths), period_us * u128::from(THOUSAND));
            let common = gcd(rate, period);
            make(fit(rate / common)?, Span::from_us(fit(period / common)?), capacity).ok()
        };
        if let Some(bucket) = exact() {
            return Ok(bucket);
        }
        let period = (period_us * u128::from(THOUSAND)).div_ceil(u128::from(self.thousandths));
        make(amount, Span::from_us(fit(period).unwrap_or(u64::MAX)), capacity)
    }
}

const fn gcd(mut one: u128, mut other: u128) -> u128 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

impl FromStr for Scale {
    type Err = ScaleParseError;

    fn from_str(text: &str) -> Result<Scale, ScaleParseError> {
        let (whole, decimals) = text.split_once('.').map_or((text, "0"), |parts| parts);
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) || whole.len() > 4 || decimals.len() > 3 {
            return Err(ScaleParseError);
        }
        let number = |text: &str| text.parse::<u64>().map_err(|_| ScaleParseError);
        let decimals = number(decimals)? * 10_u64.pow(3 - decimals.len() as u32);
        match number(whole)? * THOUSAND + decimals {
            0 => Err(ScaleParseError),
            thousandths if thousandths > THOUSANDTHS_MAX => Err(ScaleParseError),
            thousandths => Ok(Scale { thousandths }),
        }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.thousandths / THOUSAND, self.thousandths % THOUSAND);
        match rest {
            0 => write!(f, "{whole}"),
            rest => write!(f, "{whole}.{}", format!("{rest:03}").trim_end_matches('0')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_a_number_with_three_decimals() {
        for (text, expected) in [
            ("2", Some("2")),
            ("0.5", Some("0.5")),
            ("1.250", Some("1.25")),
            ("0.001", Some("0.001")),
            ("1000", Some("1000")),
            ("1000.001", None),
            ("0", None),
            ("0.000", None),
            ("0.0001", None),
            ("-1", None),
            ("+1", None),
            ("1e3", None),
            ("", None),
            (".5", None),
            ("5.", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(
                text.parse::<Scale>().ok().map(|scale| scale.to_string()).as_deref(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn numbers_are_multiplied_rounded_down_and_never_zero() {
        let scaled = |text: &str, limit: Limit| {
            let scale: Scale = text.parse().expect("a scale");
            scale.of_limit(&RuleLimit::Fixed(limit)).expect("it can be scaled")
        };
        let window = |units| Limit::FixedWindow(FixedWindow::new(units, Span::from_secs(60)).expect("valid"));
        for (scale, before, after) in
            [("2", 10, 20), ("0.5", 5, 2), ("0.1", 5, 1), ("1.5", 3, 4), ("0.001", 1, 1)]
        {
            assert_eq!(scaled(scale, window(before)), RuleLimit::Fixed(window(after)), "{scale} of {before}");
        }
        let bucket = |rate, period_s, burst| {
            Limit::Bucket(Bucket::tokens(rate, Span::from_secs(period_s), burst).expect("valid"))
        };
        assert_eq!(scaled("2", bucket(2, 1, 5)), RuleLimit::Fixed(bucket(4, 1, 10)));
        assert_eq!(scaled("0.5", bucket(1, 1, 1)), RuleLimit::Fixed(bucket(1, 2, 1)), "the rate is exact");
        let queue = |queue| Limit::Bucket(Bucket::queue(1, Span::from_secs(1), queue).expect("valid"));
        let halved = Limit::Bucket(Bucket::queue(1, Span::from_secs(2), 5).expect("valid"));
        assert_eq!(scaled("0.5", queue(10)), RuleLimit::Fixed(halved));
        let leases = |limit| Limit::Concurrency(Concurrency::new(limit, Span::from_secs(1)).expect("valid"));
        assert_eq!(scaled("3", leases(4)), RuleLimit::Fixed(leases(12)));
        assert_eq!("2".parse::<Scale>().expect("a scale").of_limit(&RuleLimit::Deny), Ok(RuleLimit::Deny));
    }
}
