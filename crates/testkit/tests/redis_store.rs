//! The store in Redis, on real servers: what it answers, from many processes, through broken connections, on a flushed
//! script cache, and what it leaves behind.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tollgate::store::redis::{RedisError, RedisSettings, RedisStore, TimeSource};
use tollgate::{Clock, ManualClock, SystemClock};
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::{
    Item, Keyspace, Limit, Operation, Outcome, Plan, Span, State, Store, StoreError, Time, Token,
};
use tollgate_testkit::conformance::{
    Slots, agrees_with_the_model, counting_limits, crowd, three_mixed_rules_are_charged_alike,
};
use tollgate_testkit::redis::{Admin, Flavour, Server, no_orphans};

mod on_redis;

use on_redis::{LIMIT, LONG, TTL_MAX, USER, WINDOW, charge, clean, runtime, settings, shared, subject};

const ATTEMPTS: u64 = 10_000;

fn one_thread() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn redis_agrees_with_the_model_of_plans_whatever_server_it_is() {
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
                // The clock of the suite jumps; that of the server does not.
                .margin(Duration::from_secs(3_600))
                .open()
                .unwrap()
        };
        agrees_with_the_model(&runtime, Slots::One, store, 10_000, 7)
            .unwrap_or_else(|difference| panic!("{difference}"));
        assert!(no_orphans(&mut server.admin().unwrap(), "h", TTL_MAX, &[]).unwrap() > 1_000);
    }
}

#[test]
fn three_processes_get_exactly_the_limit_under_every_algorithm() {
    let server = Server::start(Flavour::Redis70).unwrap();
    for limit in 0..counting_limits(LIMIT, WINDOW).unwrap().len() {
        server.admin().unwrap().flushall().unwrap();
        let shares = [3_334, 3_333, 3_333];
        let mut first = 0;
        let mut contenders: Vec<Child> = shares
            .iter()
            .map(|share| {
                let arguments = [server.url(), limit.to_string(), share.to_string(), first.to_string()];
                first += share;
                Command::new(env!("CARGO_BIN_EXE_contender"))
                    .args(arguments)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        assert_eq!(first, ATTEMPTS);
        let mut said: Vec<_> =
            contenders.iter_mut().map(|contender| BufReader::new(contender.stdout.take().unwrap())).collect();
        let line = |said: &mut BufReader<ChildStdout>| {
            let mut line = String::new();
            said.read_line(&mut line).unwrap();
            line.trim().to_owned()
        };
        // None begins before all are there.
        assert!(said.iter_mut().all(|said| line(said) == "ready"));
        for contender in &mut contenders {
            contender.stdin.take().unwrap().write_all(b"\n").unwrap();
        }
        let admitted = contenders.into_iter().zip(&mut said).map(|(mut contender, said)| {
            let admitted = line(said).parse::<u64>().unwrap();
            assert!(contender.wait().unwrap().success());
            admitted
        });
        assert_eq!(admitted.sum::<u64>(), LIMIT, "limit {limit}");
        assert_eq!(clean(&server), 1);
    }
}

#[test]
fn three_mixed_rules_are_charged_all_or_none() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let store = runtime.block_on(settings(&server.url()).connect()).unwrap();
    let empty = || server.admin().unwrap().flushall().unwrap();
    let three_keys = || assert_eq!(clean(&server), 3);
    three_mixed_rules_are_charged_alike(&runtime, &store, (LIMIT, WINDOW), empty, three_keys);
}

#[test]
fn a_flushed_script_cache_is_healed_within_the_call() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let store = runtime.block_on(settings(&server.url()).connect()).unwrap();
    let (done, flushes) = (AtomicBool::new(false), AtomicU64::new(0));
    let limit = counting_limits(5 * LIMIT, WINDOW).unwrap()[4];
    let (admitted, failed) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut admin = server.admin().unwrap();
            while !done.load(Ordering::Relaxed) {
                admin.script_flush().unwrap();
                flushes.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let began = Instant::now();
        let (mut admitted, mut failed, mut attempts) = (0, 0, 0);
        while began.elapsed() < Duration::from_secs(2) {
            let found = crowd(&runtime, &store, 2_000, move |number| charge(limit, shared(), number));
            (admitted, failed, attempts) = (admitted + found.0, failed + found.1, attempts + 2_000);
        }
        done.store(true, Ordering::Relaxed);
        assert!(attempts > 5 * LIMIT, "only {attempts} attempts");
        (admitted, failed)
    });
    assert!(flushes.into_inner() >= 20);
    assert_eq!((admitted, failed), (5 * LIMIT, 0));
    clean(&server);
}

