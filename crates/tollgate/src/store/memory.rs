//! The store in memory: exact, in one process, bounded.
//!
//! Keys are spread over shards that lock one by one; a Plan locks the shards of its keys in ascending order, so that no
//! two Plans wait for each other. Whoever inserts a key looks at a few others for state that is dead: there is no
//! background thread and no pause.
//!
//! The number of keys is capped. At the cap, dead state makes room, then state that is as good as none; state that still
//! counts never does, because that would hand out credit. Keys that find no room share one account per rule, the
//! overflow subject, so that a flood of made-up subjects gets one limit among all of them.

mod admitted_charge;
mod classes;
mod heap;
mod last_refusal;
mod locked_shard;
mod locked_shards;
mod plan_charges;
mod request_ids;
mod shard;
mod slot;
mod snapshot;
mod sync;
mod table;

use std::future::{Future, ready};

use smallvec::SmallVec;
use tollgate_core::{
    Answer, Evaluation, Item, Limit, Operation, Outcome, Plan, PlanError, Store, StoreError, Time, evaluate,
    writes_alone,
};

use crate::clock::{Clock, FastClock};
pub(crate) use classes::ClassId;
use classes::{ClassKey, Classes, Form};
use locked_shard::{Opened, Shelf};
use locked_shards::{Locked, Place};
use plan_charges::Charges;
use request_ids::Requests;
use shard::{Owner, Shard, View};
pub use snapshot::{RestoreError, Restored};
use sync::{AtomicU64, AtomicUsize, Ordering};

/// Enough that threads seldom meet and that no shard takes long to grow; few enough that an idle store is small. A power
/// of two.
const SHARDS: usize = 1 << 8;
/// The shard of the overflow subjects, locked last and not counted.
const OVERFLOW: usize = SHARDS;
/// How many slots of a shard are looked at for room when there is none, and how many other shards. Small, because at the
/// cap every new subject pays for it.
const EVICTION_REACH: usize = 16;
const EVICTION_SHARDS: usize = 4;
/// After so many inserts into a shard, so many slots are looked at for dead state, each time in another shard.
const SWEEP_EVERY: usize = 8;
const SWEEP_REACH: usize = 64;
/// As many keys as fit into about half a gigabyte.
const KEYS_MAX: usize = 10_000_000;

/// State by key, in shards.
pub struct MemoryStore<C = FastClock> {
    shards: Box<[Shelf]>,
    classes: Classes,
    keys: AtomicUsize,
    keys_max: usize,
    /// The shard that is searched next for dead state.
    sweep_next: AtomicUsize,
    overflowed: AtomicU64,
    requests: Requests,
    clock: C,
}

/// How full a store is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Keys that have state, dead ones that nobody has swept up yet among them.
    pub keys: usize,
    /// The most there can be.
    pub keys_max: usize,
    /// How many answers came from the account of an overflow subject, since the store was made.
    pub overflowed: u64,
}

impl MemoryStore {
    /// An empty store on the machine's clock.
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
    /// An empty store on this clock.
    pub fn with_clock(clock: C) -> MemoryStore<C> {
        MemoryStore {
            shards: (0..=OVERFLOW).map(|_| Shelf::default()).collect(),
            classes: Classes::new(),
            keys: AtomicUsize::new(0),
            keys_max: KEYS_MAX,
            sweep_next: AtomicUsize::new(0),
            overflowed: AtomicU64::new(0),
            requests: Requests::new(),
            clock,
        }
    }

    /// The same store with room for this many keys; without it there is room for ten million.
    ///
    /// A key takes about 48 bytes under a window, bucket, meter or penalty, and 150 to 250 under the others, on top of
    /// which come 8 bytes for each part of a sliding window beyond six, 16 to 32 for each request in a log, 48 to 96 for
    /// each lease or reservation. Threads that insert at the same moment may pass the cap by one key each.
    #[must_use]
    pub fn keys_max(self, keys_max: usize) -> MemoryStore<C> {
        MemoryStore { keys_max, ..self }
    }

    /// Carries out `plan`, once if it has a request id. Nothing is awaited: memory always answers.
    pub fn apply_once(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        let mut outcome = Outcome { now: Time::ZERO, answers: SmallVec::new() };
        self.apply_into(plan, self.clock.now(), &mut outcome)?;
        Ok(outcome)
    }

    /// Carries out `plan` as if it had no request id.
    pub fn apply_now(&self, plan: &Plan<'_>) -> Outcome {
        let mut outcome = Outcome { now: Time::ZERO, answers: SmallVec::new() };
        self.carry_out(plan, self.clock.now(), &mut outcome);
        outcome
    }

    /// What a Plan of this one item comes to, and when, without the Plan around it.
    #[inline]
    pub fn apply_item(&self, item: &Item<'_>) -> Result<(Time, Answer), PlanError> {
        item.validate()?;
        let now = self.clock.now();
        Ok((now, self.apply_alone(item, now)))
    }

