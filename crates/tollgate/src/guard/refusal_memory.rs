//! The refusal memory: repeats a refusal of the store for as long as the store would repeat it, but at most a second.
//!
//! A client that goes on after it was refused then costs no round trips. The memory never admits anything. It is a table of
//! fixed size: under pressure it forgets the refusal that ends first, and the store is asked again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tollgate_core::plan::answer::{Answer, AnsweredBy, Retry, Verdict};
use tollgate_core::plan::layers::LayerView;
use tollgate_core::{Item, Limit, Operation, Outcome, Plan, Time};

/// Longest time for which a refusal is repeated. What another server refunds or resets takes effect here within it.
const REPEATED_MAX: Duration = Duration::from_secs(1);
/// Number of sets of the table; a power of two.
const SETS: usize = 1_024;
/// Number of refusals that a set holds.
const WAYS: usize = 4;

pub(super) struct RefusalMemory {
    sets: Box<[Mutex<Set>]>,
    repeated: AtomicU64,
}

#[derive(Default)]
struct Set {
    refusals: [Option<Refusal>; WAYS],
    /// When something was last forgotten here. Answers to questions sent before may be out of date.
    forgotten_at: Option<Instant>,
}

/// A refusal of the store. It is repeated only for the same limit, so that new numbers need no dropping.
#[derive(Clone, Copy)]
struct Refusal {
    key: u128,
    limit: Limit,
    /// The cost that was refused. Lower costs may fit.
    cost: u64,
    answer: Answer,
    /// The store's time of the answer.
    answered_at: Time,
    /// When the question was sent: the store's time was not later than `answered_at` then.
    sent: Instant,
    until: Instant,
}

impl RefusalMemory {
    pub(super) fn new() -> RefusalMemory {
        let sets = (0..SETS).map(|_| Mutex::default()).collect();
        RefusalMemory { sets, repeated: AtomicU64::new(0) }
    }

    /// Number of checks that it refused.
    pub(super) fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }

    /// Returns the refusal if the store has just refused one of the rules.
    pub(super) fn before(&self, plan: &Plan<'_>, now: Instant) -> Option<Outcome> {
        if !is_suitable(plan) {
            return None;
        }
        let mut store_now = None;
        let recalled: smallvec::SmallVec<[Option<Refusal>; 4]> = plan
            .items()
            .iter()
            .map(|item| {
                let refusal = self.recall(item, now)?;
                // What the store's clock shows at least.
                let at_least = refusal.answered_at.plus(now.saturating_duration_since(refusal.sent).into());
                store_now = store_now.max(Some(at_least));
                Some(refusal)
            })
            .collect();
        let store_now = store_now?;
        self.repeated.fetch_add(1, Ordering::Relaxed);
        let answers = plan.items().iter().zip(recalled).map(|(item, recalled)| match recalled {
            Some(refusal) => Answer { by: AnsweredBy::Memory, ..refusal.answer },
            None => Answer::not_asked(&item.limit, store_now),
        });
        Some(Outcome { now: store_now, answers: answers.collect(), replayed: false, revisions: Vec::new() })
    }

    /// Returns what it would do with each item now.
    pub(super) fn view(&self, plan: &Plan<'_>, now: Instant) -> Vec<(usize, LayerView)> {
        if !is_suitable(plan) {
            return Vec::new();
        }
        let items = plan.items().iter().enumerate().filter(|(_, item)| item.layers.refusal_memory);
        let view = |(index, item): (usize, &Item<'_>)| {
            let refusal = self.recall(item, now);
            let refuses_for = refusal.map(|refusal| refusal.until.saturating_duration_since(now).into());
            (index, LayerView::Memory { refuses_for })
        };
        items.map(view).collect()
    }

    /// Learns from an answer of the store to a question that was sent at `sent`.
    pub(super) fn after(&self, plan: &Plan<'_>, outcome: &Outcome, sent: Instant) {
        if !is_suitable(plan) {
            return;
        }
        for (item, answer) in plan.items().iter().zip(&outcome.answers) {
            let Verdict::Refused(retry) = answer.verdict else { continue };
            if answer.by != AnsweredBy::Store || !item.layers.refusal_memory {
                continue;
            }
            let wait = match retry {
                Retry::At(at) => Duration::from_micros(at.us().saturating_sub(outcome.now.us())),
                Retry::Never => REPEATED_MAX,
            };
            let Some(cost) = item.operation.cost().filter(|_| !wait.is_zero()) else { continue };
            self.set(item).remember(Refusal {
                key: item.key.fingerprint(),
                limit: item.limit,
                cost,
                answer: *answer,
                answered_at: outcome.now,
                sent,
                until: sent + wait.min(REPEATED_MAX),
            });
        }
    }

    /// Forgets the refusals of the keys that a follow-up may have freed. Answers to earlier questions are not learned.
    pub(super) fn forget(&self, plan: &Plan<'_>, now: Instant) {
        for item in plan.items() {
            let key = item.key.fingerprint();
            let mut set = self.set(item);
            set.forgotten_at = Some(now);
            for refusal in &mut set.refusals {
                refusal.take_if(|refusal| refusal.key == key);
            }
        }
    }

    fn recall(&self, item: &Item<'_>, now: Instant) -> Option<Refusal> {
        let cost = item.operation.cost().filter(|_| item.layers.refusal_memory)?;
        let key = item.key.fingerprint();
        let set = self.set(item);
        let same = |refusal: &&Refusal| {
            refusal.key == key && cost >= refusal.cost && now < refusal.until && refusal.limit == item.limit
        };
        set.refusals.iter().flatten().find(same).copied()
    }

    fn set(&self, item: &Item<'_>) -> MutexGuard<'_, Set> {
        let index = item.key.fingerprint() as usize % self.sets.len();
        self.sets[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Set {
    fn remember(&mut self, new: Refusal) {
        if self.forgotten_at.is_some_and(|forgotten| new.sent <= forgotten) {
            return;
        }
        let same = |refusal: &Option<Refusal>| {
            refusal.is_some_and(|old| old.key == new.key && old.limit == new.limit && old.cost == new.cost)
        };
        let place = match self.refusals.iter().position(same) {
            Some(place) => place,
            // `None` is less than any instant, so that free places are used first.
            None => {
                (0..WAYS).min_by_key(|&place| self.refusals[place].map(|refusal| refusal.until)).unwrap_or(0)
            }
        };
        self.refusals[place] = Some(new);
    }
}

/// Whether a refusal of this Plan may be repeated and learned. Under an id, only the store knows the answer. Shadow and
/// postpaid rules and penalties must see every request, and leases end at any time.
fn is_suitable(plan: &Plan<'_>) -> bool {
    plan.request_id().is_none()
        && plan.items().iter().all(|item| {
            item.blocking
                && !item.layers.postpaid
                && matches!(item.operation, Operation::Charge { .. })
                && !matches!(item.limit, Limit::Concurrency(_) | Limit::Penalty(_))
        })
}