#[test]
fn an_id_is_bound_to_what_it_asks_for() {
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
    assert_eq!(ask(&plan(1, 1)).unwrap(), first, "the same answer, whole");
    assert!(matches!(ask(&plan(2, 1)), Err(StoreError::IdReused)));
    assert!(matches!(ask(&plan(1, 2)), Err(StoreError::IdReused)));
    assert_eq!(first.answers[0].remaining, LIMIT - 1);
    assert_eq!(clean(&server), 2);
}

#[test]
fn a_corrupt_key_fails_its_own_plan_and_no_other() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = one_thread();
    let store = runtime.block_on(settings(&server.url()).connect()).unwrap();
    let keyspace = Keyspace::new("test", "broken").unwrap();
    let mut admin = server.admin().unwrap();
    for limit in counting_limits(LIMIT, WINDOW).unwrap() {
        admin.flushall().unwrap();
        let (bad, good) = (keyspace.key(subject("bad")), keyspace.key(subject("good")));
        let plan_of = |key| {
            let mut plan = Plan::new();
            let operation = Operation::Charge { cost: 1, token: Token(1) };
            plan.push(Item::new(key, limit, operation)).unwrap();
            plan
        };
        runtime.block_on(store.apply(&plan_of(bad))).unwrap();
        let name = bad.to_string();
        let tollgate_testkit::redis::Value::Bulk(fine) = admin.command(&[b"GET", name.as_bytes()]).unwrap()
        else {
            panic!("no state");
        };
        State::decode(&fine).unwrap();
        let mut broken = vec![fine[..fine.len() - 1].to_vec(), b"x".to_vec(), [9; 8].to_vec()];
        // A number that no machine writes, wherever one stands.
        for word in 1..fine.len() / 8 {
            let mut bytes = fine.clone();
            bytes[word * 8..word * 8 + 8].copy_from_slice(&[0xff; 8]);
            if State::decode(&bytes).is_err() {
                broken.push(bytes);
            }
        }
        for bytes in broken {
            admin.command(&[b"SET", name.as_bytes(), &bytes, b"PX", b"60000"]).unwrap();
            // In one batch: both wait before the lane, a task of the same thread, has a turn.
            let (first, second) = runtime.block_on(async {
                let (bad, good) = (plan_of(bad), plan_of(good));
                tokio::join!(store.apply(&bad), store.apply(&good))
            });
            assert!(matches!(first, Err(StoreError::Corrupt { .. })), "{limit:?} {bytes:?}: {first:?}");
            assert!(second.is_ok(), "{limit:?}: {second:?}");
        }
        admin.command(&[b"DEL", name.as_bytes()]).unwrap();
        admin.command(&[b"LPUSH", name.as_bytes(), b"a list"]).unwrap();
        let found = runtime.block_on(store.apply(&plan_of(bad)));
        assert!(matches!(found, Err(StoreError::Corrupt { .. })), "{limit:?}: {found:?}");
    }
}

