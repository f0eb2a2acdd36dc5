//! Sharded rules on the memory store: the sum over all shards, and what follow-ups do to it.

use std::collections::HashSet;
use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::decision::exactness::Exactness;

use super::*;
use crate::clock::ManualClock;
use crate::{LocalLimiter, Request};

const START: Time = Time::from_us(7_200_000_000);

struct Bench {
    limiter: LocalLimiter,
    clock: ManualClock,
}

impl Bench {
    fn new(limit: &str, shards: u64) -> Bench {
        let rule = format!("{{ id: hot, per: user, limit: {limit}, shards: {shards} }}");
        let clock = ManualClock::at(START);
        let limiter = LocalLimiter::builder()
            .rules_yaml(format!("{{ version: 1, rules: [{rule}] }}"))
            .clock(clock.clone())
            .build()
            .unwrap();
        Bench { limiter, clock }
    }

    fn ask(&self, cost: u64) -> crate::Decision {
        self.limiter.check(Request::from([("user", "u")]).cost(cost)).unwrap()
    }

    fn admitted(&self, tries: u64) -> u64 {
        (0..tries).filter(|_| self.ask(1).allowed()).count() as u64
    }

    fn usage(&self) -> (u64, u64, u64) {
        let usage = self.limiter.usage([("user", "u")]).unwrap();
        assert_eq!(usage.len(), 1, "one line for all shards: {usage:?}");
        (usage[0].limit, usage[0].used, usage[0].remaining)
    }
}

const WINDOW: &str = "{ fixed-window: 803/1h }";

#[test]
fn all_shards_together_admit_the_limit_and_nothing_more() {
    let bench = Bench::new(WINDOW, 8);
    let (mut tries, mut admitted) = (0, 0);
    while admitted < 803 && tries < 100_000 {
        admitted += bench.admitted(1_000);
        tries += 1_000;
    }
    assert_eq!(admitted, 803, "in {tries} tries, which reach every shard");
    assert_eq!(bench.admitted(1_000), 0);
    assert_eq!(bench.usage(), (803, 803, 0));
    bench.clock.advance(Duration::from_secs(3_600));
    assert!(bench.ask(1).allowed());
}

#[test]
fn a_shard_refuses_while_others_have_room_and_says_that_it_is_conservative() {
    let bench = Bench::new(WINDOW, 8);
    let refused = (0..803).map(|_| bench.ask(1)).find(|decision| !decision.allowed());
    let refused = refused.expect("the shards fill unevenly");
    assert_eq!(refused.exactness(), Exactness::Conservative);
    assert!(bench.usage().2 > 0, "no second try");
    assert_eq!(bench.ask(1).exactness(), Exactness::Conservative);
}

#[test]
fn a_request_id_always_asks_the_same_shard() {
    let bench = Bench::new(WINDOW, 8);
    let ask = |id: &'static str| bench.limiter.check(Request::from([("user", "u")]).id(id)).unwrap();
    for id in ["a", "b", "c"] {
        let first = ask(id);
        for _ in 0..20 {
            let again = ask(id);
            assert_eq!(
                again.rules().next().unwrap().shard(),
                first.rules().next().unwrap().shard(),
                "{id} is charged once"
            );
        }
    }
    assert_eq!(bench.usage().1, 3);
    let asked: HashSet<u64> = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
        .map(|id| ask(id).rules().next().unwrap().shard().unwrap().index())
        .into();
    assert!(asked.len() > 2, "ids are spread over {asked:?}");
}

