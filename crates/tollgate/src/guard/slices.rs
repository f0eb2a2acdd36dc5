//! Slices: this server books a part of a limit in the store and spends it without asking.
//!
//! A check that finds no units in a grant goes to the store and books the next grant in the same charge. If the store
//! refuses the larger charge, the check is sent again with its own cost. Conservative: units that one server holds are
//! refused to the others, until they are spent or returned.
//!
//! `grants.rs` keeps the grants, `sizing.rs` says how large they are, `returns.rs` gives unspent units back.

mod grants;
mod returns;
mod sizing;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use smallvec::SmallVec;
use tollgate_core::plan::answer::AnsweredBy;
use tollgate_core::plan::layers::LayerView;
use tollgate_core::{Answer, Item, Mark, Operation, Outcome, Plan, Span, Store, StoreError, Verdict};

use super::{FleetSize, MonotonicClock};
use crate::engine::new_nonce;
use grants::{AccountId, Booked, Ended, GrantBook, Spent};
pub(super) use returns::Owner;

/// Number of books. Checks of keys in different books do not wait for each other.
const BOOKS: usize = 16;

/// What slices have done since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SliceCounts {
    /// Checks that were decided without the store.
    pub local_checks: u64,
    /// Grants that the store booked.
    pub grants: u64,
    /// Units in these grants.
    pub granted_units: u64,
    /// Unspent units that were given back to the store.
    pub returned_units: u64,
    /// Unspent units that were lost: their window ended, their bucket drained, or the grant was dropped.
    pub lapsed_units: u64,
    /// Refusals that units held by a server may have caused.
    pub early_refusals: u64,
}

#[derive(Default)]
struct Counters {
    local_checks: AtomicU64,
    grants: AtomicU64,
    granted_units: AtomicU64,
    returned_units: AtomicU64,
    lapsed_units: AtomicU64,
    early_refusals: AtomicU64,
}

pub(super) struct Slices {
    books: [Mutex<GrantBook>; BOOKS],
    /// For each book, the first instant at which a grant ends.
    next_due_us: [AtomicU64; BOOKS],
    /// The store's generation in which the grants were booked.
    generation: AtomicU64,
    clock: MonotonicClock,
    /// The instant from which microseconds are counted.
    origin: Instant,
    fleet: Arc<FleetSize>,
    counters: Counters,
}

/// One item of a Plan while its check is in progress.
struct Part {
    /// The account, if the item can be paid from a grant.
    account: Option<AccountId>,
    paid: Option<Spent>,
    /// Units to book in addition to the cost.
    extra: u64,
}

/// How a Plan was sent.
struct Sent<'a> {
    at_us: u64,
    /// Whether the store may have lost what it acknowledged since.
    is_lost: &'a (dyn Fn() -> bool + Sync),
}

impl Slices {
    pub(super) fn new(fleet: Arc<FleetSize>) -> Slices {
        let clock = MonotonicClock::default();
        Slices {
            books: Default::default(),
            next_due_us: std::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            generation: AtomicU64::new(0),
            origin: clock.now(),
            clock,
            fleet,
            counters: Counters::default(),
        }
    }

    /// Replaces the clock. Only before the first check.
    pub(super) fn with_clock(self, clock: MonotonicClock) -> Slices {
        Slices { origin: clock.now(), clock, ..self }
    }

    /// Whether some items of this Plan may be paid from grants.
    pub(super) fn serve(plan: &Plan<'_>, store: &impl Store) -> bool {
        let is_charge = |item: &Item<'_>| item.blocking && matches!(item.operation, Operation::Charge { .. });
        plan.items().iter().any(|item| item.slices.is_some())
            && plan.request_id().is_none()
            && plan.items().iter().all(is_charge)
            && store.has_shared_clock()
    }

    /// Applies a Plan: pays what grants have, and sends the rest to the store.
    pub(super) async fn apply<S: Store + Sync>(
        &self,
        plan: &Plan<'_>,
        store: &S,
    ) -> Result<Outcome, StoreError> {
        let now_us = self.now_us();
        let generation = store.generation();
        self.drop_lost_grants(generation);
        let mut parts: SmallVec<[Part; 4]> = plan.items().iter().map(|item| self.pay(item, now_us)).collect();
        if parts.iter().all(|part| part.paid.is_some()) {
            count(&self.counters.local_checks, 1);
            return Ok(self.local_outcome(plan, &parts, store));
        }
        for (part, item) in parts.iter_mut().zip(plan.items()) {
            part.extra = self.begin_take(part, item, now_us);
        }
        let takes = parts.iter().any(|part| part.extra > 0);
        let enlarged = if takes { enlarged_rest(plan, &parts) } else { None };
        let mut answered = None;
        if let Some(enlarged) = enlarged {
            match store.apply(&enlarged).await {
                Ok(outcome) if is_admitted(&outcome) => answered = Some(outcome),
                // Nothing was charged. The check alone may fit.
                Ok(_) => self.end_takes(&mut parts),
                Err(error) => {
                    self.end_takes(&mut parts);
                    return Err(error);
                }
            }
        } else {
            self.end_takes(&mut parts);
        }
        let outcome = match answered {
            Some(outcome) => outcome,
            // Paid units stay spent if the outcome is unknown.
            None => store.apply(&plan.subset(|index| parts[index].paid.is_none())).await?,
        };
        let sent = Sent { at_us: now_us, is_lost: &|| store.generation() != generation };
        Ok(self.conclude(plan, &parts, &outcome, &sent))
    }

