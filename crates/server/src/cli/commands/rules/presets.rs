//! `tollgate presets`: ready-made rules.

use std::process::ExitCode;

use anyhow::Result;
use tollgate::rules::presets::{self, Preset};
use tollgate_document::suggest;

use crate::cli::terminal::STRONG;
use crate::cli::{exit, terminal};
use crate::failure::Failure;

/// List the presets, or print the rules of one
///
/// A preset is a ready-made rules file. Another rules file includes it with `use`, and can change its id, conditions and
/// mode:
///
///   rules:
///     - use: login-protection
///       id: login
///       match: { action: login }
///
/// To change its numbers, print the preset and copy its rules into your file:
///
///   tollgate presets login-protection
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  the list or the preset was printed
  2  the command line is invalid, or the preset is unknown"
)]
pub(crate) struct Args {
    /// Preset to print
    name: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.name {
        Some(name) => terminal::print(&commented(find(name)?))?,
        None => terminal::print(&list())?,
    }
    Ok(exit::SUCCESS)
}

fn find(name: &str) -> Result<&'static Preset, Failure> {
    presets::find(name).ok_or_else(|| {
        let hint = match suggest(name, presets::ALL.iter().map(|preset| preset.name)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`tollgate presets` lists all presets".to_owned(),
        };
        Failure::new(format!("unknown preset `{name}`"), hint)
    })
}

fn commented(Preset { name, summary, text }: &Preset) -> String {
    format!(
        "# {summary}\n# `use: {name}` includes these rules unchanged; copy them to change their numbers.\n{text}"
    )
}

fn list() -> String {
    let width = presets::ALL.iter().map(|preset| preset.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for Preset { name, summary, .. } in presets::ALL {
        out += &format!("{STRONG}{name:width$}{STRONG:#}  {summary}\n");
    }
    out + "\nPrint the rules of a preset with `tollgate presets NAME`; include them in a rules file with `use: NAME`.\n"
}
