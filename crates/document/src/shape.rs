//! What may stand where in a file, as data, and the check of a tree against it.
//!
//! A [`Shape`] is put together from the functions of this module, and read by the [`check`] and by
//! [`json_schema`](super::json_schema):
//!
//! ```
//! use tollgate_document::shape::{Shape, choice, fields, list, number, one_of, text};
//! use tollgate_document::{Problems, Source, check, parse};
//!
//! let limit = one_of("a limit")
//!     .or("Refuses everything.", choice(&[("deny", "Nothing is admitted.")]))
//!     .or("A bucket.", fields("a bucket").required("rate", text("a rate like 2/s"), "How fast it refills."));
//! let rule = fields("a rule")
//!     .required("id", text("a name"), "What the rule is called.")
//!     .required("limit", limit, "How much it admits.")
//!     .optional("per", list(text("an attribute")).or_one(), "Who shares it.");
//! let file = Shape::from(fields("a rules file").required("rules", list(rule), "The rules."));
//!
//! let source = Source::new("rules.yaml", b"rules:\n  - { id: a, limt: deny }");
//! let mut problems = Problems::new();
//! let node = parse(&source, &mut problems).expect("it is good YAML");
//! check(&file, &node, &mut problems);
//! let found: Vec<_> = problems.in_order().iter().map(|problem| problem.message.as_str()).collect();
//! assert_eq!(found, ["unknown key `limt`"]);
//! ```

mod check;

use super::node::Kind;

pub use check::check;

/// What a node must be.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A scalar.
    Text(TextShape),
    /// A whole number without quotes.
    Number(NumberShape),
    /// `true` or `false`.
    Bool,
    /// One of these words, each with what it means.
    Choice(&'static [(&'static str, &'static str)]),
    /// Items of one shape.
    List(ListShape),
    /// A map whose keys are known.
    Fields(Fields),
    /// A map whose keys are free.
    MapOf(MapOf),
    /// Any of several shapes.
    OneOf(OneOf),
    /// Anything at all.
    Any,
    /// A shape with a name of its own, which may stand in itself. The schema refers to it by the name.
    Named(&'static str, fn() -> &'static Shape),
}

/// Says in a sentence without a full stop what is wrong with a text, if anything is.
pub type TextCheck = fn(&str) -> Result<(), String>;

/// Scalars, numbers too: `tenant: 42` is text unless [`TextShape::no_number`] says otherwise.
#[derive(Clone, Debug)]
pub struct TextShape {
    /// What it is, after "expected": `a rate like 100/min`.
    pub what: &'static str,
    /// What else it must be.
    pub check: Option<TextCheck>,
    /// The same as a regular expression, as far as one can say it; only the schema uses it.
    pub pattern: Option<&'static str>,
    /// Texts that pass.
    pub examples: &'static [&'static str],
    /// Whether an unquoted number will do.
    pub numbers: bool,
}

/// Whole numbers in a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NumberShape {
    /// The least that is allowed.
    pub min: u64,
    /// The most that is allowed.
    pub max: u64,
}

/// Lists of one shape.
#[derive(Clone, Debug)]
pub struct ListShape {
    /// What each item is.
    pub item: Box<Shape>,
    /// The fewest items.
    pub len_min: usize,
    /// Whether a single item may stand for a list of one.
    pub or_one: bool,
}

/// Maps whose keys are known.
#[derive(Clone, Debug)]
pub struct Fields {
    /// What the map is: `a rule`.
    pub what: &'static str,
    /// The keys.
    pub fields: Vec<Field>,
    /// What any other key may hold; without it, any other key is unknown.
    pub rest: Option<Box<Shape>>,
}

/// A known key.
#[derive(Clone, Debug)]
pub struct Field {
    /// The key.
    pub name: &'static str,
    /// What it holds.
    pub shape: Shape,
    /// Whether it must be there.
    pub required: bool,
    /// What it means, in a sentence or two.
    pub doc: &'static str,
}

