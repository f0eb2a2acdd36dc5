use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate::Clock;
use tollgate::core::decision::Source;

use super::super::envoy::convert;
use super::generator::Generator;
use super::{Entries, Imported, counted_by, import, shown};

/// A node of the original's tree, with what the walk needs.
struct Node {
    key: &'static str,
    value: Option<&'static str>,
    limit: Option<Limit>,
    shared: bool,
    children: Vec<Node>,
}

struct Limit {
    name: String,
    /// Requests and seconds; `None` if it is unlimited.
    window: Option<(u64, u64)>,
    shadow: bool,
}

const KEYS: [&str; 2] = ["k", "l"];
const VALUES: [Option<&str>; 12] = [
    None,
    None,
    None,
    Some("a"),
    Some("ab"),
    Some("b.c-d"),
    Some("a*"),
    Some("*b"),
    Some("a*b"),
    Some("ab*"),
    Some("*x*"),
    Some("a*b*b"),
];
const SENT: [&str; 12] = ["", "a", "ab", "aab", "b", "x", "abb", "axb", "b.c-d", "abxbb", "bx", "é"];
const UNITS: [(&str, u64); 4] = [("second", 1), ("MINUTE", 60), ("day", 86_400), ("week", 604_800)];

fn generate_list(generator: &mut Generator, depth: u32, limits: &mut usize) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for _ in 0..=generator.below(5) {
        let (key, value) = (generator.pick(&KEYS), generator.pick(&VALUES));
        if nodes.iter().any(|other| (other.key, other.value) == (key, value)) {
            continue;
        }
        let limit = (!generator.one_in(4)).then(|| {
            *limits += 1;
            let window = (!generator.one_in(5)).then(|| (generator.below(4), generator.pick(&UNITS).1));
            Limit { name: format!("limit-{limits}"), window, shadow: generator.one_in(5) }
        });
        let shared = value.is_some_and(|value| value.contains('*')) && generator.one_in(2);
        let with_children = depth < 3 && generator.one_in(2);
        let children = if with_children { generate_list(generator, depth + 1, limits) } else { Vec::new() };
        nodes.push(Node { key, value, limit, shared, children });
    }
    nodes
}

fn written(nodes: &[Node]) -> Value {
    let node = |node: &Node| {
        let mut map = json!({ "key": node.key, "descriptors": written(&node.children) });
        if let Some(value) = node.value {
            map["value"] = value.into();
        }
        if node.shared {
            map["share_threshold"] = true.into();
        }
        if let Some(Limit { name, window, shadow }) = &node.limit {
            map["shadow_mode"] = (*shadow).into();
            map["rate_limit"] = match window {
                None => json!({ "name": name, "unlimited": true }),
                Some((requests, seconds)) => {
                    let (unit, _) = UNITS.iter().find(|(_, length)| length == seconds).expect("a unit");
                    json!({ "name": name, "unit": unit, "requests_per_unit": requests })
                }
            };
        }
        map
    };
    nodes.iter().map(node).collect()
}

/// The limit of a descriptor, and the values that are counted separately.
fn look_up<'n>(mut nodes: &'n [Node], entries: &Entries) -> Option<(&'n Limit, Vec<String>)> {
    let mut counted = Vec::new();
    for (at, (key, value)) in entries.iter().enumerate() {
        let of_key = || nodes.iter().filter(|node| node.key == *key);
        let exact = of_key().find(|node| node.value == Some(value));
        let wildcard =
            || of_key().find(|node| node.value.is_some_and(|own| own.contains('*') && like(own, value)));
        let node = exact.or_else(wildcard).or_else(|| of_key().find(|node| node.value.is_none()))?;
        counted.push(if node.shared { String::new() } else { value.clone() });
        if at + 1 == entries.len() {
            return Some((node.limit.as_ref()?, counted));
        }
        nodes = &node.children;
    }
    None
}

/// Whether a text matches a pattern in which `*` stands for any characters.
fn like(pattern: &str, text: &str) -> bool {
    match (pattern.chars().next(), text.chars().next()) {
        (None, None) => true,
        (Some('*'), _) => {
            like(&pattern[1..], text)
                || text.chars().next().is_some_and(|first| like(pattern, &text[first.len_utf8()..]))
        }
        (Some(one), Some(two)) if one == two => like(&pattern[one.len_utf8()..], &text[two.len_utf8()..]),
        _ => false,
    }
}