#[test]
fn a_receipt_returns_to_its_shard() {
    let bench = Bench::new("{ fixed-window: 16/1h }", 8);
    let decisions: Vec<_> = std::iter::repeat_with(|| bench.ask(2)).take(200).collect();
    let admitted: Vec<_> = decisions.iter().filter(|decision| decision.allowed()).collect();
    assert_eq!(bench.usage(), (16, 16, 0), "every shard is full");
    let receipts = admitted[0].receipts();
    assert_eq!(receipts.len(), 1);
    assert_eq!(receipts[0].limit.capacity(), 2, "the receipt has the numbers of its shard");
    let returned = bench.limiter.refund_receipts(&receipts).unwrap();
    assert_eq!(returned[0].amount, Ok(2));
    assert_eq!(bench.usage(), (16, 14, 2));
    assert!(bench.limiter.refund_receipts(&receipts).unwrap()[0].already_returned);
    let admitted_again = (0..200).filter(|_| bench.ask(2).allowed()).count();
    assert_eq!(admitted_again, 1, "only the shard that was refunded has room");
}

#[test]
fn records_and_credits_are_spread_over_all_shards() {
    let bench = Bench::new(WINDOW, 8);
    let request = |cost| Request::from([("user", "u")]).cost(cost);
    let recorded = bench.limiter.record(request(403)).unwrap();
    assert_eq!(recorded.rules.len(), 1);
    assert_eq!((recorded.rules[0].amount, recorded.rules[0].overdraft), (Ok(403), 0));
    assert_eq!((recorded.rules[0].limit, recorded.rules[0].remaining), (803, 400));
    assert_eq!(bench.usage(), (803, 403, 400));
    let credited = bench.limiter.credit(request(100)).unwrap();
    assert_eq!((credited.len(), credited[0].amount), (1, Ok(100)));
    assert_eq!(bench.usage(), (803, 303, 500));
    let credited = bench.limiter.credit(request(10_000)).unwrap();
    assert_eq!(credited[0].amount, Ok(303), "never below zero in any shard");
    assert_eq!(bench.usage().1, 0);
    let overdrawn = bench.limiter.record(request(1_000)).unwrap();
    assert_eq!((overdrawn.rules[0].overdraft, overdrawn.rules[0].remaining), (197, 0));
    assert_eq!(bench.admitted(100), 0);
}

#[test]
fn a_record_under_an_id_is_booked_once_also_if_it_is_smaller_than_the_number_of_shards() {
    let bench = Bench::new(WINDOW, 8);
    let record = || bench.limiter.record(Request::from([("user", "u")]).cost(3).id("r")).unwrap();
    assert!(!record().replayed);
    assert!(record().replayed);
    assert_eq!(bench.usage().1, 3);
}

#[test]
fn a_reset_empties_every_shard() {
    let bench = Bench::new("{ token-bucket: 16/1h, burst: 16 }", 8);
    bench.admitted(500);
    assert_eq!(bench.usage().2, 0);
    let reset = bench.limiter.reset([("user", "u")]).unwrap();
    assert_eq!(reset, 1, "one line for all shards");
    assert_eq!(bench.usage(), (16, 0, 16));
}

#[test]
fn a_reservation_is_settled_in_its_shard() {
    let bench = Bench::new("{ quota: 800/month, zone: UTC }", 8);
    let reservation =
        bench.limiter.reserve(Request::from([("user", "u")]).cost(50), Duration::from_secs(60)).unwrap();
    let usage = bench.limiter.usage([("user", "u")]).unwrap().remove(0);
    assert_eq!((usage.used, usage.held, usage.remaining), (0, 50, 750));
    let settled = reservation.settle(20).unwrap();
    assert_eq!(settled[0].amount, Ok(30), "{settled:?}");
    assert_eq!(bench.usage(), (800, 20, 780));
}

#[test]
fn an_explanation_has_the_numbers_of_the_shard_and_of_all_shards() {
    let bench = Bench::new(WINDOW, 8);
    bench.limiter.record(Request::from([("user", "u")]).cost(80)).unwrap();
    let explanation = bench.limiter.explain([("user", "u")]);
    let rule = explanation.rule("hot").unwrap();
    let before = rule.accounts[0].before.as_ref().unwrap().numbers;
    assert!((100..=101).contains(&before.limit) && before.limit - before.remaining == 10, "{before:?}");
    let all = rule.all_shards.as_ref().unwrap();
    assert_eq!((all.limit, all.used, all.remaining), (803, 80, 723));
    assert!(explanation.to_string().contains("all of them have used 80 of 803"), "{explanation}");
}

