//! Slices on a real server: several limiters on one hot key never admit more than the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate::{HashKey, Limiter};
use tollgate_core::plan::answer::AnsweredBy;
use tollgate_testkit::redis::{Flavour, Server};

use crate::common::{clean, runtime, settings};

const LIMITERS: usize = 3;
const TASKS: usize = 4;

fn limiters(server: &Server, runtime: &tokio::runtime::Runtime, limit: &str) -> Vec<Limiter> {
    let rules = format!(
        "version: 1\nrules:\n  - {{ id: hot, per: user, limit: {limit}, slices: {{ hold: 250ms }} }}\n"
    );
    let build = |_| {
        let builder = Limiter::builder().rules_yaml(rules.clone()).hash_key(HashKey::new([7; 32]));
        let builder = builder.servers(LIMITERS as u32).redis(settings(&server.url()));
        runtime.block_on(builder.build()).unwrap()
    };
    (0..LIMITERS).map(build).collect()
}

#[derive(Default)]
struct Totals {
    admitted: AtomicU64,
    refused: AtomicU64,
    local: AtomicU64,
    /// Refusals at a time when fewer units than the limit were admitted.
    early: AtomicU64,
}

#[test]
fn three_limiters_with_slices_admit_exactly_the_limit_of_a_hot_key() {
    const LIMIT: u64 = 60_000;
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let totals = Arc::new(Totals::default());
    let tasks: Vec<_> = limiters(&server, &runtime, "{ quota: 60000/1h, period: rolling }")
        .into_iter()
        .flat_map(|limiter| std::iter::repeat_n(limiter, TASKS))
        .map(|limiter| {
            let totals = Arc::clone(&totals);
            runtime.spawn(async move {
                // Long enough refused: all units that other limiters held have come back.
                let mut refusing: Option<Instant> = None;
                while refusing.is_none_or(|since| since.elapsed() < Duration::from_secs(2)) {
                    let decision = limiter.check([("user", "hot")]).await.unwrap();
                    if decision.rules().all(|rule| rule.outcome().by == AnsweredBy::Slice) {
                        totals.local.fetch_add(1, Ordering::Relaxed);
                        tokio::task::yield_now().await;
                    }
                    if decision.allowed() {
                        refusing = None;
                        totals.admitted.fetch_add(1, Ordering::Relaxed);
                    } else {
                        refusing.get_or_insert_with(Instant::now);
                        totals.refused.fetch_add(1, Ordering::Relaxed);
                        let early = totals.admitted.load(Ordering::Relaxed) < LIMIT;
                        totals.early.fetch_add(u64::from(early), Ordering::Relaxed);
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    let [admitted, refused, local, early] = [&totals.admitted, &totals.refused, &totals.local, &totals.early]
        .map(|count| count.load(Ordering::Relaxed));
    println!(
        "slices: {admitted} of {LIMIT} admitted, {} over; {:.2} % without a round trip; {early} of {refused} refusals \
         early ({:.3} % of admissions)",
        admitted.saturating_sub(LIMIT),
        local as f64 * 100.0 / admitted as f64,
        early as f64 * 100.0 / admitted as f64,
    );
    assert_eq!(admitted, LIMIT, "all units that were not spent came back, and none was spent twice");
    assert!(local * 100 >= admitted * 80, "{local} of {admitted} without a round trip");
    clean(&server);
}

#[test]
fn an_idle_limiter_gives_its_slices_back() {
    const LIMIT: u64 = 10_000;
    const CHECKS: u64 = 500;
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let mut limiters = limiters(&server, &runtime, "{ quota: 10000/1h, period: rolling }");
    let (idle, other) = (limiters.remove(0), limiters.remove(0));
    let remaining = || {
        let peeked =
            runtime.block_on(other.peek(tollgate::Request::from([("user", "hot")]).cost(0))).unwrap();
        peeked.rules().next().and_then(|rule| rule.remaining()).unwrap()
    };
    runtime.block_on(async {
        for _ in 0..CHECKS {
            assert!(idle.check([("user", "hot")]).await.unwrap().allowed());
        }
    });
    let booked = LIMIT - remaining();
    assert!(booked > CHECKS, "{booked} units are booked for {CHECKS} checks, so none is held");
    let deadline = Instant::now() + Duration::from_secs(5);
    while remaining() < LIMIT - CHECKS {
        assert!(Instant::now() < deadline, "{} units never came back", LIMIT - CHECKS - remaining());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(remaining(), LIMIT - CHECKS);
}

#[test]
fn a_local_check_takes_microseconds() {
    const CHECKS: usize = 20_000;
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let limiter = limiters(&server, &runtime, "{ quota: 100000000/1h, period: rolling }").remove(0);
    let mut local_ns: Vec<u128> = runtime.block_on(async {
        let mut local_ns = Vec::new();
        for _ in 0..CHECKS {
            let started = Instant::now();
            let decision = limiter.check([("user", "hot")]).await.unwrap();
            let took = started.elapsed();
            assert!(decision.allowed());
            if decision.rules().all(|rule| rule.outcome().by == AnsweredBy::Slice) {
                local_ns.push(took.as_nanos());
            }
        }
        local_ns
    });
    local_ns.sort_unstable();
    let at = |percent: usize| local_ns[local_ns.len() * percent / 100] as f64 / 1_000.0;
    println!("local checks: {} of {CHECKS}; p50 {:.2} us, p99 {:.2} us", local_ns.len(), at(50), at(99));
    assert!(local_ns.len() * 100 >= CHECKS * 95, "{} of {CHECKS} without a round trip", local_ns.len());
}
