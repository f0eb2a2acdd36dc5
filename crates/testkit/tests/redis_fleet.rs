//! The store on many servers: a primary that sentinels watch over, and a cluster. What it answers, and what it makes of
//! faults. The long forms of the drills are `cargo xtask chaos`.

use std::time::Duration;

use tokio::runtime::Runtime;
use tollgate::store::redis::{OpenError, RedisError, RedisSettings, TimeSource};
use tollgate_core::{Store, StoreError};
use tollgate_testkit::conformance::{Slots, agrees_with_the_model, counting_limits};
use tollgate_testkit::drill::{
    Fault, cluster_failover, control, median, move_slots, sentinel_failovers, stop_for,
};
use tollgate_testkit::redis::{Cluster, Flavour, SentinelSet, Server};

#[path = "common/on_redis.rs"]
mod on_redis;
use on_redis::{LIMIT, LONG, TTL_MAX, USER, WINDOW, charge, clean, runtime, settings, shared, subject};

/// What the store may take beyond a promotion, which is the servers' own doing.
const RECOVERY_MAX: Duration = Duration::from_millis(250);
const STEPS: u64 = 1_500;

/// A store whose time is the suite's, on servers that are emptied first.
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
        let agrees = agrees_with_the_model(&runtime, Slots::One, store, STEPS, seed);
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
            let agrees = agrees_with_the_model(&runtime, slots, store, STEPS, seed);
            agrees.unwrap_or_else(|error| panic!("{flavour}, {slots:?}: {error}"));
        }
        cluster.no_orphans("tg:1:", TTL_MAX, &[USER]).unwrap();
    }
}

#[test]
fn a_primary_that_goes_is_followed_and_nothing_is_admitted_twice_but_what_was_lost() {
    let runtime = runtime();
    let mut set = SentinelSet::start(Flavour::Redis70).unwrap();
    println!("no fault: widest gap {} ms", control(&runtime, &set.url(), 1).unwrap().as_millis());
    for (fault, times, seed) in [(Fault::Kill, 2, 100), (Fault::KillUnheard, 1, 200), (Fault::Stop, 2, 300)] {
        let failovers = sentinel_failovers(&runtime, &mut set, fault, times, seed).unwrap();
        for failover in &failovers {
            assert!(failover.excess <= failover.lost, "{failover}");
            assert!(failover.tally.refused > 0, "the limits were met: {failover}");
            assert!(fault != Fault::KillUnheard || failover.lost > 0, "something was lost: {failover}");
        }
        let median = median(failovers.iter().map(|failover| failover.recovered_after).collect());
        assert!(median <= RECOVERY_MAX, "{fault:?}: {median:?}");
    }
}

#[test]
fn a_primary_of_a_cluster_that_goes_is_missed_by_its_own_slots_only() {
    let runtime = runtime();
    let mut cluster = Cluster::start(Flavour::Redis70).unwrap();
    let (failover, others) = cluster_failover(&runtime, &mut cluster, 1).unwrap();
    assert_eq!((others.unknown, others.failed), (0, 0), "{others:?}");
    assert!(failover.excess <= failover.lost, "{failover}");
    assert!(failover.recovered_after <= RECOVERY_MAX * 2, "{failover}");
    assert!(failover.tally.failed > 0, "the fault was felt: {failover}");
}

#[test]
fn while_slots_move_nothing_is_lost_and_nothing_is_charged_twice() {
    let runtime = runtime();
    let cluster = Cluster::start(Flavour::Redis70).unwrap();
    for (rules, moves) in [(1, 60), (3, 20)] {
        let found = move_slots(&runtime, &cluster, moves, rules, moves).unwrap();
        assert_eq!((found.lost, found.extra), (0, 0), "{found}");
        assert_eq!(found.tally.unknown, 0, "{found}");
        if rules == 1 {
            assert_eq!(found.tally.failed, 0, "{found}");
        }
    }
}

#[test]
fn a_server_that_hangs_costs_little_and_the_breaker_opens_and_closes_once() {
    let runtime = runtime();
    let server = Server::start(Flavour::Redis70).unwrap();
    let deadline = Duration::from_millis(25);
    let found = stop_for(&runtime, &server, deadline, Duration::from_secs(3), 1).unwrap();
    assert!(found.grown_bytes <= 16 << 20, "{found}");
    assert_eq!((found.opened, found.closed), (1, 1), "{found}");
    assert!(found.in_flight <= 4_096, "{found}");
    // A timer fires when a thread has time for it: the machine may be busy.
    assert!(found.slowest <= deadline * 4, "{found}");
}

/// A counter of their own each: all are charged, or none of them, whoever comes first.
#[test]
fn plans_over_several_slots_never_admit_more_than_any_of_their_rules() {
    let runtime = runtime();
    let cluster = Cluster::start(Flavour::Redis70).unwrap();
    let store = runtime.block_on(settings(&cluster.url()).connect()).unwrap();
    let limit = counting_limits(20, WINDOW).unwrap()[0];
    let others = counting_limits(1_000, WINDOW).unwrap()[0];
    let crowd = |number: u64| {
        let store = store.clone();
        async move {
            let mut plan = charge(others, shared(), 0);
            for name in ["first", "second", "third"] {
                let limit = if name == "second" { limit } else { others };
                let operation = tollgate_core::Operation::charge(1);
                let key = shared().key(subject(name));
                plan.push(tollgate_core::Item::new(key, limit, operation)).unwrap();
            }
            if number.is_multiple_of(2) {
                plan.once(subject(&format!("request {number}")), tollgate_core::Span::from_secs(60), 0);
            }
            let outcome = store.apply(&plan).await.unwrap();
            outcome.answers.iter().all(|answer| answer.is_admitted())
        }
    };
    let tasks: Vec<_> = (0..200).map(|number| runtime.spawn(crowd(number))).collect();
    let admitted = tasks.into_iter().filter(|_| true).map(|task| runtime.block_on(task).unwrap());
    let admitted = admitted.filter(|admitted| *admitted).count() as u64;
    // Two who hold the last place for each other may both be refused; then whoever comes next gets it.
    let mut late = 0;
    for number in (1_000..).step_by(2).take(40) {
        late += u64::from(runtime.block_on(crowd(number)));
    }
    println!("several slots: {admitted} of 20 admitted in the crowd, {late} afterwards");
    assert!(admitted <= 20, "{admitted}");
    assert_eq!(admitted + late, 20, "nothing that was held is lost");
    // What was taken back is back: every counter has what was admitted, and no more.
    for (name, limit) in [(USER, others), ("first", others), ("second", limit), ("third", others)] {
        let mut look = tollgate_core::Plan::new();
        let peek = tollgate_core::Operation::Peek { cost: 0 };
        look.push(tollgate_core::Item::new(shared().key(subject(name)), limit, peek)).unwrap();
        let outcome = runtime.block_on(store.apply(&look)).unwrap();
        assert_eq!(limit.capacity() - outcome.answers[0].remaining, 20, "{name}");
    }
    cluster.no_orphans("tg:1:", TTL_MAX, &[USER]).unwrap();
}

#[test]
fn sentinels_have_their_own_door_and_may_speak_tls() {
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
        let mut told = cause.to_string();
        told.extend(cause.source().map(|source| format!(": {source}")));
        assert!(told.contains("WRONGPASS") && !told.contains("another"), "{password}: {told}");
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
fn what_is_no_sentinel_and_no_cluster_is_told_so() {
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