    #[inline]
    fn apply_alone(&self, item: &Item<'_>, now: Time) -> Answer {
        self.step_alone(Owner::of(item), &item.operation, now, |answer| writes_alone(item, answer))
    }

    /// [`apply_once`](MemoryStore::apply_once) at an instant that the clock has just told, into an Outcome that is there
    /// already: it is large, and moving it costs a good part of making it.
    ///
    /// The clock is read long before the locks are taken, because a lock waits for it, and the processor reads it beside
    /// whatever else is to be done first. State from a later instant counts as of that instant.
    pub(crate) fn apply_into(
        &self,
        plan: &Plan<'_>,
        now: Time,
        outcome: &mut Outcome,
    ) -> Result<(), StoreError> {
        match plan.request() {
            None => self.carry_out(plan, now, outcome),
            Some(request) => {
                *outcome = self.requests.once(plan, request, now, || {
                    let mut outcome = Outcome { now, answers: SmallVec::new() };
                    self.carry_out(plan, now, &mut outcome);
                    outcome
                })?;
            }
        }
        Ok(())
    }

    fn carry_out(&self, plan: &Plan<'_>, now: Time, outcome: &mut Outcome) {
        outcome.now = now;
        outcome.answers.clear();
        match plan.items() {
            [item] => outcome.answers.push(self.apply_alone(item, now)),
            items => {
                let mut locked = Locked::new(self, items);
                let mut charges = Charges::new();
                if charges.find(&locked, items, now).is_none() {
                    *outcome = apply_locked(locked, plan, now);
                    return;
                }
                charges.commit(&mut locked, items);
                locked.unlock(now);
                charges.tell(&mut outcome.answers);
            }
        }
    }

    /// One operation on one key that belongs to no rule, without a Plan around it.
    #[inline]
    pub(crate) fn step(
        &self,
        fingerprint: u128,
        limit: &Limit,
        class: ClassId,
        operation: &Operation,
        now: Time,
    ) -> Answer {
        let owner = Owner { fingerprint, scope: 0, ip_subjects_max: None, limit, class: class.known() };
        self.step_alone(owner, operation, now, |_| true)
    }

    /// What keys of this limit that belong to no rule have in common.
    pub(crate) fn class_of(&self, limit: &Limit) -> ClassId {
        let form = if slot::is_packed(limit) { Form::Packed(*limit) } else { Form::Heap };
        self.classes.intern(&ClassKey { scope: 0, anonymous: false, form })
    }

    /// How full it is.
    pub fn usage(&self) -> Usage {
        Usage {
            keys: self.len(),
            keys_max: self.keys_max,
            overflowed: self.overflowed.load(Ordering::Relaxed),
        }
    }

    /// How many keys have state, dead ones that nobody has swept up yet among them.
    pub fn len(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Whether no key has state.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all state that has been dead for a minute, one shard after another. Checks do a little of this as they
    /// go; whoever wants the memory of an idle store back calls it from a timer. Says how many keys it forgot.
    pub fn sweep(&self) -> usize {
        let now = self.clock.now();
        (0..=OVERFLOW).map(|number| self.sweep_shard(number, self.lock(number), now, usize::MAX)).sum()
    }
}

impl<C> MemoryStore<C> {
    fn lock(&self, number: usize) -> Opened<'_> {
        self.shards[number].open()
    }

    /// One operation on one key, whatever it comes from; `keeps` says whether what it wants written is. An admission is
    /// always kept.
    #[inline]
    fn step_alone(
        &self,
        owner: Owner<'_>,
        operation: &Operation,
        now: Time,
        keeps: impl Fn(&Answer) -> bool,
    ) -> Answer {
        let shelf = &self.shards[shard_of(owner.fingerprint)];
        if let Some(answer) = shelf.refusal.recall(&self.classes, &owner, operation, now) {
            return answer;
        }
        let mut shard = shelf.for_charge();
        if let Operation::Charge { cost, .. } = *operation
            && let Some(charged) = shard.charge(&self.classes, &owner, now, cost)
        {
            shelf.refusal.forget(owner.fingerprint);
            // What is told is worked out when nobody waits for it any more.
            drop(shard);
            return charged.answer(cost);
        }
        self.step_locked(shard.open(), owner, operation, now, keeps)
    }

