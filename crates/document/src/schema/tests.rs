//! The schema is stable, and accepts everything that the check accepts.

use std::cell::Cell;

use boon::{Compiler, Schemas};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::*;
use crate::example;
use crate::node::{Node, Value as NodeValue};
use crate::shape::{RenamedKey, choice, fields, list, map_of, number, one_of, text};
use crate::{Problems, Source, check, parse};

const RENAMED: &[RenamedKey] = &[RenamedKey { old: "old", new: "new", until: "2.0" }];

#[test]
fn each_shape_generates_its_schema() {
    let any_text = json!({ "title": "t", "type": ["string", "number"] });
    for (shape, expected) in [
        (text("t").into(), any_text.clone()),
        (
            text("t").no_number().pattern("^a$").examples(&["a"]).into(),
            json!({ "title": "t", "type": "string", "pattern": "^a$", "examples": ["a"] }),
        ),
        (
            number(1, 9),
            json!({ "type": ["integer", "string"], "minimum": 1, "maximum": 9, "pattern": "^[0-9_]+$" }),
        ),
        (Shape::Bool, json!({ "type": "boolean" })),
        (
            choice(&[("a", "First."), ("b", "Second.")]),
            json!({ "enum": ["a", "b"], "description": "`a`: First.\n`b`: Second." }),
        ),
        (list(text("t")).at_least(2).into(), json!({ "type": "array", "items": any_text, "minItems": 2 })),
        (
            list(text("t")).or_one().into(),
            json!({ "anyOf": [any_text, { "type": "array", "items": any_text }] }),
        ),
        (
            fields("f")
                .required("a", Shape::Bool, "Doc.")
                .optional("b", choice(&[("x", "X.")]), "Doc.")
                .into(),
            json!({
                "title": "f",
                "type": "object",
                "properties": {
                    "a": { "type": "boolean", "description": "Doc." },
                    "b": { "enum": ["x"], "description": "Doc.\n\n`x`: X." },
                },
                "required": ["a"],
                "additionalProperties": false,
            }),
        ),
        (
            fields("f").optional("new", Shape::Bool, "Doc.").renamed(RENAMED).into(),
            json!({
                "title": "f",
                "type": "object",
                "properties": {
                    "new": { "type": "boolean", "description": "Doc." },
                    "old": {
                        "type": "boolean",
                        "description": "Old name of `new`, accepted until 2.0.",
                        "deprecated": true,
                    },
                },
                "additionalProperties": false,
            }),
        ),
        (
            fields("f").rest(Shape::Bool).into(),
            json!({
                "title": "f", "type": "object", "properties": {}, "additionalProperties": { "type": "boolean" },
            }),
        ),
        (
            map_of("m", text("k").pattern("^k"), Shape::Any).into(),
            json!({
                "title": "m", "type": "object", "additionalProperties": {}, "propertyNames": { "pattern": "^k" },
            }),
        ),
        (
            one_of("o").or("One.", Shape::Bool).or("Two.", list(Shape::Any)).into(),
            json!({
                "title": "o",
                "oneOf": [
                    { "type": "boolean", "description": "One." },
                    { "type": "array", "items": {}, "description": "Two." },
                ],
            }),
        ),
        (
            one_of("o").or("One.", choice(&[("x", "X.")])).or("Two.", text("t")).into(),
            json!({
                "title": "o",
                "anyOf": [
                    { "enum": ["x"], "description": "One.\n\n`x`: X." },
                    { "title": "t", "type": ["string", "number"], "description": "Two." },
                ],
            }),
        ),
    ] {
        let found = Value::Object(Schema { named: Map::new() }.of(&shape));
        assert_eq!(found, expected, "{shape:?}");
    }
}

#[test]
fn a_recursive_shape_is_referenced_by_name() {
    let schema = json_schema(&example::file(), "https://example.org/rules.json", "Rules");
    assert_eq!(schema["$id"], "https://example.org/rules.json");
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["title"], "Rules");
    let rule = &schema["properties"]["rules"]["items"]["properties"];
    assert_eq!(
        rule["match"],
        json!({ "$ref": "#/$defs/condition", "description": "Which requests it applies to." })
    );
    let negation = &schema["$defs"]["condition"]["additionalProperties"]["oneOf"][2]["properties"]["not"];
    assert_eq!(negation["$ref"], "#/$defs/condition");
}

#[test]
fn a_repeated_schema_is_defined_once_and_keeps_each_description() {
    let inner = || {
        fields("An inner map").required("name", text("a long name of something"), "A name.").required(
            "other",
            text("another long name"),
            "Another name.",
        )
    };
    let outer =
        fields("outer").optional("one", inner(), "The first.").optional("two", inner(), "The second.");
    let schema = json_schema(&outer.into(), "https://example.org/", "t");
    let reference = |description| json!({ "$ref": "#/$defs/an-inner-map", "description": description });
    assert_eq!(
        schema["properties"],
        json!({ "one": reference("The first."), "two": reference("The second.") })
    );
    assert_eq!(schema["$defs"]["an-inner-map"]["required"], json!(["name", "other"]));
    assert_eq!(schema["$defs"]["an-inner-map"].get("description"), None);
}

