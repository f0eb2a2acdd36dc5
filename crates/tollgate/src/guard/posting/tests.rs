//! What is posted after an outage, over a store that can be switched off and that can lose its replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::meter::Meter;
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::time::calendar::Periods;
use tollgate_core::{
    Item, Keyspace, Limit, OnFailure, Operation, Outcome, Plan, Recording, Span, Store, StoreError, Subject,
    Time, Verdict,
};

use super::{IDLE, PostCounts, SENT_AT_ONCE, SUMS_MAX};
use crate::clock::{Clock, ManualClock};
use crate::engine::poll_ready;
use crate::guard::{FleetSize, Guarded, MonotonicClock};
use crate::store::memory::MemoryStore;

const UP: u8 = 0;
/// The connection is refused.
const DOWN: u8 = 1;
/// Plans are applied, and their replies are lost.
const SILENT: u8 = 2;

const HOUR: Span = Span::from_secs(3_600);
const START: Time = Time::from_us(7_200_000_000);
const QUARTER: OnFailure = OnFailure::Local { percent: Some(25) };

#[derive(Debug, thiserror::Error)]
#[error("connection refused")]
struct NotSent;

struct Switched {
    store: MemoryStore<ManualClock>,
    state: Arc<AtomicU8>,
}

impl Store for Switched {
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        match self.state.load(Ordering::Relaxed) {
            UP => self.store.apply_once(plan),
            DOWN => Err(StoreError::Transient(Box::new(NotSent))),
            _ => {
                self.store.apply_once(plan)?;
                Err(StoreError::Transient("no reply".into()))
            }
        }
    }

    fn apply_unawaited(&self, _: &Plan<'_>) {}

    fn is_unapplied(&self, error: &StoreError) -> bool {
        matches!(error, StoreError::Transient(cause) if cause.is::<NotSent>())
    }

    fn now(&self) -> Time {
        self.store.now()
    }
}

struct Bench {
    guarded: Guarded<Switched>,
    state: Arc<AtomicU8>,
    clock: ManualClock,
    keyspace: Keyspace,
}

impl Bench {
    fn new() -> Bench {
        let clock = ManualClock::at(START);
        let state = Arc::new(AtomicU8::new(UP));
        let store = Switched { store: MemoryStore::with_clock(clock.clone()), state: Arc::clone(&state) };
        let (base, shown) = (Instant::now(), clock.clone());
        let monotonic = MonotonicClock::simulated(move || {
            base + Duration::from_micros(shown.now().us().saturating_sub(START.us()))
        });
        let guarded = Guarded::new(store, Arc::new(FleetSize::default())).with_clock(monotonic);
        Bench { guarded, state, clock, keyspace: Keyspace::new("test", "rule").unwrap() }
    }

    fn switch(&self, state: u8) {
        self.state.store(state, Ordering::Relaxed);
    }

    fn item(&self, subject: u128, limit: Limit) -> Item<'_> {
        let key = self.keyspace.key(Subject::from_u128(subject));
        Item { on_failure: QUARTER, ..Item::new(key, limit, Operation::charge(1)) }
    }

    /// How many of `tries` requests are admitted.
    fn admitted(&self, subject: u128, limit: Limit, tries: u64) -> u64 {
        let plan = Plan::of(self.item(subject, limit)).unwrap();
        let check = || poll_ready(self.guarded.apply(&plan)).unwrap().answers[0].is_admitted();
        (0..tries).filter(|_| check()).count() as u64
    }

    /// What the store has counted.
    fn used(&self, subject: u128, limit: Limit) -> u64 {
        let item = Item { operation: Operation::Usage, ..self.item(subject, limit) };
        let answer = self.guarded.store().store.apply_once(&Plan::of(item).unwrap()).unwrap().answers[0];
        match answer.verdict {
            Verdict::Usage { used, .. } => used,
            other => panic!("{other:?}"),
        }
    }

    /// The store is back: a check of another subject is answered, and what waits is sent.
    fn back(&self) {
        self.switch(UP);
        assert_eq!(self.admitted(u128::MAX, window(), 1), 1);
        self.maintain();
    }

    fn maintain(&self) {
        poll_ready(self.guarded.maintain());
    }

    fn counts(&self) -> (u64, u64, u64) {
        let PostCounts { posted_units, lost_units, waiting } = self.guarded.post_counts();
        (posted_units, lost_units, waiting)
    }
}

