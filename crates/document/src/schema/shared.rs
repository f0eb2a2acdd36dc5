//! Moves schemas that occur several times to `$defs`, so that the schema of a large shape stays small.
//!
//! The meaning does not change: in draft 2020-12, `$ref` applies beside the other members of a schema.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Shorter schemas stay where they are: a reference would save nothing.
const LENGTH_MIN: usize = 120;

/// Replaces repeated schemas with a title by references to one definition. Descriptions stay at each place.
pub(super) fn share(root: &mut Value) {
    let mut definitions = Definitions { uses: BTreeMap::new(), names: BTreeMap::new(), named: Map::new() };
    definitions.count(root);
    if let Some(named) = root.get("$defs").and_then(Value::as_object) {
        definitions.named = named.keys().map(|name| (name.clone(), Value::Null)).collect();
    }
    definitions.replace_children(root);
    let Some(root) = root.as_object_mut() else { return };
    let named = root.entry("$defs").or_insert_with(|| json!({}));
    if let Some(named) = named.as_object_mut() {
        named.extend(definitions.named.into_iter().filter(|(_, definition)| !definition.is_null()));
    }
    root.retain(|member, value| {
        member != "$defs" || value.as_object().is_some_and(|named| !named.is_empty())
    });
}

struct Definitions {
    /// How often each schema occurs, by its text.
    uses: BTreeMap<String, usize>,
    /// The name of each shared schema, by its text.
    names: BTreeMap<String, String>,
    /// The shared schemas, by name. A name that the root already has is null.
    named: Map<String, Value>,
}

impl Definitions {
    fn count(&mut self, schema: &Value) {
        for child in children(schema) {
            *self.uses.entry(text_of(child)).or_default() += 1;
            self.count(child);
        }
    }

    fn replace_children(&mut self, schema: &mut Value) {
        for child in children_mut(schema) {
            let text = text_of(child);
            let is_repeated = self.uses.get(&text).is_some_and(|uses| *uses > 1);
            let title = child.get("title").and_then(Value::as_str).map(str::to_owned);
            match title.filter(|_| is_repeated && text.len() >= LENGTH_MIN) {
                Some(title) => self.replace(child, text, &title),
                None => self.replace_children(child),
            }
        }
    }

    fn replace(&mut self, schema: &mut Value, text: String, title: &str) {
        let description = schema.as_object_mut().and_then(|members| members.remove("description"));
        let name = match self.names.get(&text) {
            Some(name) => name.clone(),
            None => {
                let name = self.unused_name(title);
                self.names.insert(text, name.clone());
                self.named.insert(name.clone(), Value::Null);
                let mut definition = schema.take();
                self.replace_children(&mut definition);
                self.named.insert(name.clone(), definition);
                name
            }
        };
        *schema = json!({ "$ref": format!("#/$defs/{name}") });
        if let (Some(members), Some(description)) = (schema.as_object_mut(), description) {
            members.insert("description".to_owned(), description);
        }
    }

    /// Returns a name of letters, digits and hyphens that no definition has.
    fn unused_name(&self, title: &str) -> String {
        let words = title.to_lowercase();
        let words = words.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let name = words.collect::<Vec<_>>().join("-");
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        std::iter::once(name.clone())
            .chain(numbered)
            .find(|name| !self.named.contains_key(name))
            .unwrap_or_default()
    }
}

/// The text by which equal schemas are found. Their descriptions may differ.
fn text_of(schema: &Value) -> String {
    let Some(members) = schema.as_object() else { return schema.to_string() };
    let mut members: Map<String, Value> = members
        .iter()
        .filter(|(name, _)| *name != "description")
        .map(|(n, v)| (n.clone(), v.clone()))
        .collect();
    members.sort_keys();
    Value::Object(members).to_string()
}

/// The members of a schema that hold one schema, a list of schemas, or schemas by name.
const ONE: [&str; 3] = ["items", "additionalProperties", "propertyNames"];
const LISTS: [&str; 2] = ["anyOf", "oneOf"];
const BY_NAME: [&str; 2] = ["properties", "$defs"];

fn children(schema: &Value) -> Vec<&Value> {
    let Some(members) = schema.as_object() else { return Vec::new() };
    let mut found = Vec::new();
    for (name, value) in members {
        let name = name.as_str();
        if ONE.contains(&name) && value.is_object() {
            found.push(value);
        } else if BY_NAME.contains(&name) {
            found.extend(value.as_object().into_iter().flat_map(Map::values));
        } else if LISTS.contains(&name) {
            found.extend(value.as_array().into_iter().flatten());
        }
    }
    found
}

fn children_mut(schema: &mut Value) -> Vec<&mut Value> {
    let Some(members) = schema.as_object_mut() else { return Vec::new() };
    let mut found = Vec::new();
    for (name, value) in members {
        let name = name.as_str();
        if ONE.contains(&name) && value.is_object() {
            found.push(value);
        } else if BY_NAME.contains(&name) {
            found.extend(value.as_object_mut().into_iter().flat_map(|by_name| by_name.values_mut()));
        } else if LISTS.contains(&name) {
            found.extend(value.as_array_mut().into_iter().flatten());
        }
    }
    found
}