#[test]
fn keys_are_sorted_with_any_features_of_serde_json() {
    fn sorted(value: &Value) {
        if let Value::Object(object) = value {
            assert!(object.keys().is_sorted(), "{:?}", object.keys());
        }
        match value {
            Value::Object(object) => object.values().for_each(sorted),
            Value::Array(items) => items.iter().for_each(sorted),
            _ => {}
        }
    }
    sorted(&json_schema(&example::file(), "i", "t"));
}

/// The tree as JSON, as a YAML parser passes it to a validator.
fn as_json(node: &Node) -> Value {
    match &node.value {
        NodeValue::Null | NodeValue::Invalid => Value::Null,
        NodeValue::Bool(value) => json!(value),
        NodeValue::Text(text) if node.looks_like_a_number() => text
            .text
            .parse::<u64>()
            .map_or_else(|_| json!(text.text.parse::<f64>().ok()), |number| json!(number)),
        NodeValue::Text(text) => json!(text.text),
        NodeValue::List(items) => items.iter().map(as_json).collect(),
        NodeValue::Map(entries) => {
            let members = entries
                .iter()
                .map(|entry| (entry.key.text().unwrap_or_default().to_owned(), as_json(&entry.value)));
            Value::Object(members.collect())
        }
    }
}

/// A file of the example's shape, in which any part may be invalid.
fn file() -> impl Strategy<Value = String> {
    let scalar = || {
        prop::sample::select(vec![
            "deny",
            "2/s",
            "x",
            "5",
            "0",
            "1_0",
            "99999999",
            "1.5",
            "true",
            "~",
            "''",
            "'5'",
            "[]",
            "{}",
            "[a, 5]",
            "[~]",
            "{ not: { a: b } }",
            "{ a: b }",
            "{ a: [] }",
            "enforce",
            "shadow",
        ])
    };
    let limit = prop_oneof![
        scalar().prop_map(str::to_owned),
        (scalar(), scalar()).prop_map(|(a, b)| format!("{{ token-bucket: {a}, burst: {b} }}")),
        (scalar(), scalar()).prop_map(|(a, b)| format!("{{ sliding-window: {a}, buckets: {b} }}")),
        Just("{ token-bucket: 2/s, burst: 5 }".to_owned()),
        Just("deny".to_owned()),
    ];
    let id = prop_oneof![3 => Just("a"), 1 => scalar()];
    let key = prop::sample::select(vec!["per", "match", "mode", "sticky", "labels", "other"]);
    let rule = (id, limit, prop::collection::btree_map(key, scalar(), 0..3)).prop_map(|(id, limit, more)| {
        let more: String = more.iter().map(|(key, value)| format!(", {key}: {value}")).collect();
        format!("- {{ id: {id}, limit: {limit}{more} }}\n")
    });
    prop::collection::vec(rule, 0..2).prop_map(|rules| format!("version: 1\nrules:\n{}", rules.concat()))
}

/// Problems that the schema cannot express: text checks by functions, and numbers in quotes.
const BEYOND_THE_SCHEMA: [&str; 4] = ["bad-text", "no-alternative", "bad-number", "number-out-of-range"];

#[test]
fn the_schema_accepts_what_the_check_accepts() {
    let shape = example::file();
    let mut compiler = Compiler::new();
    compiler
        .add_resource("rules.json", json_schema(&shape, "https://example.org/", "t"))
        .expect("valid JSON");
    let mut schemas = Schemas::new();
    // This also validates the schema against the metaschema.
    let schema = compiler.compile("rules.json", &mut schemas).expect("a valid schema");

    let (accepted, rejected) = (Cell::new(0), Cell::new(0));
    let each = |text: String| {
        let mut problems = Problems::new();
        let node = parse(&Source::new("f", text.as_bytes()), &mut problems).expect("valid YAML");
        check(&shape, &node, &mut problems);
        let json = as_json(&node);
        let valid = schemas.validate(&json, schema);
        if problems.is_empty() {
            accepted.set(accepted.get() + 1);
            prop_assert!(valid.is_ok(), "the check accepts, the schema rejects: {}", valid.unwrap_err());
        } else if problems.in_order().iter().any(|problem| !BEYOND_THE_SCHEMA.contains(&problem.code)) {
            rejected.set(rejected.get() + 1);
            prop_assert!(valid.is_err(), "the check rejects, the schema accepts: {:?}", problems);
        }
        Ok(())
    };
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4_000) };
    TestRunner::new(config).run(&file(), each).expect("they agree");
    assert!(
        accepted.get() > 100 && rejected.get() > 100,
        "too few cases: {accepted:?} accepted, {rejected:?} rejected"
    );
}