/// 100 units per hour of the clock.
fn hourly(now: Time) -> Limit {
    let current = now.floor(HOUR);
    let starts = [current.minus(HOUR), current, current.plus(HOUR), current.plus(HOUR).plus(HOUR)];
    Limit::Quota(Quota::new(100, 0, QuotaPeriod::Calendar(Periods::new(starts).unwrap())).unwrap())
}

/// 100 units per hour from the first use.
fn rolling() -> Limit {
    Limit::Quota(Quota::new(100, 0, QuotaPeriod::Rolling(HOUR)).unwrap())
}

fn window() -> Limit {
    Limit::FixedWindow(FixedWindow::new(1_000_000, HOUR).unwrap())
}

#[test]
fn local_admissions_of_a_quota_are_posted_once_when_the_store_is_back() {
    let (bench, quota) = (Bench::new(), hourly(START));
    assert_eq!(bench.admitted(1, quota, 8), 8);
    bench.switch(DOWN);
    assert_eq!(bench.admitted(1, quota, 100), 23, "a quarter of the 92 that remain");
    bench.maintain();
    assert_eq!(bench.counts(), (0, 0, 1), "nothing is sent while the store is away");
    bench.back();
    assert_eq!((bench.used(1, quota), bench.counts()), (31, (23, 0, 0)));
    bench.maintain();
    assert_eq!(bench.used(1, quota), 31, "posted once");
    assert_eq!(bench.guarded.post_report().map(|counts| counts.posted_units), Some(23));
    assert_eq!(bench.guarded.post_report(), None, "reported once");
}

#[test]
fn a_meter_is_posted_too_and_a_window_is_not() {
    let bench = Bench::new();
    let meter = Limit::Meter(Meter::new(Some(40), None).unwrap());
    bench.switch(DOWN);
    assert_eq!((bench.admitted(1, meter, 4), bench.admitted(2, window(), 4)), (4, 4));
    bench.back();
    assert_eq!((bench.used(1, meter), bench.used(2, window())), (4, 0));
    assert_eq!(bench.counts(), (4, 0, 0), "what a window counted is forgotten, not lost");
}

#[test]
fn what_the_store_may_have_charged_already_is_lost_and_not_posted() {
    let (bench, quota) = (Bench::new(), hourly(START));
    bench.switch(SILENT);
    assert_eq!(bench.admitted(1, quota, 5), 5);
    bench.back();
    assert_eq!((bench.used(1, quota), bench.counts()), (5, (0, 5, 0)), "the store had charged them");
}

#[test]
fn a_post_whose_reply_is_lost_is_repeated_and_booked_once() {
    let (bench, quota) = (Bench::new(), hourly(START));
    bench.switch(DOWN);
    assert_eq!(bench.admitted(1, quota, 5), 5);
    bench.back_but_silent();
    assert_eq!((bench.used(1, quota), bench.counts()), (5, (0, 0, 1)), "booked, and not confirmed");
    bench.back();
    assert_eq!((bench.used(1, quota), bench.counts()), (5, (5, 0, 0)));
}

impl Bench {
    /// The store answers one check, and loses the replies after it.
    fn back_but_silent(&self) {
        self.switch(UP);
        assert_eq!(self.admitted(u128::MAX, window(), 1), 1);
        self.switch(SILENT);
        self.maintain();
    }
}

#[test]
fn a_flapping_store_gets_each_admission_once() {
    let (bench, quota) = (Bench::new(), hourly(START));
    let (mut local, mut stored) = (0, 0);
    for _ in 0..20 {
        bench.switch(DOWN);
        local += bench.admitted(1, quota, 1);
        bench.back();
        stored += bench.admitted(1, quota, 1);
    }
    assert!(local <= 25 && stored == 20, "{local} locally, {stored} by the store");
    assert_eq!(bench.used(1, quota), local + stored);
}

