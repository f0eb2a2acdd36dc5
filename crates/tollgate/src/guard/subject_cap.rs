//! The cap on anonymous subjects of a rule with `ip_subjects_max`, in front of a remote store.
//!
//! Each server keeps a set of the anonymous subjects that have a separate key, up to the cap. A subject that finds the
//! set full is counted under the rule's overflow subject, which all servers share. The store is not asked for this, so the
//! cap costs it nothing, and a flood of addresses makes at most one key per place in the sets of all servers.
//!
//! A subject leaves the set when its key has expired: the store's answers say when that is.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::plan::answer::{AnsweredBy, Verdict};
use tollgate_core::{Answer, Item, Limit, Operation, Outcome, Plan, Span, Subject, Time};

/// Most subjects that one server knows, of all rules together. Each takes about 100 bytes.
const SUBJECTS_MAX: usize = 1_000_000;
/// For how long a subject stays without an answer of the store.
const UNANSWERED_KEPT: Span = Span::from_secs(60);
/// A key lives this much longer than the answer says: the store rounds up, and its clock is known by estimate.
const SLACK: Span = Span::from_secs(1);
/// Most subjects that one lookup removes to make room.
const REMOVED_MAX: usize = 16;

#[derive(Default)]
pub(super) struct SubjectCap {
    sets: Mutex<KnownSubjects>,
    overflowed: AtomicU64,
}

/// The sets of all rules.
#[derive(Default)]
struct KnownSubjects {
    /// By the fingerprint of the rule's keyspace.
    rules: HashMap<u128, KnownOfRule>,
    /// The number of subjects in all sets.
    total: usize,
}

#[derive(Default)]
struct KnownOfRule {
    /// When each subject leaves, by the fingerprint of its key.
    ends: HashMap<u128, Time>,
    /// The same subjects, those that leave first in front.
    in_order: BTreeSet<(Time, u128)>,
}

impl SubjectCap {
    /// Number of operations that were counted under an overflow subject.
    pub(super) fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// Replaces the keys of subjects for which there is no room.
    pub(super) fn place(&self, plan: &mut Plan<'_>, now: Time) {
        let mut known = self.known();
        plan.replace_keys(|item| {
            let cap = usize::try_from(item.ip_subjects_max?).unwrap_or(usize::MAX);
            let is_stored = match item.operation {
                Operation::Charge { .. }
                | Operation::Record { .. }
                | Operation::Reserve { .. }
                | Operation::Report { .. } => true,
                Operation::Peek { .. } | Operation::Usage => false,
                // These could give back what others were charged under the overflow subject.
                _ => return None,
            };
            if known.has_place(item, cap, is_stored, now) {
                return None;
            }
            self.overflowed.fetch_add(1, Ordering::Relaxed);
            Some(item.key.keyspace().key(Subject::OVERFLOW))
        });
    }

    /// Learns from the store's answers when keys expire.
    pub(super) fn follow(&self, plan: &Plan<'_>, outcome: &Outcome) {
        if plan.items().iter().all(|item| item.ip_subjects_max.is_none()) {
            return;
        }
        let mut known = self.known();
        for (item, answer) in plan.items().iter().zip(&outcome.answers) {
            let is_stored = answer.by == AnsweredBy::Store && !matches!(answer.verdict, Verdict::Declined(_));
            if item.ip_subjects_max.is_some() && is_stored {
                known.end_at(item, expires_at(item, answer, outcome.now).plus(SLACK));
            }
        }
    }

    /// Valid after a panic: a set may know a subject that is not in the order, which then stays.
    fn known(&self) -> MutexGuard<'_, KnownSubjects> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When the key of an item expires at the latest.
fn expires_at(item: &Item<'_>, answer: &Answer, now: Time) -> Time {
    match item.limit {
        // The reset of these does not say how long their state is kept.
        Limit::Meter(limit) => now.plus(limit.expiry()),
        Limit::Penalty(limit) => answer.reset_at.max(now).plus(limit.numbers().memory),
        // Nothing is counted, for example because another rule refused. A window ends later all the same.
        _ if answer.remaining >= answer.limit => now,
        _ => answer.reset_at,
    }
}

impl KnownSubjects {
    /// Whether a subject has a separate key, or may get one. `is_stored` says that the operation creates the key.
    fn has_place(&mut self, item: &Item<'_>, cap: usize, is_stored: bool, now: Time) -> bool {
        let rule = self.rules.entry(item.key.keyspace().fingerprint()).or_default();
        let key = item.key.fingerprint();
        if rule.ends.contains_key(&key) {
            return true;
        }
        if rule.ends.len() >= cap || self.total >= SUBJECTS_MAX {
            self.total -= rule.remove_ended(now);
        }
        if rule.ends.len() >= cap || self.total >= SUBJECTS_MAX {
            return false;
        }
        if is_stored {
            let window = item.limit.window(now).unwrap_or(UNANSWERED_KEPT);
            let end = now.plus(window.min(UNANSWERED_KEPT)).plus(SLACK);
            rule.ends.insert(key, end);
            rule.in_order.insert((end, key));
            self.total += 1;
        }
        true
    }

    fn end_at(&mut self, item: &Item<'_>, end: Time) {
        let Some(rule) = self.rules.get_mut(&item.key.keyspace().fingerprint()) else { return };
        let key = item.key.fingerprint();
        if let Some(known) = rule.ends.get_mut(&key) {
            rule.in_order.remove(&(*known, key));
            rule.in_order.insert((end, key));
            *known = end;
        }
    }
}

impl KnownOfRule {
    /// Removes subjects whose keys have expired. Returns how many.
    fn remove_ended(&mut self, now: Time) -> usize {
        let mut removed = 0;
        while removed < REMOVED_MAX
            && let Some(&(end, key)) = self.in_order.first()
            && end <= now
        {
            self.in_order.pop_first();
            self.ends.remove(&key);
            removed += 1;
        }
        removed
    }
}

#[cfg(test)]
mod tests;
