//! A store whose recorded charges are journaled before they are answered, and whose state follows the ledger.

use std::sync::{Arc, Once};
use std::time::Duration;

use tollgate_core::{
    Decline, Exactness, Item, Operation, Outcome, Plan, Recording, Store, StoreError, Time, Verdict,
};
use tollgate_database::ledger::{Event, Record};
use tollgate_database::{LedgerWriter, WhenDown};

use super::Ledger;
use super::followed::Followed;
use super::records::{records_by_policy, records_of, subject_of};
use super::restore::restore_of;

/// How long an answer waits for the commit, under a rule with `wait: true`.
const WAIT_MAX: Duration = Duration::from_millis(500);
/// A database that answers look-ups is not away, even if they delay everything else.
const AWAY_MIN: Duration = Duration::from_secs(3);
/// How often a Plan is sent whose state had to be restored.
const TRIES: usize = 3;

/// Forwards to its store, and journals what rules with a ledger charge and give back. State that the store has lost is
/// restored from the ledger before it is believed.
///
/// Without a ledger it only forwards.
pub struct Recorded<S> {
    store: Arc<S>,
    gate: Option<Gate>,
}

/// The ledger, and the keys that this process keeps equal to it.
struct Gate {
    ledger: Ledger,
    followed: Arc<Followed>,
    started: Once,
}

impl<S> Recorded<S> {
    /// Records what `store` does.
    pub fn new(store: S, ledger: Option<&Ledger>) -> Recorded<S> {
        let gate = ledger.map(|ledger| Gate {
            ledger: ledger.clone(),
            followed: Arc::new(Followed::new(ledger.clone())),
            started: Once::new(),
        });
        Recorded { store: Arc::new(store), gate }
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        &self.store
    }
}

/// Returns the record that undoes the entry `seq`. It has the revision of that entry, so that a look at the gate includes both
/// or neither. Otherwise, a charge that is undone and then posted again for a repeated answer would count twice as later.
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
        stamped: all.stamped || each.stamped,
    })
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Transient(Box::new(error))
}

/// The commit did not come in time. The charge is undone in the ledger.
#[derive(Debug, thiserror::Error)]
#[error("the database of the ledger did not commit within {} ms", WAIT_MAX.as_millis())]
struct CommitTooLate;

/// The gate has no state that it can trust, although it was restored.
#[derive(Debug, thiserror::Error)]
#[error(
    "the state of a recorded rule was restored {TRIES} times and is still not verified; may the store's user run `INFO`?"
)]
struct StillUnverified;

/// A new epoch must be random.
#[derive(Debug, thiserror::Error)]
#[error("the system has no random numbers")]
struct NoRandomness;

/// Returns the indexes of the items whose state must be restored.
fn unverified(outcome: &Outcome) -> impl Iterator<Item = usize> + '_ {
    let unverified = Verdict::Declined(Decline::Unverified);
    let answers = outcome.answers.iter().enumerate();
    answers.filter(move |(_, answer)| answer.verdict == unverified).map(|(index, _)| index)
}

