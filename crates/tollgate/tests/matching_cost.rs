//! Matching a request costs the same for any number of rules.
//!
//! The test counts instructions instead of time, so that a busy machine cannot fail it. It runs itself under callgrind once
//! for each figure, which counts only what happens inside [`measured_matching`].

mod common;

use std::env;
use std::hint::black_box;
use std::thread;

use tollgate::core::rules::condition::PathPattern;
use tollgate::core::rules::{
    Condition, Cost, FailurePolicy, Missing, Mode, Origin, Placement, Rollout, Rule, RuleLimit, RuleSet,
    SubjectSelector, Test,
};
use tollgate::core::{Attributes, Keyspace, Layers};

const FEW: usize = 20;
const MANY: usize = 2_000;

/// Requests per figure, spread evenly over the rules.
const REQUESTS: usize = 10;

/// The variable that names the figure of a run under callgrind: a style and a number of rules.
const FIGURE: &str = "TOLLGATE_MATCHING_FIGURE";

/// The name of the test below, which runs itself.
const TEST: &str = "matching_costs_the_same_for_many_rules_as_for_few";

/// A style of rules. Each pair of rules matches requests that no other rule matches.
struct Style {
    name: &'static str,
    /// The conditions of the two rules of a pair.
    pair: fn(usize) -> [Vec<Condition>; 2],
    /// The request that both match.
    request: fn(usize) -> Vec<(&'static str, String)>,
}

const STYLES: [Style; 7] = [
    Style {
        name: "actions",
        pair: |n| {
            [
                vec![is("action", &[&format!("a{n}")])],
                vec![is("action", &[&format!("a{n}"), &format!("b{n}")])],
            ]
        },
        request: |n| vec![("action", format!("a{n}"))],
    },
    Style {
        name: "paths",
        pair: |n| ["{id}", "{*rest}"].map(|last| vec![path(&format!("/v1/c{n}/{last}"))]),
        request: |n| vec![("path", format!("/v1/c{n}/7"))],
    },
    Style {
        name: "paths, parts first",
        pair: |n| ["{id}", "{*rest}"].map(|last| vec![path(&format!("/{{tenant}}/c{n}/{last}"))]),
        request: |n| vec![("path", format!("/acme/c{n}/7"))],
    },
    Style {
        name: "prefixes",
        pair: |n| ["", "v1/"].map(|last| vec![prefix(&format!("/c{n}/{last}"))]),
        request: |n| vec![("path", format!("/c{n}/v1/items"))],
    },
    Style {
        name: "method, then path",
        pair: |n| {
            ["{id}", "{*rest}"].map(|last| vec![is("method", &["GET"]), path(&format!("/c{n}/{last}"))])
        },
        request: |n| vec![("method", "GET".to_owned()), ("path", format!("/c{n}/7"))],
    },
    Style {
        name: "path, then method",
        pair: |n| {
            ["{id}", "{*rest}"].map(|last| vec![path(&format!("/c{n}/{last}")), is("method", &["GET"])])
        },
        request: |n| vec![("method", "GET".to_owned()), ("path", format!("/c{n}/7"))],
    },
    Style {
        name: "tenants of one plan",
        pair: |n| {
            ["search", "find"].map(|other| {
                vec![
                    is("tenant", &[&format!("t{n}")]),
                    is("plan", &["pro"]),
                    is("action", &["search", other]),
                ]
            })
        },
        request: |n| {
            vec![("tenant", format!("t{n}")), ("plan", "pro".to_owned()), ("action", "search".to_owned())]
        },
    },
];

fn is(attribute: &str, values: &[&str]) -> Condition {
    let values = values.iter().map(|&value| value.to_owned()).collect();
    Condition { attribute: attribute.to_owned(), test: Test::OneOf(values) }
}

fn prefix(start: &str) -> Condition {
    Condition { attribute: "path".to_owned(), test: Test::Prefix(start.to_owned()) }
}

fn path(pattern: &str) -> Condition {
    let pattern = PathPattern::parse(pattern).expect("the pattern is valid");
    Condition { attribute: "path".to_owned(), test: Test::Path(pattern) }
}

fn rule(number: usize, conditions: Vec<Condition>) -> Rule {
    Rule {
        keyspace: Keyspace::new("test", &format!("r{number}")).expect("the name is valid"),
        description: String::new(),
        conditions,
        per: SubjectSelector::default(),
        ip_subjects_max: None,
        missing: Missing::Skip,
        limit: RuleLimit::Deny,
        cost: Cost::FromRequest,
        postpaid: false,
        slices: None,
        shards: None,
        ledger: None,
        ledger_name: None,
        on_failure: FailurePolicy::default(),
        layers: Layers::default(),
        mode: Mode::Enforce,
        rollout: Rollout::ALL,
        tags: Vec::new(),
        show: Vec::new(),
        origin: Origin { file: "test".to_owned(), line: 1 },
    }
}

/// Callgrind counts what happens inside this function. Returns how many rules matched in total.
#[inline(never)]
fn measured_matching(rules: &RuleSet, requests: &[Attributes<'_>]) -> usize {
    requests.iter().map(|request| black_box(rules.matching(black_box(request))).len()).sum()
}

/// Runs under callgrind.
fn run_figure(figure: &str) {
    let (number, name) = figure.split_once(' ').expect("a figure has a number and a style");
    let number: usize = number.parse().expect("the number of rules is a number");
    let style = STYLES.iter().find(|style| style.name == name).expect("the style exists");
    let rules = (0..number / 2).flat_map(style.pair).enumerate().map(|(at, conditions)| rule(at, conditions));
    let rules = RuleSet::new(rules.collect(), Vec::new(), Vec::new(), Vec::new(), Placement::default());
    let rules = rules.expect("the rule set is valid");
    let values: Vec<_> = (0..REQUESTS).map(|at| (style.request)(at * (number / 2) / REQUESTS)).collect();
    let mut requests = vec![Attributes::new(); REQUESTS];
    for (request, values) in requests.iter_mut().zip(&values) {
        values.iter().for_each(|(name, value)| request.set(name, value));
    }
    assert_eq!(measured_matching(&rules, &requests), 2 * REQUESTS, "every request matches two rules");
}

/// The instructions that one request takes.
fn instructions(style: &Style, rules: usize) -> u64 {
    let figure = format!("{rules} {}", style.name);
    tollgate_testkit::callgrind::instructions(TEST, "measured_matching", (FIGURE, &figure)) / REQUESTS as u64
}

#[test]
fn matching_costs_the_same_for_many_rules_as_for_few() {
    if let Ok(figure) = env::var(FIGURE) {
        return run_figure(&figure);
    }
    println!("{:<24}{FEW:>10} rules{MANY:>10} rules", "instructions per request");
    let mut slow = Vec::new();
    for style in &STYLES {
        let (few, many) = thread::scope(|scope| {
            let few = scope.spawn(|| instructions(style, FEW));
            let many = instructions(style, MANY);
            (few.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), many)
        });
        println!("{:<24}{few:>16}{many:>16}", style.name);
        if many > 2 * few {
            slow.push(format!("{}: {few} and {many}", style.name));
        }
    }
    assert!(slow.is_empty(), "more than twice the instructions for {MANY} rules\n{}", slow.join("\n"));
}
