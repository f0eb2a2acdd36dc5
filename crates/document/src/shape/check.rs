//! Checks a tree against a shape.
//!
//! It continues after every problem. It visits every map and every list once, so its time is linear in the tree.

use std::cmp::Reverse;

use super::{Fields, ListShape, MapOf, NumberShape, OneOf, Shape, TextShape};
use crate::node::{Kind, Node, Value};
use crate::number::number as whole_number;
use crate::problem::{Problem, Problems, quote, suggest};

/// How many keys are compared with the known ones when a map has none of them.
const COMPARED_KEYS_MAX: usize = 16;

/// A hint for a word that is not allowed, such as the name that another product uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WordHint {
    /// The allowed word with the same meaning, if there is one in the same place.
    pub means: Option<&'static str>,
    /// What to write instead.
    pub help: String,
}

/// Returns the hint for a word in a context. The context of a key is the noun of its map (`a rule`); the context of a
/// scalar is its key (`mode`).
pub type FindHint = fn(context: &str, word: &str) -> Option<WordHint>;

/// Reports every difference between `node` and `shape`.
pub fn check(shape: &Shape, node: &Node, problems: &mut Problems) {
    check_with_hints(shape, node, |_, _| None, problems);
}

/// Reports every difference between `node` and `shape`, with hints for words that users are likely to write.
pub fn check_with_hints(shape: &Shape, node: &Node, find_hint: FindHint, problems: &mut Problems) {
    Check { problems, find_hint, at: String::new() }.shape(shape, node);
}

struct Check<'a> {
    problems: &'a mut Problems,
    find_hint: FindHint,
    /// The path to the node, as messages start with it: "`rules`, item 3". Empty for the file itself.
    at: String,
}

