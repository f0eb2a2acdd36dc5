use std::collections::BTreeSet;

use proptest::prelude::*;
use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::rules::{Planned, Request};
use tollgate_core::{Attributes, Limit, Operation, Retry, Span, State, SubjectHasher, Token, Verdict};

use super::*;
use crate::rules::{load, load_and_lint, presets};
use crate::shorthand;
use tollgate_document::{Colour, Severity};

const SHOP: &str = include_str!("../../../../../examples/rules/shop.yaml");

/// 2026-11-15T00:00:00Z.
const NOW: Time = Time::from_us(1_794_700_800_000_000);

fn options(cluster: bool) -> LintOptions {
    LintOptions { cluster, ..LintOptions::new(NOW) }
}

/// The findings on a file without errors.
fn linted(text: &str, options: &LintOptions) -> (Source, Problems) {
    let source = Source::new("rules.yaml", text.as_bytes());
    let mut problems = Problems::new();
    let rules = load_and_lint(&source, options, &mut problems);
    assert!(rules.is_some(), "{}", problems.render(&source, Colour::Plain));
    (source, problems)
}

fn codes(text: &str, cluster: bool) -> BTreeSet<&'static str> {
    linted(text, &options(cluster)).1.in_order().iter().map(|problem| problem.code).collect()
}

fn warnings(text: &str, cluster: bool) -> Vec<String> {
    let (source, problems) = linted(text, &options(cluster));
    let warnings = problems.in_order().into_iter().filter(|problem| problem.severity != Severity::Note);
    let line = |problem: &Problem| source.position(problem.label.span.start).line;
    warnings.map(|problem| format!("{} {}: {}", line(problem), problem.code, problem.message)).collect()
}

/// The message of the only finding of a code.
fn message(text: &str, code: &str) -> String {
    let (_, problems) = linted(text, &options(false));
    let found: Vec<_> = problems.in_order().into_iter().filter(|problem| problem.code == code).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].message.clone()
}

fn file(rules: &str) -> String {
    format!("version: 1\nrules:\n{rules}\n")
}

fn one(rule: &str) -> String {
    file(&format!("  - {{ id: a, per: all, {rule} }}"))
}

/// A file in which a lint finds something, and one like it in which it does not.
struct Case {
    code: &'static str,
    severity: Severity,
    found: String,
    fixed: String,
    cluster: bool,
    /// What both files show besides.
    beside: &'static [&'static str],
}

impl Case {
    fn new(code: &'static str, severity: Severity, found: String, fixed: String) -> Case {
        Case { code, severity, found, fixed, cluster: false, beside: &[] }
    }
}

