//! Costs that are known only afterwards: record, credit, extensions, settlements and postpaid rules.

use std::time::Duration;

use tollgate::{
    Actual, CheckError, Decline, Extension, FollowUpError, HashKey, LocalLimiter, ManualClock, Request,
    RuleRecord, Source, Time,
};

/// A round number, at the start of a minute and in the middle of an hour.
const START: Time = Time::from_us(1_700_001_000_000_000);
const HOLD: Duration = Duration::from_secs(60);

fn limiter_at(clock: &'static ManualClock, rules: &[&str]) -> LocalLimiter {
    let rules: String = rules.iter().map(|rule| format!("  - {rule}\n")).collect();
    let file = format!("version: 1\nrules:\n{rules}");
    let built = LocalLimiter::builder().rules_yaml(file).clock(clock).hash_key(HashKey::new([7; 32])).build();
    built.unwrap_or_else(|error| panic!("{error}"))
}

fn limiter(rules: &[&str]) -> LocalLimiter {
    limiter_at(clock(), rules)
}

fn clock() -> &'static ManualClock {
    Box::leak(Box::new(ManualClock::at(START)))
}

fn user() -> Request<'static> {
    Request::from([("user", "u")])
}

fn record(limiter: &LocalLimiter, cost: u64) -> RuleRecord {
    let mut recorded = limiter.record(user().cost(cost)).unwrap();
    assert_eq!(recorded.rules.len(), 1);
    recorded.rules.remove(0)
}

/// What each rule counts: consumption and holds.
fn counted(limiter: &LocalLimiter) -> Vec<u64> {
    limiter.usage(user()).unwrap().iter().map(|usage| usage.used + usage.held).collect()
}

const WINDOW: &str = "{ id: window, per: user, limit: { fixed-window: 100/d } }";
const BUCKET: &str = "{ id: bucket, per: user, limit: { token-bucket: 100/100s } }";
const QUOTA: &str = "{ id: quota, per: user, limit: { quota: 100/1d, period: rolling } }";
const REQUESTS: &str = "{ id: requests, per: user, limit: { fixed-window: 10/d }, cost: 1 }";
/// A limit of 100 under every algorithm that takes refunds. None gives units back within the test.
const LIMITS: [&str; 7] = [
    "{ fixed-window: 100/d }",
    "{ sliding-window: 100/d }",
    "{ sliding-window: 100/d, buckets: 96 }",
    "{ sliding-log: 100/d }",
    "{ token-bucket: 1/d, burst: 100 }",
    "{ meter: 100 }",
    "{ quota: 100/month, zone: UTC }",
];
const LEASES: &str = "{ id: leases, per: user, limit: { concurrency: 2, lease: 10s } }";

mod records {
    use super::*;

    #[test]
    fn a_record_passes_the_limit_and_says_when_one_unit_is_admitted_again() {
        for (rule, wait) in [(BUCKET, Duration::from_secs(51)), (QUOTA, Duration::from_secs(86_400))] {
            let limiter = limiter(&[rule]);
            let booked = record(&limiter, 90);
            assert_eq!((booked.amount, booked.overdraft, booked.remaining), (Ok(90), 0, 10));
            assert_eq!((booked.retry_after, booked.limit), (Duration::ZERO, 100));
            let booked = record(&limiter, 60);
            assert_eq!((booked.amount, booked.overdraft, booked.remaining, booked.cut), (Ok(60), 50, 0, 0));
            assert_eq!(booked.retry_after, wait, "{rule}");
            assert!(!limiter.check(user()).unwrap().allowed());
        }
    }

    #[test]
    fn a_record_with_an_id_is_booked_once() {
        let limiter = limiter(&[WINDOW, QUOTA]);
        let request = || user().cost(40).id("stream-1");
        let first = limiter.record(request()).unwrap();
        let again = limiter.record(request()).unwrap();
        assert_eq!((first.replayed, again.replayed), (false, true));
        assert_eq!(first.rules, again.rules);
        assert_eq!(counted(&limiter), [40, 40]);
        let other = limiter.record(user().cost(41).id("stream-1"));
        assert!(matches!(other, Err(FollowUpError::Check(CheckError::IdReused))), "{other:?}");
    }

    #[test]
    fn rules_book_their_own_cost_and_those_without_consumption_decline() {
        let limiter = limiter(&[WINDOW, REQUESTS, LEASES]);
        let booked = limiter.record(user().cost(40)).unwrap().rules;
        let amounts: Vec<_> = booked.iter().map(|booked| booked.amount).collect();
        assert_eq!(amounts, [Ok(40), Ok(1), Err(Decline::NotSupported)]);
    }