impl Check<'_> {
    fn shape(&mut self, shape: &Shape, node: &Node) {
        let kind = node.kind();
        if kind == Kind::Invalid {
            return;
        }
        match shape {
            Shape::Any => {}
            Shape::Named(_, shape) => self.shape(shape(), node),
            Shape::OneOf(one_of) => self.one_of(shape, one_of, node),
            _ if !shape.accepts(kind) => self.wrong_type(shape, node),
            Shape::Text(text) => self.text(text, node),
            Shape::Number(number) => self.number(*number, node),
            Shape::Bool => {}
            Shape::Choice(words) => self.choice(words, node),
            Shape::List(list) if kind == Kind::List => self.list(list, node),
            Shape::List(list) => self.shape(&list.item, node),
            Shape::Fields(fields) => self.fields(fields, node, &[]),
            Shape::MapOf(map_of) => self.map_of(map_of, node),
        }
    }

    /// Checks the value of a key or an item of a list.
    fn descend(&mut self, at: String, shape: &Shape, node: &Node) {
        let outer = std::mem::replace(&mut self.at, at);
        self.shape(shape, node);
        self.at = outer;
    }

    /// Adds an error about `node`, with the path in front of its message.
    fn report(&mut self, code: &'static str, node: &Node, build: impl FnOnce() -> Report) {
        let at = &self.at;
        self.problems.push_error_with(|| {
            let report = build();
            // Messages about a list end with the item; a hint is about the key.
            let hint = node.text().and_then(|word| (self.find_hint)(at.trim_matches('`'), word));
            let Report { message, near, help } = match hint {
                Some(hint) => report.hinted(hint),
                None => report,
            };
            let message = if at.is_empty() { message } else { format!("{at}: {message}") };
            let label = near.map(did_you_mean).unwrap_or_default();
            Problem { help, ..Problem::error(code, node.span, message).label(label) }
        });
    }

    fn wrong_type(&mut self, shape: &Shape, node: &Node) {
        self.report("wrong-type", node, || {
            let report = Report::found(node, &expected(shape));
            match &node.value {
                Value::Null => report,
                Value::Bool(value) if shape.accepts(Kind::Text) => {
                    report.help(format!("to use it as text, write it in quotes: \"{value}\""))
                }
                Value::Text(text) if shape.accepts(Kind::Bool) => match text.text.as_str() {
                    "yes" | "Yes" | "on" | "On" => report.help("write `true`"),
                    "no" | "No" | "off" | "Off" => report.help("write `false`"),
                    _ => report,
                },
                _ => match shape {
                    Shape::OneOf(one_of) => report.help(alternatives(one_of)),
                    _ => report,
                },
            }
        });
    }

    fn text(&mut self, shape: &TextShape, node: &Node) {
        let Some(text) = node.text() else { return };
        if !shape.numbers && node.looks_like_a_number() {
            self.report("wrong-type", node, || Report::found(node, shape.what).examples(shape));
        } else if let Some(Err(fault)) = shape.check.map(|check| check(text)) {
            self.report("bad-text", node, || Report::new(fault).examples(shape));
        }
    }

    fn number(&mut self, shape: NumberShape, node: &Node) {
        match node.u64() {
            Some(number) if (shape.min..=shape.max).contains(&number) => {}
            Some(_) => self.report("number-out-of-range", node, || Report::found(node, &shape.expected())),
            None => self.report("bad-number", node, || {
                let report = Report::found(node, &shape.expected());
                match node.text().map(whole_number) {
                    Some(Ok(number)) => report.help(format!("remove the quotes: {number}")),
                    _ => report,
                }
            }),
        }
    }

    fn choice(&mut self, words: &'static [(&'static str, &'static str)], node: &Node) {
        let Some(text) = node.text() else { return };
        if words.iter().all(|(word, _)| *word != text) {
            self.report("bad-choice", node, || Report {
                near: suggest(text, words.iter().map(|(word, _)| *word)),
                ..Report::found(node, &any_of(words.iter().map(|(word, _)| *word)))
            });
        }
    }

    fn list(&mut self, shape: &ListShape, node: &Node) {
        let items = node.list().unwrap_or_default();
        if items.len() < shape.len_min {
            self.report("too-few-items", node, || {
                Report::new(format!("found {} items, expected at least {}", items.len(), shape.len_min))
            });
        }
        for (index, item) in items.iter().enumerate() {
            let comma = if self.at.is_empty() { "" } else { ", " };
            self.descend(format!("{}{comma}item {}", self.at, index + 1), &shape.item, item);
        }
    }

    /// Checks the keys of a map. Keys in `reported` have been reported already.
    fn fields(&mut self, shape: &Fields, node: &Node, reported: &[&str]) {
        let mut suggested: Vec<&str> = Vec::new();
        for entry in node.entries() {
            let Some(key) = entry.key.text() else { continue };
            if let Some(field) = shape.fields.iter().find(|field| field.name == key) {
                self.descend(name(key), &field.shape, &entry.value);
            } else if let Some(rest) = &shape.rest {
                self.descend(name(key), rest, &entry.value);
            } else if !reported.contains(&key) {
                self.problems.push_error_with(|| {
                    let names = || shape.fields.iter().map(|field| field.name);
                    let report = Report {
                        near: suggest(key, names()),
                        ..Report::new(format!("unknown key {}", name(key))).help(format!(
                            "allowed keys in {}: {}",
                            shape.what,
                            all_of(names())
                        ))
                    };
                    let report = match (self.find_hint)(shape.what, key) {
                        Some(hint) => report.hinted(hint),
                        None => report,
                    };
                    suggested.extend(report.near);
                    Problem {
                        help: report.help,
                        ..Problem::error("unknown-key", entry.key.span, report.message)
                    }
                    .label(report.near.map(did_you_mean).unwrap_or_default())
                });
            }
        }
        for field in shape.fields.iter().filter(|field| field.required) {
            // If `limt` was reported as a misspelt `limit`, do not report `limit` as missing.
            if node.entry(field.name).is_none() && !suggested.contains(&field.name) {
                self.problems.push_error_with(|| {
                    let message = format!("missing key {} in {}", name(field.name), shape.what);
                    Problem::error("missing-key", node.span, message)
                        .label(format!("{} is required here", name(field.name)))
                        .help(field.doc)
                });
            }
        }
    }

    fn map_of(&mut self, shape: &MapOf, node: &Node) {
        for entry in node.entries() {
            let Some(key) = entry.key.text() else { continue };
            self.text(&shape.key, &entry.key);
            self.descend(name(key), &shape.value, &entry.value);
        }
    }

    fn one_of(&mut self, shape: &Shape, one_of: &OneOf, node: &Node) {
        let mut fitting = Vec::new();
        one_of.alternatives.iter().for_each(|each| collect_alternatives(&each.shape, &mut fitting));
        fitting.retain(|shape| shape.accepts(node.kind()));
        match (fitting.as_slice(), node.kind()) {
            ([], _) => self.wrong_type(shape, node),
            // Report all alternatives, not only the words.
            ([Shape::Choice(_)], Kind::Text | Kind::Bool) => self.one_of_scalars(one_of, &fitting, node),
            ([only], _) => self.shape(only, node),
            (shapes, Kind::Map) => self.one_of_maps(one_of, shapes, node),
            ([first, ..], Kind::List) => self.shape(first, node),
            (shapes, _) => self.one_of_scalars(one_of, shapes, node),
        }
    }

    /// Scalars have no children, so trying every shape is cheap.
    fn one_of_scalars(&mut self, one_of: &OneOf, shapes: &[&Shape], node: &Node) {
        let fits = |shape: &&Shape| {
            let mut tried = Problems::counting();
            check(shape, node, &mut tried);
            tried.is_empty()
        };
        if !shapes.iter().any(fits) {
            self.report("no-alternative", node, || {
                let words = shapes.iter().flat_map(|shape| match shape {
                    Shape::Choice(words) => *words,
                    _ => &[],
                });
                let near = node.text().and_then(|text| suggest(text, words.map(|(word, _)| *word)));
                let each: Vec<String> = shapes.iter().map(|shape| expected(shape)).collect();
                Report { near, ..Report::found(node, &each.join(", or ")).help(alternatives(one_of)) }
            });
        }
    }

    fn one_of_maps(&mut self, one_of: &OneOf, shapes: &[&Shape], node: &Node) {
        let known: Vec<&Fields> = shapes.iter().filter_map(|shape| as_fields(shape)).collect();
        let present =
            |fields: &Fields| fields.required_names().filter(|name| node.entry(name).is_some()).count();
        let unknown = |fields: &Fields| {
            let knows = |key| fields.fields.iter().any(|field| Some(field.name) == key);
            node.entries().iter().filter(|entry| !knows(entry.key.text())).count()
        };
        let without_required =
            |shape: &&&Shape| as_fields(shape).is_none_or(|fields| fields.required_names().next().is_none());

        let best = known.iter().copied().min_by_key(|fields| (Reverse(present(fields)), unknown(fields)));
        if let Some(best) = best.filter(|fields| present(fields) > 0) {
            let mixed = self.mixed(best, &known, node);
            self.fields(best, node, &mixed);
        } else if let Some(shape) = shapes.iter().find(without_required) {
            self.shape(shape, node);
        } else if let Some((key, hint)) = self.hinted_key(one_of, node) {
            self.report("no-alternative", key, || {
                let first = known.iter().filter_map(|fields| fields.required_names().next());
                Report::new(format!("{} requires one of the keys {}", one_of.what, any_of(first)))
                    .hinted(hint)
            });
        } else if let Some(fields) = known.iter().find(|fields| has_similar_key(fields, node)) {
            self.fields(fields, node, &[]);
        } else {
            self.report("no-alternative", node, || {
                let first = known.iter().filter_map(|fields| fields.required_names().next());
                Report::new(format!("{} requires one of the keys {}", one_of.what, any_of(first)))
            });
        }
    }

    /// The first key of a map that has a hint.
    fn hinted_key<'n>(&self, one_of: &OneOf, node: &'n Node) -> Option<(&'n Node, WordHint)> {
        let keys = node.entries().iter().take(COMPARED_KEYS_MAX).map(|entry| &entry.key);
        keys.into_iter().find_map(|key| Some((key, (self.find_hint)(one_of.what, key.text()?)?)))
    }

    /// Reports keys that belong to another shape than the selected one, and returns them.
    fn mixed(&mut self, chosen: &Fields, all: &[&Fields], node: &Node) -> Vec<&'static str> {
        let there = |name: &&str| node.entry(name).is_some();
        let knows =
            |name: &&str| chosen.rest.is_some() || chosen.fields.iter().any(|field| field.name == *name);
        let mut mixed: Vec<&'static str> = Vec::new();
        for other in all.iter().flat_map(|fields| fields.required_names()).filter(there) {
            if !knows(&other) && !mixed.contains(&other) {
                mixed.push(other);
            }
        }
        let Some(because) = chosen.required_names().find(there) else { return mixed };
        let because_span = node.entry(because).map_or(node.span, |entry| entry.key.span);
        for other in &mixed {
            let span = node.entry(other).map_or(node.span, |entry| entry.key.span);
            self.problems.push_error_with(|| {
                let message = format!("{} cannot be combined with {}", name(other), name(because));
                Problem::error("mixed-alternatives", span, message)
                    .also(because_span, "conflicts with this key")
                    .help("keep one of them")
            });
        }
        mixed
    }
}

