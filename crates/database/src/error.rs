//! Errors of the database and of the ledger in it.

use std::path::PathBuf;

/// Why the database could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL is invalid.
    #[error(transparent)]
    Url(#[from] crate::url::UrlError),
    /// SQLite failed.
    #[error("SQLite cannot {what}")]
    Sqlite {
        /// The operation.
        what: &'static str,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// PostgreSQL failed.
    #[error("PostgreSQL cannot {what}")]
    Postgres {
        /// The operation.
        what: &'static str,
        /// The cause.
        #[source]
        source: tokio_postgres::Error,
    },
    /// No connection to PostgreSQL is available.
    #[error("cannot connect to PostgreSQL")]
    Connect(#[source] deadpool_postgres::PoolError),
    /// The pool of connections could not be built.
    #[error("cannot build the pool of connections")]
    Pool(#[source] deadpool_postgres::BuildError),
    /// The thread that owns the SQLite connection could not be started.
    #[error("cannot start the writer thread")]
    Thread(#[source] std::io::Error),
    /// The thread that owns the SQLite connection has ended.
    #[error("the writer thread of the database {} has ended", .0.display())]
    WriterEnded(PathBuf),
    /// The system has no random numbers.
    #[error("the system has no random numbers")]
    Random(#[source] getrandom::Error),
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] crate::journal::JournalError),
    /// The schema is older than this program.
    #[error("the schema has version {applied}, this program needs {known}; run `migrate` first")]
    NotMigrated {
        /// Version of the schema.
        applied: u32,
        /// Version that this program knows.
        known: u32,
    },
    /// The schema was written by a newer program.
    #[error("the schema has version {applied}, this program knows {known} only; use a newer program")]
    TooNew {
        /// Version of the schema.
        applied: u32,
        /// Version that this program knows.
        known: u32,
    },
    /// PostgreSQL is backed up by its own tools.
    #[error("this command copies SQLite only; use `pg_dump` or continuous archiving for PostgreSQL")]
    BackupNotSupported,
    /// A file of SQLite is damaged.
    #[error("the file {} is damaged", .0.display())]
    FileDamaged(PathBuf),
    /// A commit would not wait for the disk.
    #[error("`synchronous_commit` is off: a commit could be lost after it was acknowledged")]
    CommitNotDurable,
    /// The cursor of the writer is not where the caller thinks it is.
    #[error("the writer's cursor is {found:?}, expected {expected}")]
    CursorMoved {
        /// The cursor that the caller expected.
        expected: i64,
        /// The cursor in the database; `None` if the writer is not registered.
        found: Option<i64>,
    },
    /// The blocks do not have as many rows as there are entries of their time.
    #[error("the blocks of this time have {rows} entries, the database has {entries}; run `verify`")]
    BlocksDiffer {
        /// Entries by the blocks.
        rows: i64,
        /// Entries.
        entries: i64,
    },
    /// A balance left the range of 64 bits.
    #[error("the balance of rule `{rule}` exceeds 64 bits")]
    Overflow {
        /// The rule of the account.
        rule: String,
    },
    /// No live change has this id.
    #[error("no live change has the id `{0}`")]
    ChangeMissing(String),
    /// Another live change has this id.
    #[error("another live change has the id `{0}`")]
    ChangeExists(String),
    /// The live change was written since the caller read it.
    #[error("the live change has version {found}, expected {expected}")]
    ChangeStale {
        /// The version that the caller has seen.
        expected: i64,
        /// The version in the database.
        found: i64,
    },
    /// A stored row has a value that this program does not know.
    #[error("column `{column}` has the unknown value {value}")]
    Row {
        /// The column.
        column: &'static str,
        /// The value.
        value: String,
    },
}

impl Error {
    pub(crate) fn sqlite(what: &'static str) -> impl FnOnce(rusqlite::Error) -> Error {
        move |source| Error::Sqlite { what, source }
    }

    pub(crate) fn postgres(what: &'static str) -> impl FnOnce(tokio_postgres::Error) -> Error {
        move |source| Error::Postgres { what, source }
    }

    /// Whether the database is away: the same call can succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Connect(_) => true,
            Error::Postgres { source, .. } => {
                // Without a code the connection failed. The classes: connection, resources, operator intervention.
                source
                    .code()
                    .is_none_or(|code| ["08", "53", "57"].iter().any(|class| code.code().starts_with(class)))
            }
            _ => false,
        }
    }

    /// Whether the same call can succeed when it is repeated: another transaction was in the way.
    pub fn is_conflict(&self) -> bool {
        use tokio_postgres::error::SqlState;
        let Error::Postgres { source, .. } = self else { return false };
        let conflicts = [
            &SqlState::UNIQUE_VIOLATION,
            &SqlState::T_R_DEADLOCK_DETECTED,
            &SqlState::T_R_SERIALIZATION_FAILURE,
            &SqlState::LOCK_NOT_AVAILABLE,
        ];
        source.code().is_some_and(|code| conflicts.contains(&code))
    }
}
