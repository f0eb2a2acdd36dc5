//! The memory store: its answers, also to many threads, and its behaviour at the cap on keys.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use tollgate::clock::AnyClock;
use tollgate::store::memory::MemoryStore;
use tollgate::{Clock, Keyed, LocalLimiter, ManualClock};
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::{
    Answer, Decline, Item, Keyspace, Limit, Operation, Plan, Span, Subject, SubjectHasher, Time, Token,
    Verdict,
};
use tollgate_testkit::conformance::{Slots, check_against_model, counting_limits};

const NOW: Time = Time::from_us(1_700_000_000_000_000);
const LIMIT: u64 = 1_000;
const THREADS: usize = 64;
const ATTEMPTS: usize = 10_000;

fn clock() -> &'static ManualClock {
    Box::leak(Box::new(ManualClock::at(NOW)))
}

fn keyed_store(clock: &'static ManualClock) -> MemoryStore<AnyClock> {
    MemoryStore::with_clock(AnyClock::custom(clock))
}

fn limits(limit: u64) -> Vec<Limit> {
    counting_limits(limit, Span::from_secs(3_600)).unwrap()
}

fn subject(name: &str) -> Subject {
    SubjectHasher::new([5; 32]).subject([("user", name)])
}

/// Returns how many attempts are admitted when all threads start at once. It must take less than five seconds.
fn admitted(ask: impl Fn(usize) -> bool + Sync) -> usize {
    let (next, admitted, start) = (AtomicUsize::new(0), AtomicUsize::new(0), Barrier::new(THREADS));
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                loop {
                    let attempt = next.fetch_add(1, Ordering::Relaxed);
                    if attempt >= ATTEMPTS {
                        return;
                    }
                    if ask(attempt) {
                        admitted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    admitted.into_inner()
}

#[test]
fn memory_store_agrees_with_the_model_of_plans() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    check_against_model(&runtime, Slots::One, MemoryStore::with_clock, 300_000, 1)
        .unwrap_or_else(|difference| panic!("{difference}"));
}

#[test]
fn i2_64_threads_get_exactly_the_limit_under_every_algorithm() {
    for limit in limits(LIMIT) {
        let store = MemoryStore::with_clock(clock());
        let keyspace = Keyspace::new("test", "rule").unwrap();
        let count = admitted(|attempt| {
            let mut plan = Plan::new();
            let operation = Operation::Charge { cost: 1, token: Token(attempt as u128 + 1) };
            plan.push(Item::new(keyspace.key(subject("u")), limit, operation)).unwrap();
            store.apply_now(&plan).answers[0].is_admitted()
        });
        assert_eq!(count, LIMIT as usize, "{limit:?}");
        assert_eq!(store.len(), 1);
    }
}

#[test]
fn i2_64_threads_get_exactly_the_limit_under_three_mixed_rules() {
    let (tight, loose) = (limits(LIMIT), limits(LIMIT + 500));
    let keyspaces = ["a", "b", "c"].map(|rule| Keyspace::new("test", rule).unwrap());
    for first in 0..tight.len() {
        let mixed = [tight[first], loose[(first + 3) % loose.len()], loose[(first + 7) % loose.len()]];
        let store = MemoryStore::with_clock(clock());
        let plan_of = |attempt: usize, cost: u64| {
            let mut plan = Plan::new();
            // Each attempt has its rules in another order, so that threads lock shards in every order.
            for shift in 0..3 {
                let at = (shift + attempt) % 3;
                let operation = Operation::Charge { cost, token: Token(attempt as u128 + 1) };
                plan.push(Item::new(keyspaces[at].key(subject("u")), mixed[at], operation)).unwrap();
            }
            plan
        };
        let count =
            admitted(|attempt| store.apply_now(&plan_of(attempt, 1)).answers.iter().all(Answer::is_admitted));
        assert_eq!(count, LIMIT as usize, "{mixed:?}");
        // A refused Plan charges nothing: each of the loose rules has exactly 500 units left.
        let left = store.apply_now(&plan_of(0, 0).peeked()).answers;
        for (at, answer) in left.iter().enumerate().skip(1) {
            assert_eq!(answer.remaining, 500, "{:?}", mixed[at]);
        }
    }
}

trait Peeked {
    fn peeked(self) -> Self;
}

impl Peeked for Plan<'_> {
    fn peeked(mut self) -> Self {
        self.peek();
        self
    }
}