    /// Returns what grants would do with each item now.
    pub(super) fn view(&self, plan: &Plan<'_>) -> Vec<(usize, LayerView)> {
        let now_us = self.now_us();
        let view = |(index, item): (usize, &Item<'_>)| {
            let id = account_of(item)?;
            let held = self.book(id.fingerprint).held(&id, now_us);
            let pays = held.iter().any(|&left| left >= cost_of(item));
            Some((index, LayerView::Slices { held: held.iter().sum(), pays }))
        };
        plan.items().iter().enumerate().filter_map(view).collect()
    }

    /// Follows Plans that bypass the grants: a reset drops those of its keys.
    pub(super) fn follow(&self, plan: &Plan<'_>) {
        for item in plan.items() {
            if let Operation::Reset { .. } = item.operation {
                let fingerprint = item.key.fingerprint();
                let lapsed = self.book(fingerprint).forget(fingerprint);
                count(&self.counters.lapsed_units, lapsed);
            }
        }
    }

    /// Gives back what ended grants have not spent. Cheap if there is nothing to do.
    pub(super) fn return_ended(&self, store: &impl Store) {
        let now_us = self.now_us();
        if self.next_due_us.iter().all(|due| now_us < due.load(Ordering::Relaxed)) {
            return;
        }
        self.drop_lost_grants(store.generation());
        let mut ended = Ended::default();
        for (book, due) in self.books.iter().zip(&self.next_due_us) {
            if due.load(Ordering::Relaxed) <= now_us {
                let mut book = lock(book);
                book.end_due(now_us, &mut ended);
                due.store(book.next_due_us(), Ordering::Relaxed);
            }
        }
        count(&self.counters.lapsed_units, ended.lapsed);
        for unspent in &ended.returns {
            if let Some(plan) = unspent.plan(new_nonce()) {
                store.apply_unawaited(&plan);
                count(&self.counters.returned_units, unspent.unspent);
            }
        }
    }

    pub(super) fn counts(&self) -> SliceCounts {
        let Counters { local_checks, grants, granted_units, returned_units, lapsed_units, early_refusals } =
            &self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SliceCounts {
            local_checks: read(local_checks),
            grants: read(grants),
            granted_units: read(granted_units),
            returned_units: read(returned_units),
            lapsed_units: read(lapsed_units),
            early_refusals: read(early_refusals),
        }
    }

    fn now_us(&self) -> u64 {
        let elapsed = self.clock.now().saturating_duration_since(self.origin);
        u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
    }

    /// Drops all grants if the store may have lost what it acknowledged: a grant must not be spent that is not booked.
    fn drop_lost_grants(&self, generation: u64) {
        if self.generation.load(Ordering::Acquire) == generation
            || self.generation.swap(generation, Ordering::AcqRel) == generation
        {
            return;
        }
        let lapsed: u64 = self.books.iter().map(|book| lock(book).forget_all()).sum();
        count(&self.counters.lapsed_units, lapsed);
    }

    fn pay(&self, item: &Item<'_>, now_us: u64) -> Part {
        // Cost 0 asks whether anything is left, and only the store knows. The overflow subject has another key.
        let account = account_of(item);
        let paid = account.as_ref().and_then(|id| {
            let mut book = self.book(id.fingerprint);
            let paid = book.spend(id, cost_of(item), now_us);
            self.next_due_us[index_of(id.fingerprint)].store(book.next_due_us(), Ordering::Relaxed);
            paid
        });
        Part { account, paid, extra: 0 }
    }

    fn begin_take(&self, part: &Part, item: &Item<'_>, now_us: u64) -> u64 {
        let (Some(id), None) = (&part.account, part.paid) else { return 0 };
        self.book(id.fingerprint).begin_take(id, cost_of(item), self.fleet.servers(), now_us)
    }

    fn end_takes(&self, parts: &mut [Part]) {
        for part in parts.iter_mut().filter(|part| part.extra > 0) {
            if let Some(id) = &part.account {
                self.book(id.fingerprint).end_take(id);
            }
            part.extra = 0;
        }
    }

