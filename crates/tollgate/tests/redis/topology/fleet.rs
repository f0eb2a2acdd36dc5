//! The Redis store behind sentinels and on clusters: its answers, and its behaviour under faults. `cargo xtask chaos` runs
//! longer drills.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tollgate::store::redis::{OpenError, RedisError, RedisSettings, TimeSource};
use tollgate::{HashKey, Limiter};
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::{Exactness, Item, Limit, Operation, Plan, Span, Store, StoreError, Token};
use tollgate_testkit::conformance::{
    Slots, apply_concurrently, check_against_model, check_three_mixed_rules, counting_limits,
};
use tollgate_testkit::drill::{
    Fault, cluster_failover, control, median, move_slots, sentinel_failovers, stop_for,
};
use tollgate_testkit::redis::{Admin, Cluster, Cut, Flavour, SentinelSet, Server, Value};

use crate::common::{
    LIMIT, LONG, TTL_MAX, USER, WINDOW, charge, clean, on_different_servers, runtime, settings, shared,
    subject,
};

/// Longest time that the store may need after the promotion, for which the servers are responsible.
const RECOVERY_MAX: Duration = Duration::from_millis(250);
const STEPS: u64 = 1_500;

/// Returns a store with the suite's clock, on servers that are emptied first.
fn emptied(
    runtime: &Runtime,
    url: &str,
    servers: &[&Server],
    clock: &'static tollgate::ManualClock,
) -> tollgate::store::redis::RedisStore<&'static tollgate::ManualClock> {
    for server in servers {
        server.admin().unwrap().flushall().unwrap();
    }
    let settings =
        settings(url).time(TimeSource::Application).margin(Duration::from_secs(3_600)).clock(clock);
    runtime.block_on(settings.connect()).unwrap()
}

#[test]
fn a_primary_behind_sentinels_agrees_with_the_model_of_plans() {
    let runtime = runtime();
    for (seed, flavour) in (0..).zip(Flavour::ALL) {
        let set = SentinelSet::start(flavour).unwrap();
        let (url, primary) = (set.url(), set.primary().unwrap());
        let store = |clock| emptied(&runtime, &url, &[primary], clock);
        let agrees = check_against_model(&runtime, Slots::One, store, STEPS, seed);
        agrees.unwrap_or_else(|error| panic!("{flavour}: {error}"));
        clean(primary);
    }
}

#[test]
fn a_cluster_agrees_with_the_model_of_plans_in_one_slot_and_in_several() {
    let runtime = runtime();
    for (seed, flavour) in (0..).zip(Flavour::ALL) {
        let cluster = Cluster::start(flavour).unwrap();
        let primaries: Vec<&Server> = cluster.primaries().iter().map(|&node| cluster.node(node)).collect();
        for slots in [Slots::One, Slots::BySubject] {
            let store = |clock| emptied(&runtime, &cluster.url(), &primaries, clock);
            let agrees = check_against_model(&runtime, slots, store, STEPS, seed);
            agrees.unwrap_or_else(|error| panic!("{flavour}, {slots:?}: {error}"));
        }
        cluster.no_orphans("tg:1:", TTL_MAX, &[USER]).unwrap();
    }
}

/// Checks every algorithm, and three mixed rules in one hash slot.
fn exactly_the_limit(runtime: &Runtime, url: &str, empty: impl Fn()) {
    let store = runtime.block_on(settings(url).connect()).unwrap();
    let limits = counting_limits(LIMIT, WINDOW).unwrap();
    for limit in limits {
        empty();
        let found =
            apply_concurrently(runtime, &store, 10_000, move |number| charge(limit, shared(), number));
        assert_eq!(found, (LIMIT, 0), "{limit:?}");
    }
    check_three_mixed_rules(runtime, &store, (LIMIT, WINDOW), empty, || ());
}

