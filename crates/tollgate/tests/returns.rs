//! Receipts: each gives back once, by the numbers that charged, and nothing else.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use tollgate::store::memory::MemoryStore;
use tollgate::{Clock, HashKey, LocalLimiter, ManualClock, Request, Returned};
use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::meter::Meter;
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate_core::time::calendar::Periods;
use tollgate_core::{
    Decline, Item, Key, Keyspace, Limit, Mark, Nonce, Operation, Plan, Receipt, Span, SubjectHasher, Time,
    Verdict,
};

const START: Time = Time::from_us(1_700_000_000_000_000);
const LIFE: Span = Span::from_secs(3_600);

/// A limit of 5 under every algorithm that takes refunds. None gives units back within the test.
const LIMITS: [&str; 8] = [
    "{ fixed-window: 5/d }",
    "{ sliding-window: 5/d, buckets: 4 }",
    "{ sliding-window: 5/d, buckets: 4, counting: interpolated }",
    "{ sliding-log: 5/d }",
    "{ token-bucket: 1/d, burst: 5 }",
    "{ leaky-bucket: 1/d, capacity: 5 }",
    "{ quota: 5/month, zone: UTC }",
    "{ meter: 5 }",
];

fn limiter_at(clock: &'static ManualClock, file: &str) -> LocalLimiter {
    let builder = LocalLimiter::builder().rules_yaml(file).clock(clock).hash_key(HashKey::new([7; 32]));
    builder.build().unwrap_or_else(|error| panic!("{error}"))
}

fn clock() -> &'static ManualClock {
    Box::leak(Box::new(ManualClock::at(START)))
}

fn file(rule: &str) -> String {
    format!("version: 1\nrules:\n  - {rule}\n")
}

fn user() -> Request<'static> {
    Request::from([("user", "u")])
}

/// The result under the only rule.
fn only(returned: Vec<Returned>) -> (Result<u64, Decline>, bool) {
    assert_eq!(returned.len(), 1, "{returned:?}");
    (returned[0].amount, returned[0].already_returned)
}

/// How many requests of one unit are admitted, of 30.
fn admitted(limiter: &LocalLimiter) -> usize {
    (0..30).filter(|_| limiter.check(user()).unwrap().allowed()).count()
}

#[test]
fn a_receipt_refunded_many_times_gives_back_once() {
    for limit in LIMITS {
        let limiter = limiter_at(clock(), &file(&format!("{{ id: r, per: user, limit: {limit} }}")));
        let first = limiter.check(user()).unwrap();
        assert_eq!(admitted(&limiter), 4, "{limit}");
        let sealed = limiter.sealed_receipts(&first).unwrap();
        assert_eq!(sealed, limiter.sealed_receipts(&first).unwrap(), "two receipts for one charge are one");
        for round in 0..10 {
            let returned = match round % 2 {
                0 => limiter.refund_receipts(&limiter.open_receipts(&sealed).unwrap()),
                _ => limiter.refund(&first),
            };
            assert_eq!(only(returned.unwrap()), (Ok(1), round > 0), "{limit}");
        }
        assert_eq!(admitted(&limiter), 1, "{limit}");
    }
}

#[test]
fn a_refund_under_an_override_uses_the_numbers_that_charged() {
    let clock = clock();
    let limiter = limiter_at(
        clock,
        "version: 1
rules:
  - { id: r, per: user, limit: { token-bucket: 1/h, burst: 10 } }
overrides:
  - { when: { plan: pro }, rule: r, limit: { token-bucket: 10/s, burst: 10 } }
",
    );
    let pro = Request::from([("user", "u"), ("plan", "pro")]);
    let first = limiter.check(pro.clone().cost(5)).unwrap();
    let receipts = first.receipts();
    clock.advance(Span::from_ms(400).into());
    // Four units have drained. Other requests take them.
    assert!(limiter.check(pro.clone().cost(9)).unwrap().allowed());
    assert_eq!(only(limiter.refund_receipts(&receipts).unwrap()), (Ok(1), false));
    assert_eq!(limiter.peek(pro.cost(0)).unwrap().remaining(), Some(1));
    // The base limit would say that all five were left, and take four from the other request.
    let base = Limit::Bucket(Bucket::tokens(1, Span::from_secs(3_600), 10).unwrap());
    let by_base = Receipt { limit: base, nonce: Nonce(1), ..receipts[0].clone() };
    assert_eq!(only(limiter.refund_receipts(&[by_base]).unwrap()), (Ok(4), false));
}

