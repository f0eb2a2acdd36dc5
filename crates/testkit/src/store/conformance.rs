//! The conformance suite: one set of tests that every store must pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use tokio::runtime::Runtime;
use tollgate::{Clock, ManualClock};
use tollgate_core::algorithm::bucket::{Bucket, BucketKind};
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::meter::Meter;
use tollgate_core::algorithm::penalty::{Penalty, PenaltyNumbers};
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate_core::{
    Answer, Item, Keyspace, Limit, LimitError, Mark, Nonce, Operation, Plan, Report, Span, Store,
    SubjectHasher, Time, Token, Verdict,
};

use crate::model::Model;

const START: Time = Time::from_us(1_700_000_000_000_000);
const ITEMS_MAX: usize = 4;
const SUBJECTS: u8 = 2;
const IDS: u8 = 3;
/// Short enough that ids expire within a history.
const HORIZON: Span = Span::from_secs(2);
/// Short enough that receipts expire within a history.
const RECEIPT_LIFE: Span = Span::from_secs(4);

/// One generated Plan, as raw numbers that the suite interprets.
#[derive(Clone, Debug)]
struct GeneratedPlan {
    advance: u8,
    advance_by: u32,
    /// Whether it is a follow-up on earlier admissions instead of a check.
    follow_up: bool,
    /// Its request id, if it is below `IDS`.
    id: u8,
    /// Whether it repeats an earlier Plan with a request id.
    again: bool,
    /// Whether it returns an earlier charge.
    returns: bool,
    items: Vec<GeneratedItem>,
}

#[derive(Clone, Copy, Debug)]
struct GeneratedItem {
    rule: u8,
    subject: u8,
    cost: u8,
    ask: u8,
    earlier: u8,
    blocking: bool,
}

/// Returns a limit of every algorithm, with small numbers, so that all limits are reached often.
pub fn limits() -> Result<Vec<Limit>, LimitError> {
    let second = Span::from_secs(1);
    Ok(vec![
        Limit::FixedWindow(FixedWindow::new(4, second)?),
        Limit::SlidingWindow(SlidingWindow::new(5, second, 4, Counting::Strict)?),
        Limit::SlidingWindow(SlidingWindow::new(6, second, 2, Counting::Interpolated)?),
        Limit::SlidingLog(SlidingLog::new(5, second)?),
        Limit::Bucket(Bucket::tokens(3, second, 6)?),
        Limit::Bucket(Bucket::meter(7, second, 3)?),
        Limit::Bucket(Bucket::queue(5, second, 4)?),
        Limit::Concurrency(Concurrency::new(3, second)?),
        Limit::Quota(Quota::new(9, 1, QuotaPeriod::Rolling(Span::from_secs(5)))?),
        Limit::Meter(Meter::new(Some(20), Some(Span::from_secs(9)))?),
        Limit::Penalty(Penalty::new(PenaltyNumbers {
            free: 2,
            base: Span::from_ms(100),
            factor: 2,
            longest: second,
            memory: second,
            count_refused: true,
        })?),
    ])
}

/// Returns the same algorithms as [`limits`], each with other numbers, as after a rule change.
fn changed_limits() -> Result<Vec<Limit>, LimitError> {
    let second = Span::from_secs(1);
    let mut changed = limits()?;
    for limit in &mut changed {
        *limit = match *limit {
            Limit::FixedWindow(_) => Limit::FixedWindow(FixedWindow::new(4, Span::from_secs(2))?),
            Limit::SlidingWindow(window) => {
                let (limit, buckets) = (window.limit() + 2, window.buckets() * 2);
                Limit::SlidingWindow(SlidingWindow::new(limit, second, buckets, window.counting())?)
            }
            Limit::SlidingLog(_) => Limit::SlidingLog(SlidingLog::new(7, Span::from_ms(300))?),
            Limit::Bucket(bucket) => Limit::Bucket(match bucket.kind() {
                BucketKind::Tokens => Bucket::tokens(11, Span::from_secs(7), 6)?,
                BucketKind::Meter => Bucket::meter(3, second, 9)?,
                BucketKind::Queue => Bucket::queue(3, second, 4)?,
            }),
            Limit::Quota(_) => Limit::Quota(Quota::new(9, 1, QuotaPeriod::Rolling(Span::from_secs(3)))?),
            Limit::Meter(_) => Limit::Meter(Meter::new(Some(20), Some(second))?),
            Limit::Concurrency(_) | Limit::Penalty(_) => *limit,
        };
    }
    Ok(changed)
}

