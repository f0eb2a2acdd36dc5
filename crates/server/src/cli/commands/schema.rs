//! `tollgate schema`: the rules file's JSON Schema.

use std::process::ExitCode;

use anyhow::Result;
use tollgate::rules;

use crate::cli::{exit, terminal};

/// Print the JSON Schema of the rules file, for editors
///
/// It is made from the description by which files are checked, in draft 2020-12. With it an editor completes keys, shows
/// what they mean and marks mistakes. Keep it beside your rules and name it in their first line, which the YAML support
/// of VS Code, Neovim, Helix, Zed and others understands:
///
///   tollgate schema > rules.schema.json
///
///   # yaml-language-server: $schema=rules.schema.json
///   version: 1
///
/// The schema knows every key, but not everything about the values: `tollgate lint` finds more.
#[derive(clap::Args)]
#[command(verbatim_doc_comment, after_long_help = "Exit codes: 0 printed, 2 the command line is wrong.")]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Result<ExitCode> {
    terminal::print(&rules::schema_json())?;
    Ok(exit::GOOD)
}
