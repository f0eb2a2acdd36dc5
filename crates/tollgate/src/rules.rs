//! The rules file: what may be written in it, and the rule set it stands for.
//!
//! [`load`] reads a file whole. Either it makes a [`RuleSet`], or the list of problems says everything that is wrong
//! with it, each with its place and its fix; there is no half of a rule set.

mod expression;
mod file_shape;
mod limit;
pub mod lint;
pub mod presets;
mod resolve;
mod words;

use tollgate_core::rules::{RuleLimit, RuleSet};

use tollgate_document::{Node, Problems, Source, check, json_schema, parse};

pub use file_shape::{file_shape, limit_shape};

/// The name of the schema. It is a name, not an address: nothing is ever fetched from it.
const SCHEMA_ID: &str = "urn:tollgate:rules:1";

/// Reads a rules file. `None` if there is an error among `problems`.
pub fn load(source: &Source, problems: &mut Problems) -> Option<RuleSet> {
    read(source, problems).map(|(_, rules)| rules)
}

/// Reads a rules file as [`load`] does, and adds what the linter has to say about one without errors.
pub fn load_and_lint(
    source: &Source,
    options: &lint::LintOptions,
    problems: &mut Problems,
) -> Option<RuleSet> {
    let (root, rules) = read(source, problems)?;
    lint::lint(source, &root, &rules, options, problems);
    Some(rules)
}

fn read(source: &Source, problems: &mut Problems) -> Option<(Node, RuleSet)> {
    let root = parse(source, problems)?;
    check(file_shape(), &root, problems);
    let rules = resolve::resolve(source, &root, problems).filter(|_| !problems.has_errors())?;
    Some((root, rules))
}

/// The JSON Schema of a rules file, for editors.
pub fn schema_json() -> String {
    let schema = json_schema(file_shape(), SCHEMA_ID, "Tollgate rules file, version 1");
    format!("{schema:#}\n")
}

/// Reads a limit by itself, as the value of `limit:` in a rules file: `{ token-bucket: 2/s, burst: 5 }`. `None` if there
/// is an error among `problems`.
pub fn load_limit(source: &Source, problems: &mut Problems) -> Option<RuleLimit> {
    let root = parse(source, problems)?;
    check(limit_shape(), &root, problems);
    limit::limit(&root, problems).filter(|_| !problems.has_errors())
}

#[cfg(test)]
mod tests;
