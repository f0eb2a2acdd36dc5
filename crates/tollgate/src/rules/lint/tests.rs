//! Tests of the linter: helpers, and tests about all lints together. The submodules test single lints.

mod attributes;
mod cases;
mod dead_rules;
mod interactions;
mod limits;
mod overrides;
mod protection;

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::rules::{load_and_lint, presets};
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

#[test]
fn findings_point_at_the_text_they_are_about() {
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
fn presets_have_no_warnings() {
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
fn the_example_has_no_warnings() {
    for cluster in [false, true] {
        assert_eq!(warnings(SHOP, cluster), [""; 0], "cluster: {cluster}");
    }
}

/// The loader reports this as an error, so the linter need not.
#[test]
fn a_cost_above_the_capacity_is_an_error() {
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

/// The file has many conditions that take long to compare.
#[test]
fn a_hostile_file_ends_with_an_incomplete_lint() {
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
    fn the_linter_does_not_panic_on_any_file(
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
