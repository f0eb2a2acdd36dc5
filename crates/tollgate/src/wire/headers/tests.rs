use proptest::prelude::*;
use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parser};
use tollgate_core::Time;

use super::*;
use crate::{HashKey, HashKeys, LocalLimiter, ManualClock, Request};

/// The fourteenth of February 2026, noon.
const NOON_US: u64 = 1_771_070_400_000_000;

fn limiter(rules: &str) -> LocalLimiter {
    let clock = ManualClock::at(Time::from_us(NOON_US));
    let rules = format!("version: 1\nrules:\n{rules}");
    LocalLimiter::builder().clock(clock).rules_yaml(rules).build().unwrap_or_else(|error| panic!("{error}"))
}

fn check(limiter: &LocalLimiter, cost: u64) -> Decision {
    limiter.check(Request::from([("api_key", "k"), ("tenant", "t")]).cost(cost)).unwrap()
}

fn written(dialect: Dialect, decision: &Decision) -> Vec<String> {
    dialect.fields(decision).iter().map(|field| field.to_string()).collect()
}

/// The fields of one rule after one charge of `cost`.
fn policy(limit: &str, cost: u64) -> Vec<String> {
    let decision = check(&limiter(&format!("  - {{ id: one, per: api_key, limit: {{ {limit} }} }}")), cost);
    assert!(decision.allowed());
    written(Dialect::Ietf08, &decision)
}

const SEARCH: &str =
    "  - { id: search-per-key, per: api_key, limit: { token-bucket: 2/s, burst: 240 }, on_failure: open }";

#[test]
fn every_dialect_has_the_same_numbers() {
    // 223 of 240 are used, and 2 come back each second: all are available after 111.5 s.
    let decision = check(&limiter(SEARCH), 223);
    for (dialect, expected) in [
        (
            Dialect::default(),
            &[
                r#"ratelimit-policy: "search-per-key";q=240;w=120"#,
                r#"ratelimit: "search-per-key";r=17;t=112"#,
            ] as &[&str],
        ),
        (Dialect::Ietf07, &["ratelimit-policy: 240;w=120", "ratelimit: limit=240, remaining=17, reset=112"]),
        (
            Dialect::Ietf06,
            &[
                "ratelimit-policy: 240;w=120",
                "ratelimit-limit: 240",
                "ratelimit-remaining: 17",
                "ratelimit-reset: 112",
            ],
        ),
        (
            Dialect::XRateLimit { reset: Reset::Delta },
            &["x-ratelimit-limit: 240", "x-ratelimit-remaining: 17", "x-ratelimit-reset: 112"],
        ),
        (
            Dialect::XRateLimit { reset: Reset::Epoch },
            &["x-ratelimit-limit: 240", "x-ratelimit-remaining: 17", "x-ratelimit-reset: 1771070512"],
        ),
    ] {
        assert_eq!(written(dialect, &decision), expected, "{dialect:?}");
    }
}

#[test]
fn a_refusal_has_retry_after_in_every_dialect() {
    let limiter = limiter(SEARCH);
    check(&limiter, 240);
    // Three more are available after 1.5 s, one after 0.5 s.
    for (cost, wait) in [(3, "retry-after: 2"), (1, "retry-after: 1")] {
        let refused = check(&limiter, cost);
        for dialect in
            [Dialect::Ietf08, Dialect::Ietf07, Dialect::Ietf06, Dialect::XRateLimit { reset: Reset::Delta }]
        {
            assert_eq!(written(dialect, &refused).last().map(String::as_str), Some(wait), "{dialect:?}");
        }
    }
}