    #[test]
    fn a_credit_takes_back_at_most_what_is_counted() {
        let limiter = limiter(&[WINDOW]);
        record(&limiter, 30);
        let credited = limiter.credit(user().cost(10).id("c-1")).unwrap();
        assert_eq!((credited[0].amount, credited[0].already_returned), (Ok(10), false));
        let again = limiter.credit(user().cost(10).id("c-1")).unwrap();
        assert_eq!((again[0].amount, again[0].already_returned), (Ok(10), true));
        assert_eq!(counted(&limiter), [20]);
        assert_eq!(limiter.credit(user().cost(50)).unwrap()[0].amount, Ok(20));
        assert_eq!(counted(&limiter), [0]);
    }

    #[test]
    fn usage_reads_every_rule_and_changes_nothing() {
        let limiter = limiter(&[BUCKET, QUOTA, LEASES]);
        limiter.record(user().cost(130)).unwrap();
        let lease = limiter.check(user().cost(0)).unwrap();
        assert!(!lease.allowed());
        let usage = limiter.usage(user()).unwrap();
        let numbers: Vec<_> = usage
            .iter()
            .map(|usage| (usage.rule.as_str(), usage.limit, usage.used, usage.remaining, usage.overdraft))
            .collect();
        assert_eq!(
            numbers,
            [("bucket", 100, 130, 0, 30), ("quota", 100, 130, 0, 30), ("leases", 2, 0, 2, 0)]
        );
        assert_eq!(usage[0].period, Some(Duration::from_secs(100)));
        assert_eq!(usage, limiter.usage(user()).unwrap());
    }
}

mod settlements {
    use super::*;

    #[test]
    fn a_settlement_above_the_held_sum_books_the_rest_once() {
        let limiter = limiter(&[QUOTA, WINDOW, REQUESTS]);
        let hold = limiter.reserve(user().cost(8), HOLD).unwrap();
        let receipts = hold.receipts();
        let settled = hold.settle(20).unwrap();
        let results: Vec<_> = settled.iter().map(|settled| (settled.amount, settled.recorded)).collect();
        assert_eq!(results, [(Ok(0), 12), (Ok(0), 12), (Ok(0), 0)], "one request stays one request");
        for actual in [20, 25, 3, 8] {
            limiter.settle_receipts(&receipts, actual).unwrap();
            limiter.cancel_receipts(&receipts).unwrap();
            assert_eq!(counted(&limiter), [20, 20, 1], "settled again at {actual}");
        }
    }

    #[test]
    fn a_settlement_at_the_held_sum_closes_the_receipts() {
        for limit in LIMITS {
            let limiter = limiter(&[QUOTA, &format!("{{ id: r, per: user, limit: {limit} }}")]);
            let hold = limiter.reserve(user().cost(8), HOLD).unwrap();
            let receipts = hold.receipts();
            let settled = hold.settle(8).unwrap();
            assert!(settled.iter().all(|settled| settled.amount == Ok(0)), "{limit}: {settled:?}");
            limiter.settle_receipts(&receipts, 2).unwrap();
            limiter.settle_receipts(&receipts, 30).unwrap();
            limiter.refund_receipts(&receipts).unwrap();
            assert_eq!(counted(&limiter), [8, 8], "{limit}");
        }
    }

    #[test]
    fn an_amount_can_be_named_for_each_rule() {
        let limiter = limiter(&[QUOTA, WINDOW, REQUESTS]);
        let hold = limiter.reserve(user().cost(8), HOLD).unwrap();
        hold.settle_each(Actual::same(5).rule("window", 10).rule("requests", 3)).unwrap();
        assert_eq!(counted(&limiter), [5, 10, 3]);
    }
}

mod extensions {
    use super::*;

    fn held(extension: &Extension) -> Vec<(&str, u64)> {
        extension.receipts.iter().map(|receipt| (receipt.rule.as_str(), receipt.cost)).collect()
    }

