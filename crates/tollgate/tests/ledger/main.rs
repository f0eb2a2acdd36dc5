//! What rules with `ledger` admit is recorded exactly once, and the gate follows what is recorded.

mod drift;
mod published_bugs;
mod simulation;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tollgate::core::{Outcome, Plan, Store, StoreError, SubjectHasher};
use tollgate::ledger::database::ledger::{Change, Entry, Kind, Settings};
use tollgate::ledger::database::{Database, DatabaseUrl, WriterSettings};
use tollgate::ledger::{FollowSettings, Ledger, LedgerError};
use tollgate::{BuildError, Limiter, LimiterBuilder, LocalLimiter, MemoryStore, Request, Source, Time};

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
        let limiter = builder(rules, &ledger).build().await.expect("it builds");
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

/// All limiters have the same hash key, so that their accounts are the same.
fn builder(rules: &str, ledger: &Ledger) -> LimiterBuilder {
    Limiter::builder().rules_yaml(rules).hash_key(SubjectHasher::new([7; 32])).ledger(ledger)
}

fn url(folder: &TempDir) -> DatabaseUrl {
    format!("sqlite:{}", folder.path().join("ledger.db").display()).parse().expect("the URL is valid")
}

async fn open(folder: &TempDir) -> Ledger {
    open_with(folder, "journal", Duration::from_millis(10)).await
}

/// Opens the ledger with this journal. The gate is compared as often as `every` says.
async fn open_with(folder: &TempDir, journal: &str, every: Duration) -> Ledger {
    try_open(folder, journal, every).await.expect("it opens")
}

async fn try_open(folder: &TempDir, journal: &str, every: Duration) -> Result<Ledger, LedgerError> {
    let ms = Duration::from_millis;
    let journal = folder.path().join(journal);
    let settings =
        WriterSettings { ship_every: ms(5), heartbeat_every: ms(10), ..WriterSettings::new(journal) };
    let ledger = Ledger::with_settings(&url(folder), settings).await?;
    // The barrier is as short as the calls of these tests.
    let follow = FollowSettings { every, late_max: ms(20), ..FollowSettings::default() };
    Ok(ledger.with_follow(follow))
}

