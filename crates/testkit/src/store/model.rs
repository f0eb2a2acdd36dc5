//! The model of Plans: one oracle per key. It copies all oracles before every step and restores those that must not change.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, ready};

use tollgate::Clock;
use tollgate_core::{
    Answer, Decline, Item, Limit, Mark, Operation, Outcome, Plan, RequestId, Span, Store, StoreError,
    Subject, Time, Verdict,
};

use crate::oracle::bucket::BucketOracle;
use crate::oracle::concurrency::ConcurrencyOracle;
use crate::oracle::fixed_window::FixedWindowOracle;
use crate::oracle::meter::MeterOracle;
use crate::oracle::penalty::PenaltyOracle;
use crate::oracle::quota::QuotaOracle;
use crate::oracle::sliding_log::SlidingLogOracle;
use crate::oracle::sliding_window::SlidingWindowOracle;
use crate::oracle::{self, Oracle};

/// A store made of oracles: slow and correct. A clone has the same state and shares nothing but the clock.
#[derive(Clone)]
pub struct Model<C> {
    clock: C,
    keys: RefCell<BTreeMap<u128, AnyOracle>>,
    /// By the hash tag of the Plan's first item, and the id.
    requests: RefCell<BTreeMap<(Subject, Subject), Remembered>>,
    /// The latest reset of each key.
    resets: RefCell<BTreeMap<u128, Time>>,
}

/// The Outcome of a Plan with a request id.
#[derive(Clone)]
struct Remembered {
    content: u128,
    until: Time,
    outcome: Outcome,
}

#[derive(Clone)]
enum AnyOracle {
    FixedWindow(FixedWindowOracle),
    SlidingWindow(SlidingWindowOracle),
    SlidingLog(SlidingLogOracle),
    Bucket(BucketOracle),
    Concurrency(ConcurrencyOracle),
    Quota(QuotaOracle),
    Meter(MeterOracle),
    Penalty(PenaltyOracle),
}

impl AnyOracle {
    /// Loses the account's state, as a reset does.
    fn lose(&mut self) {
        match self {
            AnyOracle::FixedWindow(oracle) => oracle.lose(),
            AnyOracle::SlidingWindow(oracle) => oracle.lose(),
            AnyOracle::SlidingLog(oracle) => oracle.lose(),
            AnyOracle::Bucket(oracle) => oracle.lose(),
            AnyOracle::Concurrency(oracle) => oracle.lose(),
            AnyOracle::Quota(oracle) => oracle.lose(),
            AnyOracle::Meter(oracle) => oracle.lose(),
            AnyOracle::Penalty(oracle) => oracle.lose(),
        }
    }
}

impl<C: Clock> Model<C> {
    /// Creates an empty model on this clock.
    pub fn new(clock: C) -> Model<C> {
        Model { clock, keys: RefCell::default(), requests: RefCell::default(), resets: RefCell::default() }
    }

    /// Applies a Plan and returns what every store must return.
    pub fn apply_now(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        let Some((request, first)) = plan.request_id().zip(plan.items().first()) else {
            return Ok(self.evaluate(plan));
        };
        let id = (first.key.tag(), request.id);
        let now = self.clock.now();
        match self.requests.borrow().get(&id).filter(|known| now < known.until) {
            Some(known) if known.content == request.content => {
                return Ok(Outcome { replayed: true, ..known.outcome.clone() });
            }
            Some(_) => return Err(StoreError::IdReused),
            None => (),
        }
        let reset_at = self.resets.borrow().get(&first.key.fingerprint()).copied();
        if let Some(why) = decline_return(request, now, reset_at) {
            let status = step(&mut self.keys.borrow_mut(), first, Operation::Peek { cost: 0 }, now);
            let answer = Answer { verdict: Verdict::Declined(why), ..status };
            return Ok(Outcome {
                now,
                answers: [answer].into_iter().collect(),
                replayed: false,
                revisions: Vec::new(),
            });
        }
        let outcome = self.evaluate(plan);
        if took_effect(plan, &outcome) {
            let used_at = request.charged_at.map_or(now, |charged_at| now.max(charged_at));
            let (content, until) = (request.content, used_at.plus(request.horizon));
            let remembered = Remembered { content, until, outcome: outcome.clone() };
            self.requests.borrow_mut().insert(id, remembered);
        }
        Ok(outcome)
    }

    fn evaluate(&self, plan: &Plan<'_>) -> Outcome {
        let now = self.clock.now();
        let mut keys = self.keys.borrow_mut();
        let before = keys.clone();
        let mut answers: Vec<Answer> =
            plan.items().iter().map(|item| step(&mut keys, item, item.operation, now)).collect();

        let blocked = blocked(plan, &answers);
        for (item, answer) in plan.items().iter().zip(&mut answers) {
            let counts = if answer.is_refused() { item.blocking } else { !blocked };
            if !counts {
                restore(&mut keys, &before, item);
            }
            if blocked && answer.is_admitted() {
                let status = step(&mut keys, item, Operation::Peek { cost: 0 }, now);
                let admitted = Verdict::Admitted { delay: Span::ZERO };
                *answer = Answer { verdict: admitted, mark: Mark::None, ..status };
            }
        }
        for item in plan.items() {
            if let Operation::Reset { receipt_life } = item.operation
                && receipt_life > Span::ZERO
            {
                let mut resets = self.resets.borrow_mut();
                let latest = resets.entry(item.key.fingerprint()).or_insert(now);
                *latest = now.max(*latest);
            }
        }
        Outcome { now, answers: answers.into_iter().collect(), replayed: false, revisions: Vec::new() }
    }
}

