//! The history checker is itself checked: it must accept whatever a right store can have answered, however
//! vague the record, and it must see through wrong stores.
//!
//! Three kinds of proof. Hand-made histories that must pass and must fail, for each algorithm. Soundness: real
//! machines driven with generated calls and blurred instants, and tiny invented histories for which every
//! possible course of events is tried. Sensitivity: with sharp instants every flipped answer is seen; with
//! blurred ones the sweep finds whatever the comparison of all spans finds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::meter::Meter;
use tollgate_core::algorithm::penalty::{Penalty, PenaltyNumbers};
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate_core::calendar::Periods;
use tollgate_core::{Limit, Operation, Span, State, Time, Token, Verdict as Told};
use tollgate_testkit::history::{Answer, Broken, Checker, Held, History, Record, Unchecked, Verdict};

const KEY: &str = "key";

// ---- limits ----------------------------------------------------------------------------------------------

fn fixed(limit: u64, window_us: u64) -> Limit {
    Limit::FixedWindow(FixedWindow::new(limit, us(window_us)).unwrap())
}

fn log(limit: u64, window_us: u64) -> Limit {
    Limit::SlidingLog(SlidingLog::new(limit, us(window_us)).unwrap())
}

fn sliding(limit: u64, window_us: u64, buckets: u64, counting: Counting) -> Limit {
    Limit::SlidingWindow(SlidingWindow::new(limit, us(window_us), buckets, counting).unwrap())
}

fn strict(limit: u64, window_us: u64, buckets: u64) -> Limit {
    sliding(limit, window_us, buckets, Counting::Strict)
}

fn interpolated(limit: u64, window_us: u64, buckets: u64) -> Limit {
    sliding(limit, window_us, buckets, Counting::Interpolated)
}

fn tokens(rate: u64, period_us: u64, capacity: u64) -> Limit {
    Limit::Bucket(Bucket::tokens(rate, us(period_us), capacity).unwrap())
}

fn shaper(rate: u64, period_us: u64, queue: u64) -> Limit {
    Limit::Bucket(Bucket::queue(rate, us(period_us), queue).unwrap())
}

fn concurrency(limit: u64, lease_us: u64) -> Limit {
    Limit::Concurrency(Concurrency::new(limit, us(lease_us)).unwrap())
}

fn calendar(allowance: u64, grace: u64, starts: [u64; 4]) -> Limit {
    let periods = Periods::new(starts.map(Time::from_us)).unwrap();
    Limit::Quota(Quota::new(allowance, grace, QuotaPeriod::Calendar(periods)).unwrap())
}

fn rolling(allowance: u64, length_us: u64) -> Limit {
    Limit::Quota(Quota::new(allowance, 0, QuotaPeriod::Rolling(us(length_us))).unwrap())
}

fn meter(limit: u64, expiry_us: u64) -> Limit {
    Limit::Meter(Meter::new(Some(limit), Some(us(expiry_us))).unwrap())
}

fn us(us: u64) -> Span {
    Span::from_us(us)
}

// ---- hand-made histories ---------------------------------------------------------------------------------

fn call(answer: Answer, cost: u64, start: u64, end: u64) -> Record {
    Record::new(KEY, cost, answer, Time::from_us(start), Time::from_us(end))
}

fn allow(cost: u64, start: u64, end: u64) -> Record {
    call(Answer::Allow, cost, start, end)
}

fn refuse(cost: u64, start: u64, end: u64) -> Record {
    call(Answer::Refuse, cost, start, end)
}

fn unknown(cost: u64, start: u64, end: u64) -> Record {
    call(Answer::Unknown, cost, start, end)
}

fn degraded(cost: u64, start: u64, end: u64) -> Record {
    call(Answer::Degraded, cost, start, end)
}

fn held(cost: u64, start: u64, end: u64, lease_us: u64) -> Record {
    let record = allow(cost, start, end);
    let lease = Held::leased(record.start, record.end, us(lease_us));
    record.with_held(lease)
}

fn check(limit: Limit, records: Vec<Record>) -> Verdict {
    Checker::new(limit).check(&records.into_iter().collect())
}

/// What is wrong with a hand-made history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    Nothing,
    /// The span, what it holds and what it may hold.
    Over(u64, u64, u128, u128),
    /// The start of the refusal, the most that can have counted with it, and the capacity.
    Refused(u64, u128, u128),
}

fn wrongs(verdict: &Verdict) -> Vec<Wrong> {
    let over = verdict.over_admitted.iter();
    let refused = verdict.falsely_refused.iter();
    let over = over.map(|found| Wrong::Over(found.first.us(), found.last.us(), found.sum, found.bound));
    over.chain(refused.map(|found| Wrong::Refused(found.first.us(), found.sum, found.bound))).collect()
}

fn expect(cases: Vec<(&str, Limit, Vec<Record>, Wrong)>) {
    for (what, limit, records, wrong) in cases {
        let verdict = check(limit, records);
        let expected = if wrong == Wrong::Nothing { vec![] } else { vec![wrong] };
        assert_eq!(wrongs(&verdict), expected, "{what}\n{verdict}");
        assert_eq!(verdict.is_clean(), wrong == Wrong::Nothing, "{what}\n{verdict}");
    }
}