#[test]
fn a_partial_refund_closes_the_receipt() {
    for limit in LIMITS {
        let limiter = limiter_at(clock(), &file(&format!("{{ id: r, per: user, limit: {limit} }}")));
        let decision = limiter.check(user().cost(5)).unwrap();
        assert_eq!(only(limiter.refund_partial(&decision, 2).unwrap()), (Ok(2), false), "{limit}");
        assert_eq!(only(limiter.refund(&decision).unwrap()), (Ok(2), true), "{limit}");
        let receipts = decision.receipts();
        assert_eq!(only(limiter.refund_receipts_partial(&receipts, 3).unwrap()), (Ok(2), true), "{limit}");
        assert_eq!(admitted(&limiter), 2, "{limit}");
    }
}

#[test]
fn a_receipt_of_a_removed_rule_gives_back_to_its_subject() {
    for limit in LIMITS {
        let rules = file(&format!("{{ id: r, per: user, limit: {limit} }}"));
        let limiter = limiter_at(clock(), &rules);
        let decision = limiter.check(user().cost(5)).unwrap();
        limiter.replace_rules(&file("{ id: other, per: user, limit: { fixed-window: 1/d } }")).unwrap();
        let returned = only(limiter.refund_receipts(&decision.receipts()).unwrap());
        assert_eq!(returned, (Ok(5), false), "{limit}");
        limiter.replace_rules(&rules).unwrap();
        assert_eq!(admitted(&limiter), 5, "{limit}");
    }
}

#[test]
fn a_receipt_from_before_a_reset_is_declined() {
    for limit in LIMITS {
        let clock = clock();
        let limiter = limiter_at(clock, &file(&format!("{{ id: r, per: user, limit: {limit} }}")));
        let before = limiter.check(user().cost(5)).unwrap();
        assert_eq!(limiter.reset(user()).unwrap(), 1);
        clock.advance(Span::from_us(1).into());
        let after = limiter.check(user().cost(5)).unwrap();
        assert_eq!(only(limiter.refund(&before).unwrap()), (Err(Decline::ResetSince), false), "{limit}");
        assert_eq!(admitted(&limiter), 0, "{limit}");
        assert_eq!(only(limiter.refund(&after).unwrap()), (Ok(5), false), "{limit}");
    }
}

#[test]
fn a_receipt_expires_after_its_life_and_its_return_is_remembered_until_then() {
    let clock = clock();
    let limiter = limiter_at(clock, &file("{ id: r, per: user, limit: { meter: 5 } }"));
    let [returned, kept] = [(); 2].map(|()| limiter.check(user()).unwrap());
    assert_eq!(only(limiter.refund(&returned).unwrap()), (Ok(1), false));
    clock.set(START.plus(LIFE).minus(Span::from_us(1)));
    assert_eq!(only(limiter.refund(&returned).unwrap()), (Ok(1), true));
    clock.set(START.plus(LIFE));
    assert_eq!(only(limiter.refund(&kept).unwrap()), (Err(Decline::ReceiptExpired), false));
    assert_eq!(limiter.peek(user().cost(0)).unwrap().remaining(), Some(4));
}

#[test]
fn a_clock_that_is_set_back_does_not_forget_a_return() {
    let clock = clock();
    let limiter = limiter_at(clock, &file("{ id: r, per: user, limit: { meter: 5 } }"));
    clock.set(START.plus(Span::from_secs(100)));
    let [first, _] = [(); 2].map(|()| limiter.check(user()).unwrap());
    clock.set(START);
    assert_eq!(only(limiter.refund(&first).unwrap()), (Ok(1), false));
    clock.set(START.plus(LIFE).plus(Span::from_secs(99)));
    assert_eq!(only(limiter.refund(&first).unwrap()), (Ok(1), true));
}

