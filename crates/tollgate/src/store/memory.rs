//! The memory store: exact within one process, bounded in size.
//!
//! Keys are spread over shards, each with a separate lock. The number of keys is capped; a subject without room is
//! counted under its rule's overflow subject (`capacity.rs`). Checks remove expired state as they go: there is no
//! background thread and no pause.
//!
//! # The life of a Plan
//!
//! 1. The caller reads the clock before any lock.
//! 2. A Plan of one item may be answered by the last refusal of the key's shard, without a lock (`fast_path/last_refusal.rs`).
//! 3. The store locks the shards of all keys in ascending order, so that two Plans never deadlock (`locked_shard.rs`,
//!    `locked_shards.rs`).
//! 4. If every key has state and every charge is admitted, as in nearly every check, the store writes the new states,
//!    unlocks, and then computes the answers (`fast_path/`).
//! 5. Any other Plan is decided under the locks: one item by its algorithm, several by `evaluate`.
//!
//! Steps 2 and 4 are fast paths. Each states its measured gain in its file; docs/decisions/0004 has the table.

mod books;
mod capacity;
mod classes;
mod fast_path;
mod heap;
mod locked_shard;
mod locked_shards;
mod shard;
mod snapshot;
mod state_key;
mod sync;

use std::future::{Future, ready};

use smallvec::SmallVec;
use tollgate_core::stamped::NODE_UNKNOWN;
use tollgate_core::{
    Answer, Evaluation, Item, Limit, Operation, Outcome, Plan, PlanError, Store, StoreError, Time,
    evaluate_stamped, single_item_writes,
};

use crate::clock::{Clock, FastClock};
use books::request_ids::RequestIds;
use capacity::Capacity;
pub use capacity::Usage;
pub(crate) use classes::ClassId;
use classes::{ClassKey, Classes, Form};
use fast_path::plan_charges::PlanCharges;
use locked_shard::{LockedShard, ShardLock};
use locked_shards::{ItemLocation, LockedShards};
use shard::StoredState;
pub use snapshot::{RestoreError, Restored};
use state_key::StateKey;

/// A power of two: enough that threads seldom meet and that no shard takes long to grow, few enough that an idle store
/// is small.
const SHARDS: usize = 1 << 8;
/// The shard of the overflow subjects. It is locked last, and its keys do not count toward the cap.
const OVERFLOW_SHARD: usize = SHARDS;

/// Stores state by key in the memory of this process.
pub struct MemoryStore<C = FastClock> {
    shards: Box<[ShardLock]>,
    classes: Classes,
    capacity: Capacity,
    request_ids: RequestIds,
    clock: C,
    /// Stamps the state of recorded rules. State from a snapshot has the number of another store.
    node: u64,
}

impl MemoryStore {
    /// Creates an empty store on the machine's clock.
    pub fn new() -> MemoryStore {
        MemoryStore::with_clock(FastClock::new())
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Creates an empty store on this clock.
    pub fn with_clock(clock: C) -> MemoryStore<C> {
        let shards: Box<[ShardLock]> = (0..=OVERFLOW_SHARD).map(|_| ShardLock::default()).collect();
        // This store does not know which receipts of an earlier one were returned.
        let created = clock.now();
        shards.iter().for_each(|shard| shard.lock().returns.decline_before(created));
        MemoryStore {
            shards,
            classes: Classes::new(),
            capacity: Capacity::new(),
            request_ids: RequestIds::new(),
            clock,
            node: random_node(),
        }
    }

    /// Applies `plan`, once if it has a request id. Nothing is awaited: memory always answers.
    pub fn apply_once(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        let mut outcome = empty_outcome(Time::ZERO);
        self.apply_into(plan, self.clock.now(), &mut outcome)?;
        Ok(outcome)
    }

    /// Applies `plan` and ignores its request id.
    pub fn apply_now(&self, plan: &Plan<'_>) -> Outcome {
        let mut outcome = empty_outcome(Time::ZERO);
        self.apply_plan(plan, self.clock.now(), &mut outcome);
        outcome
    }

    /// Applies one item without a Plan; returns the store's time and the answer.
    #[inline]
    pub fn apply_item(&self, item: &Item<'_>) -> Result<(Time, Answer), PlanError> {
        item.validate()?;
        let now = self.clock.now();
        Ok((now, self.apply_one(item, now)))
    }

    /// Applies `plan` like [`apply_once`](MemoryStore::apply_once), at an instant that the caller has just read from the
    /// clock, into an existing Outcome: an Outcome is large, and moving it costs a good part of making it.
    ///
    /// The clock is read long before the locks, because the processor reads it in parallel with other work, while a lock
    /// would wait for it. State from a later instant counts as of that instant.
    #[doc(hidden)]
    pub fn apply_into(&self, plan: &Plan<'_>, now: Time, outcome: &mut Outcome) -> Result<(), StoreError> {
        match plan.request_id() {
            None => self.apply_plan(plan, now, outcome),
            Some(request) if request.charged_at.is_some() => {
                *outcome = self.apply_return(plan, request, now)?;
            }
            Some(request) => {
                *outcome = self.request_ids.apply_once(plan, request, now, || {
                    let mut outcome = empty_outcome(now);
                    self.apply_plan(plan, now, &mut outcome);
                    outcome
                })?;
            }
        }
        Ok(())
    }

    fn apply_plan(&self, plan: &Plan<'_>, now: Time, outcome: &mut Outcome) {
        outcome.now = now;
        outcome.replayed = false;
        outcome.answers.clear();
        outcome.revisions.clear();
        match plan.items() {
            // Without this arm a Plan of one charge costs 1.5 times the CPU (docs/decisions/0004, row "single item").
            [item] if !item.is_stamped() => outcome.answers.push(self.apply_one(item, now)),
            items => {
                let mut shards = LockedShards::lock(self, items);
                let mut charges = PlanCharges::default();
                if charges.compute(&shards, items, now).is_none() {
                    *outcome = evaluate_locked(shards, plan, now);
                    return;
                }
                charges.commit(&mut shards, items, now);
                shards.unlock(now);
                charges.push_answers(&mut outcome.answers);
            }
        }
    }

    #[inline]
    fn apply_one(&self, item: &Item<'_>, now: Time) -> Answer {
        self.apply_to_key(StateKey::of(item), &item.operation, now, |answer| single_item_writes(item, answer))
    }

    /// Applies one operation to a key that belongs to no rule, without a Plan.
    #[inline]
    pub(crate) fn step(
        &self,
        fingerprint: u128,
        limit: &Limit,
        class: ClassId,
        operation: &Operation,
        now: Time,
    ) -> Answer {
        let key = StateKey {
            fingerprint,
            keyspace: 0,
            ip_subjects_max: None,
            is_anonymous: false,
            limit,
            class: class.known(),
        };
        self.apply_to_key(key, operation, now, |_| true)
    }

    /// The class of the keys of this limit that belong to no rule.
    pub(crate) fn class_of(&self, limit: &Limit) -> ClassId {
        let form = if shard::slot::is_packed(limit) { Form::Packed(*limit) } else { Form::Heap };
        self.classes.intern(&ClassKey { keyspace: 0, anonymous: false, form })
    }
}

impl<C> MemoryStore<C> {
    /// Applies one operation to one key. `is_written` decides whether the new state is written; for an admission it
    /// always agrees.
    #[inline]
    fn apply_to_key(
        &self,
        key: StateKey<'_>,
        operation: &Operation,
        now: Time,
        is_written: impl Fn(&Answer) -> bool,
    ) -> Answer {
        let lock = &self.shards[shard_of(key.fingerprint)];
        if let Some(answer) = lock.last_refusal.get(&self.classes, &key, operation, now) {
            return answer;
        }
        let mut shard = lock.lock_for_charge();
        if let Operation::Charge { cost, .. } = *operation
            && let Some(charge) = shard.charge(&self.classes, &key, now, cost)
        {
            lock.last_refusal.clear(key.fingerprint);
            drop(shard);
            return charge.answer(cost);
        }
        self.decide_locked(shard.into_whole(), key, operation, now, is_written)
    }

