//! Why a number is what it is: one sentence for each number of each algorithm, all of them here.

use std::fmt;

use tollgate_core::algorithm::bucket::{Bucket, BucketKind};
use tollgate_core::algorithm::meter::{EXPIRY_DEFAULT, Meter};
use tollgate_core::algorithm::penalty::Penalty;
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate_core::decision::{Numbers, RetryAfter};
use tollgate_core::{EXACT_MAX, Limit, Span};

/// A number and its reason; reads `remaining 17: 223 of 240 are used and 2/s come back`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// `limit`, `remaining`, `delay`, `retry after` or `reset in`.
    pub number: &'static str,
    /// The number as people read it.
    pub value: String,
    /// Why.
    pub why: String,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.number, self.value, self.why)
    }
}

/// What an algorithm says of each number; of a wait, what will be true when it is over.
struct Words {
    limit: String,
    remaining: String,
    retry: String,
    reset: String,
}

/// The reasons of the numbers that say something: a delay or a wait only if there is one.
pub(super) fn reasons(limit: &Limit, numbers: &Numbers, cost: u64) -> Vec<Reason> {
    // Cost 0 is admitted iff 1 would be.
    let words = words(limit, numbers, cost.max(1));
    let mut reasons = vec![
        Reason { number: "limit", value: count(numbers.limit), why: words.limit },
        Reason { number: "remaining", value: count(numbers.remaining), why: words.remaining },
    ];
    if let (true, Limit::Bucket(bucket)) = (numbers.delay_ms > 0, limit) {
        let why = format!("those before it go first, {}", rate(bucket));
        reasons.push(Reason { number: "delay", value: length(numbers.delay_ms), why });
    }
    match numbers.retry_after {
        RetryAfter::Ms(0) => (),
        RetryAfter::Ms(ms) => {
            reasons.push(Reason { number: "retry after", value: length(ms), why: words.retry })
        }
        RetryAfter::Never => {
            let why = "waiting does not help; something must be given back or changed".to_owned();
            reasons.push(Reason { number: "retry after", value: "never".to_owned(), why });
        }
    }
    let why = if numbers.reset_after_ms == 0 { "nothing is used".to_owned() } else { words.reset };
    reasons.push(Reason { number: "reset in", value: length(numbers.reset_after_ms), why });
    reasons
}

fn words(limit: &Limit, numbers: &Numbers, cost: u64) -> Words {
    match limit {
        Limit::FixedWindow(limit) => Words {
            limit: format!("so much in each window of {}, by the clock", limit.window()),
            remaining: format!("{} in this window", taken(numbers, "used")),
            retry: "then this window is over".to_owned(),
            reset: "then this window is over".to_owned(),
        },
        Limit::SlidingWindow(limit) => sliding_window(limit, numbers, cost),
        Limit::SlidingLog(limit) => sliding_log(limit, numbers, cost),
        Limit::Bucket(limit) => bucket(limit, numbers, cost),
        Limit::Concurrency(limit) => Words {
            limit: format!("so many at once, each for {} unless it is renewed", limit.lease()),
            remaining: taken(numbers, "held"),
            retry: "then enough leases have ended, if none is given back before or renewed".to_owned(),
            reset: "then the last lease has ended, if none is renewed".to_owned(),
        },
        Limit::Quota(limit) => quota(limit, numbers),
        Limit::Meter(limit) => meter(limit, numbers),
        Limit::Penalty(limit) => penalty(limit, numbers),
    }
}

fn sliding_window(limit: &SlidingWindow, numbers: &Numbers, cost: u64) -> Words {
    let window = limit.window();
    let oldest = match limit.counting() {
        Counting::Strict => "the oldest bucket counted whole",
        Counting::Interpolated => "the oldest bucket counted by the part still in the window",
    };
    Words {
        limit: format!("so much in the last {window}, counted in buckets of {}", bucket_of(limit)),
        remaining: format!("{} in the last {window}, {oldest}", taken(numbers, "used")),
        retry: format!("then enough of the oldest buckets has left the window to make room for {cost}"),
        reset: "then all that is counted has left the window".to_owned(),
    }
}

fn bucket_of(limit: &SlidingWindow) -> Span {
    Span::from_us(limit.window().us() / limit.buckets())
}