async fn all_entries(folder: &TempDir) -> Vec<Entry> {
    let settings = Settings { horizon_us: 0 };
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
    let builder = builder(rules, &ledger).custom_store(Silent);
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

#[tokio::test]
async fn a_ledger_needs_a_hash_key_that_stays_the_same() {
    let folder = TempDir::new().expect("a folder");
    let ledger = open(&folder).await;
    let built = Limiter::builder().rules_yaml(RULES).ledger(&ledger).build().await;
    assert!(matches!(built, Err(BuildError::HashKeyMissing)));
    ledger.close().await;
}

/// Waits until what the tenant has used is `used`.
async fn used_becomes(limiter: &Limiter, used: u64) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let found = limiter.usage(tenant(0)).await.expect("it reads")[0].used;
        if found == used {
            return;
        }
        assert!(Instant::now() < deadline, "{found} instead of {used} units are counted");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_store_that_lost_its_state_continues_where_the_ledger_is() {
    let fixture = Fixture::new(RULES).await;
    let hold = Duration::from_secs(600);
    assert!(fixture.limiter.check(tenant(60)).await.expect("it decides").allowed());
    let held = fixture.limiter.reserve(tenant(10), hold).await.expect("it decides");
    fixture.ledger.close().await;
    // The first process is not gone yet, and its folder is locked.
    let ledger = open_with(&fixture.folder, "journal-2", Duration::from_millis(10)).await;
    // A new memory store: nothing of the old one is left.
    let limiter = builder(RULES, &ledger).build().await.expect("it builds");
    assert!(!limiter.check(tenant(31)).await.expect("it decides").allowed(), "60 are used and 10 are held");
    assert!(limiter.check(tenant(30)).await.expect("it decides").allowed());
    let usage = limiter.usage(tenant(0)).await.expect("it reads");
    assert_eq!((usage[0].used, usage[0].held), (90, 10));
    assert_eq!(ledger.follow_status().restores, 1, "once for the subject");
    drop(held);
    ledger.close().await;
}

/// Checks every tenant once, a fixed number at a time. Returns how many were admitted.
async fn check_all(limiter: &Limiter, count: usize, cost: u64) -> usize {
    let (in_flight, admitted) = (Arc::new(Semaphore::new(4_096)), Arc::<AtomicU32>::default());
    let mut checks = JoinSet::new();
    for number in 0..count {
        let permit = Arc::clone(&in_flight).acquire_owned().await.expect("it is open");
        let (limiter, admitted) = (limiter.clone(), Arc::clone(&admitted));
        checks.spawn(async move {
            let name = format!("tenant-{number}");
            let deadline = Instant::now() + Duration::from_secs(60);
            let decision = loop {
                let request = Request::from([("tenant", name.as_str())]).cost(cost);
                let decision = limiter.check(request).await.expect("it decides");
                // On a slow machine a look-up may come too late. Then the policy refuses.
                if decision.source() == Source::Store {
                    break decision;
                }
                assert!(!decision.allowed() && Instant::now() < deadline, "{decision:?}");
            };
            admitted.fetch_add(u32::from(decision.allowed()), Ordering::Relaxed);
            drop(permit);
        });
    }
    while let Some(done) = checks.join_next().await {
        done.expect("it ends");
    }
    admitted.load(Ordering::Relaxed) as usize
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_keys_are_restored_by_400_queries_and_none_is_admitted_unverified() {
    const KEYS: usize = 100_000;
    let folder = TempDir::new().expect("a folder");
    let ledger = open_with(&folder, "journal", Duration::from_secs(3600)).await;
    let limiter = builder(RULES, &ledger).build().await.expect("it builds");
    assert_eq!(check_all(&limiter, KEYS, 60).await, KEYS);
    ledger.close().await;
    drop(limiter);
    // A store that has lost everything: each tenant has 40 units left in the ledger, and 100 in the store.
    let ledger = open_with(&folder, "journal-2", Duration::from_secs(3600)).await;
    let limiter = builder(RULES, &ledger).build().await.expect("it builds");
    let began = Instant::now();
    let admitted = check_all(&limiter, KEYS, 41).await;
    let (status, took) = (ledger.follow_status(), began.elapsed());
    println!(
        "{} keys restored by {} queries in {took:?}, {admitted} admitted",
        status.restores, status.queries
    );
    assert_eq!((status.restores, status.waiting, admitted), (KEYS as u64, 0, 0));
    assert!(status.queries <= 400, "{} queries", status.queries);
    ledger.close().await;
}

#[tokio::test]
async fn corrections_and_grants_reach_the_gate() {
    let fixture = Fixture::new(RULES).await;
    let limiter = &fixture.limiter;
    assert!(limiter.check(tenant(100)).await.expect("it decides").allowed());
    assert!(!limiter.check(tenant(1)).await.expect("it decides").allowed());
    let database = Database::open(&url(&fixture.folder), Settings { horizon_us: 0 }).await.expect("it opens");
    let deadline = Instant::now() + Duration::from_secs(20);
    let account = loop {
        let filter = tollgate::ledger::database::Filter::default();
        if let Some(usage) = database.usage(&filter, 0, 10).await.expect("it reads").pop() {
            break usage.account;
        }
        assert!(Instant::now() < deadline, "the charge is not posted");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let template = tollgate::ledger::database::ledger::Record {
        account: account.clone(),
        ends_us: 0,
        allowance: 100,
        at_us: 0,
        rev: 0,
        detail: tollgate::ledger::database::ledger::Detail::Entries,
        request: None,
        name: None,
        event: tollgate::ledger::database::ledger::Event::Use { cost: 0 },
    };
    let grant = |units| Change { units, actor: "ada".to_owned(), cause: "a test".to_owned() };
    database.change(&template, Kind::Grant, grant(25), account.period_us + 1).await.expect("it grants");
    let limit = async || limiter.usage(tenant(0)).await.expect("it reads")[0].limit;
    while limit().await != 125 {
        assert!(Instant::now() < deadline, "the grant does not reach the gate");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(limiter.check(tenant(25)).await.expect("it decides").allowed());
    database.change(&template, Kind::Correct, grant(-10), account.period_us + 1).await.expect("it corrects");
    while limit().await != 115 {
        assert!(Instant::now() < deadline, "the correction does not reach the gate");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fixture.ledger.close().await;
}
