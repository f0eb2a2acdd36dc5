//! The arguments that name the database of the ledger.

use std::path::PathBuf;

use anyhow::Result;
use tollgate_database::ledger::Settings;
use tollgate_database::{Database, DatabaseUrl, Error};

use crate::cli::hash_key::variable;
use crate::config::store_url::holds_password;
use crate::failure::{Failure, error_chain};
use crate::files;

const URL: &str = "TOLLGATE_DATABASE";
const PASSWORD: &str = "TOLLGATE_DATABASE_PASSWORD";
/// How long a store remembers request ids; corrections and grants have none.
const SETTINGS: Settings = Settings { horizon_us: 60_000_000 };

// Not a doc comment: clap would use it as the help of every command with these arguments.
// Arguments that name a database.
#[derive(clap::Args)]
pub(crate) struct DatabaseArgs {
    /// Database of the ledger: sqlite:PATH or postgres://USER@HOST:PORT/DATABASE; without it, TOLLGATE_DATABASE is used
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// File with the password of the database; without it, TOLLGATE_DATABASE_PASSWORD is used
    #[arg(long, value_name = "FILE")]
    database_password_file: Option<PathBuf>,
}

impl DatabaseArgs {
    /// Returns the URL with its password.
    pub(crate) fn url(&self) -> Result<DatabaseUrl> {
        let url = match &self.database {
            Some(url) => Some(url.clone()),
            None => variable(URL)?,
        };
        let Some(url) = url else {
            let hint = format!("pass --database sqlite:PATH or postgres://USER@HOST/DATABASE, or set {URL}");
            return Err(Failure::new("missing database", hint).into());
        };
        if url.contains("://") && holds_password(&url) {
            let hint = format!("remove it, and set {PASSWORD} or --database-password-file instead");
            let what = "the URL of the database contains a password, which other users could see";
            return Err(Failure::new(what, hint).into());
        }
        let parsed: Result<DatabaseUrl, _> = url.parse();
        let mut url = parsed.map_err(|error| {
            Failure::new(error_chain(&error), "write sqlite:PATH or postgres://USER@HOST:PORT/DATABASE")
        })?;
        let password = match &self.database_password_file {
            Some(path) => Some(files::read(path)?.text().trim_ascii().to_owned()),
            None => variable(PASSWORD)?,
        };
        if let Some(password) = password {
            url.set_password(&password);
        }
        Ok(url)
    }

    /// Connects without looking at the schema.
    pub(crate) async fn connect(&self) -> Result<Database> {
        let url = self.url()?;
        if url.path().is_some_and(|path| !path.exists()) {
            let hint = "a server creates the file at its first start; `tollgate database migrate` does too";
            return Err(Failure::new(format!("no database at {url}"), hint).into());
        }
        connected(&url).await
    }

    /// Connects, and creates the file of SQLite if it is missing.
    pub(crate) async fn create(&self) -> Result<Database> {
        connected(&self.url()?).await
    }

    /// Connects to a database with the schema of this program.
    pub(crate) async fn open(&self) -> Result<Database> {
        let database = self.connect().await?;
        let status = database.status().await.map_err(failure)?;
        if !status.is_current() {
            let what =
                format!("the schema has version {}, this program needs {}", status.applied, status.known);
            return Err(Failure::new(what, "run `tollgate database migrate` first").into());
        }
        Ok(database)
    }
}

/// Connects to a database with this URL.
pub(crate) async fn connected(url: &DatabaseUrl) -> Result<Database> {
    Ok(Database::connect(url, SETTINGS).await.map_err(failure)?)
}

/// A failure of the database ends a command like one of the store.
pub(crate) fn failure(error: Error) -> Failure {
    let hint = match &error {
        Error::TooNew { .. } => "use the program that your servers use",
        _ => "check that the database runs, and that this user may read and write it",
    };
    Failure::of_store(error_chain(&error), hint)
}

/// Runs a command that talks to the database.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
