//! Replies that are lost after Redis has executed the command: what is charged, and what remains in Redis. The naive limiter
//! fails the same test.

use std::time::Duration;

use tokio::runtime::Runtime;
use tollgate::store::redis::RedisError;
use tollgate_core::{Item, Limit, Operation, Plan, Span, Store, StoreError};
use tollgate_testkit::conformance::counting_limits;
use tollgate_testkit::fault_proxy::{FaultProxy, Faults};
use tollgate_testkit::naive::NaiveStore;
use tollgate_testkit::redis::{Flavour, Server, no_orphans};

use crate::common::{LIMIT, TTL_MAX, WINDOW, charge, clean, runtime, settings, shared, subject};

const REQUESTS: u64 = 400;
const USERS: u64 = 100;

/// The results of requests while one reply in ten was lost.
#[derive(PartialEq, Eq, Debug)]
struct Account {
    admitted: u64,
    /// Requests with an unknown result.
    unknown: u64,
    /// Units charged to all subjects.
    charged: u64,
    /// Whether every key expires.
    keys_end: bool,
}

/// Sends requests of many users through broken connections. Each sender sends its request once.
fn through_losses<S: Store>(
    runtime: &Runtime,
    store: &S,
    server: &Server,
    proxy: &FaultProxy,
    limit: Limit,
    faults: Faults,
    named: bool,
) -> Account {
    server.admin().unwrap().flushall().unwrap();
    proxy.set(faults).unwrap();
    let plan_of = |number: u64, operation| {
        let mut plan = Plan::new();
        let user = subject(&format!("user {}", number % USERS));
        plan.push(Item::new(shared().key(user), limit, operation)).unwrap();
        plan
    };
    let (mut admitted, mut unknown) = (0, 0);
    for number in 0..REQUESTS {
        let mut plan = plan_of(number, Operation::charge(1));
        if named {
            plan.set_request_id(subject(&format!("request {number}")), Span::from_secs(60), 0);
        }
        match runtime.block_on(store.apply(&plan)) {
            Ok(outcome) => admitted += u64::from(outcome.answers[0].is_admitted()),
            Err(_) => unknown += 1,
        }
    }
    proxy.set(Faults::default()).unwrap();
    let charged = (0..USERS).map(|user| {
        let look = plan_of(user, Operation::Peek { cost: 0 });
        // A peek charges nothing, so it can be repeated until no broken connection is left.
        let left = (0..200).find_map(|_| {
            let seen = runtime.block_on(store.apply(&look)).ok();
            if seen.is_none() {
                std::thread::sleep(Duration::from_millis(10));
            }
            seen
        });
        let left = left.unwrap();
        LIMIT - left.answers[0].remaining
    });
    let charged = charged.sum();
    let keys_end = no_orphans(&mut server.admin().unwrap(), "tg:1:", TTL_MAX, &[]).is_ok();
    Account { admitted, unknown, charged, keys_end }
}

#[test]
fn a_lost_reply_charges_once_under_a_request_id() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let proxy = FaultProxy::start(server.port(), 1).unwrap();
    let runtime = runtime();
    let store = runtime.block_on(settings(&proxy.url()).connect()).unwrap();
    let limit = counting_limits(LIMIT, WINDOW).unwrap()[0];
    let exact = Account { admitted: REQUESTS, unknown: 0, charged: REQUESTS, keys_end: true };
    let lose = Faults { lose_reply: 0.1, ..Faults::default() };
    let cut = Faults { cut_reply: 0.1, ..Faults::default() };
    for faults in [lose, cut] {
        assert_eq!(through_losses(&runtime, &store, &server, &proxy, limit, faults, true), exact);
    }
    let injected = proxy.injected();
    assert!(injected.lost_replies >= 20 && injected.cut_replies >= 20, "{injected:?}");
}

#[test]
fn without_an_id_a_lost_reply_is_an_error_and_nothing_is_retried() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let proxy = FaultProxy::start(server.port(), 1).unwrap();
    let runtime = runtime();
    let store = runtime.block_on(settings(&proxy.url()).connect()).unwrap();
    let limit = counting_limits(LIMIT, WINDOW).unwrap()[0];
    let lose = Faults { lose_reply: 0.1, ..Faults::default() };
    let found = through_losses(&runtime, &store, &server, &proxy, limit, lose, false);
    assert!(found.unknown >= 20, "{found:?}");
    assert_eq!(found.admitted + found.unknown, REQUESTS, "{found:?}");
    // No request is charged twice, and requests that were never sent are not charged.
    assert!(found.charged <= REQUESTS && found.charged >= found.admitted, "{found:?}");
    assert!(found.keys_end);
}

#[test]
fn the_naive_limiter_charges_twice_and_leaves_orphans() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let proxy = FaultProxy::start(server.port(), 1).unwrap();
    let runtime = runtime();
    let store = NaiveStore::connect(proxy.port()).unwrap();
    let limit = counting_limits(LIMIT, WINDOW).unwrap()[0];
    let lose = Faults { lose_reply: 0.1, ..Faults::default() };
    let found = through_losses(&runtime, &store, &server, &proxy, limit, lose, true);
    println!("naive: {found:?}");
    assert!(found.charged > REQUESTS + 20, "{found:?}");
    assert!(!found.keys_end, "{found:?}");
}

/// Without an id, the error states whether the request may have been charged.
#[test]
fn an_error_states_whether_the_charge_may_have_been_applied() {
    let server = Server::start(Flavour::Redis70).unwrap();
    let proxy = FaultProxy::start(server.port(), 1).unwrap();
    let runtime = runtime();
    let store = runtime.block_on(settings(&proxy.url()).connect()).unwrap();
    let limit = counting_limits(LIMIT, WINDOW).unwrap()[0];
    let cause = |found: Result<(), StoreError>| {
        let Err(StoreError::Transient(cause)) = found else { panic!("an answer") };
        *cause.downcast::<RedisError>().unwrap()
    };
    runtime.block_on(store.apply(&charge(limit, shared(), 0))).unwrap();
    proxy.set(Faults { lose_reply: 1.0, ..Faults::default() }).unwrap();
    let lost = cause(runtime.block_on(store.apply(&charge(limit, shared(), 1))).map(|_| ()));
    assert!(lost.may_have_applied(), "{lost}");
    drop(proxy);
    let gone = (0..3).map(|_| cause(runtime.block_on(store.apply(&charge(limit, shared(), 2))).map(|_| ())));
    let last = gone.last().unwrap();
    assert!(matches!(last, RedisError::Connect { .. }) && !last.may_have_applied(), "{last}");
    // Two requests were executed: the first, and the one whose reply was lost.
    let direct = runtime.block_on(settings(&server.url()).connect()).unwrap();
    let third = runtime.block_on(direct.apply(&charge(limit, shared(), 3))).unwrap();
    assert_eq!(third.answers[0].remaining, LIMIT - 3);
    assert_eq!(clean(&server), 1);
}