#[test]
fn i1_fixed_windows() {
    let limit = fixed(5, 100);
    expect(vec![
        ("full, then the next", limit, vec![allow(5, 150, 199), allow(5, 200, 200)], Wrong::Nothing),
        ("one too many", limit, vec![allow(5, 100, 150), allow(1, 190, 199)], Wrong::Over(100, 199, 6, 5)),
        ("may be the next window", limit, vec![allow(5, 100, 150), allow(1, 190, 200)], Wrong::Nothing),
        (
            "wherever the middle one was, two windows hold eleven",
            limit,
            vec![allow(5, 100, 150), allow(1, 190, 210), allow(5, 250, 250)],
            Wrong::Over(100, 299, 11, 10),
        ),
        ("refused when full", limit, vec![allow(5, 100, 150), refuse(1, 120, 130)], Wrong::Nothing),
        ("refused before", limit, vec![allow(5, 131, 150), refuse(1, 120, 130)], Wrong::Refused(120, 1, 5)),
        (
            "refused in the next",
            limit,
            vec![allow(5, 150, 199), refuse(1, 200, 210)],
            Wrong::Refused(200, 1, 5),
        ),
        ("perhaps still in this one", limit, vec![allow(5, 150, 160), refuse(1, 199, 210)], Wrong::Nothing),
        ("perhaps already in the next", limit, vec![allow(5, 150, 200), refuse(1, 250, 260)], Wrong::Nothing),
        ("more than ever fits", limit, vec![refuse(6, 100, 100)], Wrong::Nothing),
        (
            "nothing is refused as one is",
            limit,
            vec![allow(5, 100, 100), refuse(0, 110, 110)],
            Wrong::Nothing,
        ),
        (
            "nothing is not refused before one is",
            limit,
            vec![allow(4, 100, 100), refuse(0, 110, 110)],
            Wrong::Refused(110, 5, 5),
        ),
    ]);
}

#[test]
fn i2_sliding_logs() {
    let limit = log(5, 100);
    let two_entries = Limit::SlidingLog(SlidingLog::with_entries(5, us(100), 2).unwrap());
    expect(vec![
        ("a window apart", limit, vec![allow(5, 150, 150), allow(5, 250, 250)], Wrong::Nothing),
        ("a tick less", limit, vec![allow(5, 150, 150), allow(5, 249, 249)], Wrong::Over(150, 249, 10, 5)),
        ("perhaps a window apart", limit, vec![allow(5, 149, 150), allow(5, 249, 249)], Wrong::Nothing),
        (
            "too wide for one window, too much for three",
            limit,
            vec![
                allow(5, 0, 100),
                allow(5, 50, 150),
                allow(5, 0, 150),
                allow(5, 150, 250),
                allow(5, 100, 250),
            ],
            Wrong::Over(0, 250, 25, 17),
        ),
        ("the last tick that counts", limit, vec![allow(5, 150, 150), refuse(1, 249, 249)], Wrong::Nothing),
        ("a tick later", limit, vec![allow(5, 150, 150), refuse(1, 250, 250)], Wrong::Refused(250, 1, 5)),
        (
            "the log is full",
            two_entries,
            vec![allow(1, 1, 1), allow(1, 2, 2), refuse(1, 3, 3)],
            Wrong::Nothing,
        ),
        ("the log has room", two_entries, vec![allow(2, 1, 1), refuse(1, 3, 3)], Wrong::Refused(3, 3, 5)),
    ]);
}

#[test]
fn i4_strict_sliding_windows() {
    let limit = strict(5, 100, 4);
    expect(vec![
        ("a window apart", limit, vec![allow(5, 150, 150), allow(5, 250, 250)], Wrong::Nothing),
        ("a tick less", limit, vec![allow(5, 150, 150), allow(1, 249, 249)], Wrong::Over(150, 249, 6, 5)),
        ("a bucket more than a window", limit, vec![allow(5, 150, 150), refuse(1, 274, 274)], Wrong::Nothing),
        ("a tick later", limit, vec![allow(5, 150, 150), refuse(1, 275, 275)], Wrong::Refused(275, 1, 5)),
    ]);
}

#[test]
fn i3_interpolated_sliding_windows() {
    let limit = interpolated(10, 100, 1);
    let four = interpolated(10, 100, 4);
    expect(vec![
        // Half of the window before counts: 5 of 10.
        ("as estimated", limit, vec![allow(10, 110, 190), allow(5, 250, 250)], Wrong::Nothing),
        ("above", limit, vec![allow(10, 110, 190), allow(6, 250, 250)], Wrong::Over(100, 250, 11, 10)),
        ("perhaps later", limit, vec![allow(10, 110, 190), allow(6, 250, 260)], Wrong::Nothing),
        ("buckets", four, vec![allow(6, 110, 190), allow(5, 190, 199)], Wrong::Over(100, 199, 11, 10)),
        (
            "above the bound of any window, although no bucket is certain",
            limit,
            vec![allow(10, 195, 205), allow(10, 195, 205)],
            Wrong::Over(106, 205, 20, 19),
        ),
        (
            "too wide for one window, too much for three",
            limit,
            (0..6).map(|_| allow(10, 0, 250)).collect(),
            Wrong::Over(0, 250, 60, 45),
        ),
        ("refused at half", limit, vec![allow(10, 110, 190), refuse(6, 250, 250)], Wrong::Nothing),
        ("refused below", limit, vec![allow(10, 110, 190), refuse(5, 250, 250)], Wrong::Refused(250, 10, 10)),
        ("perhaps earlier", limit, vec![allow(10, 110, 190), refuse(5, 249, 280)], Wrong::Nothing),
        ("the next bucket", limit, vec![allow(10, 210, 290), refuse(1, 199, 300)], Wrong::Nothing),
        ("gone", limit, vec![allow(10, 110, 199), refuse(1, 300, 300)], Wrong::Refused(300, 1, 10)),
    ]);
}

