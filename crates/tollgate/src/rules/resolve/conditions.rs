//! Reads the values of `match` and of the lists: what an attribute must be.

use tollgate_core::Cidr;
use tollgate_core::rules::condition::PathPattern;
use tollgate_core::rules::{Exclusion, Test};
use tollgate_document::{Kind, Node, Problem, Problems};

/// Addresses and blocks of addresses. `None` after reporting those that are invalid.
fn address_test(values: &[Node], problems: &mut Problems) -> Option<Test> {
    let mut blocks = Vec::new();
    for value in values {
        match value.scalar()?.parse::<Cidr>() {
            Ok(block) => blocks.push(block),
            Err(error) => problems.push_error_with(|| {
                Problem::error("bad-address", value.span, format!("`ip`: {error}"))
                    .help("write an address or a block like 192.0.2.0/24; `{ is: … }` compares other text")
            }),
        }
    }
    (blocks.len() == values.len()).then_some(Test::Address(blocks))
}

pub(super) fn test(attribute: &str, node: &Node, problems: &mut Problems) -> Option<Test> {
    let is_pattern = |node: &Node| node.text().is_some_and(|text| text.contains('*'));
    if attribute == "ip" && node.kind() != Kind::Map && !node.one_or_many().iter().any(is_pattern) {
        return address_test(node.one_or_many(), problems);
    }
    if let Some(exact) = node.get("is") {
        return exact_values(exact);
    }
    if let Some(excluded) = node.get("not") {
        let base = simple_test(node).unwrap_or_else(|| Some(Test::Prefix(String::new())))?;
        let excluded = excluded.list().unwrap_or(std::slice::from_ref(excluded)).iter().map(excluded_test);
        return Some(Test::Except(Box::new(Exclusion::new(base, excluded.collect::<Option<Vec<_>>>()?))));
    }
    if let Some(test) = simple_test(node) {
        return test;
    }
    let is_path_pattern = |text: &str| attribute == "path" && text.contains('{');
    if let Some(values) = node.list() {
        let is_pattern = |text: &str| text.contains('*') || is_path_pattern(text);
        for value in values.iter().filter(|value| value.text().is_some_and(is_pattern)) {
            problems.push_error_with(|| {
                Problem::error(
                    "pattern-in-list",
                    value.span,
                    format!("pattern {} in a list of values", value.found()),
                )
                .help("write one rule per pattern, or use a `prefix`")
            });
        }
        return values
            .iter()
            .map(|value| value.scalar().map(str::to_owned))
            .collect::<Option<_>>()
            .map(Test::OneOf);
    }
    let text = node.scalar()?;
    if is_path_pattern(text) {
        return path_test(text, node, problems);
    }
    Some(value_or_pattern(text))
}

/// Reads `{ prefix: … }` or `{ pattern: … }`. Returns `None` if the node has neither key.
fn simple_test(node: &Node) -> Option<Option<Test>> {
    if let Some(prefix) = node.get("prefix") {
        return Some(prefix.scalar().map(|prefix| Test::Prefix(prefix.to_owned())));
    }
    node.get("pattern").map(|pattern| pattern.scalar().map(value_or_pattern))
}

/// Reads an item of `not`.
fn excluded_test(node: &Node) -> Option<Test> {
    match (node.get("is"), simple_test(node)) {
        (Some(exact), _) => exact_values(exact),
        (None, Some(test)) => test,
        (None, None) => node.scalar().map(value_or_pattern),
    }
}

/// Reads one value or a list of values, with any characters.
fn exact_values(node: &Node) -> Option<Test> {
    let values = node.list().unwrap_or(std::slice::from_ref(node));
    values.iter().map(|value| value.scalar().map(str::to_owned)).collect::<Option<_>>().map(Test::OneOf)
}

fn value_or_pattern(text: &str) -> Test {
    match text.split_once('*') {
        None => Test::OneOf(vec![text.to_owned()]),
        Some((prefix, "")) => Test::Prefix(prefix.to_owned()),
        Some(_) => Test::Glob(text.to_owned()),
    }
}

fn path_test(text: &str, node: &Node, problems: &mut Problems) -> Option<Test> {
    // Inside a path pattern `*` would only match a literal star, which is never intended.
    let starred = text.split('/').any(|segment| segment.contains('*') && !segment.starts_with("{*"));
    let message = match PathPattern::parse(text) {
        Ok(_) if starred => "a path pattern with {names} allows `*` only in {*rest}".to_owned(),
        Ok(pattern) => return Some(Test::Path(pattern)),
        Err(error) => error.to_string(),
    };
    problems.push(
        Problem::error("bad-path", node.span, format!("`path`: {message}"))
            .help("for example /v1/items/{id} or /files/{*rest}"),
    );
    None
}
