//! The limiter as services use it, on virtual time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, advance, sleep, timeout};
use tollgate::core::decision::Source;
use tollgate::core::rules::RuleSet;
use tollgate::core::{Decline, Receipt, Report, Span, SubjectHasher, Time};
use tollgate::limiter::{AcquireError, CheckError, Returned};
use tollgate::{Attributes, Clock, Limiter, MemoryStore, Request, rules};
use tollgate_document::{Problems, Source as Text};

/// A round number, at the start of a minute and in the middle of an hour.
const START: Time = Time::from_us(1_700_001_000_000_000);

/// The store's time is the runtime's: what sleeps and what refills are driven by the same hand.
struct VirtualClock(Instant);

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        START.plus(Span::from_us(self.0.elapsed().as_micros() as u64))
    }
}

type Virtual = Limiter<MemoryStore<VirtualClock>>;

/// A limiter with these rules, each written as a YAML map.
fn limiter(rules: &[&str]) -> Virtual {
    limiter_of(&file(rules))
}

fn limiter_of(file: &str) -> Virtual {
    let store = MemoryStore::with_clock(VirtualClock(Instant::now()));
    let limiter =
        Limiter::builder().rules_yaml(file).store(store).hash_key(SubjectHasher::new([7; 32])).build();
    limiter.unwrap_or_else(|error| panic!("{error}"))
}

fn file(rules: &[&str]) -> String {
    let rules: String = rules.iter().map(|rule| format!("  - {rule}\n")).collect();
    format!("version: 1\nrules:\n{rules}")
}

fn parsed(file: &str) -> RuleSet {
    rules::load(&Text::new("rules", file.as_bytes()), &mut Problems::new()).expect("the rules are right")
}

fn user() -> Attributes<'static> {
    Attributes::from([("user", "u")])
}