fn cases() -> Vec<Case> {
    let warning = |code, found: String, fixed: String| Case::new(code, Severity::Warning, found, fixed);
    let note = |code, found: String, fixed: String| Case::new(code, Severity::Note, found, fixed);
    let override_of_a = |rule: &str, changes: &str| one(rule) + &format!("overrides:\n{changes}\n");
    let searches = "match: { action: search }, limit: { sliding-log: 5/s }";
    let pair = |a: &str, b: &str| file(&format!("  - {{ id: a, {a} }}\n  - {{ id: b, {b} }}"));
    let globs = |length: usize| {
        override_of_a(
            &format!("match: {{ host: '{}' }}, limit: {{ sliding-log: 5/s }}", "a*".repeat(length)),
            &format!("  - {{ rule: a, when: {{ host: '{}' }}, limit: deny }}", "*b".repeat(length)),
        )
    };
    vec![
        note(
            "bucket-burst",
            one("limit: { token-bucket: 100/min, burst: 20 }"),
            one("limit: { token-bucket: 100/min, burst: 1 }"),
        ),
        note(
            "window-edge-burst",
            one("limit: { fixed-window: 100/min }"),
            one("limit: { sliding-log: 100/min }"),
        ),
        note(
            "estimated-count",
            one("limit: { sliding-window: 1000/min, counting: interpolated }"),
            one("limit: { sliding-window: 1000/min, counting: strict }"),
        ),
        warning(
            "log-memory",
            one("limit: { sliding-log: 1000000/h, entries: 1000000 }"),
            one("limit: { sliding-log: 1000000/h, entries: 1000000 }, cost: 100"),
        ),
        warning(
            "log-entries",
            one("limit: { sliding-log: 100000/h }"),
            one("limit: { sliding-log: 100000/h }, cost: 10"),
        ),
        warning(
            "quota-without-zone",
            one("limit: { quota: 1000/month }"),
            one("limit: { quota: 1000/month, zone: UTC }"),
        ),
        warning(
            "free-of-charge",
            one("limit: { sliding-log: 5/s }, cost: { default: 0, by: { method: { POST: 0 } } }"),
            one("limit: { sliding-log: 5/s }, cost: { default: 0, by: { method: { POST: 1 } } }"),
        ),
        note(
            "rule-off",
            one("limit: { sliding-log: 5/s }, mode: off"),
            one("limit: { sliding-log: 5/s }, mode: shadow"),
        ),
        note(
            "rollout-nobody",
            one("limit: { sliding-log: 5/s }, rollout: 0%"),
            one("limit: { sliding-log: 5/s }, rollout: 0.01%"),
        ),
        Case {
            beside: &["bucket-burst"],
            ..warning(
                "never-matches",
                file("  - { use: admin-endpoints, match: { method: OPTIONS } }"),
                file("  - { use: admin-endpoints, match: { path: /admin* } }"),
            )
        },
        warning(
            "value-never-seen",
            one("match: { method: post }, limit: { sliding-log: 5/s }"),
            one("match: { method: POST }, limit: { sliding-log: 5/s }"),
        ),
        warning(
            "unreachable-rule",
            one(searches) + "bypass:\n  - when: { action: [search, browse] }\n",
            one(searches) + "bypass:\n  - when: { action: search, service: probe }\n",
        ),
        warning(
            "shadowed-rule",
            pair("per: all, limit: { sliding-log: 5/s }", "per: all, limit: { sliding-log: 6/s }"),
            pair("per: all, limit: { sliding-log: 5/s }", "per: all, limit: { sliding-log: 6/min }"),
        ),
        warning(
            "unknown-attribute",
            one("match: { tennant: acme }, limit: { sliding-log: 5/s }"),
            one("match: { tenant: acme }, limit: { sliding-log: 5/s }"),
        ),
        warning(
            "absent-subject",
            file("  - { id: a, per: tenant, limit: { sliding-log: 5/s } }"),
            file("  - { id: a, per: tenant, missing: refuse, limit: { sliding-log: 5/s } }"),
        ),
        note(
            "counted-by-address",
            file("  - { id: a, per: api_key | ip, limit: { sliding-log: 5/s } }"),
            file("  - { id: a, per: api_key, missing: refuse, limit: { sliding-log: 5/s } }"),
        ),
        warning(
            "open-login",
            one("match: { path: /v1/login }, limit: { sliding-log: 5/s }, on_failure: open"),
            one("match: { path: /v1/login }, limit: { sliding-log: 5/s }, on_failure: local 25%"),
        ),
        warning(
            "penalty-without-account",
            one("limit: { penalty: 1s }"),
            file("  - { id: a, per: account, missing: refuse, limit: { penalty: 1s } }"),
        ),
        warning(
            "expired-override",
            override_of_a(searches, "  - { rule: a, when: {}, limit: deny, until: 2026-11-15T00:00:00Z }"),
            override_of_a(searches, "  - { rule: a, when: {}, limit: deny, until: 2026-11-15T00:00:01Z }"),
        ),
        warning(
            "override-never-applies",
            override_of_a(searches, "  - { rule: a, when: { action: export }, limit: deny }"),
            override_of_a(searches, "  - { rule: a, when: { action: search }, limit: deny }"),
        ),
        warning(
            "unreachable-override",
            override_of_a(
                searches,
                "  - { rule: a, when: { plan: pro }, limit: deny }\n  - { rule: a, when: { plan: pro }, \
                 limit: deny }",
            ),
            override_of_a(
                searches,
                "  - { rule: a, when: { plan: pro }, limit: deny }\n  - { rule: a, when: { tenant: x }, \
                 limit: deny }",
            ),
        ),
        Case {
            cluster: true,
            ..warning(
                "several-slots",
                pair(
                    "per: [tenant, user], missing: refuse, limit: { sliding-log: 5/s }",
                    "per: tenant, missing: refuse, limit: { sliding-log: 6/s }",
                ),
                pair(
                    "per: [tenant, user], missing: refuse, limit: { sliding-log: 5/s }",
                    "per: tenant, missing: refuse, limit: { sliding-log: 6/s }",
                ) + "partition: tenant\n",
            )
        },
        note(
            "shaper-with-others",
            pair(
                "per: all, limit: { leaky-bucket: 10/s, queue: 50 }",
                "per: all, limit: { sliding-log: 5/s }",
            ),
            pair(
                "per: all, limit: { leaky-bucket: 10/s, queue: 50 }, match: { action: send }",
                "per: all, limit: { sliding-log: 5/s }, match: { action: plan }",
            ),
        ),
        warning(
            "lease-ends-in-queue",
            pair(
                "per: all, limit: { leaky-bucket: 10/s, queue: 50 }",
                "per: all, limit: { concurrency: 5, lease: 5s }",
            ),
            pair(
                "per: all, limit: { leaky-bucket: 10/s, queue: 50 }, match: { action: send }",
                "per: all, limit: { concurrency: 5, lease: 5s }, match: { action: plan }",
            ),
        ),
        note("lint-incomplete", globs(10_000), globs(10)),
    ]
}

