//! Loads rules files: the shape of the file, and its conversion to a rule set.
//!
//! [`load`] returns a complete [`RuleSet`], or `None` and a list of all problems, each with its position and a fix.

mod attributes;
mod expression;
mod file_shape;
mod foreign_words;
mod ledger;
mod limit;
pub mod lint;
pub mod live;
mod notation;
mod postpaid;
pub mod presets;
mod renamed_keys;
mod resolve;
mod slices;

use tollgate_core::rules::{RuleLimit, RuleSet};

use tollgate_document::shape::check_with_hints;
use tollgate_document::{Node, Problems, Source, json_schema, parse};

use renamed_keys::{OldKey, replace_old_keys};

pub use file_shape::{file_shape, limit_shape};

/// The `$id` of the JSON Schema. It is a name, not a URL.
const SCHEMA_ID: &str = "urn:tollgate:rules:1";

/// A rules file without errors.
struct LoadedFile {
    /// Its tree. Old keys have their new names.
    root: Node,
    rules: RuleSet,
    old_keys: Vec<OldKey>,
}

/// Loads a rules file. Returns `None` if `problems` contains an error.
pub fn load(source: &Source, problems: &mut Problems) -> Option<RuleSet> {
    read(source, problems).map(|file| file.rules)
}

/// Loads a rules file like [`load`], and adds the linter's findings if the file has no errors.
pub fn load_and_lint(
    source: &Source,
    options: &lint::LintOptions,
    problems: &mut Problems,
) -> Option<RuleSet> {
    let file = read(source, problems)?;
    lint::lint(source, &file, options, problems);
    Some(file.rules)
}

fn read(source: &Source, problems: &mut Problems) -> Option<LoadedFile> {
    let mut root = parse(source, problems)?;
    let old_keys = replace_old_keys(&mut root, problems);
    check_with_hints(file_shape(), &root, foreign_words::find_hint, problems);
    let rules = resolve::resolve(source, &root, problems).filter(|_| !problems.has_errors())?;
    Some(LoadedFile { root, rules, old_keys })
}

/// The JSON Schema of a rules file, for editors.
pub fn schema_json() -> String {
    let schema = json_schema(file_shape(), SCHEMA_ID, "Tollgate rules file, version 1");
    format!("{schema:#}\n")
}

/// Loads a single limit, like the value of `limit:` in a rules file: `{ token-bucket: 2/s, burst: 5 }`. Returns `None`
/// if `problems` contains an error.
pub fn load_limit(source: &Source, problems: &mut Problems) -> Option<RuleLimit> {
    let root = parse(source, problems)?;
    check_with_hints(limit_shape(), &root, foreign_words::find_hint_in_limit, problems);
    limit::limit(&root, problems).filter(|_| !problems.has_errors())
}

#[cfg(test)]
mod tests;