#[test]
fn threads_on_many_keys_get_exactly_the_limit_each() {
    const KEYS: usize = 50;
    let keyed = Keyed::with_store(limits(100)[4], keyed_store(clock())).unwrap();
    let count = admitted(|attempt| keyed.check(format!("user-{}", attempt % KEYS)).allowed());
    assert_eq!(count, KEYS * 100);
    assert_eq!(keyed.store().len(), KEYS);
}

/// A remembered refusal is repeated until its retry instant, and never after a refund.
#[test]
fn a_remembered_refusal_ends_at_its_retry_instant_and_after_a_refund() {
    for limit in [limits(2)[0], limits(2)[4], limits(2)[9]] {
        let clock = clock();
        let store = MemoryStore::with_clock(clock);
        let keyspace = Keyspace::new("test", "rule").unwrap();
        let ask = |operation| {
            let mut plan = Plan::new();
            plan.push(Item::new(keyspace.key(subject("u")), limit, operation)).unwrap();
            store.apply_now(&plan).answers[0]
        };
        let first = ask(Operation::charge(1));
        assert!(first.is_admitted() && ask(Operation::charge(1)).is_admitted());
        let refused = ask(Operation::charge(1));
        assert!(refused.is_refused());
        assert_eq!(ask(Operation::charge(1)), refused, "the remembered refusal");
        assert!(matches!(ask(Operation::refund(first.mark, 1)).verdict, Verdict::Done { amount: 1 }));
        assert!(ask(Operation::charge(1)).is_admitted(), "{limit:?}");
        let refused = ask(Operation::charge(1));
        let Verdict::Refused(tollgate_core::Retry::At(retry_at)) = refused.verdict else {
            panic!("{refused:?}")
        };
        clock.set(Time::from_us(retry_at.us() - 1));
        assert_eq!(ask(Operation::charge(1)), refused);
        clock.set(retry_at);
        assert!(ask(Operation::charge(1)).is_admitted(), "{limit:?}");
    }
}

/// Detects a refusal with the numbers of another limit, and a reset that keeps the remembered refusal.
#[test]
fn a_remembered_refusal_applies_to_its_limit_only_and_ends_with_a_reset() {
    let store = MemoryStore::with_clock(clock());
    let keyspace = Keyspace::new("test", "rule").unwrap();
    let ask = |limit, operation| {
        let mut plan = Plan::new();
        plan.push(Item::new(keyspace.key(subject("u")), limit, operation)).unwrap();
        store.apply_now(&plan).answers[0]
    };
    let window = |limit| Limit::FixedWindow(FixedWindow::new(limit, Span::from_secs(3_600)).unwrap());
    let (tight, loose) = (window(1), window(5));
    assert!(ask(tight, Operation::charge(1)).is_admitted());
    assert!(ask(tight, Operation::charge(1)).is_refused());
    assert!(ask(loose, Operation::charge(1)).is_admitted(), "an override raises the limit at once");
    assert!(ask(tight, Operation::charge(1)).is_refused());
    ask(tight, Operation::Reset { receipt_life: Span::ZERO });
    assert!(ask(tight, Operation::charge(1)).is_admitted());
}

