//! The limiter as services use it, on virtual time.

use std::time::Duration;

use tokio::time::{Instant, advance, sleep, timeout};
use tollgate::core::Span;
use tollgate::{
    AcquireError, CheckError, Clock, Decision, Decline, HashKey, Limiter, LocalLimiter, Receipt, Report,
    Request, Reservation, Returned, RuleDecision, Source, Time,
};

/// A round number, at the start of a minute and in the middle of an hour.
const START: Time = Time::from_us(1_700_001_000_000_000);

/// The time of the paused runtime, so that sleeping refills.
struct VirtualClock(Instant);

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        START.plus(Span::from_us(self.0.elapsed().as_micros() as u64))
    }
}

/// A limiter with these rules, each written as a YAML map.
fn limiter(rules: &[&str]) -> Limiter {
    limiter_of(&file(rules))
}

fn limiter_of(file: &str) -> Limiter {
    let clock = VirtualClock(Instant::now());
    let limiter =
        LocalLimiter::builder().rules_yaml(file).clock(clock).hash_key(HashKey::new([7; 32])).build();
    limiter.unwrap_or_else(|error| panic!("{error}")).into()
}

fn file(rules: &[&str]) -> String {
    let rules: String = rules.iter().map(|rule| format!("  - {rule}\n")).collect();
    format!("version: 1\nrules:\n{rules}")
}

fn user() -> Request<'static> {
    Request::from([("user", "u")])
}

/// What remains under each rule.
async fn remaining(limiter: &Limiter) -> Vec<u64> {
    let explanation = limiter.explain(user()).await;
    let accounts = explanation.rules.iter().flat_map(|rule| &rule.accounts);
    accounts.map(|account| account.before.as_ref().expect("memory answers").numbers.remaining).collect()
}

