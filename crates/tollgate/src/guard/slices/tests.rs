//! Servers with slices over one store, on a manual clock.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate_core::plan::slice::SliceHold;
use tollgate_core::{Keyspace, Limit, Subject, Time};

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::engine::poll_ready;
use crate::store::memory::MemoryStore;

const HOLD_MS: u64 = 100;

/// A store whose answers take `lag_us`, half of it before the charge.
struct SlowStore {
    store: MemoryStore<ManualClock>,
    clock: ManualClock,
    lag_us: AtomicU64,
    down: AtomicBool,
    generation: AtomicU64,
    calls: AtomicU64,
}

impl SlowStore {
    fn new() -> SlowStore {
        let clock = ManualClock::at(Time::from_us(7_200_000_000));
        SlowStore {
            store: MemoryStore::with_clock(clock.clone()),
            clock,
            lag_us: AtomicU64::new(0),
            down: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            calls: AtomicU64::new(0),
        }
    }

    fn wait(&self, us: u64) {
        self.clock.set(self.clock.now().plus(Span::from_us(us)));
    }
}

impl Store for SlowStore {
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let lag_us = self.lag_us.load(Ordering::Relaxed);
        self.wait(lag_us / 2);
        if self.down.load(Ordering::Relaxed) {
            return Err(StoreError::Transient("no answer".into()));
        }
        let outcome = self.store.apply_once(plan);
        self.wait(lag_us / 2);
        outcome
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        self.store.apply_once(plan).unwrap();
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    fn now(&self) -> Time {
        self.clock.now()
    }
}

struct Bench {
    store: SlowStore,
    servers: Vec<Slices>,
    keyspaces: Vec<Keyspace>,
}

/// One rule of a check: its limit as the store enforces it, and whether it has slices.
type Rule = (Limit, bool);

impl Bench {
    fn new(servers: u32) -> Bench {
        let store = SlowStore::new();
        let fleet = Arc::new(FleetSize::stated(servers));
        let server = |_| {
            let (clock, base) = (store.clock.clone(), Instant::now());
            let start_us = clock.now().us();
            Slices::new(Arc::clone(&fleet)).with_clock(MonotonicClock::simulated(move || {
                base + Duration::from_micros(clock.now().us().saturating_sub(start_us))
            }))
        };
        let servers = (0..servers).map(server).collect();
        let keyspaces = (0..3).map(|rule| Keyspace::new("test", &format!("rule-{rule}")).unwrap()).collect();
        Bench { store, servers, keyspaces }
    }

    fn plan(&self, rules: &[Rule], cost: u64) -> Plan<'_> {
        let mut plan = Plan::new();
        for ((limit, sliced), keyspace) in rules.iter().zip(&self.keyspaces) {
            let item = Item::new(keyspace.key(Subject::from_u128(1)), *limit, Operation::charge(cost));
            plan.push(Item { slices: sliced.then(hold), ..item }).unwrap();
        }
        plan
    }

    fn try_check(&self, server: usize, rules: &[Rule], cost: u64) -> Result<Outcome, StoreError> {
        let slices = &self.servers[server];
        slices.return_ended(&self.store);
        poll_ready(slices.apply(&self.plan(rules, cost), &self.store))
    }

    fn is_admitted(&self, server: usize, rules: &[Rule]) -> bool {
        is_admitted(&self.try_check(server, rules, 1).unwrap())
    }

    /// What the store has left under the first rule.
    fn remaining(&self, limit: Limit) -> u64 {
        let mut plan = self.plan(&[(limit, false)], 0);
        plan.peek_status();
        self.store.store.apply_once(&plan).unwrap().answers[0].remaining
    }
}

fn hold() -> SliceHold {
    SliceHold::new(Span::from_ms(HOLD_MS)).unwrap()
}

fn fixed(limit: u64) -> Limit {
    Limit::FixedWindow(FixedWindow::new(limit, Span::from_secs(1)).unwrap())
}

