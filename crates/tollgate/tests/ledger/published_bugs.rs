//! Bugs that other limiters published, as scenarios that must end well here.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate::core::{Outcome, Plan, Store, StoreError};
use tollgate::{MemoryStore, Time};

use crate::drift::Fault;
use crate::{RULES, all_entries, builder, open, open_with, tenant, try_open};

fn posted(entries: &[tollgate::ledger::database::ledger::Entry]) -> i64 {
    let tokens = entries.iter().filter(|entry| &*entry.account.subject.rule == "tokens");
    tokens.map(|entry| entry.d_posted).sum()
}

/// LiteLLM #27639: a reservation whose caller has gone held its units for ever, and callers were refused.
#[tokio::test]
async fn a_leaked_hold_ends_with_its_time() {
    let fault = Fault::new("closed", "").await;
    assert!(fault.limiter.check(tenant(1)).await.expect("it decides").allowed());
    fault.lose.store(1, Ordering::Relaxed);
    let hold = Duration::from_millis(400);
    let reserved = fault.limiter.reserve(tenant(99), hold).await.expect("the policy decides");
    assert!(!reserved.decision().allowed(), "the answer was lost");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !fault.limiter.check(tenant(99)).await.expect("it decides").allowed() {
        assert!(Instant::now() < deadline, "the units are held for ever");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    fault.ledger.close().await;
    let entries = all_entries(&fault.folder).await;
    assert_eq!((posted(&entries), entries.iter().map(|entry| entry.d_pending).sum::<i64>()), (100, 0));
}

/// LiteLLM #30460: Redis counted 50 units and the database 14, because what failed to be written was forgotten.
#[tokio::test]
async fn charges_during_an_outage_of_the_database_are_all_posted() {
    let folder = TempDir::new().expect("a folder");
    let ledger = open(&folder).await;
    let limiter = builder(RULES, &ledger).build().await.expect("it builds");
    assert!(limiter.check(tenant(1)).await.expect("it decides").allowed());
    let blocker = rusqlite::Connection::open(folder.path().join("ledger.db")).expect("it opens");
    blocker.execute_batch("BEGIN IMMEDIATE").expect("it locks");
    for _ in 1..50 {
        assert!(limiter.check(tenant(1)).await.expect("it decides").allowed());
    }
    assert!(ledger.status().unposted > 0, "the database takes nothing");
    blocker.execute_batch("COMMIT").expect("it unlocks");
    assert_eq!(limiter.usage(tenant(0)).await.expect("it reads")[0].used, 50);
    ledger.close().await;
    assert_eq!(posted(&all_entries(&folder).await), 50);
}

/// LiteLLM #33872: records were taken off the queue before their commit, and a failed commit lost them.
#[tokio::test]
async fn records_stay_in_the_journal_until_their_commit() {
    let folder = TempDir::new().expect("a folder");
    let ledger = open(&folder).await;
    let limiter = builder(RULES, &ledger).build().await.expect("it builds");
    assert!(limiter.check(tenant(1)).await.expect("it decides").allowed());
    let blocker = rusqlite::Connection::open(folder.path().join("ledger.db")).expect("it opens");
    blocker.execute_batch("BEGIN IMMEDIATE").expect("it locks");
    for _ in 1..20 {
        assert!(limiter.check(tenant(1)).await.expect("it decides").allowed());
    }
    // The process ends while every commit fails.
    ledger.close().await;
    assert!(ledger.status().unposted > 0 && ledger.status().failures > 0, "{:?}", ledger.status());
    drop((limiter, ledger));
    blocker.execute_batch("COMMIT").expect("it unlocks");
    // The thread that forces the journal to the disk ends a little later, and unlocks the folder.
    let deadline = Instant::now() + Duration::from_secs(20);
    let again = loop {
        match try_open(&folder, "journal", Duration::from_millis(10)).await {
            Ok(ledger) => break ledger,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(again.status().recovered > 0);
    again.close().await;
    assert_eq!(posted(&all_entries(&folder).await), 20);
}

/// A store that several servers share.
struct Shared(Arc<MemoryStore>);

impl Store for Shared {
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        self.0.apply(plan).await
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        self.0.apply_unawaited(plan);
    }

    fn now(&self) -> Time {
        self.0.now()
    }
}

/// LiteLLM #28247: after a restart of Redis, each of N servers added what the database had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_servers_restore_an_account_once() {
    let folder = TempDir::new().expect("a folder");
    let ledger = open(&folder).await;
    let limiter = builder(RULES, &ledger).build().await.expect("it builds");
    assert!(limiter.check(tenant(60)).await.expect("it decides").allowed());
    ledger.close().await;
    let lost = Arc::new(MemoryStore::new());
    let mut servers = Vec::new();
    for number in 0..6 {
        let ledger = open_with(&folder, &format!("journal-{number}"), Duration::from_millis(10)).await;
        let store = Shared(Arc::clone(&lost));
        let limiter = builder(RULES, &ledger).custom_store(store).build().await.expect("it builds");
        servers.push((ledger, limiter));
    }
    let checks = servers.iter().map(|(_, limiter)| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.check(tenant(5)).await.expect("it decides").allowed() })
    });
    for check in checks.collect::<Vec<_>>() {
        assert!(check.await.expect("it ends"), "60 of 100 units were used");
    }
    assert_eq!(servers[0].1.usage(tenant(0)).await.expect("it reads")[0].used, 90);
    for (ledger, _) in &servers {
        ledger.close().await;
    }
    assert_eq!(posted(&all_entries(&folder).await), 90);
}
