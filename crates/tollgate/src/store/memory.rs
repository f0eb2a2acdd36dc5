//! The store in memory: exact, in one process.

use std::collections::HashMap;
use std::future::{Future, ready};
use std::hash::{BuildHasherDefault, Hasher};

use parking_lot::{Mutex, MutexGuard};
use tollgate_core::{Evaluation, Outcome, Plan, Span, State, Store, StoreError, Time, evaluate};

use crate::clock::{Clock, SystemClock};

/// Enough that two threads seldom meet, few enough that an idle store is small. A power of two.
const SHARDS: usize = 64;
/// A shard is searched for dead entries when it has grown to this many times what the last search left.
const GROWTH: usize = 2;
/// And never below this many entries.
const SWEEP_MIN: usize = 64;
/// Dead state is kept this much longer: a clock set back by less than this finds everything as it was.
const MARGIN: Span = Span::from_secs(60);

/// State by key, in shards that lock one by one.
pub struct MemoryStore<C = SystemClock> {
    shards: Box<[Mutex<Shard>]>,
    clock: C,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<u128, Entry, BuildHasherDefault<Fingerprint>>,
    sweep_at: usize,
}

struct Entry {
    state: State,
    dies_at: Time,
}

/// A fingerprint is a keyed hash already: some of its bits are as good as any.
#[derive(Default)]
struct Fingerprint(u64);

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |sum, &byte| sum.rotate_left(8) ^ u64::from(byte));
    }

    fn write_u128(&mut self, fingerprint: u128) {
        self.0 = fingerprint as u64;
    }
}

impl MemoryStore {
    /// An empty store on the machine's clock.
    pub fn new() -> MemoryStore {
        MemoryStore::with_clock(SystemClock)
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
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        MemoryStore { shards, clock }
    }

    /// Carries out `plan`. Nothing is awaited: memory always answers.
    pub fn apply_now(&self, plan: &Plan<'_>) -> Outcome {
        let fingerprints: Vec<u128> = plan.items().iter().map(|item| item.key.fingerprint()).collect();
        let mut locked = self.lock(&fingerprints);
        // Read under the locks: what was written before is not later than this.
        let now = self.clock.now();
        let Evaluation { outcome, writes } = evaluate(plan, now, |index| {
            let (guard, fingerprint) = (locked.find(fingerprints[index])?, fingerprints[index]);
            guard.entries.get(&fingerprint).map(|entry| &entry.state)
        });
        for (index, write) in writes {
            locked.shard(fingerprints[index]).write(fingerprints[index], write, now);
        }
        outcome
    }

    /// How many keys have state, dead ones that nobody has swept up yet among them.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }

    /// Whether no key has state.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Locks the shards of all these keys, always in the same order, so that no two Plans wait for each other.
    fn lock(&self, fingerprints: &[u128]) -> Locked<'_> {
        let mut numbers: Vec<usize> = fingerprints.iter().map(|&fingerprint| shard_of(fingerprint)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Locked { shards: numbers.into_iter().map(|number| (number, self.shards[number].lock())).collect() }
    }
}

/// The map takes the low bits, shards the high ones.
fn shard_of(fingerprint: u128) -> usize {
    (fingerprint >> 64) as usize % SHARDS
}

struct Locked<'s> {
    shards: Vec<(usize, MutexGuard<'s, Shard>)>,
}

impl<'s> Locked<'s> {
    fn find(&self, fingerprint: u128) -> Option<&Shard> {
        let wanted = shard_of(fingerprint);
        self.shards.iter().find(|(number, _)| *number == wanted).map(|(_, shard)| &**shard)
    }

    fn shard(&mut self, fingerprint: u128) -> &mut MutexGuard<'s, Shard> {
        let wanted = shard_of(fingerprint);
        let index = self.shards.iter().position(|(number, _)| *number == wanted).unwrap_or(0);
        &mut self.shards[index].1
    }
}

impl Shard {
    fn write(&mut self, fingerprint: u128, write: tollgate_core::Write<tollgate_core::Change>, now: Time) {
        let mut slot = self.entries.remove(&fingerprint).map(|entry| entry.state);
        State::commit(&mut slot, write.change);
        if let Some(state) = slot {
            self.entries.insert(fingerprint, Entry { state, dies_at: write.dies_at });
        }
        if self.entries.len() > self.sweep_at.max(SWEEP_MIN) {
            self.entries.retain(|_, entry| entry.dies_at.plus(MARGIN) > now);
            self.sweep_at = self.entries.len() * GROWTH;
        }
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    fn apply(&self, plan: &Plan<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        ready(Ok(self.apply_now(plan)))
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        self.apply_now(plan);
    }

    fn now(&self) -> Time {
        self.clock.now()
    }
}