#[test]
fn a_hot_key_is_checked_without_the_store() {
    let bench = Bench::new(1);
    let rule = [(fixed(100_000), true)];
    let mut by_slice = 0;
    for _ in 0..5_000 {
        let outcome = bench.try_check(0, &rule, 1).unwrap();
        assert!(is_admitted(&outcome));
        by_slice += u64::from(outcome.answers[0].by == AnsweredBy::Slice);
        bench.store.wait(100);
    }
    let counts = bench.servers[0].counts();
    assert_eq!(counts.local_checks, by_slice);
    assert!(by_slice > 4_900, "{by_slice} of 5000, {counts:?}");
    assert_eq!(bench.store.calls.load(Ordering::Relaxed), 5_000 - by_slice, "one call per other check");
}

#[test]
fn what_is_booked_is_what_was_admitted_once_all_grants_have_ended() {
    let bench = Bench::new(1);
    let limit = Limit::Quota(Quota::new(10_000, 0, QuotaPeriod::Rolling(Span::from_secs(3_600))).unwrap());
    let mut admitted = 0;
    for _ in 0..500 {
        admitted += u64::from(bench.is_admitted(0, &[(limit, true)]));
        bench.store.wait(1_000);
    }
    assert!(bench.remaining(limit) < 10_000 - admitted, "some units are held");
    bench.store.wait(HOLD_MS * 1_000);
    bench.servers[0].return_ended(&bench.store);
    assert_eq!(bench.remaining(limit), 10_000 - admitted);
    assert!(bench.servers[0].counts().returned_units > 0);
}

#[test]
fn another_rule_that_refuses_puts_the_units_back() {
    let bench = Bench::new(1);
    let (hot, small) = ((fixed(100_000), true), (fixed(40), false));
    for _ in 0..40 {
        assert!(bench.is_admitted(0, &[hot, small]));
    }
    let left = |bench: &Bench| {
        let outcome = bench.try_check(0, &[hot], 1).unwrap();
        (outcome.answers[0].by, outcome.answers[0].remaining)
    };
    let (by, before) = left(&bench);
    assert_eq!(by, AnsweredBy::Slice);
    let calls = bench.store.calls.load(Ordering::Relaxed);
    for _ in 0..10 {
        let refused = bench.try_check(0, &[hot, small], 1).unwrap();
        assert!(!is_admitted(&refused));
        assert_eq!((refused.answers[0].by, refused.answers[0].mark), (AnsweredBy::Slice, Mark::None));
    }
    assert_eq!(bench.store.calls.load(Ordering::Relaxed), calls + 10, "only the other rule was sent");
    assert_eq!(left(&bench), (AnsweredBy::Slice, before - 1));
}

#[test]
fn an_unknown_outcome_leaves_the_units_spent() {
    let bench = Bench::new(1);
    let (hot, other) = ((fixed(100_000), true), (fixed(100_000), false));
    while bench.servers[0].counts().grants == 0 {
        assert!(bench.is_admitted(0, &[hot, other]));
    }
    let left = |bench: &Bench| {
        let outcome = bench.try_check(0, &[hot], 1).unwrap();
        (outcome.answers[0].by, outcome.answers[0].remaining)
    };
    let (by, before) = left(&bench);
    assert_eq!(by, AnsweredBy::Slice);
    bench.store.down.store(true, Ordering::Relaxed);
    bench.try_check(0, &[hot, other], 1).unwrap_err();
    assert_eq!(left(&bench), (AnsweredBy::Slice, before - 2), "one is spent and lost, one is spent now");
}

#[test]
fn a_new_connection_and_a_reset_drop_grants_unreturned() {
    let bench = Bench::new(1);
    let rule = [(fixed(100_000), true)];
    let fill = || {
        let before = bench.servers[0].counts().grants;
        while bench.servers[0].counts().grants == before {
            assert!(bench.is_admitted(0, &rule));
        }
    };
    fill();
    bench.store.generation.fetch_add(1, Ordering::Relaxed);
    let outcome = bench.try_check(0, &rule, 1).unwrap();
    assert_eq!(outcome.answers[0].by, AnsweredBy::Store);
    fill();
    let reset = Operation::Reset { receipt_life: Span::from_secs(60) };
    let item = Item { operation: reset, ..bench.plan(&rule, 1).items()[0] };
    bench.servers[0].follow(&Plan::of(item).unwrap());
    let outcome = bench.try_check(0, &rule, 1).unwrap();
    assert_eq!(outcome.answers[0].by, AnsweredBy::Store);
    bench.store.wait(HOLD_MS * 1_000);
    bench.servers[0].return_ended(&bench.store);
    let counts = bench.servers[0].counts();
    assert_eq!(counts.returned_units, 0);
    assert!(counts.lapsed_units >= 16, "{counts:?}");
}

