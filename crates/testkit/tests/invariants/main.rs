//! The numbered invariants of the algorithms, checked on what was really admitted.
//!
//! Some arrivals are records: consumption that asks for no admission. What was admitted obeys the limit all the same, and a
//! refusal is justified by everything that was consumed. The invariants of records and credits themselves are in `overdraft`.

mod overdraft;

use proptest::prelude::*;
use tollgate::{ManualClock, MemoryStore};
use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate_core::{
    Account, Answer, Decline, EXACT_MAX, Item, Keyspace, Limit, Operation, Outcome, Plan, Report, Retry,
    Span, State, SubjectHasher, Time, Token, Verdict, algorithm,
};
use tollgate_testkit::conformance::limits;
use tollgate_testkit::make;
use tollgate_testkit::oracle::differential::run;
use tollgate_testkit::oracle::suite;

const START_US: u64 = 1_700_000_000_000_000;

/// A limit and its state.
struct Subject {
    limit: Limit,
    account: Account,
}

impl Subject {
    fn new(limit: Limit) -> Subject {
        Subject { limit, account: Account::default() }
    }

    fn apply(&mut self, now: u64, operation: Operation) -> Answer {
        self.account.apply(&self.limit, Time::from_us(now), &operation)
    }

    /// Records or charges, at most the capacity.
    fn arrive(&mut self, now: u64, number: usize, arrival: &Arrival) {
        if arrival.is_record {
            return self.record(now, arrival.cost);
        }
        let cost = arrival.cost.min(self.limit.capacity());
        self.apply(now, Operation::Charge { cost, token: Token(number as u128 + 1) });
    }

    /// Records units. Every limit that counts units books all of them.
    fn record(&mut self, now: u64, cost: u64) {
        match (self.apply(now, Operation::Record { cost }).verdict, self.limit) {
            (Verdict::Recorded { amount, .. }, _) => assert_eq!(amount, cost),
            (Verdict::Declined(Decline::NotSupported), Limit::Concurrency(_) | Limit::Penalty(_)) => (),
            (other, limit) => panic!("{other:?} is no answer to a record on {limit:?}"),
        }
    }

    /// Returns the units that count, in overdraft too. Not for a limit that declines records.
    fn counted(&mut self, now: u64) -> u64 {
        let answer = self.apply(now, Operation::Record { cost: 0 });
        let Verdict::Recorded { amount: 0, overdraft, .. } = answer.verdict else {
            panic!("{:?} is no answer to a record of nothing", answer.verdict)
        };
        answer.limit - answer.remaining + overdraft
    }

    fn peek(&self, now: u64, cost: u64) -> Answer {
        self.limit.decide(self.account.state.as_ref(), Time::from_us(now), &Operation::Peek { cost }).answer
    }
}

/// One arrival.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// Time since the one before.
    step: u64,
    cost: u64,
    /// Whether it is recorded. Otherwise it asks for admission.
    is_record: bool,
}

/// Generates arrivals with steps of time in fractions of a window. Every eighth is a record, some above the limit.
fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let step = prop_oneof![3 => Just(0_u64), 4 => 0..300_u64, 1 => 0..2_500_u64];
    let cost = prop_oneof![
        14 => (1..=3_u64).prop_map(|cost| (cost, false)),
        1 => (1..=3_u64).prop_map(|cost| (cost, true)),
        1 => (1..=20_u64).prop_map(|cost| (cost, true)),
    ];
    let arrival = (step, cost).prop_map(|(step, (cost, is_record))| Arrival { step, cost, is_record });
    prop::collection::vec(arrival, 1..120)
}

/// Instants and costs.
type Costs = Vec<(u64, u64)>;

/// Returns the admitted instants and costs. Calls `refused` for every refusal, with what was consumed before it.
fn admitted(limit: Limit, arrivals: &[Arrival], mut refused: impl FnMut(&[(u64, u64)], u64, u64)) -> Costs {
    let mut subject = Subject::new(limit);
    let (mut now, mut admitted, mut consumed) = (START_US, Costs::new(), Costs::new());
    for (number, &Arrival { step, cost, is_record }) in arrivals.iter().enumerate() {
        now += step;
        if is_record {
            subject.record(now, cost);
            consumed.push((now, cost));
            continue;
        }
        let cost = cost.min(limit.capacity());
        if subject.apply(now, Operation::Charge { cost, token: Token(number as u128 + 1) }).is_admitted() {
            admitted.push((now, cost));
            consumed.push((now, cost));
        } else {
            refused(&consumed, now, cost);
        }
    }
    admitted
}

