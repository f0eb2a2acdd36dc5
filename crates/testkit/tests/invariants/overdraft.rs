//! The invariants of records, credits and extensions.

use super::*;
use tollgate_core::Mark;
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};

/// The limits of the conformance suite that support records.
fn recording_limits() -> Vec<Limit> {
    let many_buckets = SlidingWindow::new(6, Span::from_ms(1_300), 65, Counting::Interpolated).unwrap();
    let mut limits = limits().unwrap();
    limits.retain(|limit| !matches!(limit, Limit::Concurrency(_) | Limit::Penalty(_)));
    limits.push(Limit::SlidingWindow(many_buckets));
    limits
}

/// The same, and a log that can be full before its limit is reached.
fn recording_limits_and_a_short_log() -> Vec<Limit> {
    let log = SlidingLog::with_entries(9, Span::from_secs(1), 3).unwrap();
    recording_limits().into_iter().chain([Limit::SlidingLog(log)]).collect()
}

fn is_shaper(limit: &Limit) -> bool {
    matches!(limit, Limit::Bucket(bucket) if bucket.kind() == algorithm::bucket::BucketKind::Queue)
}

/// A change of consumption at some later time.
#[derive(Clone, Copy, Debug)]
struct Change {
    step: u64,
    operation: Operation,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let step = prop_oneof![3 => Just(0_u64), 4 => 0..300_000_u64, 1 => 0..2_500_000_u64];
    let operation = prop_oneof![
        4 => (1..=3_u64).prop_map(Operation::charge),
        2 => (0..=20_u64).prop_map(|cost| Operation::Record { cost }),
        2 => (0..=9_u64).prop_map(|cost| Operation::Credit { cost }),
    ];
    let change = (step, operation).prop_map(|(step, operation)| Change { step, operation });
    prop::collection::vec(change, 1..80)
}

