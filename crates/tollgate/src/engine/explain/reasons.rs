//! The reasons for numbers: one sentence for each number of each algorithm.

use std::fmt;

use tollgate_core::algorithm::bucket::{Bucket, BucketKind};
use tollgate_core::algorithm::meter::{EXPIRY_DEFAULT, Meter};
use tollgate_core::algorithm::penalty::Penalty;
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate_core::decision::{Numbers, RetryAfter};
use tollgate_core::{EXACT_MAX, Limit, Span};

/// A number and its reason, such as `remaining 17: 223 of 240 are used and 2/s come back`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// `limit`, `remaining`, `delay`, `retry after` or `reset in`.
    pub number: &'static str,
    /// The number with its unit.
    pub value: String,
    /// The reason.
    pub why: String,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.number, self.value, self.why)
    }
}

/// An algorithm's reason for each number; for a wait, what is true when it is over.
struct Sentences {
    limit: String,
    remaining: String,
    retry: String,
    reset: String,
}

/// The reasons for all numbers; a delay or a wait only if there is one.
pub(super) fn reasons(limit: &Limit, numbers: &Numbers, cost: u64) -> Vec<Reason> {
    // Cost 0 is admitted if and only if 1 would be.
    let sentences = sentences(limit, numbers, cost.max(1));
    let mut reasons = vec![
        Reason { number: "limit", value: count(numbers.limit), why: sentences.limit },
        Reason { number: "remaining", value: count(numbers.remaining), why: sentences.remaining },
    ];
    if let (true, Limit::Bucket(bucket)) = (numbers.delay_ms > 0, limit) {
        let why = format!("earlier requests proceed first, {}", rate(bucket));
        reasons.push(Reason { number: "delay", value: length(numbers.delay_ms), why });
    }
    match numbers.retry_after {
        RetryAfter::Ms(0) => (),
        RetryAfter::Ms(ms) => {
            reasons.push(Reason { number: "retry after", value: length(ms), why: sentences.retry })
        }
        RetryAfter::Never => {
            let why = "waiting does not help; units must be given back or the rule changed".to_owned();
            reasons.push(Reason { number: "retry after", value: "never".to_owned(), why });
        }
    }
    let why = if numbers.reset_after_ms == 0 { "nothing is used".to_owned() } else { sentences.reset };
    reasons.push(Reason { number: "reset in", value: length(numbers.reset_after_ms), why });
    reasons
}

fn sentences(limit: &Limit, numbers: &Numbers, cost: u64) -> Sentences {
    match limit {
        Limit::FixedWindow(limit) => Sentences {
            limit: format!("per window of {}, aligned to the clock", limit.window()),
            remaining: format!("{} in this window", taken(numbers, "used")),
            retry: "this window ends then".to_owned(),
            reset: "this window ends then".to_owned(),
        },
        Limit::SlidingWindow(limit) => sliding_window(limit, numbers, cost),
        Limit::SlidingLog(limit) => sliding_log(limit, numbers, cost),
        Limit::Bucket(limit) => bucket(limit, numbers, cost),
        Limit::Concurrency(limit) => Sentences {
            limit: format!("leases at the same time, each for {} unless it is renewed", limit.lease()),
            remaining: taken(numbers, "held"),
            retry: "enough leases have ended by then, if none is released earlier or renewed".to_owned(),
            reset: "the last lease has ended by then, if none is renewed".to_owned(),
        },
        Limit::Quota(limit) => quota(limit, numbers),
        Limit::Meter(limit) => meter(limit, numbers),
        Limit::Penalty(limit) => penalty(limit, numbers),
    }
}

fn sliding_window(limit: &SlidingWindow, numbers: &Numbers, cost: u64) -> Sentences {
    let window = limit.window();
    let oldest = match limit.counting() {
        Counting::Strict => "the oldest bucket counted whole",
        Counting::Interpolated => "the oldest bucket counted by the part still in the window",
    };
    Sentences {
        limit: format!("per {window}, counted in buckets of {}", bucket_of(limit)),
        remaining: format!("{} in the last {window}, {oldest}", taken(numbers, "used")),
        retry: format!("the oldest buckets have left the window by then, which makes room for {cost}"),
        reset: "everything counted has left the window by then".to_owned(),
    }
}

fn bucket_of(limit: &SlidingWindow) -> Span {
    Span::from_us(limit.window().us() / limit.buckets())
}

fn sliding_log(limit: &SlidingLog, numbers: &Numbers, cost: u64) -> Sentences {
    let window = limit.window();
    let remaining = if numbers.remaining == 0 && limit.entries() < limit.limit() {
        let (units, entries) = (limit.limit(), limit.entries());
        format!("the log of the last {window} is full; it holds {units} units or {entries} instants")
    } else {
        format!("{} in the last {window}", taken(numbers, "used"))
    };
    Sentences {
        limit: format!("in any period of {window}"),
        remaining,
        retry: format!("the oldest requests are {window} old by then, which makes room for {cost}"),
        reset: format!("the newest request is {window} old by then"),
    }
}

