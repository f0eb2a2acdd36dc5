//! A full Redis: charges fail with a typed error, and follow-ups still succeed.

use std::error::Error;
use std::time::{Duration, Instant};

use tollgate::core::decision::Source;
use tollgate::{HashKey, Limiter, Request};
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::penalty::{Penalty, PenaltyNumbers};
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::{
    Answer, Item, Keyspace, Limit, Mark, Nonce, Operation, Plan, Report, Span, Store, StoreError, Subject,
    Token, Verdict,
};
use tollgate_testkit::conformance::counting_limits;
use tollgate_testkit::fault_proxy::{Faults, Line};
use tollgate_testkit::redis::{Admin, Cluster, Flavour, Server};

use crate::common::{LONG, USER, on_different_servers, runtime, settings, shared, subject};

const LIFE: Span = Span::from_secs(3_600);

/// Fills the server beyond its memory limit, so that it refuses commands that need memory.
fn fill(server: &Server) {
    fill_beside(&mut server.admin().unwrap(), "filling");
}

/// Fills a server with keys of this prefix.
fn fill_beside(admin: &mut Admin, prefix: &str) {
    let value = vec![b'x'; 64 << 10];
    for number in 0..64 {
        admin.command(&[b"SET", format!("{prefix}:{number}").as_bytes(), &value]).unwrap();
    }
    admin.command(&[b"CONFIG", b"SET", b"maxmemory-policy", b"noeviction"]).unwrap();
    admin.command(&[b"CONFIG", b"SET", b"maxmemory", b"2mb"]).unwrap();
    let one_more = admin.command(&[b"SET", format!("{prefix}:more").as_bytes(), b"x"]);
    assert!(one_more.is_err(), "the server takes more keys");
}

#[test]
fn follow_ups_succeed_while_redis_is_full() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour).unwrap();
        let runtime = runtime();
        let store = runtime.block_on(settings(&server.url()).connect()).unwrap();
        let hour = Span::from_secs(3_600);
        let leases = Limit::Concurrency(Concurrency::new(9, hour).unwrap());
        let window = Limit::FixedWindow(FixedWindow::new(9, hour).unwrap());
        let quota = Limit::Quota(Quota::new(9, 0, QuotaPeriod::Rolling(hour)).unwrap());
        let penalty = Limit::Penalty(
            Penalty::new(PenaltyNumbers {
                free: 2,
                base: hour,
                factor: 2,
                longest: hour,
                memory: hour,
                count_refused: false,
            })
            .unwrap(),
        );
        let keyspaces =
            ["leases", "window", "quota", "penalty"].map(|rule| Keyspace::new("test", rule).unwrap());
        let item =
            |rule: usize, limit, operation| Item::new(keyspaces[rule].key(subject(USER)), limit, operation);
        let apply = |plan: Plan<'_>| runtime.block_on(store.apply(&plan));
        let ask = |rule, limit, operation| apply(Plan::of(item(rule, limit, operation)).unwrap());
        let done = |rule, limit, operation| match ask(rule, limit, operation).unwrap().answers[0].verdict {
            Verdict::Done { amount } => amount,
            other => panic!("{}: {operation:?}: {other:?}", flavour.name()),
        };

        for token in [Token(1), Token(2)] {
            assert!(ask(0, leases, Operation::Charge { cost: 1, token }).unwrap().answers[0].is_admitted());
            let reserve = Operation::Reserve { cost: 3, token, hold: hour };
            assert!(ask(2, quota, reserve).unwrap().answers[0].is_admitted());
        }
        let charged = ask(1, window, Operation::charge(4)).unwrap();
        fill(&server);

        let error = ask(1, window, Operation::charge(1)).unwrap_err();
        assert!(matches!(error, StoreError::Transient(_)), "{error:?}");
        let cause = error.source().unwrap().to_string();
        assert!(cause.contains("OOM"), "{}: {cause}", flavour.name());

        assert_eq!(done(0, leases, Operation::Renew { token: Token(1) }), 1);
        assert_eq!(done(0, leases, Operation::Release { token: Token(2) }), 1);
        assert_eq!(done(2, quota, Operation::Settle { token: Token(1), actual: 2 }), 2);
        assert_eq!(done(2, quota, Operation::Cancel { token: Token(2) }), 3);
        assert_eq!(done(3, penalty, Operation::Report { result: Report::Failure }), 1);
        let give_back = || {
            let refund = item(1, window, Operation::refund(charged.answers[0].mark, 4));
            apply(Plan::returning(refund, Nonce(7), charged.now, LIFE).unwrap()).unwrap()
        };
        let returned = give_back();
        assert_eq!(returned.answers[0].verdict, Verdict::Done { amount: 4 }, "{}", flavour.name());
        assert_eq!((returned.answers[0].remaining, returned.replayed), (9, false));
        assert!(give_back().replayed, "{}", flavour.name());
        assert_eq!(done(1, window, Operation::Reset { receipt_life: LIFE }), 0);
        let still = ask(1, window, Operation::charge(1)).unwrap_err();
        assert!(still.source().unwrap().to_string().contains("OOM"), "the server is still full");
    }
}

