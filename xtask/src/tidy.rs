//! `cargo xtask tidy`: checks of the tree that the compiler does not make.
//!
//! Each check is a function from the files to the problems found, in a separate file. This file holds the table
//! of checks and reports what they find.

mod checks;
mod markdown;
mod rust;
mod tree;

use anyhow::{Result, bail};
use checks::{
    core_dependencies, core_purity, exceptions, faults, hygiene, links, markers, modules, phrases,
    requirements, size,
};
use std::fmt;
use std::path::Path;
use tree::Tree;

/// The table of checks that fail the run.
const CHECKS: &[fn(&Tree) -> Vec<Problem>] = &[
    core_purity::check,
    exceptions::check,
    faults::check,
    hygiene::check,
    links::check,
    markers::check,
    modules::check,
    phrases::check,
    requirements::check,
];

/// One thing that is wrong, where, and what to do about it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Problem {
    path: String,
    line: usize,
    what: String,
    fix: String,
}

impl Problem {
    fn new(path: &str, line: usize, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into(), fix: fix.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}\n    fix: {}", self.path, self.line, self.what, self.fix)
    }
}

/// Prints every problem in the tree, and fails if there is one. Warnings do not fail.
pub(crate) fn run(root: &Path) -> Result<()> {
    let tree = Tree::load(root)?;
    let mut problems = problems(&tree);
    match core_dependencies::resolve(root) {
        Ok(resolved) => problems.extend(core_dependencies::check(&tree, &resolved)),
        Err(error) => problems.push(Problem::new(
            core_dependencies::MANIFEST,
            1,
            format!("the dependencies of the core are not known: {error:#}"),
            "make `cargo tree --package tollgate-core --locked` work",
        )),
    }
    problems.sort();

    for warning in size::warnings(&tree) {
        eprintln!("warning: {warning}");
    }
    for problem in &problems {
        eprintln!("{problem}");
    }
    if !problems.is_empty() {
        bail!("tidy: {} problems", problems.len());
    }
    println!("tidy: {} files, no problem", tree.files().len());
    Ok(())
}

fn problems(tree: &Tree) -> Vec<Problem> {
    CHECKS.iter().flat_map(|check| check(tree)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_is_in_the_table() {
        let tree = Tree::of(&[
            ("README.md", "[a](gone.md) \n"),
            ("crates/core/src/stray.rs", "use std::fs;\n#[allow(dead_code)]\nfn f() { todo!() }\n"),
        ]);
        let mut found: Vec<String> = problems(&tree).into_iter().map(|problem| problem.what).collect();
        found.sort();
        let expected = [
            "`std::fs` in the core, which does I/O",
            "`todo!` is left over",
            "an exception from a lint without a reason",
            "blanks at the end of the line",
            "no target compiles this file",
            "the link to gone.md leads nowhere",
            // Of the requirements, and of the proof.
            "the page is missing",
            "the page is missing",
        ];
        assert_eq!(found, expected);
    }
}

/// What the tests of the checks share.
#[cfg(test)]
mod planted {
    use super::{Problem, Tree};

    /// Where the check found something in a tree of these files: `path:line`, in order.
    pub(super) fn found(check: fn(&Tree) -> Vec<Problem>, files: &[(&str, &str)]) -> Vec<String> {
        let mut problems = check(&Tree::of(files));
        problems.sort();
        problems.iter().map(|problem| format!("{}:{}", problem.path, problem.line)).collect()
    }

    /// The lines of one file on which the check found something.
    pub(super) fn lines(check: fn(&Tree) -> Vec<Problem>, path: &str, text: &str) -> Vec<usize> {
        let mut lines: Vec<usize> =
            check(&Tree::of(&[(path, text)])).iter().map(|problem| problem.line).collect();
        lines.sort_unstable();
        lines
    }
}