#[test]
fn concurrent_tasks_get_exactly_the_limit_behind_sentinels_and_on_a_cluster() {
    let runtime = runtime();
    let set = SentinelSet::start(Flavour::Redis70).unwrap();
    let primary = set.primary().unwrap();
    exactly_the_limit(&runtime, &set.url(), || primary.admin().unwrap().flushall().unwrap());
    clean(primary);
    let cluster = Cluster::start(Flavour::Redis70).unwrap();
    let primaries = cluster.primaries();
    exactly_the_limit(&runtime, &cluster.url(), || {
        primaries.iter().for_each(|&node| cluster.admin(node).unwrap().flushall().unwrap());
    });
    cluster.no_orphans("tg:1:", TTL_MAX, &[USER]).unwrap();
}

#[test]
fn a_failover_is_followed_and_over_admits_at_most_the_lost_writes() {
    let runtime = runtime();
    let mut set = SentinelSet::start(Flavour::Redis70).unwrap();
    println!("no fault: widest gap {} ms", control(&runtime, &set.url(), 1).unwrap().as_millis());
    for (fault, times, seed) in [(Fault::Kill, 2, 100), (Fault::KillUnheard, 1, 200), (Fault::Stop, 2, 300)] {
        let failovers = sentinel_failovers(&runtime, &mut set, fault, times, seed).unwrap();
        for failover in &failovers {
            assert!(failover.excess <= failover.lost, "{failover}");
            assert!(failover.tally.refused > 0, "the limits were reached: {failover}");
            assert!(fault != Fault::KillUnheard || failover.lost > 0, "writes were lost: {failover}");
        }
        let median = median(failovers.iter().map(|failover| failover.recovered_after).collect());
        assert!(median <= RECOVERY_MAX, "{fault:?}: {median:?}");
    }
}

#[test]
fn a_cluster_failover_affects_only_the_slots_of_the_failed_primary() {
    let runtime = runtime();
    let mut cluster = Cluster::start(Flavour::Redis70).unwrap();
    let (failover, others) = cluster_failover(&runtime, &mut cluster, 1).unwrap();
    assert_eq!((others.unknown, others.failed), (0, 0), "{others:?}");
    assert!(failover.excess <= failover.lost, "{failover}");
    assert!(failover.recovered_after <= RECOVERY_MAX * 2, "{failover}");
    assert!(failover.tally.failed > 0, "the fault had an effect: {failover}");
}

#[test]
fn moving_slots_loses_no_charge_and_charges_nothing_twice() {
    let runtime = runtime();
    let cluster = Cluster::start(Flavour::Redis70).unwrap();
    for (rules, moves) in [(1, 60), (3, 20)] {
        let found = move_slots(&runtime, &cluster, moves, rules, moves).unwrap();
        // On a busy machine, a check whose answer was late may have been charged.
        assert!(found.lost == 0 && found.extra <= found.tally.unknown, "{found}");
        assert!(found.tally.unknown + found.tally.failed <= found.tally.admitted / 50, "{found}");
    }
}

#[test]
fn a_hanging_server_costs_little_and_the_breaker_opens_and_closes_once() {
    let runtime = runtime();
    let server = Server::start(Flavour::Redis70).unwrap();
    let deadline = Duration::from_millis(25);
    let found = stop_for(&runtime, &server, deadline, Duration::from_secs(3), 1).unwrap();
    assert!(found.grown_bytes <= 16 << 20, "{found}");
    assert_eq!((found.opened, found.closed), (1, 1), "{found}");
    assert!(found.in_flight <= 4_096, "{found}");
    // Timers can be late on a busy machine, but no check waited for the server.
    assert!(found.slowest <= deadline * 10, "{found}");
}

/// A check under four rules with four subjects in four hash slots.
fn over_four_slots(limits: [Limit; 4], id: Option<u64>) -> Plan<'static> {
    let mut plan = Plan::new();
    for (name, limit) in FOUR.into_iter().zip(limits) {
        plan.push(Item::new(shared().key(subject(name)), limit, Operation::charge(1))).unwrap();
    }
    if let Some(id) = id {
        plan.set_request_id(subject(&format!("request {id}")), Span::from_secs(60), 0);
    }
    plan
}

