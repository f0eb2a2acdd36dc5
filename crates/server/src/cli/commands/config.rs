//! `tollgate config`: what a server would be told, and by whom.

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::cli::exit;
use crate::cli::terminal::{self, DIM};
use crate::config::{self, Flags, Shown};
use crate::text::escape_control;

/// Print every setting of a server with where it comes from
///
/// It takes the flags of `tollgate serve` and reads what that would read: the file of --config, then the variables
/// TOLLGATE_…, then the flags. The last one that says something counts. Nothing is started and no store is asked, so this
/// also finds the problems of a configuration before a server does. Secrets are not shown.
///
///   tollgate config
///   tollgate config --config tollgate.yaml --http 127.0.0.1:9000
///   tollgate config --config tollgate.yaml --format json
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  printed: a server would start with this
  2  the command line is wrong, or the configuration has problems: all of them are printed"
)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
    /// How settings are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// A list of objects with name, value and where it comes from
    Json,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let loaded = config::load(&args.flags, "there is nothing to print")?;
    terminal::print(&match args.format {
        Format::Table => table(&loaded.shown),
        Format::Json => {
            let settings: Vec<Value> = loaded.shown.iter().map(Shown::to_json).collect();
            format!("{:#}\n", json!({ "settings": settings }))
        }
    })?;
    Ok(exit::GOOD)
}

fn table(shown: &[Shown]) -> String {
    let value = |shown: &Shown| shown.value.as_deref().map_or_else(|| "-".to_owned(), escape_control);
    let wide = |of: fn(&Shown) -> usize| shown.iter().map(of).max().unwrap_or(0);
    let name_width = wide(|shown| shown.name.len());
    // One long value need not move all origins out of sight.
    let value_width = wide(|shown| shown.value.as_deref().map_or(1, |value| value.chars().count())).min(40);
    let line = |each: &Shown| {
        let value = value(each);
        format!(
            "{:name_width$}  {value:value_width$}  {DIM}{}{DIM:#}\n",
            each.name,
            escape_control(&each.origin.to_string())
        )
    };
    shown.iter().map(line).collect()
}
