use tollgate_core::rules::{Planned, Request};
use tollgate_core::{Attributes, Limit, Operation, Subject, SubjectHasher, Time, Token};

use super::*;
use tollgate_document::Colour;

mod preparation;

const SHOP: &str = include_str!("../../../../examples/rules/shop.yaml");
const NOW: Time = Time::from_us(1_790_000_000_000_000);

fn rules(text: &str) -> RuleSet {
    let source = Source::new("rules.yaml", text.as_bytes());
    let mut problems = Problems::new();
    load(&source, &mut problems).unwrap_or_else(|| panic!("{}", problems.render(&source, Colour::Plain)))
}

fn plan<'r>(rules: &'r RuleSet, attributes: &[(&'static str, &'static str)]) -> Planned<'r> {
    let mut all = Attributes::new();
    attributes.iter().for_each(|(name, value)| all.set(name, value));
    let request = Request::new(&all).token(Token(1));
    rules.plan(&request, &SubjectHasher::new([1; 32]).into(), NOW).unwrap()
}

/// Rule, cost and capacity of every item.
fn items(planned: Planned<'_>) -> Vec<(String, u64, u64)> {
    let Planned::Plan { plan, .. } = planned else { panic!("{planned:?}") };
    let item = |item: &tollgate_core::Item<'_>| {
        (item.key.keyspace().rule().to_owned(), item.operation.cost().unwrap_or(0), item.limit.capacity())
    };
    plan.items().iter().map(item).collect()
}

#[test]
fn the_example_has_all_its_rules() {
    let rules = rules(SHOP);
    let ids: Vec<_> = rules.rules().iter().map(|rule| rule.keyspace.rule()).collect();
    assert_eq!(
        ids,
        ["search-per-key", "items-per-tenant", "exports-per-month", "login-account", "login-address"]
    );
}

#[test]
fn overrides_take_precedence_in_the_documented_order() {
    let rules = rules(SHOP);
    let capacity = |attributes: &[(&'static str, &'static str)]| {
        let mut all = vec![("action", "search"), ("api_key", "k")];
        all.extend(attributes);
        items(plan(&rules, &all))[0].2
    };
    assert_eq!(capacity(&[("tenant", "small")]), 240);
    assert_eq!(capacity(&[("tenant", "small"), ("plan", "pro")]), 2_400);
    assert_eq!(
        capacity(&[("tenant", "acme"), ("plan", "pro")]),
        6_000,
        "an override with `until` takes precedence over one without"
    );
}

#[test]
fn costs_are_looked_up_by_attribute_value() {
    let rules = rules(SHOP);
    let search = [("action", "search"), ("tenant", "t"), ("user", "u")];
    assert_eq!(items(plan(&rules, &search)), [("search-per-key".to_owned(), 1, 240)]);
    let post = [&search[..], &[("method", "POST")]].concat();
    assert_eq!(items(plan(&rules, &post)), [("search-per-key".to_owned(), 5, 240)]);
}

#[test]
fn a_condition_excludes_values_and_patterns() {
    for (condition, value, holds) in [
        ("{ not: b }", "a", true),
        ("{ not: b }", "b", false),
        ("{ not: [b, 'c*', 'd*e'] }", "a", true),
        ("{ not: [b, 'c*', 'd*e'] }", "cx", false),
        ("{ not: [b, 'c*', 'd*e'] }", "dxe", false),
        ("{ not: [{ is: ['b*', 'x'] }, { prefix: 'c' }] }", "b*", false),
        ("{ not: [{ is: ['b*', 'x'] }, { prefix: 'c' }] }", "bb", true),
        ("{ not: [{ is: ['b*', 'x'] }, { prefix: 'c' }] }", "cc", false),
        ("{ prefix: a, not: ab }", "ac", true),
        ("{ prefix: a, not: ab }", "ab", false),
        ("{ prefix: a, not: ab }", "b", false),
        ("{ pattern: 'a*c', not: ['abc', 'ad*c'] }", "axc", true),
        ("{ pattern: 'a*c', not: ['abc', 'ad*c'] }", "abc", false),
        ("{ pattern: 'a*c', not: ['abc', 'ad*c'] }", "adxc", false),
        ("{ pattern: 'a*c' }", "abc", true),
        ("{ pattern: 'a*c' }", "abd", false),
        ("{ is: ['a*', 'b'] }", "a*", true),
        ("{ is: ['a*', 'b'] }", "ab", false),
    ] {
        let text = format!(
            "version: 1\nrules: [{{ id: r, match: {{ action: {condition} }}, per: all, limit: deny }}]"
        );
        let refused = matches!(plan(&rules(&text), &[("action", value)]), Planned::Refused { .. });
        assert_eq!(refused, holds, "{condition} {value}");
    }
    let absent =
        rules("version: 1\nrules: [{ id: r, match: { action: { not: b } }, per: all, limit: deny }]");
    assert!(!matches!(plan(&absent, &[]), Planned::Refused { .. }), "an absent attribute passes no test");
}