#[test]
fn each_lint_finds_what_it_is_for_and_nothing_in_the_fixed_file() {
    for Case { code, severity, found, fixed, cluster, beside } in cases() {
        let (source, problems) = linted(&found, &options(cluster));
        let shown = problems.render(&source, Colour::Plain);
        let mut expected: BTreeSet<&str> = beside.iter().copied().collect();
        assert_eq!(codes(&fixed, cluster), expected, "{code}: {fixed}");
        expected.insert(code);
        assert_eq!(codes(&found, cluster), expected, "{shown}");
        for problem in problems.in_order() {
            assert!(problem.help.is_some(), "{shown}");
            assert!(problem.code != code || problem.severity == severity, "{shown}");
        }
    }
}

#[test]
fn every_lint_is_listed_once_in_words_and_has_a_case() {
    let cases: Vec<&str> = cases().iter().map(|case| case.code).collect();
    let listed: Vec<&str> = LINTS.iter().map(|lint| lint.code).collect();
    assert_eq!(cases, listed);
    assert_eq!(listed.iter().collect::<BTreeSet<_>>().len(), listed.len());
    for LintInfo { code, summary, why, .. } in LINTS {
        assert!(code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{code}");
        assert!(summary.ends_with('.') && why.ends_with('.'), "{code}");
    }
}

#[test]
fn findings_point_at_the_words_they_are_about() {
    let text = "\
version: 1
partition: tenent
rules:
  - id: a
    match: { actoin: search }
    per: [tenant, usr_id | my-usr | usr]
    limit: { token-bucket: 2/s, burst: 240 }
    cost: { default: 1, by: { methd: { POST: 1 } } }
  - use: public-endpoint
    match: { path: v1/items }
overrides:
  - { rule: a, when: { pln: pro }, limit: { token-bucket: 3/s } }
  - { rule: a, when: { tenant: x }, limit: { token-bucket: 2/s, burst: 1 }, until: 2020-01-01T00:00:00Z }
";
    let (source, problems) = linted(text, &options(false));
    let at = |span: SourceSpan| {
        let position = source.position(span.start);
        format!("{}:{} {}", position.line, position.column, source.slice(span))
    };
    let found: Vec<String> = problems
        .in_order()
        .iter()
        .map(|problem| format!("{} {}", at(problem.label.span), problem.code))
        .collect();
    assert_eq!(
        found,
        [
            "2:12 tenent unknown-attribute",
            "5:14 actoin unknown-attribute",
            "6:11 tenant absent-subject",
            "6:19 usr_id unknown-attribute",
            "6:28 my-usr unknown-attribute",
            "6:37 usr unknown-attribute",
            "7:40 240 bucket-burst",
            "8:31 methd unknown-attribute",
            "9:10 public-endpoint bucket-burst",
            "9:10 public-endpoint counted-by-address",
            "10:20 v1/items value-never-seen",
            "12:24 pln unknown-attribute",
            "12:59 3/s bucket-burst",
            "13:84 2020-01-01T00:00:00Z expired-override",
        ]
    );
}

#[test]
fn messages_carry_the_numbers() {
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
        (
            "{ sliding-window: 1000/min, counting: interpolated }",
            "estimated-count",
            "can come to 1999 in 1min",
        ),
        ("{ sliding-log: 1000000/h, entries: 1000000 }", "log-memory", "1000000 entries, 15.2 MiB"),
        (
            "{ sliding-log: 100000/h }",
            "log-entries",
            "remembers 65536 instants, but its limit has room for 100000",
        ),
        ("{ quota: 1000/day }", "quota-without-zone", "the days of rule `a` begin at midnight in UTC"),
    ] {
        let message = message(&one(&format!("limit: {limit}")), code);
        assert!(message.contains(number), "{message}");
    }
}