    /// Applies an operation that is not a plain admission to a key of this locked shard.
    #[inline(never)]
    fn decide_locked<'s>(
        &'s self,
        mut shard: LockedShard<'s>,
        mut key: StateKey<'_>,
        operation: &Operation,
        now: Time,
        is_written: impl Fn(&Answer) -> bool,
    ) -> Answer {
        let last_refusal = &self.shards[shard_of(key.fingerprint)].last_refusal;
        let mut slot = shard.find(key.fingerprint);
        let is_overflow = slot.is_none() && self.overflows(&key, operation, &mut shard, now);
        if is_overflow {
            drop(shard);
            key = key.overflow();
            shard = self.shards[OVERFLOW_SHARD].lock();
            slot = shard.find(key.fingerprint);
        }
        let (answer, added) = shard.apply(&self.classes, &key, slot, now, operation, is_written);
        if is_overflow {
            return answer;
        }
        if let Operation::Reset { receipt_life } = *operation {
            shard.returns.remember_reset(key.fingerprint, now, receipt_life);
        }
        last_refusal.update(&shard, &key, slot, operation, &answer);
        drop(shard);
        if self.count_keys(&key, added) {
            self.sweep_next(now);
        }
        answer
    }
}

/// Returns a number of this store for the stamps of recorded rules.
fn random_node() -> u64 {
    // Without randomness the number of no node: then no recorded state is believed.
    getrandom::u64().map_or(NODE_UNKNOWN, |random| (random >> 11).max(1))
}

/// An Outcome to be filled.
#[doc(hidden)]
pub fn empty_outcome(now: Time) -> Outcome {
    Outcome { now, answers: SmallVec::new(), replayed: false, revisions: Vec::new() }
}

/// Evaluates a Plan as a whole on its locked shards: some key has no state, some charge is refused, or some operation is
/// not a charge.
#[inline(never)]
fn evaluate_locked<C>(mut shards: LockedShards<'_, C>, plan: &Plan<'_>, now: Time) -> Outcome {
    let items = plan.items();
    let mut locations = SmallVec::<[ItemLocation; 4]>::new();
    for item in items {
        locations.push(shards.locate(item, now));
    }
    let mut stored = SmallVec::<[StoredState; 4]>::new();
    for location in &locations {
        stored.push(shards.load(location));
    }
    let Evaluation { outcome, writes } = evaluate_stamped(
        plan,
        now,
        shards.node(),
        |index| shards.state(&locations[index], &stored[index]),
        |index| shards.hold(&locations[index], &items[index]),
    );
    for (index, write) in writes {
        shards.write(&locations[index], &items[index], write, now);
    }
    shards.unlock(now);
    outcome
}

/// The shard of a key: bits of the high half of its fingerprint. The table uses the low half.
#[inline]
const fn shard_of(fingerprint: u128) -> usize {
    (fingerprint >> 64) as usize % SHARDS
}

impl<C: Clock> Store for MemoryStore<C> {
    fn apply(&self, plan: &Plan<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        ready(self.apply_once(plan))
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        // A request id that was used for another Plan applies nothing, and no caller waits to hear of it.
        drop(self.apply_once(plan));
    }

    fn may_lose_answers(&self) -> bool {
        false
    }

    #[inline]
    fn now(&self) -> Time {
        self.clock.now()
    }
}
