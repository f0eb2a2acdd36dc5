//! The files that are imported together.

use std::path::PathBuf;

use tollgate_document::{Node, Problems, Severity, Source, SourceSpan, Value, parse};

use crate::cli::terminal;
use crate::failure::Failure;
use crate::files;

/// A file, and its problems.
pub(super) struct Input {
    pub(super) source: Source,
    pub(super) root: Node,
    pub(super) problems: Problems,
}

/// A span of one of the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Location {
    /// Its index.
    pub(super) file: usize,
    pub(super) span: SourceSpan,
}

const INVALID: Node = Node { value: Value::Invalid, span: SourceSpan::new(0, 0) };

impl Input {
    /// Parses a file. The root of a file that is not YAML is invalid, which is reported.
    pub(super) fn new(source: Source) -> Input {
        let mut problems = Problems::new();
        let root = parse(&source, &mut problems).unwrap_or(INVALID);
        Input { source, root, problems }
    }

    /// Takes the document out, so that its nodes can be read while problems are added.
    pub(super) fn take_root(&mut self) -> Node {
        std::mem::replace(&mut self.root, INVALID)
    }

    /// Formats a position in this file: `limits.yaml:7`.
    pub(super) fn position(&self, span: SourceSpan) -> String {
        format!("{}:{}", self.source.name(), self.source.position(span.start).line)
    }

    pub(super) fn has_warnings(&self) -> bool {
        self.problems.in_order().iter().any(|problem| problem.severity == Severity::Warning)
    }
}

pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<Input>, Failure> {
    paths.iter().map(|path| Ok(Input::new(files::read(path)?))).collect()
}

/// Formats the problems of all files.
pub(super) fn problems_text(inputs: &[Input]) -> String {
    inputs.iter().map(|input| terminal::problems(&input.problems, &input.source)).collect()
}

/// The names of all files.
pub(super) fn names(inputs: &[Input]) -> String {
    inputs.iter().map(|input| input.source.name()).collect::<Vec<_>>().join(", ")
}
