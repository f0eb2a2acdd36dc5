//! The ledger: what rules with `ledger` admit is recorded in a database, exactly once.
//!
//! The store stays the fast gate. [`Recorded`] answers a recorded charge only after it is in a journal on this server's
//! disk. A task posts the journal to SQLite or PostgreSQL, where balances and a chain of hashes are kept.

mod follow;
mod followed;
mod look_up;
mod recorded;
mod records;
mod restore;
mod watch;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::runtime::Handle;
use tollgate_database::ledger::Settings;
use tollgate_database::{Database, DatabaseUrl, Error, LedgerWriter, WriterSettings, WriterStatus};

use follow::FollowCounts;
pub use follow::{FollowSettings, FollowStatus};
use look_up::LookUps;
pub use recorded::Recorded;
pub use records::account_of;
#[doc(hidden)]
pub use restore::restore_of;
pub use tollgate_database as database;

/// The open ledger of this process. Clones share it.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{Limiter, core::SubjectHasher, ledger::Ledger};
///
/// # let hash_key = [7; 32];
/// let ledger = Ledger::open("sqlite:usage.db").await?;
/// // The key must stay the same, because accounts have hashed names.
/// let limiter = Limiter::builder().rules_file("rules.yaml").hash_key(SubjectHasher::new(hash_key));
/// let limiter = limiter.ledger(&ledger).build().await?;
/// // ... serve ...
/// ledger.close().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Ledger {
    writer: Arc<LedgerWriter>,
    look_ups: LookUps,
    counts: Arc<FollowCounts>,
    follow: FollowSettings,
    runtime: Handle,
}

/// Why a ledger could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The database or the journal cannot be used.
    #[error(transparent)]
    Database(#[from] Error),
    /// PostgreSQL needs a folder for the journal.
    #[error("missing folder for the journal: only SQLite has a default, beside its file")]
    JournalMissing,
}

impl Ledger {
    /// Opens `sqlite:PATH`, which is created if it is missing, or `postgres://...`, which must have been migrated. The
    /// journal of SQLite is the folder `PATH.journal`.
    ///
    /// Charges that an earlier process of the same journal left are posted first. Needs a tokio runtime with timers, which
    /// must run until [`close`](Ledger::close).
    pub async fn open(url: &str) -> Result<Ledger, LedgerError> {
        Ledger::open_with(url, None).await
    }

    /// Opens a database with the journal in this folder. Each server needs a separate one.
    pub async fn open_with(url: &str, journal: Option<PathBuf>) -> Result<Ledger, LedgerError> {
        let url: DatabaseUrl = url.parse().map_err(Error::from)?;
        let journal = journal.or_else(|| url.default_journal()).ok_or(LedgerError::JournalMissing)?;
        Ledger::with_settings(&url, WriterSettings::new(journal)).await
    }

    /// Opens a database with these settings.
    #[doc(hidden)]
    pub async fn with_settings(url: &DatabaseUrl, settings: WriterSettings) -> Result<Ledger, LedgerError> {
        let horizon_us = i64::try_from(settings.request_id_horizon.as_micros()).unwrap_or(i64::MAX);
        let database = Arc::new(Database::open(url, Settings { horizon_us }).await?);
        let writer = Arc::new(LedgerWriter::open(Arc::clone(&database), settings).await?);
        let runtime = Handle::current();
        let look_ups = LookUps::new(database, runtime.clone());
        let (counts, follow) = (Arc::default(), FollowSettings::default());
        Ok(Ledger { writer, look_ups, counts, follow, runtime })
    }

    /// Changes when the gate is compared with the ledger. Call it before a limiter is built.
    #[must_use]
    pub fn with_follow(self, follow: FollowSettings) -> Ledger {
        Ledger { follow, ..self }
    }

    /// Returns what was done to keep the gate equal to the ledger.
    pub fn follow_status(&self) -> FollowStatus {
        let (waiting, queries) = (self.look_ups.waiting() as u64, self.look_ups.queries());
        FollowStatus { waiting, queries, ..self.counts.status() }
    }

    /// Returns how much was recorded, and how much of it is not in the database yet.
    pub fn status(&self) -> WriterStatus {
        self.writer.status()
    }

    /// Posts what is left. What the database does not take stays in the journal, and is posted at the next start.
    pub async fn close(&self) {
        self.writer.close().await;
    }

    /// Returns what hands the names of accounts to the ledger, for [`Setup::account_names`](crate::engine::Setup).
    #[doc(hidden)]
    pub fn account_names(&self) -> crate::engine::AccountNames {
        let writer = Arc::clone(&self.writer);
        Arc::new(move |key, name| writer.note_name(&records::subject_of(key), name))
    }

    /// Returns the database: balances, entries and the heads of the hash chains.
    pub fn database(&self) -> &Arc<Database> {
        self.writer.database()
    }

    /// Returns the writer.
    pub(crate) fn writer(&self) -> &Arc<LedgerWriter> {
        &self.writer
    }

    fn look_ups(&self) -> &LookUps {
        &self.look_ups
    }

    fn follow_counts(&self) -> &FollowCounts {
        &self.counts
    }

    fn follow_settings(&self) -> FollowSettings {
        self.follow
    }

    fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ledger").field(&self.status()).finish()
    }
}
