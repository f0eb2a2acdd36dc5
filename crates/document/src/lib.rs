//! Reading a rules file so that every problem in it is found in one go.
//!
//! A file goes through three steps, and each adds to one list of [`Problems`] instead of stopping at the first:
//!
//! 1. [`Source`] holds the text and turns byte offsets into lines and columns; [`parse()`] makes a tree of
//!    [`Node`]s.
//! 2. [`check`] compares the tree with a [`Shape`], which says as data what may stand where.
//! 3. Whoever gives the file its meaning reads the checked nodes and reports what only the meaning can show.
//!
//! The same [`Shape`] is the published JSON Schema ([`json_schema`]), so the two cannot drift apart.
//! This module knows YAML, places, shapes and problems. It knows no rule, no limit and no algorithm.

#[cfg(test)]
mod example;
pub mod node;
mod number;
pub mod parse;
pub mod problem;
pub mod render;
pub mod schema;
pub mod shape;
pub mod source;

pub use node::{Entry, Kind, Node, Text, Value};
pub use number::{NotANumber, number};
pub use parse::parse;
pub use problem::{Label, Problem, Problems, Severity, shown, suggest};
pub use render::{Colour, sarif};
pub use schema::json_schema;
pub use shape::{Shape, check};
pub use source::{Place, Position, Source};
