//! `tollgate database`: the schema of the ledger's database. Copies and retention have files beside this one.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use tollgate_database::{Partition, Status};

use super::database_args::{DatabaseArgs, block_on, failure};
use super::{Format, copy, retain};
use crate::cli::{exit, terminal};

/// Prepare, copy and shorten the database of the ledger
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
  2  the command line or a file is invalid, a server uses the file, or the schema is of a newer program
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
    /// Show the version of the schema, who writes, and the partitions
    Status(StatusArgs),
    /// Bring the schema to the version of this program
    Migrate(StatusArgs),
    /// Copy the database to a new file, while servers run; PostgreSQL is copied by `pg_dump`
    Backup(copy::Args),
    /// Put a copy in the place of the database; stop the servers first
    ///
    /// The file of SQLite is kept as FILE.before-restore. PostgreSQL is restored by `pg_restore` and `psql`, in one transaction. Servers
    /// that start again with their journals post what the copy does not have, for charges of the last 24 hours.
    Restore(copy::Args),
    /// Create the partitions of the next months, and drop old entries that were exported
    ///
    /// Balances stay, and so do the hash chains: `tollgate ledger verify` begins at the first entry that is left.
    Retain(retain::Args),
}

#[derive(clap::Args)]
struct StatusArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Status(args) => status(args),
        Command::Migrate(args) => migrate(args),
        Command::Backup(args) => copy::backup(args),
        Command::Restore(args) => copy::restore(args),
        Command::Retain(args) => retain::run(args),
    }
}

fn status(args: &StatusArgs) -> Result<ExitCode> {
    block_on(async {
        let database = args.database.connect().await?;
        let status = database.status().await.map_err(failure)?;
        let (writers, partitions) = match status.is_current() {
            true => {
                let writers = database.writers().await.map_err(failure)?.len();
                (writers, database.partitions().await.map_err(failure)?)
            }
            false => (0, Vec::new()),
        };
        report(args.format, status, writers, &partitions)?;
        Ok(if status.is_current() { exit::SUCCESS } else { exit::NEGATIVE })
    })
}

fn migrate(args: &StatusArgs) -> Result<ExitCode> {
    block_on(async {
        let database = args.database.create().await?;
        let status = database.migrate().await.map_err(failure)?;
        retain::create_usual_partitions(&database).await?;
        let writers = database.writers().await.map_err(failure)?.len();
        let partitions = database.partitions().await.map_err(failure)?;
        report(args.format, status, writers, &partitions)?;
        Ok(exit::SUCCESS)
    })
}

fn report(format: Format, status: Status, writers: usize, partitions: &[Partition]) -> Result<()> {
    let Status { applied, known } = status;
    terminal::print(&match format {
        Format::Json => {
            let partitions: Vec<&str> = partitions.iter().map(|partition| partition.name.as_str()).collect();
            let status = json!({
                "schema": applied, "needed": known, "current": applied == known, "writers": writers,
                "partitions": partitions,
            });
            format!("{status}\n")
        }
        Format::Text if applied == known => {
            let mut text = format!("the schema has version {applied}; {writers} writers\n");
            for Partition { name, bounds, .. } in partitions {
                text += &format!("partition {name} {bounds}\n");
            }
            text
        }
        Format::Text => format!(
            "the schema has version {applied}, this program needs {known}; run `tollgate database migrate`\n"
        ),
    })
}
