//! Loops that only insert: what the databases can do without a ledger.

use std::path::Path;

use anyhow::Result;
use rusqlite::{Connection, params};
use tokio::pin;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls};

use super::posting::{ACCOUNTS, record};

const PER_COMMIT: usize = 512;
const COLUMNS: &str = "writer, seq, n, kind, rule, subject, period, at, rev, d_posted, d_pending, d_granted, cause, actor, posted_at";

/// The tables of the ledger that a bare loop writes, with their indexes.
const TABLES: &str = "
    CREATE TABLE entry (writer {b} NOT NULL, seq BIGINT NOT NULL, n BIGINT NOT NULL, kind TEXT NOT NULL, rule TEXT NOT NULL,
        subject {b} NOT NULL, period BIGINT NOT NULL, at BIGINT NOT NULL, rev BIGINT NOT NULL, d_posted BIGINT NOT NULL,
        d_pending BIGINT NOT NULL, d_granted BIGINT NOT NULL, token {b}, request {b}, nonce {b}, cause TEXT NOT NULL,
        actor TEXT NOT NULL, posted_at BIGINT NOT NULL, PRIMARY KEY (writer, seq, n, posted_at));
    CREATE INDEX entry_by_account ON entry (rule, subject, period);
    CREATE TABLE balance (rule TEXT NOT NULL, subject {b} NOT NULL, period BIGINT NOT NULL, posted BIGINT NOT NULL,
        PRIMARY KEY (rule, subject, period));";

pub(super) struct SqliteLoop {
    file: Connection,
    inserted: usize,
}

impl SqliteLoop {
    pub(super) fn open(path: &Path) -> Result<SqliteLoop> {
        let file = Connection::open(path)?;
        file.pragma_update(None, "journal_mode", "WAL")?;
        file.pragma_update(None, "synchronous", "FULL")?;
        file.execute_batch(&TABLES.replace("{b}", "BLOB"))?;
        Ok(SqliteLoop { file, inserted: 0 })
    }

    pub(super) fn insert(&mut self, entries: usize) -> Result<usize> {
        let mut left = entries;
        while left > 0 {
            let len = PER_COMMIT.min(left);
            let transaction = self.file.transaction()?;
            {
                let insert = format!("INSERT INTO entry ({COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
                let mut insert = transaction.prepare_cached(&insert)?;
                for at in 0..len {
                    let number = self.inserted + at;
                    let record = record(number);
                    insert.execute(params![
                        [7_u8; 16], number as i64, 0, "use", "tokens", record.account.subject.id.0,
                        record.account.period_us, record.at_us, record.rev, 1, 0, 0, "", "", 1_i64,
                    ])?;
                }
            }
            transaction.commit()?;
            self.inserted += len;
            left -= len;
        }
        Ok(entries)
    }
}

pub(super) struct PostgresCopy {
    client: Client,
    inserted: usize,
}

impl PostgresCopy {
    pub(super) async fn open(url: &str) -> Result<PostgresCopy> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        drop(tokio::spawn(connection));
        client.batch_execute(&TABLES.replace("{b}", "BYTEA")).await?;
        Ok(PostgresCopy { client, inserted: 0 })
    }

    pub(super) async fn copy(&mut self, entries: usize) -> Result<usize> {
        let types = [
            Type::BYTEA, Type::INT8, Type::INT8, Type::TEXT, Type::TEXT, Type::BYTEA, Type::INT8, Type::INT8, Type::INT8,
            Type::INT8, Type::INT8, Type::INT8, Type::TEXT, Type::TEXT, Type::INT8,
        ];
        let mut left = entries;
        while left > 0 {
            let len = PER_COMMIT.min(left);
            let transaction = self.client.transaction().await?;
            let sink = transaction.copy_in(&format!("COPY entry ({COLUMNS}) FROM STDIN BINARY")).await?;
            let writer = BinaryCopyInWriter::new(sink, &types);
            pin!(writer);
            let mut subjects: Vec<Vec<u8>> = Vec::new();
            for at in 0..len {
                let number = self.inserted + at;
                let record = record(number);
                let (seq, subject) = (number as i64, record.account.subject.id.0.to_vec());
                let (id, text) = (vec![7_u8; 16], String::new());
                let row: [&(dyn ToSql + Sync); 15] = [
                    &id, &seq, &0_i64, &"use", &"tokens", &subject, &record.account.period_us, &record.at_us, &record.rev,
                    &1_i64, &0_i64, &0_i64, &text, &text, &1_i64,
                ];
                writer.as_mut().write(&row).await?;
                if at < ACCOUNTS {
                    subjects.push(subject);
                }
            }
            writer.finish().await?;
            let upsert = "INSERT INTO balance SELECT 'tokens', subject, 1, 1 FROM unnest($1::bytea[]) AS subject \
                          ON CONFLICT (rule, subject, period) DO UPDATE SET posted = balance.posted + 1";
            transaction.execute(upsert, &[&subjects]).await?;
            transaction.commit().await?;
            self.inserted += len;
            left -= len;
        }
        Ok(entries)
    }
}
