//! Values in Redis that are not valid states.

use tollgate_core::{Item, Keyspace, Operation, Plan, Span, State, Store, StoreError, Token};
use tollgate_testkit::conformance::counting_limits;
use tollgate_testkit::redis::{Flavour, Server};

use crate::common::{LIMIT, USER, WINDOW, one_thread, settings, subject};

#[test]
fn a_corrupt_key_fails_only_its_own_plan() {
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
        // Replaces each word by a number that no machine writes.
        for word in 1..fine.len() / 8 {
            let mut bytes = fine.clone();
            bytes[word * 8..word * 8 + 8].copy_from_slice(&[0xff; 8]);
            if State::decode(&bytes).is_err() {
                broken.push(bytes);
            }
        }
        for bytes in broken {
            admin.command(&[b"SET", name.as_bytes(), &bytes, b"PX", b"60000"]).unwrap();
            // Both are sent in one batch: they wait before the connection's task, on the same thread, runs.
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

#[test]
fn an_unreadable_state_charges_nothing_and_can_be_reset() {
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
    // A log that is longer than its header says is detected before any of the three items is charged.
    let log = keyspaces[1].key(subject(USER)).to_string();
    admin.command(&[b"APPEND", log.as_bytes(), b"stray"]).unwrap();
    let found = runtime.block_on(store.apply(&plan_of(60)));
    assert!(matches!(&found, Err(StoreError::Corrupt { rule, .. }) if rule == "b"), "{found:?}");
    let mut look = Plan::new();
    look.push(Item::new(keyspaces[0].key(subject(USER)), limits[4], Operation::Peek { cost: 0 })).unwrap();
    assert_eq!(runtime.block_on(store.apply(&look)).unwrap().answers[0].remaining, LIMIT - 60);
    // A reset works on any value.
    let mut reset = Plan::new();
    reset
        .push(Item::new(
            keyspaces[1].key(subject(USER)),
            limits[3],
            Operation::Reset { receipt_life: Span::ZERO },
        ))
        .unwrap();
    runtime.block_on(store.apply(&reset)).unwrap();
    assert!(runtime.block_on(store.apply(&plan_of(61))).is_ok());

    // The same for a remembered request id.
    let mut named = plan_of(62);
    named.set_request_id(subject("request"), Span::from_secs(60), 0);
    let first = runtime.block_on(store.apply(&named)).unwrap();
    let ids = admin.scan("*@id*").unwrap();
    assert_eq!(ids.len(), 1);
    assert_eq!(runtime.block_on(store.apply(&named)).unwrap().answers, first.answers);
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
