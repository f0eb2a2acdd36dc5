//! PostgreSQL: a pool of connections with timeouts on locks, statements and idle transactions.

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Transaction};
use futures_util::future::try_join_all;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Config, NoTls};

use crate::Error;
use crate::migrations;
use crate::sql::{Row, Sql, Value};
use crate::sqlite::{applied, set_version};

const CONNECTIONS_MAX: usize = 8;
const TIMEOUTS: &str =
    "-c lock_timeout=2000 -c statement_timeout=2000 -c idle_in_transaction_session_timeout=2000";
/// Held while the schema changes, so that two programs do not migrate at once.
const MIGRATION_LOCK: i64 = 0x746f_6c6c_6761_7465;

/// A PostgreSQL server.
pub(crate) struct Postgres {
    pool: Pool,
    config: Box<Config>,
}

/// An open transaction.
pub(crate) struct PostgresTransaction<'a>(Transaction<'a>);

impl Postgres {
    /// Connects, and refuses a server that acknowledges commits before they are durable.
    pub(crate) async fn connect(config: &Config) -> Result<Postgres, Error> {
        let mut config = config.clone();
        let options = config.get_options().map_or(TIMEOUTS.to_owned(), |own| format!("{TIMEOUTS} {own}"));
        config.options(options);
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config.clone(), NoTls, recycling);
        let pool = Pool::builder(manager).max_size(CONNECTIONS_MAX).build().map_err(Error::Pool)?;
        let postgres = Postgres { pool, config: Box::new(config) };
        let durable = async |transaction: &mut PostgresTransaction<'_>| {
            let rows = transaction.run("SELECT current_setting('synchronous_commit')", vec![vec![]]).await?;
            Ok(rows.into_iter().flatten().flatten().next() != Some(Value::Text("off".to_owned())))
        };
        match postgres.transact(durable).await? {
            true => Ok(postgres),
            false => Err(Error::CommitNotDurable),
        }
    }

    /// Returns how connections are made.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Runs `work` in a transaction. An error rolls back.
    pub(crate) async fn transact<T>(
        &self,
        work: impl AsyncFnOnce(&mut PostgresTransaction<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut client = self.pool.get().await.map_err(Error::Connect)?;
        let begin = client.transaction().await.map_err(Error::postgres("begin a transaction"))?;
        let mut transaction = PostgresTransaction(begin);
        let done = work(&mut transaction).await?;
        transaction.0.commit().await.map_err(Error::postgres("commit"))?;
        Ok(done)
    }

    pub(crate) async fn applied(&self) -> Result<u32, Error> {
        self.transact(async |transaction| {
            let there = "SELECT count(*) FROM pg_tables WHERE schemaname = ANY (current_schemas(false)) \
                         AND tablename = 'schema_version'";
            let rows = transaction.run(there, vec![vec![]]).await?;
            // Asking for the status creates nothing.
            match rows.into_iter().flatten().flatten().next() {
                Some(Value::Int(0)) => Ok(0),
                _ => applied(transaction).await,
            }
        })
        .await
    }

    pub(crate) async fn migrate(&self) -> Result<(), Error> {
        self.transact(async |transaction| {
            transaction.run("SELECT pg_advisory_xact_lock($1)", vec![vec![MIGRATION_LOCK.into()]]).await?;
            transaction.unlimited().await?;
            let from = applied(transaction).await?;
            for text in migrations::pending_postgres(from) {
                transaction.0.batch_execute(&text).await.map_err(Error::postgres("migrate"))?;
            }
            set_version(transaction, from).await
        })
        .await
    }
}

impl Sql for PostgresTransaction<'_> {
    const LOCK: &'static str = " FOR UPDATE";
    const BYTES: &'static str = "BYTEA";
    const NOTIFY: Option<&'static str> = Some("SELECT pg_notify('tollgate_changes', $1)");
    const PARTITIONS: Option<&'static str> = Some(
        "SELECT CAST(child.relname AS TEXT), pg_get_expr(child.relpartbound, child.oid), \
           CAST(child.reltuples AS BIGINT) \
         FROM pg_inherits JOIN pg_class child ON child.oid = pg_inherits.inhrelid \
         WHERE pg_inherits.inhparent = CAST('entry' AS regclass) ORDER BY child.relname",
    );

    async fn unlimited(&mut self) -> Result<(), Error> {
        let text = "SET LOCAL statement_timeout = 0";
        self.0.batch_execute(text).await.map_err(Error::postgres("set a timeout"))
    }

    async fn run(&mut self, sql: &str, sets: Vec<Vec<Value>>) -> Result<Vec<Vec<Row>>, Error> {
        if sets.is_empty() {
            return Ok(Vec::new());
        }
        let statement = self.0.prepare_cached(sql).await.map_err(Error::postgres("prepare a statement"))?;
        let (transaction, statement) = (&self.0, &statement);
        // The client sends statements that are awaited together without waiting for the answers in between.
        let runs = sets.iter().map(|set| async move {
            let parameters: Vec<&(dyn ToSql + Sync)> = set.iter().map(|value| value as _).collect();
            transaction.query(statement, &parameters).await
        });
        let results = try_join_all(runs).await.map_err(Error::postgres("run a statement"))?;
        results.iter().map(|rows| rows.iter().map(values).collect()).collect()
    }
}

fn values(row: &tokio_postgres::Row) -> Result<Row, Error> {
    let read = |column: usize| -> Result<Option<Value>, tokio_postgres::Error> {
        Ok(match *row.columns()[column].type_() {
            Type::INT8 => row.try_get::<_, Option<i64>>(column)?.map(Value::Int),
            Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(column)?.map(Value::Bytes),
            Type::VOID => None,
            _ => row.try_get::<_, Option<String>>(column)?.map(Value::Text),
        })
    };
    let columns = (0..row.len()).map(|column| Ok(read(column)?.unwrap_or(Value::Null)));
    columns.collect::<Result<Row, _>>().map_err(Error::postgres("read a row"))
}

impl ToSql for Value {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Value::Int(number) => number.to_sql(kind, out),
            Value::Text(text) => text.to_sql(kind, out),
            Value::Bytes(bytes) => bytes.to_sql(kind, out),
            Value::Null => Ok(IsNull::Yes),
        }
    }

    fn accepts(kind: &Type) -> bool {
        [Type::INT8, Type::TEXT, Type::BYTEA].contains(kind)
    }

    to_sql_checked!();
}