/// What remains under each rule.
fn remaining(limiter: &Virtual) -> Vec<u64> {
    let standing = limiter.explain_now(&user());
    let accounts = standing.rules.iter().flat_map(|rule| &rule.accounts);
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
const LEASES: &str = "{ id: leases, per: user, limit: { concurrency: 2, lease: 10s } }";
const QUOTA: &str = "{ id: quota, per: user, limit: { quota: 100/day, zone: UTC } }";
const WINDOW: &str = "{ id: window, per: user, limit: { fixed-window: 10/min } }";

mod acquire {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_exactly_as_long_as_retry_after_says() {
        let limiter = limiter(&[BUCKET]);
        let attributes = user();
        let request = Request::new(&attributes).cost(2);
        assert!(limiter.check(request).await.unwrap().allowed);
        let said = limiter.check(request).await.unwrap().retry_after();
        assert_eq!(said, Some(ms(500)));
        let asked_at = Instant::now();
        let permit = limiter.acquire(request, ms(500)).await.unwrap();
        assert!(permit.allowed);
        assert_eq!(asked_at.elapsed(), ms(500));
        assert_eq!(remaining(&limiter), [0], "it was charged once");
    }

    #[tokio::test(start_paused = true)]
    async fn who_would_be_too_late_is_told_at_once_and_charged_nothing() {
        let limiter = limiter(&[BUCKET, WINDOW]);
        let attributes = user();
        let request = Request::new(&attributes).cost(2);
        assert!(limiter.check(request).await.unwrap().allowed);
        let asked_at = Instant::now();
        let late = limiter.acquire(request, ms(499)).await;
        let Err(AcquireError::TooLate { decision }) = late else { panic!("it was not too late") };
        assert_eq!(asked_at.elapsed(), Duration::ZERO);
        assert_eq!((decision.allowed, decision.retry_after()), (false, Some(ms(500))));
        assert_eq!(remaining(&limiter), [0, 8]);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_its_slot_when_a_rule_shapes() {
        let limiter = limiter(&[SHAPER]);
        let asked_at = Instant::now();
        let mut done = Vec::new();
        for _ in 0..3 {
            let (limiter, attributes) = (limiter.clone(), user());
            done.push(tokio::spawn(async move {
                let permit = limiter.acquire(&attributes, ms(500)).await.unwrap();
                (permit.delay(), asked_at.elapsed())
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
            assert!(limiter.check(&user()).await.unwrap().allowed);
        }
        let asked_at = Instant::now();
        let late = limiter.acquire(&user(), ms(499)).await;
        let Err(AcquireError::TooLate { decision }) = late else { panic!("it was not too late") };
        assert_eq!((decision.allowed, decision.delay()), (true, ms(500)));
        assert_eq!(asked_at.elapsed(), Duration::ZERO);
        assert_eq!(remaining(&limiter), [2], "the two before it are all that is booked");
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_before_admission_it_has_charged_nothing() {
        let limiter = limiter(&[BUCKET, WINDOW]);
        let attributes = user();
        let request = Request::new(&attributes).cost(2);
        assert!(limiter.check(request).await.unwrap().allowed);
        assert!(timeout(ms(100), limiter.acquire(request, ms(5_000))).await.is_err());
        advance(ms(900)).await;
        assert_eq!(remaining(&limiter), [2, 8]);
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_while_it_waits_for_its_slot_it_gives_back_what_can_be_given_back() {
        let limiter = limiter(&[SHAPER, WINDOW, LEASES]);
        assert!(limiter.check(&user()).await.unwrap().allowed);
        assert_eq!(remaining(&limiter), [3, 9, 1]);
        assert!(timeout(ms(100), limiter.acquire(&user(), ms(5_000))).await.is_err());
        // The slot of a shaper is gone: 1.6 slots are still to drain, so 2 of 4 are left.
        assert_eq!(remaining(&limiter), [2, 9, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_is_given_back_early_is_had_soon_after() {
        let limiter = limiter(&[LEASES]);
        let held = [limiter.lease(&user()).await.unwrap(), limiter.lease(&user()).await.unwrap()];
        tokio::spawn(async move {
            sleep(ms(1_000)).await;
            drop(held);
        });
        let asked_at = Instant::now();
        let permit = limiter.acquire(&user(), ms(2_000)).await.unwrap();
        assert!(permit.allowed);
        assert!((ms(1_000)..=ms(1_100)).contains(&asked_at.elapsed()), "{:?}", asked_at.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_runs_out_is_had_at_that_instant_and_none_is_had_after_the_deadline() {
        let limiter = limiter(&["{ id: leases, per: user, limit: { concurrency: 1, lease: 42ms } }"]);
        let held = limiter.lease(&user()).await.unwrap();
        let asked_at = Instant::now();
        let late = limiter.acquire(&user(), ms(41)).await;
        assert!(matches!(late, Err(AcquireError::TooLate { .. })));
        assert_eq!(asked_at.elapsed(), ms(41), "until then somebody might have given a place back");
        assert!(limiter.acquire(&user(), ms(41)).await.unwrap().allowed);
        assert_eq!(asked_at.elapsed(), ms(42));
        drop(held);
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_wait_all_get_their_turn_and_no_more_than_the_rate() {
        let limiter = limiter(&[BUCKET]);
        let started = Instant::now();
        let workers: Vec<_> = (0..10)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move {
                    assert!(limiter.acquire(&user(), ms(60_000)).await.unwrap().allowed);
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
    async fn who_waits_for_ever_may_say_so() {
        let limiter = limiter(&[BUCKET]);
        let permit = limiter.acquire(&user(), Duration::MAX).await.unwrap();
        assert!(permit.allowed);
    }

    #[tokio::test(start_paused = true)]
    async fn where_waiting_does_not_help_nobody_waits() {
        let limiter = limiter(&["{ id: closed, per: user, limit: deny }"]);
        let late = timeout(ms(1), limiter.acquire(&user(), ms(60_000))).await.expect("it does not wait");
        assert!(matches!(late, Err(AcquireError::TooLate { .. })));
    }
}

mod leases {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_permit_gives_its_place_back_when_it_is_dropped_and_nothing_else() {
        let limiter = limiter(&[LEASES, WINDOW]);
        let permit = limiter.lease(&user()).await.unwrap();
        assert_eq!(remaining(&limiter), [1, 9]);
        drop(permit);
        assert_eq!(remaining(&limiter), [2, 9]);
    }

    #[tokio::test(start_paused = true)]
    async fn release_gives_back_and_says_so() {
        let limiter = limiter(&[LEASES]);
        let permit = limiter.lease(&user()).await.unwrap();
        assert_eq!(given(permit.release().await.unwrap()), [("leases".to_owned(), Ok(1))]);
        assert_eq!(remaining(&limiter), [2]);

        let permit = limiter.lease(&user()).await.unwrap();
        advance(ms(10_000)).await;
        assert_eq!(given(permit.release().await.unwrap()), [("leases".to_owned(), Err(Decline::NotHeld))]);
    }

    #[tokio::test(start_paused = true)]
    async fn renewed_a_lease_lives_on_and_once_ended_it_cannot_be() {
        let limiter = limiter(&[LEASES]);
        let permit = limiter.lease(&user()).await.unwrap();
        advance(ms(6_000)).await;
        assert_eq!(given(permit.renew().await.unwrap()), [("leases".to_owned(), Ok(1))]);
        advance(ms(9_999)).await;
        assert_eq!(remaining(&limiter), [1]);
        advance(ms(1)).await;
        assert_eq!(remaining(&limiter), [2]);
        assert_eq!(given(permit.renew().await.unwrap()), [("leases".to_owned(), Err(Decline::NotHeld))]);
    }

    #[tokio::test(start_paused = true)]
    async fn kept_a_lease_outlives_its_permit() {
        let limiter = limiter(&[LEASES]);
        let decision = limiter.lease(&user()).await.unwrap().keep().expect("it was not given back");
        assert_eq!(remaining(&limiter), [1]);
        assert_eq!(given(limiter.refund(&decision).await.unwrap()), [("leases".to_owned(), Ok(1))]);
        assert_eq!(remaining(&limiter), [2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_permit_takes_nobodys_place_away() {
        let limiter = limiter(&[LEASES]);
        let held = [limiter.lease(&user()).await.unwrap(), limiter.lease(&user()).await.unwrap()];
        let refused = limiter.lease(&user()).await.unwrap();
        assert!(!refused.allowed);
        assert_eq!(refused.renew().await.unwrap(), []);
        drop(refused);
        assert_eq!(remaining(&limiter), [0]);
        drop(held);
        assert_eq!(remaining(&limiter), [2]);
    }
}

mod reservations {
    use super::*;

    const HOLD: Span = Span::from_secs(60);

    async fn reserve(limiter: &Virtual, cost: u64) -> tollgate::Reservation<MemoryStore<VirtualClock>> {
        limiter.reserve(Request::new(&user()).cost(cost), HOLD).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn settled_a_reservation_counts_what_it_came_to() {
        // Estimated 8. Other rules were charged that: they give back what was too much, and learn of no more.
        for (actual, left) in [(3, [97, 7]), (8, [92, 2]), (20, [80, 2])] {
            let limiter = limiter(&[QUOTA, WINDOW]);
            let reservation = reserve(&limiter, 8).await;
            assert!(reservation.allowed);
            assert_eq!(remaining(&limiter), [92, 2]);
            reservation.settle(actual).await.unwrap();
            assert_eq!(remaining(&limiter), left, "{actual}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_or_cancelled_a_reservation_is_as_if_it_had_never_been() {
        let limiter = limiter(&[QUOTA, WINDOW, LEASES]);
        let small = || async { reserve(&limiter, 2).await };
        drop(small().await);
        assert_eq!(remaining(&limiter), [100, 10, 2]);
        let returned = given(small().await.cancel().await.unwrap());
        let all = ["quota", "window", "leases"].map(|rule| (rule.to_owned(), Ok(2)));
        assert_eq!(returned, all);
        assert_eq!(remaining(&limiter), [100, 10, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn settled_it_also_gives_its_leases_back() {
        let limiter = limiter(&[LEASES, QUOTA]);
        reserve(&limiter, 2).await.settle(2).await.unwrap();
        assert_eq!(remaining(&limiter), [2, 98]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_ends_by_itself() {
        let limiter = limiter(&[QUOTA]);
        let reservation = reserve(&limiter, 8).await;
        sleep(ms(60_000)).await;
        assert_eq!(remaining(&limiter), [100]);
        assert_eq!(
            given(reservation.settle(8).await.unwrap()),
            [("quota".to_owned(), Err(Decline::NotHeld))]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn refused_it_holds_nothing() {
        let limiter = limiter(&[QUOTA]);
        let held = reserve(&limiter, 99).await;
        let refused = reserve(&limiter, 2).await;
        assert!(!refused.allowed);
        assert_eq!(given(refused.settle(2).await.unwrap()), []);
        assert_eq!(remaining(&limiter), [1]);
        drop(held);
    }
}

mod follow_ups {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refund_gives_back_what_is_still_counted() {
        let limiter = limiter(&[BUCKET, WINDOW, SHAPER]);
        let attributes = user();
        let decision = limiter.check(Request::new(&attributes).cost(2)).await.unwrap();
        advance(ms(250)).await;
        // One has come back by itself already; the shaper takes nothing back.
        let returned = given(limiter.refund(&decision).await.unwrap());
        assert_eq!(returned, [("bucket".to_owned(), Ok(1)), ("window".to_owned(), Ok(2))]);
        assert_eq!(remaining(&limiter), [2, 10, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_charged_is_not_given_back() {
        let limiter = limiter(&[WINDOW]);
        let attributes = user();
        let all = Request::new(&attributes).cost(10);
        assert!(limiter.check(all).await.unwrap().allowed);
        for nothing in [limiter.check(all).await.unwrap(), limiter.peek(&attributes).await.unwrap()] {
            assert_eq!(limiter.refund(&nothing).await.unwrap(), []);
        }
        assert_eq!(remaining(&limiter), [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn receipts_give_back_after_a_journey() {
        let limiter = limiter(&[WINDOW, LEASES]);
        let decision = limiter.check(&user()).await.unwrap();
        let mut receipts: Vec<Receipt> = Vec::new();
        for receipt in decision.receipts() {
            receipts.push(Receipt::decode(&receipt.encode()).unwrap());
        }
        receipts.push(Receipt { rule: "gone".to_owned(), ..receipts[0].clone() });
        let returned = given(limiter.refund_receipts(&receipts).await.unwrap());
        let expected = [("window", Ok(1)), ("leases", Ok(1)), ("gone", Err(Decline::NotHeld))];
        assert_eq!(returned, expected.map(|(rule, amount)| (rule.to_owned(), amount)));
        assert_eq!(remaining(&limiter), [10, 2]);
        // A lease knows its owner, so the second time there is nothing to give.
        let again = given(limiter.refund_receipts(&receipts[1..2]).await.unwrap());
        assert_eq!(again, [("leases".to_owned(), Err(Decline::NotHeld))]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reset_forgets_this_subject_under_every_rule_it_meets() {
        let limiter = limiter(&[BUCKET, WINDOW, QUOTA]);
        let (attributes, other) = (user(), Attributes::from([("user", "other")]));
        for attributes in [&attributes, &other] {
            assert!(limiter.check(Request::new(attributes).cost(2)).await.unwrap().allowed);
        }
        let rules: Vec<_> = limiter.reset(&attributes).await.unwrap().into_iter().map(|it| it.rule).collect();
        assert_eq!(rules, ["bucket", "window", "quota"]);
        assert_eq!(remaining(&limiter), [2, 10, 100]);
        let others = limiter.peek(Request::new(&other).cost(0)).await.unwrap();
        assert_eq!(others.rules[1].numbers.unwrap().remaining, 8);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_that_are_reported_make_the_next_attempt_wait_and_a_success_clears_them() {
        let limiter = limiter(&["{ id: login, per: user, limit: { penalty: 2s, free: 1 } }", WINDOW]);
        for failures in 1..=2 {
            let returned = given(limiter.report(&user(), Report::Failure).await.unwrap());
            assert_eq!(returned, [("login".to_owned(), Ok(failures))], "the window does not care");
        }
        let refused = limiter.check(&user()).await.unwrap();
        assert_eq!(refused.retry_after(), Some(ms(2_000)));
        assert_eq!(remaining(&limiter), [0, 10]);
        limiter.report(&user(), Report::Success).await.unwrap();
        assert!(limiter.check(&user()).await.unwrap().allowed);
    }
}

mod rule_changes {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn new_rules_are_in_force_at_once_for_every_clone_and_counts_stay() {
        let limiter = limiter(&[WINDOW]);
        let clone = limiter.clone();
        let attributes = user();
        let six = limiter.check(Request::new(&attributes).cost(6)).await.unwrap();
        assert_eq!(limiter.rules_version(), 0);

        limiter.replace_rules(parsed(&file(&[&WINDOW.replace("10/min", "7/min")])));
        assert_eq!((clone.rules_version(), remaining(&clone)), (1, vec![1]));
        limiter.replace_rules(parsed(&file(&[&WINDOW.replace("10/min", "3/min")])));
        assert!(!clone.check(&attributes).await.unwrap().allowed, "six were used already");
        limiter.replace_rules(parsed(&file(&[&WINDOW.replace("10/min", "20/min"), BUCKET])));
        assert_eq!(remaining(&clone), [14, 2]);

        // A decision keeps the rules that made it.
        assert_eq!(six.headline().unwrap().numbers.unwrap().limit, 10);
        assert_eq!(given(clone.refund(&six).await.unwrap()), [("window".to_owned(), Ok(6))]);
        assert_eq!(remaining(&clone), [20, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn rules_that_are_wrong_change_nothing_and_all_problems_are_told() {
        let limiter = limiter(&[WINDOW]);
        let wrong = file(&["{ id: a, per: user, limt: { meter: 1 } }", "{ id: b, limit: { metre: 1 } }"]);
        let problems = limiter.replace_rules_yaml(&wrong).unwrap_err().to_string();
        assert!(problems.contains("`limt`") && problems.contains("`metre`"), "{problems}");
        assert_eq!((limiter.rules_version(), remaining(&limiter)), (0, vec![10]));
        limiter.replace_rules_yaml(&file(&[BUCKET])).unwrap();
        assert_eq!((limiter.rules_version(), remaining(&limiter)), (1, vec![2]));
    }

    #[test]
    fn replaced_from_many_threads_every_replacement_is_counted() {
        let limiter = Limiter::builder().build().unwrap();
        let rules = Arc::new(parsed(&file(&[WINDOW])));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|_| limiter.replace_rules(RuleSet::clone(&rules))));
            }
        });
        assert_eq!(limiter.rules_version(), 2_000);
    }
}

mod request_ids {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_sent_again_gets_the_same_answer_and_is_charged_once() {
        let limiter = limiter(&["{ id: daily, per: user, limit: { fixed-window: 10/d } }"]);
        let attributes = user();
        let request = Request::new(&attributes).cost(3).id("r-1");
        let first = limiter.check(request).await.unwrap().to_json();
        assert_eq!(limiter.check(request).await.unwrap().to_json(), first);
        assert_eq!(limiter.check_now(request).unwrap().to_json(), first);
        assert_eq!(remaining(&limiter), [7]);
        assert!(limiter.check(request.id("r-2")).await.unwrap().allowed);
        assert_eq!(remaining(&limiter), [4]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_id_is_for_one_request_and_for_a_minute() {
        let limiter = limiter(&["{ id: daily, per: user, limit: { fixed-window: 10/d } }"]);
        let attributes = user();
        let request = Request::new(&attributes).id("r-1");
        limiter.check(request).await.unwrap();
        assert!(matches!(limiter.check(request.cost(2)).await, Err(CheckError::IdReused)));
        assert!(matches!(limiter.check_now(request.cost(2)), Err(CheckError::IdReused)));
        assert_eq!(remaining(&limiter), [9]);
        advance(Duration::from_secs(60)).await;
        assert!(limiter.check(request.cost(2)).await.unwrap().allowed);
        assert_eq!(remaining(&limiter), [7]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_asked_for_again_is_the_same_lease() {
        let limiter = limiter(&["{ id: slots, per: user, limit: { concurrency: 3, lease: 30s } }"]);
        let attributes = user();
        let request = Request::new(&attributes).id("r-1");
        let (_lost, again) = (limiter.check(request).await.unwrap(), limiter.check(request).await.unwrap());
        assert_eq!(remaining(&limiter), [2]);
        assert_eq!(given(limiter.refund(&again).await.unwrap()), [("slots".to_owned(), Ok(1))]);
        assert_eq!(remaining(&limiter), [3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_not_remembered_and_looking_needs_no_id() {
        let limiter = limiter(&["{ id: slow, per: user, limit: { token-bucket: 1/s, burst: 1 } }"]);
        let attributes = user();
        limiter.check(Request::new(&attributes)).await.unwrap();
        let request = Request::new(&attributes).id("r-1");
        assert!(!limiter.check(request).await.unwrap().allowed);
        advance(Duration::from_secs(1)).await;
        assert!(limiter.peek(request).await.unwrap().allowed);
        assert!(limiter.check(request).await.unwrap().allowed);
        assert!(limiter.check(request).await.unwrap().allowed, "the same answer again");
        assert!(!limiter.peek(request).await.unwrap().allowed, "nothing is left for a new one");
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_id_under_other_rules_is_another_request() {
        let limiter = limiter(&["{ id: daily, per: user, limit: { fixed-window: 10/d } }"]);
        let attributes = user();
        let request = Request::new(&attributes).id("r-1");
        limiter.check(request).await.unwrap();
        limiter
            .replace_rules_yaml(&file(&["{ id: daily, per: user, limit: { fixed-window: 20/d } }"]))
            .unwrap();
        assert!(matches!(limiter.check(request).await, Err(CheckError::IdReused)));
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
    async fn lists_decide_before_rules_do() {
        let limiter = limiter_of(LISTS);
        let cases = [
            (Attributes::from([("user", "thief")]), false, Source::List),
            (Attributes::from([("user", "thief"), ("service", "probe")]), false, Source::List),
            (Attributes::from([("user", "u"), ("service", "probe")]), true, Source::List),
            (Attributes::from([("service", "other")]), false, Source::Rule),
        ];
        for (attributes, allowed, source) in cases {
            let decision = limiter.check(&attributes).await.unwrap();
            assert_eq!((decision.allowed, decision.source), (allowed, source), "{attributes:?}");
            assert_eq!(decision.receipts(), []);
            let wait = if allowed { Some(Duration::ZERO) } else { None };
            assert_eq!(decision.retry_after(), wait, "waiting does not help");
        }
        assert_eq!(remaining(&limiter), [10]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_subject_that_is_missing_is_refused_by_the_rule_that_demands_it() {
        let limiter = limiter_of(LISTS);
        let decision = limiter.check(&Attributes::new()).await.unwrap();
        let headline = decision.headline().unwrap();
        assert_eq!((headline.id(), headline.numbers), ("window", None));
    }

    #[tokio::test(start_paused = true)]
    async fn no_rule_no_objection() {
        let limiter =
            limiter(&["{ id: a, match: { action: search }, per: user, limit: { sliding-log: 1/s } }"]);
        let decision = limiter.check(&user()).await.unwrap();
        assert_eq!((decision.allowed, decision.source), (true, Source::Unmatched));
        assert!(decision.headline().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_cost_above_the_capacity_is_an_error_that_names_both() {
        let limiter = limiter(&[WINDOW, BUCKET]);
        let attributes = user();
        let error = limiter.check(Request::new(&attributes).cost(3)).await.unwrap_err();
        assert!(matches!(error, CheckError::Plan(_)));
        assert_eq!(
            error.to_string(),
            "rule \"bucket\": cost 3 exceeds the capacity 2; it could never be admitted"
        );
        assert_eq!(remaining(&limiter), [10, 2]);
        let waited = limiter.acquire(Request::new(&attributes).cost(3), ms(60_000)).await;
        assert!(matches!(waited, Err(AcquireError::Check(CheckError::Plan(_)))));
    }
}

#[tokio::test(start_paused = true)]
async fn requests_together_are_all_charged_or_none_of_them() {
    let limiter = limiter(&[
        "{ id: two, match: { action: search }, per: user, limit: { fixed-window: 2/h } }",
        "{ id: nine, match: { action: export }, per: user, limit: { fixed-window: 9/h } }",
        "{ id: all, per: all, limit: { fixed-window: 100/h } }",
    ]);
    let search = Attributes::from([("action", "search"), ("user", "u")]);
    let export = Attributes::from([("action", "export"), ("user", "u")]);
    let both = [Request::new(&search), Request::new(&export).cost(3)];
    let left = |decisions: &[tollgate::Decision]| -> Vec<Vec<(bool, u64)>> {
        let rule = |rule: tollgate::limiter::RuleView<'_>| (rule.allowed, rule.numbers.unwrap().remaining);
        decisions.iter().map(|decision| decision.rules().map(rule).collect()).collect()
    };
    // The account that both lead to is charged once, at the higher of their costs.
    let first = limiter.check_together(&both).await.unwrap();
    assert_eq!(left(&first), [[(true, 1), (true, 97)], [(true, 6), (true, 97)]]);
    limiter.check_together(&both).await.unwrap();
    // One is refused: the other one, which would have passed, is not charged, nor is what they share.
    let refused = limiter.check_together(&both).await.unwrap();
    assert_eq!(refused.iter().map(|decision| decision.allowed).collect::<Vec<_>>(), [false, true]);
    assert_eq!(left(&refused), [[(false, 0), (true, 94)], [(true, 3), (true, 94)]]);
    assert_eq!(limiter.check(&export).await.unwrap().headline().unwrap().numbers.unwrap().remaining, 2);
    assert!(refused.iter().all(|decision| decision.receipts().is_empty()), "nothing can be given back");
}

#[tokio::test(start_paused = true)]
async fn beside_one_that_no_store_is_asked_about_the_others_are_only_looked_at() {
    let rules = file(&["{ id: two, match: { action: search }, per: user, limit: { fixed-window: 2/h } }"]);
    let limiter = limiter_of(&format!("{rules}deny:\n  - {{ when: {{ user: bad }}, reason: banned }}\n"));
    let search = Attributes::from([("action", "search"), ("user", "u")]);
    let (banned, unmatched) = (Attributes::from([("user", "bad")]), Attributes::from([("user", "u")]));
    let requests = [Request::new(&search), Request::new(&banned), Request::new(&unmatched)];
    let decisions = limiter.check_together(&requests).await.unwrap();
    let sources: Vec<_> = decisions.iter().map(|decision| (decision.allowed, decision.source)).collect();
    assert_eq!(sources, [(true, Source::Store), (false, Source::List), (true, Source::Unmatched)]);
    assert_eq!(limiter.check(&search).await.unwrap().headline().unwrap().numbers.unwrap().remaining, 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_could_never_be_admitted_keeps_all_from_being_charged() {
    let limiter = limiter(&["{ id: two, per: user, limit: { fixed-window: 2/h } }"]);
    let (u, v) = (user(), Attributes::from([("user", "v")]));
    let error = limiter.check_together(&[Request::new(&u), Request::new(&v).cost(3)]).await.unwrap_err();
    assert_eq!(error.to_string(), "rule \"two\": cost 3 exceeds the capacity 2; it could never be admitted");
    assert_eq!(remaining(&limiter), [2]);
}

/// It is made again from the rules when somebody looks, also when they are no longer in force.
#[tokio::test(start_paused = true)]
async fn a_decision_knows_the_limit_that_made_it() {
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
    let capacities = |decision: &tollgate::Decision| -> Vec<(String, Option<u64>)> {
        let capacity = |rule: tollgate::limiter::RuleView<'_>| rule.limit().map(|limit| limit.capacity());
        decision.rules().map(|rule| (rule.id().to_owned(), capacity(rule))).collect()
    };
    let named = |often: u64| vec![("often".to_owned(), Some(often)), ("daily".to_owned(), Some(9))];
    for (plan, region, often) in [("free", "eu", 5), ("pro", "us", 50), ("pro", "eu", 70)] {
        let request = user().with("plan", plan).with("region", region);
        let decision = limiter.check(&request).await.unwrap();
        assert_eq!(capacities(&decision), named(often), "{plan} {region}");
        let daily = decision.rules().nth(1).unwrap();
        let (limit, reset_at_ms) = (daily.limit().unwrap(), daily.numbers.unwrap().reset_at_ms);
        let day = limit.window(Time::from_us(reset_at_ms * 1_000 - 1));
        assert_eq!(day, Some(Span::from_secs(86_400)), "the calendar is that of the decision");
        limiter.replace_rules_yaml(&file(&["{id: often, per: user, limit: {fixed-window: 1/min}}"])).unwrap();
        assert_eq!(capacities(&decision), named(often), "{plan} {region}, after other rules are in force");
        limiter.replace_rules_yaml(&(file(&rules) + overrides)).unwrap();
    }
    let refused = limiter.check(&user().with("plan", "none")).await.unwrap();
    assert_eq!((refused.source, capacities(&refused)), (Source::Rule, vec![("daily".to_owned(), None)]));
}
