//! `tollgate schema`: the JSON Schema of the rules file.

use std::process::ExitCode;

use anyhow::Result;
use tollgate::rules;

use crate::cli::{exit, terminal};

/// Print the JSON Schema of the rules file, for editors
///
/// The schema (draft 2020-12) is generated from the definition that checks rules files. With it, an editor completes keys,
/// shows their documentation and marks mistakes. Store it next to your rules and name it in their first line, which the
/// YAML support of VS Code, Neovim, Helix, Zed and others reads:
///
///   tollgate schema > rules.schema.json
///
///   # yaml-language-server: $schema=rules.schema.json
///   version: 1
///
/// The schema knows every key, but it cannot check all values. `tollgate lint` finds more.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  the schema was printed
  2  the command line is invalid"
)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Result<ExitCode> {
    terminal::print(&rules::schema_json())?;
    Ok(exit::SUCCESS)
}
