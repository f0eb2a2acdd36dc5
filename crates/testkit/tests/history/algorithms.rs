//! Hand-made histories, for each algorithm.

use super::*;

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
        // Half of the previous window counts: 5 of 10.
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
    // One token per ten ticks, saved up to five: 5 + floor((D - 1) / 10) in any span of D ticks.
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
    // 1 per 5e12 us with a capacity of 1000 exceeds 2^53 in microseconds.
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
        // A store may round the end of a lease up to 1/32 of its length.
        (
            "refused in the rounded part",
            limit,
            vec![held(2, 10, 10, 100), refuse(1, 110, 110)],
            Wrong::Nothing,
        ),
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
        ("held for an unknown time", limit, vec![allow(2, 10, 11), refuse(1, 9_999, 9_999)], Wrong::Nothing),
    ]);
}

#[test]
fn calendar_quotas() {
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
    // A call that may have happened outside the periods is not checked, but it can justify a refusal inside.
    for charges in [vec![allow(6, 99, 100)], vec![allow(6, 99, 100), allow(6, 101, 101)]] {
        let refusals = vec![refuse(1, 102, 102), refuse(1, 599, 600)];
        let verdict = check(limit, [charges, refusals].concat());
        assert_eq!(verdict.unchecked, BTreeMap::from([(Unchecked::OutsidePeriods, 2)]));
        assert_eq!(wrongs(&verdict), vec![]);
        assert!(!verdict.is_clean());
    }
}

#[test]
fn rolling_quotas() {
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
            "its start is unknown, but three periods do not fit",
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