#[test]
fn imported_envoy_rules_decide_as_the_original() {
    let (mut limited, mut unlimited, mut unmatched, mut refused) = (0, 0, 0, 0);
    for seed in 0..300 {
        let mut generator = Generator::new(seed);
        let mut limits = 0;
        let nodes = generate_list(&mut generator, 1, &mut limits);
        // The same domain from two files, as with MERGE_DOMAIN_CONFIG, and another domain.
        let half = nodes.len() / 2;
        let file = |domain: &str, nodes: &[Node]| {
            json!({ "domain": domain, "descriptors": written(nodes) }).to_string()
        };
        let (one, two) = (file("shop", &nodes[..half]), file("shop", &nodes[half..]));
        let rules = import(convert, &[&one, &two]).unwrap_or_else(|error| panic!("{one}\n{two}\n{error}"));
        let imported = Imported::new(&rules);
        let mut counts: HashMap<(String, Vec<String>, u64), u64> = HashMap::new();
        for _ in 0..80 {
            if generator.one_in(10) {
                imported.clock.advance(Duration::from_secs(generator.pick(&[1, 30, 60, 3_600, 86_400])));
            }
            let entries: Entries = (0..=generator.below(3))
                .map(|_| (generator.pick(&KEYS), generator.pick(&SENT).to_owned()))
                .collect();
            let domain = if generator.one_in(20) { "other" } else { "shop" };
            let found = look_up(&nodes, &entries).filter(|_| domain == "shop");
            let decision = imported.decide(domain, std::slice::from_ref(&entries), 0).remove(0);
            let context = format!("seed {seed}: {}\n{one}\n{two}\n{rules}\n{decision:#?}", shown(&[entries]));
            match found {
                None => {
                    unmatched += 1;
                    assert_eq!(decision.source(), Source::Unmatched, "{context}");
                    assert!(decision.allowed(), "{context}");
                }
                Some((Limit { window: None, .. }, _)) => {
                    unlimited += 1;
                    assert_eq!(decision.source(), Source::List, "{context}");
                    assert!(decision.allowed(), "{context}");
                }
                Some((Limit { name, window: Some((requests, seconds)), shadow }, counted)) => {
                    limited += 1;
                    let window = imported.clock.now().us() / (seconds * 1_000_000);
                    let count = counts.entry((name.clone(), counted, window)).or_default();
                    *count += 1;
                    let allowed = *shadow || *count <= *requests;
                    refused += u32::from(!allowed);
                    assert_eq!(decision.allowed(), allowed, "{context}");
                    if *requests > 0 {
                        assert_eq!(counted_by(&decision), [(name.clone(), Some(*requests))], "{context}");
                        let remaining = decision.rules().next().and_then(|rule| rule.remaining());
                        assert_eq!(remaining, Some(requests.saturating_sub(*count)), "{context}");
                    } else if !shadow {
                        assert_eq!(decision.rule(), Some(name.as_str()), "{context}");
                    }
                }
            }
        }
    }
    // The generator reaches every case often.
    assert!(
        limited > 2_000 && unlimited > 500 && unmatched > 2_000 && refused > 500,
        "{limited} {unlimited} {unmatched} {refused}"
    );
}