#[test]
fn both_hash_keys_of_a_rotation_count_the_same_shard() {
    let (old, new) = (crate::HashKey::with_id(1, [1; 32]), crate::HashKey::with_id(2, [2; 32]));
    let keys = crate::HashKeys::rotating(new, old).unwrap();
    let rules = "{ version: 1, rules: [{ id: hot, per: user, limit: { fixed-window: 800/1h }, shards: 8 }] }";
    let limiter = LocalLimiter::builder().rules_yaml(rules).hash_key(keys).build().unwrap();
    for _ in 0..40 {
        let decision = limiter.check([("user", "u")]).unwrap();
        let shards: Vec<_> = decision.rules().map(|rule| rule.shard().unwrap().index()).collect();
        assert_eq!((shards.len(), shards[0]), (2, shards[1]));
    }
    limiter.record(Request::from([("user", "u")]).cost(100)).unwrap();
    let usage = limiter.usage([("user", "u")]).unwrap();
    assert_eq!((usage.len(), usage[0].used, usage[0].limit), (1, 140, 800));
}

/// One step of a generated history.
#[derive(Clone, Debug)]
enum Step {
    Ask(u64),
    Refund(usize),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1_u64..4).prop_map(Step::Ask),
        1 => any::<usize>().prop_map(Step::Refund),
        1 => (1_u64..700_000).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn shards_of_a_fixed_window_never_admit_more_than_the_limit(
        steps in steps(), limit in 64_u64..200, shards in 2_u64..=16,
    ) {
        let bench = Bench::new(&format!("{{ fixed-window: {limit}/10s }}"), shards);
        let mut charged: Vec<(u64, u64, crate::Decision)> = Vec::new();
        let mut by_window = std::collections::HashMap::<u64, u64>::new();
        for step in steps {
            let window = bench.clock_us() / 10_000_000;
            match step {
                Step::Wait(us) => bench.clock.advance(Duration::from_micros(us)),
                Step::Ask(cost) => {
                    let decision = bench.ask(cost);
                    if decision.allowed() {
                        *by_window.entry(window).or_default() += cost;
                        charged.push((window, cost, decision));
                    }
                }
                Step::Refund(index) if !charged.is_empty() => {
                    let (charged_in, cost, decision) = charged.swap_remove(index % charged.len());
                    let returned = bench.limiter.refund(&decision).unwrap();
                    if charged_in == window {
                        prop_assert_eq!(returned[0].amount, Ok(cost));
                        *by_window.entry(window).or_default() -= cost;
                    }
                }
                Step::Refund(_) => {}
            }
            let window = bench.clock_us() / 10_000_000;
            let admitted = by_window.get(&window).copied().unwrap_or(0);
            prop_assert!(admitted <= limit, "{admitted} of {limit}");
            prop_assert_eq!(bench.usage().1, admitted);
        }
    }

    #[test]
    fn shards_of_a_token_bucket_never_admit_more_than_its_bound(
        steps in steps(), burst in 64_u64..200, rate in 1_u64..500, shards in 2_u64..=16,
    ) {
        let bench = Bench::new(&format!("{{ token-bucket: {rate}/s, burst: {burst} }}"), shards);
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Wait(us) => bench.clock.advance(Duration::from_micros(us)),
                Step::Ask(cost) => {
                    if bench.ask(cost).allowed() {
                        admitted.push((bench.clock_us(), cost));
                    }
                }
                Step::Refund(_) => {}
            }
        }
        // In any time D at most B + floor((D - 1) * r) units.
        for (first, &(from, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for &(at, cost) in &admitted[first..] {
                sum += cost;
                prop_assert!(sum <= burst + (at - from) * rate / 1_000_000, "{sum} in {} us", at - from);
            }
        }
    }
}

impl Bench {
    fn clock_us(&self) -> u64 {
        use crate::clock::Clock;
        self.clock.now().us()
    }
}
