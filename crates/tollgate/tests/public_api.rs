//! Every public function of the crate is called once. A change of a name or a signature must be made here too.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use tollgate::headers::{Dialect, retry_after_s};
use tollgate::limit::Meter;
use tollgate::problem::Problem;
use tollgate::store::{Exactness, Outcome, Plan, Store, StoreError};
use tollgate::{
    AcquireError, Algorithm, BuildError, CheckError, Clock, Decision, Decline, FastClock, HashKey, HashKeys,
    InvalidReceipts, Keyed, KeyedError, Limit, Limiter, LocalLimiter, LocalPermit, LocalReservation,
    ManualClock, Permit, Report, Request, Reservation, Returned, Source, SystemClock, Time,
};

const RULES: &str = "
version: 1
rules:
  - { id: bucket, match: { action: search }, per: user, limit: { token-bucket: 2/s, burst: 5 } }
  - { id: leases, match: { action: export }, per: user, limit: { concurrency: 1, lease: 30s } }
  - { id: quota, match: { action: chat }, per: user, limit: { quota: 100/day, zone: UTC } }
  - { id: login, match: { action: login }, per: user, limit: { penalty: 1s, free: 1 } }
";

const SECOND: Duration = Duration::from_secs(1);

fn request(action: &str) -> Request<'_> {
    Request::from([("action", action), ("user", "u")])
}

#[test]
fn requests() {
    let owned = vec![("user".to_owned(), "u".to_owned())];
    let pairs = [("user", "u")];
    let hashed: HashMap<String, String> = owned.iter().cloned().collect();
    let sorted: BTreeMap<&str, &str> = pairs.into_iter().collect();
    let requests: [Request<'_>; 8] = [
        Request::new().attribute("user", "u").cost(2).id("r-1"),
        Request::from(pairs),
        Request::from(&pairs),
        Request::from(pairs.as_slice()),
        Request::from(&owned),
        Request::from(&hashed),
        Request::from(&sorted),
        pairs.into_iter().collect(),
    ];
    let borrowed = Request::from(&requests[0]);
    assert!(format!("{borrowed:?}").contains("user"));
}

