//! The tree of a document that several files make.

use super::super::node::{Entry, Node, Value};
use super::super::problem::{Problem, Problems, quote};
use super::super::source::{Source, SourceSpan};
use super::parse_file;

/// Parses every file, so that the problems of all of them are reported. Spans are those of the whole text.
pub(super) fn parse_files(files: &[(usize, Source)], problems: &mut Problems) -> Option<Node> {
    let mut trees = Some(Vec::new());
    for (start, file) in files {
        let mut found = Problems::new();
        let tree = parse_file(file, &mut found);
        problems.append_shifted(found, *start);
        trees = trees.zip(tree).map(|(mut trees, mut tree)| {
            shift(&mut tree, *start);
            trees.push(tree);
            trees
        });
    }
    Some(merge(trees?, problems))
}

fn shift(node: &mut Node, by: usize) {
    node.span = node.span.shifted(by);
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| shift(item, by)),
        Value::Map(entries) => entries.iter_mut().for_each(|Entry { key, value }| {
            shift(key, by);
            shift(value, by);
        }),
        Value::Null | Value::Bool(_) | Value::Text(_) | Value::Invalid => (),
    }
}

/// Merges the maps of all files. Empty files are left out. A file that is no map is returned alone, so that the shape of the
/// document reports it.
fn merge(trees: Vec<Node>, problems: &mut Problems) -> Node {
    let mut merged = Node { value: Value::Null, span: SourceSpan::default() };
    for tree in trees {
        match (&mut merged.value, tree.value) {
            (_, Value::Null) => (),
            (Value::Map(entries), Value::Map(more)) => add_entries(entries, more, true, problems),
            (Value::Null, value @ Value::Map(_)) => merged = Node { value, span: tree.span },
            (_, value) => return Node { value, span: tree.span },
        }
    }
    merged
}

/// Adds the entries of another file. Lists are joined, and the maps of the whole document too: each file can declare its own
/// attributes.
fn add_entries(entries: &mut Vec<Entry>, more: Vec<Entry>, is_root: bool, problems: &mut Problems) {
    for entry in more {
        let known = entries
            .iter_mut()
            .find(|known| entry.key.text().is_some() && known.key.text() == entry.key.text());
        let Some(known) = known else {
            entries.push(entry);
            continue;
        };
        match (&mut known.value.value, entry.value.value) {
            (Value::List(items), Value::List(others)) if is_root => items.extend(others),
            (Value::Map(members), Value::Map(others)) if is_root => {
                add_entries(members, others, false, problems);
            }
            (one, other) if says_the_same(one, &other) => (),
            _ => problems.push_error_with(|| {
                let message =
                    format!("{} differs between files", quote(entry.key.text().unwrap_or_default()));
                Problem::error("duplicate-key", entry.key.span, message)
                    .label("repeated here")
                    .also(known.key.span, "first here")
                    .help("write it in one of the files, or the same in all of them")
            }),
        }
    }
}

/// Whether two values are equal, wherever they are.
fn says_the_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::List(one), Value::List(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| says_the_same(&one.value, &other.value))
        }
        (Value::Map(one), Value::Map(other)) => {
            let same = |entry: &Entry| {
                let found = other.iter().find(|other| other.key.text() == entry.key.text());
                found.is_some_and(|found| says_the_same(&entry.value.value, &found.value.value))
            };
            one.len() == other.len() && one.iter().all(same)
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Colour, Node, Problems, Source, parse};

    fn read(files: &[(&str, &str)]) -> (Source, Option<Node>, Problems) {
        let files = files.iter().map(|(name, text)| Source::new(*name, text.as_bytes()));
        let (source, mut problems) = (Source::of_files("rules", files), Problems::new());
        let root = parse(&source, &mut problems);
        (source, root, problems)
    }

    #[test]
    fn lists_are_joined_and_equal_keys_may_repeat() {
        let (source, root, problems) = read(&[
            ("a.yaml", "version: 1\nrules: [one]\nattributes: { tenant: {}, user: { secret: true } }\n"),
            ("empty.yaml", "# nothing yet"),
            ("b.yaml", "version: 1\nrules:\n  - two\nattributes: { user: { secret: true }, plan: {} }"),
        ]);
        let root = root.expect("a tree");
        assert!(problems.is_empty(), "{}", problems.render(&source, Colour::Plain));
        let rules = root.get("rules").and_then(Node::list).expect("a list");
        let found: Vec<(&str, &str, usize)> = rules
            .iter()
            .map(|rule| {
                (
                    rule.text().unwrap_or_default(),
                    source.name_at(rule.span.start),
                    source.position(rule.span.start).line,
                )
            })
            .collect();
        assert_eq!(found, [("one", "a.yaml", 2), ("two", "b.yaml", 3)]);
        assert_eq!(source.slice(rules[1].span), "two");
        let attributes = root.get("attributes").map(|node| node.entries().len());
        assert_eq!((attributes, root.entries().len()), (Some(3), 3));
    }

    #[test]
    fn a_key_that_differs_names_both_files() {
        let (source, root, problems) =
            read(&[("a.yaml", "namespace: one\n"), ("b.yaml", "x: 1\nnamespace: two\n")]);
        assert!(root.is_some() && problems.has_errors());
        let text = problems.render(&source, Colour::Plain);
        for part in ["\"namespace\" differs between files", "b.yaml:2:1", "a.yaml:1:1", "first here"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = problems.to_json(&source);
        assert_eq!((&json[0]["file"], &json[0]["related"][0]["file"]), (&"b.yaml".into(), &"a.yaml".into()));
    }

    #[test]
    fn the_syntax_errors_of_all_files_are_reported_at_their_places() {
        let (source, root, problems) =
            read(&[("a.yaml", "a: [\n"), ("b.yaml", "ok: 1\n"), ("c.yaml", "x: 1\ny: ]\n")]);
        assert!(root.is_none());
        let text = problems.render(&source, Colour::Plain);
        assert!(text.contains("a.yaml:") && text.contains("c.yaml:2:"), "{text}");
        let (_, root, _) = read(&[("a.yaml", "a: 1"), ("b.yaml", "[1]")]);
        assert!(root.is_some_and(|root| root.list().is_some()), "the shape reports it");
    }
}
