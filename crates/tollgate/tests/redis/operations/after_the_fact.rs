//! Records, credits and extensions on the Redis store: once per id, over several hash slots, and while replies are lost.

use tollgate::store::redis::RedisStore;
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::{
    Answer, Decline, Item, Limit, Operation, Outcome, Plan, Span, Store, StoreError, Subject, Token, Verdict,
};
use tollgate_testkit::fault_proxy::Faults;
use tollgate_testkit::redis::{Cluster, Flavour, Server};

use crate::common::{TTL_MAX, USER, WINDOW, clean, on_different_servers, runtime, settings, shared, subject};

const FOUR: [&str; 4] = [USER, "first", "second", "third"];
const HORIZON: Span = Span::from_secs(60);

fn window(limit: u64) -> Limit {
    Limit::FixedWindow(FixedWindow::new(limit, WINDOW).unwrap())
}

fn plan_of(items: impl IntoIterator<Item = (Subject, Limit, Operation)>, id: Option<&str>) -> Plan<'static> {
    let mut plan = Plan::new();
    for (subject, limit, operation) in items {
        plan.push(Item::new(shared().key(subject), limit, operation)).unwrap();
    }
    if let Some(id) = id {
        plan.set_request_id(subject(id), HORIZON, 1);
    }
    plan
}

fn used(runtime: &tokio::runtime::Runtime, store: &RedisStore, subject: Subject, limit: Limit) -> u64 {
    let look = plan_of([(subject, limit, Operation::Peek { cost: 0 })], None);
    limit.capacity() - runtime.block_on(store.apply(&look)).unwrap().answers[0].remaining
}

fn amounts(outcome: &Outcome) -> Vec<u64> {
    let amount = |answer: &Answer| match answer.verdict {
        Verdict::Recorded { amount, .. } | Verdict::Done { amount } => amount,
        _ => 0,
    };
    outcome.answers.iter().map(amount).collect()
}

#[test]
fn a_record_is_booked_once_per_id_and_the_repeat_gets_the_same_answer() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour).unwrap();
        let runtime = runtime();
        let store = runtime.block_on(settings(&server.url()).connect()).unwrap();
        let apply = |operation, id| {
            let plan = plan_of([(subject(USER), window(10), operation)], id);
            runtime.block_on(store.apply(&plan))
        };
        let first = apply(Operation::Record { cost: 25 }, Some("r1")).unwrap();
        let Verdict::Recorded { amount: 25, overdraft: 15, free_at } = first.answers[0].verdict else {
            panic!("{first:?}")
        };
        assert_eq!((first.answers[0].remaining, free_at), (0, first.answers[0].reset_at));
        let again = apply(Operation::Record { cost: 25 }, Some("r1")).unwrap();
        assert_eq!(again, Outcome { replayed: true, ..first });
        let other = apply(Operation::Record { cost: 26 }, Some("r1")).unwrap_err();
        assert!(matches!(other, StoreError::IdReused), "{other:?}");
        let credit = |cost, id| apply(Operation::Credit { cost }, Some(id)).unwrap();
        assert_eq!((amounts(&credit(20, "c1")), credit(20, "c1").replayed), (vec![20], true));
        assert_eq!(used(&runtime, &store, subject(USER), window(10)), 5);
        // Never below zero. An answer of nothing is an answer, too: the repeat gets it.
        assert_eq!(amounts(&credit(20, "c2")), [5]);
        assert_eq!(amounts(&credit(20, "c3")), [0]);
        assert!(apply(Operation::Record { cost: 3 }, Some("r2")).is_ok());
        assert_eq!((amounts(&credit(20, "c3")), credit(20, "c3").replayed), (vec![0], true));
        assert_eq!(used(&runtime, &store, subject(USER), window(10)), 3);
        clean(&server);
    }
}

#[test]
fn records_over_several_slots_are_booked_once_in_each_and_a_declined_one_stops_no_other() {
    let runtime = runtime();
    let cluster = Cluster::start(Flavour::Redis70).unwrap();
    let store = runtime.block_on(settings(&cluster.url()).connect()).unwrap();
    let leases = Limit::Concurrency(Concurrency::new(5, WINDOW).unwrap());
    let limits = [window(10), leases, window(10), window(100)];
    let record = |cost, id| {
        let items = FOUR.into_iter().zip(limits);
        let items = items.map(|(name, limit)| (subject(name), limit, Operation::Record { cost }));
        runtime.block_on(store.apply(&plan_of(items, Some(id)))).unwrap()
    };
    let first = record(7, "a");
    assert_eq!((amounts(&first), first.replayed), (vec![7, 0, 7, 7], false));
    assert_eq!(first.answers[1].verdict, Verdict::Declined(Decline::NotSupported));
    // The slot that declined remembers nothing, so the whole is not a repetition. The others answer as before.
    let again = record(7, "a");
    assert_eq!((again.answers[0], again.answers[2]), (first.answers[0], first.answers[2]));
    let beyond = record(7, "b");
    let Verdict::Recorded { amount: 7, overdraft: 4, .. } = beyond.answers[0].verdict else {
        panic!("{beyond:?}")
    };
    for (name, limit) in [(FOUR[0], window(50)), (FOUR[2], window(50)), (FOUR[3], window(100))] {
        assert_eq!(used(&runtime, &store, subject(name), limit), 14, "{name}");
    }
    cluster.no_orphans("tg:1:", TTL_MAX, &[USER]).unwrap();
}