#[test]
fn the_local_limiter_and_its_decisions() {
    let clock = ManualClock::at(SystemTime::UNIX_EPOCH + 1_700_000_000 * SECOND);
    let keys = HashKeys::rotating(HashKey::with_id(2, [2; 32]), HashKey::with_id(1, [1; 32])).unwrap();
    let limiter = LocalLimiter::builder()
        .rules_yaml(RULES)
        .clock(clock.clone())
        .keys_max(1_000)
        .hash_key(HashKey::new([7; 32]))
        .request_id_horizon(60 * SECOND)
        .on_reload(|_: Result<u64, &BuildError>| {})
        .watch_rules(false)
        .build()
        .unwrap();
    let rotating = LocalLimiter::builder().hash_key(keys).build().unwrap();
    assert!(rotating.hash_keys().previous().is_some());

    let decision: Decision = limiter.check(request("search").cost(4)).unwrap();
    assert!(decision.allowed() && !decision.degraded());
    assert_eq!((decision.rule(), decision.limit(), decision.remaining()), (Some("bucket"), Some(5), Some(1)));
    assert_eq!((decision.retry_after(), decision.delay()), (Some(Duration::ZERO), Duration::ZERO));
    assert_eq!(decision.reset_at(), Some(SystemTime::from(clock.now()) + 2 * SECOND));
    assert_eq!((decision.source(), decision.exactness()), (Source::Store, Exactness::Exact));
    assert_eq!((decision.rules_version(), decision.receipts().len()), (0, 1));
    assert_eq!(decision.shadow_rejected().count(), 0);
    assert!(decision.to_json().starts_with("{\"allowed\":true"));
    let mut members = String::new();
    decision.write_json_members(&mut members);
    let rule = decision.headline().unwrap();
    assert_eq!(decision.rules().count(), 1);
    assert_eq!((rule.id(), rule.allowed(), rule.blocking(), rule.cost()), ("bucket", true, true, 4));
    assert_eq!(
        (rule.algorithm(), rule.limit(), rule.remaining()),
        (Some(Algorithm::TokenBucket), Some(5), Some(1))
    );
    assert_eq!((rule.retry_after(), rule.delay()), (Some(Duration::ZERO), Duration::ZERO));
    assert_eq!(rule.reset_at(), decision.reset_at());

    let refused = limiter.peek(request("search").cost(2)).unwrap();
    assert_eq!(refused.retry_after(), Some(SECOND / 2));
    assert_eq!(retry_after_s(&refused), Some(1));
    assert_eq!(Dialect::default().fields(&refused).len(), 3);
    assert_eq!(Problem::of_refusal(&refused).unwrap().retry_after, Some(SECOND / 2));
    clock.advance(SECOND);

    let sealed = limiter.sealed_receipts(&decision).unwrap();
    let receipts = limiter.open_receipts(&sealed).unwrap();
    assert_eq!(limiter.open_receipts("other"), Err(InvalidReceipts));
    let returned: Vec<Returned> = limiter.refund(&decision).unwrap();
    assert_eq!((returned[0].rule.as_str(), returned[0].amount), ("bucket", Ok(2)));
    let again = limiter.refund_receipts(&receipts).unwrap();
    assert_eq!((again[0].amount, again[0].already_returned), (Ok::<u64, Decline>(2), true));
    assert!(limiter.renew_receipts(&receipts).unwrap());
    assert_eq!(limiter.release_receipts(&receipts).unwrap(), []);

    let error: CheckError = limiter.check(request("search").cost(6)).unwrap_err();
    assert_eq!(Problem::of_error(&error).status, 413);
    assert_eq!(limiter.check_all(&[request("search"), request("chat")]).unwrap().len(), 2);
    assert_eq!(limiter.report(request("login"), Report::Failure).unwrap(), 1);
    assert_eq!(limiter.reset(request("search")).unwrap(), 1);
    assert!(limiter.explain(request("search")).rule("bucket").unwrap().applies);
    limiter.replace_rules(RULES).unwrap();
    assert_eq!(limiter.rules_version(), 1);
    assert_eq!(limiter.keys().keys_max, 1_000);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("consumption");
    assert_eq!(limiter.save(&file).unwrap(), limiter.keys().keys);
    limiter.restore(&file).unwrap();
    limiter.sweep();
}

#[tokio::test]
async fn local_permits_and_reservations() {
    let limiter = LocalLimiter::from_yaml(RULES).unwrap();
    let permit: LocalPermit = limiter.lease(request("export")).unwrap();
    assert!(permit.allowed() && permit.decision().allowed() && permit.renew().unwrap());
    let again: Result<LocalPermit, AcquireError> = limiter.acquire(request("export"), Duration::ZERO).await;
    assert!(matches!(again, Err(AcquireError::TooLate { .. })));
    assert_eq!(permit.release().unwrap()[0].amount, Ok(1));
    let alive = limiter.lease(request("export")).unwrap().keep_alive();
    assert!(alive.decision().allowed() && !alive.is_lost());
    drop(alive);
    let decision = limiter.lease(request("export")).unwrap().forget();
    assert_eq!(limiter.refund(&decision).unwrap()[0].amount, Ok(1));

    let hold: LocalReservation = limiter.reserve(request("chat").cost(9), 60 * SECOND).unwrap();
    assert!(hold.allowed() && hold.decision().allowed());
    assert_eq!(hold.settle(7).unwrap()[0].amount, Ok(2));
    let hold = limiter.reserve(request("chat").cost(9), 60 * SECOND).unwrap();
    assert_eq!(hold.cancel().unwrap()[0].amount, Ok(9));
}

/// Passes everything on to the memory store.
struct Wrapped(tollgate::MemoryStore);