#[test]
fn what_cannot_be_expressed_is_refused_with_file_line_and_reason() {
    let limit = "rate_limit: { unit: day, requests_per_unit: 1 }";
    let file = |nodes: &str| format!("domain: d\ndescriptors:\n{nodes}");
    for (nodes, place, reason) in [
        (format!("  - {{ key: k, value: v, {limit} }}\n  - {{ key: k, value: v }}"), ":4:", "duplicate descriptor `k: v`"),
        (format!("  - {{ key: k, {limit} }}\n  - {{ key: k, {limit} }}"), ":4:", "duplicate descriptor `k`"),
        (format!("  - {{ key: a_b, value: c, {limit} }}\n  - {{ key: a, value: b_c }}"), ":4:", "duplicate descriptor"),
        ("  - { key: k, rate_limit: { unlimited: true, unit: day } }".to_owned(), ":3:", "`unit` of an unlimited descriptor"),
        (format!("  - key: k\n    quota_mode: true\n    {limit}"), ":4:", "unsupported `quota_mode`"),
        (
            "  - { key: k, rate_limit: { name: one, unit: day, requests_per_unit: 1 } }\n  - key: l\n    rate_limit:\n      unit: day\n      requests_per_unit: 1\n      replaces: [{ name: one }]".to_owned(),
            ":8:",
            "unsupported `replaces`",
        ),
        (format!("  - {{ key: k, value: v, share_threshold: true, {limit} }}"), ":3:", "`share_threshold` needs a value with `*`"),
        (format!("  - {{ key: k, value: 'a?*b', {limit} }}"), ":3:", "unsupported value `a?*b`"),
        (format!("  - {{ key: descriptor, {limit} }}"), ":3:", "unsupported key"),
        (format!("  - {{ key: 'a,b', {limit} }}"), ":3:", "a key with a comma"),
        (format!("  - {{ key: 'a*', {limit} }}"), ":3:", "a key with `*`"),
        (format!("  - key: k\n    descriptors: [{{ key: k, descriptors: [{{ key: k_2, {limit} }}] }}]"), ":4:", "attribute name `k_2`"),
        ("  - { key: k, rate_limit: { unit: day, requests_per_unit: 4294967296 } }".to_owned(), ":3:", "whole number up to 4294967295"),
        (format!("  - {{ key: k, burst: 3, {limit} }}"), ":3:", "unknown key \"burst\""),
        (format!("  - key: k\n    hits_addend: {{ number: 0 }}\n    {limit}"), ":4:", "unsupported `hits_addend`"),
        (format!("  - key: k\n    {limit}\n    apply_on_stream_done: true"), ":5:", "unsupported `apply_on_stream_done`"),
        (
            "  - key: k\n    rate_limit:\n      unit: day\n      requests_per_unit: 1\n      is_negative_hits: true".to_owned(),
            ":7:",
            "unsupported `is_negative_hits`",
        ),
        (
            "  - key: k\n    rate_limit:\n      unit: year\n      unit_multiplier: 2\n      requests_per_unit: 1".to_owned(),
            ":6:",
            "invalid `unit_multiplier`: expected a whole number from 1 to 1\n",
        ),
        (
            "  - { key: k, rate_limit: { unit: second, unit_multiplier: 0, requests_per_unit: 1 } }".to_owned(),
            ":3:",
            "expected a whole number from 1 to 31622400",
        ),
    ] {
        let text = file(&nodes);
        let problems = import(convert, &["domain: other\ndescriptors: []", &text]).expect_err(&text);
        assert!(problems.contains(reason), "{text}\n{problems}");
        assert!(problems.contains(&format!("two.yaml{place}")), "{text}\n{problems}");
    }
    let one = file(&format!("  - {{ key: k, {limit} }}"));
    let problems = import(convert, &[&one, &one]).expect_err("a duplicate in another file");
    assert!(problems.contains("two.yaml:3:") && problems.contains("one.yaml:3"), "{problems}");
}

#[test]
fn a_window_has_as_many_units_as_its_multiplier() {
    for (unit, multiplier, limit) in [
        ("minute", 15, "7/15min"),
        ("second", 90, "7/90s"),
        ("day", 7, "7/7d"),
        ("hour", 24, "7/d"),
        ("year", 1, "7/365d"),
    ] {
        let limited = format!("unit: {unit}, unit_multiplier: {multiplier}, requests_per_unit: 7");
        let text = format!("domain: d\ndescriptors: [{{ key: k, rate_limit: {{ {limited} }} }}]");
        let rules = import(convert, &[&text]).expect("it is supported");
        assert!(rules.contains(&format!("limit: {{ fixed-window: {limit} }}")), "{rules}");
    }
}

#[test]
fn settings_without_a_meaning_for_limits_are_accepted_and_reported() {
    let text = "domain: d\ndescriptors:\n  - key: k\n    detailed_metric: true\n    value_to_metric: true\n    metadata: { a: [1] }\n    rate_limit: { unit: day, requests_per_unit: 1, replaces: [{ name: absent }] }";
    let rules = import(convert, &[text]).expect("nothing that changes a decision");
    for comment in ["`detailed_metric` is ignored", "`value_to_metric` is ignored", "`metadata` is ignored"] {
        assert!(rules.contains(comment), "{rules}");
    }
    // Without a limit or without an effect, a mode changes nothing.
    for node in [
        "{ key: k, quota_mode: true, shadow_mode: true }",
        "{ key: k, quota_mode: true, rate_limit: { unlimited: true } }",
    ] {
        import(convert, &[&format!("domain: d\ndescriptors: [{node}]")]).expect(node);
    }
}
