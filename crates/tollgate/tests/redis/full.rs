//! A full Redis: charges fail with a typed error, and follow-ups still succeed.

use std::error::Error;

use tollgate::core::decision::Source;
use tollgate::{HashKey, Limiter, Request};
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::penalty::{Penalty, PenaltyNumbers};
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::{
    Item, Keyspace, Limit, Nonce, Operation, Plan, Report, Span, Store, StoreError, Token, Verdict,
};
use tollgate_testkit::redis::{Flavour, Server};

use crate::common::{USER, runtime, settings, subject};

const LIFE: Span = Span::from_secs(3_600);

/// Fills the server beyond its memory limit, so that it refuses commands that need memory.
fn fill(server: &Server) {
    let mut admin = server.admin().unwrap();
    let value = vec![b'x'; 64 << 10];
    for number in 0..64 {
        admin.command(&[b"SET", format!("filling:{number}").as_bytes(), &value]).unwrap();
    }
    admin.command(&[b"CONFIG", b"SET", b"maxmemory-policy", b"noeviction"]).unwrap();
    admin.command(&[b"CONFIG", b"SET", b"maxmemory", b"2mb"]).unwrap();
    assert!(admin.command(&[b"SET", b"one more", b"x"]).is_err(), "the server takes more keys");
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
