//! The tree a YAML file stands for, with the place of every node.
//!
//! Numbers stay text until somebody asks for one: `007`, `1e3` and `2026-12-01` mean what their reader says.

use super::problem::shown;
use super::source::Place;
use crate::number::number as whole_number;

/// A value and where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// What it is.
    pub value: Value,
    /// Where it is. A map or a list reaches from its first character to the end of its last item.
    pub place: Place,
}

/// What a node is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// Nothing: left out, `~` or `null`.
    Null,
    /// An unquoted `true` or `false`.
    Bool(bool),
    /// Any other scalar, numbers too.
    Text(Text),
    /// Items in their order.
    List(Vec<Node>),
    /// Entries in their order. After a duplicate key was reported, both are here.
    Map(Vec<Entry>),
    /// Something that was refused and reported. Whoever meets it says nothing more.
    Refused,
}

/// A scalar as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Text {
    /// The characters, with escapes and folded lines resolved.
    pub text: String,
    /// Whether it is text beyond doubt: in quotes, or a `|` or `>` block.
    pub quoted: bool,
}

/// A key and its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The key: [`Value::Text`] or [`Value::Refused`].
    pub key: Node,
    /// What it stands for.
    pub value: Node,
}

/// Which kind of value a node has.
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
    /// [`Value::Refused`].
    Refused,
}

/// Reading a checked node. `None` means that it is something else, which [`check`](super::check) has reported.
impl Node {
    /// Which kind of value it has.
    pub fn kind(&self) -> Kind {
        match self.value {
            Value::Null => Kind::Null,
            Value::Bool(_) => Kind::Bool,
            Value::Text(_) => Kind::Text,
            Value::List(_) => Kind::List,
            Value::Map(_) => Kind::Map,
            Value::Refused => Kind::Refused,
        }
    }

    /// The value of a key, if it is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// A key with its value, if it is a map that has it.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key.text() == Some(key))
    }

    /// The entries of a map; none if it is no map.
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

    /// The items of a list, or the node itself where one item may stand without brackets.
    pub fn one_or_many(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            Value::Null | Value::Refused => &[],
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

    /// The truth value.
    pub fn bool(&self) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// How a message names what was found here.
    pub fn found(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => format!("`{value}`"),
            Value::Text(text) if self.looks_like_a_number() => format!("the number {}", text.text),
            Value::Text(text) => shown(&text.text),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
            Value::Refused => "something that cannot be read".to_owned(),
        }
    }

    /// Whether YAML would call this unquoted text a number.
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
    // What Rust reads as a float is what YAML does, but for the names of infinity and NaN.
    unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') && unsigned.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Node {
        let value = Value::Text(Text { text: text.to_owned(), quoted: false });
        Node { value, place: Place::default() }
    }

    #[test]
    fn numbers_are_told_from_text_as_yaml_does() {
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
    fn only_unquoted_whole_numbers_are_numbers() {
        assert_eq!(plain("10_000").u64(), Some(10_000));
        for text in ["-1", "1.0", "1e3", "0x10", "", "18446744073709551616"] {
            assert_eq!(plain(text).u64(), None, "{text}");
        }
        let quoted = Value::Text(Text { text: "5".to_owned(), quoted: true });
        assert_eq!(Node { value: quoted, place: Place::default() }.u64(), None);
    }
}
