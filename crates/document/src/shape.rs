//! Shapes describe as data which values are allowed where in a file; `check` compares a tree with a shape.
//!
//! The functions of this module build a [`Shape`]. `check` and [`json_schema`](super::json_schema) read it:
//!
//! ```
//! use tollgate_document::shape::{Shape, choice, fields, list, number, one_of, text};
//! use tollgate_document::{Problems, Source, check, parse};
//!
//! let limit = one_of("a limit")
//!     .or("Refuses everything.", choice(&[("deny", "Nothing is admitted.")]))
//!     .or("A bucket.", fields("a bucket").required("rate", text("a rate like 2/s"), "The refill rate."));
//! let rule = fields("a rule")
//!     .required("id", text("a name"), "The name of the rule.")
//!     .required("limit", limit, "How much is admitted.")
//!     .optional("per", list(text("an attribute")).or_one(), "The attributes to count by.");
//! let file = Shape::from(fields("a rules file").required("rules", list(rule), "The rules."));
//!
//! let source = Source::new("rules.yaml", b"rules:\n  - { id: a, limt: deny }");
//! let mut problems = Problems::new();
//! let node = parse(&source, &mut problems).expect("valid YAML");
//! check(&file, &node, &mut problems);
//! let found: Vec<_> = problems.in_order().iter().map(|problem| problem.message.as_str()).collect();
//! assert_eq!(found, ["unknown key `limt`"]);
//! ```

mod check;
mod renamed;

use super::node::Kind;

pub use check::{FindHint, WordHint, check, check_with_hints};
pub use renamed::{RenamedKey, rename_keys};

/// The values that are allowed for a node.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A scalar.
    Text(TextShape),
    /// A whole number without quotes.
    Number(NumberShape),
    /// `true` or `false`.
    Bool,
    /// One of these words, each with its meaning.
    Choice(&'static [(&'static str, &'static str)]),
    /// A list of items of one shape.
    List(ListShape),
    /// A map with known keys.
    Fields(Fields),
    /// A map with arbitrary keys.
    MapOf(MapOf),
    /// Any of several shapes.
    OneOf(OneOf),
    /// Any value.
    Any,
    /// A named shape, which may contain itself. The JSON Schema refers to it by this name.
    Named(&'static str, fn() -> &'static Shape),
}

/// Returns the fault of a text as a sentence without a full stop.
pub type TextCheck = fn(&str) -> Result<(), String>;

/// Scalars, including numbers: `tenant: 42` is text unless [`TextShape::no_number`] excludes it.
#[derive(Clone, Debug)]
pub struct TextShape {
    /// The noun that follows "expected" in messages: `a rate like 100/min`.
    pub what: &'static str,
    /// A further check.
    pub check: Option<TextCheck>,
    /// The check as a regular expression, as far as possible; only the JSON Schema uses it.
    pub pattern: Option<&'static str>,
    /// Valid examples.
    pub examples: &'static [&'static str],
    /// Whether an unquoted number is allowed.
    pub numbers: bool,
}

/// Whole numbers in a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NumberShape {
    /// The smallest allowed number.
    pub min: u64,
    /// The largest allowed number.
    pub max: u64,
}

/// Lists of one shape.
#[derive(Clone, Debug)]
pub struct ListShape {
    /// The shape of each item.
    pub item: Box<Shape>,
    /// The minimum number of items.
    pub len_min: usize,
    /// Whether a single item without brackets is allowed.
    pub or_one: bool,
}

/// Maps with known keys.
#[derive(Clone, Debug)]
pub struct Fields {
    /// The noun for the map in messages: `a rule`.
    pub what: &'static str,
    /// The keys.
    pub fields: Vec<Field>,
    /// The shape of any other key; without it, any other key is an error.
    pub rest: Option<Box<Shape>>,
    /// Old names of keys. [`rename_keys`] replaces them before the check; the JSON Schema marks them as deprecated.
    pub renamed: &'static [RenamedKey],
}

/// A known key.
#[derive(Clone, Debug)]
pub struct Field {
    /// The key.
    pub name: &'static str,
    /// The shape of its value.
    pub shape: Shape,
    /// Whether it is required.
    pub required: bool,
    /// Its meaning, in a sentence or two.
    pub doc: &'static str,
}

/// Maps with arbitrary keys.
#[derive(Clone, Debug)]
pub struct MapOf {
    /// The noun for the map in messages: `attributes and their values`.
    pub what: &'static str,
    /// The shape of each key.
    pub key: TextShape,
    /// The shape of each value.
    pub value: Box<Shape>,
}

/// Several shapes, one of which must match.
///
/// The check selects one shape for a node and reports only the problems with that shape. It selects by the node's
/// kind; between maps, by the required keys that are present; between scalars, by which shape accepts the value.
/// Between lists it takes the first.
#[derive(Clone, Debug)]
pub struct OneOf {
    /// The noun for the value in messages: `a limit`.
    pub what: &'static str,
    /// The shapes.
    pub alternatives: Vec<Alternative>,
}

/// One of several shapes.
#[derive(Clone, Debug)]
pub struct Alternative {
    /// Its meaning.
    pub doc: &'static str,
    /// The shape.
    pub shape: Shape,
}

