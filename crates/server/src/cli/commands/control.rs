//! Commands that change a running server, and that show who changed what.

pub(crate) mod audit;
pub(crate) mod changes;
pub(crate) mod rules;

use serde_json::{Map, Value};
use tollgate_document::{Colour, Node, Problems, Source, Value as Written, parse};

use crate::failure::Failure;
use crate::files;

/// A limit or a list of values as JSON, from the notation of the rules file.
fn yaml_to_json(name: &str, text: &str) -> Result<Value, Failure> {
    // As `tollgate try` does, the braces may be left out.
    let braced = if text.contains(':') && !text.trim_start().starts_with('{') {
        format!("{{ {text} }}")
    } else {
        text.to_owned()
    };
    let source = Source::new(name, braced.as_bytes());
    let mut problems = Problems::new();
    let node = parse(&source, &mut problems).filter(|_| !problems.has_errors());
    node.map(|node| to_json(&node)).ok_or_else(|| {
        let hint = "write it as in a rules file, like 'token-bucket: 20/s, burst: 40'";
        Failure::new(problems.render(&source, Colour::Plain), hint)
    })
}

fn to_json(node: &Node) -> Value {
    match &node.value {
        Written::Null | Written::Invalid => Value::Null,
        Written::Bool(is) => Value::Bool(*is),
        Written::Text(text) => match text.text.parse::<u64>() {
            Ok(number) if !text.quoted => Value::from(number),
            _ => Value::from(text.text.clone()),
        },
        Written::List(items) => items.iter().map(to_json).collect(),
        Written::Map(entries) => {
            let member = |entry: &tollgate_document::Entry| {
                Some((entry.key.text()?.to_owned(), to_json(&entry.value)))
            };
            Value::Object(entries.iter().filter_map(member).collect())
        }
    }
}

/// The conditions of `--when NAME=VALUE`. A value `@FILE` is read from a file, so that a secret is on no command line. Several
/// values of one name are a list.
fn conditions(pairs: &[(String, String)]) -> Result<Map<String, Value>, Failure> {
    let mut when: Map<String, Value> = Map::new();
    for (name, value) in pairs {
        let value = match value.strip_prefix('@') {
            Some(path) => files::read(path.as_ref())?.text().trim_ascii().to_owned(),
            None => value.clone(),
        };
        match when.get_mut(name) {
            None => {
                when.insert(name.clone(), Value::from(value));
            }
            Some(Value::Array(values)) => values.push(Value::from(value)),
            Some(first) => *first = Value::Array(vec![first.take(), Value::from(value)]),
        }
    }
    Ok(when)
}

/// Parses `NAME=VALUE`.
fn condition(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE, like tenant=acme, or NAME=@FILE for a value in a file".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_are_written_as_in_a_rules_file() {
        for (text, expected) in [
            ("token-bucket: 20/s, burst: 40", json!({ "token-bucket": "20/s", "burst": 40 })),
            ("{ fixed-window: 5/h }", json!({ "fixed-window": "5/h" })),
            ("deny", json!("deny")),
        ] {
            assert_eq!(yaml_to_json("--limit", text).expect(text), expected);
        }
        assert!(yaml_to_json("--limit", "{ a: [").is_err());
    }

    #[test]
    fn conditions_of_one_name_are_a_list_and_a_file_holds_a_secret() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        std::fs::write(&path, "sk-1\n").expect("a file can be written");
        let pairs = [
            ("tenant".to_owned(), "a".to_owned()),
            ("tenant".to_owned(), "b".to_owned()),
            ("api_key".to_owned(), format!("@{}", path.display())),
        ];
        let when = Value::Object(conditions(&pairs).expect("it reads"));
        assert_eq!(when, json!({ "tenant": ["a", "b"], "api_key": "sk-1" }));
        assert!(condition("tenant").is_err() && condition("=x").is_err() && condition("a=").is_err());
        assert_eq!(condition("path=/a=b"), Ok(("path".to_owned(), "/a=b".to_owned())));
    }
}
