//! Limits as they are written in a rules file.

use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::meter::Meter;
use tollgate_core::algorithm::penalty::{Penalty, PenaltyNumbers};
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate_core::calendar::{Calendar, CalendarError, Period, Weekday};
use tollgate_core::rules::RuleLimit;
use tollgate_core::{Limit, LimitError, Span};

use super::{file_shape, words};
use crate::shorthand;
use tollgate_document::{Entry, Node, Problem, Problems, SourceSpan, check, quote, suggest};

const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

/// The limit that a checked node stands for; `None` after a problem was reported, now or by the check.
pub(super) fn limit(node: &Node, problems: &mut Problems) -> Option<RuleLimit> {
    if node.text() == Some("deny") {
        return Some(RuleLimit::Deny);
    }
    let first = ALGORITHMS.iter().find_map(|(key, read)| node.entry(key).map(|entry| (entry, read)));
    let (entry, read) = first?;
    read(&Reading { node, entry }, problems)
}

type Read = fn(&Reading<'_>, &mut Problems) -> Option<RuleLimit>;

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

/// A limit's node and the entry that names the algorithm.
struct Reading<'n> {
    node: &'n Node,
    entry: &'n Entry,
}

impl Reading<'_> {
    fn rate(&self) -> Option<shorthand::Rate> {
        shorthand::rate(self.entry.value.text()?).ok()
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.node.get(key)?.u64()
    }

    fn span(&self, key: &str) -> Option<Span> {
        shorthand::span(self.node.get(key)?.text()?).ok()
    }

    /// The limit, or a problem that says which numbers would do.
    fn made(&self, made: Result<Limit, LimitError>, problems: &mut Problems) -> Option<RuleLimit> {
        made.map(RuleLimit::Fixed).map_err(|error| self.impossible(&error, problems)).ok()
    }

    fn impossible(&self, error: &LimitError, problems: &mut Problems) {
        let span = match error {
            // Some of these are out of the shape's range too, and were reported as that.
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

    /// Where a number stands, by its name in the core: under a key of that name, or beside the algorithm.
    fn span_of(&self, what: &str) -> SourceSpan {
        let key = if what == "capacity" { "burst" } else { what };
        let value = self.node.get(what).or_else(|| self.node.get(key));
        value.map_or(self.entry.value.span, |value| value.span)
    }
}

fn fixed_window(read: &Reading<'_>, problems: &mut Problems) -> Option<RuleLimit> {
    let rate = read.rate()?;
    read.made(FixedWindow::new(rate.amount, rate.period).map(Limit::FixedWindow), problems)
}

fn sliding_window(read: &Reading<'_>, problems: &mut Problems) -> Option<RuleLimit> {
    let rate = read.rate()?;
    let buckets = read.number("buckets").unwrap_or(6);
    let counting = match read.node.get("counting").and_then(Node::text) {
        Some("interpolated") => Counting::Interpolated,
        _ => Counting::Strict,
    };
    read.made(
        SlidingWindow::new(rate.amount, rate.period, buckets, counting).map(Limit::SlidingWindow),
        problems,
    )
}

fn sliding_log(read: &Reading<'_>, problems: &mut Problems) -> Option<RuleLimit> {
    let rate = read.rate()?;
    let made = match read.number("entries") {
        Some(entries) => SlidingLog::with_entries(rate.amount, rate.period, entries),
        None => SlidingLog::new(rate.amount, rate.period),
    };
    read.made(made.map(Limit::SlidingLog), problems)
}

fn token_bucket(read: &Reading<'_>, problems: &mut Problems) -> Option<RuleLimit> {
    let rate = read.rate()?;
    let burst = read.number("burst").unwrap_or(rate.amount);
    read.made(Bucket::tokens(rate.amount, rate.period, burst).map(Limit::Bucket), problems)
}

fn leaky_bucket(read: &Reading<'_>, problems: &mut Problems) -> Option<RuleLimit> {
    let made = match (read.node.get("capacity"), read.node.get("queue")) {
        (Some(_), None) => {
            let (rate, capacity) = (read.rate()?, read.number("capacity")?);
            Bucket::meter(rate.amount, rate.period, capacity)
        }
        (None, Some(_)) => {
            let (rate, queue) = (read.rate()?, read.number("queue")?);
            Bucket::queue(rate.amount, rate.period, queue)
        }
        (both, _) => {
            let message = match both {
                Some(_) => "a leaky bucket has either a `capacity` or a `queue`, not both",
                None => "a leaky bucket needs a `capacity` or a `queue`",
            };
            problems.push(
                Problem::error("leaky-bucket-reading", read.node.span, message)
                    .help("`capacity: 50` refuses above 50; `queue: 50` delays, with at most 50 waiting"),
            );
            return None;
        }
    };
    read.made(made.map(Limit::Bucket), problems)
}

fn concurrency(read: &Reading<'_>, problems: &mut Problems) -> Option<RuleLimit> {
    let (limit, lease) = (read.entry.value.u64()?, read.span("lease")?);
    read.made(Concurrency::new(limit, lease).map(Limit::Concurrency), problems)
}

fn meter(read: &Reading<'_>, problems: &mut Problems) -> Option<RuleLimit> {
    let limit = match read.entry.value.text() {
        Some("unlimited") => None,
        _ => Some(read.entry.value.u64()?),
    };
    read.made(Meter::new(limit, read.span("expiry")).map(Limit::Meter), problems)
}

fn penalty(read: &Reading<'_>, problems: &mut Problems) -> Option<RuleLimit> {
    let base = shorthand::span(read.entry.value.text()?).ok()?;
    let longest = read.span("longest").unwrap_or(Span::from_secs(15 * 60));
    if base > longest {
        let message = format!("`penalty`: the first wait of {base} is longer than the longest, {longest}");
        problems.push(
            Problem::error("impossible-limit", read.entry.value.span, message)
                .help(format!("shorten it, or write `longest: {base}` or more")),
        );
        return None;
    }
    let numbers = PenaltyNumbers {
        free: read.number("free").unwrap_or(3),
        base,
        factor: read.number("factor").unwrap_or(2),
        longest,
        memory: read.span("memory").unwrap_or(Span::from_secs(3_600)),
        count_refused: read.node.get("count_refused").and_then(Node::bool).unwrap_or(false),
    };
    read.made(Penalty::new(numbers).map(Limit::Penalty), problems)
}

fn quota(read: &Reading<'_>, problems: &mut Problems) -> Option<RuleLimit> {
    // Everything is read before anything is given up, so that all problems are found.
    let amount = read.entry.value.text().and_then(|text| words::quota(text).ok());
    let allowance = amount.map_or(0, |(allowance, _)| allowance);
    let grace = read.node.get("grace").map_or(Some(0), |node| grace(node, allowance, problems));
    let (_, period) = amount?;
    let made = if read.node.get("period").is_some() {
        let length = rolling(read, period, problems);
        let period = QuotaPeriod::Rolling(length?);
        Quota::new(allowance, grace?, period).map(|quota| RuleLimit::Fixed(Limit::Quota(quota)))
    } else {
        let calendar = calendar(read, period, problems);
        RuleLimit::quota(allowance, grace?, calendar?)
    };
    made.map_err(|error| read.impossible(&error, problems)).ok()
}

/// `5%` of the allowance, rounded down, or a number of units.
fn grace(node: &Node, allowance: u64, problems: &mut Problems) -> Option<u64> {
    let text = node.text()?;
    let found = if text.contains('%') {
        words::percent(text).map(|points| (u128::from(allowance) * u128::from(points) / 10_000) as u64)
    } else {
        tollgate_document::number(text).map_err(|_| format!("{} is no amount", node.found()))
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
fn rolling(read: &Reading<'_>, period: &str, problems: &mut Problems) -> Option<Span> {
    for key in ["zone", "starts"] {
        if let Some(entry) = read.node.entry(key) {
            problems.push(
                Problem::error("rolling-calendar", entry.key.span, format!("a rolling quota has no `{key}`"))
                    .help("it starts with the first use; drop `period: rolling` to follow the calendar"),
            );
        }
    }
    match words::span(period) {
        Ok(()) => shorthand::span(period).ok(),
        Err(message) => {
            problems.push(
                Problem::error("bad-quota", read.entry.value.span, format!("`quota`: {message}")).help(
                    "a rolling period has a length, like 30d; drop `period: rolling` to follow the calendar",
                ),
            );
            None
        }
    }
}

fn calendar(read: &Reading<'_>, period: &str, problems: &mut Problems) -> Option<Calendar> {
    let period = calendar_period(read, period, problems);
    let zone = read.node.get("zone").map_or(Some("UTC"), Node::text)?;
    // A wrong period does not hide a wrong zone.
    let error = match Calendar::new(period.unwrap_or(Period::Day), zone) {
        Ok(calendar) => return period.map(|_| calendar),
        Err(error) => error,
    };
    let key = if matches!(error, CalendarError::UnknownZone { .. }) { "zone" } else { "starts" };
    let span = read.node.get(key).map_or(read.node.span, |node| node.span);
    problems.push(Problem::error("bad-calendar", span, format!("`{key}`: {error}")));
    None
}

fn calendar_period(read: &Reading<'_>, period: &str, problems: &mut Problems) -> Option<Period> {
    let starts = read.node.get("starts");
    match period {
        "hour" | "day" => {
            if let Some(entry) = read.node.entry("starts") {
                problems.push(
                    Problem::error("bad-start", entry.key.span, format!("a quota by the {period} has no `starts`"))
                        .help("hours and days begin by the clock of the zone; weeks, months and years have `starts`"),
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
                None => wrong_start(starts, "a weekday from monday to sunday", near, problems),
            }
        }
        "month" => match starts.map_or(Some(1), Node::u64) {
            Some(day @ 1..=31) => Some(Period::Month { day: day as u8 }),
            _ => wrong_start(starts, "a day of the month from 1 to 31", None, problems),
        },
        "year" => {
            let date = starts.map_or(Some("01-01"), Node::text)?;
            let parts = date.split_once('-').map(|(month, day)| (month.parse(), day.parse()));
            match parts {
                Some((Ok(month), Ok(day))) => Some(Period::Year { month, day }),
                _ => wrong_start(starts, "a month and a day like 04-06", None, problems),
            }
        }
        _ => {
            let names = ["hour", "day", "week", "month", "year"];
            let message =
                format!("`quota`: {} is no calendar period; there are {}", quote(period), names.join(", "));
            let problem = Problem::error("bad-quota", read.entry.value.span, message);
            problems.push(match suggest(period, names) {
                Some(near) => problem.label(format!("did you mean `{near}`?")),
                None => {
                    problem.help("for a length of time that starts with the first use add `period: rolling`")
                }
            });
            None
        }
    }
}

/// Reports a `starts` that says nothing, if it is there and was not reported by the check.
fn wrong_start(
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
