//! Generates the JSON Schema (draft 2020-12) of a shape, for editors and for programs that write files.
//!
//! The schema accepts every file that [`check`](super::check) accepts. It also accepts some others: it cannot express
//! the functions that check texts.

mod shared;

use serde_json::{Map, Value, json};

use super::node::Kind;
use super::shape::{Fields, ListShape, MapOf, OneOf, Shape, TextShape};

/// The kinds of values in a file.
const KINDS: [Kind; 5] = [Kind::Null, Kind::Bool, Kind::Text, Kind::List, Kind::Map];

/// Generates the schema of a shape. `id` is the `$id` of the schema.
///
/// The output is deterministic: objects are sorted by key.
pub fn json_schema(shape: &Shape, id: &str, title: &str) -> Value {
    let mut schema = Schema { named: Map::new() };
    let mut root = schema.of(shape);
    root.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    root.insert("$id".to_owned(), json!(id));
    root.insert("title".to_owned(), json!(title));
    if !schema.named.is_empty() {
        root.insert("$defs".to_owned(), Value::Object(schema.named));
    }
    let mut root = Value::Object(root);
    shared::share(&mut root);
    // Whether a map keeps its order depends on the serde_json features that other crates enable.
    root.sort_all_objects();
    root
}

/// The schema under construction.
struct Schema {
    /// The definitions of named shapes.
    named: Map<String, Value>,
}

impl Schema {
    fn of(&mut self, shape: &Shape) -> Map<String, Value> {
        match shape {
            Shape::Text(text) => of_text(text),
            // YAML reads a number with `_` as a string.
            Shape::Number(number) => object([
                ("type", json!(["integer", "string"])),
                ("minimum", json!(number.min)),
                ("maximum", json!(number.max)),
                ("pattern", json!("^[0-9_]+$")),
            ]),
            Shape::Bool => object([("type", json!("boolean"))]),
            Shape::Choice(words) => of_choice(words),
            Shape::List(list) => self.of_list(list),
            Shape::Fields(fields) => self.of_fields(fields),
            Shape::MapOf(map_of) => self.of_map(map_of),
            Shape::OneOf(one_of) => self.of_one_of(one_of),
            Shape::Any => Map::new(),
            Shape::Named(name, shape) => {
                if !self.named.contains_key(*name) {
                    // Reserve the name first, because the shape may refer to itself.
                    self.named.insert((*name).to_owned(), Value::Null);
                    let definition = self.of(shape());
                    self.named.insert((*name).to_owned(), Value::Object(definition));
                }
                object([("$ref", json!(format!("#/$defs/{name}")))])
            }
        }
    }

    fn of_list(&mut self, list: &ListShape) -> Map<String, Value> {
        let item = self.of(&list.item);
        let mut many = object([("type", json!("array")), ("items", Value::Object(item.clone()))]);
        if list.len_min > 0 {
            many.insert("minItems".to_owned(), json!(list.len_min));
        }
        if list.or_one { object([("anyOf", json!([item, many]))]) } else { many }
    }

    fn of_fields(&mut self, fields: &Fields) -> Map<String, Value> {
        let mut properties = Map::new();
        for field in &fields.fields {
            let mut property = self.of(&field.shape);
            describe(&mut property, field.doc);
            properties.insert(field.name.to_owned(), Value::Object(property));
        }
        for key in fields.renamed {
            let field = fields.fields.iter().find(|field| field.name == key.new);
            let mut property = field.map(|field| self.of(&field.shape)).unwrap_or_default();
            describe(&mut property, &format!("Old name of `{}`, accepted until {}.", key.new, key.until));
            property.insert("deprecated".to_owned(), json!(true));
            properties.insert(key.old.to_owned(), Value::Object(property));
        }
        let rest = match &fields.rest {
            Some(rest) => Value::Object(self.of(rest)),
            None => json!(false),
        };
        let mut schema = object([
            ("title", json!(fields.what)),
            ("type", json!("object")),
            ("properties", Value::Object(properties)),
            ("additionalProperties", rest),
        ]);
        let required: Vec<&str> = fields.required_names().collect();
        if !required.is_empty() {
            schema.insert("required".to_owned(), json!(required));
        }
        schema
    }

    fn of_map(&mut self, map_of: &MapOf) -> Map<String, Value> {
        let mut schema = object([
            ("title", json!(map_of.what)),
            ("type", json!("object")),
            ("additionalProperties", Value::Object(self.of(&map_of.value))),
        ]);
        if let Some(pattern) = map_of.key.pattern {
            schema.insert("propertyNames".to_owned(), json!({ "pattern": pattern }));
        }
        schema
    }

    fn of_one_of(&mut self, one_of: &OneOf) -> Map<String, Value> {
        let alternatives: Value = one_of
            .alternatives
            .iter()
            .map(|alternative| {
                let mut schema = self.of(&alternative.shape);
                describe(&mut schema, alternative.doc);
                Value::Object(schema)
            })
            .collect();
        // `oneOf` rejects a value that matches two alternatives, like a word that is also a text.
        let keyword = if kinds_are_disjoint(one_of) { "oneOf" } else { "anyOf" };
        object([("title", json!(one_of.what)), (keyword, alternatives)])
    }
}

/// Puts `doc` before the description that the schema already has.
fn describe(schema: &mut Map<String, Value>, doc: &str) {
    let doc = match schema.get("description").and_then(Value::as_str) {
        Some(description) => format!("{doc}\n\n{description}"),
        None => doc.to_owned(),
    };
    schema.insert("description".to_owned(), json!(doc));
}

/// Whether no kind of value is accepted by two alternatives.
fn kinds_are_disjoint(one_of: &OneOf) -> bool {
    KINDS.iter().all(|kind| one_of.alternatives.iter().filter(|each| each.shape.accepts(*kind)).count() <= 1)
}

fn of_text(text: &TextShape) -> Map<String, Value> {
    let kinds = if text.numbers { json!(["string", "number"]) } else { json!("string") };
    let mut schema = object([("title", json!(text.what)), ("type", kinds)]);
    if let Some(pattern) = text.pattern {
        schema.insert("pattern".to_owned(), json!(pattern));
    }
    if !text.examples.is_empty() {
        schema.insert("examples".to_owned(), json!(text.examples));
    }
    schema
}

fn of_choice(words: &[(&str, &str)]) -> Map<String, Value> {
    let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let meanings: Vec<String> = words.iter().map(|(word, doc)| format!("`{word}`: {doc}")).collect();
    object([("enum", json!(names)), ("description", json!(meanings.join("\n")))])
}

fn object<const N: usize>(members: [(&str, Value); N]) -> Map<String, Value> {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests;