#[test]
fn plans_with_an_id_peeks_and_shadow_items_never_use_slices() {
    let bench = Bench::new(1);
    let rule = [(fixed(1_000), true)];
    assert!(Slices::serve(&bench.plan(&rule, 1), &bench.store));
    assert!(!Slices::serve(&bench.plan(&[(fixed(1_000), false)], 1), &bench.store));
    let mut with_id = bench.plan(&rule, 1);
    with_id.set_request_id(Subject::from_u128(1), Span::from_secs(60), 0);
    assert!(!Slices::serve(&with_id, &bench.store));
    let mut peek = bench.plan(&rule, 1);
    peek.peek();
    assert!(!Slices::serve(&peek, &bench.store));
    let shadow = Item { blocking: false, ..bench.plan(&rule, 1).items()[0] };
    assert!(!Slices::serve(&Plan::of(shadow).unwrap(), &bench.store));
}

/// One step of a history: a check on a server, and the time that passes after it.
type Step = (usize, u64, u64);

/// Runs a history and returns every admission: its instant on the store's clock, and its cost.
fn run(limit: Limit, lag_us: u64, steps: &[Step]) -> Vec<(u64, u64)> {
    let bench = Bench::new(3);
    bench.store.lag_us.store(lag_us, Ordering::Relaxed);
    let mut admitted = Vec::new();
    for &(server, cost, pause_us) in steps {
        let outcome = bench.try_check(server, &[(limit, true)], cost).unwrap();
        if is_admitted(&outcome) {
            // Units of a grant are used now; those that the store charged for this check, when it charged them.
            let at = if outcome.answers[0].by == AnsweredBy::Slice { bench.store.now() } else { outcome.now };
            admitted.push((at.us(), cost));
        }
        bench.store.wait(pause_us);
    }
    for server in &bench.servers {
        let counts = server.counts();
        assert!(counts.granted_units >= counts.returned_units + counts.lapsed_units);
    }
    admitted
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Mostly so short that the limits below are exhausted: a check too many must show.
    let pause = prop_oneof![400 => 0_u64..600, 2 => 0_u64..120_000, 1 => 0_u64..300_000];
    prop::collection::vec((0_usize..3, 1_u64..=3, pause), 4_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_fixed_window_is_never_exceeded(steps in steps(), lag_us in 0_u64..30_000) {
        let mut windows = std::collections::BTreeMap::<u64, u64>::new();
        for (at, cost) in run(fixed(300), lag_us, &steps) {
            *windows.entry(at / 1_000_000).or_default() += cost;
        }
        prop_assert!(windows.values().all(|&used| used <= 300), "{windows:?}");
    }

    #[test]
    fn a_strict_sliding_window_is_never_exceeded(steps in steps(), lag_us in 0_u64..30_000) {
        let limit = SlidingWindow::new(300, Span::from_secs(1), 5, Counting::Strict).unwrap();
        let admitted = run(Limit::SlidingWindow(limit), lag_us, &steps);
        for &(from, _) in &admitted {
            let used: u64 =
                admitted.iter().filter(|(at, _)| (from..from + 1_000_000).contains(at)).map(|(_, cost)| cost).sum();
            prop_assert!(used <= 300, "{used} within 1 s of {from}");
        }
    }

    #[test]
    fn a_token_bucket_with_its_margin_is_never_exceeded(steps in steps(), lag_us in 0_u64..30_000) {
        let (rate, burst) = (400, 120);
        let whole = Limit::Bucket(Bucket::tokens(rate, Span::from_secs(1), burst).unwrap());
        let admitted = run(whole.with_slice_margin(hold()).unwrap(), lag_us, &steps);
        for (first, &(from, _)) in admitted.iter().enumerate() {
            let mut used = 0;
            for &(at, cost) in &admitted[first..] {
                used += cost;
                let most = burst + (at.saturating_sub(from)) * rate / 1_000_000;
                prop_assert!(used <= most, "{used} from {from} to {at}, at most {most}");
            }
        }
    }
}
