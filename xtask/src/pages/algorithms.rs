//! All algorithms side by side: what they promise, what they weigh, what they answer.

use super::weights::{Growing, Weights};
use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::meter::Meter;
use tollgate_core::algorithm::penalty::{Penalty, PenaltyNumbers};
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate_core::{Decline, Limit, LimitError, Mark, Operation, Report, Span, Time, Token, Verdict};

const MINUTE: Span = Span::from_secs(60);

/// One line of the comparison.
pub(super) struct Line {
    name: &'static str,
    page: &'static str,
    promise: &'static str,
    limit: Limit,
    bytes: String,
    refund: &'static str,
    retry: &'static str,
}

/// Every algorithm, in the order of the pages.
pub(super) fn lines(weights: &Weights) -> Result<Vec<Line>, LimitError> {
    let window = |counting| SlidingWindow::new(100, MINUTE, 6, counting).map(Limit::SlidingWindow);
    let growing = |growing: &Growing, record| format!("{} + {} per {record}", growing.own, growing.each);
    Ok(vec![
        Line {
            name: "fixed window",
            page: "fixed-window.md",
            promise: "at most L per aligned window, at most 2L in any span of a window's length",
            limit: Limit::FixedWindow(FixedWindow::new(100, MINUTE)?),
            bytes: weights.fixed_window.to_string(),
            refund: "in the same window",
            retry: "yes: the end of the window",
        },
        Line {
            name: "sliding window, strict",
            page: "sliding-window.md",
            promise: "at most L in any span of length W",
            limit: window(Counting::Strict)?,
            bytes: format!("{} with 6 buckets", weights.window(6)),
            refund: "while the bucket is kept",
            retry: "yes",
        },
        Line {
            name: "sliding window, interpolated",
            page: "sliding-window.md",
            promise: "about L in any span of length W, always below 2L",
            limit: window(Counting::Interpolated)?,
            bytes: format!("{} with 6 buckets", weights.window(6)),
            refund: "while the bucket is kept",
            retry: "yes, for its own estimate",
        },
        Line {
            name: "sliding log",
            page: "sliding-log.md",
            promise: "at most L in any span of length W",
            limit: Limit::SlidingLog(SlidingLog::new(100, MINUTE)?),
            bytes: growing(&weights.log, "entry"),
            refund: "the newest 16 entries",
            retry: "yes",
        },
        Line {
            name: "token bucket",
            page: "token-bucket.md",
            promise: "in any span D at most the capacity and what comes in during D",
            limit: Limit::Bucket(Bucket::tokens(1, MINUTE, 100)?),
            bytes: weights.bucket.to_string(),
            refund: "what has not come back by itself",
            retry: "yes",
        },
        Line {
            name: "leaky bucket, meter",
            page: "leaky-bucket.md",
            promise: "the same, seen as a level that leaks",
            limit: Limit::Bucket(Bucket::meter(1, MINUTE, 100)?),
            bytes: weights.bucket.to_string(),
            refund: "what has not leaked yet",
            retry: "yes",
        },
        Line {
            name: "leaky bucket, shaper",
            page: "leaky-bucket.md",
            promise: "departures are spaced at the rate; at most q units wait",
            limit: Limit::Bucket(Bucket::queue(1, MINUTE, 100)?),
            bytes: weights.bucket.to_string(),
            refund: "no: the slot is booked",
            retry: "yes, and an exact delay when admitted",
        },
        Line {
            name: "concurrency",
            page: "concurrency.md",
            promise: "at most N units are held at any instant",
            limit: Limit::Concurrency(Concurrency::new(100, MINUTE)?),
            bytes: growing(&weights.concurrency, "lease"),
            refund: "release, by the owner",
            retry: "if nobody renews or releases before",
        },
        Line {
            name: "quota",
            page: "quota.md",
            promise: "at most Q and the grace per period",
            limit: Limit::Quota(Quota::new(100, 0, QuotaPeriod::Rolling(MINUTE))?),
            bytes: growing(&weights.quota, "reservation"),
            refund: "in the same period",
            retry: "yes: a reservation's end or the period's end",
        },
        Line {
            name: "meter",
            page: "meter.md",
            promise: "the sum of what was added and taken off, never above its limit",
            limit: Limit::Meter(Meter::new(None, None)?),
            bytes: weights.meter.to_string(),
            refund: "yes: subtract",
            retry: "yes: when it is forgotten",
        },
        Line {
            name: "penalty",
            page: "penalty.md",
            promise: "nobody is let in during a wait, and waits grow with failures",
            limit: Limit::Penalty(Penalty::new(PenaltyNumbers {
                free: 1,
                base: MINUTE,
                factor: 2,
                longest: MINUTE,
                memory: MINUTE,
                count_refused: false,
            })?),
            bytes: weights.penalty.to_string(),
            refund: "no: report a success",
            retry: "yes: the end of the wait",
        },
    ])
}

pub(super) fn comparison(lines: &[Line]) -> String {
    let mut table = vec![
        "| algorithm | promise | exactness | bytes per subject | refund | retry-after exact |".to_owned(),
        "|---|---|---|---|---|---|".to_owned(),
    ];
    table.extend(lines.iter().map(|line| {
        let Line { name, page, promise, limit, bytes, refund, retry } = line;
        let exactness = limit.exactness().name();
        format!("| [{name}]({page}) | {promise} | {exactness} | {bytes} | {refund} | {retry} |")
    }));
    table.join("\n")
}

/// Which algorithm answers which operation: asked, not listed.
pub(super) fn operations(lines: &[Line]) -> String {
    let (token, now) = (Token(1), Time::MAX.minus(MINUTE));
    let asked: [(&str, &[Operation]); 6] = [
        ("charge, peek", &[Operation::charge(1), Operation::Peek { cost: 1 }]),
        ("refund", &[Operation::Refund { mark: Mark::None, cost: 1 }]),
        ("renew, release", &[Operation::Renew { token }, Operation::Release { token }]),
        (
            "reserve, settle, cancel",
            &[
                Operation::Reserve { cost: 1, token, hold: MINUTE },
                Operation::Settle { token, actual: 1 },
                Operation::Cancel { token },
            ],
        ),
        ("report", &[Operation::Report { result: Report::Success }]),
        ("reset", &[Operation::Reset]),
    ];
    let names: Vec<&str> = asked.iter().map(|(names, _)| *names).collect();
    let mut table = vec![
        format!("| algorithm | {} |", names.join(" | ")),
        format!("|---{}|", "|---".repeat(asked.len())),
    ];
    let unsupported = Verdict::Declined(Decline::NotSupported);
    table.extend(lines.iter().map(|line| {
        let answers = asked.iter().map(|(_, operations)| {
            let declined = |operation| line.limit.decide(None, now, operation).answer.verdict == unsupported;
            if operations.iter().any(declined) { "no" } else { "yes" }
        });
        format!("| {} | {} |", line.name, answers.collect::<Vec<&str>>().join(" | "))
    }));
    table.join("\n")
}
