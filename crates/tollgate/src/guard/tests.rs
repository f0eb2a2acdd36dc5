//! The failure policies, over a store that can be switched off.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::decision::Source;
use tollgate_core::plan::answer::{AnsweredBy, PolicyKind};
use tollgate_core::{
    Exactness, Item, Keyspace, Limit, OnFailure, Operation, Outcome, Plan, PlanDecision, Span, Store,
    StoreError, Subject, Time, Token,
};

use super::{FleetSize, Guarded};
use crate::clock::ManualClock;
use crate::engine::poll_ready;
use crate::store::memory::MemoryStore;

const UP: u8 = 0;
const DOWN: u8 = 1;
const WRONG_PASSWORD: u8 = 2;

/// A store that answers, does not answer, or refuses its credentials.
struct Switched {
    store: MemoryStore<ManualClock>,
    state: Arc<AtomicU8>,
}

impl Store for Switched {
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        match self.state.load(Ordering::Relaxed) {
            UP => self.store.apply_once(plan),
            DOWN => Err(StoreError::Transient("unreachable".into())),
            _ => Err(StoreError::Misconfigured("WRONGPASS".into())),
        }
    }

    fn apply_unawaited(&self, _: &Plan<'_>) {}

    fn now(&self) -> Time {
        self.store.now()
    }
}

struct Bench {
    guarded: Guarded<Switched>,
    state: Arc<AtomicU8>,
    clock: ManualClock,
    keyspaces: Vec<Keyspace>,
}

/// One rule of a test: its limit and its policy.
type Rule = (Limit, OnFailure);

impl Bench {
    fn new(fleet: FleetSize) -> Bench {
        let clock = ManualClock::at(Time::from_us(7_200_000_000));
        let state = Arc::new(AtomicU8::new(UP));
        let store = Switched { store: MemoryStore::with_clock(clock.clone()), state: Arc::clone(&state) };
        let keyspaces =
            (0..4).map(|number| Keyspace::new("test", &format!("rule-{number}")).unwrap()).collect();
        Bench { guarded: Guarded::new(store, Arc::new(fleet)), state, clock, keyspaces }
    }

    fn switch(&self, state: u8) {
        self.state.store(state, Ordering::Relaxed);
    }

    fn check(&self, rules: &[Rule], subject: u128, cost: u64) -> PlanDecision {
        let mut plan = Plan::new();
        for ((limit, on_failure), keyspace) in rules.iter().zip(&self.keyspaces) {
            let key = keyspace.key(Subject::from_u128(subject));
            let token = if matches!(limit, Limit::Concurrency(_)) { Token(1) } else { Token::NONE };
            let item = Item::new(key, *limit, Operation::Charge { cost, token });
            plan.push(Item { on_failure: *on_failure, ..item }).unwrap();
        }
        let outcome = poll_ready(self.guarded.apply(&plan)).unwrap();
        PlanDecision::new(&plan, &outcome).unwrap()
    }

    /// How many of `tries` single requests are allowed.
    fn admitted(&self, rules: &[Rule], subject: u128, tries: u64) -> u64 {
        (0..tries).filter(|_| self.check(rules, subject, 1).allowed).count() as u64
    }
}

fn per_hour(limit: u64) -> Limit {
    Limit::FixedWindow(FixedWindow::new(limit, Span::from_secs(3_600)).unwrap())
}

const QUARTER: OnFailure = OnFailure::Local { percent: Some(25) };
const FAIR: OnFailure = OnFailure::Local { percent: None };

#[test]
fn a_local_limiter_admits_its_share_while_the_store_is_away() {
    let bench = Bench::new(FleetSize::default());
    bench.switch(DOWN);
    assert_eq!(bench.admitted(&[(per_hour(8), QUARTER)], 1, 10), 2);
    let refused = bench.check(&[(per_hour(8), QUARTER)], 1, 1);
    assert_eq!((refused.source, refused.exactness), (Source::Fallback, Exactness::Bounded));
    assert_eq!(refused.rules[0].by, AnsweredBy::Policy(PolicyKind::Local));
    assert_eq!(refused.rules[0].numbers.map(|numbers| numbers.limit), Some(2));
}

#[test]
fn what_was_used_in_the_store_counts_locally() {
    let bench = Bench::new(FleetSize::default());
    let rule = [(per_hour(8), QUARTER)];
    assert_eq!(bench.admitted(&rule, 1, 4), 4);
    bench.switch(DOWN);
    assert_eq!(bench.admitted(&rule, 1, 10), 1, "half of the share is used");
    assert_eq!(bench.admitted(&rule, 2, 10), 2, "another subject has its whole share");
    bench.switch(UP);
    assert_eq!(bench.admitted(&rule, 1, 10), 4, "the store counts what it admitted, and nothing else");
    bench.switch(DOWN);
    assert_eq!(bench.admitted(&rule, 1, 10), 0);
}