/// A log of thousands of entries is edited in place, wraps, grows and shrinks; the twins' suite only knows short ones.
#[test]
fn a_long_log_is_the_same_in_redis_and_in_memory() {
    use tollgate::MemoryStore;
    use tollgate_core::Mark;
    use tollgate_core::algorithm::sliding_log::SlidingLog;
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let clock: &'static ManualClock =
        Box::leak(Box::new(ManualClock::at(Time::from_us(1_700_000_000_000_000))));
    let store = {
        let _inside = runtime.enter();
        let settings = settings(&server.url()).time(TimeSource::Application).clock(clock);
        settings.margin(Duration::from_secs(3_600)).open().unwrap()
    };
    let memory = MemoryStore::with_clock(clock);
    let limit = Limit::SlidingLog(SlidingLog::with_entries(1 << 40, Span::from_ms(50), 2_000).unwrap());
    let keyspace = Keyspace::new("test", "log").unwrap();
    let key = keyspace.key(subject(USER));
    let mut random = 1_u64;
    let mut draw = move |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut booked: Vec<Mark> = Vec::new();
    let (mut refused, mut longest) = (0, 0);
    for step in 0..12_000_u64 {
        // Dense for a while, then sparse: the log grows to its bound and shrinks again.
        clock.advance(Duration::from_micros(if step / 3_000 % 2 == 0 { draw(40) } else { draw(2_000) }));
        let operation = match draw(20) {
            0 if !booked.is_empty() => {
                let back = draw(booked.len().min(20) as u64) as usize;
                Operation::Refund { mark: booked[booked.len() - 1 - back], cost: 1 + draw(3) }
            }
            1 => Operation::Peek { cost: 1 << 40 },
            2 => Operation::Peek { cost: draw(1 << 40) },
            _ => Operation::charge(1 + draw(1 << 28)),
        };
        let mut plan = Plan::new();
        plan.push(Item::new(key, limit, operation)).unwrap();
        let (found, expected): (Outcome, Outcome) =
            (runtime.block_on(store.apply(&plan)).unwrap(), memory.apply_now(&plan));
        assert_eq!(found, expected, "step {step} {operation:?}");
        let answer = found.answers[0];
        booked.extend((answer.mark != Mark::None).then_some(answer.mark));
        refused += u64::from(answer.is_refused());
        if step % 500 == 0 {
            let mut admin = server.admin().unwrap();
            let reply = admin.command(&[b"GET", key.to_string().as_bytes()]).unwrap();
            let tollgate_testkit::redis::Value::Bulk(bytes) = reply else { panic!("{reply:?}") };
            let State::SlidingLog(log) = State::decode(&bytes).unwrap() else { panic!("another kind") };
            longest = longest.max(log.entries.len());
        }
    }
    assert!(longest > 1_500 && refused > 100, "longest {longest}, refused {refused}");
}

/// A check on a log of 100,000 entries reads a few of them and writes one.
#[test]
fn a_log_of_a_hundred_thousand_takes_16_bytes_an_entry_and_few_steps() {
    use tollgate_core::algorithm::sliding_log::{Entry, SlidingLog, SlidingLogState};
    const ENTRIES: u64 = 100_000;
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let clock: &'static ManualClock =
        Box::leak(Box::new(ManualClock::at(Time::from_us(1_700_000_000_000_000))));
    let store = {
        let _inside = runtime.enter();
        let settings = settings(&server.url()).time(TimeSource::Application).clock(clock);
        settings.margin(Duration::from_secs(3_600)).open().unwrap()
    };
    // Entries a second apart, the oldest of which leave one by one.
    let second = Span::from_secs(1);
    let window = Span::from_secs(ENTRIES);
    let limit = Limit::SlidingLog(SlidingLog::with_entries(1 << 40, window, ENTRIES + 10_000).unwrap());
    let start = clock.now().minus(Span::from_us(ENTRIES * second.us()));
    let entries = (1..=ENTRIES)
        .map(|number| Entry { time: start.plus(Span::from_us(number * second.us())), total: number });
    let state = State::SlidingLog(SlidingLogState { base: 0, entries: entries.collect() });
    let key = shared().key(subject(USER)).to_string();
    let mut admin = server.admin().unwrap();
    admin.command(&[b"SET", key.as_bytes(), &state.encode(), b"PX", b"600000000"]).unwrap();

    let mut commands = |operation, steps: u64| {
        admin.command(&[b"CONFIG", b"RESETSTAT"]).unwrap();
        for _ in 0..steps {
            clock.advance(second.into());
            let mut plan = Plan::new();
            plan.push(Item::new(shared().key(subject(USER)), limit, operation)).unwrap();
            runtime.block_on(store.apply(&plan)).unwrap();
        }
        let stats = admin.info("commandstats").unwrap();
        let calls = |name: &str| {
            let line = stats.get(&format!("cmdstat_{name}"))?;
            line.split(',').find_map(|part| part.strip_prefix("calls="))?.parse::<u64>().ok()
        };
        let all: Vec<u64> = ["getrange", "setrange", "set", "get", "pexpire"]
            .map(|name| calls(name).unwrap_or(0) / steps)
            .to_vec();
        let bytes = admin.memory_usage(key.as_bytes()).unwrap().unwrap();
        (all, bytes)
    };
    // The first admission cuts the ring anew; the others edit it in place.
    commands(Operation::charge(1), 1);
    let (charged, bytes) = commands(Operation::charge(1), 50);
    let (refused, _) = commands(Operation::Peek { cost: 1 << 40 }, 50);
    println!(
        "reads, writes, sets, gets, expiries per charge: {charged:?}, per refusal: {refused:?}; {bytes} bytes"
    );
    assert!(charged[0] <= 6 && charged[1..] == [2, 0, 0, 1], "{charged:?}");
    // A refusal searches for the entry that must leave: one read for each halving of the log.
    assert!(refused[0] <= 40 && refused[1..] == [0, 0, 0, 0], "{refused:?}");
    assert!(bytes <= 16 * ENTRIES, "{bytes} bytes for {ENTRIES} entries");
}

