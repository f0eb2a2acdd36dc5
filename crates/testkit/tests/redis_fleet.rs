//! The store on many servers: a primary that sentinels watch over, and a cluster. What it answers, and what it makes of
//! faults. The long forms of the drills are `cargo xtask chaos`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tollgate::store::redis::{OpenError, RedisError, RedisSettings, TimeSource};
use tollgate::{HashKey, Limiter};
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::{Exactness, Item, Limit, Operation, Plan, Span, Store, StoreError, Subject, Token};
use tollgate_testkit::conformance::{
    Slots, agrees_with_the_model, counting_limits, crowd, three_mixed_rules_are_charged_alike,
};
use tollgate_testkit::drill::{
    Fault, cluster_failover, control, median, move_slots, sentinel_failovers, stop_for,
};
use tollgate_testkit::redis::{Admin, Cluster, Cut, Flavour, SentinelSet, Server, Value, slot_of};

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

/// Under every algorithm, and under three mixed rules of one slot.
fn exactly_the_limit(runtime: &Runtime, url: &str, empty: impl Fn()) {
    let store = runtime.block_on(settings(url).connect()).unwrap();
    let limits = counting_limits(LIMIT, WINDOW).unwrap();
    for limit in limits {
        empty();
        let found = crowd(runtime, &store, 10_000, move |number| charge(limit, shared(), number));
        assert_eq!(found, (LIMIT, 0), "{limit:?}");
    }
    three_mixed_rules_are_charged_alike(runtime, &store, (LIMIT, WINDOW), empty, || ());
}

#[test]
fn a_crowd_gets_exactly_the_limit_behind_sentinels_and_on_a_cluster() {
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
        // A check whose answer came too late, on a busy machine, may have been charged.
        assert!(found.lost == 0 && found.extra <= found.tally.unknown, "{found}");
        assert!(found.tally.unknown + found.tally.failed <= found.tally.admitted / 50, "{found}");
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
    // A timer fires when a thread has time for it, and the machine may be busy; but nobody waited for the server.
    assert!(found.slowest <= deadline * 10, "{found}");
}

/// One check under four rules whose subjects are four people: four slots.
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

/// All are charged, or none of them, whoever comes first; and under the same id once, however often and however close.
#[test]
fn plans_over_several_slots_never_admit_more_than_any_of_their_rules() {
    let runtime = runtime();
    let cluster = Cluster::start(Flavour::Redis70).unwrap();
    let store = runtime.block_on(settings(&cluster.url()).connect()).unwrap();
    let (tight, loose) =
        (counting_limits(20, WINDOW).unwrap()[0], counting_limits(1_000, WINDOW).unwrap()[0]);
    // The third of them has least, so that others are charged before it refuses.
    let limits = [loose, loose, tight, loose];
    let ask = |id: Option<u64>| {
        let (store, plan) = (store.clone(), over_four_slots(limits, id));
        async move { store.apply(&plan).await.unwrap().answers.iter().all(|answer| answer.is_admitted()) }
    };
    // By number of the request: none of them has an id, all have their own, or four have the same.
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
        // Two who hold the last place for each other may both be refused; then whoever comes next gets it.
        let late = (1_000..1_040).filter(|&number| runtime.block_on(ask(Some(number)))).count();
        println!("several slots: {} of 20 admitted in the crowd, {late} afterwards", admitted.len());
        assert_eq!(admitted.len() + late, 20, "nothing that was held is lost");
        // What was taken back is back: every counter has what was admitted, and no more.
        for (name, limit) in FOUR.into_iter().zip(limits) {
            let mut look = Plan::new();
            look.push(Item::new(shared().key(subject(name)), limit, Operation::Peek { cost: 0 })).unwrap();
            let outcome = runtime.block_on(store.apply(&look)).unwrap();
            assert_eq!(limit.capacity() - outcome.answers[0].remaining, 20, "{name}");
        }
        cluster.no_orphans("tg:1:", TTL_MAX, &[USER]).unwrap();
    }
}

/// Whoever reads a decision learns whether it was one step.
#[test]
fn a_decision_over_several_slots_is_conservative_and_one_in_one_slot_is_exact() {
    let runtime = runtime();
    let cluster = Cluster::start(Flavour::Redis70).unwrap();
    let rules = "rules:
  - { id: tenants, per: tenant, limit: { fixed-window: 5/h } }
  - { id: users, per: [tenant, user], limit: { fixed-window: 5/h } }
";
    for (head, expected) in [
        ("version: 1\n", Exactness::Conservative),
        ("version: 1\npartition: tenant\n", Exactness::Exact),
        ("version: 1\nslots: 1\n", Exactness::Exact),
    ] {
        let builder = Limiter::builder().rules_yaml(format!("{head}{rules}")).hash_key(HashKey::new([7; 32]));
        let limiter = runtime.block_on(builder.redis(settings(&cluster.url())).build()).unwrap();
        for remaining in [4, 3] {
            let decision = runtime.block_on(limiter.check([("tenant", "acme"), ("user", USER)])).unwrap();
            assert_eq!((decision.exactness(), decision.allowed()), (expected, true), "{head}");
            assert!(decision.rules().all(|rule| rule.remaining() == Some(remaining)), "{head}");
        }
    }
    cluster.no_orphans("tg:1:", TTL_MAX, &[USER, "acme"]).unwrap();
}

/// The keys of one rule for subjects that lie on these two servers of a cluster.
fn on_different_servers(cluster: &Cluster) -> [(usize, Subject); 2] {
    let found = |wanted: &dyn Fn(usize) -> bool| {
        let candidates = (0..).map(|number| subject(&format!("user {number}")));
        let placed = candidates.map(|subject| {
            let key = shared().key(subject).to_string();
            (cluster.owner(slot_of(key.as_bytes())).unwrap(), subject)
        });
        placed.into_iter().find(|(owner, _)| wanted(*owner)).unwrap()
    };
    let first = found(&|_| true);
    [first, found(&|owner| owner != first.0)]
}

/// One dead server must not keep another from refusing, or from taking back what it is given.
#[test]
fn a_server_that_is_gone_neither_hides_a_refusal_nor_swallows_a_release() {
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
    assert!(ask(&again).unwrap().answers[0].is_admitted(), "the place on the server that lives is free");
}

#[test]
fn a_sentinel_that_is_gone_keeps_nobody_from_starting() {
    let runtime = runtime();
    let mut set = SentinelSet::start(Flavour::Redis70).unwrap();
    let url = set.url();
    set.kill9_sentinel(0).unwrap();
    for _ in 0..5 {
        let store = runtime.block_on(settings(&url).connect()).unwrap();
        assert!(runtime.block_on(store.ready()).is_ok());
    }
}

/// A sentinel may choose a replica that never obeys: until it does, the primary is the primary.
#[test]
fn a_primary_that_is_well_is_not_left_for_a_replica_that_hangs() {
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
        runtime.block_on(store.apply(&charge(limit, shared(), 1))).expect("the primary is well");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(electing > 10, "the failover was under way: {electing}");
    set.resume(replica).unwrap();
}

/// No packet comes back, not even one that says so: whoever waits for a connection must not miss the switch.
#[test]
fn a_primary_that_vanished_is_left_as_soon_as_there_is_another() {
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
        assert!(promoted.elapsed() < LONG, "never came back");
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("vanished: recovered {} ms after the promotion", promoted.elapsed().as_millis());
    assert!(promoted.elapsed() <= RECOVERY_MAX * 2, "{:?}", promoted.elapsed());
    set.heal(old).unwrap();
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