/// Returns every algorithm that counts requests, each with the same limit per `window`.
pub fn counting_limits(limit: u64, window: Span) -> Result<Vec<Limit>, LimitError> {
    Ok(vec![
        Limit::FixedWindow(FixedWindow::new(limit, window)?),
        Limit::SlidingWindow(SlidingWindow::new(limit, window, 6, Counting::Strict)?),
        Limit::SlidingWindow(SlidingWindow::new(limit, window, 6, Counting::Interpolated)?),
        Limit::SlidingLog(SlidingLog::new(limit, window)?),
        Limit::Bucket(Bucket::tokens(1, window, limit)?),
        Limit::Bucket(Bucket::meter(1, window, limit)?),
        Limit::Bucket(Bucket::queue(1, window, limit - 1)?),
        Limit::Concurrency(Concurrency::new(limit, window)?),
        Limit::Quota(Quota::new(limit, 0, QuotaPeriod::Rolling(window))?),
        Limit::Meter(Meter::new(Some(limit), Some(window))?),
    ])
}

/// How the keys of a Plan are distributed over the hash slots of a cluster. No effect on other stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slots {
    /// All keys are in one hash slot.
    One,
    /// Each subject has a separate hash slot. Then no Plan has a request id, because a slot does not know the ids of others.
    BySubject,
}