fn given(returned: Vec<Returned>) -> Vec<(String, Result<u64, Decline>)> {
    returned.into_iter().map(|returned| (returned.rule, returned.amount)).collect()
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const BUCKET: &str = "{ id: bucket, per: user, limit: { token-bucket: 4/s, burst: 2 } }";
const SHAPER: &str = "{ id: shaper, per: user, limit: { leaky-bucket: 4/s, queue: 3 } }";
const LEASES: &str = "{ id: leases, per: user, limit: { concurrency: 2, lease: 10s }, cost: request }";
const QUOTA: &str = "{ id: quota, per: user, limit: { quota: 100/day, zone: UTC } }";
const WINDOW: &str = "{ id: window, per: user, limit: { fixed-window: 10/min } }";

mod acquire {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_exactly_as_long_as_retry_after_says() {
        let limiter = limiter(&[BUCKET]);
        let request = user().cost(2);
        assert!(limiter.check(&request).await.unwrap().allowed());
        let wait = limiter.check(&request).await.unwrap().retry_after();
        assert_eq!(wait, Some(ms(500)));
        let asked_at = Instant::now();
        let permit = limiter.acquire(&request, ms(500)).await.unwrap();
        assert!(permit.allowed());
        assert_eq!(asked_at.elapsed(), ms(500));
        assert_eq!(remaining(&limiter).await, [0], "it was charged once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_beyond_the_deadline_fails_immediately_and_charges_nothing() {
        let limiter = limiter(&[BUCKET, WINDOW]);
        let request = user().cost(2);
        assert!(limiter.check(&request).await.unwrap().allowed());
        let asked_at = Instant::now();
        let late = limiter.acquire(&request, ms(499)).await;
        let Err(AcquireError::TooLate { decision }) = late else { panic!("it was not too late") };
        assert_eq!(asked_at.elapsed(), Duration::ZERO);
        assert_eq!((decision.allowed(), decision.retry_after()), (false, Some(ms(500))));
        assert_eq!(remaining(&limiter).await, [0, 8]);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_its_slot_in_a_leaky_bucket_queue() {
        let limiter = limiter(&[SHAPER]);
        let asked_at = Instant::now();
        let mut done = Vec::new();
        for _ in 0..3 {
            let limiter = limiter.clone();
            done.push(tokio::spawn(async move {
                let permit = limiter.acquire(user(), ms(500)).await.unwrap();
                (permit.decision().delay(), asked_at.elapsed())
            }));
        }
        for (number, done) in done.into_iter().enumerate() {
            let slot = ms(250) * number as u32;
            assert_eq!(done.await.unwrap(), (slot, slot));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_after_the_deadline_is_not_booked() {
        let limiter = limiter(&[SHAPER]);
        for _ in 0..2 {
            assert!(limiter.check(user()).await.unwrap().allowed());
        }
        let asked_at = Instant::now();
        let late = limiter.acquire(user(), ms(499)).await;
        let Err(AcquireError::TooLate { decision }) = late else { panic!("it was not too late") };
        assert_eq!((decision.allowed(), decision.delay()), (true, ms(500)));
        assert_eq!(asked_at.elapsed(), Duration::ZERO);
        assert_eq!(remaining(&limiter).await, [2], "the two before it are all that is booked");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_dropped_before_admission_has_charged_nothing() {
        let limiter = limiter(&[BUCKET, WINDOW]);
        let request = user().cost(2);
        assert!(limiter.check(&request).await.unwrap().allowed());
        assert!(timeout(ms(100), limiter.acquire(&request, ms(5_000))).await.is_err());
        advance(ms(900)).await;
        assert_eq!(remaining(&limiter).await, [2, 8]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_dropped_before_its_slot_gives_back_all_but_the_slot() {
        let limiter = limiter(&[SHAPER, WINDOW, LEASES]);
        assert!(limiter.check(user()).await.unwrap().allowed());
        assert_eq!(remaining(&limiter).await, [3, 9, 1]);
        assert!(timeout(ms(100), limiter.acquire(user(), ms(5_000))).await.is_err());
        // The slot of the shaper stays booked: 1.6 slots have not drained yet, so 2 of 4 remain.
        assert_eq!(remaining(&limiter).await, [2, 9, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_lease_is_acquired_within_100_ms() {
        let limiter = limiter(&[LEASES]);
        let held = [limiter.lease(user()).await.unwrap(), limiter.lease(user()).await.unwrap()];
        tokio::spawn(async move {
            sleep(ms(1_000)).await;
            drop(held);
        });
        let asked_at = Instant::now();
        let permit = limiter.acquire(user(), ms(2_000)).await.unwrap();
        assert!(permit.allowed());
        assert!((ms(1_000)..=ms(1_100)).contains(&asked_at.elapsed()), "{:?}", asked_at.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn an_expired_lease_is_acquired_when_it_expires_and_not_after_the_deadline() {
        let limiter = limiter(&["{ id: leases, per: user, limit: { concurrency: 1, lease: 40ms } }"]);
        let held = limiter.lease(user()).await.unwrap();
        let asked_at = Instant::now();
        let late = limiter.acquire(user(), ms(39)).await;
        assert!(matches!(late, Err(AcquireError::TooLate { .. })));
        assert_eq!(asked_at.elapsed(), ms(39), "until then another caller might have released a lease");
        assert!(limiter.acquire(user(), ms(39)).await.unwrap().allowed());
        assert_eq!(asked_at.elapsed(), ms(40));
        drop(held);
    }

    #[tokio::test(start_paused = true)]
    async fn many_waiting_callers_are_all_admitted_at_the_rate() {
        let limiter = limiter(&[BUCKET]);
        let started = Instant::now();
        let workers: Vec<_> = (0..10)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move {
                    assert!(limiter.acquire(user(), ms(60_000)).await.unwrap().allowed());
                    started.elapsed()
                })
            })
            .collect();
        let mut admitted = Vec::new();
        for worker in workers {
            admitted.push(worker.await.unwrap());
        }
        admitted.sort();
        // A burst of two, then one every 250 ms.
        let expected: Vec<_> = (0..10_u32).map(|n| ms(250) * n.saturating_sub(1)).collect();
        assert_eq!(admitted, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_duration_is_a_valid_wait() {
        let limiter = limiter(&[BUCKET]);
        let permit = limiter.acquire(user(), Duration::MAX).await.unwrap();
        assert!(permit.allowed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_denied_request_does_not_wait() {
        let limiter = limiter(&["{ id: closed, per: user, limit: deny }"]);
        let late = timeout(ms(1), limiter.acquire(user(), ms(60_000))).await.expect("it does not wait");
        assert!(matches!(late, Err(AcquireError::TooLate { .. })));
    }
}

mod leases {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_dropped_permit_releases_its_lease_and_nothing_else() {
        let limiter = limiter(&[LEASES, WINDOW]);
        let permit = limiter.lease(user()).await.unwrap();
        assert_eq!(remaining(&limiter).await, [1, 9]);
        drop(permit);
        assert_eq!(remaining(&limiter).await, [2, 9]);
    }

    #[tokio::test(start_paused = true)]
    async fn release_returns_what_each_rule_gave_back() {
        let limiter = limiter(&[LEASES]);
        let permit = limiter.lease(user()).await.unwrap();
        assert_eq!(given(permit.release().await.unwrap()), [("leases".to_owned(), Ok(1))]);
        assert_eq!(remaining(&limiter).await, [2]);

        let permit = limiter.lease(user()).await.unwrap();
        advance(ms(10_000)).await;
        assert_eq!(given(permit.release().await.unwrap()), [("leases".to_owned(), Err(Decline::NotHeld))]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_can_be_renewed_until_it_has_ended() {
        let limiter = limiter(&[LEASES]);
        let permit = limiter.lease(user()).await.unwrap();
        // Ends are rounded up to 1/32 of the lease. This one needs no rounding.
        advance(ms(5_000)).await;
        assert!(permit.renew().await.unwrap());
        advance(ms(9_999)).await;
        assert_eq!(remaining(&limiter).await, [1]);
        advance(ms(1)).await;
        assert_eq!(remaining(&limiter).await, [2]);
        assert!(!permit.renew().await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_forgotten_permit_keeps_its_lease() {
        let limiter = limiter(&[LEASES]);
        let decision = limiter.lease(user()).await.unwrap().forget();
        assert_eq!(remaining(&limiter).await, [1]);
        assert_eq!(given(limiter.refund(&decision).await.unwrap()), [("leases".to_owned(), Ok(1))]);
        assert_eq!(remaining(&limiter).await, [2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_permit_releases_nothing() {
        let limiter = limiter(&[LEASES]);
        let held = [limiter.lease(user()).await.unwrap(), limiter.lease(user()).await.unwrap()];
        let refused = limiter.lease(user()).await.unwrap();
        assert!(!refused.allowed());
        assert!(refused.renew().await.unwrap(), "there is no lease that could have ended");
        drop(refused);
        assert_eq!(remaining(&limiter).await, [0]);
        drop(held);
        assert_eq!(remaining(&limiter).await, [2]);
    }
}

mod reservations {
    use super::*;

    const HOLD: Duration = Duration::from_secs(60);

    async fn reserve(limiter: &Limiter, cost: u64) -> Reservation {
        limiter.reserve(user().cost(cost), HOLD).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_settled_reservation_counts_the_actual_cost() {
        // The estimate was 8. Other rules were charged the estimate: they give back the excess, or book the rest.
        for (actual, left) in [(3, [97, 7]), (8, [92, 2]), (20, [80, 0])] {
            let limiter = limiter(&[QUOTA, WINDOW]);
            let reservation = reserve(&limiter, 8).await;
            assert!(reservation.allowed());
            assert_eq!(remaining(&limiter).await, [92, 2]);
            reservation.settle(actual).await.unwrap();
            assert_eq!(remaining(&limiter).await, left, "{actual}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_or_cancelled_reservation_gives_everything_back() {
        let limiter = limiter(&[QUOTA, WINDOW, LEASES]);
        let small = || async { reserve(&limiter, 2).await };
        drop(small().await);
        assert_eq!(remaining(&limiter).await, [100, 10, 2]);
        let returned = given(small().await.cancel().await.unwrap());
        let all = ["quota", "window", "leases"].map(|rule| (rule.to_owned(), Ok(2)));
        assert_eq!(returned, all);
        assert_eq!(remaining(&limiter).await, [100, 10, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn settling_releases_leases() {
        let limiter = limiter(&[LEASES, QUOTA]);
        reserve(&limiter, 2).await.settle(2).await.unwrap();
        assert_eq!(remaining(&limiter).await, [2, 98]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_expires() {
        let limiter = limiter(&[QUOTA]);
        let reservation = reserve(&limiter, 8).await;
        sleep(ms(60_000)).await;
        assert_eq!(remaining(&limiter).await, [100]);
        assert_eq!(
            given(reservation.settle(8).await.unwrap()),
            [("quota".to_owned(), Err(Decline::BookedLate))]
        );
        assert_eq!(remaining(&limiter).await, [92], "what was used is counted");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_reservation_holds_nothing() {
        let limiter = limiter(&[QUOTA]);
        let held = reserve(&limiter, 99).await;
        let refused = reserve(&limiter, 2).await;
        assert!(!refused.allowed());
        assert_eq!(given(refused.settle(2).await.unwrap()), []);
        assert_eq!(remaining(&limiter).await, [1]);
        drop(held);
    }
}

mod follow_ups {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refund_gives_back_what_is_still_counted() {
        let limiter = limiter(&[BUCKET, WINDOW, SHAPER]);
        let decision = limiter.check(user().cost(2)).await.unwrap();
        advance(ms(250)).await;
        // One unit has already come back by itself. The shaper gives nothing back.
        let returned = given(limiter.refund(&decision).await.unwrap());
        assert_eq!(returned, [("bucket".to_owned(), Ok(1)), ("window".to_owned(), Ok(2))]);
        assert_eq!(remaining(&limiter).await, [2, 10, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refund_of_an_uncharged_decision_gives_nothing_back() {
        let limiter = limiter(&[WINDOW]);
        let all = user().cost(10);
        assert!(limiter.check(&all).await.unwrap().allowed());
        for nothing in [limiter.check(&all).await.unwrap(), limiter.peek(user()).await.unwrap()] {
            assert_eq!(limiter.refund(&nothing).await.unwrap(), []);
        }
        assert_eq!(remaining(&limiter).await, [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn decoded_receipts_give_back_what_was_charged() {
        let limiter = limiter(&[WINDOW, LEASES]);
        let decision = limiter.check(user()).await.unwrap();
        let mut receipts: Vec<Receipt> = Vec::new();
        for receipt in decision.receipts() {
            receipts.push(Receipt::decode(&receipt.encode()).unwrap());
        }
        receipts.push(Receipt { rule: "gone".to_owned(), ..receipts[0].clone() });
        let returned = given(limiter.refund_receipts(&receipts).await.unwrap());
        let expected = [("window", Ok(1)), ("leases", Ok(1)), ("gone", Err(Decline::NotHeld))];
        assert_eq!(returned, expected.map(|(rule, amount)| (rule.to_owned(), amount)));
        assert_eq!(remaining(&limiter).await, [10, 2]);
        // A lease is released by its token, so a second release gives nothing back.
        let again = given(limiter.refund_receipts(&receipts[1..2]).await.unwrap());
        assert_eq!(again, [("leases".to_owned(), Err(Decline::NotHeld))]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reset_deletes_the_subject_under_every_matching_rule() {
        let limiter = limiter(&[BUCKET, WINDOW, QUOTA]);
        let other = Request::from([("user", "other")]);
        for request in [user(), other.clone()] {
            assert!(limiter.check(request.cost(2)).await.unwrap().allowed());
        }
        assert_eq!(limiter.reset(user()).await.unwrap(), 3);
        assert_eq!(remaining(&limiter).await, [2, 10, 100]);
        let others = limiter.peek(other.cost(0)).await.unwrap();
        assert_eq!(others.rules().nth(1).unwrap().remaining(), Some(8));
    }

    #[tokio::test(start_paused = true)]
    async fn reported_failures_make_the_next_attempt_wait_and_a_success_clears_them() {
        let limiter = limiter(&["{ id: login, per: user, limit: { penalty: 2s, free: 1 } }", WINDOW]);
        for _ in 0..2 {
            assert_eq!(limiter.report(user(), Report::Failure).await.unwrap(), 1, "the window ignores it");
        }
        let refused = limiter.check(user()).await.unwrap();
        assert_eq!(refused.retry_after(), Some(ms(2_000)));
        assert_eq!(remaining(&limiter).await, [0, 10]);
        limiter.report(user(), Report::Success).await.unwrap();
        assert!(limiter.check(user()).await.unwrap().allowed());
    }
}

mod rule_changes {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn new_rules_apply_to_every_clone_and_consumption_stays() {
        let limiter = limiter(&[WINDOW]);
        let clone = limiter.clone();
        let six = limiter.check(user().cost(6)).await.unwrap();
        assert_eq!(limiter.rules_version(), 0);

        limiter.replace_rules(&file(&[&WINDOW.replace("10/min", "7/min")])).unwrap();
        assert_eq!((clone.rules_version(), remaining(&clone).await), (1, vec![1]));
        limiter.replace_rules(&file(&[&WINDOW.replace("10/min", "3/min")])).unwrap();
        assert!(!clone.check(user()).await.unwrap().allowed(), "six were used already");
        limiter.replace_rules(&file(&[&WINDOW.replace("10/min", "20/min"), BUCKET])).unwrap();
        assert_eq!(remaining(&clone).await, [14, 2]);

        // A decision keeps the rules that made it.
        assert_eq!(six.limit(), Some(10));
        assert_eq!(given(clone.refund(&six).await.unwrap()), [("window".to_owned(), Ok(6))]);
        assert_eq!(remaining(&clone).await, [20, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn invalid_rules_change_nothing_and_report_every_problem() {
        let limiter = limiter(&[WINDOW]);
        let wrong = file(&["{ id: a, per: user, limt: { meter: 1 } }", "{ id: b, limit: { metre: 1 } }"]);
        let problems = limiter.replace_rules(&wrong).unwrap_err().to_string();
        assert!(problems.contains("`limt`") && problems.contains("`metre`"), "{problems}");
        assert_eq!((limiter.rules_version(), remaining(&limiter).await), (0, vec![10]));
        limiter.replace_rules(&file(&[BUCKET])).unwrap();
        assert_eq!((limiter.rules_version(), remaining(&limiter).await), (1, vec![2]));
    }

    #[test]
    fn replaced_from_many_threads_every_replacement_is_counted() {
        let limiter = LocalLimiter::builder().build().unwrap();
        let rules = file(&[WINDOW]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| limiter.replace_rules(&rules).unwrap()));
            }
        });
        assert_eq!(limiter.rules_version(), 200);
    }
}

mod request_ids {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_repeated_request_id_gets_the_same_answer_and_is_charged_once() {
        let limiter = limiter(&["{ id: daily, per: user, limit: { fixed-window: 10/d } }"]);
        let request = user().cost(3).id("r-1");
        let first = limiter.check(&request).await.unwrap().to_json();
        assert_eq!(limiter.check(&request).await.unwrap().to_json(), first);
        assert_eq!(limiter.check(&request).await.unwrap().to_json(), first);
        assert_eq!(remaining(&limiter).await, [7]);
        assert!(limiter.check(request.clone().id("r-2")).await.unwrap().allowed());
        assert_eq!(remaining(&limiter).await, [4]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_id_is_remembered_for_a_minute_and_cannot_be_reused() {
        let limiter = limiter(&["{ id: daily, per: user, limit: { fixed-window: 10/d } }"]);
        let request = user().id("r-1");
        limiter.check(&request).await.unwrap();
        assert!(matches!(limiter.check(request.clone().cost(2)).await, Err(CheckError::IdReused)));
        assert_eq!(remaining(&limiter).await, [9]);
        advance(Duration::from_secs(60)).await;
        assert!(limiter.check(request.clone().cost(2)).await.unwrap().allowed());
        assert_eq!(remaining(&limiter).await, [7]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeated_request_id_gets_the_same_lease() {
        let limiter = limiter(&["{ id: slots, per: user, limit: { concurrency: 3, lease: 30s } }"]);
        let request = user().id("r-1");
        let (_lost, again) = (limiter.check(&request).await.unwrap(), limiter.check(&request).await.unwrap());
        assert_eq!(remaining(&limiter).await, [2]);
        assert_eq!(given(limiter.refund(&again).await.unwrap()), [("slots".to_owned(), Ok(1))]);
        assert_eq!(remaining(&limiter).await, [3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_not_remembered_and_a_peek_ignores_the_id() {
        let limiter = limiter(&["{ id: slow, per: user, limit: { token-bucket: 1/s, burst: 1 } }"]);
        limiter.check(user()).await.unwrap();
        let request = user().id("r-1");
        assert!(!limiter.check(&request).await.unwrap().allowed());
        advance(Duration::from_secs(1)).await;
        assert!(limiter.peek(&request).await.unwrap().allowed());
        assert!(limiter.check(&request).await.unwrap().allowed());
        assert!(limiter.check(&request).await.unwrap().allowed(), "the same answer again");
        assert!(!limiter.peek(&request).await.unwrap().allowed(), "nothing is left for a new one");
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_request_id_under_other_rules_is_an_error() {
        let limiter = limiter(&["{ id: daily, per: user, limit: { fixed-window: 10/d } }"]);
        let request = user().id("r-1");
        limiter.check(&request).await.unwrap();
        limiter.replace_rules(&file(&["{ id: daily, per: user, limit: { fixed-window: 20/d } }"])).unwrap();
        assert!(matches!(limiter.check(&request).await, Err(CheckError::IdReused)));
    }
}

mod without_a_store {
    use super::*;

    const LISTS: &str = "
version: 1
rules:
  - { id: window, per: user, missing: refuse, limit: { fixed-window: 10/min } }
deny:
  - { when: { user: thief } }
bypass:
  - { when: { service: probe } }
";

    #[tokio::test(start_paused = true)]
    async fn deny_and_bypass_lists_decide_before_rules() {
        let limiter = limiter_of(LISTS);
        let cases = [
            (Request::from([("user", "thief")]), false, Source::List),
            (Request::from([("user", "thief"), ("service", "probe")]), false, Source::List),
            (Request::from([("user", "u"), ("service", "probe")]), true, Source::List),
            (Request::from([("service", "other")]), false, Source::Rule),
        ];
        for (request, allowed, source) in cases {
            let decision = limiter.check(&request).await.unwrap();
            assert_eq!((decision.allowed(), decision.source()), (allowed, source), "{request:?}");
            assert_eq!(decision.receipts(), []);
            let wait = if allowed { Some(Duration::ZERO) } else { None };
            assert_eq!(decision.retry_after(), wait, "waiting does not help");
        }
        assert_eq!(remaining(&limiter).await, [10]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_subject_is_refused_by_the_rule_that_requires_it() {
        let limiter = limiter_of(LISTS);
        let decision = limiter.check(Request::new()).await.unwrap();
        let headline = decision.headline().unwrap();
        assert_eq!((headline.id(), headline.remaining()), ("window", None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_matches_no_rule_is_allowed() {
        let limiter =
            limiter(&["{ id: a, match: { action: search }, per: user, limit: { sliding-log: 1/s } }"]);
        let decision = limiter.check(user()).await.unwrap();
        assert_eq!((decision.allowed(), decision.source()), (true, Source::Unmatched));
        assert!(decision.headline().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_cost_above_the_capacity_is_an_error_with_both_numbers() {
        let limiter = limiter(&[WINDOW, BUCKET]);
        let error = limiter.check(user().cost(3)).await.unwrap_err();
        assert!(matches!(error, CheckError::Plan(_)));
        assert_eq!(
            error.to_string(),
            "rule \"bucket\": cost 3 exceeds the capacity 2; it could never be admitted"
        );
        assert_eq!(remaining(&limiter).await, [10, 2]);
        let waited = limiter.acquire(user().cost(3), ms(60_000)).await;
        assert!(matches!(waited, Err(AcquireError::Check(CheckError::Plan(_)))));
    }
}

#[tokio::test(start_paused = true)]
async fn check_all_charges_all_requests_or_none() {
    let limiter = limiter(&[
        "{ id: two, match: { action: search }, per: user, limit: { fixed-window: 2/h } }",
        "{ id: nine, match: { action: export }, per: user, limit: { fixed-window: 9/h } }",
        "{ id: all, per: all, limit: { fixed-window: 100/h } }",
    ]);
    let search = Request::from([("action", "search"), ("user", "u")]);
    let export = Request::from([("action", "export"), ("user", "u")]);
    let both = [search, export.clone().cost(3)];
    let left = |decisions: &[Decision]| -> Vec<Vec<(bool, u64)>> {
        let rule = |rule: RuleDecision<'_>| (rule.allowed(), rule.remaining().unwrap());
        decisions.iter().map(|decision| decision.rules().map(rule).collect()).collect()
    };
    // Both requests have the same subject under this rule. It is charged once, with the higher cost.
    let first = limiter.check_all(&both).await.unwrap();
    assert_eq!(left(&first), [[(true, 1), (true, 97)], [(true, 6), (true, 97)]]);
    limiter.check_all(&both).await.unwrap();
    // If one request is refused, the other is not charged either.
    let refused = limiter.check_all(&both).await.unwrap();
    assert_eq!(refused.iter().map(|decision| decision.allowed()).collect::<Vec<_>>(), [false, true]);
    assert_eq!(left(&refused), [[(false, 0), (true, 94)], [(true, 3), (true, 94)]]);
    assert_eq!(limiter.check(&export).await.unwrap().remaining(), Some(2));
    assert!(refused.iter().all(|decision| decision.receipts().is_empty()), "nothing can be given back");
}

#[tokio::test(start_paused = true)]
async fn check_all_charges_nothing_if_a_list_denies_one_request() {
    let rules = file(&["{ id: two, match: { action: search }, per: user, limit: { fixed-window: 2/h } }"]);
    let limiter = limiter_of(&format!("{rules}deny:\n  - {{ when: {{ user: bad }}, reason: banned }}\n"));
    let search = Request::from([("action", "search"), ("user", "u")]);
    let (banned, unmatched) = (Request::from([("user", "bad")]), Request::from([("user", "u")]));
    let requests = [search.clone(), banned, unmatched];
    let decisions = limiter.check_all(&requests).await.unwrap();
    let sources: Vec<_> = decisions.iter().map(|decision| (decision.allowed(), decision.source())).collect();
    assert_eq!(sources, [(true, Source::Store), (false, Source::List), (true, Source::Unmatched)]);
    assert_eq!(limiter.check(&search).await.unwrap().remaining(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn check_all_charges_nothing_if_one_cost_exceeds_the_capacity() {
    let limiter = limiter(&["{ id: two, per: user, limit: { fixed-window: 2/h } }"]);
    let other = Request::from([("user", "v")]).cost(3);
    let error = limiter.check_all(&[user(), other]).await.unwrap_err();
    assert_eq!(error.to_string(), "rule \"two\": cost 3 exceeds the capacity 2; it could never be admitted");
    assert_eq!(remaining(&limiter).await, [2]);
}

/// The limit is computed from the rules on demand, also after they were replaced.
#[tokio::test(start_paused = true)]
async fn a_decision_keeps_the_limit_that_made_it() {
    let rules = [
        "{id: often, per: user, limit: {fixed-window: 5/min}}",
        "{id: daily, per: user, limit: {quota: 9/day, zone: UTC}}",
    ];
    let overrides = "overrides:
  - { when: { plan: pro }, rule: often, limit: { fixed-window: 50/min } }
  - { when: { plan: pro, region: eu }, rule: often, limit: { fixed-window: 70/min } }
  - { when: { plan: none }, rule: daily, limit: deny }
";
    let limiter = limiter_of(&(file(&rules) + overrides));
    let capacities = |decision: &Decision| -> Vec<(String, Option<u64>)> {
        let capacity = |rule: RuleDecision<'_>| rule.limit_in_force().map(|limit| limit.capacity());
        decision.rules().map(|rule| (rule.id().to_owned(), capacity(rule))).collect()
    };
    let named = |often: u64| vec![("often".to_owned(), Some(often)), ("daily".to_owned(), Some(9))];
    for (plan, region, often) in [("free", "eu", 5), ("pro", "us", 50), ("pro", "eu", 70)] {
        let request = user().attribute("plan", plan).attribute("region", region);
        let decision = limiter.check(&request).await.unwrap();
        assert_eq!(capacities(&decision), named(often), "{plan} {region}");
        let daily = decision.rules().nth(1).unwrap();
        let before_reset = Time::from(daily.reset_at().unwrap()).minus(Span::from_us(1));
        let day = daily.limit_in_force().unwrap().window(before_reset);
        assert_eq!(day, Some(Span::from_secs(86_400)), "the calendar is that of the decision");
        limiter.replace_rules(&file(&["{id: often, per: user, limit: {fixed-window: 1/min}}"])).unwrap();
        assert_eq!(capacities(&decision), named(often), "{plan} {region}, after other rules are in force");
        limiter.replace_rules(&(file(&rules) + overrides)).unwrap();
    }
    let refused = limiter.check(user().attribute("plan", "none")).await.unwrap();
    assert_eq!((refused.source(), capacities(&refused)), (Source::Rule, vec![("daily".to_owned(), None)]));
}

mod keep_alive {
    use super::*;

    const SHORT: &str = "{ id: leases, per: user, limit: { concurrency: 1, lease: 3s } }";

    #[tokio::test(start_paused = true)]
    async fn a_kept_lease_outlives_its_lease_time_and_is_released_when_dropped() {
        let limiter = limiter(&[SHORT]);
        let lease = limiter.lease(user()).await.unwrap().keep_alive();
        sleep(Duration::from_secs(60)).await;
        assert!(!lease.is_lost());
        assert_eq!(remaining(&limiter).await, [0]);
        drop(lease);
        assert_eq!(remaining(&limiter).await, [1]);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(remaining(&limiter).await, [1], "nothing renews it any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_was_reset_is_lost() {
        let limiter = limiter(&[SHORT]);
        let lease = limiter.lease(user()).await.unwrap().keep_alive();
        limiter.reset(user()).await.unwrap();
        timeout(ms(1_001), lease.lost()).await.expect("it is noticed at the next renewal");
        assert!(lease.is_lost());
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_without_leases_is_never_lost() {
        let limiter = limiter(&[WINDOW]);
        let lease = limiter.lease(user()).await.unwrap().keep_alive();
        assert!(timeout(ms(60_000), lease.lost()).await.is_err());
    }
}

mod watch {
    use std::fs;
    use std::sync::mpsc::channel;

    use super::*;

    /// Longer than any poll takes.
    const TIMEOUT: Duration = Duration::from_secs(20);

    #[test]
    fn a_watched_rules_file_is_reloaded_and_an_invalid_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.yaml");
        fs::write(&path, file(&[WINDOW])).unwrap();
        let (reloaded, reloads) = channel();
        let limiter = LocalLimiter::builder()
            .rules_file(&path)
            .watch_rules(true)
            .on_reload(move |reload| reloaded.send(reload.map_err(ToString::to_string)).unwrap())
            .build()
            .unwrap();
        assert_eq!(limiter.check(user()).unwrap().limit(), Some(10));

        fs::write(&path, file(&["{ id: window, per: user, limt: 5/min }"])).unwrap();
        let problem = reloads.recv_timeout(TIMEOUT).unwrap().unwrap_err();
        assert!(problem.contains("`limt`"), "{problem}");
        assert_eq!(limiter.check(user()).unwrap().remaining(), Some(8), "the old rules stay in force");

        // Replaced by a rename, as editors and configuration mounts do.
        let new = folder.path().join("new.yaml");
        fs::write(&new, file(&[&WINDOW.replace("10/min", "500/min")])).unwrap();
        fs::rename(&new, &path).unwrap();
        assert_eq!(reloads.recv_timeout(TIMEOUT).unwrap(), Ok(1));
        assert_eq!((limiter.check(user()).unwrap().limit(), limiter.rules_version()), (Some(500), 1));

        drop(limiter);
        assert!(reloads.recv_timeout(TIMEOUT).is_err(), "the thread ends with the limiter");
    }
}
