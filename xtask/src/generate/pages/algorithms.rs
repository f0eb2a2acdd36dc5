//! Tables that compare all algorithms: guarantee, state size, refunds, retry-after and supported operations.

use super::state_sizes::{HoldSize, RecordSize, StateSizes};
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

/// One algorithm as the tables show it.
pub(super) struct Algorithm {
    name: &'static str,
    page: &'static str,
    guarantee: &'static str,
    limit: Limit,
    bytes: String,
    refund: &'static str,
    retry: &'static str,
}

/// Returns every algorithm, in the order of the pages.
pub(super) fn all(sizes: &StateSizes) -> Result<Vec<Algorithm>, LimitError> {
    let window = |counting| SlidingWindow::new(100, MINUTE, 6, counting).map(Limit::SlidingWindow);
    let holding =
        |size: &HoldSize, hold| format!("{} to {} + {} per {hold}", size.least, size.most, size.per_hold);
    let growing = |size: &RecordSize, record| format!("{} + {} per {record}", size.base, size.per_record);
    Ok(vec![
        Algorithm {
            name: "fixed window",
            page: "fixed-window.md",
            guarantee: "at most L per clock window, at most 2L in any span of length W",
            limit: Limit::FixedWindow(FixedWindow::new(100, MINUTE)?),
            bytes: sizes.fixed_window.to_string(),
            refund: "in the same window",
            retry: "exact: the end of the window",
        },
        Algorithm {
            name: "sliding window, strict",
            page: "sliding-window.md",
            guarantee: "at most L in any span of length W",
            limit: window(Counting::Strict)?,
            bytes: format!("{} with 6 buckets", sizes.window(6)),
            refund: "while the bucket is kept",
            retry: "exact",
        },
        Algorithm {
            name: "sliding window, interpolated",
            page: "sliding-window.md",
            guarantee: "about L in any span of length W, always fewer than 2L",
            limit: window(Counting::Interpolated)?,
            bytes: format!("{} with 6 buckets", sizes.window(6)),
            refund: "while the bucket is kept",
            retry: "exact for its estimate",
        },
        Algorithm {
            name: "sliding log",
            page: "sliding-log.md",
            guarantee: "at most L in any span of length W",
            limit: Limit::SlidingLog(SlidingLog::new(100, MINUTE)?),
            bytes: growing(&sizes.log, "entry"),
            refund: "the newest 16 entries",
            retry: "exact",
        },
        Algorithm {
            name: "token bucket",
            page: "token-bucket.md",
            guarantee: "at most B plus the tokens that arrive, in any span",
            limit: Limit::Bucket(Bucket::tokens(1, MINUTE, 100)?),
            bytes: sizes.bucket.to_string(),
            refund: "what has not returned already",
            retry: "exact",
        },
        Algorithm {
            name: "leaky bucket, meter",
            page: "leaky-bucket.md",
            guarantee: "at most B plus what leaks, in any span",
            limit: Limit::Bucket(Bucket::meter(1, MINUTE, 100)?),
            bytes: sizes.bucket.to_string(),
            refund: "what has not leaked yet",
            retry: "exact",
        },
        Algorithm {
            name: "leaky bucket, shaper",
            page: "leaky-bucket.md",
            guarantee: "departures follow the rate; at most q units wait",
            limit: Limit::Bucket(Bucket::queue(1, MINUTE, 100)?),
            bytes: sizes.bucket.to_string(),
            refund: "no: the slot is booked",
            retry: "exact; so is the delay of an admission",
        },
        Algorithm {
            name: "concurrency",
            page: "concurrency.md",
            guarantee: "at most N units are held at any instant",
            limit: Limit::Concurrency(Concurrency::new(100, MINUTE)?),
            bytes: holding(&sizes.concurrency, "lease"),
            refund: "no: the owner releases the lease",
            retry: "exact if no lease is renewed or released",
        },
        Algorithm {
            name: "quota",
            page: "quota.md",
            guarantee: "at most Q plus the grace per period",
            limit: Limit::Quota(Quota::new(100, 0, QuotaPeriod::Rolling(MINUTE))?),
            bytes: holding(&sizes.quota, "reservation"),
            refund: "in the same period",
            retry: "exact: the end of a reservation or of the period",
        },
        Algorithm {
            name: "meter",
            page: "meter.md",
            guarantee: "what was added minus what was subtracted, at most L",
            limit: Limit::Meter(Meter::new(None, None)?),
            bytes: sizes.meter.to_string(),
            refund: "yes: subtract",
            retry: "exact: the end of its expiry",
        },
        Algorithm {
            name: "penalty",
            page: "penalty.md",
            guarantee: "no admission during a wait; waits grow with failures",
            limit: Limit::Penalty(Penalty::new(PenaltyNumbers {
                free: 1,
                base: MINUTE,
                factor: 2,
                longest: MINUTE,
                memory: MINUTE,
                count_refused: false,
            })?),
            bytes: sizes.penalty.to_string(),
            refund: "no: report a success",
            retry: "exact: the end of the wait",
        },
    ])
}

