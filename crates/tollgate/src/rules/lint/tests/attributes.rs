//! Tests of the lints about attributes and subjects.

use super::*;

#[test]
fn an_unknown_attribute_without_a_similar_name_is_a_note() {
    let text = one(
        "match: { continent: eu }, limit: { sliding-log: 5/s }, cost: { expression: 'int(continent)', default: 1 }",
    );
    let (_, problems) = linted(&text, &options(false));
    let found = problems.in_order();
    assert_eq!((found.len(), found[0].severity), (1, Severity::Note));
    assert!(found[0].message.contains("`continent`, used 2 times"), "{}", found[0].message);

    let known_attributes = vec!["continent".to_owned()];
    assert!(linted(&text, &LintOptions { known_attributes, ..options(false) }).1.is_empty());
}

#[test]
fn attributes_are_checked_everywhere_in_the_file() {
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
  - { id: y, per: all, limit: { sliding-log: 6/s }, cost: { expression: 'int(a8) + size(a9)', default: 1 } }
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
        "attributes of presets are checked too: {named:?}"
    );
}

#[test]
fn a_subject_that_is_always_present_is_not_reported() {
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
