//! A database of either kind, and the operations of the ledger on it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::Error;
use crate::audit::append_ledger_change;
use crate::gate::{self, KnownAccount, Look, OpenWriter};
use crate::ledger::{
    Account, Balance, Change, Detail, Entry, Event, Hash, Id, Kind, Record, Settings, Subject,
};
use crate::migrations::{KNOWN, Status};
use crate::postgres::Postgres;
use crate::reports::{self, Filter, PostedEntry, Usage, Writer};
use crate::retention::{self, Dropped, Month, Partition};
use crate::sql::Sql;
use crate::sqlite::Sqlite;
use crate::transaction::{self, Batch, Receipt, Unbalanced};
use crate::url::{DatabaseUrl, Location};
use crate::verification::{self, Step, Verified};

/// Writer of corrections and grants, which are written to the database first.
const ADMINISTRATION: Id = Id([0; 16]);
/// Writer of the ends of reservations that were not settled in time.
const EXPIRY: Id = Id([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
/// Number of times that a transaction is repeated when another one was in its way.
pub(crate) const TRIES: usize = 16;

/// An open database.
pub struct Database {
    pub(crate) backend: Backend,
    settings: Settings,
}

pub(crate) enum Backend {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

/// Runs a function of [`transaction`] in one transaction. The work is given twice, because the two transactions differ in
/// type.
macro_rules! transact {
    ($database:expr, |$sql:ident| $work:expr) => {
        match &$database.backend {
            Backend::Sqlite(sqlite) => sqlite.transact(async move |$sql| $work.await).await,
            Backend::Postgres(postgres) => postgres.transact(async move |$sql| $work.await).await,
        }
    };
}
pub(crate) use transact;

impl Database {
    /// Opens a database for a server. SQLite is migrated. PostgreSQL must have been migrated before.
    pub async fn open(url: &DatabaseUrl, settings: Settings) -> Result<Database, Error> {
        let database = Database::connect(url, settings).await?;
        if let Backend::Sqlite(_) = database.backend {
            database.migrate().await?;
        }
        match database.status().await? {
            Status { applied, known } if applied < known => Err(Error::NotMigrated { applied, known }),
            _ => Ok(database),
        }
    }

    /// Connects without looking at the schema, for [`Database::status`] and [`Database::migrate`].
    pub async fn connect(url: &DatabaseUrl, settings: Settings) -> Result<Database, Error> {
        let backend = match &url.0 {
            Location::Sqlite(path) => Backend::Sqlite(Sqlite::open(path)?),
            Location::Postgres(config) => Backend::Postgres(Postgres::connect(config).await?),
        };
        Ok(Database { backend, settings })
    }

    /// Returns the version of the schema. A schema of a newer program is an error.
    pub async fn status(&self) -> Result<Status, Error> {
        let applied = match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.applied().await?,
            Backend::Postgres(postgres) => postgres.applied().await?,
        };
        match applied {
            applied if applied > KNOWN => Err(Error::TooNew { applied, known: KNOWN }),
            applied => Ok(Status { applied, known: KNOWN }),
        }
    }

    /// Applies the missing migrations in one transaction.
    pub async fn migrate(&self) -> Result<Status, Error> {
        self.status().await?;
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.migrate().await?,
            Backend::Postgres(postgres) => postgres.migrate().await?,
        }
        self.status().await
    }

    /// Copies a SQLite database to a new file, as of one instant. PostgreSQL has its own tools.
    pub async fn backup(&self, to: &Path) -> Result<(), Error> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.backup(to).await,
            Backend::Postgres(_) => Err(Error::BackupNotSupported),
        }
    }

    /// Checks a copy that [`backup`](Database::backup) has written, without changing it. Returns the version of its schema.
    pub fn inspect_backup(path: &Path) -> Result<u32, Error> {
        Sqlite::inspect(path)
    }

    /// Registers a writer with an empty journal. Registering it again changes nothing.
    pub async fn register(&self, writer: Id, name: &str, now_us: i64) -> Result<(), Error> {
        let name = name.to_owned();
        transact!(self, |sql| transaction::register(sql, writer, &name, now_us))
    }

    /// Returns the sequence number of the writer's last posted record, or `None` if it is not registered.
    pub async fn cursor(&self, writer: Id) -> Result<Option<i64>, Error> {
        transact!(self, |sql| transaction::cursor(sql, writer))
    }

    /// Records that the writer lives. [`Error::CursorMoved`] means that the database was set back.
    pub async fn heartbeat(
        &self,
        writer: Id,
        cursor: i64,
        clean_at_us: i64,
        now_us: i64,
    ) -> Result<(), Error> {
        transact!(self, |sql| transaction::heartbeat(sql, writer, cursor, clean_at_us, now_us))
    }

    /// Posts a batch exactly once: a batch that does not begin at the cursor is [`Error::CursorMoved`], and changes nothing.
    pub async fn post(&self, batch: Batch) -> Result<Receipt, Error> {
        let settings = self.settings;
        let mut tries = 1;
        loop {
            let batch = batch.clone();
            match transact!(self, |sql| transaction::commit(sql, &batch, settings)) {
                Err(error) if error.is_conflict() && tries < TRIES => tries += 1,
                done => return done,
            }
        }
    }

    /// Changes what an account may use, with its audit row, and returns the number of the change. `kind` is [`Kind::Correct`] or [`Kind::Grant`];
    /// `template` names the account and its period.
    pub async fn change(
        &self,
        template: &Record,
        kind: Kind,
        change: Change,
        now_us: i64,
    ) -> Result<i64, Error> {
        let event = match kind {
            Kind::Correct => Event::Correct(change),
            _ => Event::Grant(change),
        };
        let record = Record { event, detail: Detail::Entries, request: None, name: None, ..template.clone() };
        let settings = self.settings;
        let mut tries = 1;
        loop {
            let record = record.clone();
            let done = transact!(self, |sql| async {
                let number = transaction::change(sql, ADMINISTRATION, &record, settings, now_us).await?;
                append_ledger_change(sql, &record, number, now_us).await?;
                Ok(number)
            });
            match done {
                Err(error) if error.is_conflict() && tries < TRIES => tries += 1,
                done => return done,
            }
        }
    }

    /// Ends open reservations whose time was over before `before_us`, at most `max`. Returns how many ended.
    pub async fn expire(&self, before_us: i64, max: i64, now_us: i64) -> Result<usize, Error> {
        let settings = self.settings;
        let mut tries = 1;
        loop {
            let done =
                transact!(self, |sql| transaction::expire(sql, EXPIRY, before_us, max, settings, now_us));
            match done {
                Err(error) if error.is_conflict() && tries < TRIES => tries += 1,
                done => return done,
            }
        }
    }

    /// Records that the writer has ended and will post nothing more.
    pub async fn close(&self, writer: Id) -> Result<(), Error> {
        transact!(self, |sql| transaction::close(sql, writer))
    }

    /// Returns the accounts whose stored balance is not the sum of their entries. An intact ledger has none.
    pub async fn unbalanced(&self) -> Result<Vec<Unbalanced>, Error> {
        transact!(self, |sql| transaction::unbalanced(sql))
    }

    /// Returns the balance of each account that has one.
    pub async fn balances(&self, accounts: Vec<Account>) -> Result<BTreeMap<Account, Balance>, Error> {
        transact!(self, |sql| transaction::balances(sql, accounts, ""))
    }

    /// Returns what is known of each subject at an instant, in microseconds since 1970: its newest account.
    pub async fn known(&self, wanted: Vec<(Subject, i64)>) -> Result<Vec<Option<KnownAccount>>, Error> {
        transact!(self, |sql| gate::known(sql, &wanted))
    }

    /// Returns the units that the gate should have counted at each look.
    pub async fn counted(&self, looks: Vec<Look>) -> Result<Vec<i64>, Error> {
        transact!(self, |sql| gate::counted(sql, &looks))
    }

    /// Returns the servers that have not ended.
    pub async fn open_writers(&self) -> Result<Vec<OpenWriter>, Error> {
        transact!(self, |sql| gate::open_writers(sql, [ADMINISTRATION, EXPIRY]))
    }

    /// Returns a position among corrections and grants, and the accounts that were changed after the position `after`.
    pub async fn changed(&self, after: Option<i64>) -> Result<(i64, Vec<Account>), Error> {
        transact!(self, |sql| gate::changed(sql, ADMINISTRATION, after))
    }

    /// Returns all writers, oldest first.
    pub async fn writers(&self) -> Result<Vec<Writer>, Error> {
        transact!(self, |sql| reports::writers(sql))
    }

    /// Returns up to `max` balances of the accounts that match, after a number of them, by rule, period and subject.
    pub async fn usage(&self, filter: &Filter, skip: i64, max: i64) -> Result<Vec<Usage>, Error> {
        let filter = filter.clone();
        transact!(self, |sql| reports::usage(sql, &filter, skip, max))
    }

    /// Returns up to `max` entries that match after a position (writer, sequence number, index), in that order.
    pub async fn page(
        &self,
        filter: &Filter,
        after: (Id, i64, i64),
        max: i64,
    ) -> Result<Vec<PostedEntry>, Error> {
        let filter = filter.clone();
        transact!(self, |sql| reports::page(sql, &filter, after, max))
    }

    /// Returns the number of entries that match.
    pub async fn count(&self, filter: &Filter) -> Result<i64, Error> {
        let filter = filter.clone();
        transact!(self, |sql| reports::count(sql, &filter))
    }

    /// Returns the entries of a writer in order.
    pub async fn entries(&self, writer: Id) -> Result<Vec<Entry>, Error> {
        transact!(self, |sql| transaction::entries(sql, writer))
    }

    /// Returns the hash of a block, or `None` if the writer has no such block.
    pub async fn block_hash(&self, writer: Id, number: i64) -> Result<Option<Hash>, Error> {
        let found = transact!(self, |sql| transaction::blocks(sql, writer, number - 1, 1))?;
        Ok(found.into_iter().next().filter(|(block, _)| block.number == number).map(|(_, hash)| hash))
    }

    /// Recomputes the chain of a writer. Returns the number of the first block that does not match its rows, the block
    /// before it, or the head of the chain.
    pub async fn first_broken_block(&self, writer: Id) -> Result<Option<i64>, Error> {
        self.verify_chain(writer, None, |_| ()).await.map(Result::err)
    }

    /// Recomputes the chain of a writer, from the block `from` that was verified before, or from its beginning. Returns its
    /// end, or the number of the first broken block. `progress` is called with the blocks of each step.
    pub async fn verify_chain(
        &self,
        writer: Id,
        from: Option<(i64, Hash)>,
        mut progress: impl FnMut(Verified),
    ) -> Result<Result<Verified, i64>, Error> {
        let mut step = match from {
            None => transact!(self, |sql| verification::begin(sql, writer))?,
            Some(head) => transact!(self, |sql| verification::begin_at(sql, writer, head))?,
        };
        loop {
            match step {
                Step::Broken(block) => return Ok(Err(block)),
                Step::Intact(verified) => return Ok(Ok(verified)),
                Step::More(verified) => {
                    progress(verified);
                    step = transact!(self, |sql| verification::step(sql, writer, verified))?;
                }
            }
        }
    }

    /// Returns the partitions of the entries. SQLite has none.
    pub async fn partitions(&self) -> Result<Vec<Partition>, Error> {
        transact!(self, |sql| retention::partitions(sql))
    }

    /// Creates the partition of a month. Returns whether it was missing. SQLite has no partitions.
    pub async fn create_partition(&self, month: &Month) -> Result<bool, Error> {
        let month = month.clone();
        transact!(self, |sql| async {
            sql.unlimited().await?;
            retention::create_partition(sql, &month).await
        })
    }

    /// Returns what [`drop_old`](Database::drop_old) would drop.
    pub async fn count_old(&self, before_us: i64) -> Result<Dropped, Error> {
        transact!(self, |sql| async {
            sql.unlimited().await?;
            retention::count_old(sql, before_us).await
        })
    }

    /// Drops entries that were posted before an instant, with their blocks, and request ids and ended reservations of that
    /// time. Balances stay, and chains remain verifiable from there on.
    pub async fn drop_old(&self, before_us: i64) -> Result<Dropped, Error> {
        transact!(self, |sql| async {
            sql.unlimited().await?;
            retention::drop_old(sql, before_us).await
        })
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.backend {
            Backend::Sqlite(_) => "SQLite",
            Backend::Postgres(_) => "PostgreSQL",
        };
        write!(f, "Database({kind})")
    }
}