/// A record must not be lost, and what it adds to a full Redis is small. So it is booked, on old accounts and new ones.
#[test]
fn records_and_credits_are_booked_once_while_redis_is_full() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour).unwrap();
        let runtime = runtime();
        let store = runtime.block_on(settings(&server.url()).connect()).unwrap();
        let limits = counting_limits(9, Span::from_secs(3_600)).unwrap();
        let keyspaces: Vec<Keyspace> =
            (0..limits.len()).map(|rule| Keyspace::new("test", &format!("r{rule}")).unwrap()).collect();
        let ask = |rule: usize, name: &str, operation, id: Option<&str>| {
            let item = Item::new(keyspaces[rule].key(subject(name)), limits[rule], operation);
            let mut plan = Plan::of(item).unwrap();
            if let Some(id) = id {
                plan.set_request_id(subject(id), Span::from_secs(60), 1);
            }
            runtime.block_on(store.apply(&plan)).map(|outcome| (outcome.answers[0], outcome.replayed))
        };
        let charge = Operation::Charge { cost: 4, token: Token(1) };
        let charged: Vec<Answer> =
            (0..limits.len()).map(|rule| ask(rule, USER, charge, None).unwrap().0).collect();
        fill(&server);

        for (rule, limit) in limits.iter().enumerate() {
            let name = format!("{}: {limit:?}", flavour.name());
            assert!(ask(rule, "new", charge, None).is_err(), "{name}: a charge succeeded");
            if matches!(limit, Limit::Concurrency(_)) {
                continue;
            }
            // An undo of a lost race over several hash slots is a refund without an id.
            let undo = charged[rule].mark.undo(4, limit);
            if charged[rule].mark != Mark::None {
                let (answer, _) = ask(rule, USER, undo, None).unwrap();
                // Some of the last unit has drained from a bucket since the charge.
                let amount = if matches!(limit, Limit::Bucket(_)) { 3 } else { 4 };
                assert_eq!(answer.verdict, Verdict::Done { amount }, "{name}");
            }
            for account in [USER, "new"] {
                let id = format!("{rule} {account}");
                let record = || ask(rule, account, Operation::Record { cost: 20 }, Some(&id)).unwrap();
                let ((first, replayed), (again, replayed_again)) = (record(), record());
                let Verdict::Recorded { amount, overdraft, .. } = first.verdict else {
                    panic!("{name}: {first:?}")
                };
                let before = if charged[rule].mark == Mark::None && account == USER { 4 } else { 0 };
                assert_eq!((amount, overdraft), (20, 11 + before), "{name}");
                assert_eq!((again, replayed, replayed_again), (first, false, true), "{name}");
                if charged[rule].mark != Mark::None {
                    let (answer, _) = ask(rule, account, Operation::Credit { cost: 15 }, None).unwrap();
                    assert_eq!(answer.verdict, Verdict::Done { amount: 15 }, "{name}");
                    assert_eq!(answer.remaining, 4, "{name}");
                }
            }
        }
        assert!(ask(0, USER, charge, None).is_err(), "the server is still full");
    }
}

/// An extension needs memory like any check. While Redis is full it fails, and the reservation stays as it was.
#[test]
fn an_extension_fails_while_redis_is_full_and_the_reservation_stays() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let store = runtime.block_on(settings(&server.url()).connect()).unwrap();
    let hour = Span::from_secs(3_600);
    let quota = Limit::Quota(Quota::new(9, 0, QuotaPeriod::Rolling(hour)).unwrap());
    let ask = |operation| {
        let item = Item::new(shared().key(subject(USER)), quota, operation);
        runtime.block_on(store.apply(&Plan::of(item).unwrap())).map(|outcome| outcome.answers[0])
    };
    let token = Token(1);
    assert!(ask(Operation::Reserve { cost: 3, token, hold: hour }).unwrap().is_admitted());
    fill(&server);
    let error = ask(Operation::Extend { token, more: 2, hold: hour }).unwrap_err();
    assert!(error.source().unwrap().to_string().contains("OOM"), "{error:?}");
    assert_eq!(ask(Operation::Cancel { token }).unwrap().verdict, Verdict::Done { amount: 3 });
}

