//! Reading keys of a file that was written for another limiter. What is there but of another kind is an error: taken for
//! nothing, it would be a limit that is lost.

use tollgate_document::{Kind, Node, Problem, Problems};

/// The text of a key that must be there.
pub(super) fn required<'n>(node: &'n Node, key: &str, problems: &mut Problems) -> Option<&'n str> {
    let found = node.get(key).and_then(Node::scalar);
    if found.is_none() {
        let span = node.get(key).map_or(node.span, |value| value.span);
        let what = node.get(key).map_or_else(|| "nothing".to_owned(), Node::found);
        problems.push(Problem::error("missing-key", span, format!("`{key}` must be a text, found {what}")));
    }
    found
}

/// The whole number of a key that must be there.
pub(super) fn number(node: &Node, key: &str, problems: &mut Problems) -> Option<u64> {
    let found = node.get(key);
    let number = found.and_then(Node::u64);
    if number.is_none() {
        let span = found.map_or(node.span, |value| value.span);
        problems.push(Problem::error("bad-number", span, format!("`{key}` must be a whole number")));
    }
    number
}

/// The text of a key, if it is there.
pub(super) fn text<'n>(node: &'n Node, key: &str, problems: &mut Problems) -> Option<&'n str> {
    optional(node, key, "a text", Node::scalar, problems)
}

/// The items of a key, none if it is not there.
pub(super) fn list<'n>(node: &'n Node, key: &str, problems: &mut Problems) -> &'n [Node] {
    optional(node, key, "a list", Node::list, problems).unwrap_or_default()
}

/// Whether a key is there and true.
pub(super) fn flag(node: &Node, key: &str, problems: &mut Problems) -> bool {
    optional(node, key, "true or false", Node::bool, problems).unwrap_or_default()
}

/// The text of an item of a list.
pub(super) fn item<'n>(node: &'n Node, of: &str, problems: &mut Problems) -> Option<&'n str> {
    let found = node.scalar();
    if found.is_none() {
        another(node, &format!("each of `{of}`"), "a text", problems);
    }
    found
}

fn optional<'n, T>(
    node: &'n Node,
    key: &str,
    kind: &str,
    read: impl Fn(&'n Node) -> Option<T>,
    problems: &mut Problems,
) -> Option<T> {
    let value = node.get(key).filter(|value| value.kind() != Kind::Null)?;
    let found = read(value);
    if found.is_none() {
        another(value, &format!("`{key}`"), kind, problems);
    }
    found
}

fn another(node: &Node, what: &str, kind: &str, problems: &mut Problems) {
    // What was refused was told.
    if node.kind() != Kind::Invalid {
        let message = format!("{what} must be {kind}, found {}", node.found());
        problems.push(Problem::error("bad-value", node.span, message));
    }
}

/// Warns of keys that are not known, which are left out.
pub(super) fn warn_unknown(node: &Node, known: &[&str], problems: &mut Problems) {
    for entry in node.entries() {
        let key = entry.key.scalar().unwrap_or_default();
        if !known.contains(&key) {
            let message = format!("`{key}` is not known here and is left out");
            problems.push(Problem::warning("not-carried-over", entry.key.span, message));
        }
    }
}
