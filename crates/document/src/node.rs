//! The tree of a YAML file, with the source span of every node.
//!
//! Numbers stay text until a caller asks for a number: the caller decides what `007`, `1e3` and `2026-12-01` mean.

use super::problem::quote;
use super::source::SourceSpan;
use crate::number::number as whole_number;

/// A value and its position in the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Its position. A map or a list extends from its first character to the end of its last item.
    pub span: SourceSpan,
}

/// The value of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// No value: left out, `~` or `null`.
    Null,
    /// An unquoted `true` or `false`.
    Bool(bool),
    /// Any other scalar, including numbers.
    Text(Text),
    /// Items in source order.
    List(Vec<Node>),
    /// Entries in source order. If a key is duplicated, both entries are kept.
    Map(Vec<Entry>),
    /// Something unsupported that was already reported. Later steps must not report it again.
    Invalid,
}

/// A scalar as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Text {
    /// The characters, with escapes and folded lines resolved.
    pub text: String,
    /// Whether it is explicitly text: in quotes, or a `|` or `>` block.
    pub quoted: bool,
}

/// A key and its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The key: [`Value::Text`] or [`Value::Invalid`].
    pub key: Node,
    /// Its value.
    pub value: Node,
}

/// The kind of a node's value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// [`Value::Null`].
    Null,
    /// [`Value::Bool`].
    Bool,
    /// [`Value::Text`].
    Text,
    /// [`Value::List`].
    List,
    /// [`Value::Map`].
    Map,
    /// [`Value::Invalid`].
    Invalid,
}

/// Accessors for checked nodes. `None` means another kind of value, which [`check`](super::check) has reported.
impl Node {
    /// The kind of the value.
    pub fn kind(&self) -> Kind {
        match self.value {
            Value::Null => Kind::Null,
            Value::Bool(_) => Kind::Bool,
            Value::Text(_) => Kind::Text,
            Value::List(_) => Kind::List,
            Value::Map(_) => Kind::Map,
            Value::Invalid => Kind::Invalid,
        }
    }

    /// The value of a key, if the node is a map with this key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// The entry of a key, if the node is a map with this key.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key.text() == Some(key))
    }

    /// The entries of a map; empty if the node is not a map.
    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list.
    pub fn list(&self) -> Option<&[Node]> {
        match &self.value {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// The items of a list, or the node itself where a single item is allowed without brackets.
    pub fn one_or_many(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            Value::Null | Value::Invalid => &[],
            _ => std::slice::from_ref(self),
        }
    }

    /// The text.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(&text.text),
            _ => None,
        }
    }

    /// The text, or `true` or `false`.
    pub fn scalar(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(&text.text),
            Value::Bool(true) => Some("true"),
            Value::Bool(false) => Some("false"),
            _ => None,
        }
    }

    /// The whole number, if it is one without quotes: `100`, `10_000`.
    pub fn u64(&self) -> Option<u64> {
        match &self.value {
            Value::Text(Text { text, quoted: false }) => whole_number(text).ok(),
            _ => None,
        }
    }

    /// The boolean.
    pub fn bool(&self) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// Describes this node after the word "found" in a message.
    pub fn found(&self) -> String {
        match &self.value {
            Value::Null => "no value".to_owned(),
            Value::Bool(value) => format!("`{value}`"),
            Value::Text(text) if self.looks_like_a_number() => format!("the number {}", text.text),
            Value::Text(text) => quote(&text.text),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
            Value::Invalid => "an invalid value".to_owned(),
        }
    }

    /// Whether YAML reads this unquoted text as a number.
    pub fn looks_like_a_number(&self) -> bool {
        match &self.value {
            Value::Text(Text { text, quoted: false }) => is_number(text),
            _ => false,
        }
    }
}

/// The core schema of YAML 1.2: integers, `0x` and `0o` ones, and floats.
fn is_number(text: &str) -> bool {
    let radix = |prefix, digit: fn(&char) -> bool| {
        text.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| digit(&c)))
    };
    if radix("0x", char::is_ascii_hexdigit) || radix("0o", |c| matches!(c, '0'..='7')) {
        return true;
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    // Rust and YAML accept the same floats, except for the names of infinity and NaN.
    unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') && unsigned.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Node {
        let value = Value::Text(Text { text: text.to_owned(), quoted: false });
        Node { value, span: SourceSpan::default() }
    }

    #[test]
    fn numbers_are_recognised_as_in_the_yaml_core_schema() {
        for text in
            ["0", "-1", "+12", "1.5", ".5", "1.", "1e3", "-1E-3", "0x1F", "0o17", ".inf", "-.Inf", ".nan"]
        {
            assert!(plain(text).looks_like_a_number(), "{text}");
        }
        for text in
            ["", "-", ".", "1_000", "2/s", "inf", "nan", "infinity", "0x", "0o8", "1e", "5%", "--1", "1 2"]
        {
            assert!(!plain(text).looks_like_a_number(), "{text}");
        }
    }

    #[test]
    fn u64_accepts_only_unquoted_whole_numbers() {
        assert_eq!(plain("10_000").u64(), Some(10_000));
        for text in ["-1", "1.0", "1e3", "0x10", "", "18446744073709551616"] {
            assert_eq!(plain(text).u64(), None, "{text}");
        }
        let quoted = Value::Text(Text { text: "5".to_owned(), quoted: true });
        assert_eq!(Node { value: quoted, span: SourceSpan::default() }.u64(), None);
    }
}