#[test]
fn a_callers_clock_is_kept_within_its_tolerance_of_that_of_redis() {
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
        // Whoever is as slow as may be still finds the state until it is dead for them.
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

/// A key that is not declared breaks a cluster the day it reshards, and no server says so before.
#[test]
fn scripts_touch_declared_keys_only() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tollgate/src/store/redis/lua");
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
fn a_stopped_server_fails_the_call_in_time_and_a_late_caller_is_never_charged() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let short = Duration::from_millis(50);
    let store: RedisStore =
        runtime.block_on(RedisSettings::url(&server.url()).unwrap().deadline(short).connect()).unwrap();
    let limit = counting_limits(LIMIT, WINDOW).unwrap()[9];
    let keyspace = Keyspace::new("test", "stopped").unwrap();
    runtime.block_on(store.apply(&charge(limit, &keyspace, 0))).unwrap();
    server.stop().unwrap();
    let slowest = (1..40)
        .map(|number| {
            let began = Instant::now();
            let found = runtime.block_on(store.apply(&charge(limit, &keyspace, number)));
            assert!(matches!(found, Err(StoreError::Transient(_))), "{found:?}");
            began.elapsed()
        })
        .max()
        .unwrap();
    assert!(slowest < short * 4, "{slowest:?}");
    // On each of two connections two loads are under way at a time, and once they are given up, no check is sent to see
    // whether one works.
    let under_way = 4;
    server.resume().unwrap();
    let answered = Instant::now();
    let outcome = loop {
        if let Ok(outcome) = runtime.block_on(store.apply(&charge(limit, &keyspace, 99))) {
            break outcome;
        }
        assert!(answered.elapsed() < LONG, "never came back");
    };
    // The first, the last, and at most what was on the wire when it went on: all others were never sent.
    let charged = LIMIT - outcome.answers[0].remaining;
    assert!((2..=2 + under_way).contains(&charged), "{charged} of which {under_way} under way");
    clean(&server);
}

#[test]
fn who_may_not_come_in_is_told_so_and_never_let_pass() {
    let line = "tollgate on >secret ~tg:* resetchannels -@all +eval +evalsha +get +getrange +set +setrange +pexpire +del +time +select";
    let server = Server::builder(Flavour::Redis70).password("admin").user(line).start().unwrap();
    let runtime = runtime();
    let port = server.port();
    for (url, wanted) in [
        (format!("redis://127.0.0.1:{port}"), "NOAUTH"),
        (format!("redis://tollgate:wrong@127.0.0.1:{port}"), "WRONGPASS"),
        (format!("redis://tollgate:secret@127.0.0.1:{port}/99"), "DB index"),
    ] {
        let error = runtime.block_on(settings(&url).connect()).err().unwrap();
        let tollgate::store::redis::OpenError::Redis(StoreError::Misconfigured(cause)) = error else {
            panic!("{url}: {error:?}");
        };
        assert!(cause.to_string().contains(wanted), "{url}: {cause}");
        assert!(!cause.to_string().contains("secret"));
    }
    // The line is enough for everything.
    let url = format!("redis://tollgate:secret@127.0.0.1:{port}/1");
    let store = runtime.block_on(settings(&url).connect()).unwrap();
    let keyspace = Keyspace::new("test", "allowed").unwrap();
    for limit in counting_limits(LIMIT, WINDOW).unwrap() {
        let plan = charge(limit, &keyspace, 1);
        assert!(runtime.block_on(store.apply(&plan)).unwrap().answers[0].is_admitted(), "{limit:?}");
        let mut reset = Plan::new();
        reset.push(Item::new(keyspace.key(subject(USER)), limit, Operation::Reset)).unwrap();
        runtime.block_on(store.apply(&reset)).unwrap();
    }
    // Another prefix is not: it is a setting, and no reason to let everybody pass.
    let store = runtime.block_on(settings(&format!("{url}?prefix=other:")).connect()).unwrap();
    let found = runtime.block_on(store.apply(&charge(counting_limits(2, WINDOW).unwrap()[0], &keyspace, 1)));
    assert!(matches!(found, Err(StoreError::Misconfigured(_))), "{found:?}");
}