/// Collects the alternatives of a shape, including nested ones.
fn collect_alternatives<'a>(shape: &'a Shape, into: &mut Vec<&'a Shape>) {
    match shape {
        Shape::OneOf(one_of) => {
            one_of.alternatives.iter().for_each(|each| collect_alternatives(&each.shape, into))
        }
        Shape::Named(_, shape) => collect_alternatives(shape(), into),
        _ => into.push(shape),
    }
}

/// The known keys of a shape, if it is a map.
fn as_fields(shape: &Shape) -> Option<&Fields> {
    match shape {
        Shape::Fields(fields) => Some(fields),
        Shape::Named(_, shape) => as_fields(shape()),
        Shape::List(list) if list.or_one => as_fields(&list.item),
        _ => None,
    }
}

/// Whether the map has a key that is similar to a required key of the shape.
fn has_similar_key(fields: &Fields, node: &Node) -> bool {
    let keys = node.entries().iter().take(COMPARED_KEYS_MAX).filter_map(|entry| entry.key.text());
    keys.into_iter().any(|key| suggest(key, fields.required_names()).is_some())
}

/// Describes a shape after the word "expected" in a message.
fn expected(shape: &Shape) -> String {
    match shape {
        Shape::Text(text) => text.what.to_owned(),
        Shape::Number(number) => number.expected(),
        Shape::Bool => "`true` or `false`".to_owned(),
        Shape::Choice(words) => any_of(words.iter().map(|(word, _)| *word)),
        Shape::List(list) if list.or_one => format!("{}, or a list of them", expected(&list.item)),
        Shape::List(_) => "a list".to_owned(),
        Shape::Fields(fields) => format!("{}, {}", fields.what, map_with(fields)),
        Shape::MapOf(map_of) => format!("a map ({})", map_of.what),
        Shape::OneOf(one_of) => one_of.what.to_owned(),
        Shape::Any => "anything".to_owned(),
        Shape::Named(_, shape) => expected(shape()),
    }
}