impl<S: Store + Send + Sync + 'static> Recorded<S> {
    async fn apply_recorded(
        &self,
        plan: &Plan<'_>,
        gate: &Gate,
        recording: Recording,
    ) -> Result<Outcome, StoreError> {
        let writer = gate.ledger.writer();
        gate.start(&self.store);
        let plan = &plan.stamped();
        if !plan.may_charge() {
            return self.apply_verified(plan, gate).await;
        }
        let when_down = if recording.refuse_when_down { WhenDown::Refuse } else { WhenDown::Queue };
        writer.accepts(when_down).map_err(failed)?;
        // Open until its records are in the journal.
        let _call = writer.begin_call(i64::try_from(self.store.now().us()).unwrap_or(i64::MAX));
        gate.followed.note_horizon(plan);
        let outcome = self.apply_verified(plan, gate).await?;
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

    /// Applies a Plan on state that is verified: what the store has lost is restored first.
    async fn apply_verified(&self, plan: &Plan<'_>, gate: &Gate) -> Result<Outcome, StoreError> {
        if plan.items().len() > 1 && plan.items().iter().any(|item| !item.asks_for_admission()) {
            // Items of a follow-up are independent, and in a cluster each hash slot applies its own. So all state is verified
            // before any of it changes.
            self.apply_tries(&plan.usage(), gate).await?;
        }
        self.apply_tries(plan, gate).await
    }

    async fn apply_tries(&self, plan: &Plan<'_>, gate: &Gate) -> Result<Outcome, StoreError> {
        for _ in 0..TRIES {
            let done = self.store.apply(plan).await;
            // Also if the answer is lost: then the store may have counted what no entry says.
            gate.followed.touch_all(plan);
            let outcome = done?;
            if unverified(&outcome).next().is_none() {
                return Ok(outcome);
            }
            for index in unverified(&outcome) {
                self.restore(&plan.items()[index], outcome.now, gate).await?;
            }
        }
        Err(failed(StillUnverified))
    }

    /// Looks the account of an item up in the ledger, and writes it to the store.
    async fn restore(&self, item: &Item<'_>, now: Time, gate: &Gate) -> Result<(), StoreError> {
        let writer: &LedgerWriter = gate.ledger.writer();
        let refuses = item.ledger.is_some_and(|recording| recording.refuse_when_down);
        let at_us = i64::try_from(now.us()).unwrap_or(i64::MAX);
        let found = match gate.ledger.look_ups().find(subject_of(&item.key), at_us).await {
            Ok(found) => Some(found),
            Err(error) if refuses => return Err(failed(error)),
            // While the database is away, what is absent counts as nothing. With a database that is only slow, it is not.
            Err(_) if writer.is_silent() && !gate.ledger.look_ups().has_answered_within(AWAY_MIN) => None,
            Err(error) => return Err(failed(error)),
        };
        let epoch = getrandom::u32().map_err(|_| failed(NoRandomness))? >> 1;
        let restore = restore_of(item, now, found.as_ref().map(Option::as_ref), epoch);
        let operation = Operation::Restore(restore);
        let plan = Plan::of(Item { operation, blocking: true, ..*item }).map_err(failed)?;
        let outcome = self.store.apply(&plan).await?;
        gate.followed.restored(item, &restore, &outcome, writer)
    }
}

impl Gate {
    /// Starts the task that keeps the gate equal to the ledger, once.
    fn start<S: Store + Send + Sync + 'static>(&self, store: &Arc<S>) {
        self.started.call_once(|| {
            let clock = Arc::downgrade(store);
            let us = |time: Time| i64::try_from(time.us()).unwrap_or(i64::MAX);
            let now = move || clock.upgrade().map_or(i64::MAX, |store| us(store.now()));
            self.ledger.writer().set_clock(Arc::new(now));
            let (store, followed) = (Arc::downgrade(store), Arc::downgrade(&self.followed));
            drop(self.ledger.runtime().spawn(super::follow::run(store, followed)));
        });
    }
}

impl<S: Store + Send + Sync + 'static> Store for Recorded<S> {
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        match (&self.gate, recording_of(plan)) {
            (Some(gate), Some(recording)) => self.apply_recorded(plan, gate, recording).await,
            _ => self.store.apply(plan).await,
        }
    }

    /// The answer is not awaited, so the ledger does not learn what was given back. The gate is corrected later. A
    /// reservation ends in the ledger when its time is over.
    fn apply_unawaited(&self, plan: &Plan<'_>) {
        match self.gate.as_ref().filter(|_| recording_of(plan).is_some()) {
            Some(gate) => {
                gate.ledger.writer().count_unrecorded();
                let plan = plan.stamped();
                self.store.apply_unawaited(&plan);
                gate.followed.touch_all(&plan);
            }
            None => self.store.apply_unawaited(plan),
        }
    }

    fn note_policy_answer(&self, plan: &Plan<'_>, outcome: &Outcome) {
        let Some(gate) = &self.gate else { return };
        let records = records_by_policy(plan, outcome);
        gate.followed.touch_all(&plan.stamped());
        if !records.is_empty() && gate.ledger.writer().append(&records).is_err() {
            // The journal has logged why it fails. The policy admits all the same: that is what it is for.
            gate.ledger.writer().count_unrecorded();
        }
    }

    fn exactness(&self, plan: &Plan<'_>) -> Exactness {
        self.store.exactness(plan)
    }

    /// With a ledger, a charge can be applied and then fail to be journaled.
    fn may_lose_answers(&self) -> bool {
        self.gate.is_some() || self.store.may_lose_answers()
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