/// Redis has no memory left, or became a replica: that may pass, so the rules' failure policies answer.
#[test]
fn what_may_pass_is_told_apart_from_what_must_be_set_right() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour).unwrap();
        let runtime = runtime();
        let store = runtime.block_on(settings(&server.url()).connect()).unwrap();
        let mut admin = server.admin().unwrap();
        let limit = counting_limits(LIMIT, WINDOW).unwrap()[0];
        let ask = || runtime.block_on(store.apply(&charge(limit, shared(), 1)));
        assert!(ask().is_ok());
        for (trouble, relief) in [
            (["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"]),
            (["REPLICAOF", "127.0.0.1", "1", ""], ["REPLICAOF", "NO", "ONE", ""]),
        ] {
            let words = |command: [&'static str; 4]| -> Vec<&'static [u8]> {
                command.into_iter().filter(|word| !word.is_empty()).map(str::as_bytes).collect()
            };
            admin.command(&words(trouble)).unwrap();
            let found = ask();
            assert!(matches!(found, Err(StoreError::Transient(_))), "{flavour} {trouble:?}: {found:?}");
            admin.command(&words(relief)).unwrap();
            // A server that takes no writes is left, and tried again after a pause.
            let relieved = Instant::now();
            while ask().is_err() {
                assert!(relieved.elapsed() < Duration::from_secs(2), "{flavour} {relief:?}");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        clean(&server);
    }
}

#[test]
fn tls_trusts_whom_it_is_told_to() {
    let server = Server::builder(Flavour::Redis70).tls().start().unwrap();
    let runtime = runtime();
    let url = server.tls_url().unwrap();
    let authority = server.certificates().unwrap().authority().display().to_string();
    let store = runtime.block_on(settings(&format!("{url}?ca={authority}")).connect()).unwrap();
    let keyspace = Keyspace::new("test", "secret").unwrap();
    let plan = charge(counting_limits(2, WINDOW).unwrap()[0], &keyspace, 1);
    let admitted = || runtime.block_on(store.apply(&plan)).unwrap().answers[0].is_admitted();
    assert_eq!([admitted(), admitted(), admitted()], [true, true, false]);
    // Nobody else vouches for it.
    let error = runtime.block_on(settings(&url).connect()).err().unwrap();
    assert!(format!("{error:?}").contains("UnknownIssuer"), "{error:?}");
    clean(&server);
}

#[test]
fn more_than_may_wait_are_turned_away_at_once() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let store = runtime.block_on(settings(&server.url()).in_flight_max(100).connect()).unwrap();
    server.stop().unwrap();
    let keyspace = Keyspace::new("test", "waiting").unwrap();
    let limit = counting_limits(LIMIT, WINDOW).unwrap()[0];
    let plans: Vec<Plan<'_>> = (0..1_000).map(|number| charge(limit, &keyspace, number)).collect();
    let busy = runtime.block_on(async {
        let mut asked: Vec<_> = plans.iter().map(|plan| Box::pin(store.apply(plan))).collect();
        let mut busy = 0;
        for ask in &mut asked {
            let found = tokio::time::timeout(Duration::from_millis(1), ask.as_mut()).await;
            let Ok(Err(StoreError::Transient(cause))) = found else { continue };
            busy += usize::from(matches!(*cause.downcast::<RedisError>().unwrap(), RedisError::Busy));
        }
        busy
    });
    assert_eq!(busy, 1_000 - 100, "those under way and those that wait are a hundred together");
    server.resume().unwrap();
}