#[test]
fn a_repeated_request_id_gets_a_receipt_for_the_same_charge() {
    let limiter = limiter_at(clock(), &file("{ id: r, per: user, limit: { fixed-window: 5/d } }"));
    let [first, again] = [(); 2].map(|()| limiter.check(user().id("a").cost(2)).unwrap());
    assert!(limiter.check(user().cost(3)).unwrap().allowed());
    assert_eq!(only(limiter.refund(&first).unwrap()), (Ok(2), false));
    assert_eq!(only(limiter.refund(&again).unwrap()), (Ok(2), true));
    assert_eq!(limiter.peek(user().cost(0)).unwrap().remaining(), Some(2));
}

#[test]
fn requests_that_share_a_charge_return_it_once() {
    let limiter = limiter_at(clock(), &file("{ id: r, per: user, limit: { fixed-window: 5/d } }"));
    let decisions = limiter.check_all(&[user().cost(1), user().cost(2)]).unwrap();
    assert!(limiter.check(user().cost(3)).unwrap().allowed());
    assert_eq!(only(limiter.refund(&decisions[1]).unwrap()), (Ok(2), false));
    assert_eq!(only(limiter.refund(&decisions[0]).unwrap()), (Ok(2), true));
    assert_eq!(limiter.peek(user().cost(0)).unwrap().remaining(), Some(2));
}

#[test]
fn the_memory_store_declines_receipts_that_it_may_have_forgotten() {
    let clock = clock();
    let store = MemoryStore::with_clock(clock);
    let keyspace = Keyspace::new("test", "r").unwrap();
    let key = keyspace.key(SubjectHasher::new([1; 32]).subject([("user", "u")]));
    let meter = Limit::Meter(Meter::new(None, None).unwrap());
    let charge =
        || store.apply_once(&Plan::of(Item::new(key, meter, Operation::charge(1))).unwrap()).unwrap();
    let give_back = |nonce, charged_at| {
        let item = Item::new(key, meter, Operation::refund(Mark::Counter, 1));
        let plan = Plan::returning(item, Nonce(nonce), charged_at, LIFE).unwrap();
        store.apply_once(&plan).unwrap()
    };
    let first = charge();
    assert!(!give_back(0, first.now).replayed);
    // More returns than one shard remembers. All are for one key, so all are in one shard.
    for nonce in 1..=2_000 {
        clock.advance(Span::from_us(1).into());
        let charged = charge();
        assert_eq!(give_back(nonce, charged.now).answers[0].verdict, Verdict::Done { amount: 1 });
    }
    charge();
    let forgotten = give_back(0, first.now);
    assert_eq!(forgotten.answers[0].verdict, Verdict::Declined(Decline::ReceiptExpired));
    let remembered = give_back(2_000, clock.now());
    assert!(remembered.replayed);
    let earlier = MemoryStore::with_clock(clock);
    clock.advance(Span::from_secs(1).into());
    drop(earlier.apply_once(&Plan::of(Item::new(key, meter, Operation::charge(1))).unwrap()));
    let item = Item::new(key, meter, Operation::refund(Mark::Counter, 1));
    let plan = Plan::returning(item, Nonce(1), first.now, LIFE).unwrap();
    let declined = earlier.apply_once(&plan).unwrap().answers[0].verdict;
    assert_eq!(declined, Verdict::Declined(Decline::ReceiptExpired), "charged before the store existed");
}

/// One step of a generated history.
#[derive(Clone, Copy, Debug)]
struct GeneratedCall {
    what: u8,
    cost: u64,
    /// Which earlier charge, counted from the newest.
    earlier: usize,
    /// Whether the override is in force.
    overridden: bool,
}

/// A charge that can be returned.
#[derive(Clone, Copy)]
struct Charged {
    mark: Mark,
    limit: Limit,
    cost: u64,
    at: Time,
    /// What its returns gave back.
    returned: u64,
    /// Whether it was charged before the last reset.
    reset: bool,
}

