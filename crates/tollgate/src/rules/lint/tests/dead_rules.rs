//! Tests of the lints about rules that never affect a decision.

use super::*;

#[test]
fn a_contradiction_with_a_preset_points_at_the_condition_in_the_file() {
    let (source, problems) =
        linted(&file("  - { use: admin-endpoints, match: { method: OPTIONS } }"), &options(false));
    let found = problems.in_order().into_iter().filter(|problem| problem.code == "never-matches");
    let shown: Vec<&str> = found.map(|problem| source.slice(problem.label.span)).collect();
    assert_eq!(shown, ["OPTIONS", "OPTIONS"]);
}

#[test]
fn limits_that_charges_do_not_change_may_cost_nothing() {
    for limit in ["{ meter: 5 }", "deny"] {
        assert_eq!(codes(&one(&format!("limit: {limit}, cost: 0")), false), BTreeSet::new(), "{limit}");
    }
    let penalty = file("  - { id: a, per: account, missing: refuse, limit: { penalty: 1s }, cost: 0 }");
    assert_eq!(codes(&penalty, false), BTreeSet::new());
}

#[test]
fn a_rule_is_shadowed_only_by_one_that_always_refuses_first() {
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
fn a_rule_with_overrides_is_not_reported_as_shadowed() {
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
fn a_rule_that_refuses_everything_makes_others_unreachable() {
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
fn conditions_that_no_request_meets_are_reported() {
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
