//! Request ids: stores the Outcome of each, so that a repeated request id charges once.

use std::collections::{HashMap, VecDeque};

use tollgate_core::stamped::Revision;
use tollgate_core::{Answer, Outcome, Plan, RequestId, Span, StoreError, Subject, Time};

use crate::store::memory::sync::Mutex;

/// A power of two.
const SHARDS: usize = 64;
/// The most ids stored at once, in all shards together. Beyond it the oldest are dropped.
const IDS_MAX: usize = 1 << 18;
/// An id is kept this much longer than its horizon, so that a clock set back by less still finds it.
const EXPIRED_KEPT: Span = Span::from_secs(10);

/// Outcomes by request id, in shards.
pub(crate) struct RequestIds {
    shards: Box<[Mutex<Shard>]>,
}

/// The tag of the Plan's first item, and the request id: the same scope as in the Redis store, which keeps both in one
/// hash slot.
type Id = (Subject, Subject);

#[derive(Default)]
struct Shard {
    outcomes: HashMap<Id, StoredOutcome>,
    /// Ids in order of arrival, each with the end of its horizon. The oldest is dropped first.
    order: VecDeque<(Time, Id)>,
}

struct StoredOutcome {
    content: u128,
    until: Time,
    now: Time,
    answers: Box<[Answer]>,
    revisions: Vec<Revision>,
}

impl RequestIds {
    pub(crate) fn new() -> RequestIds {
        RequestIds { shards: (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect() }
    }

    /// Returns the stored Outcome of this request id, or applies the Plan and stores its Outcome if it took effect.
    ///
    /// The id's shard stays locked meanwhile: of two concurrent requests with one id, the second gets the Outcome of the
    /// first.
    pub(crate) fn apply_once(
        &self,
        plan: &Plan<'_>,
        request: &RequestId,
        now: Time,
        apply: impl FnOnce() -> Outcome,
    ) -> Result<Outcome, StoreError> {
        let Some(first) = plan.items().first() else { return Ok(apply()) };
        let id = (first.key.tag(), request.id);
        let mut shard = self.shards[request.id.to_u128() as usize % SHARDS].lock();
        match shard.outcomes.get(&id).filter(|stored| now < stored.until) {
            Some(stored) if stored.content == request.content => {
                let answers = stored.answers.iter().copied().collect();
                let revisions = stored.revisions.clone();
                return Ok(Outcome { now: stored.now, answers, replayed: true, revisions });
            }
            Some(_) => return Err(StoreError::IdReused),
            None => (),
        }
        let outcome = apply();
        if outcome.took_effect(plan) {
            let (content, until) = (request.content, now.plus(request.horizon));
            shard.drop_oldest(now);
            let answers = outcome.answers.iter().copied().collect();
            let revisions = outcome.revisions.clone();
            let stored = StoredOutcome { content, until, now: outcome.now, answers, revisions };
            shard.outcomes.insert(id, stored);
            shard.order.push_back((until, id));
        }
        Ok(outcome)
    }
}

impl Shard {
    /// Drops ids past their horizon, and more if there is no room for one.
    fn drop_oldest(&mut self, now: Time) {
        while let Some(&(until, id)) = self.order.front() {
            if now < until.plus(EXPIRED_KEPT) && self.order.len() < IDS_MAX / SHARDS {
                return;
            }
            self.order.pop_front();
            // The id may have been used again since; then it has a later end.
            if self.outcomes.get(&id).is_some_and(|stored| stored.until == until) {
                self.outcomes.remove(&id);
            }
        }
    }
}
