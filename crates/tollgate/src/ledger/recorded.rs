//! A store whose recorded charges are journaled before they are answered.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Exactness, Outcome, Plan, Recording, Store, StoreError, Time};
use tollgate_database::ledger::{Event, Record};
use tollgate_database::{LedgerWriter, WhenDown};

use super::Ledger;
use super::records::{records_by_policy, records_of};

/// How long an answer waits for the commit, under a rule with `wait: true`.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// Forwards to its store, and journals what rules with a ledger charge and give back.
///
/// Without a ledger it only forwards.
pub struct Recorded<S> {
    store: S,
    writer: Option<Arc<LedgerWriter>>,
}

impl<S> Recorded<S> {
    /// Records what `store` does.
    pub fn new(store: S, ledger: Option<&Ledger>) -> Recorded<S> {
        Recorded { store, writer: ledger.map(|ledger| Arc::clone(ledger.writer())) }
    }

    /// Returns the store.
    pub const fn store(&self) -> &S {
        &self.store
    }
}

/// A record with the place of its entry, for the void that may follow.
fn void_of(record: &Record, seq: i64) -> Record {
    Record { event: Event::Void { seq }, ..record.clone() }
}

/// Returns the strictest recording of a Plan's items; `None` if no item is recorded.
fn recording_of(plan: &Plan<'_>) -> Option<Recording> {
    let recorded = plan.items().iter().filter_map(|item| item.ledger);
    recorded.reduce(|all, each| Recording {
        totals: all.totals && each.totals,
        wait: all.wait || each.wait,
        refuse_when_down: all.refuse_when_down || each.refuse_when_down,
    })
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Transient(Box::new(error))
}

/// The commit did not come in time. The charge is undone in the ledger.
#[derive(Debug, thiserror::Error)]
#[error("the database of the ledger did not commit within {} ms", WAIT_MAX.as_millis())]
struct CommitTooLate;

impl<S: Store + Sync> Recorded<S> {
    async fn apply_recorded(
        &self,
        plan: &Plan<'_>,
        writer: &LedgerWriter,
        recording: Recording,
    ) -> Result<Outcome, StoreError> {
        let when_down = if recording.refuse_when_down { WhenDown::Refuse } else { WhenDown::Queue };
        writer.accepts(when_down).map_err(failed)?;
        let outcome = self.store.apply(plan).await?;
        let records = records_of(plan, &outcome);
        if records.is_empty() {
            return Ok(outcome);
        }
        // The store may have taken long to answer. A charge that is not journaled must not be acknowledged.
        writer.accepts(when_down).map_err(failed)?;
        let last = writer.append(&records).map_err(failed)?;
        if recording.wait && !writer.committed(last, WAIT_MAX).await {
            let first = last - records.len() as i64 + 1;
            let voids: Vec<Record> =
                records.iter().zip(first..).map(|(record, seq)| void_of(record, seq)).collect();
            writer.append(&voids).map_err(failed)?;
            return Err(failed(CommitTooLate));
        }
        Ok(outcome)
    }
}

impl<S: Store + Sync> Store for Recorded<S> {
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        match (&self.writer, recording_of(plan)) {
            (Some(writer), Some(recording)) if plan.may_charge() => {
                self.apply_recorded(plan, writer, recording).await
            }
            _ => self.store.apply(plan).await,
        }
    }

    /// The answer is not awaited, so the ledger does not learn what was given back. A reservation ends in the ledger when its
    /// time is over.
    fn apply_unawaited(&self, plan: &Plan<'_>) {
        if let Some(writer) = self.writer.as_ref().filter(|_| recording_of(plan).is_some()) {
            writer.count_unrecorded();
        }
        self.store.apply_unawaited(plan);
    }

    fn note_policy_answer(&self, plan: &Plan<'_>, outcome: &Outcome) {
        let Some(writer) = &self.writer else { return };
        let records = records_by_policy(plan, outcome);
        if !records.is_empty() && writer.append(&records).is_err() {
            // The journal has logged why it fails. The policy admits all the same: that is what it is for.
            writer.count_unrecorded();
        }
    }

    fn exactness(&self, plan: &Plan<'_>) -> Exactness {
        self.store.exactness(plan)
    }

    /// With a ledger, a charge can be applied and then fail to be journaled.
    fn may_lose_answers(&self) -> bool {
        self.writer.is_some() || self.store.may_lose_answers()
    }

    fn has_shared_clock(&self) -> bool {
        self.store.has_shared_clock()
    }

    fn generation(&self) -> u64 {
        self.store.generation()
    }

    fn is_unapplied(&self, error: &StoreError) -> bool {
        self.store.is_unapplied(error)
    }

    fn now(&self) -> Time {
        self.store.now()
    }
}
