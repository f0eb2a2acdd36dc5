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