/// Base limit and override of every algorithm that takes refunds.
fn limits() -> Vec<[Limit; 2]> {
    let (second, hour) = (Span::from_secs(1), Span::from_secs(3_600));
    let window = |limit| Limit::FixedWindow(FixedWindow::new(limit, hour).unwrap());
    let sliding =
        |limit, counting| Limit::SlidingWindow(SlidingWindow::new(limit, hour, 4, counting).unwrap());
    let log = |limit| Limit::SlidingLog(SlidingLog::new(limit, hour).unwrap());
    let tokens = |rate, capacity| Limit::Bucket(Bucket::tokens(rate, second, capacity).unwrap());
    let leaky = |rate, capacity| Limit::Bucket(Bucket::meter(rate, hour, capacity).unwrap());
    let starts = [START.minus(hour), START, START.plus(hour), START.plus(hour).plus(hour)];
    let period = QuotaPeriod::Calendar(Periods::new(starts).unwrap());
    let quota = |limit| Limit::Quota(Quota::new(limit, 0, period).unwrap());
    let meter = |limit| Limit::Meter(Meter::new(Some(limit), None).unwrap());
    vec![
        [window(5), window(9)],
        [sliding(5, Counting::Strict), sliding(9, Counting::Strict)],
        [sliding(5, Counting::Interpolated), sliding(9, Counting::Interpolated)],
        [log(5), log(9)],
        [tokens(3, 5), tokens(7, 9)],
        [leaky(7, 5), leaky(3, 9)],
        [quota(5), quota(9)],
        [meter(5), meter(9)],
    ]
}

/// What a wrong store does to a Plan, besides applying it.
type Edit = fn(Plan<'_>) -> Plan<'_>;

/// Applies generated charges, returns and resets, and checks the sum after each: what was admitted minus what was given
/// back is never above the limit that admitted the last charge, and never below zero.
///
/// Time stands still, so no unit comes back by itself. What time does is compared with the model of Plans.
fn histories(limits: [Limit; 2], edit: Edit, cases: u32) -> Result<(), String> {
    let call = (0..8_u8, 1..4_u64, 0..6_usize, any::<bool>())
        .prop_map(|(what, cost, earlier, overridden)| GeneratedCall { what, cost, earlier, overridden });
    let config = Config { failure_persistence: None, cases, max_shrink_iters: 0, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[3; 32]);
    let keyspace = Keyspace::new("test", "r").map_err(|error| error.to_string())?;
    let key = keyspace.key(SubjectHasher::new([1; 32]).subject([("user", "u")]));
    TestRunner::new_with_rng(config, rng)
        .run(&prop::collection::vec(call, 1..40), |calls| {
            history(limits, edit, key, &calls).map_err(TestCaseError::fail)
        })
        .map_err(|error| error.to_string())
}

fn history(limits: [Limit; 2], edit: Edit, key: Key<'_>, calls: &[GeneratedCall]) -> Result<(), String> {
    let clock = ManualClock::at(START);
    let store = MemoryStore::with_clock(&clock);
    let apply = |plan: Plan<'_>| {
        let outcome = store.apply_once(&edit(plan)).map_err(|error| error.to_string())?;
        Ok::<_, String>((outcome.now, outcome.answers[0]))
    };
    let plan =
        |limit, operation| Plan::of(Item::new(key, limit, operation)).map_err(|error| error.to_string());
    let mut charges: Vec<Charged> = Vec::new();
    let mut net = 0_u64;
    for call in calls {
        let limit = limits[usize::from(call.overridden)];
        match call.what {
            0 => {
                apply(plan(limit, Operation::Reset { receipt_life: LIFE })?)?;
                charges.iter_mut().for_each(|charge| charge.reset = true);
                net = 0;
                // A charge at the instant of a reset counts as earlier.
                clock.advance(Span::from_us(1).into());
            }
            1..4 => {
                let Some(last) = charges.len().checked_sub(1) else { continue };
                let index = last - call.earlier.min(last);
                let Charged { mark, limit, cost, at, returned, reset } = charges[index];
                let refund = Operation::Refund { mark, cost, amount: call.cost.min(cost) };
                let item = Item::new(key, limit, refund);
                let plan =
                    Plan::returning(item, Nonce(index as u128), at, LIFE).map_err(|e| e.to_string())?;
                let before = remaining(&store, key, limits[1]);
                let (_, answer) = apply(plan)?;
                let given = remaining(&store, key, limits[1]) - before;
                if given > 0 && (reset || returned > 0) {
                    return Err(format!("{given} units minted by charge {index}"));
                }
                if given > call.cost.min(cost) {
                    return Err(format!("gave {given} back of {cost}"));
                }
                if let Verdict::Done { amount } = answer.verdict
                    && given > 0
                    && amount != given
                {
                    return Err(format!("answered {amount}, gave {given} back"));
                }
                charges[index].returned += given;
                net = net.checked_sub(given).ok_or("gave back more than was charged")?;
            }
            _ => {
                let cost = call.cost.min(limit.capacity());
                let (at, answer) = apply(plan(limit, Operation::charge(cost))?)?;
                if answer.is_admitted() {
                    net += cost;
                    let mark = answer.mark;
                    charges.push(Charged { mark, limit, cost, at, returned: 0, reset: false });
                    if net > limit.capacity() {
                        return Err(format!("{net} units admitted under a limit of {}", limit.capacity()));
                    }
                }
            }
        }
    }
    Ok(())
}

