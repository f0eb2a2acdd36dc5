//! Reads the keys of another limiter's configuration. A value of the wrong type is an error: if it were ignored, a limit
//! would be lost.

use tollgate_document::{Kind, Node, Problem, Problems, quote, suggest};

/// Reads the text of a required key.
pub(super) fn required<'n>(node: &'n Node, key: &str, problems: &mut Problems) -> Option<&'n str> {
    let found = node.get(key).and_then(Node::scalar);
    if found.is_none() {
        let span = node.get(key).map_or(node.span, |value| value.span);
        let what = node.get(key).map_or_else(|| "nothing".to_owned(), Node::found);
        problems.push(Problem::error(
            "missing-key",
            span,
            format!("invalid `{key}`: expected a text, found {what}"),
        ));
    }
    found
}

/// Reads the whole number of a required key.
pub(super) fn number_up_to(node: &Node, key: &str, max: u64, problems: &mut Problems) -> Option<u64> {
    let found = node.get(key);
    let number = found.and_then(Node::u64).filter(|number| *number <= max);
    if number.is_none() {
        let span = found.map_or(node.span, |value| value.span);
        let message = format!("invalid `{key}`: expected a whole number up to {max}");
        problems.push(Problem::error("bad-number", span, message));
    }
    number
}

/// Reads the text of an optional key.
pub(super) fn text<'n>(node: &'n Node, key: &str, problems: &mut Problems) -> Option<&'n str> {
    optional(node, key, "a text", Node::scalar, problems)
}

/// Reads the items of an optional list.
pub(super) fn list<'n>(node: &'n Node, key: &str, problems: &mut Problems) -> &'n [Node] {
    optional(node, key, "a list", Node::list, problems).unwrap_or_default()
}

/// Whether an optional key is `true`.
pub(super) fn flag(node: &Node, key: &str, problems: &mut Problems) -> bool {
    optional(node, key, "true or false", Node::bool, problems).unwrap_or_default()
}

/// Reads the text of an item of a list.
pub(super) fn item<'n>(node: &'n Node, of: &str, problems: &mut Problems) -> Option<&'n str> {
    let found = node.scalar();
    if found.is_none() {
        report_wrong_type(node, &format!("item of `{of}`"), "a text", problems);
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
        report_wrong_type(value, &format!("`{key}`"), kind, problems);
    }
    found
}

fn report_wrong_type(node: &Node, what: &str, kind: &str, problems: &mut Problems) {
    // An invalid node has been reported by the parser.
    if node.kind() != Kind::Invalid {
        let message = format!("invalid {what}: expected {kind}, found {}", node.found());
        problems.push(Problem::error("bad-value", node.span, message));
    }
}

/// Reports unknown keys: they may change the meaning of a limit.
pub(super) fn reject_unknown(node: &Node, known: &[&str], problems: &mut Problems) {
    for entry in node.entries() {
        let key = entry.key.scalar().unwrap_or_default();
        if !known.contains(&key) {
            problems.push_error_with(|| {
                let near = suggest(key, known.iter().copied());
                let label = near.map(|near| format!("did you mean `{near}`?")).unwrap_or_default();
                Problem::error("unknown-key", entry.key.span, format!("unknown key {}", quote(key)))
                    .label(label)
            });
        }
    }
}