fn bucket(limit: &Bucket, numbers: &Numbers, cost: u64) -> Sentences {
    let rate = rate(limit);
    match limit.kind() {
        BucketKind::Tokens => Sentences {
            limit: format!("the burst; {rate} come back"),
            remaining: format!("{} and {rate} come back", taken(numbers, "used")),
            retry: format!("{cost} have come back by then, at {rate}"),
            reset: format!("all {} have come back by then", limit.capacity()),
        },
        BucketKind::Meter => Sentences {
            limit: format!("the capacity of the bucket; {rate} leak out"),
            remaining: format!("{} and {rate} leak out", taken(numbers, "filled")),
            retry: format!("there is room for {cost} by then; {rate} leak out"),
            reset: "the bucket is empty by then".to_owned(),
        },
        BucketKind::Queue => Sentences {
            limit: format!(
                "one request that proceeds and {} that wait; {rate} proceed",
                limit.capacity() - 1
            ),
            remaining: format!("{} and {rate} proceed", taken(numbers, "taken")),
            retry: format!("the queue has room for {cost} by then; {rate} proceed"),
            reset: "the queue is empty by then".to_owned(),
        },
    }
}

fn quota(limit: &Quota, numbers: &Numbers) -> Sentences {
    let (period, end) = match limit.period() {
        QuotaPeriod::Calendar(_) => ("calendar period".to_owned(), "this period is over"),
        QuotaPeriod::Rolling(length) => {
            (format!("{length} from the first use"), "the period that began with the first use is over")
        }
    };
    let grace = match limit.grace() {
        0 => String::new(),
        grace => format!("; a grace of {grace} more is admitted and not shown as remaining"),
    };
    Sentences {
        limit: format!("per {period}{grace}"),
        remaining: format!("{} in this period, reservations included", taken(numbers, "used")),
        retry: format!("{end} by then, or reservations that make enough room have expired"),
        reset: format!("{end} by then"),
    }
}

fn meter(limit: &Meter, numbers: &Numbers) -> Sentences {
    let expiry = limit.expiry();
    let forgotten = if expiry == EXPIRY_DEFAULT {
        "nothing comes back by waiting; an unused meter is deleted only then".to_owned()
    } else {
        format!("the meter is deleted then, after {expiry} without use")
    };
    Sentences {
        limit: "until units are given back".to_owned(),
        remaining: taken(numbers, "used"),
        retry: forgotten.clone(),
        reset: forgotten,
    }
}

fn penalty(limit: &Penalty, numbers: &Numbers) -> Sentences {
    let free = limit.numbers().free;
    let remaining = match numbers.remaining {
        0 => "the wait after the last failure is not over".to_owned(),
        left if left == numbers.limit => "no failure is on record".to_owned(),
        1 => format!("the next failure causes a wait; {} free", of(free, "failure is", "failures are")),
        left => {
            let failures = of(numbers.limit - left, "failure is", "failures are");
            format!("{failures} on record, and {free} are free")
        }
    };
    Sentences {
        limit: format!("the {} failed attempt causes a wait", ordinal(free + 1)),
        remaining,
        retry: "the wait after the last failure is over by then".to_owned(),
        reset: format!(
            "the failures are forgotten then, {} after the wait for the last one",
            limit.numbers().memory
        ),
    }
}

/// `3 of 100 are used`. A partly used unit counts as used.
fn taken(numbers: &Numbers, how: &str) -> String {
    let limit = count(numbers.limit);
    match numbers.limit.saturating_sub(numbers.remaining) {
        0 => format!("none of {limit} is {how}"),
        // Possibly more: the limit may have been lowered, or the grace used.
        _ if numbers.remaining == 0 => format!("all {limit} are {how}"),
        1 => format!("1 of {limit} is {how}"),
        used => format!("{used} of {limit} are {how}"),
    }
}

fn of(number: u64, one: &str, more: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {more}") }
}

fn ordinal(number: u64) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// The largest exact number means that there is no limit.
fn count(number: u64) -> String {
    if number == EXACT_MAX { "2^53 - 1".to_owned() } else { number.to_string() }
}

/// `2/s`: per the shortest common unit of time that gives a whole number.
fn rate(bucket: &Bucket) -> String {
    let (drain, scale) = bucket.rate();
    let period_us = u128::from(scale) * u128::from(bucket.tick().us());
    for (unit_us, unit) in
        [(1_000_000, "s"), (60_000_000, "min"), (3_600_000_000, "h"), (86_400_000_000, "d")]
    {
        let drained = u128::from(drain) * unit_us;
        if drained.is_multiple_of(period_us) {
            return format!("{}/{unit}", drained / period_us);
        }
    }
    format!("{drain} per {}", Span::from_us(scale.saturating_mul(bucket.tick().us())))
}

/// `1.5 s`; from two minutes on in whole seconds, rounded up.
fn length(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => {
            let decimals = format!("{}.{:03}", ms / 1_000, ms % 1_000);
            format!("{} s", decimals.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => {
            let mut seconds = ms.div_ceil(1_000);
            let mut parts = Vec::new();
            for (unit, name) in [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")] {
                if seconds >= unit {
                    parts.push(format!("{} {name}", seconds / unit));
                    seconds %= unit;
                }
            }
            parts.join(" ")
        }
    }
}