fn sum_within(admitted: &[(u64, u64)], from: u64, to: u64) -> u64 {
    admitted.iter().filter(|&&(at, _)| from <= at && at <= to).map(|&(_, cost)| cost).sum()
}

/// Returns the most that was admitted in any span of `length` ticks. The worst span starts with an admission.
fn most_in_any(admitted: &[(u64, u64)], length: u64) -> u64 {
    admitted.iter().map(|&(from, _)| sum_within(admitted, from, from + length - 1)).max().unwrap_or(0)
}

/// Arbitrary stored bytes decode to a state or an error, and a decision on that state returns an answer. The header is
/// always valid, because otherwise hardly any input would be decoded.
#[test]
fn no_stored_bytes_cause_a_panic() {
    let mut random = 1_u64;
    let mut below = move |end: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 20) % end
    };
    let limits = limits().unwrap();
    let mut read = [0; 10];
    for round in 0..40_000 {
        let kind = [1, 2, 3, 4, 7, 8, 9, 10][round % 8];
        let count = below(5);
        // The number of words of a state, sometimes one more or less.
        let repeated = [0, 1, 0, 0, 0, 0, 0, 0, 2, 2][kind - 1] * count as usize;
        let length = [3, 2, 3, 3, 0, 0, 2, 2, 3, 6][kind - 1] + repeated + usize::from(below(20) == 0);
        let mut words = vec![1 | (kind as u64) << 8 | count << 16];
        let mut last = 0;
        for _ in 0..length {
            // Small, close to now, the maximum, or too large. Often ascending, like instants.
            let word = match below(8) {
                0..4 => below(100),
                4 => START_US + below(1 << 30),
                5 => EXACT_MAX - below(3),
                6 => last,
                _ => EXACT_MAX + below(2),
            };
            last = if below(4) == 0 { word } else { word.max(last) };
            words.push(last);
        }
        let begins = |start: u64, length: u64| start - start % length.max(1);
        match kind {
            1 => words[1] = begins(words[1], words[2]),
            2 => words[2] = begins(words[2], words[1]),
            // A ring of slots of 14 bytes each. The oldest entry is in one of them.
            3 => {
                let slots = count + below(3);
                (words[2], words[3]) = (below(4) % slots.max(1), slots);
            }
            _ => (),
        }
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        if kind == 3 {
            let (mut time, mut total) = (0, words[1]);
            for _ in 0..words[3] {
                time += below(1_000);
                total = (total + below(9)).min(EXACT_MAX);
                bytes.extend([time, total].iter().flat_map(|short| short.to_le_bytes()[..7].to_vec()));
            }
        }
        let Ok(state) = State::decode(&bytes) else { continue };
        read[kind - 1] += 1;
        assert_eq!(State::decode(&state.encode()).as_ref(), Ok(&state));
        for limit in &limits {
            for cost in [0, 1, limit.capacity(), u64::MAX] {
                let now = Time::from_us(START_US + below(1 << 40));
                limit.decide(Some(&state), now, &Operation::Peek { cost });
                limit.decide(Some(&state), Time::MAX, &Operation::Charge { cost, token: Token(1) });
                for operation in [Operation::Record { cost: cost.min(EXACT_MAX) }, Operation::Credit { cost }]
                {
                    let written = limit.decide(Some(&state), now, &operation).write;
                    let mut after = Some(state.clone());
                    if let Some(write) = written {
                        State::commit(&mut after, write.change);
                    }
                    let after = after.expect("neither deletes the state");
                    assert_eq!(
                        State::decode(&after.encode()).as_ref(),
                        Ok(&after),
                        "{operation:?} on {state:?}"
                    );
                }
            }
        }
    }
    let read = [1, 2, 3, 4, 7, 8, 9, 10].map(|kind| read[kind - 1]);
    assert!(read.iter().all(|&states| states > 400), "every kind was decoded often enough: {read:?}");
}

