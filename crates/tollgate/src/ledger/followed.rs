//! The keys of recorded rules that this process has touched, and which of them must be compared with the ledger.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate_core::stamped::Restore;
use tollgate_core::{Item, Limit, Operation, Outcome, Plan, Recording, StoreError, StoredKey, Verdict};
use tollgate_database::LedgerWriter;
use tollgate_database::ledger::{Detail, Event, Record};

use super::Ledger;
use super::records::account_of;

/// Most keys that one process follows. Others are restored when they are lost, but not compared.
const KEYS_MAX: usize = 1 << 18;
/// Keys that must be unchanged before a full table forgets them, so that forgetting is rare.
const FORGET_MIN: usize = KEYS_MAX / 8;

/// The keys that this process has touched.
pub(super) struct Followed {
    ledger: Ledger,
    keys: Mutex<Keys>,
    /// The longest horizon of a request id that was seen, in microseconds.
    horizon_us: AtomicU64,
}

#[derive(Default)]
struct Keys {
    known: HashMap<u128, FollowedKey>,
    /// Fingerprints of the keys that wait for a look, oldest first. Each is in it once.
    waiting: VecDeque<u128>,
    /// Keys that neither changed nor are looked at.
    at_rest: usize,
}

struct FollowedKey {
    key: StoredKey,
    limit: Limit,
    recording: Option<Recording>,
    /// Whether it has changed since its last look.
    is_dirty: bool,
    /// Whether a look waits for the servers.
    is_looked_at: bool,
}

/// A key, and the rule that it is of.
#[derive(Clone)]
pub(super) struct KnownKey {
    pub(super) fingerprint: u128,
    pub(super) key: StoredKey,
    pub(super) limit: Limit,
    pub(super) recording: Option<Recording>,
}

impl FollowedKey {
    fn known(&self, fingerprint: u128) -> KnownKey {
        KnownKey { fingerprint, key: self.key.clone(), limit: self.limit, recording: self.recording }
    }

    fn is_at_rest(&self) -> bool {
        !self.is_dirty && !self.is_looked_at
    }
}

impl Keys {
    /// Notes that a key has changed.
    fn mark(&mut self, fingerprint: u128) {
        let Some(known) = self.known.get_mut(&fingerprint) else { return };
        if !std::mem::replace(&mut known.is_dirty, true) && !known.is_looked_at {
            self.at_rest -= 1;
            self.waiting.push_back(fingerprint);
        }
    }

    /// Returns whether there is room for one more key. A full table forgets the keys at rest.
    fn has_room(&mut self) -> bool {
        if self.known.len() >= KEYS_MAX && self.at_rest >= FORGET_MIN {
            self.known.retain(|_, known| !known.is_at_rest());
            self.at_rest = 0;
        }
        self.known.len() < KEYS_MAX
    }
}