impl Store for Wrapped {
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

#[tokio::test]
async fn the_limiter_over_every_store() {
    let builder = || Limiter::builder().rules_yaml(RULES).hash_key(HashKey::new([7; 32]));
    for limiter in [
        builder().store("memory://").build().await.unwrap(),
        builder().custom_store(Wrapped(tollgate::MemoryStore::new())).build().await.unwrap(),
        Limiter::from(LocalLimiter::from_yaml(RULES).unwrap()),
    ] {
        let decision = limiter.check(request("search").cost(4)).await.unwrap();
        assert_eq!(decision.remaining(), Some(1));
        assert!(!limiter.peek(request("search").cost(4)).await.unwrap().allowed());
        let sealed = limiter.sealed_receipts(&decision).unwrap();
        let receipts = limiter.open_receipts(&sealed).unwrap();
        assert_eq!(limiter.refund_receipts(&receipts).await.unwrap().len(), 1);
        assert!(limiter.renew_receipts(&receipts).await.unwrap());
        assert_eq!(limiter.release_receipts(&receipts).await.unwrap(), []);
        assert_eq!(limiter.refund(&decision).await.unwrap().len(), 1);

        let permit: Permit = limiter.lease(request("export")).await.unwrap();
        assert!(permit.allowed() && permit.decision().allowed() && permit.renew().await.unwrap());
        assert!(limiter.acquire(request("export"), Duration::ZERO).await.is_err());
        assert_eq!(permit.release().await.unwrap()[0].amount, Ok(1));
        let alive = limiter.lease(request("export")).await.unwrap().keep_alive();
        assert!(!alive.is_lost());
        drop(alive);
        let decision = limiter.lease(request("export")).await.unwrap().forget();
        limiter.refund(&decision).await.unwrap();

        let hold: Reservation = limiter.reserve(request("chat").cost(9), 60 * SECOND).await.unwrap();
        assert!(hold.allowed() && hold.decision().allowed());
        assert_eq!(
            hold.settle(12).await.unwrap()[0].amount,
            Ok(0),
            "more than the estimate gives nothing back"
        );
        let hold = limiter.reserve(request("chat").cost(9), 60 * SECOND).await.unwrap();
        assert_eq!(hold.cancel().await.unwrap()[0].amount, Ok(9));

        assert_eq!(limiter.check_all(&[request("search"), request("chat")]).await.unwrap().len(), 2);
        assert_eq!(limiter.report(request("login"), Report::Failure).await.unwrap(), 1);
        assert_eq!(limiter.reset(request("search")).await.unwrap(), 1);
        assert!(limiter.explain(request("search")).await.answer.unwrap().allowed());
        limiter.replace_rules(RULES).unwrap();
        assert_eq!((limiter.rules_version(), limiter.hash_keys().previous().is_some()), (1, false));
    }
}

#[test]
fn keyed_limits() {
    let limits: [Limit; 9] = [
        Limit::token_bucket(2, SECOND).burst(5).into(),
        Limit::leaky_bucket(2, SECOND).capacity(5).into(),
        Limit::leaky_bucket_queue(2, SECOND, 5).into(),
        Limit::fixed_window(2, SECOND).into(),
        Limit::sliding_window(2, SECOND).buckets(4).interpolated().into(),
        Limit::sliding_log(2, SECOND).into(),
        Limit::quota(2, SECOND).grace(1).into(),
        Limit::meter(2).expiry(SECOND).into(),
        Meter::unlimited().into(),
    ];
    for limit in limits {
        let keyed = Keyed::new(limit).unwrap().keys_max(10);
        let decision = keyed.check("k");
        assert!(decision.allowed() && decision.remaining() < decision.limit(), "{limit:?}");
        assert_eq!((decision.retry_after(), decision.delay()), (Some(Duration::ZERO), Duration::ZERO));
        assert!(keyed.peek("k", 1).allowed() && keyed.charge("k", 1).allowed());
        keyed.reset("k");
        assert_eq!((keyed.usage().keys_max, keyed.sweep()), (10, 0));
    }
    let invalid: Result<Keyed, KeyedError> = Keyed::with_clock(Limit::fixed_window(0, SECOND), SystemClock);
    assert!(matches!(invalid, Err(KeyedError::Limit(_))));
    assert!(FastClock::new().now() > Time::ZERO);
    let clock = ManualClock::default();
    clock.set(Time::ZERO);
}
