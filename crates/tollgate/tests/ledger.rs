//! What rules with `ledger` admit is recorded exactly once.

use std::time::Duration;

use tempfile::TempDir;
use tollgate::core::{Outcome, Plan, Store, StoreError};
use tollgate::ledger::Ledger;
use tollgate::ledger::database::ledger::{Entry, Kind};
use tollgate::ledger::database::{Database, DatabaseUrl, WriterSettings};
use tollgate::{BuildError, Limiter, LocalLimiter, MemoryStore, Request, Time};

const RULES: &str = "
version: 1
rules:
  - { id: tokens, per: tenant, limit: { quota: 100/day, zone: UTC }, ledger: {} }
  - { id: bytes, match: { action: upload }, per: tenant, limit: { meter: 1000 }, ledger: {} }
  - { id: rate, per: tenant, limit: { fixed-window: 1000/h } }
";

struct Fixture {
    folder: TempDir,
    ledger: Ledger,
    limiter: Limiter,
}

impl Fixture {
    async fn new(rules: &str) -> Fixture {
        let folder = TempDir::new().expect("a folder");
        let ledger = open(&folder).await;
        let limiter = Limiter::builder().rules_yaml(rules).ledger(&ledger).build().await.expect("it builds");
        Fixture { folder, ledger, limiter }
    }

    /// Posts everything and returns the entries of the accounts: rule, kind, posted and pending units.
    async fn entries(&self) -> Vec<(String, Kind, i64, i64)> {
        self.ledger.close().await;
        let short = |entry: Entry| {
            (entry.account.subject.rule.to_string(), entry.kind, entry.d_posted, entry.d_pending)
        };
        all_entries(&self.folder).await.into_iter().map(short).collect()
    }
}

fn url(folder: &TempDir) -> DatabaseUrl {
    format!("sqlite:{}", folder.path().join("ledger.db").display()).parse().expect("the URL is valid")
}

async fn open(folder: &TempDir) -> Ledger {
    let settings = WriterSettings::new(folder.path().join("journal"));
    Ledger::with_settings(&url(folder), settings).await.expect("it opens")
}

async fn all_entries(folder: &TempDir) -> Vec<Entry> {
    let settings = tollgate::ledger::database::ledger::Settings { horizon_us: 0 };
    let database = Database::open(&url(folder), settings).await.expect("it opens");
    assert_eq!(database.unbalanced().await.expect("it reads"), []);
    let mut entries = Vec::new();
    for writer in database.writers().await.expect("it reads") {
        assert_eq!(database.first_broken_block(writer.id).await.expect("it reads"), None);
        entries.extend(database.entries(writer.id).await.expect("it reads"));
    }
    entries
}

fn tenant(cost: u64) -> Request<'static> {
    Request::from([("tenant", "acme")]).cost(cost)
}

#[tokio::test]
async fn every_admission_is_one_entry_and_refusals_and_peeks_are_none() {
    let fixture = Fixture::new(RULES).await;
    let limiter = &fixture.limiter;
    assert!(limiter.check(tenant(60)).await.expect("it decides").allowed());
    assert!(limiter.peek(tenant(10)).await.expect("it decides").allowed());
    assert!(!limiter.check(tenant(50)).await.expect("it decides").allowed());
    let upload = Request::from([("tenant", "acme"), ("action", "upload")]).cost(7);
    assert!(limiter.check(upload).await.expect("it decides").allowed());
    let expected = [("tokens", Kind::Use, 60), ("tokens", Kind::Use, 7), ("bytes", Kind::Use, 7)]
        .map(|(rule, kind, posted)| (rule.to_owned(), kind, posted, 0));
    assert_eq!(fixture.entries().await, expected);
}

#[tokio::test]
async fn reservations_and_returns_are_recorded_as_what_they_changed() {
    let fixture = Fixture::new(RULES).await;
    let limiter = &fixture.limiter;
    let hold = Duration::from_secs(60);
    let first = limiter.reserve(tenant(10), hold).await.expect("it decides");
    first.settle(4).await.expect("it settles");
    let second = limiter.reserve(tenant(20), hold).await.expect("it decides");
    second.cancel().await.expect("it cancels");
    let charged = limiter.check(tenant(9)).await.expect("it decides");
    limiter.refund_partial(&charged, 5).await.expect("it refunds");
    // A receipt gives back once, and is recorded once.
    limiter.refund_partial(&charged, 5).await.expect("it is repeated");
    limiter.record(tenant(200)).await.expect("it records");
    limiter.credit(tenant(3)).await.expect("it credits");
    let expected = [
        (Kind::Reserve, 0, 10),
        (Kind::Settle, 4, -10),
        (Kind::Reserve, 0, 20),
        (Kind::Cancel, 0, -20),
        (Kind::Use, 9, 0),
        (Kind::Refund, -5, 0),
        (Kind::Refund, 0, 0),
        (Kind::Use, 200, 0),
        (Kind::Credit, -3, 0),
    ];
    let expected = expected.map(|(kind, posted, pending)| ("tokens".to_owned(), kind, posted, pending));
    assert_eq!(fixture.entries().await, expected);
}