#[test]
fn idle_state_is_removed() {
    let clock = clock();
    // Different subjects each time, because the hash decides the position of a key in its shard.
    for (round, limit) in limits(5).into_iter().cycle().take(200).enumerate() {
        let store = MemoryStore::with_clock(clock);
        clock.set(NOW);
        let keyspace = Keyspace::new("test", "rule").unwrap();
        for name in 0..500_u32 {
            let mut plan = Plan::new();
            let operation = Operation::Charge { cost: 1, token: Token(1) };
            plan.push(Item::new(keyspace.key(subject(&format!("{round}-{name}"))), limit, operation))
                .unwrap();
            store.apply_now(&plan);
        }
        assert_eq!((store.len(), store.sweep()), (500, 0), "no state that counts is removed");
        // Longer than every window, lease, quota and drain time above, plus the minute for which expired state is kept.
        clock.advance(Duration::from_secs(6 * 3_600 + 61));
        assert_eq!((store.sweep(), store.len()), (500, 0), "{limit:?}");
    }
}

/// Insertions remove expired state without a timer.
#[test]
fn inserting_removes_expired_state() {
    let clock = clock();
    let limit = Limit::FixedWindow(FixedWindow::new(5, Span::from_secs(1)).unwrap());
    let keyed = Keyed::with_store(limit, keyed_store(clock)).unwrap();
    for number in 0..200_000_u32 {
        keyed.check(number.to_le_bytes());
    }
    clock.advance(Duration::from_secs(100));
    for number in 200_000..400_000_u32 {
        keyed.check(number.to_le_bytes());
    }
    assert!(keyed.store().len() < 220_000, "{} keys", keyed.store().len());
}

#[test]
fn at_the_cap_new_subjects_share_the_overflow_subject_and_gain_no_units() {
    let store = keyed_store(clock()).keys_max(100);
    let keyed = Keyed::with_store(limits(3)[4], store).unwrap();
    for number in 0..100_u32 {
        assert!((0..3).all(|_| keyed.check(number.to_le_bytes()).allowed()));
    }
    let anonymous = (1_000..2_000_u32).filter(|number| keyed.check(number.to_le_bytes()).allowed());
    assert_eq!(anonymous.count(), 3, "they share one limit");
    for number in 0..100_u32 {
        assert!(!keyed.check(number.to_le_bytes()).allowed(), "no state was removed while it counted");
    }
    let usage = keyed.store().usage();
    assert_eq!((usage.keys, usage.keys_max, usage.overflowed), (100, 100, 1_000));
}

#[test]
fn at_the_cap_expired_state_makes_room() {
    let clock = clock();
    let limit = Limit::FixedWindow(FixedWindow::new(1, Span::from_secs(10)).unwrap());
    let store = keyed_store(clock).keys_max(2_000);
    let keyed = Keyed::with_store(limit, store).unwrap();
    for number in 0..2_000_u32 {
        assert!(keyed.check(number.to_le_bytes()).allowed());
    }
    assert!(keyed.check(9_999_u32.to_le_bytes()).allowed(), "the overflow subject has a separate limit");
    assert!(!keyed.check(9_998_u32.to_le_bytes()).allowed());
    // The window ended less than a minute ago. The state no longer counts, so it may be removed.
    clock.advance(Duration::from_secs(10));
    let admitted = (10_000..11_000_u32).filter(|number| keyed.check(number.to_le_bytes()).allowed()).count();
    assert!(admitted > 990, "{admitted} of 1000 found room");
    assert_eq!(keyed.store().len(), 2_000);
}

#[test]
fn anonymous_subjects_beyond_a_rules_cap_share_the_overflow_subject_and_others_do_not() {
    let clock = clock();
    let limiter = LocalLimiter::builder()
        .rules_yaml(
            "version: 1
rules:
  - { id: r, per: [user | ip], ip_subjects_max: 10, limit: { fixed-window: 2/hour } }
",
        )
        .clock(clock)
        .build()
        .unwrap();
    let check = |name, value: &str| limiter.check([(name, value)]).unwrap().allowed();
    let admitted =
        (0..1_000).map(|n| format!("10.0.{}.{}", n / 250, n % 250)).filter(|ip| check("ip", ip)).count();
    assert_eq!(admitted, 10 + 2, "ten separate subjects, then two units for the overflow subject");
    assert!((0..1_000).all(|n| check("user", &n.to_string())), "subjects with a user are not anonymous");
    clock.advance(Duration::from_secs(2 * 3_600));
    limiter.sweep();
    assert!(check("ip", "10.9.9.9"), "removed anonymous subjects make room");
    assert_eq!(limiter.keys().overflowed, 990);
}

