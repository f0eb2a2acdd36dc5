//! A Redis that lost state of recorded rules gets it back from the ledger, and never admits on what it has left.

use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate::ledger::database::ledger::Settings;
use tollgate::ledger::database::{Database, DatabaseUrl, WriterSettings};
use tollgate::ledger::{FollowSettings, Ledger};
use tollgate::{Limiter, Request, Source};
use tollgate_core::SubjectHasher;
use tollgate_testkit::postgres::Postgres;
use tollgate_testkit::redis::{Flavour, SentinelSet, Server};

use crate::common::{runtime, settings};

const RULES: &str = "
version: 1
rules:
  - { id: tokens, per: tenant, limit: { quota: 100/month, zone: UTC }, ledger: {} }
";

/// A database of the ledger, and a folder for journals.
struct Truth {
    folder: TempDir,
    postgres: Option<Postgres>,
}

impl Truth {
    fn sqlite() -> Truth {
        Truth { folder: TempDir::new().expect("a folder"), postgres: None }
    }

    fn postgres() -> Truth {
        let server = Postgres::start().expect("PostgreSQL");
        server.psql("postgres", "CREATE DATABASE ledger").expect("it creates a database");
        Truth { postgres: Some(server), ..Truth::sqlite() }
    }

    fn url(&self) -> DatabaseUrl {
        let file = || format!("sqlite:{}", self.folder.path().join("ledger.db").display());
        let url = self.postgres.as_ref().map_or_else(file, |server| server.url("ledger"));
        url.parse().expect("a URL")
    }

    async fn database(&self) -> Database {
        Database::connect(&self.url(), Settings { horizon_us: 0 }).await.expect("it connects")
    }

    async fn ledger(&self, ship_every: Duration) -> Ledger {
        self.database().await.migrate().await.expect("it migrates");
        let ms = Duration::from_millis;
        let journal = self.folder.path().join("journal");
        let writer = WriterSettings { ship_every, heartbeat_every: ms(10), ..WriterSettings::new(journal) };
        let ledger = Ledger::with_settings(&self.url(), writer).await.expect("it opens");
        ledger.with_follow(FollowSettings { every: ms(20), late_max: ms(50), ..FollowSettings::default() })
    }

    /// Returns the units that the ledger has posted.
    async fn posted(&self) -> i64 {
        let database = self.database().await;
        assert_eq!(database.unbalanced().await.expect("it reads"), []);
        let mut posted = 0;
        for writer in database.writers().await.expect("it reads") {
            assert_eq!(database.first_broken_block(writer.id).await.expect("it reads"), None);
            let entries = database.entries(writer.id).await.expect("it reads");
            posted += entries.iter().map(|entry| entry.d_posted).sum::<i64>();
        }
        posted
    }
}

async fn limiter(url: &str, ledger: &Ledger) -> Limiter {
    let builder =
        Limiter::builder().rules_yaml(RULES).redis(settings(url)).hash_key(SubjectHasher::new([7; 32]));
    builder.ledger(ledger).build().await.expect("it builds")
}

