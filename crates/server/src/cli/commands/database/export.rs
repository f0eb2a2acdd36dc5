//! `tollgate ledger export`: every entry as a JSON line or a line of CSV.

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use tollgate::core::Time;
use tollgate_database::Filter;
use tollgate_database::ledger::Id;

use super::database_args::{DatabaseArgs, block_on, failure};
use super::{FilterArgs, microseconds, progress};
use crate::cli::request_args::instant;
use crate::cli::{exit, terminal};
use crate::ledger_form::{CSV_HEADER, entry_csv, entry_json};

/// Entries that are read at once.
const PAGE: i64 = 1_000;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Only entries that were posted before this time, as `database retain --drop-before` drops them
    #[arg(long, value_name = "TIME", value_parser = instant)]
    posted_before: Option<Time>,
    /// Output format
    #[arg(long, value_enum, default_value_t = ExportFormat::Json)]
    format: ExportFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum ExportFormat {
    /// One JSON object per line
    Json,
    /// Comma-separated values with a header
    Csv,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    block_on(async {
        let database = args.database.open().await?;
        let filter =
            Filter { posted_before_us: args.posted_before.map(microseconds), ..args.filter.filter() };
        let count = match progress::is_watched() {
            true => database.count(&filter).await.map_err(failure)?,
            false => 0,
        };
        let bar = progress::bar(count, "entries")?;
        if args.format == ExportFormat::Csv {
            terminal::print(&format!("{CSV_HEADER}\n"))?;
        }
        let mut after = (Id([0; 16]), -1, -1);
        loop {
            let page = database.page(&filter, after, PAGE).await.map_err(failure)?;
            let Some(last) = page.last() else {
                bar.finish_and_clear();
                return Ok(exit::SUCCESS);
            };
            after = (last.writer, last.entry.seq, last.entry.n);
            let line = |posted| match args.format {
                ExportFormat::Json => format!("{}\n", entry_json(posted)),
                ExportFormat::Csv => entry_csv(posted),
            };
            terminal::print(&page.iter().map(line).collect::<String>())?;
            bar.inc(page.len() as u64);
        }
    })
}