/// Maps whose keys are free.
#[derive(Clone, Debug)]
pub struct MapOf {
    /// What the map is: `attributes and their values`.
    pub what: &'static str,
    /// What each key is.
    pub key: TextShape,
    /// What each value is.
    pub value: Box<Shape>,
}

/// Several shapes, one of which must fit.
///
/// Which one a node is meant to be is decided without trying them, so that its problems are told as if there had been
/// no choice: by its kind; between maps, by the required keys that are there; between scalars, by which one accepts
/// it. Between lists the first counts.
#[derive(Clone, Debug)]
pub struct OneOf {
    /// What it is: `a limit`.
    pub what: &'static str,
    /// The shapes.
    pub alternatives: Vec<Alternative>,
}

/// One of several shapes.
#[derive(Clone, Debug)]
pub struct Alternative {
    /// What it means.
    pub doc: &'static str,
    /// What it is.
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

/// One of these words, each with what it means.
pub fn choice(words: &'static [(&'static str, &'static str)]) -> Shape {
    Shape::Choice(words)
}

/// A list.
pub fn list(item: impl Into<Shape>) -> ListShape {
    ListShape { item: Box::new(item.into()), len_min: 0, or_one: false }
}

/// A map with the keys that are added to it. `what` follows "expected" in messages: `a rule`.
pub fn fields(what: &'static str) -> Fields {
    Fields { what, fields: Vec::new(), rest: None }
}

/// A map with keys of the writer's choice.
pub fn map_of(what: &'static str, key: TextShape, value: impl Into<Shape>) -> MapOf {
    MapOf { what, key, value: Box::new(value.into()) }
}

/// Any of the shapes that are added to it.
pub fn one_of(what: &'static str) -> OneOf {
    OneOf { what, alternatives: Vec::new() }
}

impl TextShape {
    /// Texts for which `check` says what is wrong are refused.
    #[must_use]
    pub fn checked(mut self, check: TextCheck) -> TextShape {
        self.check = Some(check);
        self
    }

    /// The same as a regular expression for the schema. It must accept whatever the check accepts.
    #[must_use]
    pub fn pattern(mut self, pattern: &'static str) -> TextShape {
        self.pattern = Some(pattern);
        self
    }

    /// Texts that pass, for messages and for the schema.
    #[must_use]
    pub fn examples(mut self, examples: &'static [&'static str]) -> TextShape {
        self.examples = examples;
        self
    }

    /// Refuses an unquoted number: `fixed-window: 100` lacks its period.
    #[must_use]
    pub fn no_number(mut self) -> TextShape {
        self.numbers = false;
        self
    }
}

impl ListShape {
    /// Refuses fewer items.
    #[must_use]
    pub fn at_least(mut self, len_min: usize) -> ListShape {
        self.len_min = len_min;
        self
    }

    /// Accepts a single item without brackets; [`Node::one_or_many`](super::Node::one_or_many) reads both.
    #[must_use]
    pub fn or_one(mut self) -> ListShape {
        self.or_one = true;
        self
    }
}

impl Fields {
    /// Adds a key that must be there.
    #[must_use]
    pub fn required(self, name: &'static str, shape: impl Into<Shape>, doc: &'static str) -> Fields {
        self.field(Field { name, shape: shape.into(), required: true, doc })
    }

    /// Adds a key that may be there.
    #[must_use]
    pub fn optional(self, name: &'static str, shape: impl Into<Shape>, doc: &'static str) -> Fields {
        self.field(Field { name, shape: shape.into(), required: false, doc })
    }

    /// Lets any other key hold this.
    #[must_use]
    pub fn rest(mut self, shape: impl Into<Shape>) -> Fields {
        self.rest = Some(Box::new(shape.into()));
        self
    }

    fn field(mut self, field: Field) -> Fields {
        self.fields.push(field);
        self
    }

    /// The names of the keys that must be there.
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
    /// Whether a node of this kind can be one of this shape.
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