#[test]
fn i5_buckets() {
    // One in ten ticks, five saved up; so 5 + floor((D - 1) / 10) in any span of D.
    let limit = tokens(1, 10, 5);
    expect(vec![
        ("full, and one more", limit, vec![allow(5, 100, 100), allow(1, 110, 110)], Wrong::Nothing),
        ("a tick early", limit, vec![allow(5, 100, 100), allow(1, 109, 109)], Wrong::Over(100, 109, 6, 5)),
        ("perhaps in time", limit, vec![allow(5, 99, 100), allow(1, 109, 109)], Wrong::Nothing),
        (
            "never above in a short span, above in a long one",
            limit,
            (0..10).map(|n| allow(1, 100 + 5 * n, 100 + 5 * n)).collect(),
            Wrong::Over(100, 145, 10, 9),
        ),
        ("refused when full", limit, vec![allow(5, 100, 100), refuse(1, 109, 109)], Wrong::Nothing),
        ("a tick late", limit, vec![allow(5, 100, 100), refuse(1, 110, 110)], Wrong::Refused(110, 5, 5)),
        ("it came late", limit, vec![allow(5, 100, 101), refuse(1, 110, 110)], Wrong::Nothing),
        (
            "never more than the capacity drains",
            limit,
            vec![unknown(5, 100, 110), unknown(5, 100, 110), refuse(1, 120, 120)],
            Wrong::Refused(120, 5, 5),
        ),
        (
            "a shaper of four is a bucket of five",
            shaper(1, 10, 4),
            vec![allow(5, 100, 100), allow(1, 109, 109)],
            Wrong::Over(100, 109, 6, 5),
        ),
    ]);
}

#[test]
fn i5_a_bucket_in_milliseconds() {
    // 1 per 5e12 us with a capacity of 1000 passes 2^53 in microseconds.
    let limit = tokens(1, 5_000_000_000_000, 1_000);
    assert_eq!(limit.tick().us(), 1_000);
    let drained = 5_000_000_000_000;
    expect(vec![
        (
            "in time",
            limit,
            vec![allow(1_000, 1_999, 1_999), allow(1, 1_000 + drained, 1_000 + drained)],
            Wrong::Nothing,
        ),
        (
            "a microsecond early is a millisecond early",
            limit,
            vec![allow(1_000, 1_000, 1_000), allow(1, 999 + drained, 999 + drained)],
            Wrong::Over(1_000, 999 + drained, 1_001, 1_000),
        ),
        (
            "full",
            limit,
            vec![allow(1_000, 1_999, 1_999), refuse(1, 999 + drained, 999 + drained)],
            Wrong::Nothing,
        ),
        (
            "not full",
            limit,
            vec![allow(1_000, 1_999, 1_999), refuse(1, 1_000 + drained, 1_000 + drained)],
            Wrong::Refused(1_000 + drained, 1_000, 1_000),
        ),
    ]);
}

#[test]
fn concurrency_counts_what_is_held() {
    let limit = concurrency(2, 100);
    let released = |record: Record, start: u64, end: u64| {
        let lease = record.held.unwrap().released(Time::from_us(start), Time::from_us(end));
        record.with_held(lease)
    };
    let renewed = |record: Record, start: u64, end: u64| {
        let lease = record.held.unwrap().renewed(Time::from_us(start), Time::from_us(end), us(100));
        record.with_held(lease)
    };
    expect(vec![
        ("two", limit, vec![held(1, 10, 11, 100), held(1, 12, 13, 100)], Wrong::Nothing),
        (
            "three",
            limit,
            vec![held(1, 10, 11, 100), held(1, 12, 13, 100), held(1, 14, 15, 100)],
            Wrong::Over(15, 15, 3, 2),
        ),
        ("not known to be held", limit, vec![held(2, 10, 11, 100), allow(1, 14, 15)], Wrong::Nothing),
        (
            "after release",
            limit,
            vec![released(held(2, 10, 11, 100), 20, 30), held(1, 20, 20, 100)],
            Wrong::Nothing,
        ),
        (
            "before release",
            limit,
            vec![released(held(2, 10, 11, 100), 20, 30), held(1, 19, 19, 100)],
            Wrong::Over(19, 19, 3, 2),
        ),
        ("after its end", limit, vec![held(2, 10, 11, 100), held(1, 110, 110, 100)], Wrong::Nothing),
        (
            "before its end, renewed",
            limit,
            vec![renewed(held(2, 10, 11, 100), 50, 51), held(1, 110, 110, 100)],
            Wrong::Over(110, 110, 3, 2),
        ),
        ("refused while held", limit, vec![held(2, 10, 11, 100), refuse(1, 110, 110)], Wrong::Nothing),
        ("refused after", limit, vec![held(2, 10, 11, 100), refuse(1, 111, 111)], Wrong::Refused(111, 1, 2)),
        (
            "refused while releasing",
            limit,
            vec![released(held(2, 10, 11, 100), 20, 30), refuse(1, 30, 30)],
            Wrong::Nothing,
        ),
        (
            "refused after the release",
            limit,
            vec![released(held(2, 10, 11, 100), 20, 30), refuse(1, 31, 31)],
            Wrong::Refused(31, 1, 2),
        ),
        (
            "held for nobody knows how long",
            limit,
            vec![allow(2, 10, 11), refuse(1, 9_999, 9_999)],
            Wrong::Nothing,
        ),
    ]);
}

