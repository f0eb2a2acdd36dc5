//! Histories of generated calls on correct and incorrect stores.

use super::driven_store::*;
use super::*;

/// The checker accepts every answer of a correct store, however vague the records.
#[test]
fn a_correct_store_is_never_reported() {
    for kind in kinds() {
        let mut answers = [0_u64; 2];
        let calls = proptest::collection::vec(generated_call(), 1..60);
        let seen = std::cell::RefCell::new(&mut answers);
        run(400, &calls, |calls| {
            let (history, horizon) = drive(kind, &calls);
            let verdict = Checker::new(kind.limit).with_id_horizon(horizon).check(&history);
            prop_assert!(verdict.is_clean(), "{:?}\n{verdict}", kind.limit);
            let mut seen = seen.borrow_mut();
            seen[0] += verdict.counts.allowed;
            seen[1] += verdict.counts.refused;
            Ok(())
        });
        assert!(answers.iter().all(|count| *count > 100), "{kind:?} answered {answers:?}");
    }
}

/// With exact instants, every single flipped answer is detected.
///
/// Exceptions are strict windows, whose guarantee leaves room between what must be admitted and what must be refused,
/// logs that also refuse when they are full, and calls at an instant at which the rounded end of a lease is open.
#[test]
fn every_flipped_answer_is_detected() {
    let sharp = generated_call().prop_map(|call| GeneratedCall {
        // No two calls at one instant, because their order would not be recorded.
        jitter: call.jitter + 1,
        back: 0,
        before: 0,
        after: 0,
        fate: Fate::Answered,
        repeats: None,
        on_lease: None,
        // A refusal because of a record proves nothing about admissions.
        books: None,
        ..call
    });
    let calls = proptest::collection::vec(sharp, 1..40);
    for kind in kinds() {
        let leaves_room = match kind.limit {
            Limit::SlidingWindow(limit) => limit.counting() == Counting::Strict,
            Limit::SlidingLog(limit) => limit.entries() < limit.limit(),
            _ => false,
        };
        let checker = Checker::new(kind.limit);
        let determined = std::cell::Cell::new(0_u32);
        run(60, &calls, |calls| {
            let (history, _) = drive(kind, &calls);
            prop_assert!(checker.check(&history).is_clean());
            for flipped in 0..history.records().len() {
                let mut records = history.records().to_vec();
                let record = &mut records[flipped];
                let was = record.answer;
                if record.cost == 0 {
                    continue;
                }
                record.answer = if was == CallResult::Allow { CallResult::Refuse } else { CallResult::Allow };
                let what = record.clone();
                // A lease is certainly held until `until`, and certainly gone at `gone`.
                let is_open = records.iter().any(|other| {
                    let holds = other.answer == CallResult::Allow && *other != what;
                    holds && other.held.is_some_and(|held| held.until <= what.start && what.start < held.gone)
                });
                let verdict = checker.check(&records.into_iter().collect());
                let seen = if was == CallResult::Allow {
                    verdict.falsely_refused.iter().any(|found| found.refused.as_ref() == Some(&what))
                } else {
                    !verdict.over_admitted.is_empty()
                };
                determined.set(determined.get() + u32::from(!(leaves_room || is_open)));
                prop_assert!(seen || leaves_room || is_open, "{:?}: not seen: {what}\n{verdict}", kind.limit);
            }
            Ok(())
        });
        assert!(leaves_room || determined.get() > 300, "{:?}: {determined:?} answers", kind.limit);
    }
}

/// Stores with twice the limit, with half the limit, and stores that charge a repeated id again.
#[test]
fn incorrect_stores_are_detected() {
    let busy = |kind: Kind, width: u64| {
        let mut store = Store::new(kind);
        for n in 0..400 {
            let call = GeneratedCall {
                steps: n % 2,
                jitter: 0,
                back: 0,
                before: n % (width + 1),
                after: (n / 2) % (width + 1),
                cost: 1,
                fate: Fate::Answered,
                repeats: None,
                on_lease: None,
                books: None,
            };
            store.call(call);
        }
        store.notes.into_iter().map(|note| Record { id: None, ..note }).collect::<History>()
    };
    let one = |limit: fn(u64) -> Limit, size: u64| Kind { limit: limit(size), step_us: 3, cost_step: 1 };
    let limits: [fn(u64) -> Limit; 10] = [
        |size| fixed(8 * size, 96),
        |size| log(8 * size, 96),
        |size| strict(8 * size, 96, 4),
        |size| interpolated(8 * size, 96, 2),
        |size| tokens(size, 12, 8 * size),
        |size| shaper(size, 12, 8 * size - 1),
        |size| concurrency(4 * size, 48),
        |size| calendar(8 * size, 0, [0, 400, 800, 1_600]),
        |size| rolling(8 * size, 96),
        |size| meter(8 * size, 96),
    ];
    for limit in limits {
        for width in [0, 4] {
            let right = limit(2);
            for (size, over, refused) in [(4, true, false), (2, false, false), (1, false, true)] {
                let verdict = Checker::new(right).check(&busy(one(limit, size), width));
                let found = (!verdict.over_admitted.is_empty(), !verdict.falsely_refused.is_empty());
                assert_eq!(found, (over, refused), "{right:?}, store of {size}, width {width}\n{verdict}");
                assert!(size == 4 || verdict.counts.refused > 20, "{verdict}");
            }
        }
    }

    // The reply to every second call is lost, and the store does not remember the id.
    let mut store = Store::new(one(limits[4], 2));
    for n in 0..100_u64 {
        let id = u128::from(n / 2);
        store.now += 3;
        let at = Time::from_us(store.now);
        let charged = store.charge(store.now, 2, None);
        let answer = if n % 2 == 0 { CallResult::Unknown } else { charged };
        store.notes.push(Record::new(KEY, 2, answer, at, at).with_id(id));
    }
    let verdict = Checker::new(limits[4](2)).check(&store.notes.into_iter().collect());
    assert!(!verdict.falsely_refused.is_empty(), "{verdict}");
}