impl Followed {
    pub(super) fn new(ledger: Ledger) -> Followed {
        Followed { ledger, keys: Mutex::default(), horizon_us: AtomicU64::new(0) }
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a key was asked for, so that it is compared.
    fn touch(&self, item: &Item<'_>) {
        let fingerprint = item.key.fingerprint();
        let is_change = !matches!(item.operation, Operation::Peek { .. } | Operation::Usage);
        let mut keys = self.lock();
        if let Some(known) = keys.known.get_mut(&fingerprint) {
            (known.limit, known.recording) = (item.limit, item.ledger);
            if is_change {
                keys.mark(fingerprint);
            }
            return;
        }
        if !keys.has_room() {
            return;
        }
        // The only way to a key that borrows nothing. It is taken once for each key.
        let Ok(key) = item.key.to_string().parse() else { return };
        let (is_dirty, is_looked_at) = (false, false);
        let known = FollowedKey { key, limit: item.limit, recording: item.ledger, is_dirty, is_looked_at };
        keys.known.insert(fingerprint, known);
        keys.at_rest += 1;
        keys.mark(fingerprint);
    }

    /// Notes that the keys of a Plan may have changed without an entry, or with one that is no change of the gate.
    pub(super) fn touch_all(&self, plan: &Plan<'_>) {
        plan.items().iter().filter(|item| item.is_stamped()).for_each(|item| self.touch(item));
    }

    /// Notes how long the store remembers the request id of a charge: until then its answer can still become an entry.
    pub(super) fn note_horizon(&self, plan: &Plan<'_>) {
        let asks = plan.items().iter().any(Item::asks_for_admission);
        if let Some(request) = plan.request_id().filter(|_| asks) {
            let horizon_us = request.horizon.us();
            if horizon_us > self.horizon_us.load(Ordering::Relaxed) {
                self.horizon_us.fetch_max(horizon_us, Ordering::Relaxed);
            }
        }
    }

    /// Returns the longest horizon of a request id that was seen; `None` without request ids.
    pub(super) fn longest_horizon(&self) -> Option<Duration> {
        let horizon_us = self.horizon_us.load(Ordering::Relaxed);
        (horizon_us > 0).then(|| Duration::from_micros(horizon_us))
    }

    /// Counts a restore. Consumption that the gate had counted before the rule was recorded becomes an entry.
    pub(super) fn restored(
        &self,
        item: &Item<'_>,
        restore: &Restore,
        outcome: &Outcome,
        writer: &LedgerWriter,
    ) -> Result<(), StoreError> {
        self.ledger.follow_counts().restores.fetch_add(1, Ordering::Relaxed);
        let Some(Verdict::Done { amount }) = outcome.answers.first().map(|answer| answer.verdict) else {
            return Ok(());
        };
        if amount > 0 && restore.known {
            let recording = item.ledger.unwrap_or_default();
            let opening = Record {
                event: Event::Opening { used: i64::try_from(amount).unwrap_or(i64::MAX) },
                detail: if recording.totals { Detail::Totals } else { Detail::Entries },
                ..account_of(item, outcome.now)
            };
            writer.append(&[opening]).map_err(|error| StoreError::Transient(Box::new(error)))?;
        }
        Ok(())
    }

    /// Returns keys that changed since their last look, longest waiting first, and notes that they are looked at.
    pub(super) fn take_dirty(&self, max: usize) -> Vec<KnownKey> {
        let mut keys = self.lock();
        let Keys { known, waiting, .. } = &mut *keys;
        let count = waiting.len().min(max);
        let taken = waiting.drain(..count).filter_map(|fingerprint| {
            let known = known.get_mut(&fingerprint)?;
            (known.is_dirty, known.is_looked_at) = (false, true);
            Some(known.known(fingerprint))
        });
        taken.collect()
    }

    /// Notes that a look has ended. `again` says whether the key must be compared again.
    pub(super) fn looked(&self, fingerprint: u128, again: bool) {
        let mut keys = self.lock();
        let Some(known) = keys.known.get_mut(&fingerprint) else { return };
        known.is_looked_at = false;
        known.is_dirty |= again;
        match known.is_dirty {
            true => keys.waiting.push_back(fingerprint),
            false => keys.at_rest += 1,
        }
    }

    /// Returns a key.
    pub(super) fn find(&self, fingerprint: u128) -> Option<KnownKey> {
        self.lock().known.get(&fingerprint).map(|known| known.known(fingerprint))
    }

    /// Returns the keys that `keep` accepts.
    pub(super) fn filter(&self, keep: impl Fn(&StoredKey) -> bool) -> Vec<KnownKey> {
        let keys = self.lock();
        let kept = keys.known.iter().filter(|(_, known)| keep(&known.key));
        kept.map(|(fingerprint, known)| known.known(*fingerprint)).collect()
    }

    /// Notes that all keys must be compared.
    pub(super) fn mark_all(&self) {
        let mut keys = self.lock();
        let all: Vec<u128> = keys.known.keys().copied().collect();
        all.into_iter().for_each(|fingerprint| keys.mark(fingerprint));
    }
}