fn remaining(store: &MemoryStore<&ManualClock>, key: Key<'_>, limit: Limit) -> u64 {
    let plan = Plan::of(Item::new(key, limit, Operation::Peek { cost: 0 })).expect("a peek");
    store.apply_once(&plan).expect("memory answers").answers[0].remaining
}

#[test]
fn no_interleaving_of_charges_and_returns_mints_units() {
    for limits in limits() {
        histories(limits, |plan| plan, 400).unwrap_or_else(|error| panic!("{limits:?}: {error}"));
    }
}

/// Returns the Plan with another operation or limit, under the same request id.
fn edited<'r>(plan: &Plan<'r>, edit: impl Fn(Item<'r>) -> Item<'r>) -> Plan<'r> {
    let item = edit(plan.items()[0]);
    match (plan.request_id(), item.operation) {
        (Some(id), Operation::Refund { .. }) => {
            // The nonce is not known here, but any number that belongs to the id alone will do.
            let charged_at = id.charged_at.expect("a return");
            Plan::returning(item, Nonce(id.id.to_u128()), charged_at, id.horizon).expect("a return")
        }
        _ => Plan::of(item).expect("a Plan of one item"),
    }
}

#[test]
fn every_planted_mutant_of_the_returns_is_caught() {
    let mutants: [(&str, Edit); 4] = [
        ("a return is not remembered", |plan| plan.without_request_id()),
        ("a partial return does not close", |plan| match plan.items()[0].operation {
            Operation::Refund { cost, amount, .. } if amount < cost => plan.without_request_id(),
            _ => plan,
        }),
        ("a reset leaves no mark", |plan| match plan.items()[0].operation {
            Operation::Reset { .. } => edited(&plan, |item| {
                let operation = Operation::Reset { receipt_life: Span::ZERO };
                Item { operation, ..item }
            }),
            _ => plan,
        }),
        ("a return asks for more than was charged", |plan| match plan.items()[0].operation {
            Operation::Refund { mark, cost, .. } => {
                edited(&plan, |item| Item { operation: Operation::refund(mark, 2 * cost), ..item })
            }
            _ => plan,
        }),
    ];
    for (wrong, edit) in mutants {
        for limits in limits() {
            // The mark of a log's charge is its instant, so no later charge has the same.
            if wrong == "a reset leaves no mark" && matches!(limits[0], Limit::SlidingLog(_)) {
                continue;
            }
            assert!(histories(limits, edit, 400).is_err(), "survived: {wrong}: {limits:?}");
        }
    }
}