fn sliding_log(limit: &SlidingLog, numbers: &Numbers, cost: u64) -> Words {
    let window = limit.window();
    let remaining = if numbers.remaining == 0 && limit.entries() < limit.limit() {
        let (units, entries) = (limit.limit(), limit.entries());
        format!("the last {window} hold all that fits, {units} units or {entries} instants")
    } else {
        format!("{} in the last {window}", taken(numbers, "used"))
    };
    Words {
        limit: format!("so much in any {window}"),
        remaining,
        retry: format!("then enough of the oldest is {window} old to make room for {cost}"),
        reset: format!("then the newest is {window} old"),
    }
}

fn bucket(limit: &Bucket, numbers: &Numbers, cost: u64) -> Words {
    let rate = rate(limit);
    match limit.kind() {
        BucketKind::Tokens => Words {
            limit: format!("so much can be saved up; {rate} come back"),
            remaining: format!("{} and {rate} come back", taken(numbers, "used")),
            retry: format!("then {cost} are there again; {rate} come back"),
            reset: format!("then all {} are there again", limit.capacity()),
        },
        BucketKind::Meter => Words {
            limit: format!("so much the bucket holds; {rate} leak out"),
            remaining: format!("{} and {rate} leak out", taken(numbers, "full")),
            retry: format!("then there is room for {cost}; {rate} leak out"),
            reset: "then the bucket is empty".to_owned(),
        },
        BucketKind::Queue => Words {
            limit: format!("one that goes and {} that wait; {rate} go", limit.capacity() - 1),
            remaining: format!("{} and {rate} go", taken(numbers, "taken")),
            retry: format!("then the queue has room for {cost}; {rate} go"),
            reset: "then the queue is empty".to_owned(),
        },
    }
}

fn quota(limit: &Quota, numbers: &Numbers) -> Words {
    let (period, end) = match limit.period() {
        QuotaPeriod::Calendar(_) => ("each period of the calendar".to_owned(), "this period is over"),
        QuotaPeriod::Rolling(length) => {
            (format!("each {length} from the first use"), "the period that began with the first use is over")
        }
    };
    let grace = match limit.grace() {
        0 => String::new(),
        grace => format!("; a grace of {grace} on top is admitted and not shown as remaining"),
    };
    Words {
        limit: format!("so much in {period}{grace}"),
        remaining: format!("{} in this period, reservations included", taken(numbers, "used")),
        retry: format!("then {end}, or reservations have run out that make enough room"),
        reset: format!("then {end}"),
    }
}

fn meter(limit: &Meter, numbers: &Numbers) -> Words {
    let expiry = limit.expiry();
    let forgotten = if expiry == EXPIRY_DEFAULT {
        "nothing comes back by waiting; an untouched meter is forgotten only then".to_owned()
    } else {
        format!("then nobody has touched it for {expiry}, and it is forgotten")
    };
    Words {
        limit: "so much until something is given back".to_owned(),
        remaining: taken(numbers, "used"),
        retry: forgotten.clone(),
        reset: forgotten,
    }
}

fn penalty(limit: &Penalty, numbers: &Numbers) -> Words {
    let free = limit.numbers().free;
    let remaining = match numbers.remaining {
        0 => "the wait after the last failure is not over".to_owned(),
        left if left == numbers.limit => "no failure is on record".to_owned(),
        1 => format!("the next failure brings a wait; {} free", of(free, "failure is", "failures are")),
        left => {
            let failures = of(numbers.limit - left, "failure is", "failures are");
            format!("{failures} on record, and {free} are free")
        }
    };
    Words {
        limit: format!("the {} attempt that fails brings a wait", ordinal(free + 1)),
        remaining,
        retry: "then the wait after the last failure is over".to_owned(),
        reset: format!(
            "then the failures are forgotten, {} after the wait for the last",
            limit.numbers().memory
        ),
    }
}

/// `3 of 100 are used`. Of parts of a unit nothing remains, so they are used.
fn taken(numbers: &Numbers, how: &str) -> String {
    let limit = count(numbers.limit);
    match numbers.limit.saturating_sub(numbers.remaining) {
        0 => format!("none of {limit} is {how}"),
        // Perhaps even more: a limit may have been lowered, a grace may have been used.
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

/// The largest exact number stands for a limit that nobody set.
fn count(number: u64) -> String {
    if number == EXACT_MAX { "2^53 - 1".to_owned() } else { number.to_string() }
}

/// `2/s`: the shortest usual length of time in which a whole number drains.
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

/// `1.5 s`; from minutes on in whole seconds, rounded up.
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
