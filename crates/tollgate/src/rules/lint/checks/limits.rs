//! Lints about the numbers of a single limit.

use tollgate_core::algorithm::bucket::{Bucket, BucketKind};
use tollgate_core::algorithm::sliding_log::{ENTRIES_MAX, SlidingLog};
use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate_core::rules::{Cost, RuleLimit};
use tollgate_core::time::calendar::Period;
use tollgate_core::{Limit, Span};

use crate::rules::lint::Findings;
use crate::rules::lint::context::{Context, WrittenLimit, rate_text, readable};
use crate::shorthand::Rate;

/// Bytes of one log entry. All stores use the same layout.
const ENTRY_BYTES: u64 = 16;

/// Logs that can grow larger than this for one subject are reported.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// Up to this limit the advice is a sliding log, above it a sliding window.
const LOG_ADVICE_MAX: u64 = 1_000;

pub(in crate::rules::lint) fn bucket_burst(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.limits() {
        let RuleLimit::Fixed(Limit::Bucket(bucket)) = written.limit else { continue };
        // A shaper delays what it admits, so it has no burst.
        let saved = match bucket.kind() {
            BucketKind::Tokens => "burst",
            BucketKind::Meter => "capacity",
            BucketKind::Queue => continue,
        };
        let Some((key, rate)) = written.rate(&["token-bucket", "leaky-bucket"]) else { continue };
        let incoming = incoming(bucket, rate.period);
        let (amount, most) = (u128::from(rate.amount), u128::from(bucket.capacity()) + incoming);
        if most <= amount {
            continue;
        }
        let message = format!(
            "after {} without a request, {} can admit {most} in {}, not {amount}: {} at once and {incoming} \
             refilled",
            readable(bucket.fill_time()),
            written.whose,
            rate.period,
            bucket.capacity(),
        );
        let fix = smaller_burst(saved, bucket, &written, rate);
        let span = written.span_of(if written.has(saved) { saved } else { key });
        found.push(found.note(span, message, written.fix(fix)));
    }
}

/// Advice for a smaller burst under which every request can still be admitted.
fn smaller_burst(key: &str, bucket: &Bucket, written: &WrittenLimit<'_>, rate: Rate) -> String {
    let (highest_cost, is_exact) = match written.cost {
        Cost::FromRequest => (1, true),
        Cost::Expression { default, .. } => (*default, false),
        cost => (cost.max_cost().unwrap_or(1), true),
    };
    let mut ways = Vec::new();
    let incoming = incoming(bucket, rate.period);
    let least = u128::from(rate.amount).saturating_sub(incoming).max(u128::from(highest_cost)).max(1);
    if is_exact && least < u128::from(bucket.capacity()) {
        ways.push(format!("`{key}: {least}` keeps it at {}", least + incoming));
    }
    if highest_cost <= rate.amount {
        ways.push(at_most(rate));
    }
    match ways.is_empty() {
        true => "a smaller burst needs lower costs".to_owned(),
        false => ways.join("; "),
    }
}

/// The units that refill from the first to the last tick of a span.
pub(in crate::rules::lint) fn incoming(bucket: &Bucket, span: Span) -> u128 {
    let ticks = u128::from(span.us() / bucket.tick().us());
    let (drain, scale) = bucket.rate();
    ticks.saturating_sub(1) * u128::from(drain) / u128::from(scale)
}

/// Advice for a limit that holds in any window.
fn at_most(Rate { amount, period }: Rate) -> String {
    let instead = if amount <= LOG_ADVICE_MAX {
        format!("{{ sliding-log: {} }}", rate_text(amount, period))
    } else {
        strict_window(amount, period, 10).0
    };
    format!("for at most {amount} in any {period}, write `{instead}`")
}

/// A strict sliding window as YAML, and its size in a store.
fn strict_window(amount: u64, period: Span, buckets_max: u64) -> (String, u64) {
    let fits = |buckets: &u64| SlidingWindow::new(amount, period, *buckets, Counting::Strict).is_ok();
    let buckets = (1..=buckets_max).rev().find(fits).unwrap_or(1);
    let rate = rate_text(amount, period);
    let text = format!("{{ sliding-window: {rate}, buckets: {buckets}, counting: strict }}");
    (text, 24 + 8 * (buckets + 1))
}