#[test]
fn expired_state_of_an_anonymous_subject_is_removed_after_a_second_and_of_others_after_a_minute() {
    let clock = clock();
    let limiter = LocalLimiter::builder()
        .rules_yaml(
            "version: 1
rules:
  - { id: r, per: [user | ip], limit: { token-bucket: 1/s, burst: 10 } }
",
        )
        .clock(clock)
        .build()
        .unwrap();
    let charge = |name, value| limiter.check(tollgate::Request::from([(name, value)]).cost(10)).unwrap();
    assert!(charge("ip", "192.0.2.1").allowed() && charge("user", "u").allowed());
    let keys_after = |wait| {
        clock.advance(wait);
        limiter.sweep();
        limiter.keys().keys
    };
    assert_eq!(keys_after(Duration::from_millis(10_999)), 2, "a second after it counts, and not earlier");
    assert_eq!(keys_after(Duration::from_millis(1)), 1);
    assert_eq!(keys_after(Duration::from_millis(58_999)), 1);
    assert_eq!(keys_after(Duration::from_millis(1)), 0);
}

#[test]
fn large_states_are_bounded_in_bytes_and_no_state_is_removed_while_it_counts() {
    const KIB: usize = 1_024;
    let limit = Limit::SlidingLog(SlidingLog::new(1_000, Span::from_secs(3_600)).unwrap());
    let subjects_with_state = |bytes: usize| {
        let clock = clock();
        let store = keyed_store(clock).keys_max(1_000_000).state_bytes_max(bytes);
        let keyed = Keyed::with_store(limit, store).unwrap();
        for number in 0..1_000_u32 {
            for _ in 0..100 {
                keyed.check(number.to_le_bytes());
                // Charges at the same instant share an entry.
                clock.advance(Duration::from_micros(1));
            }
        }
        assert!(keyed.check(0_u32.to_le_bytes()).allowed(), "its log still grows");
        keyed.store().usage().keys
    };
    // About 2 KiB for a log of a hundred entries, and one more log for each of the 256 parts of the store.
    let few = subjects_with_state(512 * KIB);
    assert!((100..=700).contains(&few), "{few} subjects in 512 KiB");
    assert_eq!(subjects_with_state(64 * KIB * KIB), 1_000);
}

#[test]
fn a_lease_of_the_overflow_subject_can_be_released() {
    let limit = Limit::Concurrency(Concurrency::new(1, Span::from_secs(30)).unwrap());
    let store = MemoryStore::with_clock(clock()).keys_max(0);
    let keyspace = Keyspace::new("test", "rule").unwrap();
    let ask = |name: &str, operation| {
        let mut plan = Plan::new();
        plan.push(Item::new(keyspace.key(subject(name)), limit, operation)).unwrap();
        store.apply_now(&plan).answers[0]
    };
    assert!(ask("a", Operation::Charge { cost: 1, token: Token(1) }).is_admitted());
    assert!(ask("b", Operation::Charge { cost: 1, token: Token(2) }).is_refused());
    assert!(matches!(ask("a", Operation::Release { token: Token(1) }).verdict, Verdict::Done { .. }));
    assert!(ask("b", Operation::Charge { cost: 1, token: Token(2) }).is_admitted());
}