#[test]
fn quotas_by_the_calendar() {
    let limit = calendar(5, 1, [100, 200, 500, 600]);
    expect(vec![
        ("with grace", limit, vec![allow(6, 150, 199), allow(6, 200, 200)], Wrong::Nothing),
        ("above", limit, vec![allow(6, 200, 250), allow(1, 499, 499)], Wrong::Over(200, 499, 7, 6)),
        (
            "two periods",
            limit,
            vec![allow(6, 200, 250), allow(6, 500, 599), allow(1, 450, 550)],
            Wrong::Over(200, 599, 13, 12),
        ),
        ("refused when full", limit, vec![allow(6, 200, 250), refuse(1, 499, 499)], Wrong::Nothing),
        (
            "refused in the next",
            limit,
            vec![allow(6, 200, 250), refuse(1, 500, 500)],
            Wrong::Refused(500, 1, 6),
        ),
    ]);
    // What may have happened outside is held to nothing, but may stand in the way of what happened inside.
    for charges in [vec![allow(6, 99, 100)], vec![allow(6, 99, 100), allow(6, 101, 101)]] {
        let refusals = vec![refuse(1, 102, 102), refuse(1, 599, 600)];
        let verdict = check(limit, [charges, refusals].concat());
        assert_eq!(verdict.unchecked, BTreeMap::from([(Unchecked::OutsidePeriods, 2)]));
        assert_eq!(wrongs(&verdict), vec![]);
        assert!(!verdict.is_clean());
    }
}

#[test]
fn quotas_from_first_use() {
    let limit = rolling(5, 100);
    expect(vec![
        ("the first period", limit, vec![allow(5, 50, 50), allow(5, 150, 150)], Wrong::Nothing),
        ("a tick early", limit, vec![allow(5, 50, 50), allow(1, 149, 149)], Wrong::Over(50, 149, 6, 5)),
        (
            "the second period begins with its first use",
            limit,
            vec![allow(1, 50, 50), allow(5, 180, 180), allow(1, 279, 279)],
            Wrong::Over(180, 279, 6, 5),
        ),
        ("the third", limit, vec![allow(1, 50, 50), allow(5, 180, 180), allow(1, 280, 280)], Wrong::Nothing),
        (
            "perhaps begun earlier",
            limit,
            vec![unknown(1, 49, 49), allow(5, 50, 50), allow(1, 149, 149)],
            Wrong::Nothing,
        ),
        (
            "nobody knows when it began, but three periods do not fit",
            limit,
            vec![unknown(1, 0, 50), allow(5, 40, 60), allow(5, 90, 100), allow(5, 130, 139)],
            Wrong::Over(40, 139, 15, 10),
        ),
        ("refused when full", limit, vec![allow(5, 50, 51), refuse(1, 150, 150)], Wrong::Nothing),
        ("refused after", limit, vec![allow(5, 50, 51), refuse(1, 151, 151)], Wrong::Refused(151, 1, 5)),
        (
            "what was used late in a period is over with it",
            limit,
            vec![allow(1, 50, 50), allow(4, 149, 149), refuse(1, 150, 150)],
            Wrong::Refused(150, 1, 5),
        ),
    ]);
}

#[test]
fn meters() {
    let limit = meter(5, 100);
    expect(vec![
        ("full", limit, vec![allow(3, 10, 20), allow(2, 60, 70)], Wrong::Nothing),
        (
            "above",
            limit,
            vec![allow(3, 10, 20), allow(2, 60, 70), allow(1, 150, 159)],
            Wrong::Over(10, 159, 6, 5),
        ),
        ("perhaps forgotten", limit, vec![allow(3, 10, 20), allow(3, 60, 110)], Wrong::Nothing),
        (
            "a vague one between two sharp ones changes nothing",
            limit,
            vec![allow(3, 10, 20), allow(1, 15, 500), allow(3, 30, 40)],
            Wrong::Over(10, 40, 6, 5),
        ),
        (
            "refused when full",
            limit,
            vec![allow(3, 10, 20), allow(2, 110, 110), refuse(1, 209, 209)],
            Wrong::Nothing,
        ),
        ("forgotten", limit, vec![allow(5, 10, 20), refuse(1, 120, 120)], Wrong::Refused(120, 1, 5)),
        (
            "kept alive",
            limit,
            vec![allow(4, 10, 20), unknown(1, 110, 110), refuse(1, 209, 209)],
            Wrong::Nothing,
        ),
    ]);
}

#[test]
fn unknown_counts_nothing_one_way_and_all_the_other() {
    let limit = fixed(5, 100);
    let degraded_too = vec![allow(5, 100, 100), unknown(5, 110, 120), degraded(5, 110, 120)];
    let verdict = check(limit, degraded_too);
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!((verdict.counts.allowed, verdict.counts.unknown, verdict.counts.degraded), (1, 1, 1));
    for maybe in [unknown(5, 110, 120), degraded(5, 110, 120)] {
        let verdict = check(limit, vec![maybe.clone(), refuse(1, 130, 130)]);
        assert!(verdict.is_clean(), "{verdict}");
        let verdict = check(limit, vec![maybe, refuse(1, 109, 109)]);
        assert_eq!(wrongs(&verdict), [Wrong::Refused(109, 1, 5)]);
    }
}

#[test]
fn keys_are_checked_apart() {
    let other = |record: Record| Record { key: "other".to_owned(), ..record };
    let verdict =
        check(fixed(5, 100), vec![allow(5, 100, 100), other(allow(5, 100, 100)), other(refuse(1, 110, 110))]);
    assert!(verdict.is_clean(), "{verdict}");
    let verdict = check(fixed(5, 100), vec![other(allow(5, 100, 100)), refuse(1, 110, 110)]);
    assert_eq!(wrongs(&verdict), [Wrong::Refused(110, 1, 5)]);
    assert_eq!(verdict.counts.keys, 2);
}