fn given(verdict: Verdict) -> u64 {
    match verdict {
        Verdict::Done { amount } => amount,
        other => panic!("{other:?} is no answer to a credit"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// At one instant nothing drains and nothing leaves, so what counts is exactly what was booked.
    #[test]
    fn consumption_is_conserved_at_one_instant(changes in changes()) {
        for limit in recording_limits() {
            let (mut subject, mut booked) = (Subject::new(limit), 0);
            for change in &changes {
                let verdict = subject.apply(START_US, change.operation).verdict;
                booked = match (verdict, change.operation) {
                    (Verdict::Admitted { .. }, Operation::Charge { cost, .. }) => booked + cost,
                    (Verdict::Recorded { amount, .. }, Operation::Record { cost }) if amount == cost => booked + amount,
                    (Verdict::Done { amount }, Operation::Credit { cost }) => {
                        prop_assert_eq!(amount, cost.min(booked), "{:?}", limit);
                        booked - amount
                    }
                    (Verdict::Refused(_), Operation::Charge { cost, .. }) => {
                        prop_assert!(booked + cost.max(1) > limit.capacity(), "{:?}", limit);
                        booked
                    }
                    (Verdict::Declined(_), Operation::Credit { .. }) if is_shaper(&limit) => booked,
                    other => return Err(TestCaseError::fail(format!("{limit:?}: {other:?}"))),
                };
                prop_assert_eq!(subject.counted(START_US), booked, "{:?}", limit);
            }
        }
    }

    /// A credit takes at most what it names and at most what counts, and what is left after a credit of everything is
    /// nothing.
    #[test]
    fn a_credit_never_goes_below_zero(changes in changes()) {
        for limit in recording_limits().into_iter().filter(|limit| !is_shaper(limit)) {
            let (mut subject, mut now) = (Subject::new(limit), START_US);
            for change in &changes {
                now += change.step;
                let before = subject.counted(now);
                let answer = subject.apply(now, change.operation);
                let after = subject.counted(now);
                if let Operation::Credit { cost } = change.operation {
                    let amount = given(answer.verdict);
                    prop_assert!(amount <= cost.min(before), "{:?}: {} of {}", limit, amount, before);
                    // A bucket owes parts of units, and counts them as whole ones.
                    let fell = before - after;
                    prop_assert!(fell == amount || matches!(limit, Limit::Bucket(_)) && fell == amount + 1);
                }
            }
            let before = subject.counted(now);
            let amount = given(subject.apply(now, Operation::Credit { cost: EXACT_MAX }).verdict);
            prop_assert!(before - amount <= u64::from(matches!(limit, Limit::Bucket(_))), "{:?}", limit);
            prop_assert_eq!(subject.counted(now), 0);
            prop_assert_eq!(given(subject.apply(now, Operation::Credit { cost: 1 }).verdict), 0);
            let all = Operation::charge(limit.capacity());
            prop_assert!(subject.apply(now, all).is_admitted(), "{:?} after a credit of everything", limit);
        }
    }

    /// A limit holds net of credits, in any window of the log and in each window of the fixed window.
    #[test]
    fn what_is_admitted_obeys_the_limit_net_of_credits(changes in changes(), l in 1..9_u64) {
        let second = Span::from_secs(1);
        let log = Limit::SlidingLog(SlidingLog::new(l, second).unwrap());
        let fixed = Limit::FixedWindow(FixedWindow::new(l, second).unwrap());
        for limit in [log, fixed] {
            let (mut subject, mut now) = (Subject::new(limit), START_US);
            let (mut admitted, mut credited) = (Costs::new(), Costs::new());
            for change in &changes {
                now += change.step;
                let operation = match change.operation {
                    Operation::Charge { cost, .. } => Operation::charge(cost.min(l)),
                    other => other,
                };
                match (subject.apply(now, operation).verdict, operation) {
                    (Verdict::Admitted { .. }, Operation::Charge { cost, .. }) => admitted.push((now, cost)),
                    (Verdict::Done { amount }, _) => credited.push((now, amount)),
                    _ => (),
                }
                let from = if limit == log { now - 999_999 } else { now - now % 1_000_000 };
                let net = sum_within(&admitted, from, now).saturating_sub(sum_within(&credited, from, now));
                prop_assert!(net <= l, "{:?}: {} units", limit, net);
            }
        }
    }

    /// A record answers when the next unit fits: at that instant and not one tick earlier.
    #[test]
    fn a_unit_fits_when_a_record_says_so_and_not_earlier(changes in changes(), cost in 0..50_u64) {
        for limit in recording_limits_and_a_short_log() {
            let (mut subject, mut now) = (Subject::new(limit), START_US);
            for change in &changes {
                now += change.step;
                subject.apply(now, change.operation);
            }
            let answer = subject.apply(now, Operation::Record { cost });
            let Verdict::Recorded { overdraft, free_at, .. } = answer.verdict else {
                return Err(TestCaseError::fail(format!("{limit:?}: {:?}", answer.verdict)));
            };
            prop_assert!(overdraft == 0 || answer.remaining == 0);
            if is_shaper(&limit) {
                continue;
            }
            prop_assert!(subject.peek(free_at.us(), 1).is_admitted(), "{:?} at {:?}", limit, free_at);
            prop_assert!(free_at.us() >= now);
            if free_at.us() > now {
                prop_assert!(subject.peek(free_at.us() - 1, 1).is_refused(), "{:?} at {:?}", limit, free_at);
                prop_assert!(subject.peek(now, 1).is_refused(), "{:?}", limit);
            }
        }
    }

    /// However much is recorded, numbers stay exact, and no bucket drains for longer than a month or two fill times.
    #[test]
    fn records_stop_at_their_caps(costs in prop::collection::vec((0..2_000_000_u64, (EXACT_MAX / 3)..=EXACT_MAX), 1..12)) {
        for limit in recording_limits_and_a_short_log() {
            let (mut subject, mut now) = (Subject::new(limit), START_US);
            for &(step, cost) in &costs {
                now += step;
                let answer = subject.apply(now, Operation::Record { cost });
                let Verdict::Recorded { amount, overdraft, .. } = answer.verdict else {
                    return Err(TestCaseError::fail(format!("{limit:?}: {:?}", answer.verdict)));
                };
                prop_assert!(amount <= cost && overdraft <= EXACT_MAX);
                prop_assert!(limit.capacity() + overdraft >= amount, "{:?}", limit);
                let state = subject.account.state.clone().unwrap();
                prop_assert_eq!(State::decode(&state.encode()), Ok(state));
                if let Limit::Bucket(bucket) = limit {
                    let longest = Span::from_secs(31 * 86_400).max(Span::from_us(2 * bucket.fill_time().us()));
                    prop_assert!(answer.reset_at <= Time::from_us(now).plus(longest));
                    prop_assert!(amount < cost);
                }
            }
        }
    }
}

const TOKEN: Token = Token(7);

fn reserved(units: u64) -> Subject {
    let limit = Limit::Quota(Quota::new(10, 0, QuotaPeriod::Rolling(Span::from_secs(3_600))).unwrap());
    let mut subject = Subject::new(limit);
    let hold = Span::from_secs(32);
    assert!(subject.apply(START_US, Operation::Reserve { cost: units, token: TOKEN, hold }).is_admitted());
    subject
}

fn extend(more: u64, secs: u64) -> Operation {
    Operation::Extend { token: TOKEN, more, hold: Span::from_secs(secs) }
}

#[test]
fn an_extension_raises_the_hold_and_its_end_and_settles_once() {
    let mut subject = reserved(4);
    let answer = subject.apply(START_US + 1, extend(3, 64));
    let Mark::Held { token: TOKEN, until } = answer.mark else { panic!("{answer:?}") };
    assert!(answer.is_admitted() && answer.remaining == 3);
    assert!(until >= Time::from_us(START_US).plus(Span::from_secs(64)), "{until:?}");
    // A shorter hold does not bring the end forward.
    let again = subject.apply(START_US + 2, extend(1, 1));
    assert_eq!((again.mark, again.remaining), (answer.mark, 2));
    assert_eq!(subject.peek(until.us() - 1, 0).remaining, 2);
    assert_eq!(subject.peek(until.us(), 0).remaining, 10);
    let settle = Operation::Settle { token: TOKEN, actual: 6 };
    assert_eq!(subject.apply(START_US + 3, settle).verdict, Verdict::Done { amount: 6 });
    assert_eq!(subject.apply(START_US + 4, settle).verdict, Verdict::Done { amount: 6 });
    assert_eq!(subject.counted(START_US + 5), 6);
}

#[test]
fn a_refused_extension_leaves_the_hold_and_an_ended_one_is_declined() {
    let mut subject = reserved(4);
    assert!(subject.apply(START_US + 1, extend(7, 64)).is_refused());
    assert_eq!(subject.counted(START_US + 1), 4);
    assert_eq!(subject.account.holds[&TOKEN].units, 4);
    let end = subject.account.holds[&TOKEN].end.us();
    let declined = Verdict::Declined(Decline::NotHeld);
    assert_eq!(subject.apply(end, extend(1, 64)).verdict, declined);
    assert!(subject.apply(end - 1, extend(1, 64)).is_admitted());
    subject.apply(end, Operation::Cancel { token: TOKEN });
    assert_eq!(subject.apply(end, extend(1, 64)).verdict, declined);
}

#[test]
fn the_refund_of_an_extension_gives_back_what_it_added() {
    let mut subject = reserved(4);
    let mark = subject.apply(START_US, extend(5, 64)).mark;
    assert_eq!(subject.apply(START_US, Operation::refund(mark, 5)).verdict, Verdict::Done { amount: 5 });
    assert_eq!((subject.counted(START_US), subject.account.holds[&TOKEN].units), (4, 4));
    assert!(subject.peek(START_US, 6).is_admitted());
}

fn item<'r>(keyspace: &'r Keyspace, limit: Limit, operation: Operation) -> Item<'r> {
    let subject = SubjectHasher::new([5; 32]).subject([("user", "u")]);
    Item::new(keyspace.key(subject), limit, operation)
}

