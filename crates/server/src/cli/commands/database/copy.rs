//! `tollgate database backup` and `tollgate database restore`: copies of the whole database.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use tollgate_database::{Database, DatabaseUrl};

use super::database_args::{DatabaseArgs, block_on, failure};
use super::{Format, pg_tools};
use crate::cli::{exit, terminal};
use crate::failure::{Failure, error_chain};

/// Files that SQLite keeps beside a database.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    /// The file of the copy
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub(crate) fn backup(args: &Args) -> Result<ExitCode> {
    if args.file.exists() {
        let hint = "name a new file; an old copy is not overwritten";
        return Err(Failure::new(format!("{} exists", args.file.display()), hint).into());
    }
    let url = args.database.url()?;
    block_on(async {
        let database = args.database.open().await?;
        match url.path() {
            Some(_) => database.backup(&args.file).await.map_err(failure)?,
            None => pg_tools::dump(&url, &args.file)?,
        }
        Ok(())
    })?;
    report(args, "copied the database to")
}

pub(crate) fn restore(args: &Args) -> Result<ExitCode> {
    if !args.file.is_file() {
        let hint = "pass a file that `tollgate database backup` has written";
        return Err(Failure::new(format!("no file at {}", args.file.display()), hint).into());
    }
    let url = args.database.url()?;
    match url.path() {
        Some(path) => restore_file(args, &url, path)?,
        None => pg_tools::restore(&url, &args.file)?,
    }
    block_on(async { args.database.connect().await.map(drop) })?;
    report(args, "restored the database from")
}

/// Puts a copy in the place of a SQLite file. The old file stays beside it.
fn restore_file(args: &Args, url: &DatabaseUrl, path: &Path) -> Result<()> {
    let _lock = url.default_journal().map(|journal| locked(&journal)).transpose()?;
    Database::inspect_backup(&args.file).map_err(|error| {
        Failure::new(error_chain(&error), "pass a file that `tollgate database backup` has written")
    })?;
    let (new, old) = (beside(path, ".restoring"), beside(path, ".before-restore"));
    let failed = |what: &str, error: io::Error| {
        Failure::new(format!("cannot {what}: {error}"), "check the permissions and the space of the folder")
    };
    fs::copy(&args.file, &new).map_err(|error| failed("copy the file", error))?;
    File::open(&new).and_then(|file| file.sync_all()).map_err(|error| failed("write the copy", error))?;
    if path.exists() {
        fs::rename(path, &old).map_err(|error| failed("keep the old file", error))?;
    }
    for suffix in BESIDE {
        let file = beside(path, suffix);
        if file.exists() {
            fs::rename(&file, beside(&old, suffix)).map_err(|error| failed("keep the old file", error))?;
        }
    }
    fs::rename(&new, path).map_err(|error| failed("put the copy in its place", error))?;
    Ok(())
}

/// Locks the journal of a database file, which a running server holds.
fn locked(journal: &Path) -> Result<Option<File>, Failure> {
    let path = journal.join("lock");
    if !path.exists() {
        return Ok(None);
    }
    let lock = OpenOptions::new().write(true).open(&path).map_err(|error| {
        Failure::new(format!("cannot open {}: {error}", path.display()), "run this as the user of the server")
    })?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => {
            Err(Failure::new("a server uses this database", "stop the server, restore, and start it again"))
        }
        Err(TryLockError::Error(error)) => {
            Err(Failure::new(format!("cannot lock {}: {error}", path.display()), "check the file system"))
        }
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn report(args: &Args, what: &str) -> Result<ExitCode> {
    let file = args.file.display().to_string();
    terminal::print(&match args.format {
        Format::Json => format!("{}\n", json!({ "file": file })),
        Format::Text => format!("{what} {file}\n"),
    })?;
    Ok(exit::SUCCESS)
}
