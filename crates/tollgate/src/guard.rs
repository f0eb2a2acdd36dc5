//! What happens before, instead of and after a store that may not answer.
//!
//! [`Guarded`] wraps a remote store. Library and server use the same wrapper. Each layer is one file:
//!
//! 1. the prefilter refuses a flood of attempts (`prefilter.rs`);
//! 2. the refusal memory repeats what the store has just refused (`refusal_memory.rs`);
//! 3. parts of a limit that this server has booked are spent without the store (`slices.rs`);
//! 4. the store answers, and the limiters in this process follow its numbers (`local_limiters.rs`);
//! 5. if it does not answer, the failure policy of each rule does (`tollgate_core::plan::failure`).
//!
//! Before them, `subject_cap.rs` counts anonymous subjects beyond the cap of their rule under its overflow subject.
//!
//! A layer fills `by` of its answers, from which the decision gets its source and its class. Time comes from the store's
//! clock, as far as it is known here, and from a monotonic clock that a simulation can replace.
//!
//! When the store is back, what was admitted without it under quotas and meters is booked there (`posting.rs`).
//!
//! The memory store does not fail and needs no guard.

mod fleet_size;
mod local_limiters;
mod monotonic;
mod posting;
mod prefilter;
mod refusal_memory;
mod slices;
mod subject_cap;

use std::sync::Arc;

use tollgate_core::decision::exactness::Exactness;
use tollgate_core::plan::answer::AnsweredBy;
use tollgate_core::plan::failure::answer_by_policies;
use tollgate_core::plan::layers::LayerView;
use tollgate_core::{Outcome, Plan, Store, StoreError, Time};

pub use fleet_size::FleetSize;
use local_limiters::LocalLimiters;
pub use monotonic::MonotonicClock;
pub use posting::PostCounts;
use posting::Posting;
use prefilter::Prefilter;
use refusal_memory::RefusalMemory;
pub use slices::SliceCounts;
use slices::Slices;
use subject_cap::SubjectCap;

/// A store with layers that answer before it, and failure policies that answer instead of it.
pub struct Guarded<S> {
    store: S,
    clock: MonotonicClock,
    cap: SubjectCap,
    prefilter: Prefilter,
    refusals: Option<RefusalMemory>,
    slices: Slices,
    local: LocalLimiters,
    posting: Posting,
}

/// How many checks each layer answered since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LayerCounts {
    /// Refused by the prefilter.
    pub prefilter: u64,
    /// Refused by the refusal memory.
    pub memory: u64,
    /// Operations that were counted under an overflow subject.
    pub overflowed: u64,
}

impl<S> Guarded<S> {
    /// Guards a store. `fleet` says how many servers share it, for `local fair`.
    pub fn new(store: S, fleet: Arc<FleetSize>) -> Guarded<S> {
        Guarded {
            store,
            clock: MonotonicClock::default(),
            cap: SubjectCap::default(),
            prefilter: Prefilter::new(),
            refusals: None,
            slices: Slices::new(Arc::clone(&fleet)),
            local: LocalLimiters::new(fleet),
            posting: Posting::new(),
        }
    }

    /// Sets whether refusals are remembered. Only for a store that is asked over a network and decides by its own clock: the
    /// memory counts the wait on a clock of this process.
    #[must_use]
    pub fn with_refusal_memory(self, remembers: bool) -> Guarded<S> {
        Guarded { refusals: remembers.then(RefusalMemory::new), ..self }
    }

    /// Replaces the monotonic clock, for simulations.
    #[must_use]
    pub fn with_clock(self, clock: MonotonicClock) -> Guarded<S> {
        Guarded { slices: self.slices.with_clock(clock.clone()), clock, ..self }
    }

    /// The store.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// The number of servers that share the store, as far as it is known.
    pub fn fleet(&self) -> &FleetSize {
        self.local.fleet()
    }

    /// What slices have done since the start.
    pub fn slice_counts(&self) -> SliceCounts {
        self.slices.counts()
    }

    /// Returns how many checks each layer answered.
    pub fn layer_counts(&self) -> LayerCounts {
        LayerCounts {
            prefilter: self.prefilter.refused(),
            memory: self.refusals.as_ref().map_or(0, RefusalMemory::repeated),
            overflowed: self.cap.overflowed(),
        }
    }

