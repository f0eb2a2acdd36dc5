//! `--when NAME=VALUE`: which requests a change is about.

use serde_json::{Map, Value, json};

use crate::cli::notation;
use crate::failure::Failure;
use crate::files;

/// One `--when` of the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Condition {
    attribute: String,
    value: ConditionValue,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum ConditionValue {
    /// A value, or a pattern, as in a rules file.
    Text(String),
    /// A file that holds the value, so that a secret is on no command line.
    File(String),
    /// A test in YAML, like `{ prefix: /v1/ }`.
    Test(String),
}

/// Parses `NAME=VALUE`, `NAME=@FILE` or `NAME={ TEST }`.
pub(super) fn condition(text: &str) -> Result<Condition, String> {
    let (name, value) = text.split_once('=').unwrap_or_default();
    if name.is_empty() || value.is_empty() || value == "@" {
        return Err("write NAME=VALUE, like tenant=acme, or NAME=@FILE for a value in a file".to_owned());
    }
    let value = match value.strip_prefix('@') {
        Some(path) => ConditionValue::File(path.to_owned()),
        None if value.starts_with('{') => ConditionValue::Test(value.to_owned()),
        None => ConditionValue::Text(value.to_owned()),
    };
    Ok(Condition { attribute: name.to_owned(), value })
}

/// The conditions as a server reads them. Several values of one attribute are a list.
pub(super) fn to_json(conditions: &[Condition]) -> Result<Map<String, Value>, Failure> {
    let mut when: Map<String, Value> = Map::new();
    for condition in conditions {
        let name = &condition.attribute;
        if when.contains_key(name) {
            continue;
        }
        let same: Vec<&Condition> = conditions.iter().filter(|other| other.attribute == *name).collect();
        let test = match same[..] {
            [Condition { value: ConditionValue::Text(text), .. }] => json!(text),
            [Condition { value: ConditionValue::Test(text), .. }] => {
                notation::json_of(&format!("--when {name}"), text)?
            }
            // As a list in a rules file.
            _ if same.iter().all(|condition| matches!(condition.value, ConditionValue::Text(_))) => {
                same.iter().map(|condition| condition.exact()).collect::<Result<Value, _>>()?
            }
            // What a file holds stands for itself, whatever characters it has.
            _ => {
                json!({ "is": same.iter().map(|condition| condition.exact()).collect::<Result<Value, _>>()? })
            }
        };
        when.insert(name.clone(), test);
    }
    Ok(when)
}

impl Condition {
    /// The value, if it can be one of several.
    fn exact(&self) -> Result<String, Failure> {
        match &self.value {
            ConditionValue::Text(text) if text.contains(['*', '{']) => {
                let what = format!("a pattern for `{}` beside other values", self.attribute.escape_debug());
                Err(Failure::new(what, "make one change for the pattern, and another one for the values"))
            }
            ConditionValue::Text(text) => Ok(text.clone()),
            ConditionValue::File(path) => {
                let value = files::read(path.as_ref())?.text().trim_ascii().to_owned();
                if value.is_empty() || value.contains(['\n', '\r']) {
                    let what = format!("{path} does not hold one value");
                    return Err(Failure::new(what, "write the value alone into the file, on one line"));
                }
                Ok(value)
            }
            ConditionValue::Test(_) => {
                let what = format!("several tests for `{}`", self.attribute.escape_debug());
                Err(Failure::new(what, "make a change for each test, or one test with a list of values"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn when(texts: &[&str]) -> Result<Value, Failure> {
        let conditions: Vec<Condition> = texts.iter().map(|text| condition(text).expect(text)).collect();
        to_json(&conditions).map(Value::Object)
    }

    #[test]
    fn values_patterns_tests_and_files_are_told_apart() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        std::fs::write(&path, "sk-*1\n").expect("a file can be written");
        let file = format!("api_key=@{}", path.display());
        for (texts, expected) in [
            (vec!["tenant=acme"], json!({ "tenant": "acme" })),
            (vec!["path=/a=b"], json!({ "path": "/a=b" })),
            (vec!["user=a*"], json!({ "user": "a*" })),
            (vec!["tenant=a", "tenant=b", "plan=c"], json!({ "tenant": ["a", "b"], "plan": "c" })),
            (vec!["path={ prefix: /v1/ }"], json!({ "path": { "prefix": "/v1/" } })),
            // What a file holds is a value, never a pattern.
            (vec![&file], json!({ "api_key": { "is": ["sk-*1"] } })),
        ] {
            assert_eq!(when(&texts).expect("it reads"), expected, "{texts:?}");
        }
        for text in ["tenant", "=x", "a=", "a=@", ""] {
            assert!(condition(text).is_err(), "{text}");
        }
        std::fs::write(&path, "one\ntwo\n").expect("a file can be written");
        for texts in [
            &["a=x*", "a=y"][..],
            &["a={ prefix: x }", "a=y"],
            &["a={ prefix: ["],
            &[&file],
            &["a=@/no/file"],
        ] {
            assert!(when(texts).is_err(), "{texts:?}");
        }
    }
}
