//! Posting batches of entries, beside a loop that only inserts.

use std::sync::Arc;

use anyhow::{Context, Result};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tollgate::ledger::database::ledger::{Account, Detail, Event, Id, Record, Settings, Subject};
use tollgate::ledger::database::{Batch, Database, DatabaseUrl};
use tollgate_testkit::postgres::Postgres;

use super::{Effort, Entrant, bare, block_on, measured};

/// Accounts, used equally often.
pub(super) const ACCOUNTS: usize = 1_000;
const WRITER: Id = Id([7; 16]);
const BATCHES: [(usize, &str, &str); 3] = [
    (1, "ledger, batches of 1", "one transaction for each entry: cursor, entry, balance and block"),
    (64, "ledger, batches of 64", "the same for 64 entries"),
    (512, "ledger, batches of 512", "the same for 512 entries, the largest batch of a server"),
];

pub(super) fn record(number: usize) -> Record {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&((number % ACCOUNTS) as u64).to_be_bytes());
    Record {
        account: Account {
            subject: Subject { rule: Arc::from("tokens"), id: Id(id) },
            period_us: 1_767_225_600_000_000,
        },
        ends_us: 1_769_904_000_000_000,
        allowance: 1_000_000_000,
        at_us: 1_767_225_600_000_000 + number as i64,
        rev: number as i64,
        detail: Detail::Entries,
        request: None,
        name: None,
        event: Event::Use { cost: 1 },
    }
}

/// A database of the ledger, and how far its writer has posted.
struct Ledger {
    database: Database,
    posted: i64,
}

impl Ledger {
    fn open(runtime: &Runtime, url: &str) -> Result<Ledger> {
        block_on(runtime, async {
            let url: DatabaseUrl = url.parse()?;
            let database = Database::connect(&url, Settings { horizon_us: 60_000_000 }).await?;
            database.migrate().await?;
            database.register(WRITER, "bench", 1).await?;
            Ok(Ledger { database, posted: 0 })
        })
    }

    async fn post(&mut self, entries: usize, per_batch: usize) -> Result<usize> {
        let mut left = entries;
        while left > 0 {
            let len = per_batch.min(left);
            let records = (0..len).map(|at| record(self.posted as usize + at)).collect();
            let batch = Batch { writer: WRITER, after: self.posted, records, now_us: 1_767_225_600_000_000 };
            self.posted = self.database.post(batch).await?.shipped_seq;
            left -= len;
        }
        Ok(entries)
    }
}

fn entrants<'a>(
    runtime: &'a Runtime,
    effort: Effort,
    url: impl Fn(usize) -> Result<String>,
) -> Result<Vec<Entrant<'a>>> {
    BATCHES
        .into_iter()
        .map(|(per_batch, name, what)| {
            let mut ledger = Ledger::open(runtime, &url(per_batch)?)?;
            let entries = if per_batch == 1 { effort.single } else { 16 * effort.single };
            let run = move || measured(|| block_on(runtime, ledger.post(entries, per_batch)));
            Ok(Entrant { name, what, run: Box::new(run) })
        })
        .collect()
}

pub(super) fn sqlite<'a>(
    runtime: &'a Runtime,
    folder: &TempDir,
    effort: Effort,
) -> Result<Vec<Entrant<'a>>> {
    let path = |name: usize| folder.path().join(format!("{name}.db"));
    let mut entrants = entrants(runtime, effort, |name| Ok(format!("sqlite:{}", path(name).display())))?;
    let mut loop_ = bare::SqliteLoop::open(&path(0))?;
    entrants.push(Entrant {
        name: "bare inserts, 512 per commit",
        what: "a loop of INSERT into the same table with the same indexes and the same durability, and nothing else",
        run: Box::new(move || measured(|| loop_.insert(16 * effort.single))),
    });
    Ok(entrants)
}

pub(super) fn postgres<'a>(
    runtime: &'a Runtime,
    server: &'a Postgres,
    effort: Effort,
) -> Result<Vec<Entrant<'a>>> {
    let create = |name: usize| {
        server.psql("postgres", &format!("CREATE DATABASE b{name}")).context("cannot create a database")?;
        Ok(server.url(&format!("b{name}")))
    };
    let mut entrants = entrants(runtime, effort, create)?;
    let url = create(0)?;
    let mut copy = block_on(runtime, bare::PostgresCopy::open(&url))?;
    entrants.push(Entrant {
        name: "bare COPY and upsert, 512 per commit",
        what: "COPY into the same table with the same indexes, and one upsert of 512 balances, and nothing else",
        run: Box::new(move || measured(|| block_on(runtime, copy.copy(16 * effort.single)))),
    });
    Ok(entrants)
}
