//! Converts the `limit` of a rules file to a [`RuleLimit`].

use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::meter::Meter;
use tollgate_core::algorithm::penalty::{Penalty, PenaltyNumbers};
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate_core::rules::RuleLimit;
use tollgate_core::time::calendar::{Calendar, CalendarError, Period, Weekday};
use tollgate_core::{Limit, LimitError, Span};

use super::{file_shape, notation};
use crate::shorthand;
use tollgate_document::{Entry, Node, Problem, Problems, SourceSpan, check, quote, suggest};

/// The number of buckets of a sliding window that does not set it, if that divides the window.
const BUCKETS_DEFAULT: u64 = 6;

const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

/// Converts a checked node to a limit. Returns `None` if this function or the check reported a problem.
pub(super) fn limit(node: &Node, problems: &mut Problems) -> Option<RuleLimit> {
    if node.text() == Some("deny") {
        return Some(RuleLimit::Deny);
    }
    let first = ALGORITHMS.iter().find_map(|(key, read)| node.entry(key).map(|entry| (entry, read)));
    let (entry, read) = first?;
    read(&LimitNode { node, entry }, problems)
}

type Read = fn(&LimitNode<'_>, &mut Problems) -> Option<RuleLimit>;

const ALGORITHMS: [(&str, Read); 9] = [
    ("fixed-window", fixed_window),
    ("sliding-window", sliding_window),
    ("sliding-log", sliding_log),
    ("token-bucket", token_bucket),
    ("leaky-bucket", leaky_bucket),
    ("concurrency", concurrency),
    ("quota", quota),
    ("meter", meter),
    ("penalty", penalty),
];

/// The node of a limit, and the entry that names its algorithm.
struct LimitNode<'n> {
    node: &'n Node,
    entry: &'n Entry,
}

impl LimitNode<'_> {
    fn rate(&self) -> Option<shorthand::Rate> {
        shorthand::rate(self.entry.value.text()?).ok()
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.node.get(key)?.u64()
    }

    fn span(&self, key: &str) -> Option<Span> {
        shorthand::span(self.node.get(key)?.text()?).ok()
    }

    /// Returns the limit, or reports why its numbers are impossible.
    fn or_report(&self, made: Result<Limit, LimitError>, problems: &mut Problems) -> Option<RuleLimit> {
        made.map(RuleLimit::Fixed).map_err(|error| self.report_impossible(&error, problems)).ok()
    }

    fn report_impossible(&self, error: &LimitError, problems: &mut Problems) {
        let span = match error {
            // The check has already reported numbers outside the shape's range.
            LimitError::Zero { .. } | LimitError::TooLarge { .. } if self.has_wrong_shape() => return,
            LimitError::Zero { what } | LimitError::TooLarge { what, .. } => self.span_of(what),
            _ => self.node.span,
        };
        let algorithm = self.entry.key.text().unwrap_or_default();
        problems.push(Problem::error("impossible-limit", span, format!("`{algorithm}`: {error}")));
    }

    fn has_wrong_shape(&self) -> bool {
        let mut found = Problems::new();
        check(file_shape::limit_shape(), self.node, &mut found);
        found.has_errors()
    }

    /// The span of a number by its name in core: the value of the key with that name, or of the algorithm.
    fn span_of(&self, what: &str) -> SourceSpan {
        let key = if what == "capacity" { "burst" } else { what };
        let value = self.node.get(what).or_else(|| self.node.get(key));
        value.map_or(self.entry.value.span, |value| value.span)
    }
}

fn fixed_window(written: &LimitNode<'_>, problems: &mut Problems) -> Option<RuleLimit> {
    let rate = written.rate()?;
    written.or_report(FixedWindow::new(rate.amount, rate.period).map(Limit::FixedWindow), problems)
}

fn sliding_window(written: &LimitNode<'_>, problems: &mut Problems) -> Option<RuleLimit> {
    let rate = written.rate()?;
    let counting = match written.node.get("counting").and_then(Node::text) {
        Some("interpolated") => Counting::Interpolated,
        _ => Counting::Strict,
    };
    let window = |buckets| SlidingWindow::new(rate.amount, rate.period, buckets, counting);
    let made = match written.number("buckets") {
        Some(buckets) => window(buckets),
        // One bucket divides every window.
        None => (1..=BUCKETS_DEFAULT).rev().map(window).find(is_even).unwrap_or_else(|| window(1)),
    };
    written.or_report(made.map(Limit::SlidingWindow), problems)
}

/// Whether the buckets divide the window. Other faults of the numbers are reported.
fn is_even(made: &Result<SlidingWindow, LimitError>) -> bool {
    !matches!(made, Err(LimitError::UnevenBuckets { .. }))
}