#[test]
fn a_snapshot_restores_every_state_and_a_damaged_one_restores_nothing() {
    let clock = clock();
    let keyspace = Keyspace::new("test", "rule").unwrap();
    let keyspaces: Vec<Keyspace> =
        (0..limits(9).len()).map(|n| Keyspace::new("test", &format!("r{n}")).unwrap()).collect();
    let charge = |store: &MemoryStore<&ManualClock>, cost: u64| -> Vec<Answer> {
        let asked = limits(9).into_iter().zip(&keyspaces).map(|(limit, keyspace)| {
            let mut plan = Plan::new();
            let operation = Operation::Charge { cost, token: Token(u128::from(cost) + 1) };
            plan.push(Item::new(keyspace.key(subject("u")), limit, operation)).unwrap();
            store.apply_now(&plan).answers[0]
        });
        asked.collect()
    };
    let old: MemoryStore<&ManualClock> = MemoryStore::with_clock(clock);
    charge(&old, 4);
    let mut bytes = Vec::new();
    assert_eq!(old.snapshot(&mut bytes).unwrap(), keyspaces.len());

    let new: MemoryStore<&ManualClock> = MemoryStore::with_clock(clock);
    assert_eq!(new.restore(&mut bytes.as_slice()).unwrap().keys, keyspaces.len());
    assert_eq!(charge(&new, 3), charge(&old, 3), "both stores continue in the same way");

    for cut in (0..bytes.len()).step_by(7) {
        let fresh: MemoryStore<&ManualClock> = MemoryStore::with_clock(clock);
        assert!(fresh.restore(&mut &bytes[..cut]).is_err());
        let mut changed = bytes.clone();
        changed[cut] ^= 1;
        assert!(fresh.restore(&mut changed.as_slice()).is_err(), "byte {cut}");
        assert!(fresh.is_empty(), "a damaged snapshot restores nothing");
    }

    clock.advance(Duration::from_secs(30 * 3_600));
    let late: MemoryStore<&ManualClock> = MemoryStore::with_clock(clock);
    assert_eq!(late.restore(&mut bytes.as_slice()).unwrap().expired, keyspaces.len());
    assert!(late.is_empty() && clock.now() > NOW && keyspace.rule() == "rule");
    let folder = std::env::temp_dir().join(format!("tollgate-snapshot-{}", std::process::id()));
    assert_eq!(old.save(&folder).unwrap(), keyspaces.len());
    assert_eq!(late.load(&folder).unwrap().expired, keyspaces.len());
    std::fs::remove_file(&folder).unwrap();
}

#[test]
fn a_restored_lease_can_be_released_by_its_owner_only() {
    let clock = clock();
    let keyspace = Keyspace::new("test", "rule").unwrap();
    let limit = Limit::Concurrency(Concurrency::new(1, Span::from_secs(30)).unwrap());
    let ask = |store: &MemoryStore<&ManualClock>, operation| {
        let mut plan = Plan::new();
        plan.push(Item::new(keyspace.key(subject("u")), limit, operation)).unwrap();
        store.apply_now(&plan).answers[0].verdict
    };
    let old: MemoryStore<&ManualClock> = MemoryStore::with_clock(clock);
    ask(&old, Operation::Charge { cost: 1, token: Token(1) });
    let mut bytes = Vec::new();
    old.snapshot(&mut bytes).unwrap();
    let new: MemoryStore<&ManualClock> = MemoryStore::with_clock(clock);
    new.restore(&mut bytes.as_slice()).unwrap();
    assert_eq!(ask(&new, Operation::Release { token: Token(2) }), Verdict::Declined(Decline::NotHeld));
    assert_eq!(ask(&new, Operation::Release { token: Token(1) }), Verdict::Done { amount: 1 });
}

/// Arbitrary bytes are rejected. The fuzz targets test the layouts inside a snapshot.
#[test]
fn an_invalid_snapshot_is_rejected() {
    let store = MemoryStore::with_clock(clock());
    for bytes in [&b""[..], b"tollgate memory 2\n", b"tollgate memory 1\n", b"\0", &[0xff; 100]] {
        assert!(store.restore(&mut &*bytes).is_err());
    }
    let shared = Arc::new(store);
    assert!(shared.is_empty());
}