#[test]
fn a_plan_of_records_books_every_item_that_is_not_declined() {
    let clock = ManualClock::at(Time::from_us(START_US));
    let store = MemoryStore::with_clock(&clock);
    let limits = limits().unwrap();
    let keyspaces: Vec<Keyspace> =
        (0..limits.len()).map(|rule| Keyspace::new("test", &format!("r{rule}")).unwrap()).collect();
    let mut plan = Plan::new();
    for (keyspace, &limit) in keyspaces.iter().zip(&limits) {
        plan.push(item(keyspace, limit, Operation::Record { cost: 30 })).unwrap();
    }
    let outcome = store.apply_now(&plan);
    assert!(outcome.took_effect(&plan));
    for (limit, answer) in limits.iter().zip(&outcome.answers) {
        match limit {
            Limit::Concurrency(_) | Limit::Penalty(_) => {
                assert_eq!(answer.verdict, Verdict::Declined(Decline::NotSupported));
            }
            _ => {
                let Verdict::Recorded { amount: 30, overdraft, .. } = answer.verdict else {
                    panic!("{limit:?}: {answer:?}")
                };
                assert_eq!((overdraft, answer.remaining), (30 - answer.limit, 0), "{limit:?}");
            }
        }
    }
}

#[test]
fn one_id_books_once_and_a_repeat_gets_the_first_answer() {
    let clock = ManualClock::at(Time::from_us(START_US));
    let store = MemoryStore::with_clock(&clock);
    let keyspace = Keyspace::new("test", "rule").unwrap();
    let id = SubjectHasher::new([5; 32]).subject([("id", "42")]);
    let limit = Limit::FixedWindow(FixedWindow::new(10, Span::from_secs(60)).unwrap());
    let plan = |operation| {
        let mut plan = Plan::of(item(&keyspace, limit, operation)).unwrap();
        plan.set_request_id(id, Span::from_secs(60), 1);
        plan
    };
    // A check, its record and a credit may have one id: the kind is part of it.
    let check = store.apply_once(&plan(Operation::charge(2))).unwrap();
    assert!(check.answers[0].is_admitted() && !check.replayed);
    for operation in [Operation::Record { cost: 13 }, Operation::Credit { cost: 4 }] {
        let first = store.apply_once(&plan(operation)).unwrap();
        let second = store.apply_once(&plan(operation)).unwrap();
        assert!(!first.replayed && second.replayed);
        assert_eq!(first.answers, second.answers);
    }
    let status = store.apply_now(&Plan::of(item(&keyspace, limit, Operation::Record { cost: 0 })).unwrap());
    let Verdict::Recorded { overdraft, .. } = status.answers[0].verdict else { panic!("{status:?}") };
    assert_eq!(overdraft, 1, "2 charged, 13 recorded once, 4 credited once");
    // The same id with another cost is an error.
    assert!(store.apply_once(&plan(Operation::Record { cost: 14 })).is_err());
}

