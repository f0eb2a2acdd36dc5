//! The efficient search compared with its definition, and its running time.

use super::driven_store::*;
use super::*;

/// Whether any span from the start of one charge to the end of another certainly has more cost than `bound(first, last)`.
fn any_span_above(records: &[Record], bound: impl Fn(u64, u64) -> Option<u128>) -> bool {
    records.iter().any(|first| {
        records.iter().any(|last| {
            let (first, last) = (first.start.us(), last.end.us());
            let within = records.iter().filter(|call| first <= call.start.us() && call.end.us() <= last);
            let sum: u128 = within.map(|call| u128::from(call.cost)).sum();
            first <= last && bound(first, last).is_some_and(|bound| sum > bound)
        })
    })
}

#[test]
fn the_sweep_finds_what_a_comparison_of_all_spans_finds() {
    let call = (0_u64..200, 0_u64..30, 1_u64..4);
    let calls = proptest::collection::vec(call, 1..60);
    let mut found = [[0_u64; 2]; 3];
    let seen = std::cell::RefCell::new(&mut found);
    run(3_000, &(calls, 1_u64..120), |(calls, size)| {
        let records: Vec<Record> =
            calls.into_iter().map(|(start, width, cost)| allow(cost, start, start + width)).collect();
        let history: History = records.iter().cloned().collect();
        let windows = |first: u64, last: u64| u128::from((last / 20 - first / 20 + 1) * size);
        let log_windows = |first: u64, last: u64| (last - first < 20).then_some(u128::from(size));
        let log_long = |first: u64, last: u64| u128::from(size + size * (last - first) / 20);
        let bucket = |first: u64, last: u64| u128::from(size + 3 * (last - first) / 7);
        let expected = [
            (fixed(size, 20), any_span_above(&records, |first, last| Some(windows(first, last)))),
            (
                log(size, 20),
                any_span_above(&records, log_windows)
                    || any_span_above(&records, |first, last| Some(log_long(first, last))),
            ),
            (tokens(3, 7, size), any_span_above(&records, |first, last| Some(bucket(first, last)))),
        ];
        for (which, (limit, above)) in expected.into_iter().enumerate() {
            let verdict = Checker::new(limit).check(&history);
            prop_assert_eq!(!verdict.over_admitted.is_empty(), above, "{:?}\n{}", limit, verdict);
            for found in &verdict.over_admitted {
                let span = found.first.us()..=found.last.us();
                let within = records
                    .iter()
                    .filter(|call| span.contains(&call.start.us()) && span.contains(&call.end.us()));
                prop_assert_eq!(found.sum, within.clone().map(|call| u128::from(call.cost)).sum::<u128>());
                prop_assert_eq!(found.evidence.len() + found.evidence_left_out, within.count());
                prop_assert!(found.sum > found.bound);
            }
            seen.borrow_mut()[which][usize::from(above)] += 1;
        }
        Ok(())
    });
    assert!(found.iter().flatten().all(|count| *count > 100), "{found:?}");
}

/// A hundred thousand calls on one key, with correct answers and with every second answer flipped. Comparing all pairs
/// would take minutes.
#[test]
fn a_hundred_thousand_calls_take_seconds() {
    let kinds = [
        fixed(40, 96),
        log(40, 96),
        strict(40, 96, 4),
        interpolated(40, 96, 2),
        tokens(1, 3, 40),
        concurrency(40, 96),
        calendar(40, 0, [0, 200_000, 400_000, 1 << 40]),
        rolling(40, 96),
        meter(40, 96),
    ];
    let deadline = Duration::from_secs(20);
    for limit in kinds {
        for wrong_answers in [false, true] {
            let mut store = Store::new(Kind { limit, step_us: 1, cost_step: 1 });
            for n in 0..100_000_u64 {
                store.now += n % 4;
                let (start, end) = (store.now - n % 50, store.now + n % 37);
                let answer = store.charge(store.now, 1 + n % 3, None);
                let flipped =
                    if answer == CallResult::Allow { CallResult::Refuse } else { CallResult::Allow };
                let answer = if wrong_answers && n % 2 == 0 { flipped } else { answer };
                let note = call(answer, 1 + n % 3, start, end);
                let lease = Held::leased(note.start, note.end, us(96));
                store.notes.push(note.with_held(lease).with_id(u128::from(n)));
            }
            let history: History = store.notes.into_iter().collect();
            let began = Instant::now();
            let verdict = Checker::new(limit).check(&history);
            let took = began.elapsed();
            let (over, refused) = (verdict.over_admitted.len(), verdict.falsely_refused.len());
            println!("{}: {took:?}, {over} over, {refused} refused", limit.algorithm().name());
            assert_eq!(verdict.is_clean(), !wrong_answers, "{limit:?}\n{verdict}");
            assert!(took < deadline, "{limit:?} took {took:?}");
        }
    }
}
