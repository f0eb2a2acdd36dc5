//! `tollgate ledger adopt`: posts the journal of a server that will not return.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use tollgate_database::Error;
use tollgate_database::journal::JournalError;

use super::Format;
use super::database_args::{DatabaseArgs, block_on, failure};
use super::progress;
use crate::cli::{exit, terminal};
use crate::failure::{Failure, error_chain};
use crate::serve::control::now_us;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Folder of the journal, from the disk of that server
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let folder = args.folder.display();
    if !args.folder.is_dir() {
        let hint = "pass the folder that the server had as `journal`; for SQLite it is the path of the file and .journal";
        return Err(Failure::new(format!("no folder at {folder}"), hint).into());
    }
    block_on(async {
        let database = args.database.open().await?;
        let bar = progress::bar(0, "records")?;
        let adopted = database
            .adopt(&args.folder, now_us(), |posted, all| {
                bar.set_length(all);
                bar.set_position(posted);
            })
            .await
            .map_err(|error| cannot_adopt(&error).unwrap_or_else(|| failure(error)))?;
        bar.finish_and_clear();
        terminal::print(&match args.format {
            Format::Json => {
                let result = json!({
                    "writers": adopted.writers, "records": adopted.records, "posted": adopted.posted,
                });
                format!("{result}\n")
            }
            Format::Text => format!(
                "posted {} of {} records of {} writers; the others were posted before\n",
                adopted.posted, adopted.records, adopted.writers
            ),
        })?;
        Ok(exit::SUCCESS)
    })
}

/// What the folder itself makes impossible.
fn cannot_adopt(error: &Error) -> Option<Failure> {
    let Error::Journal(error) = error else { return None };
    let hint = match error {
        JournalError::Locked(_) => "its server runs and posts it itself; stop that server first",
        JournalError::Damaged { .. } => {
            "copy the folder again from the disk, or ask for help before you cut the file"
        }
        _ => "check that the folder was copied whole, and that this user may read and write it",
    };
    Some(Failure::new(error_chain(error), hint))
}
