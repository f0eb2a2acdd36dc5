//! `tollgate presets`: the ready-made rules.

use std::process::ExitCode;

use anyhow::Result;
use tollgate::rules::presets::{self, Preset};
use tollgate_document::suggest;

use crate::cli::terminal::STRONG;
use crate::cli::{exit, terminal};
use crate::failure::Failure;

/// List the ready-made rules, or print those of one preset
///
/// A rules file takes a preset in with `use`, and may give it another id, more conditions and another mode:
///
///   rules:
///     - use: login-protection
///       id: login
///       match: { action: login }
///
/// To change its numbers, print it and copy the rules into your file:
///
///   tollgate presets login-protection
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "Exit codes: 0 printed, 2 the command line is wrong or no preset has this name."
)]
pub(crate) struct Args {
    /// Print the rules of this preset
    name: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.name {
        Some(name) => terminal::print(&commented(find(name)?))?,
        None => terminal::print(&list())?,
    }
    Ok(exit::GOOD)
}

fn find(name: &str) -> Result<&'static Preset, Failure> {
    presets::find(name).ok_or_else(|| {
        let hint = match suggest(name, presets::ALL.iter().map(|preset| preset.name)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`tollgate presets` lists them".to_owned(),
        };
        Failure::new(format!("no preset is called `{name}`"), hint)
    })
}

fn commented(Preset { name, summary, text }: &Preset) -> String {
    format!(
        "# {summary}\n# `use: {name}` takes these rules as they are; copy them to change their numbers.\n{text}"
    )
}

fn list() -> String {
    let width = presets::ALL.iter().map(|preset| preset.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for Preset { name, summary, .. } in presets::ALL {
        out += &format!("{STRONG}{name:width$}{STRONG:#}  {summary}\n");
    }
    out + "\nPrint the rules of one with `tollgate presets NAME`; take them into a file with `use: NAME`.\n"
}