#[test]
fn i10_one_id_is_one_charge() {
    let limit = fixed(5, 100);
    // The reply was lost, the retry was told what the first was told.
    let retried =
        vec![unknown(3, 100, 110).with_id(7), allow(3, 120, 130).with_id(7), allow(3, 140, 150).with_id(7)];
    let verdict = check(limit, retried.clone());
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!(verdict.counts.repeated, 2);

    // Charged once, so there was room for two.
    let double_charged = [retried.clone(), vec![refuse(2, 160, 160)]].concat();
    assert_eq!(wrongs(&check(limit, double_charged)), [Wrong::Refused(160, 5, 5)]);

    // Charged once all the same, in one of the three calls.
    let above = [retried, vec![allow(3, 160, 160)]].concat();
    assert_eq!(wrongs(&check(limit, above)), [Wrong::Over(100, 199, 6, 5)]);

    // It may have been charged by the first call, in the window before.
    let earlier = vec![unknown(3, 90, 110).with_id(7), allow(3, 120, 130).with_id(7), allow(3, 160, 160)];
    assert!(check(limit, earlier).is_clean());

    // Nor does it matter how late it was asked for again.
    let later = vec![allow(3, 100, 110).with_id(7), allow(3, 220, 230).with_id(7), allow(3, 160, 160)];
    assert_eq!(wrongs(&check(limit, later)), [Wrong::Over(100, 199, 6, 5)]);

    // The id may have been forgotten between the two: then both were charged.
    let forgotten = vec![allow(3, 120, 120).with_id(7), allow(3, 170, 170).with_id(7), refuse(2, 180, 180)];
    let history: History = forgotten.into_iter().collect();
    assert!(!Checker::new(limit).with_id_horizon(us(51)).check(&history).is_clean());
    assert!(Checker::new(limit).with_id_horizon(us(50)).check(&history).is_clean());
}

#[test]
fn i10_an_id_stands_for_one_content_and_keeps_its_answer() {
    let limit = fixed(5, 100);
    let other_key = Record { key: "other".to_owned(), ..allow(1, 120, 120) };
    let cases = [
        (vec![allow(1, 100, 100).with_id(7), allow(2, 120, 120).with_id(7)], Some(Broken::OtherContent)),
        (vec![allow(1, 100, 100).with_id(7), other_key.with_id(7)], Some(Broken::OtherContent)),
        (vec![allow(1, 100, 100).with_id(7), allow(2, 120, 120).with_id(8)], None),
        // A refusal is not remembered, so the id is free.
        (vec![refuse(6, 100, 100).with_id(7), allow(2, 120, 120).with_id(7)], None),
        (
            vec![allow(5, 100, 100).with_id(7), refuse(5, 120, 120).with_id(7)],
            Some(Broken::AdmittedThenRefused),
        ),
        // The refusal may have come first: an earlier charge stood in its way and was gone at 200.
        (vec![allow(5, 100, 100), allow(5, 190, 210).with_id(7), refuse(5, 199, 205).with_id(7)], None),
    ];
    for (records, broken) in cases {
        let verdict = check(limit, records);
        let found: Vec<Broken> = verdict.id_conflicts.iter().map(|conflict| conflict.broken).collect();
        assert_eq!(found, broken.into_iter().collect::<Vec<_>>(), "{verdict}");
        assert_eq!(verdict.is_clean(), broken.is_none(), "{verdict}");
    }

    // After the horizon the id is free.
    let records = [allow(5, 100, 100).with_id(7), refuse(5, 150, 150).with_id(7)];
    let history: History = records.into_iter().collect();
    assert_eq!(Checker::new(limit).with_id_horizon(us(51)).check(&history).id_conflicts.len(), 1);
    assert_eq!(Checker::new(limit).with_id_horizon(us(50)).check(&history).id_conflicts, []);
}

#[test]
fn what_cannot_be_checked_is_never_clean() {
    let penalty = Penalty::new(PenaltyNumbers {
        free: 1,
        base: us(10),
        factor: 2,
        longest: us(100),
        memory: us(100),
        count_refused: false,
    });
    let verdict = check(Limit::Penalty(penalty.unwrap()), vec![allow(1, 1, 1), refuse(1, 2, 2)]);
    assert_eq!(verdict.unchecked, BTreeMap::from([(Unchecked::Penalty, 2)]));
    assert!(!verdict.is_clean());

    let verdict = check(fixed(1, 100), vec![allow(9, 20, 10), refuse(1, 50, 40)]);
    assert_eq!(verdict.unchecked, BTreeMap::from([(Unchecked::EndBeforeStart, 2)]));
    assert_eq!(wrongs(&verdict), vec![]);
    assert!(!verdict.is_clean());
}

#[test]
fn a_verdict_explains_itself() {
    let records = vec![
        allow(5, 100, 150).by(1),
        allow(1, 190, 199).by(2).with_id(0xabc),
        refuse(2, 300, 310).by(3),
        degraded(1, 320, 330),
    ];
    let text = check(fixed(5, 100), records).to_string();
    let expected = "4 calls on 1 keys: 2 allowed, 1 refused, 1 degraded, 0 unknown; 0 repeat an id
over-admitted: 1
  key \"key\": 6 certainly admitted in [@100us, @199us], at most 5 promised, 1 too much (at most 5 in each aligned window of 100us)
    allow of 5 to node 1 in [@100us, @150us]
    allow of 1 to node 2 in [@190us, @199us], id abc
falsely refused: 1
  key \"key\": refuse of 2 to node 3 in [@300us, @310us], though with it at most 2 of 5 can have counted, 3 left (at most 5 in each aligned window of 100us)
request ids broken: 0
";
    assert_eq!(text, expected);
}