#[test]
fn deny_and_bypass_are_checked_before_rules() {
    let rules = rules(SHOP);
    assert!(matches!(plan(&rules, &[("action", "search"), ("api_key", "k-stolen")]), Planned::Denied(_)));
    assert!(matches!(
        plan(&rules, &[("service", "healthcheck"), ("action", "export")]),
        Planned::Bypassed(_)
    ));
}

#[test]
fn an_absent_subject_is_skipped_or_refused_by_missing() {
    let rules = rules(SHOP);
    let Planned::Plan { plan: nothing, skipped, .. } = plan(&rules, &[("action", "search"), ("tenant", "t")])
    else {
        panic!("a rule that skips makes a Plan");
    };
    assert_eq!((nothing.items().len(), skipped), (0, 1));
    assert!(matches!(
        plan(&rules, &[("action", "search"), ("tenant", ""), ("ip", "::1")]),
        Planned::Plan { skipped: 1, .. }
    ));
    assert!(matches!(plan(&rules, &[("action", "export")]), Planned::Refused { missing: true, .. }));
}

#[test]
fn only_rules_of_one_partition_share_a_hash_tag() {
    let rules = rules(
        "version: 1
partition: tenant
rules:
  - { id: a, per: tenant, limit: { fixed-window: 5/s } }
  - { id: b, per: [tenant, user], limit: { fixed-window: 5/s } }
  - { id: c, per: user, limit: { fixed-window: 5/s } }
  - { id: d, per: [tenant | user], limit: { fixed-window: 5/s } }
",
    );
    let Planned::Plan { plan, .. } = plan(&rules, &[("tenant", "t"), ("user", "u")]) else {
        panic!("a Plan")
    };
    let tags: Vec<_> = plan.items().iter().map(|item| item.key.tag()).collect();
    assert_eq!(tags[0], tags[1]);
    assert_ne!(tags[0], tags[2]);
    assert_eq!(
        tags[3],
        plan.items()[3].key.subject(),
        "a chain may use another attribute, so its tag is its subject"
    );
}

#[test]
fn slots_sets_the_number_of_hash_tags() {
    let rules = rules(
        "version: 1
slots: 4
rules:
  - { id: a, per: user, limit: { fixed-window: 5/s } }
",
    );
    fn tag_of(rules: &RuleSet, user: &'static str) -> (Subject, Subject) {
        let Planned::Plan { plan, .. } = plan(rules, &[("user", user)]) else { panic!("a Plan") };
        (plan.items()[0].key.tag(), plan.items()[0].key.subject())
    }
    let users: Vec<&'static str> = (0..200).map(|user| &*format!("user-{user}").leak()).collect();
    let found: Vec<_> = users.iter().map(|user| tag_of(&rules, user)).collect();
    let tags: std::collections::HashSet<_> = found.iter().map(|(tag, _)| *tag).collect();
    let subjects: std::collections::HashSet<_> = found.iter().map(|(_, subject)| *subject).collect();
    assert_eq!((tags.len(), subjects.len()), (4, 200));
    assert_eq!(tag_of(&rules, "user-7"), found[7]);
}

