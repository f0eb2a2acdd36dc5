//! The cap on anonymous subjects, over a memory store that counts its keys.

use std::time::Duration;

use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::{Keyspace, Store, Token};

use super::*;
use crate::clock::ManualClock;
use crate::engine::poll_ready;
use crate::guard::Guarded;
use crate::store::memory::MemoryStore;

const START: Time = Time::from_us(7_200_000_000);
const CAP: u32 = 10;
const LIMIT: u64 = 2;

struct Bench {
    guarded: Guarded<MemoryStore<ManualClock>>,
    clock: ManualClock,
    keyspace: Keyspace,
}

impl Bench {
    fn new() -> Bench {
        let clock = ManualClock::at(START);
        let store = MemoryStore::with_clock(clock.clone());
        let guarded = Guarded::new(store, std::sync::Arc::default());
        Bench { guarded, clock, keyspace: Keyspace::new("test", "rule").unwrap() }
    }

    fn item(&self, subject: u128, limit: Limit, operation: Operation) -> Item<'_> {
        let item = Item::new(self.keyspace.key(Subject::from_u128(subject)), limit, operation);
        Item { ip_subjects_max: Some(CAP), is_anonymous: true, ..item }
    }

    fn apply(&self, item: Item<'_>) -> (Subject, Answer) {
        let mut plan = Plan::of(item).unwrap();
        self.guarded.place_subjects(&mut plan);
        let subject = plan.items()[0].key.subject();
        (subject, poll_ready(self.guarded.apply(&plan)).unwrap().answers[0])
    }

    fn charge(&self, subject: u128) -> bool {
        self.apply(self.item(subject, window(LIMIT), Operation::charge(1))).1.is_admitted()
    }

    fn subject_of(&self, subject: u128, operation: Operation) -> Subject {
        let mut plan = Plan::of(self.item(subject, window(LIMIT), operation)).unwrap();
        self.guarded.place_subjects(&mut plan);
        plan.items()[0].key.subject()
    }
}

fn window(limit: u64) -> Limit {
    Limit::FixedWindow(FixedWindow::new(limit, Span::from_secs(3_600)).unwrap())
}

#[test]
fn subjects_beyond_the_cap_share_the_overflow_subject() {
    let bench = Bench::new();
    let admitted = (1..=1_000).filter(|subject| bench.charge(*subject)).count();
    assert_eq!(admitted, 10 + 2, "ten separate subjects, then two units for the overflow subject");
    assert_eq!(bench.guarded.store().len(), 11);
    assert_eq!(bench.guarded.layer_counts().overflowed, 990);
    assert!(bench.charge(1), "a known subject keeps its key");
}

#[test]
fn a_subject_makes_room_when_its_key_has_expired_and_not_earlier() {
    let bench = Bench::new();
    assert_eq!((1..=20).filter(|subject| bench.charge(*subject)).count(), 12);
    let is_known = |subject| bench.subject_of(subject, Operation::charge(1)) != Subject::OVERFLOW;
    bench.clock.advance(Duration::from_secs(3_600));
    assert!(!is_known(100), "the store may round up");
    bench.clock.advance(SLACK.into());
    assert!(is_known(100));
}

#[test]
fn a_subject_that_another_rule_refused_makes_room_at_once() {
    let bench = Bench::new();
    let other = Keyspace::new("test", "other").unwrap();
    for subject in 1..=1_000 {
        let full = Item::new(other.key(Subject::from_u128(1)), window(1), Operation::charge(1));
        let mut plan = Plan::of(bench.item(subject, window(LIMIT), Operation::charge(1))).unwrap();
        plan.push(full).unwrap();
        bench.guarded.place_subjects(&mut plan);
        poll_ready(bench.guarded.apply(&plan)).unwrap();
        // An unused key ends now; the set keeps it for the slack.
        bench.clock.advance(SLACK.into());
    }
    assert_eq!(bench.guarded.layer_counts().overflowed, 0);
}

#[test]
fn a_subject_stays_while_its_key_is_renewed() {
    let bench = Bench::new();
    assert!(bench.charge(1));
    for _ in 0..5 {
        bench.clock.advance(Duration::from_secs(3_599));
        bench.charge(1);
        for subject in 100..200 {
            bench.charge(subject);
        }
        assert_ne!(bench.subject_of(1, Operation::charge(1)), Subject::OVERFLOW);
    }
    assert!(bench.guarded.store().len() <= 3 * 12, "{} keys, also expired ones", bench.guarded.store().len());
}

#[test]
fn looking_makes_no_place_and_giving_back_is_never_redirected() {
    let bench = Bench::new();
    for subject in 1..=1_000 {
        assert_ne!(bench.subject_of(subject, Operation::Peek { cost: 1 }), Subject::OVERFLOW);
    }
    (1..=10).for_each(|subject| assert!(bench.charge(subject)));
    assert_eq!(bench.subject_of(500, Operation::Peek { cost: 1 }), Subject::OVERFLOW);
    assert_eq!(bench.subject_of(500, Operation::Usage), Subject::OVERFLOW);
    for operation in [
        Operation::Credit { cost: 1 },
        Operation::Reset { receipt_life: Span::ZERO },
        Operation::Release { token: Token(1) },
    ] {
        assert_ne!(bench.subject_of(500, operation), Subject::OVERFLOW, "{operation:?}");
    }
}

#[test]
fn both_hash_keys_of_a_rotation_charge_the_overflow_subject_once() {
    let bench = Bench::new();
    (1..=10).for_each(|subject| assert!(bench.charge(subject)));
    let mut plan = Plan::of(bench.item(500, window(LIMIT), Operation::charge(1))).unwrap();
    plan.push(bench.item(501, window(LIMIT), Operation::charge(1))).unwrap();
    bench.guarded.place_subjects(&mut plan);
    assert_eq!(plan.items().len(), 1);
    assert_eq!(plan.items()[0].key.subject(), Subject::OVERFLOW);
}
