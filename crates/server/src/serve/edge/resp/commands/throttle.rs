//! `CL.THROTTLE key max_burst count period [quantity]`: a key and a limit of the caller, compatible with redis-cell.

use std::fmt;

use tollgate::core::algorithm::bucket::Bucket;
use tollgate::core::limit::error::LimitError;
use tollgate::core::{Answer, EXACT_MAX, Limit, Operation, Retry, Span, Time, Verdict};

use crate::serve::edge::request::VALUE_BYTES_MAX;
use crate::serve::edge::resp::frame::Words;
use crate::serve::edge::resp::reply::Reply;
use crate::serve::edge::resp::text::{Quoted, integer};

pub(crate) const USAGE: &str = "CL.THROTTLE key max_burst count period [quantity]";

/// The longest period in seconds, and the longest time until a whole limit is available again: a leap year. State of a
/// caller's own limit lives for that long.
const PERIOD_S_MAX: i64 = 366 * 86_400;

/// A charge under a limit that the caller sent along.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThrottleRequest<'b> {
    pub(crate) key: &'b str,
    pub(crate) limit: Limit,
    quantity: u64,
    capacity: u64,
}

/// The last limit of a connection. Usually the next one is the same, and to make one takes divisions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastLimit(Option<(Numbers, Bucket)>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Numbers {
    max_burst: i64,
    count: i64,
    period_s: i64,
}

/// Why the arguments are invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ThrottleArgumentError<'b> {
    Usage,
    /// The key is not UTF-8. The command is read again with lossless text.
    KeyNotText,
    KeyTooLong {
        len: usize,
    },
    NotANumber {
        what: &'static str,
        found: &'b [u8],
    },
    OutOfRange {
        what: &'static str,
        found: i64,
        min: i64,
        max: i64,
    },
    Limit {
        max_burst: i64,
        count: i64,
        period_s: i64,
        error: LimitError,
    },
    /// The whole limit is available again too late.
    TooLong {
        max_burst: i64,
        count: i64,
        period_s: i64,
    },
}

impl fmt::Display for ThrottleArgumentError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThrottleArgumentError::Usage => {
                write!(f, "wrong number of arguments for 'cl.throttle' command; write {USAGE}")
            }
            ThrottleArgumentError::KeyNotText => f.write_str("the key is not UTF-8; send text"),
            ThrottleArgumentError::KeyTooLong { len } => {
                write!(
                    f,
                    "the key has {len} bytes, more than {VALUE_BYTES_MAX}; shorten it, or send a hash of it"
                )
            }
            ThrottleArgumentError::NotANumber { what, found } => {
                let found = Quoted(found);
                write!(f, "{what} is {found}, which is not an integer; write digits only, like 15")
            }
            ThrottleArgumentError::OutOfRange { what, found, min, max } => {
                write!(f, "{what} is {found}; it must be {min} to {max}")
            }
            ThrottleArgumentError::TooLong { max_burst, count, period_s } => write!(
                f,
                "{count} per {period_s} s with max_burst {max_burst} takes longer than {PERIOD_S_MAX} s to refill; lower \
                 max_burst or period, or raise count"
            ),
            ThrottleArgumentError::Limit { max_burst, count, period_s, error } => {
                write!(f, "{count} per {period_s} s with max_burst {max_burst} cannot be counted exactly")?;
                let LimitError::Inexact { capacity_max, amount_that_fits, .. } = error else {
                    return write!(f, "; {error}");
                };
                if let Some(capacity) = capacity_max {
                    write!(f, "; with this count max_burst can be at most {}", capacity.saturating_sub(1))?;
                }
                if let Some(amount) = amount_that_fits {
                    write!(f, "; with this max_burst a count of {amount} would fit")?;
                }
                Ok(())
            }
        }
    }
}