/// Why a receipt is declined: it is too old, or its key was reset since the charge.
fn decline_return(request: &RequestId, now: Time, reset_at: Option<Time>) -> Option<Decline> {
    let charged_at = request.charged_at?;
    if now >= charged_at.plus(request.horizon) {
        Some(Decline::ReceiptExpired)
    } else if reset_at >= Some(charged_at) {
        Some(Decline::ResetSince)
    } else {
        None
    }
}

fn blocked(plan: &Plan<'_>, answers: &[Answer]) -> bool {
    let refuses = |item: &Item<'_>, answer: &Answer| {
        item.asks_for_admission() && item.blocking && !answer.is_admitted()
    };
    plan.items().iter().zip(answers).any(|(item, answer)| refuses(item, answer))
}

/// Whether the Plan changed consumption. A refusal and an admission of cost 0 change nothing.
fn took_effect(plan: &Plan<'_>, outcome: &Outcome) -> bool {
    let changed = |item: &Item<'_>, answer: &Answer| match (item.operation, answer.verdict) {
        (_, Verdict::Done { .. } | Verdict::BookedLate { .. }) => true,
        (Operation::Record { cost } | Operation::RecordIn { cost, .. }, Verdict::Recorded { .. }) => cost > 0,
        (Operation::Extend { more, .. }, Verdict::Admitted { .. }) => more > 0,
        (Operation::Charge { cost, .. } | Operation::Reserve { cost, .. }, Verdict::Admitted { .. }) => {
            cost > 0 && !matches!(item.limit, Limit::Penalty(_))
        }
        _ => false,
    };
    let mut items = plan.items().iter().zip(&outcome.answers);
    !blocked(plan, &outcome.answers) && items.any(|(item, answer)| changed(item, answer))
}

impl<C: Clock> Store for Model<C> {
    fn apply(&self, plan: &Plan<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        ready(self.apply_now(plan))
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        drop(self.apply_now(plan));
    }

    fn now(&self) -> Time {
        self.clock.now()
    }
}

fn restore(keys: &mut BTreeMap<u128, AnyOracle>, before: &BTreeMap<u128, AnyOracle>, item: &Item<'_>) {
    let key = item.key.fingerprint();
    match before.get(&key) {
        Some(oracle) => keys.insert(key, oracle.clone()),
        None => keys.remove(&key),
    };
}

fn step(keys: &mut BTreeMap<u128, AnyOracle>, item: &Item<'_>, operation: Operation, now: Time) -> Answer {
    let key = item.key.fingerprint();
    if operation == Operation::Usage && !matches!(item.limit, Limit::Quota(_) | Limit::Concurrency(_)) {
        // These hold nothing: what is missing from the limit was used.
        let answer = step(keys, item, Operation::Record { cost: 0 }, now);
        let Verdict::Recorded { overdraft, .. } = answer.verdict else { return answer };
        let used = answer.limit - answer.remaining + overdraft;
        return Answer { verdict: Verdict::Usage { used, held: 0 }, ..answer };
    }
    // Only quotas have periods.
    if let (Operation::RecordIn { cost, .. }, false) = (operation, matches!(item.limit, Limit::Quota(_))) {
        return step(keys, item, Operation::Record { cost }, now);
    }
    if let Operation::Reset { .. } = operation {
        if let Some(oracle) = keys.get_mut(&key) {
            oracle.lose();
        }
        let status = step(&mut BTreeMap::new(), item, Operation::Peek { cost: 0 }, now);
        return Answer { verdict: Verdict::Done { amount: 0 }, ..status };
    }
    macro_rules! step {
        ($kind:ident, $numbers:expr) => {{
            // State of another algorithm is ignored.
            if !matches!(keys.get(&key), Some(AnyOracle::$kind(_))) {
                keys.insert(key, AnyOracle::$kind(Default::default()));
            }
            let Some(AnyOracle::$kind(oracle)) = keys.get_mut(&key) else { unreachable!("just made") };
            oracle.step(&$numbers, now, &operation).answer
        }};
    }
    match &item.limit {
        Limit::FixedWindow(limit) => step!(
            FixedWindow,
            oracle::fixed_window::Numbers { limit: limit.limit(), window_us: limit.window().us() }
        ),
        Limit::SlidingWindow(limit) => step!(
            SlidingWindow,
            oracle::sliding_window::Numbers {
                limit: limit.limit(),
                window_us: limit.window().us(),
                buckets: limit.buckets(),
                counting: limit.counting(),
            }
        ),
        Limit::SlidingLog(limit) => step!(
            SlidingLog,
            oracle::sliding_log::Numbers {
                limit: limit.limit(),
                window_us: limit.window().us(),
                entries: limit.entries(),
            }
        ),
        Limit::Bucket(limit) => {
            let (rate, ticks) = limit.rate();
            let kind = limit.kind();
            let queue = u64::from(kind == tollgate_core::algorithm::bucket::BucketKind::Queue);
            step!(
                Bucket,
                oracle::bucket::Numbers {
                    rate,
                    period_us: ticks * limit.tick().us(),
                    capacity: limit.capacity() - queue,
                    kind,
                }
            )
        }
        Limit::Concurrency(limit) => step!(
            Concurrency,
            oracle::concurrency::Numbers { limit: limit.limit(), lease_us: limit.lease().us() }
        ),
        Limit::Quota(limit) => step!(
            Quota,
            oracle::quota::Numbers {
                allowance: limit.allowance(),
                grace: limit.grace(),
                period: limit.period(),
            }
        ),
        Limit::Meter(limit) => step!(
            Meter,
            oracle::meter::Numbers { limit: Some(limit.limit()), expiry_us: limit.expiry().us() }
        ),
        Limit::Penalty(limit) => step!(Penalty, limit.numbers()),
    }
}
