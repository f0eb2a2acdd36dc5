//! A writer with its journal: nothing is lost or posted twice when processes and databases fail.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate_database::journal::{JournalError, JournalFolder};
use tollgate_database::ledger::{Event, Id, Record};
use tollgate_database::{
    Batch, Database, DatabaseUrl, Error, LedgerWriter, Outage, WhenDown, WriterSettings,
};

use crate::cases::{Fresh, SETTINGS};
use crate::story::{account, record};

const KILLED: Id = Id([0x4b; 16]);

fn used(cost: i64) -> Record {
    record(account(0), Event::Use { cost })
}

async fn database(url: &DatabaseUrl) -> Arc<Database> {
    let database = Database::connect(url, SETTINGS).await.expect("it connects");
    database.migrate().await.expect("it migrates");
    Arc::new(database)
}

async fn posted(database: &Database) -> i64 {
    let balances = database.balances(vec![account(0)]).await.expect("it reads");
    assert_eq!(database.unbalanced().await.expect("it reads"), []);
    balances.get(&account(0)).map_or(0, |balance| balance.posted)
}

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn settings(folder: &Path) -> WriterSettings {
    WriterSettings { ship_every: Duration::from_millis(5), ..WriterSettings::new(folder) }
}

/// The process was killed after it had posted some records of its journal, with half a record at the end.
pub(crate) async fn the_journal_of_a_killed_process_is_posted_once<F: Fresh>(fresh: &mut F) {
    for already_posted in 0..=4 {
        let database = database(&fresh.url()).await;
        let folder = TempDir::new().expect("a folder");
        let records: Vec<Record> = (1..=4).map(used).collect();
        {
            let held = JournalFolder::open(folder.path()).expect("it opens");
            let journal = held.begin(KILLED).expect("it begins");
            journal.append(&records).expect("it appends");
            journal.append(&[used(1000)]).expect("it appends");
        }
        let segment = std::fs::read_dir(folder.path()).expect("it reads").flatten();
        let segment = segment.map(|file| file.path()).find(|path| path.extension().is_some());
        let segment = segment.expect("there is a segment");
        let bytes = std::fs::read(&segment).expect("it reads");
        std::fs::write(&segment, &bytes[..bytes.len() - 1]).expect("it writes");
        if already_posted > 0 {
            database.register(KILLED, "killed", 1).await.expect("it registers");
            let records = records[..already_posted].to_vec();
            database.post(Batch { writer: KILLED, after: 0, records, now_us: 1 }).await.expect("it posts");
        }
        for expected in [4 - already_posted as u64, 0] {
            let writer = LedgerWriter::open(Arc::clone(&database), settings(folder.path())).await;
            let writer = writer.expect("it opens");
            assert_eq!(writer.status().recovered, expected, "{already_posted} were posted");
            writer.close().await;
            assert_eq!(posted(&database).await, 1 + 2 + 3 + 4);
        }
        let entries = database.entries(KILLED).await.expect("it reads");
        assert_eq!(entries.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(database.first_broken_block(KILLED).await.expect("it reads"), None);
    }
}

pub(crate) async fn a_record_is_committed_when_its_wait_ends<F: Fresh>(fresh: &mut F) {
    let database = database(&fresh.url()).await;
    let folder = TempDir::new().expect("a folder");
    let slow = WriterSettings { ship_every: Duration::from_secs(3600), ..settings(folder.path()) };
    let writer = LedgerWriter::open(Arc::clone(&database), slow).await.expect("it opens");
    for round in 1..=5 {
        let seq = writer.append(&[used(1), used(1)]).expect("it appends");
        assert_eq!(seq, 2 * round);
        assert!(writer.committed(seq, Duration::from_secs(20)).await);
        assert_eq!(posted(&database).await, 2 * round);
    }
    let status = writer.status();
    assert_eq!((status.entries, status.unposted, status.failures), (10, 0, 0));
    writer.close().await;
}

/// The database is restored to an earlier time while the server runs.
pub(crate) async fn a_database_that_was_set_back_gets_the_journal_again<F: Fresh>(fresh: &mut F) {
    let url = fresh.url();
    let database = database(&url).await;
    let folder = TempDir::new().expect("a folder");
    let writer = LedgerWriter::open(Arc::clone(&database), settings(folder.path())).await.expect("it opens");
    for cost in [1, 2, 4] {
        let seq = writer.append(&[used(cost)]).expect("it appends");
        assert!(writer.committed(seq, Duration::from_secs(20)).await);
    }
    fresh.tamper(&url, "DELETE FROM entry WHERE seq > 1");
    fresh.tamper(&url, "DELETE FROM block WHERE block > 1");
    fresh.tamper(&url, "UPDATE balance SET posted = 1, available = granted - 1");
    fresh.tamper(
        &url,
        "UPDATE writer SET shipped_seq = 1, blocks = 1, \
         chain_head = (SELECT hash FROM block WHERE block.writer = writer.id) WHERE shipped_seq = 3",
    );
    eventually("the heartbeat notices it", async || posted(&database).await == 7).await;
    let seq = writer.append(&[used(8)]).expect("it appends");
    assert_eq!(seq, 4);
    assert!(writer.committed(seq, Duration::from_secs(20)).await);
    assert_eq!(posted(&database).await, 15);
    assert_eq!(database.first_broken_block(writer.id()).await.expect("it reads"), None);
    writer.close().await;
}

/// Reservations that are not settled end by themselves.
pub(crate) async fn reservations_expire_in_the_database<F: Fresh>(fresh: &mut F) {
    let database = database(&fresh.url()).await;
    database.register(KILLED, "test", 1).await.expect("it registers");
    let hold = |byte: u8, until_us| Event::Reserve { token: Id([byte; 16]), cost: 10, until_us };
    let records = vec![record(account(0), hold(1, 50)), record(account(0), hold(2, 60))];
    database.post(Batch { writer: KILLED, after: 0, records, now_us: 1 }).await.expect("it posts");
    let pending = async || database.balances(vec![account(0)]).await.expect("it reads")[&account(0)].pending;
    assert_eq!((database.expire(50, 9, 70).await.expect("it runs"), pending().await), (0, 20));
    assert_eq!((database.expire(60, 9, 71).await.expect("it runs"), pending().await), (1, 10));
    assert_eq!((database.expire(60, 9, 72).await.expect("it runs"), pending().await), (0, 10));
    assert_eq!((database.expire(61, 9, 73).await.expect("it runs"), pending().await), (1, 0));
    assert_eq!(posted(&database).await, 0);
}

fn file(folder: &TempDir) -> (DatabaseUrl, rusqlite::Connection) {
    let path = folder.path().join("ledger.db");
    let url = format!("sqlite:{}", path.display()).parse().expect("the URL is valid");
    (url, rusqlite::Connection::open(path).expect("it opens"))
}

/// Another connection holds the file, so that no transaction can begin.
#[tokio::test]
async fn an_outage_is_bounded_and_everything_is_posted_after_it() {
    let folder = TempDir::new().expect("a folder");
    let (url, blocker) = file(&folder);
    let database = database(&url).await;
    let bounded =
        WriterSettings { queue_max: Duration::from_millis(1500), ..settings(&folder.path().join("journal")) };
    let writer = LedgerWriter::open(Arc::clone(&database), bounded).await.expect("it opens");
    writer.accepts(WhenDown::Refuse).expect("the database is up");
    blocker.execute_batch("BEGIN EXCLUSIVE").expect("it locks");
    writer.append(&[used(1), used(2)]).expect("the journal is up");
    assert!(!writer.committed(2, Duration::from_millis(50)).await, "the database is locked");
    writer.accepts(WhenDown::Queue).expect("the queue is short");
    eventually("the queue ends", async || writer.accepts(WhenDown::Queue).is_err()).await;
    assert!(matches!(writer.accepts(WhenDown::Refuse), Err(Outage::DatabaseSilent(_))));
    blocker.execute_batch("COMMIT").expect("it unlocks");
    eventually("the database is back", async || writer.accepts(WhenDown::Queue).is_ok()).await;
    assert!(writer.committed(2, Duration::from_secs(20)).await);
    assert_eq!(posted(&database).await, 3);
    writer.close().await;
}

#[tokio::test]
async fn a_journal_that_is_full_accepts_nothing_until_it_is_posted() {
    let folder = TempDir::new().expect("a folder");
    let (url, blocker) = file(&folder);
    let database = database(&url).await;
    let small = WriterSettings { journal_max: 500, ..settings(&folder.path().join("journal")) };
    let writer = LedgerWriter::open(Arc::clone(&database), small).await.expect("it opens");
    blocker.execute_batch("BEGIN EXCLUSIVE").expect("it locks");
    let mut appended = 0;
    while writer.accepts(WhenDown::Queue).is_ok() {
        writer.append(&[used(1)]).expect("it appends");
        appended += 1;
        assert!(appended < 10, "records have more than 50 bytes");
    }
    assert!(matches!(writer.accepts(WhenDown::Queue), Err(Outage::JournalFull(bytes)) if bytes >= 500));
    blocker.execute_batch("COMMIT").expect("it unlocks");
    eventually("it is posted", async || writer.accepts(WhenDown::Queue).is_ok()).await;
    writer.close().await;
    assert_eq!(posted(&database).await, appended);
}

#[tokio::test]
async fn a_second_server_on_the_same_journal_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let (url, _) = file(&folder);
    let database = database(&url).await;
    let first = LedgerWriter::open(Arc::clone(&database), settings(folder.path())).await.expect("it opens");
    let second = LedgerWriter::open(Arc::clone(&database), settings(folder.path())).await;
    assert!(matches!(second, Err(Error::Journal(JournalError::Locked(_)))), "{second:?}");
    first.close().await;
}