const FOUR: [&str; 4] = [USER, "first", "second", "third"];

/// All rules are charged or none, in any order of requests; and the same id is charged once, however often it is sent.
#[test]
fn plans_over_several_slots_never_admit_more_than_any_of_their_rules() {
    let runtime = runtime();
    let cluster = Cluster::start(Flavour::Redis70).unwrap();
    let store = runtime.block_on(settings(&cluster.url()).connect()).unwrap();
    let (tight, loose) =
        (counting_limits(20, WINDOW).unwrap()[0], counting_limits(1_000, WINDOW).unwrap()[0]);
    // The third rule has the smallest limit, so that others are charged before it refuses.
    let limits = [loose, loose, tight, loose];
    let ask = |id: Option<u64>| {
        let (store, plan) = (store.clone(), over_four_slots(limits, id));
        async move { store.apply(&plan).await.unwrap().answers.iter().all(|answer| answer.is_admitted()) }
    };
    // Ids by number of the request: none, a different id each, or the same id for four.
    let kinds: [fn(u64) -> Option<u64>; 3] = [|_| None, Some, |number| Some(number % 50)];
    for id_of in kinds {
        cluster.primaries().into_iter().for_each(|node| cluster.admin(node).unwrap().flushall().unwrap());
        let tasks: Vec<_> =
            (0..200).map(|number| (id_of(number), runtime.spawn(ask(id_of(number))))).collect();
        let mut admitted = BTreeSet::new();
        for (number, (id, task)) in tasks.into_iter().enumerate() {
            if runtime.block_on(task).unwrap() {
                admitted.insert(id.unwrap_or(number as u64));
            }
        }
        assert!(admitted.len() <= 20, "{} admitted", admitted.len());
        // Two requests that each hold a part of the last unit may both be refused. A later request then gets it.
        let late = (1_000..1_040).filter(|&number| runtime.block_on(ask(Some(number)))).count();
        println!(
            "several slots: {} of 20 admitted in the apply_concurrently, {late} afterwards",
            admitted.len()
        );
        assert_eq!(admitted.len() + late, 20, "no held unit is lost");
        // Refunds are complete: every counter has exactly what was admitted.
        for (name, limit) in FOUR.into_iter().zip(limits) {
            let mut look = Plan::new();
            look.push(Item::new(shared().key(subject(name)), limit, Operation::Peek { cost: 0 })).unwrap();
            let outcome = runtime.block_on(store.apply(&look)).unwrap();
            assert_eq!(limit.capacity() - outcome.answers[0].remaining, 20, "{name}");
        }
        cluster.no_orphans("tg:1:", TTL_MAX, &[USER]).unwrap();
    }
}

/// A decision states whether it was one atomic step.
#[test]
fn a_decision_over_several_slots_is_conservative_and_one_in_one_slot_is_exact() {
    let runtime = runtime();
    let cluster = Cluster::start(Flavour::Redis70).unwrap();
    let rules = "rules:
  - { id: tenants, per: tenant, limit: { fixed-window: 5/h } }
  - { id: users, per: [tenant, user], limit: { fixed-window: 5/h } }
";
    // Each rule set has its own hash key, so that it starts without consumption.
    for (key_byte, head, expected) in [
        (1, "version: 1\n", Exactness::Conservative),
        (2, "version: 1\npartition: tenant\n", Exactness::Exact),
        (3, "version: 1\nslots: 1\n", Exactness::Exact),
    ] {
        let hash_key = HashKey::new([key_byte; 32]);
        let builder = Limiter::builder().rules_yaml(format!("{head}{rules}")).hash_key(hash_key);
        let limiter = runtime.block_on(builder.redis(settings(&cluster.url())).build()).unwrap();
        for remaining in [4, 3] {
            let decision = runtime.block_on(limiter.check([("tenant", "acme"), ("user", USER)])).unwrap();
            assert_eq!((decision.exactness(), decision.allowed()), (expected, true), "{head}");
            assert!(decision.rules().all(|rule| rule.remaining() == Some(remaining)), "{head}");
        }
    }
    cluster.no_orphans("tg:1:", TTL_MAX, &[USER, "acme"]).unwrap();
}

