//! Tests of the lints about rules that match the same request.

use tollgate_core::rules::{Planned, Request};
use tollgate_core::{Attributes, SubjectHasher, Token};

use super::*;
use crate::rules::load;

/// The hash tags in the Plan of a request that has every attribute.
fn slots_of(text: &str) -> BTreeSet<String> {
    let (source, _) = linted(text, &options(true));
    let rules = load(&source, &mut Problems::new()).unwrap();
    let attributes = ["tenant", "user", "account", "ip"]
        .into_iter()
        .fold(Attributes::new(), |all, name| all.with(name, "7"));
    let attributes = attributes.with("action", "xy");
    let request = Request::new(&attributes).token(Token(1));
    match rules.plan(&request, &SubjectHasher::new([1; 32]).into(), NOW).unwrap() {
        Planned::Plan { plan, .. } => plan.items().iter().map(|item| item.key.tag().to_string()).collect(),
        planned => panic!("{planned:?}"),
    }
}

#[test]
fn rules_in_different_slots_are_reported_only_if_they_match_one_request() {
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
    assert_eq!(codes(&denied, true), BTreeSet::new(), "`limit: deny` does not use the store");
}

#[test]
fn a_lease_must_last_longer_than_the_longest_delay() {
    let text = |lease: &str| {
        file(&format!(
            "  - {{ id: a, per: all, limit: {{ leaky-bucket: 10/s, queue: 50 }} }}\n  - {{ id: b, per: all, \
             limit: {{ \
             concurrency: 5, lease: {lease} }} }}"
        ))
    };
    assert_eq!(codes(&text("5s"), false), BTreeSet::from(["lease-ends-in-queue"]));
    assert_eq!(codes(&text("5001ms"), false), BTreeSet::from(["shaper-with-others"]));
    assert!(message(&text("5s"), "lease-ends-in-queue").contains("can delay the request 5s"));
}