fn tenant(name: &'static str, cost: u64) -> Request<'static> {
    Request::from([("tenant", name)]).cost(cost)
}

/// Asks until the store answers.
async fn allowed(limiter: &Limiter, name: &'static str, cost: u64) -> bool {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match limiter.check(tenant(name, cost)).await {
            Ok(decision) if decision.source() == Source::Store => return decision.allowed(),
            Ok(_) | Err(_) => assert!(Instant::now() < deadline, "the store does not come back"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn posted(ledger: &Ledger) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while ledger.status().unposted > 0 {
        assert!(Instant::now() < deadline, "the journal is not posted");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn used(limiter: &Limiter, name: &'static str) -> u64 {
    limiter.usage(tenant(name, 0)).await.expect("it reads")[0].used
}

#[test]
fn a_redis_that_lost_its_state_equals_the_ledger_in_sqlite_after_quiet() {
    lose_state(&Truth::sqlite());
}

#[test]
fn a_redis_that_lost_its_state_equals_the_ledger_in_postgres_after_quiet() {
    lose_state(&Truth::postgres());
}

fn lose_state(truth: &Truth) {
    let mut server = Server::start(Flavour::Redis70).expect("Redis 7.0");
    let url = server.url();
    runtime().block_on(async {
        let ledger = truth.ledger(Duration::from_millis(5)).await;
        let limiter = limiter(&url, &ledger).await;
        for (name, cost) in [("acme", 20), ("bees", 60)] {
            assert!(allowed(&limiter, name, cost).await);
        }
        // A dump in which acme has used 20.
        server.admin().expect("it connects").command(&[b"SAVE"]).expect("it saves");
        assert!(allowed(&limiter, "acme", 50).await);
        posted(&ledger).await;

        server.admin().expect("it connects").flushall().expect("it flushes");
        assert!(!allowed(&limiter, "acme", 31).await, "70 units are used");
        assert!(!allowed(&limiter, "bees", 41).await, "60 units are used");

        let mut admin = server.admin().expect("it connects");
        let keys = admin.scan("tg:*tokens*").expect("it scans");
        assert_eq!(keys.len(), 2);
        admin.command(&[b"DEL", &keys[0]]).expect("it deletes");
        assert_eq!(
            (used(&limiter, "acme").await, used(&limiter, "bees").await),
            (70, 60),
            "one key was deleted"
        );

        let dump = server.folder().join("dump.rdb");
        assert!(dump.exists(), "{}", dump.display());
        server.kill9().expect("it dies");
        server.restart().expect("it starts again with the old dump");
        assert!(!allowed(&limiter, "acme", 31).await, "the dump says 20, the ledger 70");
        assert!(allowed(&limiter, "acme", 30).await);
        assert_eq!(used(&limiter, "acme").await, 100);
        assert!(ledger.follow_status().restores >= 5, "{:?}", ledger.follow_status());
        let adjusted = ledger.follow_status();
        assert_eq!((adjusted.adjusted_up, adjusted.adjusted_down), (0, 0), "nothing was in flight");
        ledger.close().await;
        assert_eq!(truth.posted().await, 160);
    });
}

#[test]
fn the_excess_after_a_flush_is_what_was_not_posted_and_the_gate_counts_it_later_in_sqlite() {
    exceed(&Truth::sqlite());
}

#[test]
fn the_excess_after_a_flush_is_what_was_not_posted_and_the_gate_counts_it_later_in_postgres() {
    exceed(&Truth::postgres());
}

fn exceed(truth: &Truth) {
    let server = Server::start(Flavour::Redis70).expect("Redis 7.0");
    let url = server.url();
    runtime().block_on(async {
        // The journal is posted so late that the flush comes before.
        let ledger = truth.ledger(Duration::from_millis(1_500)).await;
        let limiter = limiter(&url, &ledger).await;
        for _ in 0..6 {
            assert!(allowed(&limiter, "acme", 10).await);
        }
        let unposted = ledger.status().unposted * 10;
        server.admin().expect("it connects").flushall().expect("it flushes");
        let mut admitted = 60;
        while allowed(&limiter, "acme", 10).await {
            admitted += 10;
        }
        println!(
            "100 units are the limit; {admitted} were admitted, {unposted} of them not posted at the flush"
        );
        assert!(admitted <= 100 + unposted, "{admitted} units admitted, {unposted} were not posted");
        posted(&ledger).await;
        let deadline = Instant::now() + Duration::from_secs(20);
        while used(&limiter, "acme").await != admitted {
            assert!(Instant::now() < deadline, "the gate does not become equal to the ledger");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(ledger.follow_status().adjusted_up, admitted - 100, "the excess was counted later");
        ledger.close().await;
        assert_eq!(truth.posted().await, i64::try_from(admitted).expect("it fits"));
    });
}

#[test]
fn a_failover_that_loses_writes_loses_none_of_a_recorded_rule() {
    let mut sentinels = SentinelSet::start(Flavour::Redis70).expect("sentinels");
    let url = sentinels.url();
    let truth = Truth::sqlite();
    runtime().block_on(async {
        let ledger = truth.ledger(Duration::from_millis(5)).await;
        let limiter = limiter(&url, &ledger).await;
        assert!(allowed(&limiter, "acme", 20).await);
        sentinels.wait_replicas_in_sync().expect("they follow");
        // The replica stops following, so what comes next is lost with the primary.
        let replica = sentinels.replica_index().expect("there is one");
        sentinels.replica().expect("there is one").stop().expect("it stops");
        assert!(allowed(&limiter, "acme", 50).await);
        posted(&ledger).await;
        let old = sentinels.kill9_primary().expect("it dies");
        sentinels.resume(replica).expect("it goes on");
        sentinels.wait_promoted(old, Duration::from_secs(30)).expect("the replica is promoted");
        assert!(!allowed(&limiter, "acme", 31).await, "the replica has 20, the ledger 70");
        assert_eq!(used(&limiter, "acme").await, 70);
        ledger.close().await;
        assert_eq!(truth.posted().await, 70);
    });
}