#[test]
fn an_extension_and_the_charges_of_other_rules_are_all_or_none() {
    let clock = ManualClock::at(Time::from_us(START_US));
    let store = MemoryStore::with_clock(&clock);
    let (quota_rule, bucket_rule) =
        (Keyspace::new("test", "q").unwrap(), Keyspace::new("test", "b").unwrap());
    let quota = Limit::Quota(Quota::new(10, 0, QuotaPeriod::Rolling(Span::from_secs(3_600))).unwrap());
    let bucket = Limit::Bucket(Bucket::tokens(1, Span::from_secs(3_600), 5).unwrap());
    let hold = Span::from_secs(60);
    let reserve = Operation::Reserve { cost: 4, token: TOKEN, hold };
    store.apply_now(&Plan::of(item(&quota_rule, quota, reserve)).unwrap());
    let ask = |more: u64| {
        let mut plan = Plan::of(item(&quota_rule, quota, extend(more, 60))).unwrap();
        plan.push(item(&bucket_rule, bucket, Operation::charge(more))).unwrap();
        store
            .apply_now(&plan)
            .answers
            .iter()
            .map(|answer| (answer.is_admitted(), answer.remaining))
            .collect::<Vec<_>>()
    };
    assert_eq!(ask(3), [(true, 3), (true, 2)]);
    // The bucket refuses, so the reservation stays as it was.
    assert_eq!(ask(3), [(true, 3), (false, 2)]);
    assert_eq!(ask(2), [(true, 1), (true, 0)]);
}