#[test]
fn records_over_several_slots_are_exact_while_replies_are_lost() {
    let runtime = runtime();
    let cluster = Cluster::builder(Flavour::Redis70).proxied().start().unwrap();
    let store = runtime.block_on(settings(&cluster.url()).connect()).unwrap();
    let lose = Faults { lose_reply: 0.1, ..Faults::default() };
    cluster.primaries().iter().for_each(|&node| cluster.proxy(node).unwrap().set(lose).unwrap());
    let (mut booked, mut failed) = (0, 0);
    for number in 0..200 {
        let items = FOUR.map(|name| (subject(name), window(1_000), Operation::Record { cost: 2 }));
        let plan = plan_of(items, Some(&format!("request {number}")));
        // The store retries under the id. The caller does, if the deadline passed.
        while let Err(error) = runtime.block_on(store.apply(&plan)) {
            failed += 1;
            assert!(failed < 100, "{error:?}");
        }
        booked += 2;
    }
    let lost: u64 = cluster
        .primaries()
        .iter()
        .map(|&node| {
            let proxy = cluster.proxy(node).unwrap();
            proxy.set(Faults::default()).unwrap();
            proxy.injected().lost_replies
        })
        .sum();
    assert!(lost >= 20, "{lost} replies were lost");
    for name in FOUR {
        assert_eq!(used(&runtime, &store, subject(name), window(1_000)), booked, "{name}");
    }
}

/// Two quotas in two hash slots. The store charges the first one first.
struct TwoQuotas {
    runtime: tokio::runtime::Runtime,
    store: RedisStore,
    subjects: [Subject; 2],
    _cluster: Cluster,
}

impl TwoQuotas {
    fn start() -> TwoQuotas {
        let runtime = runtime();
        let cluster = Cluster::start(Flavour::Redis70).unwrap();
        let store = runtime.block_on(settings(&cluster.url()).connect()).unwrap();
        let mut subjects = on_different_servers(&cluster).map(|(_, subject)| subject);
        subjects.sort_by_key(|subject| shared().key(*subject).tag().to_u128());
        TwoQuotas { runtime, store, subjects, _cluster: cluster }
    }

    fn apply(&self, operations: [Option<Operation>; 2], id: Option<&str>) -> Outcome {
        let quota = Limit::Quota(Quota::new(10, 0, QuotaPeriod::Rolling(WINDOW)).unwrap());
        let items = self.subjects.into_iter().zip(operations);
        let items = items.filter_map(|(subject, operation)| Some((subject, quota, operation?)));
        self.runtime.block_on(self.store.apply(&plan_of(items, id))).unwrap()
    }
}

const TOKEN: Token = Token(77);

fn extend(more: u64) -> Option<Operation> {
    Some(Operation::Extend { token: TOKEN, more, hold: Span::from_secs(600) })
}

#[test]
fn an_extension_over_several_slots_is_all_or_none() {
    let two = TwoQuotas::start();
    let reserve = Some(Operation::Reserve { cost: 3, token: TOKEN, hold: Span::from_secs(60) });
    let (cancel, peek) = (Some(Operation::Cancel { token: TOKEN }), Some(Operation::Peek { cost: 0 }));
    let remaining = || two.apply([peek, peek], None).answers.iter().map(|answer| answer.remaining).collect();
    let is_admitted = |outcome: &Outcome| outcome.answers.iter().all(Answer::is_admitted);
    assert!(is_admitted(&two.apply([reserve, reserve], None)));
    assert!(is_admitted(&two.apply([extend(2), extend(2)], Some("e1"))));
    let again = two.apply([extend(2), extend(2)], Some("e1"));
    assert!(is_admitted(&again) && again.replayed);
    let left: Vec<u64> = remaining();
    assert_eq!(left, [5, 5]);

    // The second quota has no room: both holds stay as they were.
    assert!(is_admitted(&two.apply([None, Some(Operation::charge(4))], None)));
    let refused = two.apply([extend(2), extend(2)], Some("e2"));
    assert!(refused.answers[0].is_admitted() && refused.answers[1].is_refused(), "{refused:?}");
    let left: Vec<u64> = remaining();
    assert_eq!(left, [5, 1]);

    // The second hold has ended: only its own server knows that. The first one is extended and shortened again.
    assert_eq!(amounts(&two.apply([None, cancel], None)), [5]);
    for id in [Some("e3"), None] {
        let declined = two.apply([extend(2), extend(2)], id);
        assert_eq!(declined.answers[1].verdict, Verdict::Declined(Decline::NotHeld), "{declined:?}");
        let left: Vec<u64> = remaining();
        assert_eq!(left, [5, 6], "{id:?}");
    }
    assert_eq!(amounts(&two.apply([cancel, None], None)), [5]);
}