#[test]
fn a_rollout_enforces_the_rule_for_its_share_of_subjects() {
    let text = |share: &str| {
        format!(
            "version: 1\nrules:\n  - {{ id: a, per: user, limit: {{ fixed-window: 5/s }}, rollout: {share} }}\n"
        )
    };
    let enforced = |share: &str| -> Vec<u32> {
        let rules = rules(&text(share));
        (0..2_000)
            .filter(|user| {
                let name = user.to_string();
                let attributes = Attributes::new().with("user", &name);
                let request = Request::new(&attributes).token(Token(1));
                let planned = rules.plan(&request, &SubjectHasher::new([1; 32]).into(), NOW).unwrap();
                let Planned::Plan { plan, .. } = planned else { panic!("a Plan") };
                plan.items()[0].blocking
            })
            .collect()
    };
    let (tenth, half) = (enforced("10%"), enforced("50%"));
    assert!(
        (120..280).contains(&tenth.len()) && (900..1_100).contains(&half.len()),
        "{} {}",
        tenth.len(),
        half.len()
    );
    assert!(
        tenth.iter().all(|user| half.contains(user)),
        "a larger share includes the subjects of a smaller one"
    );
    assert_eq!((enforced("0%").len(), enforced("100%").len()), (0, 2_000));
}

#[test]
fn every_preset_is_a_valid_rules_file_and_can_be_used() {
    for preset in presets::ALL {
        let set = rules(preset.text);
        assert!(!set.rules().is_empty(), "{}", preset.name);
        assert!(set.rules().iter().all(|rule| !rule.description.is_empty()), "{}", preset.name);
        let used = rules(&format!(
            "version: 1\nrules:\n  - use: {}\n    match: {{ action: x }}\n    mode: shadow\n",
            preset.name
        ));
        assert_eq!(used.rules().len(), set.rules().len(), "{}", preset.name);
        assert!(used.rules().iter().all(|rule| rule.mode == tollgate_core::rules::Mode::Shadow));
    }
}

#[test]
fn login_protection_counts_account_and_address() {
    let rules = rules(SHOP);
    let login = plan(&rules, &[("action", "login"), ("account", "a@b.c"), ("ip", "203.0.113.7")]);
    let Planned::Plan { plan: both, .. } = login else { panic!("a Plan") };
    assert!(
        matches!(both.items()[0].limit, Limit::Penalty(_))
            && matches!(both.items()[1].limit, Limit::SlidingLog(_))
    );
    assert!(both.items().iter().all(|item| matches!(item.operation, Operation::Charge { cost: 1, .. })));
    assert!(matches!(
        plan(&rules, &[("action", "login"), ("ip", "203.0.113.7")]),
        Planned::Refused { missing: true, .. }
    ));
}

#[test]
fn during_a_hash_key_change_every_rule_is_charged_under_both_keys() {
    let rules = rules("version: 1\nrules:\n  - { id: a, per: user, limit: { fixed-window: 5/s } }\n");
    let attributes = Attributes::new().with("user", "u");
    let request = Request::new(&attributes).token(Token(1));
    let (old, new) = (SubjectHasher::with_id(1, [1; 32]), SubjectHasher::with_id(2, [2; 32]));
    let both = tollgate_core::key::SubjectHashers::rotating(new, old).unwrap();
    let Planned::Plan { plan, .. } = rules.plan(&request, &both, NOW).unwrap() else { panic!("a Plan") };
    let [current, previous] = plan.items() else { panic!("two items: {plan:?}") };
    assert_ne!(current.key.to_string(), previous.key.to_string());
    assert_eq!((current.limit, current.blocking), (previous.limit, previous.blocking));
}

#[test]
fn a_partition_of_several_attributes_ignores_their_order_in_a_rule() {
    let rules = rules(
        "version: 1
partition: [tenant, user]
rules:
  - { id: a, per: [tenant, user], limit: { fixed-window: 5/s } }
  - { id: b, per: [user, action, tenant], limit: { fixed-window: 5/s } }
",
    );
    let attributes = [("tenant", "t"), ("user", "u"), ("action", "x")];
    let Planned::Plan { plan, .. } = plan(&rules, &attributes) else { panic!("a Plan") };
    let [first, second] = plan.items() else { panic!("two items") };
    assert_eq!(first.key.tag(), second.key.tag());
}

fn rule_with(keys: &str) -> String {
    format!("version: 1\nrules:\n  - {{ id: a, per: ip, limit: {{ fixed-window: 5/s }}, {keys} }}\n")
}