/// A dead server must not prevent another from refusing, or from accepting a release.
#[test]
fn a_missing_server_neither_hides_a_refusal_nor_drops_a_release() {
    let runtime = runtime();
    let mut cluster = Cluster::start(Flavour::Redis70).unwrap();
    let settings = RedisSettings::url(&cluster.url()).unwrap().deadline(Duration::from_millis(300));
    let store = runtime.block_on(settings.connect()).unwrap();
    let ask = |plan: &Plan<'_>| runtime.block_on(store.apply(plan));
    let [(_, alive), (server, gone)] = on_different_servers(&cluster);
    let places = Limit::Concurrency(Concurrency::new(1, WINDOW).unwrap());
    let over = |of_alive: Operation, of_gone: Operation| {
        let mut plan = Plan::new();
        for (subject, operation) in [(alive, of_alive), (gone, of_gone)] {
            plan.push(Item::new(shared().key(subject), places, operation)).unwrap();
        }
        plan
    };
    let take = |token: u128| Operation::Charge { cost: 1, token: Token(token) };
    let held = ask(&over(take(1), take(1))).unwrap();
    assert!(held.answers.iter().all(|answer| answer.is_admitted()), "{held:?}");
    cluster.kill9(server).unwrap();

    let refused = ask(&over(take(2), take(2))).unwrap();
    assert!(refused.answers[0].is_refused(), "{refused:?}");

    let release = Operation::Release { token: Token(1) };
    let released = ask(&over(release, release)).unwrap_err();
    let StoreError::Transient(cause) = released else { panic!("{released:?}") };
    let cause = cause.downcast::<RedisError>().unwrap();
    assert!(matches!(*cause, RedisError::PartiallyApplied(_)) && cause.may_have_applied(), "{cause:?}");
    let mut again = Plan::new();
    again.push(Item::new(shared().key(alive), places, take(3))).unwrap();
    assert!(ask(&again).unwrap().answers[0].is_admitted(), "the lease on the live server is free");
}

#[test]
fn a_missing_sentinel_does_not_prevent_a_start() {
    let runtime = runtime();
    let mut set = SentinelSet::start(Flavour::Redis70).unwrap();
    let url = set.url();
    set.kill9_sentinel(0).unwrap();
    for _ in 0..5 {
        let store = runtime.block_on(settings(&url).connect()).unwrap();
        assert!(runtime.block_on(store.ready()).is_ok());
    }
}