fn sliding_log(written: &LimitNode<'_>, problems: &mut Problems) -> Option<RuleLimit> {
    let rate = written.rate()?;
    let made = match written.number("entries") {
        Some(entries) => SlidingLog::with_entries(rate.amount, rate.period, entries),
        None => SlidingLog::new(rate.amount, rate.period),
    };
    written.or_report(made.map(Limit::SlidingLog), problems)
}

fn token_bucket(written: &LimitNode<'_>, problems: &mut Problems) -> Option<RuleLimit> {
    let rate = written.rate()?;
    let burst = written.number("burst").unwrap_or(rate.amount);
    written.or_report(Bucket::tokens(rate.amount, rate.period, burst).map(Limit::Bucket), problems)
}

fn leaky_bucket(written: &LimitNode<'_>, problems: &mut Problems) -> Option<RuleLimit> {
    let made = match (written.node.get("capacity"), written.node.get("queue")) {
        (Some(_), None) => {
            let (rate, capacity) = (written.rate()?, written.number("capacity")?);
            Bucket::meter(rate.amount, rate.period, capacity)
        }
        (None, Some(_)) => {
            let (rate, queue) = (written.rate()?, written.number("queue")?);
            Bucket::queue(rate.amount, rate.period, queue)
        }
        (both, _) => {
            let message = match both {
                Some(_) => "a leaky bucket cannot have both a `capacity` and a `queue`",
                None => "a leaky bucket requires a `capacity` or a `queue`",
            };
            problems.push(
                Problem::error("leaky-bucket-reading", written.node.span, message)
                    .help("`capacity: 50` refuses above 50; `queue: 50` delays, with at most 50 waiting"),
            );
            return None;
        }
    };
    written.or_report(made.map(Limit::Bucket), problems)
}

fn concurrency(written: &LimitNode<'_>, problems: &mut Problems) -> Option<RuleLimit> {
    let (limit, lease) = (written.entry.value.u64()?, written.span("lease")?);
    written.or_report(Concurrency::new(limit, lease).map(Limit::Concurrency), problems)
}

fn meter(written: &LimitNode<'_>, problems: &mut Problems) -> Option<RuleLimit> {
    let limit = match written.entry.value.text() {
        Some("unlimited") => None,
        _ => Some(written.entry.value.u64()?),
    };
    written.or_report(Meter::new(limit, written.span("expiry")).map(Limit::Meter), problems)
}

fn penalty(written: &LimitNode<'_>, problems: &mut Problems) -> Option<RuleLimit> {
    let base = shorthand::span(written.entry.value.text()?).ok()?;
    let longest = written.span("longest").unwrap_or(Span::from_secs(15 * 60));
    if base > longest {
        let message = format!("`penalty`: the first wait {base} exceeds the longest wait {longest}");
        problems.push(
            Problem::error("impossible-limit", written.entry.value.span, message)
                .help(format!("shorten it, or set `longest` to {base} or more")),
        );
        return None;
    }
    let numbers = PenaltyNumbers {
        free: written.number("free").unwrap_or(3),
        base,
        factor: written.number("factor").unwrap_or(2),
        longest,
        memory: written.span("memory").unwrap_or(Span::from_secs(3_600)),
        count_refused: written.node.get("count_refused").and_then(Node::bool).unwrap_or(false),
    };
    written.or_report(Penalty::new(numbers).map(Limit::Penalty), problems)
}

fn quota(written: &LimitNode<'_>, problems: &mut Problems) -> Option<RuleLimit> {
    // Read everything before returning, so that all problems are reported.
    let amount = written.entry.value.text().and_then(|text| notation::quota(text).ok());
    let allowance = amount.map_or(0, |(allowance, _)| allowance);
    let grace = written.node.get("grace").map_or(Some(0), |node| grace(node, allowance, problems));
    let (_, period) = amount?;
    let made = if written.node.get("period").is_some() {
        let length = rolling(written, period, problems);
        let period = QuotaPeriod::Rolling(length?);
        Quota::new(allowance, grace?, period).map(|quota| RuleLimit::Fixed(Limit::Quota(quota)))
    } else {
        let calendar = calendar(written, period, problems);
        RuleLimit::quota(allowance, grace?, calendar?)
    };
    made.map_err(|error| written.report_impossible(&error, problems)).ok()
}