/// Drives the store and the model of Plans with about `steps` generated Plans and compares every field of every Outcome.
///
/// Covers atomic Plans of several rules, shadow items, every algorithm and operation, and request ids.
pub fn check_against_model<S: Store>(
    runtime: &Runtime,
    slots: Slots,
    store: impl Fn(&'static ManualClock) -> S,
    steps: u64,
    seed: u64,
) -> Result<(), String> {
    let limits = limits().map_err(|error| error.to_string())?;
    let config =
        Config { failure_persistence: None, cases: u32::MAX, max_shrink_iters: 5_000, ..Config::default() };
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &key));
    let strategy = prop::collection::vec(generated_plans(), 1..60);
    let done = std::cell::Cell::new(0_u64);
    // All histories share one clock: each gets a new store, and only one runs at a time.
    let clock: &'static ManualClock = Box::leak(Box::new(ManualClock::at(START)));
    while done.get() < steps {
        let tree = strategy.new_tree(&mut runner).map_err(|reason| reason.to_string())?;
        runner
            .run_one(tree, |steps| {
                // Older than all charges: the memory store declines receipts from before its own creation.
                clock.set(START.minus(Span::from_secs(3_600)));
                let store = store(clock);
                clock.set(START);
                history(runtime, slots, &store, clock, &limits, &steps).map_err(TestCaseError::fail)?;
                done.set(done.get() + steps.len() as u64);
                Ok(())
            })
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn generated_plans() -> impl Strategy<Value = GeneratedPlan> {
    let item = (any::<u8>(), 0..SUBJECTS, any::<u8>(), any::<u8>(), any::<u8>(), 0..4_u8).prop_map(
        |(rule, subject, cost, ask, earlier, shadow)| GeneratedItem {
            rule,
            subject,
            cost,
            ask,
            earlier,
            blocking: shadow != 3,
        },
    );
    let items = prop::collection::vec(item, 1..=ITEMS_MAX);
    (any::<u8>(), any::<u32>(), 0..4_u8, 0..12_u8, 0..8_u8, items).prop_map(
        |(advance, advance_by, follow_up, id, again, items)| GeneratedPlan {
            returns: again < 2,
            advance,
            advance_by,
            follow_up: follow_up == 3,
            id,
            again: again == 7,
            items,
        },
    )
}

fn history<S: Store>(
    runtime: &Runtime,
    slots: Slots,
    store: &S,
    clock: &ManualClock,
    limits: &[Limit],
    steps: &[GeneratedPlan],
) -> Result<(), String> {
    let model = Model::new(clock);
    let changed = changed_limits().map_err(|error| error.to_string())?;
    let keyspaces: Vec<Keyspace> = (0..limits.len())
        .map(|index| Keyspace::new("test", &format!("rule-{index}")))
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    let subjects = SubjectHasher::new([1; 32]);
    let mut charges =
        vec![Charged { mark: Mark::Counter, cost: 1, at: START, rule: 0, subject: 0, nonce: 0 }];
    let mut tokens: Vec<Token> = vec![Token(1)];
    let mut named: Option<Plan<'_>> = None;
    for (number, step) in steps.iter().enumerate() {
        move_clock(clock, step);
        let mut plan = Plan::new();
        let key_of = |rule: usize, subject: u8| {
            let subject = subjects.subject([("user", subject.to_string().as_str())]);
            match slots {
                Slots::One => keyspaces[rule].key_tagged(subjects.subject([("tenant", "t")]), subject),
                Slots::BySubject => keyspaces[rule].key(subject),
            }
        };
        for item in &step.items {
            let rule = usize::from(item.rule) % limits.len();
            let limit = limits[rule];
            let key = key_of(rule, item.subject);
            let charged = recent(&charges, item.earlier);
            let operation = match operation(step, item, &limit, charged, &mut tokens) {
                // Whether it is held is known only when it is charged. Then other hash slots are refunded, which leaves
                // more than the state before.
                Operation::Extend { more, .. } if slots == Slots::BySubject => Operation::Peek { cost: more },
                operation => operation,
            };
            let item = Item { blocking: item.blocking, ..Item::new(key, limit, operation) };
            // Invalid items never reach a store.
            if plan.push(item).is_err() {
                continue;
            }
        }
        if step.id < IDS && slots == Slots::One {
            let id = subjects.subject([("id", step.id.to_string().as_str())]);
            plan.set_request_id(id, HORIZON, 1);
        }
        if let (true, Some(item)) = (step.returns, step.items.first()) {
            // The return of an earlier charge, often of one that was returned before, sometimes by other numbers.
            let charged = recent(&charges, item.earlier);
            let numbers = if charged.nonce.is_multiple_of(4) { &changed[..] } else { limits };
            let amount = if item.blocking { charged.cost } else { 1 };
            let refund = Operation::Refund { mark: charged.mark, cost: charged.cost, amount };
            let item = Item::new(key_of(charged.rule, charged.subject), numbers[charged.rule], refund);
            plan = Plan::returning(item, Nonce(charged.nonce), charged.at, RECEIPT_LIFE)
                .map_err(|error| error.to_string())?;
        } else if let Some(earlier) = named.clone().filter(|_| step.again) {
            plan = earlier;
        }
        let expected = model.apply_now(&plan).map_err(|error| error.to_string());
        let found = runtime.block_on(store.apply(&plan)).map_err(|error| error.to_string());
        if found != expected {
            return Err(format!("plan {number} {plan:#?}\nmodel {expected:#?}\nfound {found:#?}"));
        }
        if plan.request_id().is_some() {
            named = Some(plan.clone());
        }
        let Ok(found) = found else { continue };
        for (item, answer) in
            plan.items().iter().zip(&found.answers).filter(|(_, answer)| answer.mark != Mark::None)
        {
            let rule = keyspaces.iter().position(|other| other == item.key.keyspace()).unwrap_or(0);
            let subject = (0..SUBJECTS).find(|&subject| key_of(rule, subject) == item.key).unwrap_or(0);
            let cost = match answer.verdict {
                Verdict::Recorded { amount, .. } => amount,
                _ => item.operation.cost().unwrap_or(1),
            };
            let mark = answer.mark;
            charges.push(Charged { mark, cost, at: found.now, rule, subject, nonce: number as u128 });
        }
    }
    Ok(())
}

/// A charge that was admitted earlier.
#[derive(Clone, Copy)]
struct Charged {
    mark: Mark,
    cost: u64,
    at: Time,
    rule: usize,
    subject: u8,
    nonce: u128,
}

fn recent(charges: &[Charged], earlier: u8) -> Charged {
    charges[charges.len() - 1 - usize::from(earlier) % charges.len().min(6)]
}

fn move_clock(clock: &ManualClock, step: &GeneratedPlan) {
    let by = u64::from(step.advance_by);
    let now = clock.now();
    clock.set(match step.advance % 8 {
        0..4 => now,
        4 | 5 => now.plus(Span::from_us(by % 300_000)),
        6 => now.plus(Span::from_us(by % 5_000_000)),
        _ => now.minus(Span::from_us(by % 500_000)),
    });
}

fn operation(
    step: &GeneratedPlan,
    item: &GeneratedItem,
    limit: &Limit,
    charged: Charged,
    tokens: &mut Vec<Token>,
) -> Operation {
    let Charged { mark, cost, .. } = charged;
    let token = tokens[tokens.len() - 1 - usize::from(item.earlier) % tokens.len().min(6)];
    if step.follow_up {
        let units = [1, 1, 2, 3, 0, limit.capacity().min(20), 2 * limit.capacity().min(20), 1 << 52];
        let units = units[usize::from(item.cost) % units.len()];
        return match item.ask % 14 {
            0..2 => Operation::refund(mark, cost),
            2 => Operation::Release { token },
            3 => Operation::Renew { token },
            4 => Operation::Settle { token, actual: cost },
            5 => Operation::Cancel { token },
            6 => {
                Operation::Report { result: if item.cost < 200 { Report::Failure } else { Report::Success } }
            }
            7 => Operation::Reset { receipt_life: RECEIPT_LIFE },
            8 | 9 => Operation::Record { cost: units },
            10 => Operation::Usage,
            11 => {
                let start = match mark {
                    Mark::Window { start } => start,
                    _ => Time::from_us(u64::from(item.cost)),
                };
                Operation::RecordIn { cost: units, start }
            }
            _ => Operation::Credit { cost: units },
        };
    }
    let cost = [1, 1, 1, 2, 0, 3, limit.capacity().min(20)][usize::from(item.cost) % 7].min(limit.capacity());
    if item.ask % 8 == 2 && matches!(limit, Limit::Quota(_)) {
        return Operation::Extend { token, more: cost, hold: Span::from_ms(900) };
    }
    tokens.push(Token(tokens.len() as u128 + 1));
    let token = Token(tokens.len() as u128);
    match item.ask % 8 {
        0 => Operation::Peek { cost },
        1 if matches!(limit, Limit::Quota(_)) => Operation::Reserve { cost, token, hold: Span::from_ms(700) },
        _ => Operation::Charge { cost, token },
    }
}

/// Applies `attempts` Plans from 64 tasks, and returns how many were admitted and how many failed.
///
/// # Panics
///
/// If a task panics.
pub fn apply_concurrently<S: Store + Clone + Send + Sync + 'static>(
    runtime: &Runtime,
    store: &S,
    attempts: u64,
    plan: impl Fn(u64) -> Plan<'static> + Send + Sync + 'static,
) -> (u64, u64) {
    let (next, admitted, failed) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0), AtomicU64::new(0));
    let plan = Arc::new(plan);
    runtime.block_on(async {
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                let (store, next, plan) = (store.clone(), Arc::clone(&next), Arc::clone(&plan));
                tokio::spawn(async move {
                    let (mut admitted, mut failed) = (0, 0);
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= attempts {
                            return (admitted, failed);
                        }
                        match store.apply(&plan(number)).await {
                            Ok(outcome) => {
                                admitted += u64::from(outcome.answers.iter().all(Answer::is_admitted));
                            }
                            Err(_) => failed += 1,
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            let (more_admitted, more_failed) = task.await.expect("the task panicked");
            admitted.fetch_add(more_admitted, Ordering::Relaxed);
            failed.fetch_add(more_failed, Ordering::Relaxed);
        }
    });
    (admitted.into_inner(), failed.into_inner())
}

/// Charges three rules at once from many tasks, in one mix per algorithm: the first rule has the limit, the others have
/// 1.5 times the limit. `before` empties the store, `after` may inspect what remains.
///
/// # Panics
///
/// If not exactly the limit is admitted, or if the rules are charged differently.
pub fn check_three_mixed_rules<S: Store + Clone + Send + Sync + 'static>(
    runtime: &Runtime,
    store: &S,
    (limit, window): (u64, Span),
    before: impl Fn(),
    after: impl Fn(),
) {
    let counting = |limit| counting_limits(limit, window).expect("numbers in range");
    let (tight, loose) = (counting(limit), counting(limit + limit / 2));
    // Leaked, because tasks need a static lifetime.
    let keyspaces: &'static [Keyspace; 3] =
        Box::leak(Box::new(["a", "b", "c"].map(|rule| Keyspace::new("test", rule).expect("a name"))));
    for first in 0..tight.len() {
        before();
        let mixed = [tight[first], loose[(first + 3) % loose.len()], loose[(first + 7) % loose.len()]];
        let plan_of = move |number: u64| {
            let subject = SubjectHasher::new([5; 32]).subject([("user", "jane.doe@example.com")]);
            let mut plan = Plan::new();
            for index in 0..3 {
                // Each Plan has another order.
                let at = (index + number as usize) % 3;
                let operation = Operation::Charge { cost: 1, token: Token(u128::from(number) + 1) };
                plan.push(Item::new(keyspaces[at].key(subject), mixed[at], operation)).expect("three keys");
            }
            plan
        };
        assert_eq!(apply_concurrently(runtime, store, 2 * limit, plan_of), (limit, 0), "{mixed:?}");
        let mut status = plan_of(0);
        status.peek_status();
        let left = runtime.block_on(store.apply(&status)).expect("an answer").answers;
        let left: Vec<u64> = left.iter().map(|answer| answer.remaining).collect();
        assert_eq!(left, [0, limit / 2, limit / 2], "{mixed:?}");
        after();
    }
}
