//! Tests the published JSON Schema: it equals the generated one, and a third-party validator agrees with the loader.

mod common;

use std::path::Path;
use std::sync::LazyLock;

use boon::{Compiler, SchemaIndex, Schemas};
use common::blessing::difference;
use common::files::{CRATE, files_below, read};
use common::mutation::{mutated_file, valid_files};
use proptest::prelude::*;
use serde_json::{Map, Number, Value, json};
use tollgate::rules::{load, schema_json};
use tollgate_document::{Node, Problems, Source};

/// The codes of problems that the schema must detect.
const SHAPE_CODES: [&str; 9] = [
    "bad-choice",
    "bad-number",
    "missing-key",
    "mixed-alternatives",
    "no-alternative",
    "number-out-of-range",
    "too-few-items",
    "unknown-key",
    "wrong-type",
];

/// Files with such a problem that a schema cannot detect: numbers in quotes.
const BEYOND_A_SCHEMA: [&str; 2] = ["numbers-in-quotes.yaml", "version-in-quotes.yaml"];

/// The JSON value that a validator gets for a file; `None` if the file is not valid YAML.
fn json_of(bytes: &[u8]) -> Option<Value> {
    let source = Source::new("rules.yaml", bytes);
    let mut problems = Problems::new();
    let node = tollgate_document::parse(&source, &mut problems)?;
    (!problems.has_errors()).then(|| value_of(&node))
}

/// Converts a node by the core schema of YAML 1.2.
fn value_of(node: &Node) -> Value {
    match &node.value {
        tollgate_document::Value::Null | tollgate_document::Value::Invalid => Value::Null,
        tollgate_document::Value::Bool(value) => json!(value),
        tollgate_document::Value::Text(text) if node.looks_like_a_number() => number_of(&text.text),
        tollgate_document::Value::Text(text) => json!(text.text),
        tollgate_document::Value::List(items) => items.iter().map(value_of).collect(),
        tollgate_document::Value::Map(entries) => {
            let entries = entries
                .iter()
                .filter_map(|entry| Some((entry.key.text()?.to_owned(), value_of(&entry.value))));
            Value::Object(entries.collect::<Map<_, _>>())
        }
    }
}

fn number_of(text: &str) -> Value {
    let whole = text.parse::<u64>().map(Number::from).ok();
    let float = || text.parse().ok().and_then(Number::from_f64);
    // For numbers like `0x10` and `.inf` only the type matters here.
    Value::Number(whole.or_else(float).unwrap_or_else(|| Number::from(-1)))
}

struct Validator {
    schemas: Schemas,
    index: SchemaIndex,
}

static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| {
    let schema: Value = serde_json::from_str(&schema_json()).expect("the schema is JSON");
    let id = schema["$id"].as_str().expect("the schema has an $id").to_owned();
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.add_resource(&id, schema).expect("the schema is accepted");
    let index = compiler.compile(&id, &mut schemas).unwrap_or_else(|error| panic!("{error:#}"));
    Validator { schemas, index }
});

fn validate(file: &Value) -> Result<(), String> {
    VALIDATOR.schemas.validate(file, VALIDATOR.index).map_err(|error| format!("{error:#}"))
}

#[test]
fn the_published_schema_is_up_to_date() {
    let published = Path::new(CRATE).join("../../docs/reference/rules.schema.json");
    let stale = difference(&published, &schema_json()).is_some();
    assert!(
        !stale,
        "{} is stale; run `cargo xtask gen`, or this test with TOLLGATE_BLESS=1",
        published.display()
    );
}

#[test]
fn every_valid_file_is_valid_by_the_schema() {
    let mut examples = files_below(&Path::new(CRATE).join("../../examples/rules"), ".yaml");
    // Tests of rules have another shape.
    examples.retain(|path| !path.to_string_lossy().ends_with(".test.yaml"));
    assert!(examples.len() >= 2, "{examples:?}");
    let texts = examples
        .iter()
        .map(|path| read(path))
        .chain(valid_files().into_iter().map(|file| file.as_bytes().to_vec()));
    for text in texts {
        let shown = String::from_utf8_lossy(&text);
        let source = Source::new("rules.yaml", &text);
        assert!(load(&source, &mut Problems::new()).is_some(), "{shown}");
        validate(&json_of(&text).expect("valid YAML")).unwrap_or_else(|error| panic!("{error}\n{shown}"));
    }
}

#[test]
fn a_file_with_a_wrong_shape_is_invalid_by_the_schema() {
    let (mut rejected, mut accepted) = (0, Vec::new());
    for path in files_below(&Path::new(CRATE).join("tests/broken"), ".yaml") {
        let bytes = read(&path);
        let Some(file) = json_of(&bytes) else { continue };
        let mut problems = Problems::new();
        load(&Source::new("rules.yaml", &bytes), &mut problems);
        if !problems.in_order().iter().any(|problem| SHAPE_CODES.contains(&problem.code)) {
            continue;
        }
        match validate(&file) {
            Ok(()) => accepted.push(path.file_name().unwrap_or_default().display().to_string()),
            Err(_) => rejected += 1,
        }
    }
    assert_eq!(accepted, BEYOND_A_SCHEMA);
    assert!(rejected >= 40, "only {rejected} files were rejected");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// An editor that uses the schema does not report errors in a file that the loader accepts.
    #[test]
    fn a_loaded_file_is_valid_by_the_schema(file in mutated_file()) {
        if load(&Source::new("rules.yaml", &file), &mut Problems::new()).is_some() {
            let json = json_of(&file).expect("valid YAML");
            if let Err(error) = validate(&json) {
                panic!("{error}\n{}", String::from_utf8_lossy(&file));
            }
        }
    }
}