/// One server is charged, the other one fails. The charge is refunded although its server is full by then.
#[test]
fn a_lost_race_over_several_slots_is_undone_while_redis_is_full() {
    let cluster = Cluster::builder(Flavour::Redis70).proxied().start().unwrap();
    let runtime = runtime();
    let store = runtime.block_on(settings(&cluster.url()).connect()).unwrap();
    // The store charges hash slots in the order of their tags.
    let mut subjects = on_different_servers(&cluster);
    subjects.sort_by_key(|(_, subject)| shared().key(*subject).tag().to_u128());
    let [(first_server, first), (second_server, second)] = subjects;
    let limit = Limit::FixedWindow(FixedWindow::new(9, Span::from_secs(3_600)).unwrap());
    let plan_of = |subjects: &[Subject], operation| {
        let mut plan = Plan::new();
        for subject in subjects {
            plan.push(Item::new(shared().key(*subject), limit, operation)).unwrap();
        }
        plan
    };
    let remaining = |subject| {
        let plan = plan_of(&[subject], Operation::Peek { cost: 0 });
        runtime.block_on(store.apply(&plan)).unwrap().answers[0].remaining
    };
    assert_eq!([remaining(first), remaining(second)], [9, 9]);
    // Time to fill both servers between the charge of the first and that of the second.
    let delay = Line { delay: Duration::from_secs(2), ..Line::default() };
    cluster.proxy(second_server).unwrap().set(Faults { requests: delay, ..Faults::default() }).unwrap();
    let charge = plan_of(&[first, second], Operation::charge(4));
    let failed = std::thread::scope(|scope| {
        let charged = scope.spawn(|| runtime.block_on(store.apply(&charge)));
        let (key, until) = (shared().key(first).to_string(), Instant::now() + LONG);
        let mut admin = cluster.admin(first_server).unwrap();
        while admin.pttl(key.as_bytes()).unwrap() < 0 {
            assert!(Instant::now() < until && !charged.is_finished(), "the first server was not charged");
            std::thread::sleep(Duration::from_millis(1));
        }
        fill_beside(&mut admin, &key);
        let other = shared().key(second).to_string();
        fill_beside(&mut cluster.admin(second_server).unwrap(), &other);
        assert!(!charged.is_finished(), "both servers were filled too late");
        charged.join().unwrap()
    });
    let error = failed.unwrap_err();
    assert!(error.source().unwrap().to_string().contains("not every server"), "{error:?}");
    cluster.proxy(second_server).unwrap().set(Faults::default()).unwrap();
    let until = Instant::now() + LONG;
    while remaining(first) < 9 {
        assert!(Instant::now() < until, "the charge was not refunded");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_failure_policy_decides_a_charge_while_redis_is_full() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let rules = "version: 1
rules:
  - { id: open, match: { path: open }, per: user, limit: { fixed-window: 5/d }, on_failure: open }
  - { id: closed, match: { path: closed }, per: user, limit: { fixed-window: 5/d }, on_failure: closed }
";
    let builder = Limiter::builder().rules_yaml(rules).hash_key(HashKey::new([7; 32]));
    let limiter = runtime.block_on(builder.store(server.url()).build()).unwrap();
    fill(&server);
    for (path, allowed) in [("open", true), ("closed", false)] {
        let request = Request::from([("user", "u"), ("path", path)]);
        let decision = runtime.block_on(limiter.check(request)).unwrap();
        assert_eq!((decision.allowed(), decision.source()), (allowed, Source::Fallback), "{path}");
    }
}

#[test]
fn a_refund_keeps_the_ttl_of_the_account() {
    let server = Server::start(Flavour::Redis62).unwrap();
    let runtime = runtime();
    let store = runtime.block_on(settings(&server.url()).connect()).unwrap();
    for (index, limit) in tollgate_testkit::conformance::limits().unwrap().into_iter().enumerate() {
        let keyspace = Keyspace::new("test", &format!("r{index}")).unwrap();
        let key = keyspace.key(subject(USER));
        let plan = Plan::of(Item::new(key, limit, Operation::Charge { cost: 2, token: Token(1) })).unwrap();
        let charged = runtime.block_on(store.apply(&plan)).unwrap();
        let operation = charged.answers[0].mark.undo(2, &limit);
        let Operation::Refund { .. } = operation else { continue };
        let mut admin = server.admin().unwrap();
        let name = key.to_string();
        admin.command(&[b"PEXPIRE", name.as_bytes(), b"1234567"]).unwrap();
        let plan = Plan::returning(Item::new(key, limit, operation), Nonce(1), charged.now, LIFE).unwrap();
        let answer = runtime.block_on(store.apply(&plan)).unwrap().answers[0];
        if !matches!(answer.verdict, Verdict::Done { .. }) {
            continue;
        }
        let ttl = admin.command(&[b"PTTL", name.as_bytes()]).unwrap();
        let tollgate_testkit::redis::Value::Integer(ttl) = ttl else { panic!("{ttl:?}") };
        assert!((1_134_567..=1_234_567).contains(&ttl), "{limit:?}: {ttl}");
    }
}