/// Decisions rely on the alignment, which saves a division.
#[test]
fn a_window_that_is_not_aligned_is_rejected_as_state() {
    use tollgate_core::algorithm::fixed_window::FixedWindowState;
    use tollgate_core::algorithm::sliding_window::SlidingWindowState;
    use tollgate_core::{CorruptState, State};
    let window = Span::from_secs(60);
    let states = |start: Time| {
        [
            (1, State::FixedWindow(FixedWindowState { start, window, used: 1 })),
            (
                2,
                State::SlidingWindow(SlidingWindowState {
                    bucket: window,
                    newest: start,
                    counts: [1, 2].into_iter().collect(),
                }),
            ),
        ]
    };
    for (_, state) in states(Time::from_us(120_000_000)) {
        assert_eq!(State::decode(&state.encode()).as_ref(), Ok(&state));
    }
    for (word, state) in states(Time::from_us(120_000_001)) {
        assert_eq!(State::decode(&state.encode()), Err(CorruptState::Range { word, found: 120_000_001 }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn i1_fixed_window_admits_its_limit_per_window_and_at_most_twice_in_any_span(arrivals in arrivals(), l in 1..9_u64, w in 1..1_000_u64) {
        let limit = Limit::FixedWindow(FixedWindow::new(l, Span::from_us(w)).unwrap());
        let admitted = admitted(limit, &arrivals, |_, _, _| ());
        for &(at, _) in &admitted {
            let start = at - at % w;
            prop_assert!(sum_within(&admitted, start, start + w - 1) <= l);
        }
        prop_assert!(most_in_any(&admitted, w) <= 2 * l);
    }

    #[test]
    fn i2_sliding_log_admits_its_limit_in_any_window(arrivals in arrivals(), l in 1..9_u64, w in 1..1_000_u64) {
        // Room for an entry per arrival: a record into a full log lets older units count longer.
        let limit = Limit::SlidingLog(SlidingLog::with_entries(l, Span::from_us(w), 120).unwrap());
        let mut false_refusals = 0;
        let admitted = admitted(limit, &arrivals, |before, now, cost| {
            false_refusals += u32::from(sum_within(before, now - w + 1, now) + cost <= l);
        });
        prop_assert!(most_in_any(&admitted, w) <= l);
        prop_assert_eq!(false_refusals, 0);
    }

    #[test]
    fn i3_interpolated_estimate_is_wrong_by_at_most_the_oldest_buckets_share(
        arrivals in arrivals(), l in 1..9_u64, b in 1..500_u64, k in 1..5_u64,
    ) {
        let limit = Limit::SlidingWindow(SlidingWindow::new(l, Span::from_us(b * k), k, Counting::Interpolated).unwrap());
        let mut subject = Subject::new(limit);
        let (mut now, mut admitted, mut consumed) = (START_US, Costs::new(), Costs::new());
        for Arrival { step, cost, is_record } in arrivals {
            now += step;
            let estimate = subject.counted(now);
            let truth = sum_within(&consumed, now - b * k + 1, now);
            let oldest_start = now - now % b - k * b;
            let oldest = sum_within(&consumed, oldest_start, oldest_start + b - 1);
            let passed = now % b;
            // One unit for rounding up, which is on the side of refusing.
            let bound = (oldest * passed.max(b - passed)).div_ceil(b) + 1;
            prop_assert!(estimate.abs_diff(truth) <= bound, "{estimate} {truth} {bound}");
            let cost = if is_record { cost } else { cost.min(l) };
            if is_record {
                subject.record(now, cost);
            } else if subject.apply(now, Operation::charge(cost)).is_admitted() {
                admitted.push((now, cost));
            } else {
                continue;
            }
            consumed.push((now, cost));
        }
        prop_assert!(most_in_any(&admitted, b * k) < 2 * l);
    }

    #[test]
    fn i4_strict_buckets_never_over_admit_and_count_at_most_one_bucket_too_long(
        arrivals in arrivals(), l in 1..9_u64, b in 1..500_u64, k in 1..5_u64,
    ) {
        let limit = Limit::SlidingWindow(SlidingWindow::new(l, Span::from_us(b * k), k, Counting::Strict).unwrap());
        let mut false_refusals = 0;
        let admitted = admitted(limit, &arrivals, |before, now, cost| {
            false_refusals += u32::from(sum_within(before, now - b * (k + 1) + 1, now) + cost <= l);
        });
        prop_assert!(most_in_any(&admitted, b * k) <= l);
        prop_assert_eq!(false_refusals, 0);
    }

    #[test]
    fn i5_token_bucket_equals_gcra_and_keeps_its_bound(arrivals in arrivals(), r in 1..9_u64, p in 1..1_000_u64, b in 1..9_u64) {
        let limit = Limit::Bucket(Bucket::tokens(r, Span::from_us(p), b).unwrap());
        let mut gcra = Gcra { rate: r.into(), period: p.into(), burst: b.into(), arrival: 0 };
        let mut subject = Subject::new(limit);
        let (mut now, mut admitted) = (START_US, Vec::new());
        for Arrival { step, cost, is_record } in arrivals {
            now += step;
            if is_record {
                subject.record(now, cost);
                gcra.record(now, cost);
                continue;
            }
            let cost = cost.min(b);
            let allowed = subject.apply(now, Operation::charge(cost)).is_admitted();
            prop_assert_eq!(allowed, gcra.admit(now, cost));
            if allowed {
                admitted.push((now, cost));
            }
        }
        for (index, &(from, _)) in admitted.iter().enumerate() {
            for &(to, _) in &admitted[index..] {
                prop_assert!(sum_within(&admitted, from, to) <= b + (to - from) * r / p);
            }
        }
    }

    #[test]
    fn i16_a_clock_set_back_admits_nothing_extra_and_delays_by_at_most_that_time(
        arrivals in arrivals(), back in 1..3_000_000_u64, cost in 1..=3_u64,
    ) {
        for limit in limits().unwrap() {
            let mut subject = Subject::new(limit);
            let mut now = START_US;
            for (number, arrival) in arrivals.iter().enumerate() {
                now += arrival.step * 1_000;
                subject.arrive(now, number, arrival);
                subject.apply(now, Operation::Report { result: Report::Failure });
            }
            let cost = cost.min(limit.capacity());
            let (ahead, behind) = (subject.peek(now, cost), subject.peek(now - back, cost));
            prop_assert!(ahead.is_admitted() || !behind.is_admitted(), "{limit:?} {ahead:?} {behind:?}");
            if let (Verdict::Refused(Retry::At(ahead)), Verdict::Refused(Retry::At(behind))) = (ahead.verdict, behind.verdict) {
                prop_assert!(behind <= ahead, "{limit:?}");
            }
            if let (true, Verdict::Refused(Retry::At(behind))) = (ahead.is_admitted(), behind.verdict) {
                prop_assert!(behind.us() <= now, "{limit:?}");
            }
        }
    }

    #[test]
    fn i16_a_clock_that_jumps_ahead_grants_one_burst(arrivals in arrivals(), jump in 0..100_000_000_000_u64) {
        for limit in limits().unwrap() {
            // A penalty does not limit an amount.
            if matches!(limit, Limit::Penalty(_)) {
                continue;
            }
            let mut subject = Subject::new(limit);
            let mut now = START_US;
            for (number, arrival) in arrivals.iter().enumerate() {
                now += arrival.step * 1_000;
                subject.arrive(now, number, arrival);
            }
            let units = (0..2 * limit.capacity())
                .filter(|&number| {
                    let token = Token(u128::from(number) + 1_000);
                    subject.apply(now + jump, Operation::Charge { cost: 1, token }).is_admitted()
                })
                .count() as u64;
            prop_assert!(units <= limit.capacity(), "{limit:?} {units}");
        }
    }

    #[test]
    fn i19_different_subjects_have_different_keys(
        a in prop::collection::vec(("[ab:|]{0,3}", "[ab:|]{0,3}"), 0..3),
        b in prop::collection::vec(("[ab:|]{0,3}", "[ab:|]{0,3}"), 0..3),
    ) {
        let hasher = SubjectHasher::new([3; 32]);
        let subject = |parts: &[(String, String)]| hasher.subject(parts.iter().map(|(kind, value)| (kind.as_str(), value.as_str())));
        let keyspace = Keyspace::new("test", "rule").unwrap();
        let (left, right) = (keyspace.key(subject(&a)), keyspace.key(subject(&b)));
        prop_assert_eq!(a == b, left.to_string() == right.to_string());
        prop_assert_eq!(a == b, left.fingerprint() == right.fingerprint());
    }

    #[test]
    fn state_round_trips_through_its_bytes(arrivals in arrivals()) {
        for limit in limits().unwrap() {
            let mut subject = Subject::new(limit);
            let mut now = START_US;
            for (number, arrival) in arrivals.iter().enumerate() {
                now += arrival.step * 1_000;
                subject.arrive(now, number, arrival);
                if number + 1 == arrivals.len() {
                    subject.apply(now, Operation::Record { cost: EXACT_MAX });
                }
                if let Some(state) = &subject.account.state {
                    prop_assert_eq!(State::decode(&state.encode()), Ok(state.clone()));
                }
            }
        }
    }
}

/// The generic cell rate algorithm as originally defined, in units of 1 / rate ticks.
struct Gcra {
    rate: u128,
    period: u128,
    burst: u128,
    /// Theoretical arrival time.
    arrival: u128,
}

impl Gcra {
    fn record(&mut self, now: u64, cost: u64) {
        self.arrival = self.arrival.max(u128::from(now) * self.rate) + u128::from(cost) * self.period;
    }

    fn admit(&mut self, now: u64, cost: u64) -> bool {
        let now = u128::from(now) * self.rate;
        let next = self.arrival.max(now) + u128::from(cost) * self.period;
        let admitted = next <= now + self.burst * self.period;
        if admitted {
            self.arrival = next;
        }
        admitted
    }
}

/// The driver of the differential test checks I6, I8 and I9 at every refusal, to the tick, for every algorithm.
#[test]
fn i6_i8_i9_a_refusal_changes_nothing_is_consistent_and_ends_at_its_retry_instant() {
    macro_rules! refusals {
        ($suite:ident, $file:ident) => {
            run::<suite::$suite, _>(make!($file, algorithm::$file), 50_000, 8)
                .unwrap_or_else(|difference| panic!("{difference}"))
                .refused
        };
    }
    let refusals = [
        refusals!(FixedWindow, fixed_window),
        refusals!(SlidingWindow, sliding_window),
        refusals!(SlidingLog, sliding_log),
        refusals!(Bucket, bucket),
        refusals!(Concurrency, concurrency),
        refusals!(Quota, quota),
        refusals!(Meter, meter),
        refusals!(Penalty, penalty),
    ];
    assert!(refusals.iter().all(|&refused| refused > 2_000), "{refusals:?}");
}

#[test]
fn i9_reset_at_is_constant_within_a_window() {
    let limit = Limit::FixedWindow(FixedWindow::new(3, Span::from_us(1_000)).unwrap());
    let mut subject = Subject::new(limit);
    let resets: Vec<_> =
        (0..1_000).map(|us| subject.apply(START_US + us, Operation::charge(1)).reset_at).collect();
    assert!(resets.iter().all(|&reset| reset == Time::from_us(START_US + 1_000)), "{resets:?}");
}

fn check(
    store: &MemoryStore<&ManualClock>,
    keyspaces: &[Keyspace],
    limits: &[Limit],
    shadow: &[usize],
) -> Outcome {
    let subject = SubjectHasher::new([5; 32]).subject([("user", "u")]);
    let mut plan = Plan::new();
    for (index, (keyspace, &limit)) in keyspaces.iter().zip(limits).enumerate() {
        let item = Item {
            blocking: !shadow.contains(&index),
            ..Item::new(keyspace.key(subject), limit, Operation::charge(1))
        };
        plan.push(item).unwrap();
    }
    store.apply_now(&plan)
}

/// Three mixed rules, the tightest of which refuses.
fn three() -> (Vec<Keyspace>, Vec<Limit>) {
    let keyspaces = ["a", "b", "c"].map(|rule| Keyspace::new("test", rule).unwrap()).into();
    let limits = vec![
        Limit::FixedWindow(FixedWindow::new(5, Span::from_secs(1)).unwrap()),
        Limit::Bucket(Bucket::tokens(1, Span::from_secs(60), 2).unwrap()),
        Limit::SlidingLog(SlidingLog::new(4, Span::from_secs(1)).unwrap()),
    ];
    (keyspaces, limits)
}

#[test]
fn i7_several_rules_are_charged_all_or_none() {
    let clock = ManualClock::at(Time::from_us(START_US));
    let store = MemoryStore::with_clock(&clock);
    let (keyspaces, limits) = three();
    let remaining =
        |outcome: &Outcome| outcome.answers.iter().map(|answer| answer.remaining).collect::<Vec<_>>();
    assert_eq!(remaining(&check(&store, &keyspaces, &limits, &[])), [4, 1, 3]);
    assert_eq!(remaining(&check(&store, &keyspaces, &limits, &[])), [3, 0, 2]);
    for _ in 0..10 {
        let refused = check(&store, &keyspaces, &limits, &[]);
        assert_eq!(remaining(&refused), [3, 0, 2]);
        assert_eq!(refused.answers.iter().map(Answer::is_admitted).collect::<Vec<_>>(), [true, false, true]);
    }
}

#[test]
fn a_shadow_rule_is_counted_and_never_refuses() {
    let clock = ManualClock::at(Time::from_us(START_US));
    let store = MemoryStore::with_clock(&clock);
    let (keyspaces, limits) = three();
    let admitted: Vec<Vec<bool>> = (0..5)
        .map(|_| check(&store, &keyspaces, &limits, &[1]).answers.iter().map(Answer::is_admitted).collect())
        .collect();
    // The shadow bucket of 2 would refuse from the third on, but blocks nothing. The log of 4 refuses the fifth.
    assert_eq!(
        admitted,
        [
            vec![true; 3],
            vec![true; 3],
            vec![true, false, true],
            vec![true, false, true],
            vec![true, false, false]
        ]
    );
}