    #[test]
    fn an_extension_raises_quotas_and_charges_other_rules_that_take_the_cost_from_the_request() {
        let limiter = limiter(&[QUOTA, WINDOW, REQUESTS, LEASES]);
        let mut hold = limiter.reserve(user().cost(8), HOLD).unwrap();
        assert!(hold.extend(4).unwrap().allowed);
        let second = hold.extend(5).unwrap();
        // The last extension of other rules is a separate receipt; those before it are one.
        let rules = [("quota", 17), ("window", 12), ("requests", 1), ("leases", 1), ("window", 5)];
        assert_eq!(held(&second), rules);
        assert_eq!(counted(&limiter), [17, 17, 1, 1]);
        let settled = hold.settle(14).unwrap();
        assert_eq!(settled.len(), 4, "one result for each rule: {settled:?}");
        assert_eq!(counted(&limiter), [14, 14, 1, 0]);
    }

    #[test]
    fn many_extensions_need_no_more_receipts_than_two() {
        let clock = clock();
        let limiter = limiter_at(clock, &[QUOTA, BUCKET]);
        let mut hold = limiter.reserve(user().cost(1), HOLD).unwrap();
        let mut sealed = 0;
        for round in 0..50 {
            clock.advance(Duration::from_millis(10));
            let extension = hold.extend(1).unwrap();
            assert!(extension.allowed);
            assert_eq!(extension.receipts.len(), 3);
            let text = limiter.engine().seal_receipts(&extension.receipts, None).unwrap();
            assert!(round == 0 || text.len() == sealed, "the sealed text does not grow");
            sealed = text.len();
        }
        // Half a unit has drained since the first charge.
        let bucket = hold.settle(0).unwrap().into_iter().find(|returned| returned.rule == "bucket").unwrap();
        assert_eq!((bucket.amount, counted(&limiter)), (Ok(50), vec![0, 0]));
    }

    /// A holder that keeps the receipts from before each extension, and returns all of them in any order.
    #[test]
    fn earlier_receipts_of_an_extended_reservation_give_nothing_back_twice() {
        for (limit, seed) in LIMITS.iter().flat_map(|limit| (0..24_usize).map(move |seed| (limit, seed))) {
            let limiter = limiter(&[&format!("{{ id: r, per: user, limit: {limit} }}")]);
            limiter.record(user().cost(50)).unwrap();
            let hold = limiter.reserve(user().cost(10), HOLD).unwrap();
            let mut kept = vec![hold.receipts()];
            for number in 0..3 {
                let id = format!("e-{number}");
                let extension = limiter.extend_receipts(&kept[number], 5, HOLD, Some(&id)).unwrap();
                assert!(extension.allowed && extension.receipts.len() <= 2, "{limit}: {extension:?}");
                kept.push(extension.receipts);
            }
            assert_eq!(counted(&limiter), [75], "{limit}");
            // One of the 24 orders.
            let mut left = seed;
            for choices in (1..=kept.len()).rev() {
                let receipts = kept.remove(left % choices);
                left /= choices;
                limiter.cancel_receipts(&receipts).unwrap();
                let used = counted(&limiter)[0];
                assert!(used >= 50, "{limit}, order {seed}: {} units were minted", 50 - used);
            }
            drop(hold);
        }
    }

    #[test]
    fn a_refused_extension_leaves_the_reservation_as_it_was() {
        let limiter = limiter(&[QUOTA, WINDOW]);
        limiter.record(user().cost(90)).unwrap();
        let mut hold = limiter.reserve(user().cost(8), HOLD).unwrap();
        let refused = hold.extend(3).unwrap();
        assert!(!refused.allowed && refused.declined.is_none());
        assert_eq!(refused.refused_by().map(|rule| rule.rule.as_str()), Some("window"), "it waits longest");
        assert!(refused.retry_after() > Some(Duration::ZERO));
        assert_eq!(refused.receipts, hold.receipts());
        assert_eq!(counted(&limiter), [98, 98]);
        assert!(hold.extend(2).unwrap().allowed);
        hold.settle(9).unwrap();
        assert_eq!(counted(&limiter), [99, 99]);
    }

    #[test]
    fn an_ended_reservation_cannot_be_extended() {
        let clock = clock();
        let limiter = limiter_at(clock, &[QUOTA, WINDOW]);
        let mut hold = limiter.reserve(user().cost(8), HOLD).unwrap();
        clock.advance(HOLD / 2);
        assert!(hold.extend(2).unwrap().allowed);
        clock.advance(HOLD * 9 / 10);
        assert!(hold.extend(1).unwrap().allowed, "the first extension moved the end");
        clock.advance(HOLD * 2);
        let ended = hold.extend(2).unwrap();
        assert_eq!((ended.allowed, ended.declined), (false, Some(Decline::NotHeld)));
        assert_eq!(counted(&limiter), [0, 11], "the window was not charged");
        let late = hold.settle(10).unwrap();
        assert_eq!((late[0].amount, late[0].recorded), (Err(Decline::BookedLate), 10));
        assert_eq!(counted(&limiter), [10, 10]);
    }

