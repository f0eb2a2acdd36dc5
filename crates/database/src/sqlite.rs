//! SQLite: one thread owns the connection and runs one transaction after the other.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, ToSql, Transaction, TransactionBehavior, params_from_iter};
use tokio::sync::oneshot;

use crate::Error;
use crate::migrations::{self, CREATE_VERSION};
use crate::sql::{Row, Sql, Value};

const BUSY_MAX: Duration = Duration::from_secs(2);
const STATEMENTS_CACHED: usize = 64;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// A database file. The writer thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Sqlite {
    jobs: mpsc::Sender<Job>,
    path: PathBuf,
}

/// An open transaction.
pub(crate) struct SqliteTransaction<'a>(Transaction<'a>);

impl Sqlite {
    pub(crate) fn open(path: &Path) -> Result<Sqlite, Error> {
        let mut connection = Connection::open(path).map_err(Error::sqlite("open the file"))?;
        prepare(&connection).map_err(Error::sqlite("set the journal mode"))?;
        let (jobs, queue) = mpsc::channel::<Job>();
        let work = move || {
            for job in queue {
                job(&mut connection);
            }
        };
        thread::Builder::new().name("tollgate-sqlite".to_owned()).spawn(work).map_err(Error::Thread)?;
        Ok(Sqlite { jobs, path: path.to_owned() })
    }

    /// Runs `work` in a transaction on the writer thread. An error rolls back.
    pub(crate) async fn transact<T, W>(&self, work: W) -> Result<T, Error>
    where
        T: Send + 'static,
        W: AsyncFnOnce(&mut SqliteTransaction<'_>) -> Result<T, Error> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = move |connection: &mut Connection| {
            let done = in_transaction(connection, work);
            // The caller may have gone. The transaction is committed or rolled back all the same.
            drop(reply.send(done));
        };
        let ended = || Error::WriterEnded(self.path.clone());
        self.jobs.send(Box::new(job)).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    /// Copies the database to a new file, as of one instant.
    pub(crate) async fn backup(&self, to: &Path) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        let to = to.to_string_lossy().into_owned();
        let job = move |connection: &mut Connection| {
            let done = connection.execute("VACUUM INTO ?1", [to]).map(drop);
            drop(reply.send(done.map_err(Error::sqlite("copy the database"))));
        };
        let ended = || Error::WriterEnded(self.path.clone());
        self.jobs.send(Box::new(job)).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    /// Reads a database file that no server uses, without changing it. Returns the version of its schema.
    pub(crate) fn inspect(path: &Path) -> Result<u32, Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let inspect = || {
            let file = Connection::open_with_flags(path, flags)?;
            let found: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
            let version = file.query_row("SELECT max(version) FROM schema_version", [], |row| row.get(0))?;
            Ok::<_, rusqlite::Error>((found, version))
        };
        let (found, version) = inspect().map_err(Error::sqlite("read the file"))?;
        match found.as_str() {
            "ok" => Ok(version),
            _ => Err(Error::FileDamaged(path.to_owned())),
        }
    }

    pub(crate) async fn applied(&self) -> Result<u32, Error> {
        self.transact(async |transaction| applied(transaction).await).await
    }

    pub(crate) async fn migrate(&self) -> Result<(), Error> {
        let work = async |transaction: &mut SqliteTransaction<'_>| {
            let from = applied(transaction).await?;
            for text in migrations::pending_sqlite(from) {
                transaction.0.execute_batch(&text).map_err(Error::sqlite("migrate"))?;
            }
            set_version(transaction, from).await
        };
        self.transact(work).await
    }
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_MAX)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // A commit waits for the disk.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    Ok(())
}

fn in_transaction<T, W>(connection: &mut Connection, work: W) -> Result<T, Error>
where
    W: AsyncFnOnce(&mut SqliteTransaction<'_>) -> Result<T, Error>,
{
    let begin = connection.transaction_with_behavior(TransactionBehavior::Immediate);
    let mut transaction = SqliteTransaction(begin.map_err(Error::sqlite("begin a transaction"))?);
    let done = work(&mut transaction).now_or_never().expect("statements of SQLite never wait")?;
    transaction.0.commit().map_err(Error::sqlite("commit"))?;
    Ok(done)
}

/// Returns the version of the schema.
pub(crate) async fn applied(sql: &mut impl Sql) -> Result<u32, Error> {
    sql.run(CREATE_VERSION, vec![vec![]]).await?;
    let rows = sql.run("SELECT max(version) FROM schema_version", vec![vec![]]).await?;
    match rows.into_iter().flatten().flatten().next() {
        Some(Value::Int(version)) => {
            u32::try_from(version).map_err(|_| Error::Row { column: "version", value: version.to_string() })
        }
        _ => Ok(0),
    }
}

/// Records that all migrations after `from` were applied.
pub(crate) async fn set_version(sql: &mut impl Sql, from: u32) -> Result<(), Error> {
    let versions = from + 1..=migrations::KNOWN;
    let sets = versions.map(|version| vec![Value::Int(version.into())]).collect();
    sql.run("INSERT INTO schema_version (version) VALUES ($1)", sets).await.map(drop)
}

impl Sql for SqliteTransaction<'_> {
    /// Only one transaction writes at a time.
    const LOCK: &'static str = "";
    const BYTES: &'static str = "BLOB";
    const NOTIFY: Option<&'static str> = None;
    const PARTITIONS: Option<&'static str> = None;

    async fn unlimited(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn run(&mut self, sql: &str, sets: Vec<Vec<Value>>) -> Result<Vec<Vec<Row>>, Error> {
        // `?1` has a fixed index; `$1` would be a name.
        let sql = sql.replace('$', "?");
        let run = || -> rusqlite::Result<Vec<Vec<Row>>> {
            let mut statement = self.0.prepare_cached(&sql)?;
            let columns = statement.column_count();
            let mut results = Vec::with_capacity(sets.len());
            for set in &sets {
                let rows = statement.query_map(params_from_iter(set), |row| {
                    (0..columns).map(|column| row.get_ref(column).map(Value::from)).collect()
                })?;
                results.push(rows.collect::<rusqlite::Result<Vec<Row>>>()?);
            }
            Ok(results)
        };
        run().map_err(Error::sqlite("run a statement"))
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Int(number) => ValueRef::Integer(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
            Value::Null => ValueRef::Null,
        }))
    }
}

impl From<ValueRef<'_>> for Value {
    fn from(value: ValueRef<'_>) -> Value {
        match value {
            ValueRef::Integer(number) => Value::Int(number),
            ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
            ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
            ValueRef::Real(number) => Value::Text(number.to_string()),
            ValueRef::Null => Value::Null,
        }
    }
}
