//! A rules file as JSON, for a comparison with another one: everything that it says, without comments.

use serde_json::{Map, Value, json};
use tollgate_document::{Entry, Node, Value as Written};

/// Keys whose maps have attributes as keys.
const BY_ATTRIBUTE: [&str; 3] = ["match", "when", "by"];
/// Hexadecimal digits of a digest.
const DIGEST_CHARS: usize = 16;

/// Converts a tree. What belongs to an attribute whose values are secrets is replaced by a digest, which still shows whether
/// two files say the same.
pub(crate) fn document(root: &Node, is_secret: &impl Fn(&str) -> bool) -> Value {
    match &root.value {
        Written::List(items) => items.iter().map(|item| document(item, is_secret)).collect(),
        Written::Map(entries) => members(entries, |key, value| {
            if BY_ATTRIBUTE.contains(&key) {
                by_attribute(value, is_secret)
            } else {
                document(value, is_secret)
            }
        }),
        _ => to_json(root),
    }
}

fn by_attribute(node: &Node, is_secret: &impl Fn(&str) -> bool) -> Value {
    let Written::Map(entries) = &node.value else { return document(node, is_secret) };
    members(
        entries,
        |attribute, value| {
            if is_secret(attribute) { digest(&to_json(value)) } else { document(value, is_secret) }
        },
    )
}

fn members(entries: &[Entry], of: impl Fn(&str, &Node) -> Value) -> Value {
    let mut members = Map::new();
    for Entry { key, value } in entries {
        if let Some(key) = key.text() {
            members.insert(key.to_owned(), of(key, value));
        }
    }
    Value::Object(members)
}

fn digest(value: &Value) -> Value {
    let hash = blake3::hash(value.to_string().as_bytes()).to_hex();
    json!({ "digest": &hash[..DIGEST_CHARS] })
}

/// Converts a tree as it is. Whole numbers without quotes are numbers, other scalars are texts.
pub(crate) fn to_json(node: &Node) -> Value {
    match &node.value {
        Written::Null | Written::Invalid => Value::Null,
        Written::Bool(value) => Value::Bool(*value),
        Written::Text(text) => node.u64().map_or_else(|| Value::from(text.text.clone()), Value::from),
        Written::List(items) => items.iter().map(to_json).collect(),
        Written::Map(entries) => members(entries, |_, value| to_json(value)),
    }
}

#[cfg(test)]
mod tests {
    use tollgate_document::{Problems, Source, parse};

    use super::*;

    fn of(text: &str) -> Value {
        let source = Source::new("rules", text.as_bytes());
        let root = parse(&source, &mut Problems::new()).expect("YAML");
        document(&root, &|attribute| attribute == "api_key")
    }

    #[test]
    fn comments_and_secrets_are_left_out_and_differences_stay() {
        let one =
            of("rules:\n  - { id: a, match: { api_key: [sk-1, sk-2], user: x }, cost: 1_000 } # note\n");
        assert_eq!(
            (&one["rules"][0]["cost"], &one["rules"][0]["match"]["user"]),
            (&json!(1000), &json!("x"))
        );
        assert!(!one.to_string().contains("sk-"), "{one}");
        assert_eq!(one, of("rules: [{ cost: 1000, id: a, match: { user: x, api_key: [sk-1, sk-2] } }]"));
        assert_ne!(one, of("rules: [{ cost: 1000, id: a, match: { user: x, api_key: [sk-1, sk-3] } }]"));
        let by = of("cost: { by: { api_key: { sk-1: 5 } }, default: 1 }");
        assert!(!by.to_string().contains("sk-1") && by["cost"]["default"] == 1, "{by}");
    }
}