#[test]
fn huge_numbers_do_not_overflow() {
    let end = Time::MAX.us();
    let big = 1_u64 << 52;
    for limit in [
        fixed(big, 1),
        log(big, end),
        strict(big, end, 1),
        interpolated(1, end, 1),
        interpolated(big, 1, 1),
        tokens(big - 1, 1, big - 1),
        tokens(1, 1 << 50, 1),
        concurrency(1, end),
        calendar(big, big - 1, [0, 1, 2, end]),
        rolling(big, end),
        meter(big, end),
    ] {
        let records = (0..40).flat_map(|n| {
            let cost = u64::MAX >> (n % 3);
            let held = Held::leased(Time::ZERO, Time::ZERO, us(1));
            [
                allow(cost, 0, end - n).with_held(held),
                allow(cost, end - n, end),
                refuse(1, 0, end),
                unknown(cost, end, end),
            ]
        });
        let verdict = check(limit, records.collect());
        assert_eq!(verdict.falsely_refused, [], "{limit:?}");
        assert!(!verdict.over_admitted.is_empty() || verdict.unchecked.len() == 1, "{limit:?}\n{verdict}");
    }
}

// ---- a store driven with generated calls -----------------------------------------------------------------

/// A limit and the steps of time and cost at which it becomes interesting.
#[derive(Clone, Copy, Debug)]
struct Kind {
    limit: Limit,
    /// A sixteenth of its window, or of what takes as long.
    step_us: u64,
    /// A part of its capacity.
    cost_step: u64,
}

fn kinds() -> Vec<Kind> {
    let kind = |limit, span_us: u64| {
        let capacity = Limit::capacity(&limit);
        Kind { limit, step_us: (span_us / 16).max(1), cost_step: (capacity / 8).max(1) }
    };
    let few_entries = Limit::SlidingLog(SlidingLog::with_entries(9, us(48), 3).unwrap());
    vec![
        kind(fixed(7, 32), 32),
        kind(log(7, 32), 32),
        kind(few_entries, 48),
        kind(strict(7, 48, 1), 48),
        kind(strict(9, 48, 4), 48),
        kind(interpolated(9, 48, 1), 48),
        kind(interpolated(9, 48, 3), 48),
        kind(tokens(3, 10, 6), 20),
        kind(tokens(1, 16, 3), 48),
        kind(tokens(5, 1, 20), 4),
        // Counts in milliseconds, and is full after five seconds.
        kind(tokens(999_999_937, 5_000_000_000_000, 1_000), 5_000_000),
        kind(shaper(2, 9, 4), 22),
        kind(concurrency(5, 32), 32),
        kind(calendar(6, 1, [0, 300, 350, 1 << 50]), 48),
        kind(rolling(6, 32), 32),
        kind(meter(12, 20), 32),
    ]
}

/// What happened to a call on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Answered,
    /// It took effect and the reply was lost.
    ReplyLost,
    /// It never reached the store.
    RequestLost,
    /// It took effect, and a failure policy answered before the store did.
    PolicyAnswered,
}

/// One generated call.
#[derive(Clone, Copy, Debug)]
struct Act {
    steps: u64,
    jitter: u64,
    /// How far the clock that the store looked at was behind when the call had its turn.
    back: u64,
    /// How much earlier and later than necessary the caller looked at its clock.
    before: u64,
    after: u64,
    cost: u64,
    fate: Fate,
    /// Repeats an earlier id, if there is one.
    repeats: Option<u8>,
    /// For leases: gives an old one back, or renews it, instead.
    on_lease: Option<(u8, bool)>,
}

fn act() -> impl Strategy<Value = Act> {
    let fate = prop_oneof![
        6 => Just(Fate::Answered),
        1 => Just(Fate::ReplyLost),
        1 => Just(Fate::RequestLost),
        1 => Just(Fate::PolicyAnswered),
    ];
    let steps = prop_oneof![3 => Just(0), 4 => 1_u64..4, 1 => 4_u64..40];
    let time = (steps, 0_u64..4, 0_u64..12);
    let width = || prop_oneof![Just(0), 0_u64..4, 0_u64..40];
    let repeats = proptest::option::weighted(0.2, any::<u8>());
    let on_lease = proptest::option::weighted(0.2, any::<(u8, bool)>());
    (time, width(), width(), 0_u64..12, fate, repeats, on_lease).prop_map(
        |((steps, jitter, back), before, after, cost, fate, repeats, on_lease)| Act {
            steps,
            jitter,
            back,
            before,
            after,
            cost,
            fate,
            repeats,
            on_lease,
        },
    )
}

/// A right store, one key, and the callers' notes.
struct Store {
    kind: Kind,
    state: Option<State>,
    /// The instant up to which everything has happened.
    now: u64,
    ids: BTreeMap<u128, (u64, u64)>,
    id_horizon_us: u64,
    notes: Vec<Record>,
}

/// Where histories begin: in the middle of a window of most limits.
const BEGIN: u64 = 250;

impl Store {
    fn new(kind: Kind) -> Store {
        let id_horizon_us = 24 * kind.step_us;
        Store { kind, state: None, now: BEGIN, ids: BTreeMap::new(), id_horizon_us, notes: Vec::new() }
    }

    fn operate(&mut self, at: u64, operation: &Operation) -> Told {
        let step = self.kind.limit.decide(self.state.as_ref(), Time::from_us(at), operation);
        if let Some(write) = step.write {
            State::commit(&mut self.state, write.change);
        }
        step.answer.verdict
    }

    /// The answer to a charge under an id, if it has one; remembered like a store should.
    fn charge(&mut self, at: u64, cost: u64, id: Option<u128>) -> Answer {
        let known = id.and_then(|id| self.ids.get(&id));
        let remembered =
            |&&(at, charged): &&(u64, u64)| self.now < at + self.id_horizon_us && charged == cost;
        if known.filter(remembered).is_some() {
            return Answer::Allow;
        }
        let token = Token(self.notes.len() as u128 + 1);
        match self.operate(at, &Operation::Charge { cost, token }) {
            Told::Admitted { .. } => {
                if let Some(id) = id {
                    self.ids.insert(id, (self.now, cost));
                }
                Answer::Allow
            }
            Told::Refused(_) => Answer::Refuse,
            other => panic!("{other:?} is no answer to a charge"),
        }
    }

