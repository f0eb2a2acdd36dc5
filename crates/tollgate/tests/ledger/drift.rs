//! What the gate counts and the ledger does not have, or the other way round, is corrected, and nothing else is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::sync::Semaphore;
use tollgate::core::{Outcome, Plan, Store, StoreError};
use tollgate::ledger::Ledger;
use tollgate::{Limiter, MemoryStore, Time};

use crate::{builder, open, open_with, tenant, used_becomes};

/// A memory store that applies the next Plans and loses their answers, or answers nothing.
struct Faulty {
    store: MemoryStore,
    lose: Arc<AtomicU32>,
    down: Arc<AtomicU32>,
}

impl Faulty {
    fn is_next(count: &AtomicU32) -> bool {
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

impl Store for Faulty {
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        if plan.may_charge() && Faulty::is_next(&self.down) {
            return Err(StoreError::Transient("down".into()));
        }
        let outcome = self.store.apply(plan).await;
        match plan.may_charge() && Faulty::is_next(&self.lose) {
            true => Err(StoreError::Transient("the answer is lost".into())),
            false => outcome,
        }
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        self.store.apply_unawaited(plan);
    }

    fn now(&self) -> Time {
        self.store.now()
    }
}

/// A limiter on a store with faults: it loses as many answers, or gives none to as many charges, as its numbers say.
pub(crate) struct Fault {
    pub(crate) folder: TempDir,
    pub(crate) ledger: Ledger,
    pub(crate) limiter: Limiter,
    pub(crate) lose: Arc<AtomicU32>,
    down: Arc<AtomicU32>,
}

impl Fault {
    pub(crate) async fn new(on_failure: &str, ledger_settings: &str) -> Fault {
        let rules = format!(
            "
version: 1
rules:
  - id: tokens
    per: tenant
    limit: {{ quota: 100/day, zone: UTC }}
    on_failure: {on_failure}
    ledger: {{ {ledger_settings} }}
"
        );
        let folder = TempDir::new().expect("a folder");
        let ledger = open(&folder).await;
        let (lose, down) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
        let store = Faulty { store: MemoryStore::new(), lose: Arc::clone(&lose), down: Arc::clone(&down) };
        let limiter = builder(&rules, &ledger).custom_store(store).build().await.expect("it builds");
        Fault { folder, ledger, limiter, lose, down }
    }

    /// Units adjusted down and up.
    fn adjusted(&self) -> (u64, u64) {
        let status = self.ledger.follow_status();
        (status.adjusted_down, status.adjusted_up)
    }
}

#[tokio::test]
async fn a_charge_whose_answer_was_lost_is_taken_back_from_the_gate() {
    // Rows of `totals` have no revision, so they need two equal looks.
    for detail in ["detail: entries", "detail: totals"] {
        let fault = Fault::new("closed", detail).await;
        assert!(fault.limiter.check(tenant(10)).await.expect("it decides").allowed());
        fault.lose.store(1, Ordering::Relaxed);
        assert!(!fault.limiter.check(tenant(50)).await.expect("the policy decides").allowed());
        // The next charge is counted while the look waits, and must stay.
        assert!(fault.limiter.check(tenant(7)).await.expect("it decides").allowed());
        used_becomes(&fault.limiter, 17).await;
        assert_eq!(fault.adjusted(), (50, 0), "{detail}");
        fault.ledger.close().await;
    }
}

#[tokio::test]
async fn admissions_by_a_policy_are_added_to_the_gate() {
    let fault = Fault::new("open", "").await;
    assert!(fault.limiter.check(tenant(10)).await.expect("it decides").allowed());
    fault.down.store(1, Ordering::Relaxed);
    assert!(fault.limiter.check(tenant(30)).await.expect("the policy decides").allowed());
    assert!(fault.limiter.check(tenant(1)).await.expect("it decides").allowed());
    used_becomes(&fault.limiter, 41).await;
    assert_eq!(fault.adjusted(), (0, 30));
    fault.ledger.close().await;
}

/// A store that several limiters share. It can hold back the answers of one of them.
struct Shared {
    store: Arc<MemoryStore>,
    holds_back: Arc<AtomicBool>,
    release: Arc<Semaphore>,
}

impl Store for Shared {
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        let outcome = self.store.apply(plan).await;
        if plan.may_charge() && self.holds_back.load(Ordering::Relaxed) {
            drop(self.release.acquire().await);
        }
        outcome
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        self.store.apply_unawaited(plan);
    }