#[test]
fn the_window_is_that_of_the_algorithm() {
    for (limit, cost, expected) in [
        ("fixed-window: 600/min", 1, [r#""one";q=600;w=60"#, r#""one";r=599;t=60"#]),
        ("sliding-log: 5/10min", 2, [r#""one";q=5;w=600"#, r#""one";r=3;t=600"#]),
        (
            "sliding-window: 90/1500ms, buckets: 3, counting: strict",
            1,
            [r#""one";q=90;w=2"#, r#""one";r=89;t=2"#],
        ),
        ("leaky-bucket: 10/s, capacity: 50", 10, [r#""one";q=50;w=5"#, r#""one";r=40;t=1"#]),
        ("leaky-bucket: 10/s, queue: 49", 10, [r#""one";q=50;w=5"#, r#""one";r=40;t=1"#]),
        ("token-bucket: 100/s, burst: 5", 1, [r#""one";q=5;w=1"#, r#""one";r=4;t=1"#]),
        // February has 28 days, of which 14.5 are left.
        ("quota: 10_000/month, zone: UTC", 1, [r#""one";q=10000;w=2419200"#, r#""one";r=9999;t=1252800"#]),
        ("quota: 100/30d, period: rolling", 1, [r#""one";q=100;w=2592000"#, r#""one";r=99;t=2592000"#]),
        ("concurrency: 3, lease: 30s", 1, [r#""one";q=3;qu="concurrent-requests""#, r#""one";r=2;t=30"#]),
        ("penalty: 2s, free: 5", 1, [r#""one";q=6"#, r#""one";r=6;t=0"#]),
    ] {
        let [policy_value, service] = expected;
        let expected = [format!("ratelimit-policy: {policy_value}"), format!("ratelimit: {service}")];
        assert_eq!(policy(limit, cost), expected, "{limit}");
    }
}

/// A counter without a limit stops at 2^53 - 1, which has sixteen digits.
#[test]
fn a_number_too_large_for_a_structured_field_becomes_the_largest() {
    assert_eq!(policy("meter: unlimited", 1)[0], r#"ratelimit-policy: "one";q=999999999999999"#);
}

#[test]
fn drafts_that_require_a_window_have_no_policy_without_one() {
    let decision = check(&limiter("  - { id: one, per: api_key, limit: { concurrency: 3, lease: 30s } }"), 1);
    assert_eq!(written(Dialect::Ietf07, &decision), ["ratelimit: limit=3, remaining=2, reset=30"]);
    assert_eq!(
        written(Dialect::Ietf06, &decision),
        ["ratelimit-limit: 3", "ratelimit-remaining: 2", "ratelimit-reset: 30"]
    );
}

const THREE: &str = "
  - { id: wide, per: tenant, limit: { fixed-window: 1000/h } }
  - { id: tried, per: api_key, mode: shadow, limit: { fixed-window: 1/min } }
  - { id: tight, per: api_key, limit: { fixed-window: 10/min } }";

#[test]
fn every_enforced_rule_is_listed_and_the_tightest_comes_first() {
    let decision = check(&limiter(THREE), 1);
    assert_eq!(
        written(Dialect::Ietf08, &decision),
        [
            r#"ratelimit-policy: "wide";q=1000;w=3600, "tight";q=10;w=60"#,
            r#"ratelimit: "tight";r=9;t=60, "wide";r=999;t=3600"#
        ]
    );
    assert_eq!(
        written(Dialect::Ietf07, &decision),
        ["ratelimit-policy: 10;w=60", "ratelimit: limit=10, remaining=9, reset=60"]
    );
}

#[test]
fn a_rule_charged_under_two_hash_keys_is_named_once() {
    let [new, old] = [(2, [2; 32]), (1, [1; 32])].map(|(id, secret)| HashKey::with_id(id, secret));
    let rules = format!("version: 1\nrules:{THREE}");
    let keys = HashKeys::rotating(new, old).unwrap();
    let limiter = LocalLimiter::builder().rules_yaml(rules).hash_key(keys).build().unwrap();
    let decision = limiter.check([("api_key", "k"), ("tenant", "t")]).unwrap();
    assert_eq!(decision.rules().count(), 6);
    let fields = written(Dialect::Ietf08, &decision);
    assert_eq!(fields[0], r#"ratelimit-policy: "wide";q=1000;w=3600, "tight";q=10;w=60"#);
    assert!(fields[1].starts_with(r#"ratelimit: "tight";r=9;"#), "{fields:?}");
    assert_eq!(read_list(fields[1].split_once(": ").unwrap().1).len(), 2);
}

#[test]
fn the_number_of_listed_rules_is_bounded_and_the_headline_is_among_them() {
    let rule = |number: usize, units: u64| {
        let id = format!("{number:0>64}");
        format!("  - {{ id: \"{id}\", per: api_key, limit: {{ fixed-window: {units}/h }} }}\n")
    };
    // The tightest rule is the last of the file.
    let rules: String = (0..40).map(|number| rule(number, 9_007_199_254_740_000 - number as u64)).collect();
    let decision = check(&limiter(&rules), 1);
    let fields = Dialect::Ietf08.fields(&decision);
    let (policies, limits) = (read_list(&fields[0].value), read_list(&fields[1].value));
    assert_eq!((policies.len(), limits.len()), (POLICIES_MAX, POLICIES_MAX));
    let headline = decision.headline().unwrap().id();
    assert_eq!(limits[0].0, headline);
    assert_eq!(policies.last().unwrap().0, headline);
    let mut names: Vec<_> = limits.iter().map(|(name, _)| name).collect();
    names.sort();
    assert_eq!(names, policies.iter().map(|(name, _)| name).collect::<Vec<_>>());
    assert!(fields.iter().map(|field| field.value.len()).sum::<usize>() <= 4_096, "{fields:?}");
}

#[test]
fn requests_decided_together_list_the_rules_of_all_once() {
    let limiter = limiter(
        "  - { id: address, per: ip, limit: { fixed-window: 100/min } }
  - { id: search, per: api_key, limit: { fixed-window: 5/min } }",
    );
    let requests = [
        Request::from([("ip", "192.0.2.1")]),
        Request::from([("ip", "192.0.2.2")]).cost(3),
        Request::from([("api_key", "k")]),
    ];
    let decisions = limiter.check_all(&requests).unwrap();
    let written = |leading| {
        let fields = Dialect::Ietf08.fields_together(&decisions, leading);
        fields.iter().map(|field| field.to_string()).collect::<Vec<_>>()
    };
    let policies = r#"ratelimit-policy: "address";q=100;w=60, "search";q=5;w=60"#;
    assert_eq!(written(2), [policies, r#"ratelimit: "search";r=4;t=60, "address";r=99;t=60"#]);
    assert_eq!(written(1), [policies, r#"ratelimit: "address";r=97;t=60, "search";r=4;t=60"#]);
    assert_eq!(written(3), [""; 0]);
}

#[test]
fn a_request_without_an_enforced_rule_has_no_fields() {
    let limiter = limiter(
        "  - { id: elsewhere, match: { action: export }, per: api_key, limit: { fixed-window: 1/min } }
  - { id: shadow, per: api_key, mode: shadow, limit: { fixed-window: 1/min } }
bypass:
  - { when: { tenant: ours }, reason: it is us }
deny:
  - { when: { tenant: theirs }, reason: it is them }",
    );
    for tenant in ["anybody", "ours", "theirs"] {
        let decision = limiter.check([("api_key", "k"), ("tenant", tenant)]).unwrap();
        assert_eq!(decision.allowed(), tenant != "theirs");
        assert_eq!(written(Dialect::Ietf08, &decision), [""; 0], "{tenant}");
    }
}

fn any_line() -> impl Strategy<Value = Line<'static>> {
    let number = || prop_oneof![0..100_u64, Just(INTEGER_MAX), Just(INTEGER_MAX + 1), any::<u64>()];
    let id = prop_oneof![
        Just("search-per-key"),
        Just("A.b_c-9"),
        Just(r#"quoted "and\ escaped"#),
        Just("beyond ASCII: \u{e9}\u{1f980}\u{7f}\n")
    ];
    let window = prop::option::of(number().prop_map(|window| window.max(1)));
    (id, number(), number(), window, number(), number(), any::<bool>()).prop_map(
        |(id, limit, remaining, window_s, reset_after_s, reset_at_s, counts_concurrency)| Line {
            id,
            blocking: true,
            limit,
            remaining,
            window_s,
            reset_after_s,
            reset_at_s,
            counts_concurrency,
        },
    )
}

/// An item and its parameters, in a form that can be compared.
fn read(item: &Item) -> (String, Vec<(String, String)>) {
    let parameters = item.params.iter().map(|(name, value)| (name.to_string(), text(value)));
    (text(&item.bare_item), parameters.collect())
}

fn text(item: &BareItem) -> String {
    match item {
        BareItem::Integer(number) => number.to_string(),
        BareItem::String(text) => text.as_str().to_owned(),
        other => panic!("neither a number nor a text: {other:?}"),
    }
}

fn read_list(value: &str) -> Vec<(String, Vec<(String, String)>)> {
    let list: List = Parser::new(value).parse().unwrap_or_else(|error| panic!("{value}: {error}"));
    list.iter()
        .map(|entry| match entry {
            ListEntry::Item(item) => read(item),
            ListEntry::InnerList(_) => panic!("a list in a list: {value}"),
        })
        .collect()
}

/// The form that a field must have: at most fifteen digits, printable ASCII.
fn cut(number: u64) -> String {
    number.min(999_999_999_999_999).to_string()
}

fn ascii(id: &str) -> String {
    id.chars().map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '?' }).collect()
}

fn named(name: &str, value: String) -> (String, String) {
    (name.to_owned(), value)
}

proptest! {
    #[test]
    fn lists_parse_back_to_their_numbers(lines in prop::collection::vec(any_line(), 1..6)) {
        let mut lines = lines;
        let mut seen = std::collections::HashSet::new();
        lines.retain(|line| seen.insert(line.id));
        let fields = Dialect::Ietf08.write(&lines[0], lines.iter().copied());
        prop_assert!(fields.iter().all(|field| field.value.is_ascii() && field.list));
        let expected: Vec<_> = lines.iter().map(|line| {
            let mut parameters = vec![named("q", cut(line.limit))];
            if line.counts_concurrency {
                parameters.push(named("qu", "concurrent-requests".to_owned()));
            }
            parameters.extend(line.window_s.map(|window| named("w", cut(window))));
            (ascii(line.id), parameters)
        }).collect();
        prop_assert_eq!(read_list(&fields[0].value), expected);
        let services: Vec<_> = lines.iter().map(|line| {
            let numbers = vec![named("r", cut(line.remaining)), named("t", cut(line.reset_after_s))];
            (ascii(line.id), numbers)
        }).collect();
        prop_assert_eq!(read_list(&fields[1].value), services);
    }

    #[test]
    fn older_drafts_parse_back_to_their_numbers(line in any_line()) {
        let policy: Vec<_> =
            line.window_s.map(|window| (cut(line.limit), vec![named("w", cut(window))])).into_iter().collect();
        let numbers = [line.limit, line.remaining, line.reset_after_s].map(cut);

        let fields = Dialect::Ietf07.write(&line, std::iter::empty());
        let (service, policies) = fields.split_last().unwrap();
        let found: Vec<_> = policies.iter().flat_map(|field| read_list(&field.value)).collect();
        prop_assert_eq!(&found, &policy);
        let service: Dictionary = Parser::new(&service.value).parse().unwrap();
        let found: Vec<_> = service.iter().map(|(name, entry)| match entry {
            ListEntry::Item(item) => (name.to_string(), read(item)),
            ListEntry::InnerList(_) => panic!("a list in a dictionary"),
        }).collect();
        let expected = ["limit", "remaining", "reset"].iter().zip(&numbers);
        let expected: Vec<_> =
            expected.map(|(name, number)| ((*name).to_owned(), (number.clone(), Vec::new()))).collect();
        prop_assert_eq!(found, expected);

        let fields = Dialect::Ietf06.write(&line, std::iter::empty());
        let (policies, numbers_written) = fields.split_at(fields.len() - 3);
        let found: Vec<_> = policies.iter().flat_map(|field| read_list(&field.value)).collect();
        prop_assert_eq!(&found, &policy);
        let found = numbers_written.iter().map(|field| {
            let item: Item = Parser::new(&field.value).parse().unwrap();
            read(&item).0
        });
        prop_assert_eq!(found.collect::<Vec<_>>(), numbers);
    }
}