/// A scalar. `what` follows "expected" in messages: `a rate like 100/min`.
pub fn text(what: &'static str) -> TextShape {
    TextShape { what, check: None, pattern: None, examples: &[], numbers: true }
}

/// A whole number from `min` to `max`.
pub fn number(min: u64, max: u64) -> Shape {
    Shape::Number(NumberShape { min, max })
}

/// One of these words, each with its meaning.
pub fn choice(words: &'static [(&'static str, &'static str)]) -> Shape {
    Shape::Choice(words)
}

/// A list.
pub fn list(item: impl Into<Shape>) -> ListShape {
    ListShape { item: Box::new(item.into()), len_min: 0, or_one: false }
}

/// A map with the keys that are added to it. `what` follows "expected" in messages: `a rule`.
pub fn fields(what: &'static str) -> Fields {
    Fields { what, fields: Vec::new(), rest: None, renamed: &[] }
}

/// A map with arbitrary keys.
pub fn map_of(what: &'static str, key: TextShape, value: impl Into<Shape>) -> MapOf {
    MapOf { what, key, value: Box::new(value.into()) }
}

/// One of the shapes that are added to it.
pub fn one_of(what: &'static str) -> OneOf {
    OneOf { what, alternatives: Vec::new() }
}

impl TextShape {
    /// Reports an error for texts that `check` returns a fault for.
    #[must_use]
    pub fn checked(mut self, check: TextCheck) -> TextShape {
        self.check = Some(check);
        self
    }

    /// Sets a regular expression for the JSON Schema. It must accept everything that the check accepts.
    #[must_use]
    pub fn pattern(mut self, pattern: &'static str) -> TextShape {
        self.pattern = Some(pattern);
        self
    }

    /// Sets valid examples, for messages and for the JSON Schema.
    #[must_use]
    pub fn examples(mut self, examples: &'static [&'static str]) -> TextShape {
        self.examples = examples;
        self
    }

    /// Disallows unquoted numbers: `fixed-window: 100` lacks its period.
    #[must_use]
    pub fn no_number(mut self) -> TextShape {
        self.numbers = false;
        self
    }
}

impl ListShape {
    /// Sets the minimum number of items.
    #[must_use]
    pub fn at_least(mut self, len_min: usize) -> ListShape {
        self.len_min = len_min;
        self
    }

    /// Allows a single item without brackets; [`Node::one_or_many`](super::Node::one_or_many) reads both.
    #[must_use]
    pub fn or_one(mut self) -> ListShape {
        self.or_one = true;
        self
    }
}

impl Fields {
    /// Adds a required key.
    #[must_use]
    pub fn required(self, name: &'static str, shape: impl Into<Shape>, doc: &'static str) -> Fields {
        self.field(Field { name, shape: shape.into(), required: true, doc })
    }

    /// Adds an optional key.
    #[must_use]
    pub fn optional(self, name: &'static str, shape: impl Into<Shape>, doc: &'static str) -> Fields {
        self.field(Field { name, shape: shape.into(), required: false, doc })
    }

    /// Allows any other key with this shape.
    #[must_use]
    pub fn rest(mut self, shape: impl Into<Shape>) -> Fields {
        self.rest = Some(Box::new(shape.into()));
        self
    }

    /// Sets old names of optional keys.
    #[must_use]
    pub fn renamed(mut self, renamed: &'static [RenamedKey]) -> Fields {
        self.renamed = renamed;
        self
    }

    fn field(mut self, field: Field) -> Fields {
        self.fields.push(field);
        self
    }

    /// The names of the required keys.
    pub(super) fn required_names(&self) -> impl Iterator<Item = &'static str> {
        self.fields.iter().filter(|field| field.required).map(|field| field.name)
    }
}

impl OneOf {
    /// Adds a shape.
    #[must_use]
    pub fn or(mut self, doc: &'static str, shape: impl Into<Shape>) -> OneOf {
        self.alternatives.push(Alternative { doc, shape: shape.into() });
        self
    }
}

impl From<TextShape> for Shape {
    fn from(shape: TextShape) -> Shape {
        Shape::Text(shape)
    }
}

impl From<ListShape> for Shape {
    fn from(shape: ListShape) -> Shape {
        Shape::List(shape)
    }
}

impl From<Fields> for Shape {
    fn from(shape: Fields) -> Shape {
        Shape::Fields(shape)
    }
}

impl From<MapOf> for Shape {
    fn from(shape: MapOf) -> Shape {
        Shape::MapOf(shape)
    }
}

impl From<OneOf> for Shape {
    fn from(shape: OneOf) -> Shape {
        Shape::OneOf(shape)
    }
}

impl Shape {
    /// Whether a node of this kind can have this shape.
    pub(super) fn accepts(&self, kind: Kind) -> bool {
        match self {
            Shape::Text(_) | Shape::Number(_) | Shape::Choice(_) => kind == Kind::Text,
            Shape::Bool => kind == Kind::Bool,
            Shape::List(list) => kind == Kind::List || list.or_one && list.item.accepts(kind),
            Shape::Fields(_) | Shape::MapOf(_) => kind == Kind::Map,
            Shape::OneOf(one_of) => one_of.alternatives.iter().any(|each| each.shape.accepts(kind)),
            Shape::Any => true,
            Shape::Named(_, shape) => shape().accepts(kind),
        }
    }
}
