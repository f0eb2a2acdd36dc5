//! `tollgate config`: the effective settings of a server, with their origins.

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::cli::exit;
use crate::cli::terminal::{self, DIM};
use crate::config::{self, EffectiveSetting, Flags};
use crate::text::escape_control;

/// Print every setting of a server with its value and its origin
///
/// The command accepts the flags of `tollgate serve` and reads the same configuration: the file of --config, then the
/// variables TOLLGATE_…, then the flags. The last one that sets a value wins. It starts no server and connects to no store,
/// so it also checks a configuration before it is deployed. Secrets are not printed.
///
///   tollgate config
///   tollgate config --config tollgate.yaml --http 127.0.0.1:9000
///   tollgate config --config tollgate.yaml --format json
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  the configuration is valid and was printed
  2  the command line or the configuration is invalid; all problems are printed"
)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs: a list of objects with the name, value and origin of each setting
    Json,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let loaded = config::load(&args.flags, "no settings are printed")?;
    crate::stderr::write(&loaded.warnings);
    terminal::print(&match args.format {
        Format::Table => table(&loaded.settings),
        Format::Json => {
            let settings: Vec<Value> = loaded.settings.iter().map(EffectiveSetting::to_json).collect();
            format!("{:#}\n", json!({ "settings": settings }))
        }
    })?;
    Ok(exit::SUCCESS)
}

fn table(settings: &[EffectiveSetting]) -> String {
    let width = |of: fn(&EffectiveSetting) -> usize| settings.iter().map(of).max().unwrap_or(0);
    let name_width = width(|setting| setting.name.len());
    // A long value must not move all origins to the right.
    let value_width =
        width(|setting| setting.value.as_deref().map_or(1, |value| value.chars().count())).min(40);
    let line = |setting: &EffectiveSetting| {
        let value = setting.value.as_deref().map_or_else(|| "-".to_owned(), escape_control);
        format!(
            "{:name_width$}  {value:value_width$}  {DIM}{}{DIM:#}\n",
            setting.name,
            escape_control(&setting.origin.to_string())
        )
    };
    settings.iter().map(line).collect()
}