#[test]
fn units_of_a_period_that_is_over_are_lost() {
    let bench = Bench::new();
    bench.switch(DOWN);
    assert_eq!(bench.admitted(1, hourly(START), 5), 5);
    bench.clock.advance(Duration::from_secs(3_600));
    let next = hourly(START.plus(HOUR));
    assert_eq!(bench.admitted(1, next, 3), 3);
    bench.back();
    assert_eq!(bench.used(1, next), 3, "an old period is never charged to a new one");
    assert_eq!(bench.counts(), (3, 5, 0));
    bench.clock.advance(Duration::from_secs(3 * 3_600));
    bench.switch(DOWN);
    assert_eq!(bench.admitted(1, hourly(bench.clock_now()), 2), 2);
    bench.clock.advance(Duration::from_secs(5 * 3_600));
    bench.back();
    assert_eq!(bench.counts(), (3, 7, 0), "also if the Plan does not know the store's period");
}

impl Bench {
    fn clock_now(&self) -> Time {
        self.guarded.now()
    }
}

#[test]
fn a_rolling_period_begins_with_the_first_use_wherever_that_was() {
    let (bench, quota) = (Bench::new(), rolling());
    // The store knows the period of subject 1.
    assert_eq!(bench.admitted(1, quota, 4), 4);
    bench.clock.advance(Duration::from_secs(1_800));
    bench.switch(DOWN);
    assert_eq!((bench.admitted(1, quota, 2), bench.admitted(2, quota, 2)), (2, 2));
    bench.clock.advance(Duration::from_secs(600));
    bench.back();
    assert_eq!((bench.used(1, quota), bench.used(2, quota)), (6, 2));
    bench.clock.advance(Duration::from_secs(1_200));
    assert_eq!((bench.used(1, quota), bench.used(2, quota)), (0, 2), "an hour after the first use");
    bench.clock.advance(Duration::from_secs(1_800));
    assert_eq!(bench.used(2, quota), 0, "an hour after the local admission, not after the post");
    bench.switch(DOWN);
    assert_eq!(bench.admitted(3, quota, 2), 2);
    bench.clock.advance(Duration::from_secs(3_600));
    bench.back();
    assert_eq!((bench.used(3, quota), bench.counts()), (0, (4, 2, 0)), "its period is over");
}

#[test]
fn requests_with_an_id_and_rules_of_the_ledger_are_not_posted() {
    let (bench, quota) = (Bench::new(), hourly(START));
    bench.switch(DOWN);
    let mut with_id = Plan::of(bench.item(1, quota)).unwrap();
    with_id.set_request_id(Subject::from_u128(9), Span::from_secs(60), 0);
    assert!(poll_ready(bench.guarded.apply(&with_id)).unwrap().answers[0].is_admitted());
    assert_eq!(bench.counts(), (0, 1, 0), "the same request may come again under its id");
    let recorded = Item { ledger: Some(Recording::default()), ..bench.item(2, quota) };
    assert!(poll_ready(bench.guarded.apply(&Plan::of(recorded).unwrap())).unwrap().answers[0].is_admitted());
    bench.back();
    assert_eq!((bench.used(1, quota), bench.used(2, quota)), (0, 0));
    assert_eq!(bench.counts(), (0, 1, 0), "the ledger has it");
}

#[test]
fn sums_are_bounded_in_number_and_sent_a_few_at_a_time() {
    let (bench, quota) = (Bench::new(), hourly(START));
    bench.switch(DOWN);
    for subject in 0..SUMS_MAX as u128 + 7 {
        assert_eq!(bench.admitted(subject, quota, 1), 1);
    }
    assert_eq!(bench.admitted(3, quota, 1), 1, "a known subject needs no room");
    assert_eq!(bench.counts(), (0, 7, SUMS_MAX as u64));
    bench.back();
    assert_eq!(bench.counts().2, (SUMS_MAX - SENT_AT_ONCE) as u64);
    while bench.counts().2 > 0 {
        bench.maintain();
    }
    assert_eq!(bench.counts(), (SUMS_MAX as u64 + 1, 7, 0));
}

#[test]
fn sums_are_sent_although_no_check_comes_after_the_outage() {
    let (bench, quota) = (Bench::new(), hourly(START));
    bench.switch(DOWN);
    assert_eq!(bench.admitted(1, quota, 5), 5);
    bench.switch(UP);
    bench.maintain();
    assert_eq!(bench.counts(), (0, 0, 1), "the outage may go on");
    bench.clock.advance(IDLE);
    bench.maintain();
    assert_eq!((bench.used(1, quota), bench.counts()), (5, (5, 0, 0)));
}