/// Parses the grace: a percentage of the allowance, rounded down, or a number of units.
fn grace(node: &Node, allowance: u64, problems: &mut Problems) -> Option<u64> {
    let text = node.text()?;
    let found = if text.contains('%') {
        notation::percent(text).map(|points| (u128::from(allowance) * u128::from(points) / 10_000) as u64)
    } else {
        tollgate_document::number(text).map_err(|_| format!("invalid amount {}", quote(text)))
    };
    match found {
        Ok(grace) => Some(grace),
        Err(message) => {
            problems.push(
                Problem::error("bad-grace", node.span, format!("`grace`: {message}"))
                    .help("write a number of units or a percentage, like 5%"),
            );
            None
        }
    }
}

/// The length of a rolling period.
fn rolling(written: &LimitNode<'_>, period: &str, problems: &mut Problems) -> Option<Span> {
    for key in ["zone", "starts"] {
        if let Some(entry) = written.node.entry(key) {
            problems.push(
                Problem::error(
                    "rolling-calendar",
                    entry.key.span,
                    format!("`{key}` is not allowed in a rolling quota"),
                )
                .help("a rolling quota starts with the first use; remove `period: rolling` to follow the calendar"),
            );
        }
    }
    match notation::check_duration(period) {
        Ok(()) => shorthand::span(period).ok(),
        Err(message) => {
            problems.push(
                Problem::error("bad-quota", written.entry.value.span, format!("`quota`: {message}")).help(
                    "a rolling period is a duration, like 30d; remove `period: rolling` to follow the calendar",
                ),
            );
            None
        }
    }
}

fn calendar(written: &LimitNode<'_>, period: &str, problems: &mut Problems) -> Option<Calendar> {
    let period = calendar_period(written, period, problems);
    let zone = written.node.get("zone").map_or(Some("UTC"), Node::text)?;
    // Check the zone even if the period is invalid.
    let error = match Calendar::new(period.unwrap_or(Period::Day), zone) {
        Ok(calendar) => return period.map(|_| calendar),
        Err(error) => error,
    };
    let key = if matches!(error, CalendarError::UnknownZone { .. }) { "zone" } else { "starts" };
    let span = written.node.get(key).map_or(written.node.span, |node| node.span);
    problems.push(Problem::error("bad-calendar", span, format!("`{key}`: {error}")));
    None
}

fn calendar_period(written: &LimitNode<'_>, period: &str, problems: &mut Problems) -> Option<Period> {
    let starts = written.node.get("starts");
    match period {
        "hour" | "day" => {
            if let Some(entry) = written.node.entry("starts") {
                problems.push(
                    Problem::error("bad-start", entry.key.span, format!("`starts` is not allowed in a quota per {period}"))
                        .help("hours and days follow the clock of the zone; only weeks, months and years have `starts`"),
                );
                return None;
            }
            Some(if period == "hour" { Period::Hour } else { Period::Day })
        }
        "week" => {
            let name = starts.map_or(Some("monday"), Node::text)?;
            let weekday = WEEKDAYS.into_iter().find(|(weekday, _)| *weekday == name);
            let near = suggest(name, WEEKDAYS.map(|(weekday, _)| weekday));
            match weekday {
                Some((_, starts)) => Some(Period::Week { starts }),
                None => report_start(starts, "a weekday from monday to sunday", near, problems),
            }
        }
        "month" => match starts.map_or(Some(1), Node::u64) {
            Some(day @ 1..=31) => Some(Period::Month { day: day as u8 }),
            _ => report_start(starts, "a day of the month from 1 to 31", None, problems),
        },
        "year" => {
            let date = starts.map_or(Some("01-01"), Node::text)?;
            let parts = date.split_once('-').map(|(month, day)| (month.parse(), day.parse()));
            match parts {
                Some((Ok(month), Ok(day))) => Some(Period::Year { month, day }),
                _ => report_start(starts, "a month and a day like 04-06", None, problems),
            }
        }
        _ => {
            let names = ["hour", "day", "week", "month", "year"];
            let message =
                format!("`quota`: unknown calendar period {}; use {}", quote(period), names.join(", "));
            let problem = Problem::error("bad-quota", written.entry.value.span, message);
            problems.push(match suggest(period, names) {
                Some(near) => problem.label(format!("did you mean `{near}`?")),
                None => problem.help("for a duration that starts with the first use, add `period: rolling`"),
            });
            None
        }
    }
}

/// Reports an invalid `starts`, unless the check has reported it.
fn report_start(
    starts: Option<&Node>,
    allowed: &str,
    near: Option<&str>,
    problems: &mut Problems,
) -> Option<Period> {
    if let Some(node) = starts.filter(|node| node.text().is_some()) {
        let message = format!("`starts`: found {}, expected {allowed}", node.found());
        let problem = Problem::error("bad-start", node.span, message);
        problems.push(match near {
            Some(near) => problem.label(format!("did you mean `{near}`?")),
            None => problem,
        });
    }
    None
}