#[test]
fn the_old_name_of_a_key_is_accepted() {
    for key in ["ip_subjects_max", "strangers_max"] {
        let rules = rules(&rule_with(&format!("{key}: 100")));
        assert_eq!(rules.rules()[0].ip_subjects_max.map(u64::from), Some(100), "{key}");
    }
}

#[test]
fn both_names_of_a_key_are_an_error() {
    let text = rule_with("strangers_max: 100, ip_subjects_max: 100");
    let mut problems = Problems::new();
    assert!(load(&Source::new("rules.yaml", text.as_bytes()), &mut problems).is_none());
    let messages: Vec<&str> = problems.in_order().iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(messages, ["duplicate key `ip_subjects_max`: `strangers_max` is its old name"]);
}

#[test]
fn an_invalid_value_of_an_old_key_is_reported_under_the_new_name() {
    let text = rule_with("strangers_max: none");
    let mut problems = Problems::new();
    assert!(load(&Source::new("rules.yaml", text.as_bytes()), &mut problems).is_none());
    assert!(problems.in_order()[0].message.starts_with("`ip_subjects_max`: found \"none\""), "{problems:?}");
}

#[test]
fn a_request_takes_one_lease_unless_the_rule_sets_a_cost() {
    let rules = rules(
        "version: 1
rules:
  - { id: quota, per: all, limit: { quota: 100/day } }
  - { id: plain, per: all, limit: { concurrency: 2, lease: 1s } }
  - { id: fixed, per: all, limit: { concurrency: 9, lease: 1s }, cost: 3 }
  - { id: weighted, per: all, limit: { concurrency: 9, lease: 1s }, cost: request }
  - { id: changed, per: all, limit: deny }
overrides:
  - { rule: changed, when: { user: u }, limit: { concurrency: 4, lease: 1s } }
",
    );
    let mut attributes = Attributes::new();
    attributes.set("user", "u");
    let request = Request::new(&attributes).cost(5).token(Token(1));
    let planned = rules.plan(&request, &SubjectHasher::new([1; 32]).into(), NOW).unwrap();
    let costs: Vec<_> = items(planned).into_iter().map(|(rule, cost, _)| (rule, cost)).collect();
    let expected = [("quota", 5), ("plain", 1), ("fixed", 3), ("weighted", 5), ("changed", 1)];
    assert_eq!(costs, expected.map(|(rule, cost)| (rule.to_owned(), cost)));
    assert!(rules.takes_leases());
}

#[test]
fn the_default_number_of_buckets_divides_the_window() {
    for (rate, buckets) in
        [("10/s", 5), ("10/min", 6), ("10/10s", 5), ("10/250ms", 5), ("10/7us", 1), ("10/8us", 4)]
    {
        let rules = rules(&format!(
            "version: 1\nrules: [{{ id: a, per: all, limit: {{ sliding-window: {rate} }} }}]\n"
        ));
        let Some(Limit::SlidingWindow(window)) = rules.rules()[0].limit.at(NOW) else { panic!("a window") };
        assert_eq!(window.buckets(), buckets, "{rate}");
    }
}

#[test]
fn unmatched_refuse_refuses_what_no_rule_counts() {
    let text = "version: 1
unmatched: refuse
rules:
  - { id: search, match: { action: search }, per: user, limit: { fixed-window: 5/s } }
bypass: [{ when: { service: probe } }]
";
    let refusing = rules(text);
    assert!(matches!(plan(&refusing, &[("action", "export")]), Planned::Unmatched { skipped: 0 }));
    // It matches, but the rule skips it because it has no user.
    assert!(matches!(plan(&refusing, &[("action", "search")]), Planned::Unmatched { skipped: 1 }));
    assert_eq!(items(plan(&refusing, &[("action", "search"), ("user", "u")])).len(), 1);
    assert!(matches!(plan(&refusing, &[("service", "probe")]), Planned::Bypassed(_)));
    let allowing = rules(&text.replace("unmatched: refuse", "unmatched: allow"));
    assert!(matches!(plan(&allowing, &[("action", "export")]), Planned::Plan { skipped: 0, .. }));
}
