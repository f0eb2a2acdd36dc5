//! A Redis that lost state of recorded rules gets it back from the ledger, and never admits on what it has left.

use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate::ledger::database::WriterSettings;
use tollgate::ledger::{FollowSettings, Ledger};
use tollgate::{Limiter, Request, Source};
use tollgate_core::SubjectHasher;
use tollgate_testkit::redis::{Flavour, SentinelSet, Server};

use crate::common::{runtime, settings};

const RULES: &str = "
version: 1
rules:
  - { id: tokens, per: tenant, limit: { quota: 100/month, zone: UTC }, ledger: {} }
";

async fn ledger(folder: &TempDir) -> Ledger {
    let ms = Duration::from_millis;
    let url = format!("sqlite:{}", folder.path().join("ledger.db").display()).parse().expect("a URL");
    let journal = folder.path().join("journal");
    let writer =
        WriterSettings { ship_every: ms(5), heartbeat_every: ms(10), ..WriterSettings::new(journal) };
    let ledger = Ledger::with_settings(&url, writer).await.expect("it opens");
    ledger.with_follow(FollowSettings { every: ms(20), late_max: ms(50), ..FollowSettings::default() })
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
fn a_redis_that_lost_its_state_equals_the_ledger_after_quiet() {
    let mut server = Server::start(Flavour::Redis70).expect("Redis 7.0");
    let url = server.url();
    let folder = TempDir::new().expect("a folder");
    runtime().block_on(async {
        let ledger = ledger(&folder).await;
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
    });
}

#[test]
fn a_failover_that_loses_writes_loses_none_of_a_recorded_rule() {
    let mut sentinels = SentinelSet::start(Flavour::Redis70).expect("sentinels");
    let url = sentinels.url();
    let folder = TempDir::new().expect("a folder");
    runtime().block_on(async {
        let ledger = ledger(&folder).await;
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
    });
}