    /// [`step_alone`](MemoryStore::step_alone) for whatever is no plain admission, on the key's locked shard.
    #[inline(never)]
    fn step_locked<'s>(
        &'s self,
        mut shard: Opened<'s>,
        mut owner: Owner<'_>,
        operation: &Operation,
        now: Time,
        keeps: impl Fn(&Answer) -> bool,
    ) -> Answer {
        let refusal = &self.shards[shard_of(owner.fingerprint)].refusal;
        let mut at = shard.find(owner.fingerprint);
        let shared = at.is_none() && self.overflows(&owner, operation, &mut shard, now);
        if shared {
            drop(shard);
            owner = owner.shared();
            shard = self.lock(OVERFLOW);
            at = shard.find(owner.fingerprint);
        }
        let (answer, more) = shard.step(&self.classes, &owner, at, now, operation, keeps);
        if !shared {
            refusal.note(&shard, &owner, at, operation, &answer);
        }
        drop(shard);
        if self.count_written(&owner, shared, more) {
            self.sweep_next(now);
        }
        answer
    }

    /// Whether a key without state has to share the account of those for whom there is no room.
    fn overflows(&self, owner: &Owner<'_>, operation: &Operation, shard: &mut Shard, now: Time) -> bool {
        let shares = match operation {
            Operation::Charge { .. }
            | Operation::Peek { .. }
            | Operation::Reserve { .. }
            | Operation::Report { .. } => {
                let of_rule = owner.ip_subjects_max.is_none_or(|ip_subjects_max| {
                    self.classes.anonymous(owner.scope) < ip_subjects_max as usize
                });
                !(of_rule && self.has_room(shard, now))
            }
            // Tokens are unique: one that is unknown here may have been booked on the shared account.
            Operation::Renew { .. }
            | Operation::Release { .. }
            | Operation::Settle { .. }
            | Operation::Cancel { .. } => self.overflowed.load(Ordering::Relaxed) > 0,
            // A refund names no holder: on the shared account it could take what others were charged.
            Operation::Refund { .. } | Operation::Reset => false,
        };
        self.overflowed.fetch_add(u64::from(shares), Ordering::Relaxed);
        shares
    }

    /// Counts keys that came or went. Says whether it is this caller's turn to look for dead state: one in a few of those
    /// who insert, their hash decides.
    fn count_written(&self, owner: &Owner<'_>, shared: bool, more: isize) -> bool {
        if shared || more == 0 {
            return false;
        }
        self.count(more);
        more > 0 && (owner.fingerprint as usize).is_multiple_of(SWEEP_EVERY)
    }

    /// Whether one more key may come into this shard; at the cap, whether one that counts for nothing could leave this
    /// shard or one that nobody has locked.
    fn has_room(&self, shard: &mut Shard, now: Time) -> bool {
        if self.keys.load(Ordering::Relaxed) < self.keys_max {
            return true;
        }
        let evicted = shard.evict(&self.classes, now, EVICTION_REACH)
            || (0..EVICTION_SHARDS).any(|_| {
                let number = self.sweep_next.fetch_add(1, Ordering::Relaxed) % SHARDS;
                let shard = self.shards[number].try_open();
                shard.is_some_and(|mut shard| shard.evict(&self.classes, now, EVICTION_REACH))
            });
        self.count(-isize::from(evicted));
        evicted
    }

    fn count(&self, more: isize) {
        if more != 0 {
            // Two's complement: adding the wrapped difference takes away.
            self.keys.fetch_add(more as usize, Ordering::Relaxed);
        }
    }

    /// Looks for dead state in the next shard, unless somebody is busy there.
    fn sweep_next(&self, now: Time) {
        let number = self.sweep_next.fetch_add(1, Ordering::Relaxed) % (SHARDS + 1);
        if let Some(shard) = self.shards[number].try_open() {
            self.sweep_shard(number, shard, now, SWEEP_REACH);
        }
    }

    fn sweep_shard(&self, number: usize, mut shard: Opened<'_>, now: Time, slots: usize) -> usize {
        let swept = shard.sweep(&self.classes, now, slots);
        if number != OVERFLOW {
            self.count(-(swept as isize));
        }
        swept
    }
}

/// A Plan of several items that is more than charges that are all admitted, with their shards locked.
#[inline(never)]
fn apply_locked<C>(mut locked: Locked<'_, C>, plan: &Plan<'_>, now: Time) -> Outcome {
    let items = plan.items();
    let mut places = SmallVec::<[Place; 4]>::new();
    for item in items {
        places.push(locked.place(item, now));
    }
    let mut views = SmallVec::<[View; 4]>::new();
    for place in &places {
        views.push(locked.view(place));
    }
    let Evaluation { outcome, writes } =
        evaluate(plan, now, |index| locked.state(&places[index], &views[index]));
    for (index, write) in writes {
        locked.write(&places[index], &items[index], write);
    }
    locked.unlock(now);
    outcome
}

/// The table takes the low half of the fingerprint, shards bits of the high one.
const fn shard_of(fingerprint: u128) -> usize {
    (fingerprint >> 64) as usize % SHARDS
}

impl<C: Clock> Store for MemoryStore<C> {
    fn apply(&self, plan: &Plan<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        ready(self.apply_once(plan))
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        self.apply_now(plan);
    }

    #[inline]
    fn now(&self) -> Time {
        self.clock.now()
    }
}