#[test]
fn a_check_that_too_many_rules_match_is_refused_whole() {
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

/// A log may have as many entries as any limit allows, and not one slot more.
#[test]
fn a_log_of_a_million_entries_stays_readable() {
    use tollgate_core::algorithm::sliding_log::{ENTRIES_MAX, Entry, SlidingLog, SlidingLogState};
    const ENTRIES: u64 = 1_000_000;
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let store = runtime.block_on(settings(&server.url()).connect()).unwrap();
    let limit = Limit::SlidingLog(SlidingLog::with_entries(1 << 40, WINDOW, ENTRIES_MAX).unwrap());
    let start = store.now().minus(Span::from_secs(3_600));
    let entries =
        (1..=ENTRIES).map(|number| Entry { time: start.plus(Span::from_us(number)), total: number });
    let state = State::SlidingLog(SlidingLogState { base: 0, entries: entries.collect() }).encode();
    let key = shared().key(subject(USER)).to_string();
    let mut admin = server.admin().unwrap();
    admin.command(&[b"SET", key.as_bytes(), &state, b"PX", b"600000000"]).unwrap();
    for number in 1..=3 {
        let outcome = runtime.block_on(store.apply(&charge(limit, shared(), number))).unwrap();
        assert_eq!(outcome.answers[0].remaining, (1 << 40) - ENTRIES - number);
    }
}

#[test]
fn what_cannot_be_read_changes_nothing_else_and_can_be_reset() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = one_thread();
    let store = runtime.block_on(settings(&server.url()).connect()).unwrap();
    let mut admin = server.admin().unwrap();
    let limits = counting_limits(LIMIT, WINDOW).unwrap();
    let keyspaces = ["a", "b", "c"].map(|rule| Keyspace::new("test", rule).unwrap());
    let items = [(0, limits[4]), (1, limits[3]), (2, limits[4])];
    let plan_of = |number: u64| {
        let mut plan = Plan::new();
        for (at, limit) in items {
            let operation = Operation::Charge { cost: 1, token: Token(u128::from(number) + 1) };
            plan.push(Item::new(keyspaces[at].key(subject(USER)), limit, operation)).unwrap();
        }
        plan
    };
    for number in 0..60 {
        runtime.block_on(store.apply(&plan_of(number))).unwrap();
    }
    // A log that is longer than it says: found before the first of the three is charged, and named.
    let log = keyspaces[1].key(subject(USER)).to_string();
    admin.command(&[b"APPEND", log.as_bytes(), b"stray"]).unwrap();
    let found = runtime.block_on(store.apply(&plan_of(60)));
    assert!(matches!(&found, Err(StoreError::Corrupt { rule, .. }) if rule == "b"), "{found:?}");
    let mut look = Plan::new();
    look.push(Item::new(keyspaces[0].key(subject(USER)), limits[4], Operation::Peek { cost: 0 })).unwrap();
    assert_eq!(runtime.block_on(store.apply(&look)).unwrap().answers[0].remaining, LIMIT - 60);
    // Whoever may reset can do so whatever lies there.
    let mut reset = Plan::new();
    reset.push(Item::new(keyspaces[1].key(subject(USER)), limits[3], Operation::Reset)).unwrap();
    runtime.block_on(store.apply(&reset)).unwrap();
    assert!(runtime.block_on(store.apply(&plan_of(61))).is_ok());

    // The same for what is remembered of a request.
    let mut named = plan_of(62);
    named.set_request_id(subject("request"), Span::from_secs(60), 0);
    let first = runtime.block_on(store.apply(&named)).unwrap();
    let ids = admin.scan("*@id*").unwrap();
    assert_eq!(ids.len(), 1);
    assert_eq!(runtime.block_on(store.apply(&named)).unwrap(), first);
    let garbage: [&[&[u8]]; 3] = [
        &[
            b"SETRANGE",
            &ids[0],
            b"100",
            b"longer than any answer to three items is: a hundred bytes and more",
        ],
        &[b"SET", &ids[0], b"short", b"PX", b"60000"],
        &[b"LPUSH", &ids[0], b"a list"],
    ];
    for command in garbage {
        if command[0] == b"LPUSH" {
            admin.command(&[b"DEL", &ids[0]]).unwrap();
        }
        admin.command(command).unwrap();
        let other = plan_of(63);
        let (bad, good) = runtime.block_on(async { tokio::join!(store.apply(&named), store.apply(&other)) });
        assert!(matches!(bad, Err(StoreError::Corrupt { .. })), "{bad:?}");
        assert!(good.is_ok(), "{good:?}");
    }
}