    fn now(&self) -> Time {
        self.store.now()
    }
}

#[tokio::test]
async fn nothing_is_adjusted_while_a_call_of_another_server_is_unanswered() {
    let rules = "
version: 1
rules: [{ id: tokens, per: tenant, limit: { quota: 100/day, zone: UTC }, ledger: {} }]
";
    let folder = TempDir::new().expect("a folder");
    let (store, release) = (Arc::new(MemoryStore::new()), Arc::new(Semaphore::new(0)));
    let shared = |holds_back: &Arc<AtomicBool>| Shared {
        store: Arc::clone(&store),
        holds_back: Arc::clone(holds_back),
        release: Arc::clone(&release),
    };
    let (free, held) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let every = Duration::from_millis(10);
    let first = open_with(&folder, "first", every).await;
    let second = open_with(&folder, "second", every).await;
    let one = builder(rules, &first).custom_store(shared(&free)).build().await.expect("it builds");
    let other = builder(rules, &second).custom_store(shared(&held)).build().await.expect("it builds");
    assert!(one.check(tenant(10)).await.expect("it decides").allowed());
    held.store(true, Ordering::Relaxed);
    let waiting = tokio::spawn(async move { other.check(tenant(50)).await });
    used_becomes(&one, 60).await;
    assert!(one.check(tenant(1)).await.expect("it decides").allowed());
    // The barrier of these tests is 20 ms.
    let until = Instant::now() + Duration::from_millis(400);
    while Instant::now() < until {
        assert_eq!(first.follow_status().adjusted_down, 0, "the charge of the other server was taken back");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    release.add_permits(1_000);
    assert!(waiting.await.expect("it ends").expect("it decides").allowed());
    let deadline = Instant::now() + Duration::from_secs(20);
    let compared = first.follow_status().compared;
    while first.follow_status().compared == compared {
        assert!(Instant::now() < deadline, "nothing is compared after the answer");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    used_becomes(&one, 61).await;
    let status = first.follow_status();
    assert_eq!((status.adjusted_down, status.adjusted_up), (0, 0));
    first.close().await;
    second.close().await;
}

#[tokio::test]
async fn while_the_database_is_away_an_absent_key_is_refused_or_counts_as_unused() {
    for when_down in ["refuse", "queue"] {
        let fault = Fault::new("closed", &format!("when_down: {when_down}")).await;
        let blocker = rusqlite::Connection::open(fault.folder.path().join("ledger.db")).expect("it opens");
        blocker.execute_batch("BEGIN IMMEDIATE").expect("it locks");
        // At first the database may be only slow, and the policy of the rule refuses.
        assert!(!fault.limiter.check(tenant(10)).await.expect("it decides").allowed(), "{when_down}");
        let until = Instant::now() + Duration::from_secs(if when_down == "queue" { 60 } else { 5 });
        let is_admitted = loop {
            match fault.limiter.check(tenant(10)).await.expect("it decides").allowed() {
                true => break true,
                false if Instant::now() >= until => break false,
                false => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        assert_eq!(is_admitted, when_down == "queue", "{when_down}");
        blocker.execute_batch("COMMIT").expect("it unlocks");
        if is_admitted {
            used_becomes(&fault.limiter, 10).await;
        }
        fault.ledger.close().await;
    }
}