    fn act(&mut self, act: Act) {
        self.now += act.steps * self.kind.step_us + act.jitter * self.kind.limit.tick().us();
        // The clock was read before the call had its turn; both lie between the caller's two looks.
        let at = self.now.saturating_sub(act.back * self.kind.step_us / 4);
        let (start, end) = (at.saturating_sub(act.before), self.now + act.after);
        let (start, end) = (Time::from_us(start), Time::from_us(end));
        let lease = match self.kind.limit {
            Limit::Concurrency(limit) => Some(limit.lease()),
            _ => None,
        };
        if let (Some(lease), Some((pick, renew)), false) = (lease, act.on_lease, self.notes.is_empty()) {
            let pick = usize::from(pick) % self.notes.len();
            let token = Token(pick as u128 + 1);
            let operation = if renew { Operation::Renew { token } } else { Operation::Release { token } };
            let done = matches!(self.operate(at, &operation), Told::Done { .. });
            let held = &mut self.notes[pick].held;
            *held = held.map(|held| match (done, renew) {
                (true, true) => held.renewed(start, end, lease),
                (true, false) => held.released(start, end),
                (false, _) => held,
            });
            return;
        }

        // A lease has no memory of ids here: its token is its id.
        let earlier: Vec<(u128, u64)> =
            self.notes.iter().filter_map(|note| note.id.map(|id| (id, note.cost))).collect();
        let (id, cost) = match act.repeats {
            Some(pick) if !earlier.is_empty() => {
                let (id, cost) = earlier[usize::from(pick) % earlier.len()];
                (Some(id), cost)
            }
            _ => {
                let capacity = self.kind.limit.capacity();
                let cost = if act.cost < 9 { act.cost * self.kind.cost_step } else { act.cost - 9 };
                let id = (lease.is_none() && act.cost.is_multiple_of(2)).then_some(self.notes.len() as u128);
                (id, cost.min(capacity))
            }
        };
        let answer = match act.fate {
            Fate::RequestLost => Answer::Unknown,
            Fate::Answered => self.charge(at, cost, id),
            Fate::ReplyLost => {
                self.charge(at, cost, id);
                Answer::Unknown
            }
            Fate::PolicyAnswered => {
                self.charge(at, cost, id);
                Answer::Degraded
            }
        };
        let note = Record::new(KEY, cost, answer, start, end).by(self.notes.len() as u32);
        let held = lease.map(|lease| Held::leased(start, end, lease));
        self.notes.push(Record { id, held, ..note });
    }
}

fn drive(kind: Kind, acts: &[Act]) -> (History, Span) {
    let mut store = Store::new(kind);
    acts.iter().for_each(|act| store.act(*act));
    (store.notes.into_iter().collect(), us(store.id_horizon_us))
}

