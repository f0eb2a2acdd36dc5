//! Hand-made histories that test unknown answers, request ids, keys and reports.

use super::*;

#[test]
fn an_unknown_answer_never_proves_over_admission_and_always_justifies_a_refusal() {
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
fn keys_are_checked_separately() {
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
    // The reply was lost, and the retry got the same answer.
    let retried =
        vec![unknown(3, 100, 110).with_id(7), allow(3, 120, 130).with_id(7), allow(3, 140, 150).with_id(7)];
    let verdict = check(limit, retried.clone());
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!(verdict.counts.repeated, 2);

    // Charged once, so there was room for 2 units.
    let double_charged = [retried.clone(), vec![refuse(2, 160, 160)]].concat();
    assert_eq!(wrongs(&check(limit, double_charged)), [Wrong::Refused(160, 5, 5)]);

    // Charged once, by one of the three calls.
    let above = [retried, vec![allow(3, 160, 160)]].concat();
    assert_eq!(wrongs(&check(limit, above)), [Wrong::Over(100, 199, 6, 5)]);

    // The first call may have charged it in the previous window.
    let earlier = vec![unknown(3, 90, 110).with_id(7), allow(3, 120, 130).with_id(7), allow(3, 160, 160)];
    assert!(check(limit, earlier).is_clean());

    // A late repeat makes no difference.
    let later = vec![allow(3, 100, 110).with_id(7), allow(3, 220, 230).with_id(7), allow(3, 160, 160)];
    assert_eq!(wrongs(&check(limit, later)), [Wrong::Over(100, 199, 6, 5)]);

    // The id may have expired between the two calls. Then both were charged.
    let forgotten = vec![allow(3, 120, 120).with_id(7), allow(3, 170, 170).with_id(7), refuse(2, 180, 180)];
    let history: History = forgotten.into_iter().collect();
    assert!(!Checker::new(limit).with_id_horizon(us(51)).check(&history).is_clean());
    assert!(Checker::new(limit).with_id_horizon(us(50)).check(&history).is_clean());
}

#[test]
fn i10_an_id_has_one_content_and_one_answer() {
    let limit = fixed(5, 100);
    let other_key = Record { key: "other".to_owned(), ..allow(1, 120, 120) };
    let cases = [
        (vec![allow(1, 100, 100).with_id(7), allow(2, 120, 120).with_id(7)], Some(Broken::OtherContent)),
        (vec![allow(1, 100, 100).with_id(7), other_key.with_id(7)], Some(Broken::OtherContent)),
        (vec![allow(1, 100, 100).with_id(7), allow(2, 120, 120).with_id(8)], None),
        // A refusal is not remembered, so the id can be used again.
        (vec![refuse(6, 100, 100).with_id(7), allow(2, 120, 120).with_id(7)], None),
        (
            vec![allow(5, 100, 100).with_id(7), refuse(5, 120, 120).with_id(7)],
            Some(Broken::AdmittedThenRefused),
        ),
        // The refusal may have been first, because of an earlier charge that expired at 200.
        (vec![allow(5, 100, 100), allow(5, 190, 210).with_id(7), refuse(5, 199, 205).with_id(7)], None),
    ];
    for (records, broken) in cases {
        let verdict = check(limit, records);
        let found: Vec<Broken> = verdict.id_conflicts.iter().map(|conflict| conflict.broken).collect();
        assert_eq!(found, broken.into_iter().collect::<Vec<_>>(), "{verdict}");
        assert_eq!(verdict.is_clean(), broken.is_none(), "{verdict}");
    }

    // After the horizon the id can be used again.
    let records = [allow(5, 100, 100).with_id(7), refuse(5, 150, 150).with_id(7)];
    let history: History = records.into_iter().collect();
    assert_eq!(Checker::new(limit).with_id_horizon(us(51)).check(&history).id_conflicts.len(), 1);
    assert_eq!(Checker::new(limit).with_id_horizon(us(50)).check(&history).id_conflicts, []);
}

#[test]
fn a_verdict_with_unchecked_records_is_never_clean() {
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
fn a_verdict_displays_each_violation_with_its_evidence() {
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

#[test]
fn a_record_justifies_refusals_and_never_proves_over_admission() {
    let recorded = |cost, start, end| call(CallResult::Recorded, cost, start, end);
    for limit in [
        fixed(5, 100),
        log(5, 100),
        strict(5, 100, 4),
        interpolated(5, 100, 4),
        tokens(1, 100, 5),
        calendar(5, 0, [0, 100, 200, 300]),
        rolling(5, 100),
        meter(5, 100),
    ] {
        let overdrawn = vec![allow(4, 101, 101), recorded(12, 110, 115), refuse(1, 120, 120)];
        let verdict = check(limit, overdrawn.clone());
        assert!(verdict.is_clean(), "{limit:?}\n{verdict}");
        assert_eq!(verdict.counts.recorded, 1);
        // Not refused because of the record, but before it.
        let early = vec![recorded(12, 110, 115), refuse(1, 109, 109)];
        assert_eq!(wrongs(&check(limit, early)), [Wrong::Refused(109, 1, 5)], "{limit:?}");
        // Admissions alone exceed the limit, with or without the record.
        let above = [overdrawn, vec![allow(2, 118, 118)]].concat();
        assert_eq!(check(limit, above).over_admitted.len(), 1, "{limit:?}");
    }
}

#[test]
fn the_debt_of_a_record_above_the_capacity_lasts() {
    let recorded = call(CallResult::Recorded, 50, 100, 100);
    // 50 units drain in 500 us. At 551 us one unit fits again, at 549 us none does.
    let verdict = check(tokens(1, 10, 5), vec![recorded.clone(), refuse(1, 549, 549)]);
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!(
        wrongs(&check(tokens(1, 10, 5), vec![recorded, refuse(1, 560, 560)])),
        [Wrong::Refused(560, 5, 5)]
    );
}

#[test]
fn a_record_into_a_full_log_moves_older_entries() {
    let few = Limit::SlidingLog(SlidingLog::with_entries(9, us(100), 2).unwrap());
    let full = vec![allow(1, 100, 100), allow(7, 110, 110), call(CallResult::Recorded, 1, 190, 190)];
    // The seven units moved to 190, so there is no room for two before 290.
    let verdict = check(few, [full.clone(), vec![refuse(2, 250, 250)]].concat());
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!(wrongs(&check(few, [full, vec![refuse(2, 290, 290)]].concat())), [Wrong::Refused(290, 2, 9)]);
}

#[test]
fn a_limit_holds_net_of_credits() {
    let credited = call(CallResult::Credited, 3, 110, 120);
    for limit in
        [fixed(5, 100), log(5, 100), strict(5, 100, 4), tokens(1, 100, 5), meter(5, 100), rolling(5, 100)]
    {
        let again = vec![allow(5, 101, 101), credited.clone(), allow(3, 130, 130)];
        let verdict = check(limit, again.clone());
        assert!(verdict.is_clean(), "{limit:?}\n{verdict}");
        assert_eq!(
            check(limit, [again, vec![allow(1, 140, 140)]].concat()).over_admitted.len(),
            1,
            "{limit:?}"
        );
        // A credit that came later gave nothing before.
        let early = vec![allow(5, 101, 101), allow(1, 105, 105), call(CallResult::Credited, 3, 2_000, 2_000)];
        assert_eq!(check(limit, early).over_admitted.len(), 1, "{limit:?}");
    }
}
