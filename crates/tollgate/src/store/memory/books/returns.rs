//! Returns: each receipt gives back once.
//!
//! Every shard keeps a book of the returns and resets of its keys, under the lock of the shard. The book is bounded.
//! What it forgets raises a watermark: receipts of charges before the watermark are declined.

use std::collections::{HashMap, VecDeque};

use smallvec::smallvec;
use tollgate_core::{Answer, Decline, Outcome, Plan, RequestId, Span, StoreError, Subject, Time};

use crate::store::memory::state_key::StateKey;
use crate::store::memory::{MemoryStore, empty_outcome, shard_of};

/// The most returns, and the most resets, that one shard remembers: a quarter of a million in all shards together.
const ENTRIES_MAX: usize = 1 << 10;
/// Outdated entries are kept this much longer, so that a clock set back by less still finds them.
const OUTDATED_KEPT: Span = Span::from_secs(10);

/// The returns and resets that a shard remembers.
#[derive(Default)]
pub(crate) struct ReturnBook {
    returns: HashMap<Subject, StoredReturn>,
    /// Ids in order of arrival.
    order: VecDeque<Subject>,
    /// The time of the last reset, by the fingerprint of the key.
    resets: HashMap<u128, StoredReset>,
    /// Keys in order of their resets.
    reset_order: VecDeque<u128>,
    /// Receipts of charges before this instant are declined.
    watermark: Time,
}

struct StoredReturn {
    content: u128,
    charged_at: Time,
    forgotten_at: Time,
    now: Time,
    answer: Answer,
}

#[derive(Clone, Copy)]
struct StoredReset {
    at: Time,
    forgotten_at: Time,
}

impl ReturnBook {
    /// Declines the receipts of all charges before this instant.
    pub(crate) fn decline_before(&mut self, watermark: Time) {
        self.watermark = self.watermark.max(watermark);
    }

    /// Remembers that the state of this key was deleted.
    pub(crate) fn remember_reset(&mut self, fingerprint: u128, at: Time, life: Span) {
        if life == Span::ZERO {
            return;
        }
        while let Some(oldest) = self.reset_order.front() {
            let may_go = self.resets.get(oldest).is_none_or(|reset| is_outdated(reset.forgotten_at, at));
            if !may_go && self.reset_order.len() < ENTRIES_MAX {
                break;
            }
            let forgotten = self.reset_order.pop_front().and_then(|oldest| self.resets.remove(&oldest));
            if let Some(reset) = forgotten {
                self.decline_up_to(reset.at);
            }
        }
        let reset = StoredReset { at, forgotten_at: at.plus(life) };
        let known = self.resets.entry(fingerprint).or_insert_with(|| {
            self.reset_order.push_back(fingerprint);
            reset
        });
        known.at = known.at.max(reset.at);
        known.forgotten_at = known.forgotten_at.max(reset.forgotten_at);
    }

    fn decline_up_to(&mut self, charged_at: Time) {
        self.decline_before(charged_at.plus(Span::from_us(1)));
    }

    fn find(&self, request: &RequestId, now: Time) -> Option<&StoredReturn> {
        self.returns.get(&request.id).filter(|stored| now < stored.forgotten_at)
    }

    /// Returns why the receipt is declined, if it is.
    fn decline(&self, request: &RequestId, fingerprint: u128, now: Time) -> Option<Decline> {
        if request.charged_at.is_some_and(|charged_at| charged_at < self.watermark) {
            return Some(Decline::ReceiptExpired);
        }
        request.decline(now, self.resets.get(&fingerprint).map(|reset| reset.at))
    }

    fn remember(&mut self, request: &RequestId, charged_at: Time, now: Time, answer: Answer) {
        while let Some(oldest) = self.order.front() {
            let may_go = self.returns.get(oldest).is_none_or(|stored| is_outdated(stored.forgotten_at, now));
            if !may_go && self.order.len() < ENTRIES_MAX {
                break;
            }
            let forgotten = self.order.pop_front().and_then(|oldest| self.returns.remove(&oldest));
            if let Some(stored) = forgotten {
                self.decline_up_to(stored.charged_at);
            }
        }
        let (content, forgotten_at) = (request.content, request.forgotten_at(now));
        let stored = StoredReturn { content, charged_at, forgotten_at, now, answer };
        if self.returns.insert(request.id, stored).is_none() {
            self.order.push_back(request.id);
        }
    }
}

fn is_outdated(forgotten_at: Time, now: Time) -> bool {
    forgotten_at.plus(OUTDATED_KEPT) <= now
}

impl<C> MemoryStore<C> {
    /// Applies the return of one charge, once.
    pub(crate) fn apply_return(
        &self,
        plan: &Plan<'_>,
        request: &RequestId,
        now: Time,
    ) -> Result<Outcome, StoreError> {
        let ([item], Some(charged_at)) = (plan.items(), request.charged_at) else {
            return Ok(empty_outcome(now));
        };
        let key = StateKey::of(item);
        let lock = &self.shards[shard_of(key.fingerprint)];
        let mut shard = lock.lock();
        if let Some(stored) = shard.returns.find(request, now) {
            if stored.content != request.content {
                return Err(StoreError::IdReused);
            }
            return Ok(Outcome {
                now: stored.now,
                answers: smallvec![stored.answer],
                replayed: true,
                revisions: Vec::new(),
            });
        }
        let mut outcome = empty_outcome(now);
        let slot = shard.find(key.fingerprint);
        let declined = shard.returns.decline(request, key.fingerprint, now);
        // A refund never adds a key. The record of a settlement may, if the key has expired since the charge.
        let declined = declined.or_else(|| {
            let is_full = slot.is_none() && self.overflows(&key, &item.operation, &mut shard, now);
            is_full.then_some(Decline::NotHeld)
        });
        let answer = match declined {
            None if item.is_stamped() => {
                let (step, added) =
                    shard.apply_stamped(&self.classes, &key, slot, self.node, now, &item.operation);
                self.add_keys(added);
                outcome.revisions.push(step.revision);
                step.step.answer
            }
            Some(why) => shard.decline(&self.classes, &key, slot, now, why),
            None => {
                let (answer, added) = shard.apply(&self.classes, &key, slot, now, &item.operation, |_| true);
                lock.last_refusal.update(&shard, &key, slot, &item.operation, &answer);
                self.add_keys(added);
                answer
            }
        };
        outcome.answers.push(answer);
        if outcome.took_effect(plan) {
            shard.returns.remember(request, charged_at, now, answer);
        }
        Ok(outcome)
    }
}
