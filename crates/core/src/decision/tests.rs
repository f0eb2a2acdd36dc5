use super::*;
use crate::algorithm::bucket::Bucket;
use crate::algorithm::concurrency::Concurrency;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::meter::Meter;
use crate::algorithm::penalty::{Penalty, PenaltyNumbers};
use crate::algorithm::quota::{Quota, QuotaPeriod};
use crate::algorithm::sliding_log::SlidingLog;
use crate::algorithm::sliding_window::{Counting, SlidingWindow};
use crate::key::{Keyspace, Subject, SubjectHasher};
use crate::limit::Limit;
use crate::plan::PlanError;
use crate::plan::evaluate::evaluate;
use crate::plan::failure::{NoLocalAnswers, answer_by_policies};
use crate::plan::operation::{Operation, Token};
use crate::plan::receipt::{Nonce, Receipt};
use crate::plan::recording::Recording;
use crate::state::State;
use crate::store::StoreError;
use crate::time::calendar::{Calendar, Period, Periods};
use crate::time::{EXACT_MAX, Span};

const RULES: [&str; 4] = ["a", "b", "c", "d"];
const NOW: Time = Time::from_us(1_700_000_000_000_001);

fn window(limit: u64, secs: u64) -> Limit {
    Limit::FixedWindow(FixedWindow::new(limit, Span::from_secs(secs)).unwrap())
}

fn keyspaces() -> Vec<Keyspace> {
    RULES.iter().map(|rule| Keyspace::new("test", rule).unwrap()).collect()
}

fn item<'r>(keyspace: &'r Keyspace, limit: Limit, cost: u64) -> Item<'r> {
    let key = keyspace.key(SubjectHasher::new([1; 32]).subject([("user", "u")]));
    let rule_index = RULES.iter().position(|rule| *rule == keyspace.rule()).unwrap() as u32;
    Item { rule_index, ..Item::new(key, limit, Operation::charge(cost)) }
}

fn plan<'r>(items: impl IntoIterator<Item = Item<'r>>) -> Plan<'r> {
    let mut plan = Plan::new();
    items.into_iter().for_each(|item| plan.push(item).unwrap());
    plan
}

/// Decides `plan` after `used` units of each rule were charged.
fn decide(plan: &Plan<'_>, used: &[u64]) -> PlanDecision {
    let states: Vec<Option<State>> = plan
        .items()
        .iter()
        .zip(used)
        .map(|(item, &used)| {
            let mut state = None;
            for _ in 0..used {
                let write = item.limit.decide(state.as_ref(), NOW, &Operation::charge(1)).write.unwrap();
                State::commit(&mut state, write.change);
            }
            state
        })
        .collect();
    let outcome = evaluate(plan, NOW, |index| states.get(index)?.as_ref()).outcome;
    PlanDecision::new(plan, &outcome).unwrap()
}

#[test]
fn a_request_that_matches_no_rule_is_allowed_as_unmatched() {
    let decision = decide(&Plan::new(), &[]);
    assert!(decision.allowed);
    assert_eq!((decision.source, decision.headline), (Source::Unmatched, None));
}

#[test]
fn headline_of_a_refusal_is_the_refusing_rule_with_the_longest_wait() {
    let keyspaces = keyspaces();
    let plan = plan([
        item(&keyspaces[0], window(1, 10), 1),
        item(&keyspaces[1], window(1, 60), 1),
        item(&keyspaces[2], window(5, 3_600), 1),
        item(&keyspaces[3], window(1, 60), 1),
    ]);
    let decision = decide(&plan, &[1, 1, 0, 1]);
    assert!(!decision.allowed);
    assert_eq!(RULES[decision.headline().unwrap().rule_index as usize], "b", "the first of equal waits");
    assert!(decision.rules[2].allowed, "each rule has its own result");
}

#[test]
fn headline_of_an_admission_is_the_rule_with_the_least_left_for_its_cost() {
    let keyspaces = keyspaces();
    let plan = plan([
        item(&keyspaces[0], window(10, 60), 1),
        item(&keyspaces[1], window(20, 60), 5),
        item(&keyspaces[2], window(4, 60), 1),
    ]);
    let decision = decide(&plan, &[0, 0, 0]);
    assert!(decision.allowed);
    assert_eq!(
        RULES[decision.headline().unwrap().rule_index as usize],
        "b",
        "15 left at 5 each and 3 left at 1 each: the first of equals"
    );
}

