//! A recorded run of the failure policies: the real guard over a store that goes away and comes back, on virtual time.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tollgate::guard::{FleetSize, Guarded, MonotonicClock};
use tollgate::{Clock, ManualClock, MemoryStore};
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::{
    Item, Keyspace, Limit, LimitError, OnFailure, Operation, Outcome, Plan, Span, Store, StoreError, Subject,
    Time, Verdict,
};

/// When the store is away, in seconds of the run.
pub(crate) const AWAY: std::ops::Range<u64> = 20..45;
pub(crate) const RUN_S: u64 = 70;
/// Checks of one subject in a second.
pub(crate) const RATE: u64 = 20;
/// Units per window of every limit but the quota.
pub(crate) const LIMIT: u64 = 100;
pub(crate) const WINDOW: Span = Span::from_secs(10);
/// Units per day of the quota.
pub(crate) const QUOTA: u64 = 2_000;
const START: Time = Time::from_us(1_700_000_000_000_000);

/// What one policy did.
pub(crate) struct Run {
    /// As a rules file writes it.
    pub(crate) policy: &'static str,
    pub(crate) limit: String,
    /// Admissions in each second.
    pub(crate) admitted: Vec<u64>,
    /// Units that the store counts after each second.
    pub(crate) counted: Vec<u64>,
    /// Units that were admitted while the store was away.
    pub(crate) admitted_away: u64,
    /// Units that were booked when it was back.
    pub(crate) posted: u64,
}

/// Runs all policies.
pub(crate) fn runs() -> Result<Vec<Run>, LimitError> {
    let window = Limit::FixedWindow(FixedWindow::new(LIMIT, WINDOW)?);
    let quota = Limit::Quota(Quota::new(QUOTA, 0, QuotaPeriod::Rolling(Span::from_secs(86_400)))?);
    let quarter = OnFailure::Local { percent: Some(25) };
    let fair = OnFailure::Local { percent: None };
    let cap = OnFailure::Cap { amount: 5, period: Span::from_secs(1) };
    let window_name = format!("fixed-window: {LIMIT}/10s");
    [
        ("closed", window, OnFailure::Closed),
        ("open", window, OnFailure::Open),
        ("degraded", window, OnFailure::Degraded),
        ("local 25%", window, quarter),
        ("local fair", window, fair),
        ("cap 5/s", window, cap),
        ("local 25%", quota, quarter),
    ]
    .into_iter()
    .map(|(policy, limit, on_failure)| {
        let name = if limit == quota { format!("quota: {QUOTA}/day") } else { window_name.clone() };
        Ok(run(policy, name, limit, on_failure))
    })
    .collect()
}

fn run(policy: &'static str, name: String, limit: Limit, on_failure: OnFailure) -> Run {
    let clock = ManualClock::at(START);
    let is_away = Arc::new(AtomicBool::new(false));
    let store = Switched { store: MemoryStore::with_clock(clock.clone()), is_away: Arc::clone(&is_away) };
    let (origin, shown) = (Instant::now(), clock.clone());
    let monotonic =
        MonotonicClock::simulated(move || origin + Duration::from_micros(shown.now().us() - START.us()));
    // Four servers, of which one is shown.
    let guarded = Guarded::new(store, Arc::new(FleetSize::stated(4))).with_clock(monotonic);
    let keyspace = Keyspace::new("docs", "run").expect("a valid name");
    let key = keyspace.key(Subject::from_u128(1));
    let plan = |operation| Plan::of(Item { on_failure, ..Item::new(key, limit, operation) });
    let (check, usage) = (plan(Operation::charge(1)), plan(Operation::Usage));
    let (check, usage) = (check.expect("a valid Plan"), usage.expect("a valid Plan"));
    let mut run = Run { policy, limit: name, admitted: vec![], counted: vec![], admitted_away: 0, posted: 0 };
    for second in 0..RUN_S {
        is_away.store(AWAY.contains(&second), Ordering::Relaxed);
        let mut admitted = 0;
        for _ in 0..RATE {
            let outcome = ready(guarded.apply(&check));
            admitted += u64::from(outcome.is_ok_and(|outcome| outcome.answers[0].is_admitted()));
            clock.advance(Duration::from_millis(1_000 / RATE));
        }
        ready(guarded.maintain());
        if AWAY.contains(&second) {
            run.admitted_away += admitted;
        }
        run.admitted.push(admitted);
        let counted = ready(guarded.store().store.apply(&usage)).map(|outcome| outcome.answers[0].verdict);
        run.counted.push(match counted {
            Ok(Verdict::Usage { used, .. }) => used,
            _ => 0,
        });
    }
    run.posted = guarded.post_counts().posted_units;
    run
}

/// The table of the page.
pub(crate) fn table(runs: &[Run]) -> String {
    let asked = RATE * (AWAY.end - AWAY.start);
    let mut table = vec![
        "| `on_failure` | limit | asked while away | admitted | refused | booked when back |".to_owned(),
        "|---|---|---|---|---|---|".to_owned(),
    ];
    table.extend(runs.iter().map(|run| {
        let Run { policy, limit, admitted_away, posted, .. } = run;
        format!(
            "| `{policy}` | `{limit}` | {asked} | {admitted_away} | {} | {posted} |",
            asked - admitted_away
        )
    }));
    table.join("\n")
}

/// A store that can be switched off. Its callers know that their Plans were not applied.
struct Switched {
    store: MemoryStore<ManualClock>,
    is_away: Arc<AtomicBool>,
}

impl Store for Switched {
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        if self.is_away.load(Ordering::Relaxed) {
            return Err(StoreError::Transient("connection refused".into()));
        }
        self.store.apply(plan).await
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        self.store.apply_unawaited(plan);
    }

    fn is_unapplied(&self, error: &StoreError) -> bool {
        matches!(error, StoreError::Transient(_))
    }

    fn now(&self) -> Time {
        Store::now(&self.store)
    }
}

/// The output of a future that waits for nothing.
fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("the memory store answers without waiting"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_admits_what_the_page_says() {
        let runs = runs().expect("the limits are valid");
        let away = |number: usize| (runs[number].admitted_away, runs[number].posted);
        let asked = RATE * (AWAY.end - AWAY.start);
        assert_eq!((away(0), away(1), away(2)), ((0, 0), (asked, 0), (asked, 0)));
        // Three windows have begun while the store was away, each with a quarter of its limit.
        assert_eq!((away(3), away(4)), ((75, 0), (75, 0)));
        // A bucket of five, and five in each second.
        assert_eq!(away(5), (129, 0));
        let (local, posted) = away(6);
        assert!(local > 0 && local == posted, "{local} admitted, {posted} booked");
        let last = |run: &Run| run.counted.last().copied();
        let stored: u64 = runs[6].admitted.iter().sum();
        assert_eq!(last(&runs[6]), Some(stored), "nothing is lost and nothing is counted twice");
    }
}