impl NumberShape {
    fn expected(self) -> String {
        match self {
            NumberShape { min: 0, max: u64::MAX } => "a whole number".to_owned(),
            NumberShape { min, max: u64::MAX } => format!("a whole number of at least {min}"),
            NumberShape { min, max } if min == max => format!("the number {min}"),
            NumberShape { min, max } => format!("a whole number from {min} to {max}"),
        }
    }
}

/// Describes the alternatives: "a limit is `deny`, or a map with ...".
fn alternatives(one_of: &OneOf) -> String {
    let mut each = Vec::new();
    let mut keys = Vec::new();
    for alternative in &one_of.alternatives {
        match as_fields(&alternative.shape) {
            Some(fields) => keys.extend(fields.required_names().next()),
            None => each.push(expected(&alternative.shape)),
        }
    }
    if !keys.is_empty() {
        each.push(format!("a map with {}", any_of(keys)));
    }
    format!("{} is {}", one_of.what, each.join(", or "))
}

fn map_with(fields: &Fields) -> String {
    let mut required = fields.required_names().peekable();
    if required.peek().is_none() { "a map".to_owned() } else { format!("a map with {}", all_of(required)) }
}

/// The text of an error about a node.
struct Report {
    message: String,
    /// The most similar allowed word.
    near: Option<&'static str>,
    help: Option<String>,
}

impl Report {
    fn new(message: String) -> Report {
        Report { message, near: None, help: None }
    }

    fn found(node: &Node, expected: &str) -> Report {
        Report::new(format!("found {}, expected {expected}", node.found()))
    }

    fn help(self, help: impl Into<String>) -> Report {
        Report { help: Some(help.into()), ..self }
    }

    /// Replaces the similar word and the help by a hint.
    fn hinted(self, hint: WordHint) -> Report {
        Report { near: hint.means, help: Some(hint.help), ..self }
    }

    fn examples(self, shape: &TextShape) -> Report {
        match shape.examples {
            [] => self,
            examples => self.help(format!("for example {}", any_of(examples.iter().copied()))),
        }
    }
}

fn did_you_mean(word: &str) -> String {
    format!("did you mean {}?", name(word))
}

/// Formats a name for a message. Long or unusual names are quoted like any text from the file.
fn name(name: &str) -> String {
    let plain =
        !name.is_empty() && name.len() <= 60 && name.chars().all(|c| c.is_ascii_graphic() && c != '`');
    if plain { format!("`{name}`") } else { quote(name) }
}

/// `a`, `b` or `c`.
fn any_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    enumerated(names, "or")
}

/// `a`, `b` and `c`.
fn all_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    enumerated(names, "and")
}

fn enumerated<'a>(names: impl IntoIterator<Item = &'a str>, last: &str) -> String {
    let names: Vec<String> = names.into_iter().map(name).collect();
    match names.as_slice() {
        [] => "nothing".to_owned(),
        [only] => only.clone(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests;
