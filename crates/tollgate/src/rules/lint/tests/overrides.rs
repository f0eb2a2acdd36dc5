//! Tests of the lints about overrides.

use super::*;

#[test]
fn limits_of_overrides_are_linted_like_those_of_rules() {
    let text = one("limit: { quota: 5/day, zone: UTC }")
        + "overrides:\n  - { rule: a, when: { plan: pro }, limit: { quota: 50/day } }\n";
    assert_eq!(
        message(&text, "quota-without-zone"),
        "the days of this override of rule `a` start at midnight UTC, because `zone` is not set"
    );
}

#[test]
fn an_expired_override_has_no_other_findings() {
    let ended = "{ rule: a, when: {}, limit: { quota: 50/day }, until: 2020-01-01T00:00:00Z }";
    let text = one("limit: { quota: 5/day, zone: UTC }") + &format!("overrides:\n  - {ended}\n");
    assert_eq!(codes(&text, false), BTreeSet::from(["expired-override"]));
}

#[test]
fn an_override_is_unreachable_only_if_another_always_takes_precedence() {
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

#[test]
fn a_temporary_override_that_lowers_the_rule_is_a_note_and_one_that_denies_is_intended() {
    let found = |limit: &str| {
        let text = one("limit: { token-bucket: 10/s, burst: 100 }")
            + &format!(
                "overrides:\n  - {{ rule: a, when: {{ plan: pro }}, limit: {limit}, until: 2099-01-01T00:00:00Z }}\n"
            );
        let (_, problems) = linted(&text, &options(false));
        let found = problems.in_order().into_iter().find(|problem| problem.code == "temporary-lowering");
        found.map(|problem| (problem.severity, problem.message.clone()))
    };
    for (limit, expected) in [
        ("{ token-bucket: 20/s, burst: 100 }", None),
        ("{ token-bucket: 600/min, burst: 100 }", None),
        ("{ token-bucket: 5/s, burst: 100 }", Some("lowers the rule's own limit")),
        // The burst of a bucket that does not set it is the amount of its rate.
        ("{ token-bucket: 20/s }", Some("raises one number and lowers another of the rule's own limit")),
        ("deny", None),
    ] {
        let message = expected.map(|what| format!("this temporary override of rule `a` {what}"));
        assert_eq!(found(limit), message.map(|message| (Severity::Note, message)), "{limit}");
    }
}

#[test]
fn a_raise_that_lowers_another_override_is_a_note() {
    let found = |changes: [&str; 2]| {
        let changes = changes.map(|change| format!("  - {{ rule: a, {change} }}\n")).concat();
        let text = one("limit: { fixed-window: 10/h }") + "overrides:\n" + &changes;
        codes(&text, false).contains("raise-that-lowers")
    };
    let pro = "when: { plan: pro }, limit: { fixed-window: 20/h }";
    for (changes, expected) in [
        ([pro, "when: { tenant: acme }, limit: { fixed-window: 15/h }"], true),
        ([pro, "when: { tenant: acme, plan: pro }, limit: { fixed-window: 15/h }"], true),
        ([pro, "when: { tenant: acme }, limit: { fixed-window: 25/h }"], false),
        ([pro, "when: { plan: free }, limit: { fixed-window: 15/h }"], false),
        // It lowers the rule too, so it is no raise.
        ([pro, "when: { tenant: acme }, limit: { fixed-window: 5/h }"], false),
        // The first one of equals gives way.
        (["when: { tenant: acme }, limit: { fixed-window: 15/h }", pro], false),
        ([pro, "when: { tenant: acme }, scale: 1.5"], false),
    ] {
        assert_eq!(found(changes), expected, "{changes:?}");
    }
}

#[test]
fn unmatched_refuse_without_a_rule_in_force_is_a_warning() {
    let text = format!("unmatched: refuse\n{}", one("mode: off, limit: { sliding-log: 5/s }"));
    assert_eq!(
        message(&text, "unmatched-refuse"),
        "no rule is in force, so `unmatched: refuse` refuses every request"
    );
}