    #[test]
    fn an_extension_repeated_under_its_id_raises_once() {
        let limiter = limiter(&[QUOTA, WINDOW]);
        let hold = limiter.reserve(user().cost(8), HOLD).unwrap();
        let receipts = hold.receipts();
        let extend = |more| limiter.extend_receipts(&receipts, more, HOLD, Some("e-1"));
        let first = extend(4).unwrap();
        let again = extend(4).unwrap();
        assert_eq!((first.replayed, again.replayed), (false, true));
        assert_eq!(first.receipts, again.receipts);
        assert!(matches!(extend(5), Err(FollowUpError::Check(CheckError::IdReused))));
        assert_eq!(counted(&limiter), [12, 12]);
        // Receipts from before the extension settle the quota as a whole, and the window without the extension.
        limiter.settle_receipts(&receipts, 3).unwrap();
        assert_eq!(counted(&limiter), [3, 3 + 4]);
        limiter.settle_receipts(&first.receipts, 3).unwrap();
        assert_eq!(counted(&limiter), [3, 3]);
        drop(hold);
    }

    #[test]
    fn a_shadow_rule_does_not_refuse_an_extension() {
        let shadow = "{ id: shadow, per: user, mode: shadow, limit: { fixed-window: 9/d } }";
        let limiter = limiter(&[QUOTA, shadow]);
        let mut hold = limiter.reserve(user().cost(8), HOLD).unwrap();
        let extension = hold.extend(4).unwrap();
        assert!(extension.allowed && !extension.rules[1].allowed && !extension.rules[1].blocking);
        assert_eq!(counted(&limiter), [12, 8]);
        hold.cancel().unwrap();
        assert_eq!(counted(&limiter), [0, 0]);
    }

    #[test]
    fn a_dropped_reservation_gives_its_extensions_back() {
        let limiter = limiter(&[QUOTA, WINDOW]);
        let mut hold = limiter.reserve(user().cost(8), HOLD).unwrap();
        assert!(hold.extend(4).unwrap().allowed);
        drop(hold);
        assert_eq!(counted(&limiter), [0, 0]);
        let refused = limiter.reserve(user().cost(100), HOLD).unwrap();
        let mut second = limiter.reserve(user().cost(1), HOLD).unwrap();
        assert!(refused.allowed() && !second.allowed());
        assert_eq!(second.extend(1).unwrap().declined, Some(Decline::NotHeld));
    }
}

mod postpaid {
    use super::*;

    const TOKENS: &str = "{ id: tokens, per: user, postpaid: true, limit: { fixed-window: 100/d } }";

    /// Streams one after another: a request without a cost, and its cost when it ends. Returns how many were admitted.
    fn admitted(limiter: &LocalLimiter, streams: usize, cost: u64) -> usize {
        let stream = |_: &usize| {
            let admitted = limiter.check(user()).unwrap().allowed();
            if admitted {
                assert!(limiter.check(user().cost(cost)).unwrap().allowed(), "it has happened");
            }
            admitted
        };
        (0..streams).filter(stream).count()
    }

    #[test]
    fn streams_are_admitted_while_anything_is_left_and_all_of_them_are_booked() {
        let bucket = "{ id: tokens, per: user, postpaid: true, limit: { token-bucket: 100/d } }";
        let meter = "{ id: tokens, per: user, postpaid: true, limit: { meter: 100 } }";
        for rule in [TOKENS, bucket, meter] {
            for (used, streams, cost, expected) in [(90, 50, 40, 1), (0, 20, 150, 1), (0, 20, 60, 2)] {
                let limiter = limiter(&[rule]);
                if used > 0 {
                    limiter.check(user().cost(used)).unwrap();
                }
                assert_eq!(admitted(&limiter, streams, cost), expected, "{rule}, {streams} of {cost}");
                assert_eq!(counted(&limiter), [used + expected as u64 * cost], "{rule}");
            }
        }
    }

