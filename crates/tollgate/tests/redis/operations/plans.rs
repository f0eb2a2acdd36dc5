//! Plans on the Redis store: what it answers, and what it leaves in Redis.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::store::redis::TimeSource;
use tollgate::{Clock, ManualClock, SystemClock};
use tollgate_core::{Item, Keyspace, Operation, Outcome, Plan, Span, Store, StoreError, Time, Token};
use tollgate_testkit::conformance::{Slots, check_against_model, check_three_mixed_rules, counting_limits};
use tollgate_testkit::redis::{Flavour, Server, no_orphans};

use crate::common::{LIMIT, TTL_MAX, USER, WINDOW, charge, clean, runtime, settings, shared, subject};

#[test]
fn redis_agrees_with_the_model_of_plans_on_every_flavour() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour).unwrap();
        let runtime = runtime();
        let number = AtomicU64::new(0);
        let store = |clock: &'static ManualClock| {
            let prefix = number.fetch_add(1, Ordering::Relaxed);
            let url = format!("{}?prefix=h{prefix}:", server.url());
            let _inside = runtime.enter();
            settings(&url)
                .time(TimeSource::Application)
                .clock(clock)
                // The suite's clock jumps, but the server's clock does not.
                .margin(Duration::from_secs(3_600))
                .open()
                .unwrap()
        };
        check_against_model(&runtime, Slots::One, store, 10_000, 7)
            .unwrap_or_else(|difference| panic!("{difference}"));
        assert!(no_orphans(&mut server.admin().unwrap(), "h", TTL_MAX, &[]).unwrap() > 1_000);
    }
}

#[test]
fn three_mixed_rules_are_charged_all_or_none() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let store = runtime.block_on(settings(&server.url()).connect()).unwrap();
    let empty = || server.admin().unwrap().flushall().unwrap();
    // Three accounts, and a record for each lease if one of the rules takes leases.
    let three_keys = || {
        let keys = clean(&server) as u64;
        assert!(keys == 3 || keys == 3 + LIMIT, "{keys} keys");
    };
    check_three_mixed_rules(&runtime, &store, (LIMIT, WINDOW), empty, three_keys);
}

#[test]
fn a_request_id_is_bound_to_the_content_of_its_plan() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let store = runtime.block_on(settings(&server.url()).connect()).unwrap();
    let limit = counting_limits(LIMIT, WINDOW).unwrap()[0];
    let keyspace = Keyspace::new("test", "named").unwrap();
    let plan = |cost: u64, version: u64| {
        let mut plan = Plan::new();
        plan.push(Item::new(keyspace.key(subject(USER)), limit, Operation::charge(cost))).unwrap();
        plan.set_request_id(subject("request"), Span::from_secs(60), version);
        plan
    };
    let ask = |plan: &Plan<'_>| runtime.block_on(store.apply(plan));
    let first = ask(&plan(1, 1)).unwrap();
    let repeated = Outcome { replayed: true, ..first.clone() };
    assert_eq!(ask(&plan(1, 1)).unwrap(), repeated, "the whole Outcome is the same");
    assert!(matches!(ask(&plan(2, 1)), Err(StoreError::IdReused)));
    assert!(matches!(ask(&plan(1, 2)), Err(StoreError::IdReused)));
    assert_eq!(first.answers[0].remaining, LIMIT - 1);
    assert_eq!(clean(&server), 2);
}

#[test]
fn a_callers_time_is_clamped_to_the_redis_clock_within_the_tolerance() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let clock: &'static ManualClock = Box::leak(Box::new(ManualClock::at(Time::ZERO)));
    let tolerance = Span::from_secs(2);
    let store = {
        let _inside = runtime.enter();
        settings(&server.url()).time(TimeSource::Caller { tolerance }).clock(clock).open().unwrap()
    };
    let limit = counting_limits(LIMIT, WINDOW).unwrap()[0];
    let key = shared().key(subject(USER)).to_string();
    let mut admin = server.admin().unwrap();
    let mut decided_at = |caller: Time| {
        clock.set(caller);
        let outcome = runtime.block_on(store.apply(&charge(limit, shared(), 1))).unwrap();
        // A caller whose clock is as slow as the tolerance permits still finds the state until it expires.
        let counts_ms = (outcome.answers[0].reset_at - outcome.now).ms_ceil() as i64;
        let kept_ms = admin.pttl(key.as_bytes()).unwrap();
        assert!(kept_ms >= counts_ms, "kept for {kept_ms} ms, counts for {counts_ms} ms");
        outcome.now
    };
    let before = SystemClock.now();
    let (slow, fast) = (decided_at(Time::ZERO), decided_at(Time::MAX));
    let right = SystemClock.now();
    let (same, after) = (decided_at(right), SystemClock.now());
    assert!(before.minus(tolerance) <= slow && slow <= after.minus(tolerance), "{slow:?}");
    assert!(before.plus(tolerance) <= fast && fast <= after.plus(tolerance), "{fast:?}");
    assert_eq!(same, right);
    clean(&server);
}

/// An undeclared key breaks a cluster when it reshards, and no server reports it earlier.
#[test]
fn scripts_touch_declared_keys_only() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/redis/lua");
    let mut calls = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let source = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for line in source.lines().filter(|line| !line.trim_start().starts_with("--")) {
            let call = ["call('", "pcall_redis('"].iter().find_map(|call| line.split_once(call));
            let Some((_, call)) = call else { continue };
            calls += 1;
            let key = call.split_once(", ").map_or("", |(_, key)| key);
            let declared = call.starts_with("TIME')") || key.starts_with("KEYS[") || key.starts_with("key,");
            assert!(declared, "{line}");
        }
        for (at, _) in source.match_indices("local key =") {
            assert!(
                source[at..].starts_with("local key = KEYS["),
                "{}",
                source[at..].lines().next().unwrap()
            );
        }
    }
    assert!(calls >= 8, "{calls} calls");
}

#[test]
fn a_plan_with_too_many_items_is_rejected() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let store = runtime.block_on(settings(&server.url()).deadline(Duration::MAX).connect()).unwrap();
    let keyspaces: Vec<Keyspace> =
        (0..256).map(|rule| Keyspace::new("test", &format!("rule-{rule}")).unwrap()).collect();
    let limit = counting_limits(LIMIT, WINDOW).unwrap()[0];
    let plan_of = |rules: usize| {
        let mut plan = Plan::new();
        for keyspace in &keyspaces[..rules] {
            plan.push(Item::new(keyspace.key(subject(USER)), limit, Operation::charge(1))).unwrap();
        }
        plan
    };
    let found = runtime.block_on(store.apply(&plan_of(256)));
    assert!(matches!(found, Err(StoreError::Misconfigured(_))), "{found:?}");
    assert_eq!(clean(&server), 0);
    let outcome = runtime.block_on(store.apply(&plan_of(255))).unwrap();
    assert!(outcome.answers.iter().all(|answer| answer.remaining == LIMIT - 1));
    assert_eq!(clean(&server), 255);
}

#[test]
fn state_still_expires_without_a_margin() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let store = runtime.block_on(settings(&server.url()).margin(Duration::ZERO).connect()).unwrap();
    let limit = counting_limits(LIMIT, WINDOW).unwrap()[7];
    runtime.block_on(store.apply(&charge(limit, shared(), 0))).unwrap();
    let mut release = Plan::new();
    release
        .push(Item::new(shared().key(subject(USER)), limit, Operation::Release { token: Token(1) }))
        .unwrap();
    let outcome = runtime.block_on(store.apply(&release)).unwrap();
    assert_eq!(outcome.answers[0].remaining, LIMIT);
    clean(&server);
}