    /// Notes the store's answers, and returns those of the whole Plan.
    fn conclude(&self, plan: &Plan<'_>, parts: &[Part], outcome: &Outcome, sent: &Sent<'_>) -> Outcome {
        let admitted = is_admitted(outcome);
        let mut answers = outcome.answers.iter();
        let answer = |(part, item): (&Part, &Item<'_>)| match (&part.account, &part.paid) {
            (Some(id), Some(spent)) => {
                if !admitted {
                    self.book(id.fingerprint).put_back(id, spent);
                }
                slice_answer(item, spent, admitted)
            }
            _ => {
                // The store answers every item that it was sent.
                let mut answer = answers.next().copied().unwrap_or_else(|| unanswered(item, outcome));
                if let Some(id) = &part.account {
                    self.note(id, item, part.extra, &answer, outcome, sent);
                    answer.remaining = answer.remaining.saturating_add(part.extra);
                }
                answer
            }
        };
        let answers = parts.iter().zip(plan.items()).map(answer).collect();
        Outcome { now: outcome.now, answers, replayed: false, revisions: Vec::new() }
    }

    /// Notes one answer of the store, and holds the grant that it booked.
    fn note(
        &self,
        id: &AccountId,
        item: &Item<'_>,
        extra: u64,
        answer: &Answer,
        outcome: &Outcome,
        sent: &Sent<'_>,
    ) {
        let mut book = self.book(id.fingerprint);
        if answer.is_refused() {
            let early = book.refused(id, answer.remaining, self.now_us());
            count(&self.counters.early_refusals, u64::from(early));
        } else if is_admitted(outcome) {
            let cost = cost_of(item);
            // Under the lock: the grants of an earlier generation are dropped after this one was added, or it sees that
            // the generation has changed.
            let held = if (sent.is_lost)() { 0 } else { extra };
            let booked = Booked { cost, extra: held, answer, store_now: outcome.now, sent_us: sent.at_us };
            let lapsed = extra - held + book.admitted(id, &booked, || Owner::of(&item.key));
            self.next_due_us[index_of(id.fingerprint)].store(book.next_due_us(), Ordering::Relaxed);
            count(&self.counters.lapsed_units, lapsed);
            if extra > 0 {
                count(&self.counters.grants, 1);
                count(&self.counters.granted_units, extra);
            }
        }
    }

    fn local_outcome(&self, plan: &Plan<'_>, parts: &[Part], store: &impl Store) -> Outcome {
        let answers = parts.iter().zip(plan.items());
        let answers =
            answers.filter_map(|(part, item)| Some(slice_answer(item, part.paid.as_ref()?, true))).collect();
        Outcome { now: store.now(), answers, replayed: false, revisions: Vec::new() }
    }

    fn book(&self, fingerprint: u128) -> MutexGuard<'_, GrantBook> {
        lock(&self.books[index_of(fingerprint)])
    }
}

/// A book is valid after a panic: every change is one assignment of a count.
fn lock(book: &Mutex<GrantBook>) -> MutexGuard<'_, GrantBook> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

const fn index_of(fingerprint: u128) -> usize {
    (fingerprint % BOOKS as u128) as usize
}

/// The account of an item that grants can pay.
fn account_of(item: &Item<'_>) -> Option<AccountId> {
    // The overflow subject has another key.
    let slices = item.slices.filter(|_| item.limit.is_sliceable() && item.ip_subjects_max.is_none());
    match (slices, item.operation.cost()) {
        (Some(hold), Some(1..)) => {
            Some(AccountId { fingerprint: item.key.fingerprint(), limit: item.limit, hold })
        }
        _ => None,
    }
}

fn cost_of(item: &Item<'_>) -> u64 {
    item.operation.cost().unwrap_or(0)
}

fn count(counter: &AtomicU64, by: u64) {
    if by > 0 {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

fn is_admitted(outcome: &Outcome) -> bool {
    outcome.answers.iter().all(Answer::is_admitted)
}

/// The items that no grant has paid, each with what is to be booked beside it. `None` if that exceeds a capacity.
fn enlarged_rest<'r>(plan: &Plan<'r>, parts: &[Part]) -> Option<Plan<'r>> {
    let mut rest = Plan::new();
    for (part, item) in parts.iter().zip(plan.items()).filter(|(part, _)| part.paid.is_none()) {
        let operation = match item.operation {
            Operation::Charge { cost, token } => {
                Operation::Charge { cost: cost.saturating_add(part.extra), token }
            }
            operation => operation,
        };
        rest.push(Item { operation, ..*item }).ok()?;
    }
    Some(rest)
}

/// The answer of a grant. If another rule refused, nothing was charged.
fn slice_answer(item: &Item<'_>, spent: &Spent, charged: bool) -> Answer {
    Answer {
        verdict: Verdict::Admitted { delay: Span::ZERO },
        limit: item.limit.reported_limit(),
        remaining: if charged { spent.remaining } else { spent.remaining.saturating_add(cost_of(item)) },
        reset_at: spent.reset_at,
        mark: if charged { spent.mark } else { Mark::None },
        by: AnsweredBy::Slice,
    }
}

/// An item without an answer is not admitted.
fn unanswered(item: &Item<'_>, outcome: &Outcome) -> Answer {
    Answer {
        verdict: Verdict::Refused(tollgate_core::Retry::At(outcome.now)),
        limit: item.limit.reported_limit(),
        remaining: 0,
        reset_at: outcome.now,
        mark: Mark::None,
        by: AnsweredBy::Store,
    }
}

#[cfg(test)]
mod tests;