#[test]
fn a_store_that_comes_and_goes_adds_no_share() {
    let bench = Bench::new(FleetSize::default());
    let rule = [(per_hour(400), QUARTER)];
    let mut away = 0;
    for turn in 0..200 {
        bench.switch(if turn % 2 == 0 { DOWN } else { UP });
        let admitted = bench.admitted(&rule, 1, 3);
        away += if turn % 2 == 0 { admitted } else { 0 };
    }
    assert!(away <= 100, "{away} admitted while the store was away");
    bench.clock.advance(Duration::from_secs(3_600));
    bench.switch(DOWN);
    assert_eq!(bench.admitted(&rule, 1, 200), 100, "a new window has a new share");
}

#[test]
fn a_fair_share_needs_the_number_of_servers() {
    let unknown = Bench::new(FleetSize::default());
    unknown.switch(DOWN);
    assert_eq!(unknown.admitted(&[(per_hour(8), FAIR)], 1, 10), 0);
    let of_four = Bench::new(FleetSize::stated(4));
    of_four.switch(DOWN);
    assert_eq!(of_four.admitted(&[(per_hour(8), FAIR)], 1, 10), 2);
}

#[test]
fn a_cap_is_one_bucket_for_all_subjects_of_the_rule() {
    let bench = Bench::new(FleetSize::default());
    let cap = OnFailure::Cap { amount: 3, period: Span::from_secs(60) };
    bench.switch(DOWN);
    let admitted: u64 = (0..10).map(|subject| bench.admitted(&[(per_hour(8), cap)], subject, 1)).sum();
    assert_eq!(admitted, 3);
    bench.clock.advance(Duration::from_secs(20));
    assert_eq!(bench.admitted(&[(per_hour(8), cap)], 11, 5), 1, "it refills at its rate");
}

#[test]
fn if_one_policy_refuses_no_other_is_charged() {
    let bench = Bench::new(FleetSize::default());
    bench.switch(DOWN);
    let local = (per_hour(8), QUARTER);
    assert_eq!(bench.admitted(&[local, (per_hour(8), OnFailure::Closed)], 1, 5), 0);
    let small_cap = (per_hour(8), OnFailure::Cap { amount: 1, period: Span::from_secs(60) });
    assert_eq!(bench.admitted(&[local, small_cap], 1, 5), 1, "both are decided together");
    assert_eq!(bench.admitted(&[local], 1, 5), 1, "one of two was left");
}

#[test]
fn open_and_degraded_admit_and_say_so() {
    let bench = Bench::new(FleetSize::default());
    bench.switch(DOWN);
    for policy in [OnFailure::Open, OnFailure::Degraded] {
        let allowed = bench.check(&[(per_hour(1), policy)], 1, 1);
        assert!(allowed.allowed && allowed.degraded, "{policy:?}");
        assert_eq!((allowed.source, allowed.exactness), (Source::Fallback, Exactness::Unbounded));
        assert_eq!(allowed.rules[0].numbers, None);
    }
}

#[test]
fn wrong_credentials_open_nothing() {
    let bench = Bench::new(FleetSize::stated(2));
    bench.switch(WRONG_PASSWORD);
    let cap = OnFailure::Cap { amount: 9, period: Span::from_secs(1) };
    for policy in [OnFailure::Open, OnFailure::Degraded, QUARTER, FAIR, cap] {
        let refused = bench.check(&[(per_hour(8), policy)], 1, 1);
        assert!(!refused.allowed && !refused.degraded, "{policy:?}");
        assert_eq!(refused.rules[0].by, AnsweredBy::Policy(PolicyKind::Closed));
    }
}

#[test]
fn a_cost_above_the_share_is_refused_and_charges_nothing() {
    let bench = Bench::new(FleetSize::default());
    bench.switch(DOWN);
    assert!(!bench.check(&[(per_hour(8), QUARTER)], 1, 3).allowed);
    assert_eq!(bench.admitted(&[(per_hour(8), QUARTER)], 1, 10), 2);
}

#[test]
fn limits_without_a_share_refuse() {
    let bench = Bench::new(FleetSize::default());
    bench.switch(DOWN);
    let leases = Limit::Concurrency(Concurrency::new(8, Span::from_secs(60)).unwrap());
    let shaper = Limit::Bucket(Bucket::queue(8, Span::from_secs(1), 8).unwrap());
    for limit in [leases, shaper] {
        assert!(!bench.check(&[(limit, QUARTER)], 1, 1).allowed, "{limit:?}");
    }
}

#[test]
fn a_follow_up_has_no_policy() {
    let bench = Bench::new(FleetSize::default());
    bench.switch(DOWN);
    let key = bench.keyspaces[0].key(Subject::from_u128(1));
    let item =
        Item { on_failure: OnFailure::Open, ..Item::new(key, per_hour(8), Operation::Record { cost: 1 }) };
    let failed = poll_ready(bench.guarded.apply(&Plan::of(item).unwrap()));
    assert!(matches!(failed, Err(StoreError::Transient(_))), "its caller must know: {failed:?}");
}
