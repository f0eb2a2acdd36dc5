//! `tollgate database`: the schema of the ledger's database, and its backup.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use tollgate_database::Status;

use super::Format;
use super::database_args::{DatabaseArgs, block_on, failure};
use crate::cli::{exit, terminal};

/// Prepare and back up the database of the ledger
///
/// A server creates and migrates SQLite by itself. PostgreSQL is migrated by an administrator, before the servers:
///
///   tollgate database migrate --database postgres://owner@db.internal/tollgate
///   tollgate database status --database postgres://owner@db.internal/tollgate
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  done; for `status`: servers can start
  1  `status`: the schema must be migrated first
  2  the command line is invalid, or the schema is of a newer program
  3  the database cannot be reached, or reports an error

Environment:
  TOLLGATE_DATABASE           URL of the database; --database overrides it
  TOLLGATE_DATABASE_PASSWORD  password of the database; --database-password-file overrides it"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show the version of the schema and who writes
    Status(StatusArgs),
    /// Bring the schema to the version of this program
    Migrate(StatusArgs),
    /// Copy a SQLite database to a new file, while servers run
    Backup(BackupArgs),
}

#[derive(clap::Args)]
struct StatusArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(clap::Args)]
struct BackupArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// The new file
    #[arg(value_name = "FILE")]
    to: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    block_on(async {
        match &args.command {
            Command::Status(args) => {
                let database = args.database.connect().await?;
                let status = database.status().await.map_err(failure)?;
                let writers = match status.is_current() {
                    true => database.writers().await.map_err(failure)?.len(),
                    false => 0,
                };
                report(args.format, status, writers)?;
                Ok(if status.is_current() { exit::SUCCESS } else { exit::NEGATIVE })
            }
            Command::Migrate(args) => {
                let database = args.database.create().await?;
                let status = database.migrate().await.map_err(failure)?;
                let writers = database.writers().await.map_err(failure)?.len();
                report(args.format, status, writers)?;
                Ok(exit::SUCCESS)
            }
            Command::Backup(args) => {
                let database = args.database.open().await?;
                database.backup(&args.to).await.map_err(failure)?;
                let to = args.to.display().to_string();
                terminal::print(&match args.format {
                    Format::Json => format!("{}\n", json!({ "file": to })),
                    Format::Text => format!("copied the database to {to}\n"),
                })?;
                Ok(exit::SUCCESS)
            }
        }
    })
}

fn report(format: Format, Status { applied, known }: Status, writers: usize) -> Result<()> {
    terminal::print(&match format {
        Format::Json => {
            let status = json!({ "schema": applied, "needed": known, "current": applied == known, "writers": writers });
            format!("{status}\n")
        }
        Format::Text if applied == known => format!("the schema has version {applied}; {writers} writers\n"),
        Format::Text => format!(
            "the schema has version {applied}, this program needs {known}; run `tollgate database migrate`\n"
        ),
    })
}