#[test]
fn waits_round_up_and_remaining_rounds_down() {
    let keyspaces = keyspaces();
    let bucket = Limit::Bucket(Bucket::tokens(3, Span::from_us(10_000), 1).unwrap());
    let plan = plan([item(&keyspaces[0], bucket, 1)]);
    let numbers = decide(&plan, &[1]).rules[0].numbers.unwrap();
    // A third of 10 ms is 3.33 ms.
    assert_eq!((numbers.retry_after, numbers.remaining), (RetryAfter::Ms(4), 0));
    assert_eq!(numbers.reset_after_ms, 4);
}

#[test]
fn a_shadow_rule_is_reported_and_never_refuses() {
    let keyspaces = keyspaces();
    let mut shadow = item(&keyspaces[0], window(1, 60), 1);
    shadow.blocking = false;
    let plan = plan([shadow, item(&keyspaces[1], window(9, 60), 1)]);
    let decision = decide(&plan, &[1, 0]);
    assert!(decision.allowed);
    assert_eq!(
        RULES[decision.headline().unwrap().rule_index as usize],
        "b",
        "a shadow rule is never the headline"
    );
    assert_eq!(decision.shadow_rejected().map(|rule| rule.rule_index).collect::<Vec<_>>(), [0]);
}

#[test]
fn a_shadow_rule_whose_capacity_is_below_the_cost_reports_it_and_refuses_nothing() {
    let keyspaces = keyspaces();
    let shadow = Item { blocking: false, ..item(&keyspaces[0], window(3, 60), 5) };
    let decision = decide(&plan([shadow, item(&keyspaces[1], window(9, 60), 5)]), &[0, 0]);
    assert!(decision.allowed);
    let rejected: Vec<_> = decision.shadow_rejected().map(|rule| rule.numbers.unwrap().retry_after).collect();
    assert_eq!(rejected, [RetryAfter::Never]);
}

#[test]
fn exactness_is_the_worst_class_of_the_blocking_rules() {
    let keyspaces = keyspaces();
    let sliding =
        |counting| Limit::SlidingWindow(SlidingWindow::new(9, Span::from_secs(6), 3, counting).unwrap());
    let mut items = vec![item(&keyspaces[0], window(9, 60), 1)];
    assert_eq!(decide(&plan(items.clone()), &[]).exactness, Exactness::Exact);
    items.push(item(&keyspaces[1], sliding(Counting::Strict), 1));
    assert_eq!(decide(&plan(items.clone()), &[]).exactness, Exactness::Conservative);
    items.push(item(&keyspaces[2], sliding(Counting::Interpolated), 1));
    assert_eq!(decide(&plan(items.clone()), &[]).exactness, Exactness::Bounded);
    items[2].blocking = false;
    assert_eq!(decide(&plan(items), &[]).exactness, Exactness::Conservative);
}

#[test]
fn failure_policies_decide_when_the_store_cannot() {
    let keyspaces = keyspaces();
    let down = || StoreError::Transient("connection refused".into());
    let of = |policies: &[OnFailure], error: StoreError| {
        let items = policies
            .iter()
            .zip(&keyspaces)
            .map(|(&on_failure, keyspace)| Item { on_failure, ..item(keyspace, window(1, 60), 1) });
        let plan = plan(items);
        let outcome = answer_by_policies(&plan, &error, NOW, &NoLocalAnswers);
        let decision = PlanDecision::new(&plan, &outcome).unwrap();
        (decision.allowed, decision.degraded, decision.source)
    };
    use OnFailure::{Closed, Degraded, Open};
    assert_eq!(of(&[Open], down()), (true, true, Source::Fallback));
    assert_eq!(of(&[Open, Closed], down()), (false, false, Source::Fallback));
    assert_eq!(of(&[Open, Degraded], down()), (true, true, Source::Fallback));
    let wrong_password = StoreError::Misconfigured("WRONGPASS".into());
    assert_eq!(
        of(&[Open, Degraded], wrong_password),
        (false, false, Source::Fallback),
        "never open on bad credentials"
    );
}

#[test]
fn a_quota_whose_periods_do_not_cover_now_is_undecided_and_not_refused() {
    let keyspaces = keyspaces();
    let periods = Calendar::new(Period::Day, "UTC").unwrap().around(Time::from_us(86_400_000_000 * 10));
    let quota = Limit::Quota(Quota::new(5, 0, QuotaPeriod::Calendar(periods)).unwrap());
    let plan = plan([item(&keyspaces[0], quota, 1)]);
    let evaluation = evaluate(&plan, NOW, |_| None);
    assert!(evaluation.writes.is_empty());
    let undecided = PlanDecision::new(&plan, &evaluation.outcome).unwrap_err();
    assert_eq!(undecided.why, Decline::Recompute { at: NOW });
}

