//! `CL.THROTTLE key max_burst count period [quantity]`: a key and a limit of the caller's own, in the words of redis-cell.

use std::fmt;

use tollgate::core::algorithm::bucket::Bucket;
use tollgate::core::limit::error::LimitError;
use tollgate::core::{Answer, EXACT_MAX, Limit, Operation, Retry, Span, Time, Verdict};

use super::frame::Words;
use super::reply::Reply;
use super::text::{Quoted, integer};

pub(crate) const USAGE: &str = "CL.THROTTLE key max_burst count period [quantity]";

/// The longest period: what time itself is counted with.
const PERIOD_S_MAX: i64 = (EXACT_MAX / 1_000_000) as i64;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'b> {
    pub(crate) key: &'b str,
    pub(crate) limit: Limit,
    quantity: u64,
    capacity: u64,
}

/// The last limit that was asked for: as a rule the next one is the same, and making one takes divisions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recent(Option<(Numbers, Bucket)>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Numbers {
    max_burst: i64,
    count: i64,
    period_s: i64,
}

/// Why nothing could be asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wrong<'b> {
    Usage,
    Key,
    NotANumber { what: &'static str, found: &'b [u8] },
    OutOfRange { what: &'static str, found: i64, min: i64, max: i64 },
    Limit { max_burst: i64, count: i64, period_s: i64, error: LimitError },
}

impl fmt::Display for Wrong<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Usage => write!(f, "wrong number of arguments for 'cl.throttle' command; write {USAGE}"),
            Wrong::Key => f.write_str("the key is not UTF-8; write it in hexadecimal, for instance"),
            Wrong::NotANumber { what, found } => {
                let found = Quoted(found);
                write!(f, "{what} is {found}, which is not an integer; write digits only, like 15")
            }
            Wrong::OutOfRange { what, found, min, max } => {
                write!(f, "{what} is {found}; it must be {min} to {max}")
            }
            Wrong::Limit { max_burst, count, period_s, error } => {
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

impl<'b> Question<'b> {
    /// From what comes after the name of the command.
    pub(crate) fn read(words: Words<'b, '_>, recent: &mut Recent) -> Result<Question<'b>, Wrong<'b>> {
        let (Some(key), Some(max_burst), Some(count), Some(period), None) =
            (words.get(0), words.get(1), words.get(2), words.get(3), words.get(5))
        else {
            return Err(Wrong::Usage);
        };
        let key = std::str::from_utf8(key).map_err(|_| Wrong::Key)?;
        let exact_max = EXACT_MAX as i64;
        let numbers = Numbers {
            max_burst: number("max_burst", max_burst, 0, exact_max - 1)?,
            count: number("count", count, 1, exact_max)?,
            period_s: number("period", period, 1, PERIOD_S_MAX)?,
        };
        let quantity = words.get(4).map_or(Ok(1), |found| number("quantity", found, 0, i64::MAX))?;
        let bucket = recent.bucket(numbers)?;
        Ok(Question {
            key,
            limit: Limit::Bucket(bucket),
            quantity: quantity.unsigned_abs(),
            capacity: bucket.capacity(),
        })
    }

    /// What to ask the store. Nothing that costs nothing or could never be had is charged: how things stand is told.
    pub(crate) const fn operation(&self) -> Operation {
        if self.quantity == 0 || self.quantity > self.capacity {
            Operation::Peek { cost: 0 }
        } else {
            Operation::charge(self.quantity)
        }
    }

    /// The five numbers of redis-cell: limited, limit, remaining, seconds until a retry would pass, seconds until all is
    /// back. Waits are rounded up; -1 stands for none and for never.
    pub(crate) fn answer(&self, now: Time, answer: &Answer, reply: &mut Reply<'_>) -> Option<()> {
        let (limited, retry_after_s) = match answer.verdict {
            _ if self.quantity == 0 => (false, -1),
            _ if self.quantity > self.capacity => (true, -1),
            Verdict::Refused(Retry::At(at)) => (true, seconds(at - now)),
            Verdict::Refused(Retry::Never) => (true, -1),
            Verdict::Admitted { .. } => (false, -1),
            Verdict::Done { .. } | Verdict::Declined(_) => return None,
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

impl Recent {
    fn bucket<'b>(&mut self, numbers: Numbers) -> Result<Bucket, Wrong<'b>> {
        if let Some((known, bucket)) = self.0
            && known == numbers
        {
            return Ok(bucket);
        }
        let Numbers { max_burst, count, period_s } = numbers;
        let capacity = max_burst.unsigned_abs() + 1;
        let bucket = Bucket::tokens(count.unsigned_abs(), Span::from_secs(period_s.unsigned_abs()), capacity)
            .map_err(|error| Wrong::Limit { max_burst, count, period_s, error })?;
        self.0 = Some((numbers, bucket));
        Ok(bucket)
    }
}

fn number<'b>(what: &'static str, found: &'b [u8], min: i64, max: i64) -> Result<i64, Wrong<'b>> {
    let number = integer(found).ok_or(Wrong::NotANumber { what, found })?;
    if (min..=max).contains(&number) {
        Ok(number)
    } else {
        Err(Wrong::OutOfRange { what, found: number, min, max })
    }
}

/// Whole seconds, rounded up.
fn seconds(span: Span) -> i64 {
    span.us().div_ceil(1_000_000) as i64
}
