//! One JSON object per line. Fields are members, or paths like `.request.headers.X-User[0]`.

use std::borrow::Cow;

use serde_json::Value;

use super::{Skip, Values};

/// Reads the fields that were asked for.
#[derive(Clone, Default, Debug)]
pub(in crate::simulate) struct JsonLines {
    /// In the order of their slots.
    paths: Vec<Vec<Step>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Member(String),
    Item(usize),
}

impl JsonLines {
    pub(super) fn slot(&mut self, field: &str) -> Option<usize> {
        let path = path(field)?;
        let at = self.paths.iter().position(|known| *known == path);
        Some(at.unwrap_or_else(|| {
            self.paths.push(path);
            self.paths.len() - 1
        }))
    }

    pub(super) fn read<'l>(&self, line: &'l str, values: &mut Values<'l>) -> Result<(), Skip> {
        // A syslog header may precede the object.
        let start = line.find('{').ok_or(Skip::Unreadable("no JSON object"))?;
        let object: Value =
            serde_json::from_str(&line[start..]).map_err(|_| Skip::Unreadable("not a JSON object"))?;
        values.extend(self.paths.iter().map(|path| value_at(&object, path)));
        Ok(())
    }
}

/// Parses a path. Text that does not start with a dot is the name of one member, whatever it contains.
fn path(field: &str) -> Option<Vec<Step>> {
    let Some(mut rest) = field.strip_prefix('.') else {
        return (!field.is_empty()).then(|| vec![Step::Member(field.to_owned())]);
    };
    let mut steps = Vec::new();
    loop {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        if end > 0 {
            steps.push(Step::Member(rest[..end].to_owned()));
        }
        rest = &rest[end..];
        if let Some(after) = rest.strip_prefix('[') {
            let (number, after) = after.split_once(']')?;
            steps.push(Step::Item(number.parse().ok()?));
            rest = after;
        } else if let Some(after) = rest.strip_prefix('.') {
            rest = after;
        } else {
            return (!steps.is_empty()).then_some(steps);
        }
    }
}

fn value_at<'v>(object: &Value, path: &[Step]) -> Option<Cow<'v, str>> {
    let mut found = object;
    for step in path {
        found = match step {
            Step::Member(name) => found.get(name.as_str())?,
            Step::Item(index) => found.get(index)?,
        };
    }
    // Headers are lists, usually of one value.
    if let Value::Array(items) = found {
        found = items.first()?;
    }
    match found {
        Value::String(text) if text.is_empty() || text == "-" => None,
        Value::String(text) => Some(Cow::Owned(text.clone())),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        Value::Bool(truth) => Some(Cow::Borrowed(if *truth { "true" } else { "false" })),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_find_members_items_and_the_first_of_a_list() {
        let mut reader = JsonLines::default();
        let fields =
            [".request.headers.X-User[0]", ".request.headers.X-User", "a.b", ".n", ".none", ".deep.x"];
        let slots = fields.map(|field| reader.slot(field).expect("a path"));
        assert_eq!(slots, [0, 1, 2, 3, 4, 5]);
        assert_eq!(reader.slot(".n"), Some(3), "a path has one slot");
        let line =
            r#"host app: {"request":{"headers":{"X-User":["jane","x"]}},"a.b":true,"n":1.5,"deep":"-"}"#;
        let mut values = Vec::new();
        reader.read(line, &mut values).expect("an object");
        let texts: Vec<_> = values.iter().map(Option::as_deref).collect();
        assert_eq!(texts, [Some("jane"), Some("jane"), Some("true"), Some("1.5"), None, None]);
        for field in ["", ".", ".a[", ".a[x]"] {
            assert_eq!(reader.slot(field), None, "{field}");
        }
        for line in ["", "x", "{", "{\"a\":1"] {
            assert!(reader.read(line, &mut Vec::new()).is_err(), "{line}");
        }
    }
}
