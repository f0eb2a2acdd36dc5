//! Connections of the Redis store: failures, permissions, TLS and what remains after a drop.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate::store::redis::{RedisError, RedisSettings, RedisStore};
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::{Item, Keyspace, Limit, Operation, Plan, Span, Store, StoreError, Token};
use tollgate_testkit::conformance::{apply_concurrently, counting_limits};
use tollgate_testkit::redis::{Admin, Flavour, Server};

use crate::common::{LIMIT, LONG, USER, WINDOW, charge, clean, runtime, settings, shared, subject};

#[test]
fn a_flushed_script_cache_is_reloaded_within_the_call() {
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
            let found =
                apply_concurrently(&runtime, &store, 2_000, move |number| charge(limit, shared(), number));
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
fn a_stopped_server_fails_calls_within_the_deadline_and_expired_calls_are_never_charged() {
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
    // Each of two connections has two batches in flight. After these fail, no check is sent to probe the server.
    let in_flight = 4;
    server.resume().unwrap();
    let answered = Instant::now();
    let outcome = loop {
        if let Ok(outcome) = runtime.block_on(store.apply(&charge(limit, &keyspace, 99))) {
            break outcome;
        }
        assert!(answered.elapsed() < LONG, "the store did not recover");
    };
    // The first, the last, and at most what was in flight when the server resumed. No other check was sent.
    let charged = LIMIT - outcome.answers[0].remaining;
    assert!((2..=2 + in_flight).contains(&charged), "{charged} charged, at most {in_flight} in flight");
    clean(&server);
}

#[test]
fn a_check_with_an_id_is_answered_at_once_while_the_server_is_down() {
    let mut server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    // Much longer than an answer without a server takes, so that a busy machine does not matter.
    let deadline = Duration::from_secs(2);
    let settings = RedisSettings::url(&server.url()).unwrap().deadline(deadline);
    let store = runtime.block_on(settings.connect()).unwrap();
    let limit = counting_limits(LIMIT, WINDOW).unwrap()[0];
    let check = |number: u64| {
        let mut plan = charge(limit, shared(), number);
        plan.set_request_id(subject(&format!("request {number}")), Span::from_secs(60), 0);
        let began = Instant::now();
        let found = runtime.block_on(store.apply(&plan));
        (found.map(drop), began.elapsed())
    };
    check(1).0.unwrap();
    server.kill9().unwrap();
    let until = Instant::now() + LONG;
    while store.servers()[0].down.is_none() {
        assert!(Instant::now() < until, "the store did not notice that its server is gone");
        std::thread::yield_now();
    }
    let found: Vec<_> = (2..22).map(check).collect();
    let slowest = found.iter().map(|(_, took)| *took).max().unwrap();
    println!("slowest of 20 checks with an id without a server: {slowest:?}");
    assert!(found.iter().all(|(found, _)| matches!(found, Err(StoreError::Transient(_)))), "{found:?}");
    assert!(slowest < deadline / 10, "{slowest:?}");
}

#[test]
fn missing_permissions_are_reported_and_never_fail_open() {
    let line = "tollgate on >secret ~tg:* resetchannels -@all +eval +evalsha +get +getrange +set +setrange +pexpire +del +time +info +select";
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
    // The ACL line is sufficient for all operations.
    let url = format!("redis://tollgate:secret@127.0.0.1:{port}/1");
    let store = runtime.block_on(settings(&url).connect()).unwrap();
    let keyspace = Keyspace::new("test", "allowed").unwrap();
    for limit in counting_limits(LIMIT, WINDOW).unwrap() {
        let plan = charge(limit, &keyspace, 1);
        assert!(runtime.block_on(store.apply(&plan)).unwrap().answers[0].is_admitted(), "{limit:?}");
        let mut reset = Plan::new();
        reset
            .push(Item::new(
                keyspace.key(subject(USER)),
                limit,
                Operation::Reset { receipt_life: Span::ZERO },
            ))
            .unwrap();
        runtime.block_on(store.apply(&reset)).unwrap();
    }
    // Another prefix is not permitted. That is a misconfiguration, which must not fail open.
    let store = runtime.block_on(settings(&format!("{url}?prefix=other:")).connect()).unwrap();
    let found = runtime.block_on(store.apply(&charge(counting_limits(2, WINDOW).unwrap()[0], &keyspace, 1)));
    assert!(matches!(found, Err(StoreError::Misconfigured(_))), "{found:?}");
}

/// Redis is out of memory, or became a replica. Both are temporary, so the rules' failure policies decide.
#[test]
fn temporary_errors_are_distinguished_from_misconfiguration() {
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
            // The store disconnects from a server that refuses writes, and retries after a pause.
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
fn tls_trusts_only_the_configured_authority() {
    let server = Server::builder(Flavour::Redis70).tls().start().unwrap();
    let runtime = runtime();
    let url = server.tls_url().unwrap();
    let authority = server.certificates().unwrap().authority().display().to_string();
    let store = runtime.block_on(settings(&format!("{url}?ca={authority}")).connect()).unwrap();
    let keyspace = Keyspace::new("test", "secret").unwrap();
    let plan = charge(counting_limits(2, WINDOW).unwrap()[0], &keyspace, 1);
    let admitted = || runtime.block_on(store.apply(&plan)).unwrap().answers[0].is_admitted();
    assert_eq!([admitted(), admitted(), admitted()], [true, true, false]);
    // No other authority signed its certificate.
    let error = runtime.block_on(settings(&url).connect()).err().unwrap();
    assert!(format!("{error:?}").contains("UnknownIssuer"), "{error:?}");
    clean(&server);
}

#[test]
fn calls_beyond_in_flight_max_fail_at_once() {
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
    assert_eq!(busy, 1_000 - 100, "100 calls are in flight or waiting");
    server.resume().unwrap();
}

/// A server may close idle connections, or have no room for more. Neither matters as long as one connection works.
#[test]
fn a_failing_connection_does_not_mark_the_server_down() {
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
    assert!(hung_up.parse::<u64>().unwrap() >= 8, "no connection was closed: {hung_up}");
    assert_eq!(store.servers()[0].opened, 0, "{:?}", store.servers());
    clean(&patient);

    let full = Server::builder(Flavour::Redis70).arguments(["--maxclients", "3"]).start().unwrap();
    // Room for two connections of the store and one of the test.
    let store = runtime.block_on(settings(&full.url()).connections(8).connect()).unwrap();
    for number in 0..200 {
        runtime.block_on(store.apply(&charge(limit, shared(), number))).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(store.servers()[0].opened, 0, "{:?}", store.servers());
}

/// A demoted server may stay a replica. Its host name may now lead to another server, which only a new connection reaches.
#[test]
fn a_server_that_refuses_writes_is_reconnected_on_every_flavour() {
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
        assert!(connections(&mut admin) > before, "{flavour}: the store did not reconnect");
        admin.command(&[b"REPLICAOF", b"NO", b"ONE"]).unwrap();
        let until = Instant::now() + LONG;
        while runtime.block_on(store.apply(&charge(limit, shared(), 3))).is_err() {
            assert!(Instant::now() < until, "{flavour}: the store did not recover");
        }
        clean(&server);
    }
}

#[test]
fn a_dropped_store_closes_its_connections_and_sends_pending_releases() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let limit = Limit::Concurrency(Concurrency::new(1, WINDOW).unwrap());
    let mut admin = server.admin().unwrap();
    for number in 0..20 {
        let store = runtime.block_on(settings(&server.url()).connections(2).connect()).unwrap();
        let taken = runtime.block_on(store.apply(&charge(limit, shared(), number))).unwrap();
        assert!(taken.answers[0].is_admitted(), "{number}: the previous store released its lease");
        let mut release = Plan::new();
        let operation = Operation::Release { token: Token(u128::from(number) + 1) };
        release.push(Item::new(shared().key(subject(USER)), limit, operation)).unwrap();
        store.apply_unawaited(&release);
        drop(store);
        let until = Instant::now() + LONG;
        while admin.info("clients").unwrap()["connected_clients"] != "1" {
            assert!(Instant::now() < until, "a connection is still open");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    clean(&server);
}

#[test]
fn a_restarted_server_is_reconnected_and_gets_its_scripts() {
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
                Err(error) => assert!(Instant::now() < until, "the store did not recover: {error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(first.answers[0].remaining, LIMIT - 1, "a restarted server has no data");
        clean(&server);
    }
}

#[test]
fn many_stores_dial_a_broken_server_seldom_and_at_different_instants() {
    const STORES: usize = 30;
    const PART: Duration = Duration::from_millis(20);
    let lasts = Duration::from_secs(2);
    // It accepts connections and closes them, as a server does that has reached its limit.
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let runtime = runtime();
    let began = Instant::now();
    let dialled = std::thread::spawn(move || {
        listener.set_nonblocking(true).unwrap();
        let mut dialled = Vec::new();
        while began.elapsed() < lasts {
            match listener.accept() {
                Ok(_) => dialled.push(began.elapsed()),
                Err(_) => std::thread::sleep(Duration::from_micros(200)),
            }
        }
        dialled
    });
    let limit = counting_limits(LIMIT, WINDOW).unwrap()[0];
    let tasks: Vec<_> = (0..STORES)
        .map(|_| {
            let settings = RedisSettings::url(&url).unwrap().deadline(Duration::from_millis(20));
            let _guard = runtime.enter();
            let store = settings.open().unwrap();
            runtime.spawn(async move {
                while began.elapsed() < lasts {
                    assert!(store.apply(&charge(limit, shared(), 1)).await.is_err());
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            })
        })
        .collect();
    let dialled = dialled.join().unwrap();
    tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    // After the first attempts, which all begin at once.
    let later: Vec<u128> = dialled.iter().filter(|at| **at > lasts / 10).map(|at| at.as_millis()).collect();
    let parts: BTreeSet<u128> = later.iter().map(|at| at / PART.as_millis()).collect();
    println!(
        "{} dials of {STORES} stores in {lasts:?}, the later ones in {} parts of {PART:?}",
        dialled.len(),
        parts.len()
    );
    // Each store waits up to twice as long after each attempt, for a random part of that time.
    assert!((STORES * 4..STORES * 20).contains(&dialled.len()), "{}", dialled.len());
    assert!(parts.len() >= 30, "{parts:?}");
}
