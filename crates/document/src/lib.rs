//! Reads YAML documents and reports every problem of a file at once, each with its position and a fix.
//!
//! This crate is internal to Tollgate. It has no stable API, and its version is pinned exactly; depend on the
//! `tollgate` crate instead.
//!
//! A file passes three steps. Each step adds to one list of [`Problems`] instead of stopping at the first:
//!
//! 1. [`Source`] holds the text and converts byte offsets to lines and columns; [`parse()`] builds a tree of
//!    [`Node`]s.
//! 2. [`check`] compares the tree with a [`Shape`], which describes as data which values are allowed where.
//! 3. The caller reads the checked nodes and reports the problems that only their meaning reveals.
//!
//! [`json_schema`] generates the published JSON Schema from the same [`Shape`], so that the two cannot differ.
//! This crate knows YAML, source spans, shapes and problems. It does not know rules, limits or algorithms.

#![doc(hidden)]

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
pub use problem::{Label, Problem, Problems, Severity, quote, suggest};
pub use render::{Colour, sarif};
pub use schema::json_schema;
pub use shape::{Shape, check};
pub use source::{Position, Source, SourceSpan};
