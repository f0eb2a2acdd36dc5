//! Tests of the lints about single limits.

use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::{Limit, Operation, Retry, Span, State, Verdict};

use super::*;
use crate::rules::lint::checks::limits;
use crate::rules::lint::context;
use crate::shorthand;

#[test]
fn messages_state_the_numbers() {
    for (limit, code, number) in [
        ("{ token-bucket: 100/min, burst: 20 }", "bucket-burst", "can admit 119 in 1min, not 100"),
        ("{ token-bucket: 100/min }", "bucket-burst", "can admit 199 in 1min, not 100"),
        (
            "{ token-bucket: 2/s, burst: 240 }",
            "bucket-burst",
            "after 2min without a request, rule `a` can admit 241 in 1s",
        ),
        ("{ leaky-bucket: 10/s, capacity: 50 }", "bucket-burst", "can admit 59 in 1s"),
        ("{ fixed-window: 100/min }", "window-edge-burst", "can admit 200 in 1min"),
        ("{ sliding-window: 1000/min, counting: interpolated }", "estimated-count", "can get 1999 in 1min"),
        ("{ sliding-log: 1000000/h, entries: 1000000 }", "log-memory", "1000000 entries, 15.2 MiB"),
        ("{ sliding-log: 100000/h }", "log-entries", "keeps 65536 entries, but its limit admits 100000"),
        ("{ quota: 1000/day }", "quota-without-zone", "the days of rule `a` start at midnight UTC"),
    ] {
        let message = message(&one(&format!("limit: {limit}")), code);
        assert!(message.contains(number), "{message}");
    }
}

#[test]
fn limits_that_hold_their_numbers_are_not_reported() {
    for limit in [
        "{ token-bucket: 5/us }",
        "{ leaky-bucket: 10/s, queue: 50 }",
        "{ sliding-window: 1/min, counting: interpolated }",
        "{ sliding-log: 65536/h }",
        "{ sliding-log: 10/h, entries: 1000000 }",
        "{ quota: 100/hour }",
        "{ quota: 100/30d, period: rolling }",
    ] {
        assert_eq!(codes(&one(&format!("limit: {limit}")), false), BTreeSet::new(), "{limit}");
    }
}

#[test]
fn the_advised_limit_has_no_findings() {
    for limit in [
        "{ token-bucket: 100/min }",
        "{ token-bucket: 2000/s }",
        "{ token-bucket: 1000003/7s }",
        "{ leaky-bucket: 10/s, capacity: 50 }",
        "{ fixed-window: 5000/h }",
        "{ fixed-window: 3/1us }",
        "{ sliding-log: 1000000/s, entries: 1000000 }",
        "{ sliding-log: 100000/999983us }",
    ] {
        let (_, problems) = linted(&one(&format!("limit: {limit}")), &options(false));
        let help = problems.in_order()[0].help.clone().unwrap_or_default();
        let advised: Vec<&str> = help.split('`').filter(|text| text.starts_with('{')).collect();
        assert_eq!(advised.len(), 1, "{help}");
        assert_eq!(codes(&one(&format!("limit: {}", advised[0])), false), BTreeSet::new(), "{help}");
    }
}

#[test]
fn a_smaller_burst_is_advised_only_if_it_admits_every_cost() {
    let advised = |rest: &str| {
        let text = one(&format!("limit: {{ token-bucket: 10/s, burst: 50 }}{rest}"));
        linted(&text, &options(false)).1.in_order()[0].help.clone().unwrap_or_default()
    };
    assert!(advised("").starts_with("`burst: 1` keeps it at 10; for at most 10"));
    assert!(advised(", cost: 7").starts_with("`burst: 7` keeps it at 16; for at most 10"));
    assert_eq!(advised(", cost: 20"), "`burst: 20` keeps it at 29");
    assert_eq!(advised(", cost: 50"), "a smaller burst needs lower costs");
    assert!(advised(", cost: { expression: 'int(tokens)', default: 1 }").starts_with("for at most 10"));
    let dear = advised(", cost: { expression: 'int(tokens)', default: 11 }");
    assert_eq!(dear, "a smaller burst needs lower costs");
}

#[test]
fn spans_and_rates_are_formatted_in_readable_units() {
    let us = |us| context::readable(Span::from_us(us)).to_string();
    assert_eq!([us(33_333_334), us(120_000_000), us(5_500_001), us(9)], ["34s", "2min", "5501ms", "9us"]);
    let rate = |text: &str| {
        let rate = shorthand::rate(text).unwrap();
        context::rate_text(rate.amount, rate.period)
    };
    assert_eq!([rate("5/min"), rate("5/10s"), rate("5/60s")], ["5/min", "5/10s", "5/min"]);
}

#[test]
fn a_bucket_admits_in_one_period_exactly_the_reported_number() {
    for (rate, capacity) in
        [("100/min", 20), ("100/min", 100), ("7/3s", 1), ("2/s", 240), ("999983/31d", 999_983), ("5/us", 3)]
    {
        let rate = shorthand::rate(rate).unwrap();
        let bucket = Bucket::tokens(rate.amount, rate.period, capacity).unwrap();
        let reported = u128::from(capacity) + limits::incoming(&bucket, rate.period);
        assert_eq!(most_admitted(bucket, rate.period), reported, "{rate:?} {capacity}");
    }
}

/// How much a client gets in one period if it takes each unit as soon as it is available.
fn most_admitted(bucket: Bucket, period: Span) -> u128 {
    let limit = Limit::Bucket(bucket);
    let last = NOW.plus(period).minus(Span::from_us(bucket.tick().us()));
    let (mut state, mut now, mut admitted) = (None, NOW, 0);
    loop {
        let step = limit.decide(state.as_ref(), now, &Operation::charge(1));
        match (step.write, step.answer.verdict) {
            (Some(write), _) => {
                State::commit(&mut state, write.change);
                admitted += 1;
            }
            (None, Verdict::Refused(Retry::At(retry))) if retry <= last => now = retry,
            (None, _) => return admitted,
        }
    }
}