#[test]
fn a_plan_rejects_invalid_items() {
    let keyspaces = keyspaces();
    let reject = |[first, second]: [Item<'_>; 2]| {
        let mut plan = Plan::new();
        plan.push(first).unwrap();
        plan.push(second).unwrap_err()
    };
    let valid = || item(&keyspaces[0], window(5, 60), 1);
    let on = |operation| Item { operation, ..item(&keyspaces[1], window(5, 60), 1) };
    let error = reject([valid(), on(Operation::charge(6))]);
    assert_eq!(error, PlanError::CostAboveCapacity { rule: "b".into(), cost: 6, capacity: 5 });
    assert!(error.to_string().contains('6') && error.to_string().contains('5'), "{error} names both numbers");
    assert!(matches!(reject([valid(), valid()]), PlanError::DuplicateKey { .. }));
    assert!(matches!(
        reject([valid(), on(Operation::Reset { receipt_life: Span::ZERO })]),
        PlanError::Mixed { .. }
    ));
    let too_large = Operation::refund(Mark::Counter, EXACT_MAX + 1);
    assert!(matches!(reject([valid(), on(too_large)]), PlanError::CostTooLarge { .. }));
    let without_token = Operation::Reserve { cost: 1, token: Token::NONE, hold: Span::from_secs(1) };
    assert!(matches!(reject([valid(), on(without_token)]), PlanError::TokenMissing { .. }));
}

#[test]
fn receipts_of_every_limit_round_trip_through_bytes_and_undo_the_charge() {
    let second = Span::from_secs(1);
    let calendar = Periods::new([0, 10, 20, 30].map(Time::from_us)).unwrap();
    let penalty = PenaltyNumbers {
        free: 2,
        base: second,
        factor: 2,
        longest: Span::from_secs(9),
        memory: second,
        count_refused: true,
    };
    let limits = [
        window(5, 60),
        Limit::SlidingWindow(SlidingWindow::new(5, second, 4, Counting::Strict).unwrap()),
        Limit::SlidingWindow(SlidingWindow::new(6, second, 2, Counting::Interpolated).unwrap()),
        Limit::SlidingLog(SlidingLog::with_entries(5, second, 3).unwrap()),
        Limit::Bucket(Bucket::tokens(3, second, 6).unwrap()),
        // In milliseconds.
        Limit::Bucket(Bucket::meter(7, Span::from_secs(86_400), 1 << 25).unwrap()),
        Limit::Bucket(Bucket::queue(5, second, 4).unwrap()),
        Limit::Concurrency(Concurrency::new(3, second).unwrap()),
        Limit::Quota(Quota::new(9, 1, QuotaPeriod::Rolling(second)).unwrap()),
        Limit::Quota(Quota::new(9, 1, QuotaPeriod::Calendar(calendar)).unwrap()),
        Limit::Meter(Meter::new(Some(9), None).unwrap()),
        Limit::Penalty(Penalty::new(penalty).unwrap()),
        // In milliseconds only because of the room for records.
        Limit::Bucket(Bucket::tokens(7, Span::from_secs(86_400), 40_000).unwrap().with_room(16).unwrap()),
    ];
    let waits = Recording { wait: true, ..Recording::default() };
    let recordings = [None, Some(waits), Some(Recording { totals: true, wait: false, ..waits })];
    let at = Time::from_us(7);
    let marks = [Mark::Window { start: at }, Mark::At { time: at }, Mark::Counter];
    let cases = limits.into_iter().flat_map(|limit| marks.map(|mark| (limit, mark)));
    for (number, (limit, mark)) in cases.enumerate() {
        let receipt = Receipt {
            namespace: "test".to_owned(),
            rule: "rule".to_owned(),
            tag: Subject::from_u128(1 << 127 | 2),
            subject: Subject::from_u128(3 << 64 | 4),
            limit,
            mark,
            charged_at: Time::from_us(8),
            cost: 5,
            fixed_cost: number % 2 == 1,
            blocking: number % 3 == 1,
            ledger: recordings[number % 3],
            nonce: Nonce(6 << 64 | 7),
        };
        let bytes = receipt.encode();
        assert_eq!(Receipt::decode(&bytes).as_ref(), Ok(&receipt));
        assert_eq!(receipt.undo(9), Operation::Refund { mark, cost: 5, amount: 5 });
        assert_eq!(receipt.undo(2), Operation::Refund { mark, cost: 5, amount: 2 });
        for cut in 0..bytes.len() {
            assert!(Receipt::decode(&bytes[..cut]).is_err(), "a truncated receipt is invalid");
        }
    }
}