    /// Returns what became of local admissions under quotas and meters.
    pub fn post_counts(&self) -> PostCounts {
        self.posting.counts()
    }

    /// Returns what was posted and lost since the last call, once nothing waits for the store any more.
    pub fn post_report(&self) -> Option<PostCounts> {
        self.posting.report()
    }

    /// Drops what this process remembers of the keys of a follow-up.
    fn forget(&self, plan: &Plan<'_>) {
        if let Some(refusals) = &self.refusals {
            refusals.forget(plan, self.clock.now());
        }
    }
}

impl<S: Store> Guarded<S> {
    /// Gives unspent units of ended slices back to the store. Every check does this too, and a task of the engine does it
    /// while there are no checks.
    pub fn return_ended_slices(&self) {
        self.slices.return_ended(&self.store);
    }
}

impl<S: Store + Sync> Guarded<S> {
    /// Does what is due apart from checks: gives ended slices back, and posts what was admitted without the store. A task of
    /// the engine calls it.
    pub async fn maintain(&self) {
        self.return_ended_slices();
        self.posting.send(&self.store, &self.clock).await;
    }

    /// A check passes the layers in their order. The first that answers ends it.
    async fn check(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        if let Some(refused) = self.prefilter.before(plan, || self.store.now()) {
            return Ok(refused);
        }
        let sent = self.clock.now();
        if let Some(refused) = self.refusals.as_ref().and_then(|refusals| refusals.before(plan, sent)) {
            return Ok(refused);
        }
        let done = if Slices::serve(plan, &self.store) {
            self.slices.apply(plan, &self.store).await
        } else {
            self.slices.follow(plan);
            self.store.apply(plan).await
        };
        match done {
            Ok(outcome) => {
                if let Some(refusals) = &self.refusals {
                    refusals.after(plan, &outcome, sent);
                }
                self.local.follow(plan, &outcome);
                self.cap.follow(plan, &outcome);
                // A slice answers while the store is away, too.
                if outcome.answers.iter().any(|answer| answer.by == AnsweredBy::Store) {
                    self.posting.store_answered();
                }
                Ok(outcome)
            }
            Err(StoreError::IdReused) => Err(StoreError::IdReused),
            Err(error) => {
                let outcome = answer_by_policies(plan, &error, self.store.now(), &self.local);
                self.store.note_policy_answer(plan, &outcome);
                self.posting.note(plan, &outcome, self.store.is_unapplied(&error), self.clock.now());
                Ok(outcome)
            }
        }
    }

    /// A follow-up has no policy: its caller must know that it was not applied.
    async fn follow_up(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        self.slices.follow(plan);
        let done = self.store.apply(plan).await;
        self.forget(plan);
        if let Ok(outcome) = &done {
            self.local.follow(plan, outcome);
            self.cap.follow(plan, outcome);
            self.posting.store_answered();
        }
        done
    }
}

impl<S: Store + Sync> Store for Guarded<S> {
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        self.slices.return_ended(&self.store);
        if plan.items().iter().all(|item| item.asks_for_admission()) {
            self.check(plan).await
        } else {
            self.follow_up(plan).await
        }
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        self.slices.follow(plan);
        self.store.apply_unawaited(plan);
        self.forget(plan);
    }

    fn place_subjects(&self, plan: &mut Plan<'_>) {
        if plan.items().iter().any(|item| item.ip_subjects_max.is_some()) {
            self.cap.place(plan, self.store.now());
        }
    }

    fn view_layers(&self, plan: &Plan<'_>) -> Vec<(usize, LayerView)> {
        let mut views = self.prefilter.view(plan, || self.store.now());
        if let Some(refusals) = &self.refusals {
            views.extend(refusals.view(plan, self.clock.now()));
        }
        if Slices::serve(plan, &self.store) {
            views.extend(self.slices.view(plan));
        }
        views.sort_by_key(|(index, _)| *index);
        views
    }

    /// Conservative for rules with slices: other servers may hold units that they have not spent.
    fn exactness(&self, plan: &Plan<'_>) -> Exactness {
        let is_sliced = plan.items().iter().any(|item| item.blocking && item.slices.is_some());
        let least = if is_sliced { Exactness::Conservative } else { Exactness::Exact };
        self.store.exactness(plan).max(least)
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

#[cfg(test)]
mod layer_tests;
#[cfg(test)]
mod tests;
