//! Threads on the memory store in every order that a scheduler can think of: no deadlock, no lost or extra charge.

#![cfg(test)]

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::{check_pct, check_random, thread};
use tollgate::core::algorithm::bucket::Bucket;
use tollgate::core::algorithm::concurrency::Concurrency;
use tollgate::core::algorithm::fixed_window::FixedWindow;
use tollgate::clock::AnyClock;
use tollgate::core::{Answer, Item, Limit, Operation, Plan, Keyspace, Span, SubjectHasher, Time, Token};
use tollgate::{Clock, Keyed, MemoryStore};

/// Each schedule starts from scratch, so a store must be cheap to make: its shards are.
const SCHEDULES: usize = 400;
/// How many preemptions the second scheduler places.
const DEPTH: usize = 3;

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

fn tried(test: impl Fn() + Send + Sync + Clone + 'static) {
    check_random(test.clone(), SCHEDULES);
    check_pct(test, SCHEDULES, DEPTH);
}

/// Runs `ask` on three threads, twice each, and gives how often it said yes.
fn yes(ask: impl Fn(usize) -> bool + Send + Sync + 'static) -> usize {
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
fn plans_over_several_shards_neither_wait_for_each_other_nor_miscount() {
    tried(|| {
        let store = MemoryStore::with_clock(Frozen);
        let scopes = ["a", "b", "c"].map(|rule| Keyspace::new("test", rule).unwrap());
        let subject = SubjectHasher::new([1; 32]).subject([("user", "u")]);
        let admitted = yes(move |attempt| {
            let mut plan = Plan::new();
            // Every attempt names its keys in another order.
            for place in 0..3 {
                let at = (place + attempt) % 3;
                let limit = [window(2), bucket(9), window(4)][at];
                plan.push(Item::new(scopes[at].key(subject), limit, Operation::charge(1))).unwrap();
            }
            store.apply_now(&plan).answers.iter().all(Answer::is_admitted)
        });
        assert_eq!(admitted, 2);
    });
}

#[test]
fn one_hot_key_gets_exactly_its_limit_with_refusals_remembered() {
    tried(|| {
        let keyed = Keyed::with_store(bucket(2), MemoryStore::with_clock(AnyClock::custom(Frozen))).unwrap();
        assert_eq!(yes(move |_| keyed.check("hot").allowed()), 2);
    });
}

/// Some ask for the key alone, which may be lifted out of its table then, and some for it and another: both see each charge.
#[test]
fn a_key_that_is_fought_for_is_charged_exactly_by_whoever_asks_in_whatever_way() {
    tried(|| {
        let store = MemoryStore::with_clock(Frozen);
        let scopes = ["a", "b"].map(|rule| Keyspace::new("test", rule).unwrap());
        let subject = SubjectHasher::new([1; 32]).subject([("user", "u")]);
        let ask = move |keys: usize| {
            let mut plan = Plan::new();
            for (scope, limit) in scopes.iter().zip([bucket(5), window(9)]).take(keys) {
                plan.push(Item::new(scope.key(subject), limit, Operation::charge(1))).unwrap();
            }
            store.apply_now(&plan).answers.iter().all(Answer::is_admitted)
        };
        assert!(ask(2), "both keys have state from here on");
        assert_eq!(yes(move |attempt| ask(if attempt == 3 { 2 } else { 1 })), 4);
    });
}

/// Who gives back sees it given back: a remembered refusal must not outlive the refund.
#[test]
fn a_reset_is_seen_by_whoever_asks_after_it() {
    tried(|| {
        let keyed = Arc::new(Keyed::with_store(window(1), MemoryStore::with_clock(AnyClock::custom(Frozen))).unwrap());
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
fn at_the_cap_threads_share_the_overflow_account_exactly() {
    tried(|| {
        let store = MemoryStore::with_clock(AnyClock::custom(Frozen)).keys_max(0);
        let keyed = Keyed::with_store(bucket(3), store).unwrap();
        assert_eq!(yes(move |attempt| keyed.check(attempt.to_le_bytes()).allowed()), 3);
    });
}

#[test]
fn leases_are_taken_and_given_back_one_at_a_time() {
    tried(|| {
        let store = Arc::new(MemoryStore::with_clock(Frozen));
        let scope = Arc::new(Keyspace::new("test", "a").unwrap());
        let held = Arc::new(AtomicUsize::new(0));
        let limit = Limit::Concurrency(Concurrency::new(1, Span::from_secs(9)).unwrap());
        let subject = SubjectHasher::new([1; 32]).subject([("user", "u")]);
        let (inside, kept) = (Arc::clone(&held), Arc::clone(&store));
        yes(move |attempt| {
            let token = Token(attempt as u128 + 1);
            let apply = |operation| {
                let mut plan = Plan::new();
                plan.push(Item::new(scope.key(subject), limit, operation)).unwrap();
                store.apply_now(&plan).answers[0].is_admitted()
            };
            let admitted = apply(Operation::Charge { cost: 1, token });
            if admitted {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "one holder at a time");
                inside.fetch_sub(1, Ordering::SeqCst);
                apply(Operation::Release { token });
            }
            admitted
        });
        assert_eq!(held.load(Ordering::SeqCst), 0);
        assert_eq!(kept.sweep(), 0);
    });
}
