//! Runs threads on the memory store in many interleavings: no deadlock, no lost charge, no extra charge.

#![cfg(test)]

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::{check_pct, check_random, thread};
use tollgate::clock::AnyClock;
use tollgate::core::algorithm::bucket::Bucket;
use tollgate::core::algorithm::concurrency::Concurrency;
use tollgate::core::algorithm::fixed_window::FixedWindow;
use tollgate::core::{Answer, Item, Keyspace, Limit, Operation, Plan, Span, SubjectHasher, Time, Token};
use tollgate::{Clock, Keyed, MemoryStore};

/// Interleavings per test and scheduler. Each one creates a new store.
const SCHEDULES: usize = 400;
/// Preemptions that the second scheduler places in each interleaving.
const PREEMPTIONS: usize = 3;

#[derive(Clone, Copy)]
struct Frozen;

impl Clock for Frozen {
    fn now(&self) -> Time {
        Time::from_us(1_700_000_000_000_000)
    }
}

fn window(limit: u64) -> Limit {
    Limit::FixedWindow(FixedWindow::new(limit, Span::from_secs(3_600)).unwrap())
}

fn bucket(limit: u64) -> Limit {
    Limit::Bucket(Bucket::tokens(1, Span::from_secs(3_600), limit).unwrap())
}

fn explore(test: impl Fn() + Send + Sync + Clone + 'static) {
    check_random(test.clone(), SCHEDULES);
    check_pct(test, SCHEDULES, PREEMPTIONS);
}

/// Calls `ask` twice on each of three threads and returns how often it returned `true`.
fn count_true(ask: impl Fn(usize) -> bool + Send + Sync + 'static) -> usize {
    let (ask, count) = (Arc::new(ask), Arc::new(AtomicUsize::new(0)));
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let (ask, count) = (Arc::clone(&ask), Arc::clone(&count));
            thread::spawn(move || {
                for attempt in 0..2 {
                    if ask(number * 2 + attempt) {
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    count.load(Ordering::SeqCst)
}

#[test]
fn plans_over_several_shards_neither_deadlock_nor_miscount() {
    explore(|| {
        let store = MemoryStore::with_clock(Frozen);
        let keyspaces = ["a", "b", "c"].map(|rule| Keyspace::new("test", rule).unwrap());
        let subject = SubjectHasher::new([1; 32]).subject([("user", "u")]);
        let admitted = count_true(move |attempt| {
            let mut plan = Plan::new();
            // Every attempt orders its keys differently.
            for position in 0..3 {
                let rule = (position + attempt) % 3;
                let limit = [window(2), bucket(9), window(4)][rule];
                plan.push(Item::new(keyspaces[rule].key(subject), limit, Operation::charge(1))).unwrap();
            }
            store.apply_now(&plan).answers.iter().all(Answer::is_admitted)
        });
        assert_eq!(admitted, 2);
    });
}

#[test]
fn one_hot_key_gets_exactly_its_limit_despite_the_last_refusal() {
    explore(|| {
        let keyed = Keyed::with_store(bucket(2), MemoryStore::with_clock(AnyClock::custom(Frozen))).unwrap();
        assert_eq!(count_true(move |_| keyed.check("hot").allowed()), 2);
    });
}

/// Plans of one item may use the hot slot; a Plan of two items writes it back. Both see every charge.
#[test]
fn plans_of_one_item_and_of_two_charge_a_contended_key_exactly() {
    explore(|| {
        let store = MemoryStore::with_clock(Frozen);
        let keyspaces = ["a", "b"].map(|rule| Keyspace::new("test", rule).unwrap());
        let subject = SubjectHasher::new([1; 32]).subject([("user", "u")]);
        let ask = move |keys: usize| {
            let mut plan = Plan::new();
            for (keyspace, limit) in keyspaces.iter().zip([bucket(5), window(9)]).take(keys) {
                plan.push(Item::new(keyspace.key(subject), limit, Operation::charge(1))).unwrap();
            }
            store.apply_now(&plan).answers.iter().all(Answer::is_admitted)
        };
        assert!(ask(2), "both keys have state from here on");
        assert_eq!(count_true(move |attempt| ask(if attempt == 3 { 2 } else { 1 })), 4);
    });
}

/// The last refusal must not outlive the reset.
#[test]
fn a_check_after_a_reset_sees_the_reset() {
    explore(|| {
        let keyed = Arc::new(
            Keyed::with_store(window(1), MemoryStore::with_clock(AnyClock::custom(Frozen))).unwrap(),
        );
        assert!(keyed.check("k").allowed());
        let others: Vec<_> = (0..2)
            .map(|_| {
                let keyed = Arc::clone(&keyed);
                thread::spawn(move || {
                    keyed.peek("k", 1);
                    keyed.peek("k", 1);
                })
            })
            .collect();
        keyed.reset("k");
        assert!(keyed.peek("k", 1).allowed());
        others.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn at_the_cap_all_keys_share_the_overflow_subject_exactly() {
    explore(|| {
        let store = MemoryStore::with_clock(AnyClock::custom(Frozen)).keys_max(0);
        let keyed = Keyed::with_store(bucket(3), store).unwrap();
        assert_eq!(count_true(move |attempt| keyed.check(attempt.to_le_bytes()).allowed()), 3);
    });
}

#[test]
fn a_concurrency_limit_of_one_has_one_holder_at_a_time() {
    explore(|| {
        let store = Arc::new(MemoryStore::with_clock(Frozen));
        let keyspace = Arc::new(Keyspace::new("test", "a").unwrap());
        let holders = Arc::new(AtomicUsize::new(0));
        let limit = Limit::Concurrency(Concurrency::new(1, Span::from_secs(9)).unwrap());
        let subject = SubjectHasher::new([1; 32]).subject([("user", "u")]);
        let (current, kept_store) = (Arc::clone(&holders), Arc::clone(&store));
        count_true(move |attempt| {
            let token = Token(attempt as u128 + 1);
            let apply = |operation| {
                let mut plan = Plan::new();
                plan.push(Item::new(keyspace.key(subject), limit, operation)).unwrap();
                store.apply_now(&plan).answers[0].is_admitted()
            };
            let admitted = apply(Operation::Charge { cost: 1, token });
            if admitted {
                assert_eq!(current.fetch_add(1, Ordering::SeqCst), 0, "one holder at a time");
                current.fetch_sub(1, Ordering::SeqCst);
                apply(Operation::Release { token });
            }
            admitted
        });
        assert_eq!(holders.load(Ordering::SeqCst), 0);
        assert_eq!(kept_store.sweep(), 0);
    });
}