#[test]
fn without_a_margin_state_still_has_an_end() {
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

/// A server may hang up on who is silent, and may be full: neither is trouble as long as one connection works.
#[test]
fn a_lane_in_trouble_is_not_a_server_in_trouble() {
    let runtime = runtime();
    let limit = counting_limits(LIMIT, WINDOW).unwrap()[0];
    let patient = Server::builder(Flavour::Redis70).arguments(["--timeout", "1"]).start().unwrap();
    let store = runtime.block_on(settings(&patient.url()).connections(3).connect()).unwrap();
    let until = Instant::now() + Duration::from_millis(4_500);
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(700));
        runtime.block_on(store.apply(&charge(limit, shared(), 1))).unwrap();
    }
    let hung_up = patient.admin().unwrap().info("stats").unwrap()["total_connections_received"].clone();
    assert!(hung_up.parse::<u64>().unwrap() >= 8, "nobody was hung up on: {hung_up}");
    assert_eq!(store.servers()[0].opened, 0, "{:?}", store.servers());
    clean(&patient);

    let full = Server::builder(Flavour::Redis70).arguments(["--maxclients", "3"]).start().unwrap();
    // Two of them, and the test's own now and then.
    let store = runtime.block_on(settings(&full.url()).connections(8).connect()).unwrap();
    for number in 0..200 {
        runtime.block_on(store.apply(&charge(limit, shared(), number))).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(store.servers()[0].opened, 0, "{:?}", store.servers());
}

/// Whoever is demoted may stay so: behind the same name there may be another by now, which only a new connection finds.
#[test]
fn a_server_that_takes_no_writes_is_left_whatever_server_it_is() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour).unwrap();
        let runtime = runtime();
        let store = runtime.block_on(settings(&server.url()).connect()).unwrap();
        let limit = counting_limits(LIMIT, WINDOW).unwrap()[0];
        runtime.block_on(store.apply(&charge(limit, shared(), 1))).unwrap();
        let mut admin = server.admin().unwrap();
        let connections = |admin: &mut Admin| -> u64 {
            admin.info("stats").unwrap()["total_connections_received"].parse().unwrap()
        };
        let before = connections(&mut admin);
        admin.command(&[b"REPLICAOF", b"127.0.0.1", b"1"]).unwrap();
        let refused = runtime.block_on(store.apply(&charge(limit, shared(), 2)));
        assert!(matches!(refused, Err(StoreError::Transient(_))), "{flavour}: {refused:?}");
        std::thread::sleep(Duration::from_millis(100));
        assert!(connections(&mut admin) > before, "{flavour}: it stayed");
        admin.command(&[b"REPLICAOF", b"NO", b"ONE"]).unwrap();
        let until = Instant::now() + LONG;
        while runtime.block_on(store.apply(&charge(limit, shared(), 3))).is_err() {
            assert!(Instant::now() < until, "{flavour}: never came back");
        }
        clean(&server);
    }
}

#[test]
fn a_store_that_is_dropped_leaves_no_connection_and_loses_no_release() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let places = Limit::Concurrency(Concurrency::new(1, WINDOW).unwrap());
    let mut admin = server.admin().unwrap();
    for number in 0..20 {
        let store = runtime.block_on(settings(&server.url()).connections(2).connect()).unwrap();
        let taken = runtime.block_on(store.apply(&charge(places, shared(), number))).unwrap();
        assert!(taken.answers[0].is_admitted(), "{number}: the one before gave it back");
        let mut release = Plan::new();
        let operation = Operation::Release { token: Token(u128::from(number) + 1) };
        release.push(Item::new(shared().key(subject(USER)), places, operation)).unwrap();
        store.apply_unawaited(&release);
        drop(store);
        let until = Instant::now() + LONG;
        while admin.info("clients").unwrap()["connected_clients"] != "1" {
            assert!(Instant::now() < until, "a connection stayed");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    clean(&server);
}

#[test]
fn a_restarted_server_is_found_again_with_its_scripts() {
    let mut server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let store = runtime.block_on(settings(&server.url()).connect()).unwrap();
    let limit = counting_limits(LIMIT, WINDOW).unwrap()[0];
    for _ in 0..3 {
        runtime.block_on(store.apply(&charge(limit, shared(), 1))).unwrap();
        server.restart().unwrap();
        let until = Instant::now() + LONG;
        let first = loop {
            match runtime.block_on(store.apply(&charge(limit, shared(), 2))) {
                Ok(outcome) => break outcome,
                Err(error) => assert!(Instant::now() < until, "never came back: {error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(first.answers[0].remaining, LIMIT - 1, "it had lost everything");
        clean(&server);
    }
}
