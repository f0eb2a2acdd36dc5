//! The check reports every difference between a file and its shape, with its position.

use crate::example::{found, problems};
use crate::shape::{Shape, choice, fields, list, one_of, text};
use crate::{Problems, Source, check, parse};

/// A file whose one rule has this limit.
fn with_limit(limit: &str) -> String {
    format!("version: 1\nrules:\n  - id: a\n    limit: {limit}\n")
}

#[test]
fn a_valid_file_has_no_problem() {
    for text in [
        "version: 1\nrules: []",
        "version: 1\nrules:\n  - id: a\n    limit: deny",
        "version: 1\nrules:\n  - { id: 5, limit: 2/s, per: tenant, sticky: true }",
        "version: 1\nrules:\n  - { id: a, limit: { sliding-window: 2/s, buckets: 1_0 }, per: [tenant, ip] }",
        "version: 1\nrules:\n  - id: a\n    limit: 2/s\n    match: { plan: [pro, 42], tier: { not: { a: { not: {} } } } }",
        "version: 1\nrules:\n  - { id: a, limit: deny, labels: { team: x, other: [1, { a: ~ }] } }",
    ] {
        assert_eq!(found(text), [""; 0], "{text}");
    }
}

#[test]
fn each_difference_is_reported_at_its_position() {
    for (limit, expected) in [
        ("[2/s]", vec!["4:12 wrong-type"]),
        ("true", vec!["4:12 wrong-type"]),
        ("", vec!["4:5 wrong-type"]),
        ("dney", vec!["4:12 no-alternative"]),
        ("5", vec!["4:12 no-alternative"]),
        ("{}", vec!["4:12 no-alternative"]),
        ("{ x: 1 }", vec!["4:12 no-alternative"]),
        ("{ token-buckt: 2/s }", vec!["4:14 unknown-key"]),
        ("{ token-bucket: 2 }", vec!["4:28 wrong-type"]),
        ("{ token-bucket: \"2\" }", vec!["4:28 bad-text"]),
        ("{ token-bucket: 2/s, burst: 0 }", vec!["4:40 number-out-of-range"]),
        ("{ token-bucket: 2/s, burst: 1000001 }", vec!["4:40 number-out-of-range"]),
        ("{ token-bucket: 2/s, burst: 1.5 }", vec!["4:40 bad-number"]),
        ("{ token-bucket: 2/s, burst: '5' }", vec!["4:40 bad-number"]),
        ("{ token-bucket: 2/s, burst: [5] }", vec!["4:40 wrong-type"]),
        ("{ token-bucket: 2/s, buckets: 5 }", vec!["4:33 unknown-key"]),
        ("{ sliding-window: 2/s, burst: 5 }", vec!["4:35 unknown-key"]),
        ("{ token-bucket: 2/s, sliding-window: 3/s }", vec!["4:33 mixed-alternatives"]),
        (
            "{ token-bucket: 2, sliding-window: 3, buckets: x }",
            vec!["4:14 mixed-alternatives", "4:47 wrong-type", "4:59 bad-number"],
        ),
        ("{ token-bucket: *a, burst: 0 }", vec!["4:28 alias", "4:39 number-out-of-range"]),
    ] {
        assert_eq!(found(&with_limit(limit)), expected, "{limit}");
    }
}

#[test]
fn one_problem_does_not_hide_another() {
    let text = "\
vresion: 1
rules:
  - id: a
  - id: b
    limit: deny
    match:
      plan: { not: { Plan: true } }
      tier: []
    per: { tenant: x }
  - deny
extra: 1
";
    assert_eq!(
        found(text),
        [
            "1:1 unknown-key",
            "3:5 missing-key",
            "7:22 bad-text",
            "7:28 wrong-type",
            "8:13 too-few-items",
            "9:10 wrong-type",
            "10:5 wrong-type",
            "11:1 unknown-key",
        ]
    );
}

#[test]
fn a_misspelt_required_key_is_reported_once() {
    assert_eq!(found("version: 1\nrule: []"), ["2:1 unknown-key"]);
    assert_eq!(found("version: 1\nxyz: []"), ["1:1 missing-key", "2:1 unknown-key"]);
}

#[test]
fn an_invalid_node_is_not_reported_twice() {
    assert_eq!(found("version: *v\nrules: *r"), ["1:10 alias", "2:8 alias"]);
}

#[test]
fn a_list_that_allows_one_item_mentions_both_forms() {
    let source = Source::new("f", b"version: 1\nrules: [{ id: a, limit: deny, per: true }]");
    let problems = problems(&source);
    let problem = problems.in_order()[0];
    assert_eq!(problem.message, "`per`: found `true`, expected an attribute, or a list of them");
    assert_eq!(problem.help.as_deref(), Some("to use it as text, write it in quotes: \"true\""));
}

#[test]
fn shapes_with_the_same_required_keys_are_selected_by_their_optional_keys() {
    let shape = Shape::from(
        one_of("a bucket")
            .or(
                "The meter.",
                fields("a meter").required("rate", text("a rate"), "").optional("capacity", text("x"), ""),
            )
            .or(
                "The shaper.",
                fields("a shaper").required("rate", text("a rate"), "").optional("queue", text("x"), ""),
            ),
    );
    for (text, expected) in [
        ("{ rate: 1 }", vec![]),
        ("{ rate: 1, capacity: 1 }", vec![]),
        ("{ rate: 1, queue: 1 }", vec![]),
        ("{ rate: 1, queue: 1, capacity: 1 }", vec!["unknown key `queue`"]),
    ] {
        assert_eq!(messages(&shape, text), expected, "{text}");
    }
}

#[test]
fn the_shape_with_the_most_required_keys_present_is_selected() {
    let any = || text("a text");
    let one = fields("one").required("rate", any(), "").optional("x", any(), "").optional("y", any(), "");
    let two = fields("two").required("rate", any(), "").required("capacity", any(), "");
    let shape = Shape::from(one_of("either").or("One.", one).or("Two.", two));
    let text = "{ rate: 1, capacity: 1, x: 1, y: 1 }";
    assert_eq!(messages(&shape, text), ["unknown key `x`", "unknown key `y`"]);
}

#[test]
fn an_alternative_without_required_keys_accepts_the_remaining_maps() {
    let shape = Shape::from(
        one_of("a cost")
            .or("By key.", fields("a table").required("by", text("an attribute"), ""))
            .or("Any.", fields("weights").rest(list(choice(&[("low", ""), ("high", "")])))),
    );
    for (text, expected) in [
        ("{ by: x }", vec![]),
        ("{ post: [low] }", vec![]),
        ("{ post: [low, hihg] }", vec!["`post`, item 2: found \"hihg\", expected `low` or `high`"]),
    ] {
        assert_eq!(messages(&shape, text), expected, "{text}");
    }
}

fn messages(shape: &Shape, text: &str) -> Vec<String> {
    let source = Source::new("f", text.as_bytes());
    let mut problems = Problems::new();
    let node = parse(&source, &mut problems).expect("valid YAML");
    check(shape, &node, &mut problems);
    problems.in_order().iter().map(|problem| problem.message.clone()).collect()
}