fn run<S: Strategy>(cases: u32, strategy: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new(config).run(strategy, test).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Whatever a right store answers, and however vaguely it is noted, the checker accepts it.
#[test]
fn a_right_store_is_never_accused() {
    for kind in kinds() {
        let mut answers = [0_u64; 2];
        let acts = proptest::collection::vec(act(), 1..60);
        let seen = std::cell::RefCell::new(&mut answers);
        run(400, &acts, |acts| {
            let (history, horizon) = drive(kind, &acts);
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

/// With sharp instants, nothing hides: each single answer turned around is seen.
///
/// Not so for strict windows, whose promises leave room between what must be admitted and what must be refused,
/// nor for a log that also refuses when it cannot remember more.
#[test]
fn every_flipped_answer_is_seen() {
    let sharp = act().prop_map(|act| Act {
        // No two at one instant: between those the order is not noted.
        jitter: act.jitter + 1,
        back: 0,
        before: 0,
        after: 0,
        fate: Fate::Answered,
        repeats: None,
        on_lease: None,
        ..act
    });
    let acts = proptest::collection::vec(sharp, 1..40);
    for kind in kinds() {
        let leaves_room = match kind.limit {
            Limit::SlidingWindow(limit) => limit.counting() == Counting::Strict,
            Limit::SlidingLog(limit) => limit.entries() < limit.limit(),
            _ => false,
        };
        let checker = Checker::new(kind.limit);
        run(60, &acts, |acts| {
            let (history, _) = drive(kind, &acts);
            prop_assert!(checker.check(&history).is_clean());
            for flipped in 0..history.records().len() {
                let mut records = history.records().to_vec();
                let record = &mut records[flipped];
                let was = record.answer;
                if record.cost == 0 {
                    continue;
                }
                record.answer = if was == Answer::Allow { Answer::Refuse } else { Answer::Allow };
                let what = record.clone();
                let verdict = checker.check(&records.into_iter().collect());
                let seen = if was == Answer::Allow {
                    verdict.falsely_refused.iter().any(|found| found.refused.as_ref() == Some(&what))
                } else {
                    !verdict.over_admitted.is_empty()
                };
                prop_assert!(seen || leaves_room, "{:?}: not seen: {what}\n{verdict}", kind.limit);
            }
            Ok(())
        });
    }
}

/// Stores with twice the limit, with half of it, and stores that charge a repeated id again.
#[test]
fn wrong_stores_are_found() {
    let busy = |kind: Kind, width: u64| {
        let mut store = Store::new(kind);
        for n in 0..400 {
            let act = Act {
                steps: n % 2,
                jitter: 0,
                back: 0,
                before: n % (width + 1),
                after: (n / 2) % (width + 1),
                cost: 1,
                fate: Fate::Answered,
                repeats: None,
                on_lease: None,
            };
            store.act(act);
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

    // The reply to each call is lost, and the store does not remember that it charged.
    let mut store = Store::new(one(limits[4], 2));
    for n in 0..100_u64 {
        let id = u128::from(n / 2);
        store.now += 3;
        let at = Time::from_us(store.now);
        let charged = store.charge(store.now, 2, None);
        let answer = if n % 2 == 0 { Answer::Unknown } else { charged };
        store.notes.push(Record::new(KEY, 2, answer, at, at).with_id(id));
    }
    let verdict = Checker::new(limits[4](2)).check(&store.notes.into_iter().collect());
    assert!(!verdict.falsely_refused.is_empty(), "{verdict}");
}

// ---- tiny histories, every course of events tried --------------------------------------------------------

/// Whether the calls in `left` can have gone on like this from here: in some order, each at some instant of its
/// interval, each told what it was told.
fn explainable(
    kind: Kind,
    state: &Option<State>,
    ids: &BTreeMap<u128, u64>,
    at: u64,
    left: &[Record],
) -> bool {
    if left.is_empty() {
        return true;
    }
    (0..left.len()).any(|next| {
        let call = &left[next];
        let rest: Vec<Record> = left
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != next)
            .map(|(_, call)| call.clone())
            .collect();
        let never = matches!(call.answer, Answer::Unknown | Answer::Degraded);
        if never && explainable(kind, state, ids, at, &rest) {
            return true;
        }
        (at.max(call.start.us())..=call.end.us()).any(|now| {
            let known = call.id.and_then(|id| ids.get(&id));
            if known.is_some() {
                return call.answer != Answer::Refuse && explainable(kind, state, ids, now, &rest);
            }
            let token = Token(left.len() as u128);
            let operation = Operation::Charge { cost: call.cost, token };
            let step = kind.limit.decide(state.as_ref(), Time::from_us(now), &operation);
            let told = if step.answer.is_admitted() { Answer::Allow } else { Answer::Refuse };
            if !never && told != call.answer {
                return false;
            }
            let (mut state, mut ids) = (state.clone(), ids.clone());
            if let Some(write) = step.write {
                State::commit(&mut state, write.change);
                ids.extend(call.id.map(|id| (id, now)));
            }
            explainable(kind, &state, &ids, now, &rest)
        })
    })
}

#[test]
fn whatever_can_have_happened_is_accepted() {
    let tiny = |limit| Kind { limit, step_us: 1, cost_step: 1 };
    let kinds = [
        tiny(fixed(2, 4)),
        tiny(log(2, 4)),
        tiny(strict(2, 4, 2)),
        tiny(interpolated(3, 4, 1)),
        tiny(interpolated(3, 4, 2)),
        tiny(tokens(1, 2, 2)),
        tiny(tokens(2, 3, 3)),
        tiny(shaper(1, 3, 1)),
        tiny(concurrency(2, 3)),
        tiny(calendar(2, 0, [0, 3, 7, 100])),
        tiny(rolling(2, 4)),
        tiny(meter(2, 3)),
    ];
    let answer = prop_oneof![
        3 => Just(Answer::Allow),
        2 => Just(Answer::Refuse),
        1 => Just(Answer::Unknown),
        1 => Just(Answer::Degraded),
    ];
    let id = proptest::option::weighted(0.3, 1_u128..3);
    let calls = proptest::collection::vec((0_u64..12, 0_u64..4, 1_u64..3, answer, id), 2..6);
    for kind in kinds {
        let lease = match kind.limit {
            Limit::Concurrency(limit) => Some(limit.lease()),
            _ => None,
        };
        let mut tally = [0_u64; 3];
        let seen = std::cell::RefCell::new(&mut tally);
        run(1_500, &calls, |calls| {
            let records = calls.into_iter().map(|(start, width, cost, answer, id)| {
                let record = call(answer, if id.is_some() { 1 } else { cost }, start, start + width);
                let held = lease.map(|lease| Held::leased(record.start, record.end, lease));
                // A second admission of one id holds the lease of the first: nothing a tiny history can note.
                Record { id: id.filter(|_| lease.is_none()), held, ..record }
            });
            let history: History = records.collect();
            let verdict = Checker::new(kind.limit).check(&history);
            let can_be = explainable(kind, &None, &BTreeMap::new(), 0, history.records());
            prop_assert!(verdict.is_clean() || !can_be, "{:?}\n{verdict}\n{history:#?}", kind.limit);
            let mut seen = seen.borrow_mut();
            seen[if can_be { 0 } else { 1 + usize::from(verdict.is_clean()) }] += 1;
            Ok(())
        });
        let [explained, accused, missed] = tally;
        println!("{:?}: {explained} explainable, {accused} accused, {missed} missed", kind.limit);
        assert!(explained > 100 && accused > 100, "{explained} explainable, {accused} accused");
        assert!(missed * 2 < accused, "{:?}: {accused} accused, {missed} missed", kind.limit);
    }
}

// ---- the sweeps against the definition -------------------------------------------------------------------

/// Whether any span from the start of one charge to the end of another certainly holds more than `bound` says
/// for its first and last instant.
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
fn the_sweeps_find_what_the_comparison_of_all_spans_finds() {
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

/// A hundred thousand calls on one key, as they were and with every second answer turned around: whatever
/// compares all pairs takes minutes.
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
                let told = store.charge(store.now, 1 + n % 3, None);
                let turned = if told == Answer::Allow { Answer::Refuse } else { Answer::Allow };
                let answer = if wrong_answers && n % 2 == 0 { turned } else { told };
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