#[test]
fn numbers_that_keep_their_promise_are_not_mentioned() {
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
fn advice_can_be_followed() {
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
fn a_smaller_burst_is_advised_only_if_every_request_still_fits() {
    let advised = |rest: &str| {
        let text = one(&format!("limit: {{ token-bucket: 10/s, burst: 50 }}{rest}"));
        linted(&text, &options(false)).1.in_order()[0].help.clone().unwrap_or_default()
    };
    assert!(advised("").starts_with("`burst: 1` keeps it at 10; to hold 10"));
    assert!(advised(", cost: 7").starts_with("`burst: 7` keeps it at 16; to hold 10"));
    assert_eq!(advised(", cost: 20"), "`burst: 20` keeps it at 29");
    assert_eq!(advised(", cost: 50"), "only lower costs allow a smaller burst");
    assert!(advised(", cost: { expression: 'int(tokens)' }").starts_with("to hold 10"));
    let dear = advised(", cost: { expression: 'int(tokens)', default: 11 }");
    assert_eq!(dear, "only lower costs allow a smaller burst");
}

#[test]
fn spans_and_rates_are_written_as_people_do() {
    let us = |us| context::readable(Span::from_us(us)).to_string();
    assert_eq!([us(33_333_334), us(120_000_000), us(5_500_001), us(9)], ["34s", "2min", "5501ms", "9us"]);
    let rate = |text: &str| {
        let rate = shorthand::rate(text).unwrap();
        context::rate_text(rate.amount, rate.period)
    };
    assert_eq!([rate("5/min"), rate("5/10s"), rate("5/60s")], ["5/min", "5/10s", "5/min"]);
}

#[test]
fn a_bucket_admits_in_its_period_exactly_what_the_linter_says() {
    for (rate, capacity) in
        [("100/min", 20), ("100/min", 100), ("7/3s", 1), ("2/s", 240), ("999983/31d", 999_983), ("5/us", 3)]
    {
        let rate = shorthand::rate(rate).unwrap();
        let bucket = Bucket::tokens(rate.amount, rate.period, capacity).unwrap();
        let said = u128::from(capacity) + limits::incoming(&bucket, rate.period);
        assert_eq!(most_admitted(bucket, rate.period), said, "{rate:?} {capacity}");
    }
}

/// What somebody gets who takes each unit as soon as it is there, from one tick to the last of a period.
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

#[test]
fn overrides_are_looked_at_like_rules() {
    let text = one("limit: { quota: 5/day, zone: UTC }")
        + "overrides:\n  - { rule: a, when: { plan: pro }, limit: { quota: 50/day } }\n";
    assert_eq!(
        message(&text, "quota-without-zone"),
        "the days of this override of rule `a` begin at midnight in UTC, since it names no zone"
    );
}

#[test]
fn an_override_that_has_ended_is_not_looked_at_further() {
    let ended = "{ rule: a, when: {}, limit: { quota: 50/day }, until: 2020-01-01T00:00:00Z }";
    let text = one("limit: { quota: 5/day, zone: UTC }") + &format!("overrides:\n  - {ended}\n");
    assert_eq!(codes(&text, false), BTreeSet::from(["expired-override"]));
}

#[test]
fn a_contradiction_with_a_preset_is_shown_where_it_can_be_changed() {
    let (source, problems) =
        linted(&file("  - { use: admin-endpoints, match: { method: OPTIONS } }"), &options(false));
    let found = problems.in_order().into_iter().filter(|problem| problem.code == "never-matches");
    let shown: Vec<&str> = found.map(|problem| source.slice(problem.label.span)).collect();
    assert_eq!(shown, ["OPTIONS", "OPTIONS"]);
}

#[test]
fn what_is_not_moved_by_charges_may_cost_nothing() {
    for limit in ["{ meter: 5 }", "deny"] {
        assert_eq!(codes(&one(&format!("limit: {limit}, cost: 0")), false), BTreeSet::new(), "{limit}");
    }
    let penalty = file("  - { id: a, per: account, missing: refuse, limit: { penalty: 1s }, cost: 0 }");
    assert_eq!(codes(&penalty, false), BTreeSet::new());
}

#[test]
fn a_rule_is_shadowed_only_by_one_that_always_decides_first() {
    let shadowed = |a: &str, b: &str| {
        let text = file(&format!("  - {{ id: a, {a} }}\n  - {{ id: b, {b} }}"));
        let (_, problems) = linted(&text, &options(false));
        let found = problems.in_order().into_iter().find(|problem| problem.code == "shadowed-rule");
        let named = |problem: &Problem| if problem.message.contains("rule `a` never") { "a" } else { "b" };
        found.map_or("none", named)
    };
    for (a, b, expected) in [
        ("per: all, limit: { fixed-window: 5/s }", "per: all, limit: { fixed-window: 5/s }", "b"),
        ("per: all, limit: { fixed-window: 9/s }", "per: all, limit: { fixed-window: 5/s }", "a"),
        ("per: all, limit: { fixed-window: 5/s }", "per: all, limit: { fixed-window: 5/min }", "a"),
        ("per: all, limit: { fixed-window: 5/7s }", "per: all, limit: { fixed-window: 5/10s }", "none"),
        ("per: all, limit: { fixed-window: 5/s }", "per: all, limit: { sliding-log: 50/s }", "none"),
        ("per: user, limit: { sliding-log: 5/s }", "per: tenant, limit: { sliding-log: 5/s }", "none"),
        ("per: all, limit: { token-bucket: 5/s }", "per: all, limit: { token-bucket: 10/2s, burst: 6 }", "b"),
        (
            "per: all, limit: { token-bucket: 5/s }",
            "per: all, limit: { token-bucket: 9/2s, burst: 6 }",
            "none",
        ),
        (
            "per: all, limit: { sliding-window: 5/min, buckets: 6 }",
            "per: all, limit: { sliding-window: 9/min, buckets: 12 }",
            "none",
        ),
        (
            "per: all, limit: { quota: 5/day, zone: UTC, grace: 2 }",
            "per: all, limit: { quota: 7/day, zone: UTC }",
            "b",
        ),
        (
            "per: all, limit: { quota: 5/day, zone: UTC }",
            "per: all, limit: { quota: 7/day, zone: Europe/Berlin }",
            "none",
        ),
        (
            "per: all, limit: { concurrency: 5, lease: 9s }",
            "per: all, limit: { concurrency: 6, lease: 8s }",
            "b",
        ),
        (
            "per: all, limit: { concurrency: 5, lease: 8s }",
            "per: all, limit: { concurrency: 6, lease: 9s }",
            "none",
        ),
        (
            "per: all, limit: { sliding-log: 5/s }",
            "per: all, limit: { sliding-log: 9/s }, match: { action: x }",
            "b",
        ),
        (
            "per: all, limit: { sliding-log: 5/s }, match: { action: x }",
            "per: all, limit: { sliding-log: 9/s }",
            "none",
        ),
        (
            "per: all, limit: { sliding-log: 5/s }, mode: shadow",
            "per: all, limit: { sliding-log: 9/s }",
            "none",
        ),
        ("per: all, limit: { sliding-log: 5/s }", "per: all, limit: { sliding-log: 9/s }, mode: shadow", "b"),
        (
            "per: all, limit: { sliding-log: 5/s }, rollout: 5%",
            "per: all, limit: { sliding-log: 9/s }",
            "none",
        ),
        (
            "per: all, limit: { sliding-log: 5/s }, rollout: 5%",
            "per: all, limit: { sliding-log: 9/s }, rollout: 5%",
            "b",
        ),
        ("per: all, limit: { sliding-log: 5/s }", "per: all, limit: { sliding-log: 9/s }, cost: 2", "none"),
        (
            "per: user, limit: { sliding-log: 5/s }, missing: skip",
            "per: user, limit: { sliding-log: 9/s }, missing: refuse",
            "none",
        ),
    ] {
        assert_eq!(shadowed(a, b), expected, "{a} | {b}");
    }
}

#[test]
fn a_rule_with_overrides_is_not_called_shadowed() {
    let text = file(
        "  - { id: a, per: all, limit: { sliding-log: 5/s } }\n  - { id: b, per: all, limit: { sliding-log: \
         9/s } }",
    );
    for rule in ["a", "b"] {
        let changed = format!(
            "{text}overrides:\n  - {{ rule: {rule}, when: {{ plan: pro }}, limit: {{ sliding-log: 7/s }} }}\n"
        );
        assert_eq!(codes(&changed, false), BTreeSet::new(), "{rule}");
    }
}

#[test]
fn a_rule_that_denies_everybody_leaves_nothing_to_others() {
    let text = |deny: &str| {
        file(&format!(
            "  - {{ id: a, {deny} }}\n  - {{ id: b, per: all, match: {{ action: x }}, limit: {{ sliding-log: \
             9/s }} }}"
        ))
    };
    for (deny, reached) in [
        ("per: all, limit: deny", false),
        ("per: all, match: { action: [x, y] }, limit: deny", false),
        ("per: user, missing: refuse, limit: deny", false),
        ("per: user, missing: skip, limit: deny", true),
        ("per: all, match: { action: y }, limit: deny", true),
        ("per: all, limit: deny, mode: shadow", true),
        ("per: all, limit: deny, rollout: 50%", true),
    ] {
        assert_eq!(!codes(&text(deny), false).contains("unreachable-rule"), reached, "{deny}");
    }
}

#[test]
fn conditions_that_no_request_meets_are_named() {
    for (condition, never) in [
        ("{ method: Get }", true),
        ("{ method: [GET, head] }", true),
        ("{ path: v1 }", true),
        ("{ path: 'v1*' }", true),
        ("{ path: 'v1/*/x' }", true),
        ("{ path: '/a?b/{id}' }", true),
        ("{ method: 'P*' }", false),
        ("{ path: '*.php' }", false),
        ("{ path: { prefix: '' } }", false),
        ("{ path: '/a/{id}' }", false),
        ("{ action: get }", false),
    ] {
        let text = one(&format!("match: {condition}, limit: {{ sliding-log: 5/s }}"));
        assert_eq!(codes(&text, false).contains("value-never-seen"), never, "{condition}");
    }
}

#[test]
fn an_attribute_that_resembles_none_is_only_noted() {
    let text =
        one("match: { continent: eu }, limit: { sliding-log: 5/s }, cost: { expression: 'int(continent)' }");
    let (_, problems) = linted(&text, &options(false));
    let found = problems.in_order();
    assert_eq!((found.len(), found[0].severity), (1, Severity::Note));
    assert!(found[0].message.contains("`continent`, which stands in 2 places"), "{}", found[0].message);

    let known_attributes = vec!["continent".to_owned()];
    assert!(linted(&text, &LintOptions { known_attributes, ..options(false) }).1.is_empty());
}

#[test]
fn attributes_are_looked_for_wherever_they_can_stand() {
    let known = LintOptions { known_attributes: Vec::new(), ..options(false) };
    let text = "\
version: 1
partition: a1
rules:
  - id: x
    match: { a2: v }
    per: [a3 | a4, a5]
    missing: refuse
    limit: { sliding-log: 5/s }
    cost: { by: { a6: { v: 1 } } }
    on_failure: { default: closed, by: { a7: { v: closed } } }
  - { id: y, per: all, limit: { sliding-log: 6/s }, cost: { expression: 'int(a8) + size(a9)' } }
overrides:
  - { rule: x, when: { b1: v }, limit: deny }
deny:
  - when: { b2: v }
bypass:
  - when: { b3: v }
";
    let (_, problems) = linted(text, &known);
    let named: Vec<&str> =
        problems.in_order().iter().filter_map(|found| found.message.split('`').nth(1)).collect();
    assert_eq!(named, ["a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", "b1", "b2", "b3"]);
    let (_, problems) = linted(&file("  - use: login-protection"), &known);
    let named: BTreeSet<&str> =
        problems.in_order().iter().filter_map(|found| found.message.split('`').nth(1)).collect();
    assert!(
        named.is_superset(&BTreeSet::from(["account", "ip"])),
        "a preset's attributes count too: {named:?}"
    );
}

#[test]
fn a_subject_that_is_always_there_leaves_no_hole() {
    for (rule, hole) in [
        ("per: tenant", true),
        ("per: [tenant, ip]", true),
        ("per: user | api_key", true),
        ("per: user | ip", false),
        ("per: all", false),
        ("per: tenant, missing: skip", false),
        ("per: tenant, match: { tenant: acme }", false),
        ("per: tenant, match: { tenant: '*' }", true),
        ("per: tenant, match: { plan: pro }", true),
        ("per: tenant, mode: off", false),
    ] {
        let text = file(&format!("  - {{ id: a, {rule}, limit: {{ sliding-log: 5/s }} }}"));
        assert_eq!(codes(&text, false).contains("absent-subject"), hole, "{rule}");
    }
}

#[test]
fn rules_that_guard_secrets_are_known_by_their_words() {
    for (rule, warned) in [
        ("id: sign-in, limit: { sliding-log: 5/s }", true),
        ("id: x, tags: [OTP], limit: { sliding-log: 5/s }", true),
        ("id: x, match: { action: [browse, reset_password] }, limit: { sliding-log: 5/s }", true),
        ("id: x, match: { path: '/v1/{tenant}/auth/{*rest}' }, limit: { sliding-log: 5/s }", true),
        ("id: x, match: { path: '/oauth/*' }, limit: { sliding-log: 5/s }", true),
        ("id: issue-token, limit: { sliding-log: 5/s }", true),
        ("id: author, limit: { sliding-log: 5/s }", false),
        ("id: token-bucket, limit: { sliding-log: 5/s }", false),
        ("id: llm-tokens, limit: { sliding-log: 5/s }", false),
    ] {
        for (policy, passes) in [
            ("open", true),
            ("degraded", true),
            ("{ default: closed, by: { method: { GET: open } } }", true),
            ("closed", false),
            ("cap 5/s", false),
        ] {
            let text = file(&format!("  - {{ {rule}, per: all, on_failure: {policy} }}"));
            assert_eq!(codes(&text, false).contains("open-login"), warned && passes, "{rule} {policy}");
        }
    }
    let penalty = file("  - { id: x, per: user, missing: refuse, limit: { penalty: 1s }, on_failure: open }");
    assert_eq!(codes(&penalty, false), BTreeSet::from(["open-login"]));
}

#[test]
fn a_penalty_by_address_is_fine_beside_one_by_account() {
    let text = |account: &str| {
        file(&format!(
            "  - {{ id: address, per: ip, match: {{ action: login }}, limit: {{ penalty: 1s }} }}\n  - {{ \
             id: account, \
             per: account, missing: refuse, limit: {{ sliding-log: 5/min }}, {account} }}"
        ))
    };
    for (account, warned) in
        [("match: { action: login }", false), ("match: { action: pay }", true), ("mode: shadow", true)]
    {
        assert_eq!(codes(&text(account), false).contains("penalty-without-account"), warned, "{account}");
    }
}

#[test]
fn an_override_is_beaten_only_by_one_that_holds_as_often_and_as_long() {
    let unreachable = |changes: [&str; 2]| {
        let changes = changes.map(|change| format!("  - {{ rule: a, limit: deny, {change} }}\n")).concat();
        let text = one("match: { action: search }, limit: { sliding-log: 5/s }") + "overrides:\n" + &changes;
        codes(&text, false).contains("unreachable-override")
    };
    for (changes, expected) in [
        (["when: { plan: pro }", "when: { plan: [pro, max] }"], true),
        (["when: { plan: [pro, max] }", "when: { plan: pro }"], false),
        (["when: { plan: pro }", "when: { plan: pro, action: search }"], true),
        (["when: { plan: pro }", "when: { plan: pro, tenant: x }"], false),
        (["when: { plan: pro }", "when: { plan: pro }, until: 2099-01-01T00:00:00Z"], false),
        (
            [
                "when: { plan: pro }, until: 2098-01-01T00:00:00Z",
                "when: { plan: pro }, until: 2099-01-01T00:00:00Z",
            ],
            true,
        ),
        (
            [
                "when: { plan: pro }, until: 2099-01-01T00:00:00Z",
                "when: { plan: pro }, until: 2098-01-01T00:00:00Z",
            ],
            false,
        ),
        (["when: { plan: pro }, until: 2020-01-01T00:00:00Z", "when: { plan: pro }"], false),
    ] {
        assert_eq!(unreachable(changes), expected, "{changes:?}");
    }
}

/// The tags that a request really gets which has every attribute.
fn slots_of(text: &str) -> BTreeSet<String> {
    let (source, _) = linted(text, &options(true));
    let rules = load(&source, &mut Problems::new()).unwrap();
    let attributes = ["tenant", "user", "account", "ip"]
        .into_iter()
        .fold(Attributes::new(), |all, name| all.with(name, "7"));
    let attributes = attributes.with("action", "xy");
    let request = Request { attributes: &attributes, cost: 1, token: Token(1), id: None };
    match rules.plan(&request, &SubjectHasher::new([1; 32]).into(), NOW).unwrap() {
        Planned::Plan { plan, .. } => plan.items().iter().map(|item| item.key.tag().to_string()).collect(),
        planned => panic!("{planned:?}"),
    }
}

#[test]
fn rules_in_different_slots_are_named_only_if_they_can_meet() {
    let slots = |a: &str, b: &str, partition: &str| {
        let rule = |id: &str, rule: &str| {
            format!("  - {{ id: {id}, missing: refuse, limit: {{ sliding-log: 5/s }}, {rule} }}\n")
        };
        let text = file(&(rule("a", a) + &rule("b", b))) + partition;
        let (_, problems) = linted(&text, &options(true));
        let found = problems.in_order().into_iter().find(|problem| problem.code == "several-slots");
        assert!(found.is_some() || slots_of(&text).len() <= 1, "{text}");
        found.map(|problem| (problem.severity, problem.message.contains("rules `a` and `b`")))
    };
    let warned = Some((Severity::Warning, true));
    let noted = Some((Severity::Note, true));
    for (a, b, partition, expected) in [
        ("per: tenant", "per: [tenant, user]", "", warned),
        ("per: tenant", "per: [tenant, user]", "partition: tenant\n", None),
        ("per: tenant", "per: user", "partition: tenant\n", noted),
        ("per: tenant", "per: [tenant | user]", "partition: tenant\n", noted),
        ("per: account", "per: user", "", noted),
        ("per: user | ip", "per: user | ip", "", None),
        ("per: all", "per: all", "partition: tenant\n", None),
        ("per: tenant, match: { action: x }", "per: user, match: { action: y }", "", None),
        ("per: tenant, match: { action: 'x*' }", "per: user, match: { action: xy }", "", noted),
        ("per: tenant", "per: user, mode: shadow", "", noted),
        ("per: tenant", "per: user, mode: off", "", None),
        ("per: [tenant, user]", "per: [user, tenant]", "partition: [tenant, user]\n", None),
    ] {
        assert_eq!(slots(a, b, partition), expected, "{a} | {b} | {partition}");
    }
    let denied = file(
        "  - { id: a, per: user, missing: refuse, limit: deny, match: { plan: x } }\n  - { id: b, per: all, \
         limit: { sliding-log: 5/s } }",
    );
    assert_eq!(codes(&denied, true), BTreeSet::new(), "what is denied asks no store");
}

#[test]
fn a_lease_must_outlast_the_queue() {
    let text = |lease: &str| {
        file(&format!(
            "  - {{ id: a, per: all, limit: {{ leaky-bucket: 10/s, queue: 50 }} }}\n  - {{ id: b, per: all, \
             limit: {{ \
             concurrency: 5, lease: {lease} }} }}"
        ))
    };
    assert_eq!(codes(&text("5s"), false), BTreeSet::from(["lease-ends-in-queue"]));
    assert_eq!(codes(&text("5001ms"), false), BTreeSet::from(["shaper-with-others"]));
    assert!(message(&text("5s"), "lease-ends-in-queue").contains("can make the request wait 5s"));
}

#[test]
fn presets_raise_no_warnings() {
    for preset in presets::ALL {
        for cluster in [false, true] {
            let none = [""; 0];
            assert_eq!(warnings(preset.text, cluster), none, "{}", preset.name);
            assert_eq!(
                warnings(&file(&format!("  - use: {}", preset.name)), cluster),
                none,
                "use {}",
                preset.name
            );
        }
    }
}

#[test]
fn the_example_raises_no_warnings() {
    for cluster in [false, true] {
        assert_eq!(warnings(SHOP, cluster), [""; 0], "cluster: {cluster}");
    }
}

/// The linter relies on the reader for this: it is an error, not advice.
#[test]
fn a_cost_above_the_capacity_is_refused_by_the_reader() {
    let limit = "limit: { sliding-log: 5/s }";
    for text in [
        one(&format!("{limit}, cost: 6")),
        one(&format!("{limit}, cost: {{ by: {{ method: {{ POST: 6 }} }} }}")),
        one(&format!("{limit}, cost: {{ default: 6, by: {{ method: {{ POST: 1 }} }} }}")),
        one(&format!("{limit}, cost: {{ expression: 'int(tokens)', default: 6 }}")),
        one(&format!("{limit}, cost: 5"))
            + "overrides:\n  - { rule: a, when: { plan: x }, limit: { sliding-log: 4/s } }\n",
    ] {
        let source = Source::new("rules.yaml", text.as_bytes());
        let mut problems = Problems::new();
        assert!(load_and_lint(&source, &options(false), &mut problems).is_none());
        let codes: Vec<_> = problems.in_order().iter().map(|problem| problem.code).collect();
        assert_eq!(codes, ["cost-above-capacity"], "{text}");
    }
}

#[test]
fn a_file_with_errors_is_not_linted() {
    let source = Source::new(
        "rules.yaml",
        b"version: 1\nrules:\n  - { id: a, per: all, limit: { fixed-window: 5 } }\n",
    );
    let mut problems = Problems::new();
    assert!(load_and_lint(&source, &options(false), &mut problems).is_none());
    assert!(problems.in_order().iter().all(|problem| problem.severity == Severity::Error));
}

/// Conditions that take long to compare, as many as fit.
#[test]
fn a_hostile_file_costs_no_more_than_its_bound() {
    let values: String = (0..200).map(|value| format!("v{value},")).collect();
    let rule = |at: usize| {
        let per = ["ip", "user | ip"][at % 2];
        let host = "*a".repeat(150);
        let conditions = format!("{{ action: [{values}], host: '{host}{at}*' }}");
        format!(
            "  - {{ id: r{at}, per: {per}, match: {conditions}, limit: {{ sliding-log: {}/s }} }}\n",
            at + 1
        )
    };
    let text = file(&(0..500).map(rule).collect::<String>());
    assert!(codes(&text, true).contains("lint-incomplete"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_file_makes_it_panic(
        lines in prop::collection::vec((0_usize..200, any::<bool>()), 0..12),
        cut in 0_usize..3_000,
    ) {
        let whole = SHOP.to_owned() + presets::ALL[5].text;
        let mut text: Vec<&str> = whole.lines().collect();
        for (at, twice) in lines {
            let at = at % text.len().max(1);
            match (text.get(at).copied(), twice) {
                (Some(line), true) => text.insert(at, line),
                (Some(_), false) => drop(text.remove(at)),
                (None, _) => {}
            }
        }
        let text: String = text.join("\n").chars().take(cut).collect();
        let source = Source::new("rules.yaml", text.as_bytes());
        let mut problems = Problems::new();
        let read = load_and_lint(&source, &options(true), &mut problems);
        prop_assert_eq!(read.is_none(), problems.has_errors());
    }
}