/// A sentinel may choose a replica that never responds. Until it does, the primary stays the primary.
#[test]
fn a_healthy_primary_is_kept_when_a_replica_hangs() {
    let runtime = runtime();
    let set = SentinelSet::start(Flavour::Redis70).unwrap();
    let store = runtime
        .block_on(RedisSettings::url(&set.url()).unwrap().deadline(Duration::from_millis(300)).connect());
    let store = store.unwrap();
    let limit = counting_limits(60_000, WINDOW).unwrap()[0];
    let replica = set.replica_index().unwrap();
    set.node(replica).stop().unwrap();
    let port = set.sentinel_ports()[0];
    let mut sentinel = Admin::connect(port, None).unwrap();
    sentinel.command(&[b"SENTINEL", b"FAILOVER", set.name().as_bytes()]).unwrap();
    let (mut electing, until) = (0, Instant::now() + Duration::from_millis(1_500));
    while Instant::now() < until {
        let state = sentinel.command(&[b"SENTINEL", b"MASTER", set.name().as_bytes()]).unwrap();
        let Value::Array(fields) = state else { panic!("{state:?}") };
        let said = |field: &Value| matches!(field, Value::Bulk(text) if String::from_utf8_lossy(text).contains("failover_in_progress"));
        electing += u32::from(fields.iter().any(said));
        runtime.block_on(store.apply(&charge(limit, shared(), 1))).expect("the primary is healthy");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(electing > 10, "the failover was in progress: {electing}");
    set.resume(replica).unwrap();
}

/// The primary drops all packets without a reset. A caller that waits for a connection must still notice the failover.
#[test]
fn a_vanished_primary_is_left_as_soon_as_another_is_promoted() {
    let runtime = runtime();
    let set = SentinelSet::builder(Flavour::Redis70).password("secret").proxied().start().unwrap();
    let store = RedisSettings::url(&set.url()).unwrap().deadline(Duration::from_millis(100));
    let store = runtime.block_on(store.connect()).unwrap();
    let limit = counting_limits(60_000, WINDOW).unwrap()[0];
    let ask = || runtime.block_on(store.apply(&charge(limit, shared(), 1)));
    ask().unwrap();
    let old = set.primary_index().unwrap();
    set.partition(old, Cut::Silent).unwrap();
    let promoted = std::thread::scope(|scope| {
        let promotion = scope.spawn(|| set.wait_promoted(old, LONG).unwrap());
        while !promotion.is_finished() {
            drop(ask());
            std::thread::sleep(Duration::from_millis(1));
        }
        promotion.join().unwrap().at
    });
    while ask().is_err() {
        assert!(promoted.elapsed() < LONG, "the store did not recover");
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("vanished: recovered {} ms after the promotion", promoted.elapsed().as_millis());
    assert!(promoted.elapsed() <= RECOVERY_MAX * 2, "{:?}", promoted.elapsed());
    set.heal(old).unwrap();
}

#[test]
fn sentinels_can_have_separate_credentials_and_tls() {
    let runtime = runtime();
    let set = SentinelSet::builder(Flavour::Redis70)
        .password("of-the-nodes")
        .sentinel_password("of-the-sentinels")
        .start()
        .unwrap();
    let limit = counting_limits(LIMIT, WINDOW).unwrap()[0];
    let store = runtime.block_on(settings(&set.url()).connect()).unwrap();
    assert!(runtime.block_on(store.apply(&charge(limit, shared(), 1))).is_ok());
    for password in ["of-the-nodes", "of-the-sentinels"] {
        let opened = runtime.block_on(settings(&set.url().replace(password, "another")).connect());
        let Err(OpenError::Redis(StoreError::Misconfigured(cause))) = opened else { panic!("{password}") };
        let mut text = cause.to_string();
        text.extend(cause.source().map(|source| format!(": {source}")));
        assert!(text.contains("WRONGPASS") && !text.contains("another"), "{password}: {text}");
    }
    for (nodes, sentinels) in [(true, true), (true, false), (false, true)] {
        let mut builder = SentinelSet::builder(Flavour::Redis70);
        if nodes {
            builder = builder.tls_nodes();
        }
        if sentinels {
            builder = builder.tls_sentinels();
        }
        let set = builder.start().unwrap();
        let store = runtime.block_on(settings(&set.url()).connect()).unwrap();
        assert!(runtime.block_on(store.apply(&charge(limit, shared(), 1))).is_ok(), "{}", set.url());
    }
}

#[test]
fn a_server_that_is_neither_sentinel_nor_cluster_is_reported() {
    let runtime = runtime();
    let set = SentinelSet::start(Flavour::Redis70).unwrap();
    let open = |url: &str| {
        let settings = RedisSettings::url(url).unwrap().deadline(LONG);
        let Err(OpenError::Redis(error)) = runtime.block_on(settings.connect()) else { panic!("{url}") };
        let (StoreError::Transient(cause) | StoreError::Misconfigured(cause)) = error else {
            panic!("{url}")
        };
        *cause.downcast::<RedisError>().unwrap()
    };
    let unknown = open(&set.url().replace("/gate", "/other"));
    assert!(matches!(&unknown, RedisError::NoPrimary { source: Some(_), .. }), "{unknown:?}");
    let port = set.primary().unwrap().port();
    let no_cluster = open(&format!("redis+cluster://127.0.0.1:{port}"));
    assert!(no_cluster.to_string().contains("cluster support disabled"), "{no_cluster:?}");
}