impl<'b> ThrottleRequest<'b> {
    /// Reads what follows the name of the command. A key that is not UTF-8 needs lossless words.
    pub(crate) fn read(
        words: Words<'b, '_>,
        last: &mut LastLimit,
        is_lossless: bool,
    ) -> Result<ThrottleRequest<'b>, ThrottleArgumentError<'b>> {
        let (Some(key), Some(max_burst), Some(count), Some(period), None) =
            (words.get(0), words.get(1), words.get(2), words.get(3), words.get(5))
        else {
            return Err(ThrottleArgumentError::Usage);
        };
        let key = match std::str::from_utf8(key) {
            // See `lossless_text`: text with this byte may stand for other bytes.
            Ok(text) if is_lossless || !key.contains(&0xF4) => text,
            _ => return Err(ThrottleArgumentError::KeyNotText),
        };
        if key.len() > VALUE_BYTES_MAX {
            return Err(ThrottleArgumentError::KeyTooLong { len: key.len() });
        }
        let exact_max = EXACT_MAX as i64;
        let numbers = Numbers {
            max_burst: number("max_burst", max_burst, 0, exact_max - 1)?,
            count: number("count", count, 1, exact_max)?,
            period_s: number("period", period, 1, PERIOD_S_MAX)?,
        };
        let quantity = words.get(4).map_or(Ok(1), |found| number("quantity", found, 0, i64::MAX))?;
        let bucket = last.bucket(numbers)?;
        Ok(ThrottleRequest {
            key,
            limit: Limit::Bucket(bucket),
            quantity: quantity.unsigned_abs(),
            capacity: bucket.capacity(),
        })
    }

    /// The operation for the store. A quantity of 0, or above the capacity, is not charged: the reply reports the state.
    pub(crate) const fn operation(&self) -> Operation {
        if self.quantity == 0 || self.quantity > self.capacity {
            Operation::Peek { cost: 0 }
        } else {
            Operation::charge(self.quantity)
        }
    }

    /// Writes the five numbers of redis-cell: limited, limit, remaining, seconds until a retry is admitted, seconds until
    /// the whole limit is available. Waits are rounded up; -1 means no wait or never.
    pub(crate) fn write_reply(&self, now: Time, answer: &Answer, reply: &mut Reply<'_>) -> Option<()> {
        let (limited, retry_after_s) = match answer.verdict {
            _ if self.quantity == 0 => (false, -1),
            _ if self.quantity > self.capacity => (true, -1),
            Verdict::Refused(Retry::At(at)) => (true, seconds(at - now)),
            Verdict::Refused(Retry::Never) => (true, -1),
            Verdict::Admitted { .. } => (false, -1),
            Verdict::Done { .. }
            | Verdict::Recorded { .. }
            | Verdict::BookedLate { .. }
            | Verdict::Usage { .. }
            | Verdict::Declined(_) => return None,
        };
        reply.array(5);
        reply.integer(limited.into());
        reply.count(answer.limit);
        reply.count(answer.remaining);
        reply.integer(retry_after_s);
        reply.integer(seconds(answer.reset_at - now));
        Some(())
    }
}

impl LastLimit {
    fn bucket<'b>(&mut self, numbers: Numbers) -> Result<Bucket, ThrottleArgumentError<'b>> {
        if let Some((known, bucket)) = self.0
            && known == numbers
        {
            return Ok(bucket);
        }
        let Numbers { max_burst, count, period_s } = numbers;
        let capacity = max_burst.unsigned_abs() + 1;
        let bucket = Bucket::tokens(count.unsigned_abs(), Span::from_secs(period_s.unsigned_abs()), capacity)
            .map_err(|error| ThrottleArgumentError::Limit { max_burst, count, period_s, error })?;
        let refill = u128::from(capacity) * u128::from(period_s.unsigned_abs());
        if refill > u128::from(count.unsigned_abs()) * PERIOD_S_MAX as u128 {
            return Err(ThrottleArgumentError::TooLong { max_burst, count, period_s });
        }
        self.0 = Some((numbers, bucket));
        Ok(bucket)
    }
}

fn number<'b>(
    what: &'static str,
    found: &'b [u8],
    min: i64,
    max: i64,
) -> Result<i64, ThrottleArgumentError<'b>> {
    let number = integer(found).ok_or(ThrottleArgumentError::NotANumber { what, found })?;
    if (min..=max).contains(&number) {
        Ok(number)
    } else {
        Err(ThrottleArgumentError::OutOfRange { what, found: number, min, max })
    }
}

/// Whole seconds, rounded up.
fn seconds(span: Span) -> i64 {
    span.us().div_ceil(1_000_000) as i64
}
