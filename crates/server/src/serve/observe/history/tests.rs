//! The history against plain sums of what was counted.

use serde_json::{Value, json};

use super::*;

const START: u64 = 1_790_000_000;

fn sample(at_s: u64, refused: u64, rules: &[&str]) -> Sample {
    let sums = [10 * refused, refused, 0, 0, 0];
    Sample {
        at_s,
        total: sums,
        rules: rules.iter().map(|rule| (Arc::from(*rule), sums)).collect(),
        store: [0; LatencyCounts::BUCKETS],
    }
}

fn report(history: &History, range: &str) -> Value {
    history.report(Range::of(range).expect("a known range"), None)
}

fn sum(column: &Value) -> u64 {
    column.as_array().expect("a column").iter().filter_map(Value::as_u64).sum()
}

#[test]
fn every_range_has_what_was_counted_in_it() {
    let history = History::default();
    // One refusal per second for two hours.
    for second in 0..=7_200 {
        history.note(&sample(START + second, second, &["search"]));
    }
    for (range, refused) in [("2m", 120), ("15m", 891), ("1h", 3_591), ("24h", 7_200)] {
        let found = report(&history, range);
        // The newest slot is not full yet.
        let count = sum(&found["total"]["refused"]);
        assert!(count.abs_diff(refused) <= 9, "{range}: {count} instead of {refused}");
        assert_eq!(sum(&found["total"]["allowed"]), 10 * count, "{range}");
        assert_eq!(found["rules"][0]["refused"], json!(count), "{range}");
        assert_eq!(sum(&found["rules"][0]["line"]), count, "{range}");
    }
}

#[test]
fn what_was_counted_before_the_start_belongs_to_no_second() {
    let history = History::default();
    history.note(&sample(START, 1_000_000, &["search"]));
    history.note(&sample(START + 1, 1_000_003, &["search"]));
    assert_eq!(sum(&report(&history, "2m")["total"]["refused"]), 3);
    assert_eq!(report(&history, "2m")["rules"][0]["refused"], 3);
}

#[test]
fn seconds_without_a_sample_are_gaps_and_not_zeros() {
    let history = History::default();
    history.note(&sample(START, 0, &["search"]));
    history.note(&sample(START + 1, 1, &["search"]));
    history.note(&sample(START + 11, 2, &["search"]));
    let found = report(&history, "2m");
    let column = found["total"]["refused"].as_array().expect("a column");
    let last: Vec<&Value> = column.iter().rev().take(12).rev().collect();
    assert_eq!(last[..2], [&json!(0), &json!(1)]);
    assert!(last[2..11].iter().all(|slot| slot.is_null()), "{last:?}");
    assert_eq!(last[11], &json!(1));
    assert!(column[..108].iter().all(Value::is_null), "before the start: {column:?}");
}

#[test]
fn a_clock_set_back_adds_to_the_newest_second() {
    let history = History::default();
    history.note(&sample(START, 0, &["search"]));
    history.note(&sample(START + 5, 1, &["search"]));
    history.note(&sample(START + 2, 3, &["search"]));
    let found = report(&history, "2m");
    assert_eq!(found["total"]["refused"].as_array().and_then(|column| column.last()), Some(&json!(3)));
}

#[test]
fn a_counter_that_starts_again_is_counted_from_zero() {
    let history = History::default();
    for (second, refused) in [(0, 0), (1, 50), (2, 4)] {
        history.note(&sample(START + second, refused, &["search"]));
    }
    assert_eq!(sum(&report(&history, "2m")["total"]["refused"]), 54);
}

#[test]
fn the_number_of_rules_is_bounded_and_the_rest_share_a_line() {
    let history = History::default();
    let names: Vec<String> = (0..RULES_MAX + 50).map(|number| format!("rule-{number:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    history.note(&sample(START, 0, &names));
    history.note(&sample(START + 1, 2, &names));
    let found = report(&history, "2m");
    let rules = found["rules"].as_array().expect("rules");
    assert_eq!(rules.len(), RULES_MAX + 1);
    let other = rules.iter().find(|rule| rule["rule"] == OTHER).expect("the others");
    assert_eq!(other["refused"], 100);
    // Rules that were removed make room for new ones.
    history.note(&sample(START + 2, 3, &["new"]));
    let found = report(&history, "2m");
    assert!(found["rules"].as_array().expect("rules").iter().any(|rule| rule["rule"] == "new"));
}

#[test]
fn the_memory_is_that_of_the_documentation_whatever_is_counted() {
    let history = History::default();
    let names: Vec<String> = (0..2 * RULES_MAX).map(|number| format!("rule-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    // More than a day, with rules that come and go, and a gap.
    for second in (0..90_000).step_by(900).chain([200_000, 200_001]) {
        let some = second as usize / 900 % RULES_MAX;
        history.note(&sample(START + second, second, &names[some..some + RULES_MAX]));
    }
    let inner = history.inner.lock();
    assert!(inner.rules.len() <= RULES_MAX + 1, "{}", inner.rules.len());
    for series in inner.rules.values() {
        assert_eq!(series.rings.bytes(), 38_400, "docs/operating/dashboard.md states it");
    }
    assert_eq!(inner.store.rings.bytes(), 1_920 * LatencyCounts::BUCKETS * size_of::<u32>());
}

#[test]
fn viewers_are_limited_and_a_place_comes_back() {
    let history = History::default();
    let mut viewers: Vec<_> = (0..VIEWERS_MAX).map(|_| history.follow().expect("there is a place")).collect();
    assert!(history.follow().is_none());
    viewers.pop();
    assert!(history.follow().is_some());
}
