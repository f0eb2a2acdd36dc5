//! The text of limits and paths in the rules file. A rule set keeps their meaning, but not how they were written.

use serde_json::Value as Json;
use tollgate::core::rules::condition::PathPattern;
use tollgate::core::rules::{Origin, RuleLimit, RuleSet};
use tollgate::rules::{load_limit, presets};
use tollgate_document::{Node, Problems, Source, Value, parse};

use super::document::document;

/// The rules file, and the presets that it uses.
pub(crate) struct RulesText {
    files: Vec<(Source, Node)>,
}

/// The text of a limit, and its position.
pub(crate) struct LimitText {
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

impl RulesText {
    /// Reads the file again. It is known to be valid.
    pub(crate) fn new(source: &Source) -> RulesText {
        let mut files = Vec::new();
        let mut add =
            |source: Source| files.extend(parse(&source, &mut Problems::new()).map(|root| (source, root)));
        add(source.clone());
        for preset in presets::ALL {
            add(Source::new(format!("preset {}", preset.name), preset.text.as_bytes()));
        }
        RulesText { files }
    }

    /// Returns the text of the limit of the rule or override at `origin`.
    pub(crate) fn limit(&self, limit: &RuleLimit, origin: &Origin) -> LimitText {
        let file = self.files.iter().find(|(source, _)| source.has_file(&origin.file));
        file.and_then(|(source, root)| find_limit(source, root, limit, origin)).unwrap_or_else(|| {
            let name = limit.algorithm().map_or("deny", |algorithm| algorithm.name());
            LimitText { text: name.to_owned(), origin: origin.clone() }
        })
    }

    /// Returns all that the rules file says, without comments and without the values of secrets.
    pub(crate) fn document(&self, rules: &RuleSet) -> Json {
        let is_secret = |attribute: &str| rules.preparation().is_secret(attribute);
        self.files.first().map_or(Json::Null, |(_, root)| document(root, &is_secret))
    }

    /// Returns the text of a path pattern.
    pub(crate) fn path(&self, pattern: &PathPattern) -> Option<&str> {
        self.files.iter().find_map(|(_, root)| find_path(root, pattern))
    }
}

fn find_limit(source: &Source, root: &Node, limit: &RuleLimit, origin: &Origin) -> Option<LimitText> {
    let line = |node: &Node| u32::try_from(source.position(node.span.start).line).unwrap_or(u32::MAX);
    let lists = ["rules", "overrides"].into_iter().filter_map(|key| root.get(key)?.list());
    let is_there = |item: &&Node| line(item) == origin.line && source.name_at(item.span.start) == origin.file;
    let mut limits = lists.flatten().filter(is_there).filter_map(|item| item.get("limit"));
    limits.find_map(|node| {
        let text = one_line(node)?;
        // One line may contain several limits.
        let same = parse_limit(node, &text).as_ref() == Some(limit);
        same.then(|| LimitText { text, origin: Origin { file: origin.file.clone(), line: line(node) } })
    })
}

/// Formats a limit without braces. It contains only scalars.
fn one_line(node: &Node) -> Option<String> {
    if let Some(text) = node.scalar() {
        return Some(text.to_owned());
    }
    let entries = node.entries().iter();
    let entries = entries.map(|entry| Some(format!("{}: {}", entry.key.scalar()?, entry.value.scalar()?)));
    entries.collect::<Option<Vec<_>>>().map(|entries| entries.join(", "))
}

fn parse_limit(node: &Node, text: &str) -> Option<RuleLimit> {
    let text = if node.scalar().is_some() { text.to_owned() } else { format!("{{ {text} }}") };
    load_limit(&Source::new("limit", text.as_bytes()), &mut Problems::new())
}

fn find_path<'n>(node: &'n Node, pattern: &PathPattern) -> Option<&'n str> {
    match &node.value {
        Value::Text(text) => {
            (PathPattern::parse(&text.text).as_ref() == Ok(pattern)).then_some(text.text.as_str())
        }
        Value::List(items) => items.iter().find_map(|item| find_path(item, pattern)),
        Value::Map(entries) => entries.iter().find_map(|entry| find_path(&entry.value, pattern)),
        Value::Null | Value::Bool(_) | Value::Invalid => None,
    }
}