pub(in crate::rules::lint) fn window_edge_burst(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.limits() {
        let RuleLimit::Fixed(Limit::FixedWindow(window)) = written.limit else { continue };
        let (limit, length) = (window.limit(), window.window());
        let message = format!(
            "{} can admit {} in {length} around a window edge: {limit} at the end of one window and {limit} \
             at the start of the next",
            written.whose,
            2 * u128::from(limit),
        );
        let fix = at_most(Rate { amount: limit, period: length });
        found.push(found.note(written.span_of("fixed-window"), message, written.fix(fix)));
    }
}

pub(in crate::rules::lint) fn estimated_count(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.limits() {
        let RuleLimit::Fixed(Limit::SlidingWindow(window)) = written.limit else { continue };
        let (limit, length) = (window.limit(), window.window());
        if window.counting() == Counting::Strict || limit == 1 {
            continue;
        }
        let most = 2 * u128::from(limit) - 1;
        let message = format!(
            "{} counts by estimate: a client that times its requests can get {most} in {length}, not {limit}",
            written.whose,
        );
        let bucket = Span::from_us(length.us() / window.buckets());
        let fix = format!(
            "`counting: strict` never admits more than {limit}; it may refuse a request up to {bucket} too long"
        );
        found.push(found.note(written.span_of("counting"), message, written.fix(fix)));
    }
}

pub(in crate::rules::lint) fn log_memory(context: &Context<'_>, found: &mut Findings<'_>) {
    for (written, log) in logs(context) {
        let entries = log.entries().min(entries_needed(&log, written.cost));
        let bytes = entries * ENTRY_BYTES;
        if bytes <= LOG_BYTES_MAX {
            continue;
        }
        let tenths = bytes * 10 / LOG_BYTES_MAX;
        let message = format!(
            "the log of one subject under {} can grow to {entries} entries, {}.{} MiB",
            written.whose,
            tenths / 10,
            tenths % 10,
        );
        let key = if written.has("entries") { "entries" } else { "sliding-log" };
        found.push(found.warning(written.span_of(key), message, buckets_instead(&log)));
    }
}

pub(in crate::rules::lint) fn log_entries(context: &Context<'_>, found: &mut Findings<'_>) {
    for (written, log) in logs(context) {
        let (entries, needed) = (log.entries(), entries_needed(&log, written.cost));
        if needed <= entries {
            continue;
        }
        let message = format!(
            "{} keeps {entries} entries, but its limit admits {needed} requests: requests beyond {entries} \
             may be refused",
            written.whose,
        );
        let fix = if needed <= ENTRIES_MAX && needed * ENTRY_BYTES <= LOG_BYTES_MAX {
            format!("`entries: {needed}` is enough")
        } else {
            buckets_instead(&log)
        };
        let key = if written.has("entries") { "entries" } else { "sliding-log" };
        found.push(found.warning(written.span_of(key), message, fix));
    }
}

fn logs<'a>(context: &Context<'a>) -> impl Iterator<Item = (WrittenLimit<'a>, SlidingLog)> {
    context.limits().into_iter().filter_map(|written| match written.limit {
        RuleLimit::Fixed(Limit::SlidingLog(log)) => Some((written, *log)),
        _ => None,
    })
}

/// The largest number of entries that can count at once: the limit divided by the smallest cost.
fn entries_needed(log: &SlidingLog, cost: &Cost) -> u64 {
    let least = match cost {
        Cost::FromRequest | Cost::One | Cost::Expression { .. } => 1,
        Cost::Constant(cost) => *cost,
        // A request of cost 0 adds no entry.
        Cost::Table { costs, default, .. } => {
            costs.values().chain([default]).copied().filter(|&cost| cost > 0).min().unwrap_or(1)
        }
    };
    log.limit() / least.max(1)
}

fn buckets_instead(log: &SlidingLog) -> String {
    let (instead, bytes) = strict_window(log.limit(), log.window(), 60);
    format!("`{instead}` keeps the same bound in {bytes} bytes")
}

pub(in crate::rules::lint) fn quota_without_zone(context: &Context<'_>, found: &mut Findings<'_>) {
    for written in context.limits() {
        let RuleLimit::Calendar { calendar, .. } = written.limit else { continue };
        let period = match calendar.period() {
            // In almost all zones hours start at the same time as in UTC.
            Period::Hour => continue,
            Period::Day => "days",
            Period::Week { .. } => "weeks",
            Period::Month { .. } => "months",
            Period::Year { .. } => "years",
        };
        if !written.has("zone") {
            let message =
                format!("the {period} of {} start at midnight UTC, because `zone` is not set", written.whose);
            let fix = "set the zone of the contract, like `zone: Europe/Berlin`, or write `zone: UTC` if that \
                       is intended";
            found.push(found.warning(written.span_of("quota"), message, fix));
        }
    }
}