    #[test]
    fn a_cost_is_booked_whatever_other_rules_decide() {
        let small = "{ id: small, per: user, limit: { fixed-window: 2/d } }";
        let limiter = limiter(&[small, TOKENS]);
        assert!(limiter.check(user().cost(2)).unwrap().allowed());
        let refused = limiter.check(user().cost(2)).unwrap();
        assert_eq!((refused.allowed(), refused.rule()), (false, Some("small")));
        assert_eq!(counted(&limiter), [2, 4]);
        // The charge is invalid under the other rule.
        assert!(matches!(limiter.check(user().cost(3)), Err(CheckError::Plan(_))));
        assert_eq!(counted(&limiter), [2, 7]);
        let together = [user().cost(1), Request::from([("user", "v")]).cost(5)];
        assert!(limiter.check_all(&together).is_err());
        assert_eq!(counted(&limiter), [2, 8]);
    }

    #[test]
    fn requests_that_are_checked_together_book_each_subject_once() {
        let limiter = limiter(&[TOKENS]);
        let requests = [user().cost(5), user().cost(7), Request::from([("user", "v")]).cost(60)];
        let decisions = limiter.check_all(&requests).unwrap();
        assert!(decisions.iter().all(|decision| decision.allowed() && decision.source() == Source::Store));
        assert_eq!(counted(&limiter), [7]);
        assert_eq!(decisions[2].remaining(), Some(40));
        assert!(limiter.check_all(&[user()]).unwrap()[0].allowed());
    }

    #[test]
    fn a_postpaid_check_with_an_id_books_once_and_can_be_refunded() {
        let limiter = limiter(&[TOKENS, WINDOW]);
        let request = || user().cost(30).id("r-1");
        let decision = limiter.check(request()).unwrap();
        limiter.check(request()).unwrap();
        assert_eq!(counted(&limiter), [30, 30]);
        assert_eq!(limiter.refund(&decision).unwrap().len(), 2);
        assert_eq!(counted(&limiter), [0, 0]);
    }

    #[test]
    fn a_shadow_rule_that_is_overdrawn_counts_as_a_shadow_refusal() {
        let shadow = TOKENS.replace("postpaid: true", "postpaid: true, mode: shadow");
        let limiter = limiter(&[&shadow]);
        assert_eq!(limiter.check(user().cost(100)).unwrap().shadow_rejected().count(), 0);
        let over = limiter.check(user().cost(1)).unwrap();
        assert!(over.allowed());
        assert_eq!(over.shadow_rejected().count(), 1);
        assert_eq!(counted(&limiter), [101]);
    }

    #[test]
    fn a_peek_books_nothing_and_a_reservation_asks() {
        let limiter = limiter(&[TOKENS, QUOTA]);
        assert!(limiter.peek(user().cost(99)).unwrap().allowed());
        assert_eq!(counted(&limiter), [0, 0]);
        let hold = limiter.reserve(user().cost(60), HOLD).unwrap();
        assert!(hold.allowed());
        assert!(!limiter.reserve(user().cost(60), HOLD).unwrap().allowed(), "an estimate has not happened");
        hold.settle(50).unwrap();
        assert_eq!(counted(&limiter), [50, 50]);
    }

    #[test]
    fn an_expression_books_what_it_computes_and_asks_with_0_if_it_cannot() {
        let rule = "{ id: bytes, per: user, postpaid: true, limit: { fixed-window: 100/d }, \
                    cost: { expression: 'int(bytes) / 10', default: 1 } }";
        let limiter = limiter(&[rule]);
        assert!(limiter.check(user()).unwrap().allowed());
        assert_eq!(counted(&limiter), [0]);
        limiter.check(user().attribute("bytes", "1500")).unwrap();
        assert_eq!(counted(&limiter), [150]);
        assert!(!limiter.check(user()).unwrap().allowed());
    }

    #[test]
    fn a_postpaid_rule_needs_an_unknown_cost_and_a_limit_on_consumption() {
        for (rule, code) in [
            ("{ id: r, per: user, postpaid: true, cost: 3, limit: { fixed-window: 9/d } }", "postpaid-cost"),
            (
                "{ id: r, per: user, postpaid: true, cost: { by: { model: { a: 1 } } }, limit: { meter: 9 } }",
                "postpaid-cost",
            ),
            ("{ id: r, per: user, postpaid: true, limit: { concurrency: 3, lease: 9s } }", "postpaid-limit"),
            ("{ id: r, per: user, postpaid: true, limit: { penalty: 3s } }", "postpaid-limit"),
            (
                "{ id: r, per: user, postpaid: true, limit: { fixed-window: 9_000_000_000_000_000/d } }",
                "impossible-limit",
            ),
        ] {
            let error = LocalLimiter::from_yaml(&format!("version: 1\nrules: [{rule}]")).err().unwrap();
            assert!(error.to_string().contains(code), "{rule}: {error}");
        }
    }
}
