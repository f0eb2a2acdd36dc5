//! The shape of a limit: one form per algorithm.

use tollgate_core::algorithm::{concurrency, penalty, sliding_log, sliding_window};
use tollgate_document::Shape;
use tollgate_document::shape::{choice, fields, number, one_of, text};

use super::super::notation;
use super::scalars::{amount, duration, rate};

pub(super) fn limit() -> Shape {
    let rated = |what, key, doc| fields(what).required(key, rate(), doc);
    one_of("a limit")
        .or("Refuses everything.", choice(&[("deny", "No request is admitted.")]))
        .or(
            "Fixed window.",
            rated("a fixed window", "fixed-window", "The limit per window. Windows are aligned to the clock."),
        )
        .or(
            "Sliding window.",
            rated("a sliding window", "sliding-window", "The limit over the last window.")
                .optional(
                    "buckets",
                    number(1, sliding_window::BUCKETS_MAX),
                    "Number of parts that the window is counted in. Default: 6, or the next smaller number that divides \
                     the window; for `10/s` it is 5.",
                )
                .optional(
                    "counting",
                    choice(&[
                        ("strict", "The oldest part counts fully: the limit is never exceeded."),
                        ("interpolated", "The oldest part counts by its overlap: an estimate."),
                    ]),
                    "How the oldest part counts. Default: strict.",
                ),
        )
        .or(
            "Sliding log.",
            rated("a sliding log", "sliding-log", "The exact limit in any window.").optional(
                "entries",
                number(1, sliding_log::ENTRIES_MAX),
                "Maximum number of requests that the log keeps.",
            ),
        )
        .or(
            "Token bucket.",
            rated("a token bucket", "token-bucket", "The refill rate.").optional(
                "burst",
                amount(),
                "The capacity of the bucket. Default: the amount of the rate.",
            ),
        )
        .or(
            "Leaky bucket: with `capacity` a meter that refuses, with `queue` a shaper that delays.",
            rated("a leaky bucket", "leaky-bucket", "The drain rate.")
                .optional("capacity", amount(), "For a meter: the capacity above which it refuses.")
                .optional("queue", amount(), "For a shaper: the maximum number of waiting requests."),
        )
        .or(
            "Concurrency.",
            fields("a concurrency limit")
                .required(
                    "concurrency",
                    number(1, concurrency::LEASES_MAX),
                    "Maximum number of leases at the same time.",
                )
                .required("lease", duration(), "How long a lease lasts if it is neither released nor renewed."),
        )
        .or(
            "Quota.",
            fields("a quota")
                .required(
                    "quota",
                    text("an amount per period like 1000000/month")
                        .no_number()
                        .checked(|text| notation::quota(text).map(drop))
                        .pattern(r"^\s*[0-9_]+\s*/.*$")
                        .examples(&["1000000/month", "500/day"]),
                    "The allowance per calendar hour, day, week, month or year; with `period: rolling`, per \
                     duration.",
                )
                .optional(
                    "period",
                    choice(&[("rolling", "The period starts with the first use.")]),
                    "For a period of a fixed duration.",
                )
                .optional(
                    "zone",
                    text("a time zone like Europe/Berlin"),
                    "The time zone of the calendar. Default: UTC.",
                )
                .optional(
                    "starts",
                    text("a day"),
                    "When the period starts: a day of the month (1-31), a weekday, or for years a date like 04-06.",
                )
                .optional(
                    "grace",
                    text("an amount or a percentage"),
                    "Units that are admitted beyond the allowance. They are not part of `remaining`.",
                ),
        )
        .or(
            "Meter.",
            fields("a meter")
                .required(
                    "meter",
                    one_of("the limit of a meter")
                        .or("No limit.", choice(&[("unlimited", "The meter only counts.")]))
                        .or("The largest count.", amount()),
                    "A counter without a period.",
                )
                .optional(
                    "expiry",
                    duration(),
                    "The count is deleted after this time without use. Default: ten years.",
                ),
        )
        .or(
            "Penalty.",
            fields("a penalty")
                .required("penalty", duration(), "The first wait.")
                .optional("free", number(0, penalty::FREE_MAX), "Number of failures without a wait. Default: 3.")
                .optional(
                    "factor",
                    number(1, penalty::FACTOR_MAX),
                    "Each wait is this many times as long as the one before. Default: 2.",
                )
                .optional("longest", duration(), "The longest wait. Default: 15min.")
                .optional("memory", duration(), "How long failures count after a wait. Default: 1h.")
                .optional(
                    "count_refused",
                    Shape::Bool,
                    "Whether a refused request counts as a failure. Default: false.",
                ),
        )
        .into()
}