pub(super) fn comparison(algorithms: &[Algorithm]) -> String {
    let mut table = vec![
        "| algorithm | guarantee | exactness | bytes per subject |".to_owned(),
        "|---|---|---|---|".to_owned(),
    ];
    table.extend(algorithms.iter().map(|algorithm| {
        let Algorithm { name, page, guarantee, limit, bytes, .. } = algorithm;
        let exactness = limit.exactness().name();
        format!("| [{name}]({page}) | {guarantee} | {exactness} | {bytes} |")
    }));
    table.join("\n")
}

pub(super) fn refunds(algorithms: &[Algorithm]) -> String {
    let mut table = vec!["| algorithm | refund | retry-after |".to_owned(), "|---|---|---|".to_owned()];
    table.extend(algorithms.iter().map(|algorithm| {
        let Algorithm { name, refund, retry, .. } = algorithm;
        format!("| {name} | {refund} | {retry} |")
    }));
    table.join("\n")
}

/// Shows which algorithm supports which operation, by trying every operation.
pub(super) fn operations(algorithms: &[Algorithm]) -> String {
    let (token, now) = (Token(1), Time::MAX.minus(MINUTE));
    let groups: [(&str, &[Operation]); 8] = [
        ("charge, peek", &[Operation::charge(1), Operation::Peek { cost: 1 }]),
        ("record", &[Operation::Record { cost: 1 }]),
        ("credit", &[Operation::Credit { cost: 1 }]),
        ("refund", &[Operation::refund(Mark::None, 1)]),
        ("renew, release", &[Operation::Renew { token }, Operation::Release { token }]),
        (
            "reserve, extend, settle, cancel",
            &[
                Operation::Reserve { cost: 1, token, hold: MINUTE },
                Operation::Extend { token, more: 1, hold: MINUTE },
                Operation::Settle { token, actual: 1 },
                Operation::Cancel { token },
            ],
        ),
        ("report", &[Operation::Report { result: Report::Success }]),
        ("reset", &[Operation::Reset { receipt_life: Span::ZERO }]),
    ];
    let names: Vec<&str> = groups.iter().map(|(names, _)| *names).collect();
    let mut table = vec![
        format!("| algorithm | {} |", names.join(" | ")),
        format!("|---{}|", "|---".repeat(groups.len())),
    ];
    let unsupported = Verdict::Declined(Decline::NotSupported);
    table.extend(algorithms.iter().map(|algorithm| {
        let answers = groups.iter().map(|(_, operations)| {
            let declined =
                |operation| algorithm.limit.decide(None, now, operation).answer.verdict == unsupported;
            if operations.iter().any(declined) { "no" } else { "yes" }
        });
        format!("| {} | {} |", algorithm.name, answers.collect::<Vec<&str>>().join(" | "))
    }));
    table.join("\n")
}