#[tokio::test]
async fn a_request_id_that_is_repeated_posts_once() {
    let fixture = Fixture::new(RULES).await;
    for _ in 0..3 {
        let request = tenant(5).id("r-1");
        assert!(fixture.limiter.check(request).await.expect("it decides").allowed());
    }
    let posted: Vec<i64> = fixture.entries().await.into_iter().map(|entry| entry.2).collect();
    assert_eq!(posted, [5, 0, 0]);
}

#[tokio::test]
async fn an_answer_that_waits_comes_after_the_commit() {
    let rules = "
version: 1
rules: [{ id: tokens, per: tenant, limit: { quota: 100/day, zone: UTC }, ledger: { wait: true } }]
";
    let fixture = Fixture::new(rules).await;
    for count in 1..=3 {
        assert!(fixture.limiter.check(tenant(1)).await.expect("it decides").allowed());
        assert_eq!(all_entries(&fixture.folder).await.len(), count);
    }
    let blocker = rusqlite::Connection::open(fixture.folder.path().join("ledger.db")).expect("it opens");
    blocker.execute_batch("BEGIN EXCLUSIVE").expect("it locks");
    let late = fixture.limiter.check(tenant(1)).await.expect("the policy decides");
    assert!(!late.allowed(), "the rule is closed while its commit does not come");
    blocker.execute_batch("COMMIT").expect("it unlocks");
    let posted: Vec<_> = fixture.entries().await.into_iter().map(|entry| (entry.1, entry.2)).collect();
    assert_eq!(posted[3..], [(Kind::Use, 1), (Kind::Void, -1)], "what was not acknowledged is undone");
}

/// A store that never answers.
struct Silent;

impl Store for Silent {
    async fn apply(&self, _: &Plan<'_>) -> Result<Outcome, StoreError> {
        Err(StoreError::Transient("down".into()))
    }

    fn apply_unawaited(&self, _: &Plan<'_>) {}

    fn now(&self) -> Time {
        Time::from_us(1_700_000_000_000_000)
    }
}

#[tokio::test]
async fn admissions_by_a_failure_policy_are_recorded() {
    let rules = "
version: 1
rules:
  - { id: tokens, per: tenant, limit: { quota: 100/day, zone: UTC }, on_failure: open, ledger: {} }
  - { id: closed, match: { action: pay }, per: tenant, limit: { quota: 100/day, zone: UTC }, ledger: {} }
";
    let folder = TempDir::new().expect("a folder");
    let ledger = open(&folder).await;
    let builder = Limiter::builder().rules_yaml(rules).custom_store(Silent).ledger(&ledger);
    let limiter = builder.build().await.expect("it builds");
    assert!(limiter.check(tenant(8)).await.expect("the policy decides").allowed());
    let pay = Request::from([("tenant", "acme"), ("action", "pay")]);
    assert!(!limiter.check(pay).await.expect("the policy decides").allowed());
    let fixture = Fixture { folder, ledger, limiter };
    assert_eq!(fixture.entries().await, [("tokens".to_owned(), Kind::Local, 8, 0)]);
}

#[tokio::test]
async fn a_rule_that_must_be_recorded_is_refused_without_a_ledger() {
    let built = Limiter::builder().rules_yaml(RULES).build().await;
    assert!(matches!(built, Err(BuildError::LedgerMissing { rule }) if rule == "tokens"));
    let built = LocalLimiter::builder().rules_yaml(RULES).build();
    assert!(matches!(built, Err(BuildError::LedgerMissing { .. })));
    let limiter = Limiter::builder().custom_store(MemoryStore::new()).build().await.expect("it builds");
    assert!(matches!(limiter.replace_rules(RULES), Err(BuildError::LedgerMissing { .. })));
}
