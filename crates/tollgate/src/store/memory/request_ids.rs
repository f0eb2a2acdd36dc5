//! Request ids of the store in memory: what was booked under each, for as long as it is remembered.

use std::collections::{HashMap, VecDeque};

use tollgate_core::{Answer, Outcome, Plan, RequestId, Span, StoreError, Subject, Time};

use super::sync::Mutex;

/// A power of two.
const SHARDS: usize = 64;
/// The most ids that are remembered at once, in all shards together. Beyond it the oldest is forgotten.
const REQUESTS_MAX: usize = 1 << 18;

/// So much longer than it counts is an id kept: a clock that is set back a little still finds it.
const SLACK: Span = Span::from_secs(10);

/// Ids by hash, in shards.
pub(super) struct Requests {
    shards: Box<[Mutex<Book>]>,
}

/// The tag of the Plan's first item, and the id: as in stores that keep both in one slot.
type Id = (Subject, Subject);

#[derive(Default)]
struct Book {
    known: HashMap<Id, Booked>,
    /// Ids in the order they came, with the end of each: what came first is forgotten first.
    order: VecDeque<(Time, Id)>,
}

struct Booked {
    content: u128,
    until: Time,
    now: Time,
    answers: Box<[Answer]>,
}

impl Requests {
    pub(super) fn new() -> Requests {
        Requests { shards: (0..SHARDS).map(|_| Mutex::new(Book::default())).collect() }
    }

    /// Tells what was booked under the id, or carries the Plan out and remembers it if it booked something. Others with
    /// ids of the same shard wait meanwhile, so that of two who send the same request one is told what the other got.
    pub(super) fn once(
        &self,
        plan: &Plan<'_>,
        request: &RequestId,
        now: Time,
        carry_out: impl FnOnce() -> Outcome,
    ) -> Result<Outcome, StoreError> {
        let Some(first) = plan.items().first() else { return Ok(carry_out()) };
        let id = (first.key.tag(), request.id);
        let mut book = self.shards[request.id.to_u128() as usize % SHARDS].lock();
        match book.known.get(&id).filter(|booked| now < booked.until) {
            Some(booked) if booked.content == request.content => {
                return Ok(Outcome { now: booked.now, answers: booked.answers.iter().copied().collect() });
            }
            Some(_) => return Err(StoreError::IdReused),
            None => (),
        }
        let outcome = carry_out();
        if outcome.books(plan) {
            let (content, until) = (request.content, now.plus(request.horizon));
            book.forget(now);
            let answers = outcome.answers.iter().copied().collect();
            book.known.insert(id, Booked { content, until, now: outcome.now, answers });
            book.order.push_back((until, id));
        }
        Ok(outcome)
    }
}

impl Book {
    /// Drops what is no longer remembered, and makes room for one.
    fn forget(&mut self, now: Time) {
        while let Some(&(until, id)) = self.order.front() {
            if now < until.plus(SLACK) && self.order.len() < REQUESTS_MAX / SHARDS {
                return;
            }
            self.order.pop_front();
            // The id may have been used again since, and then has a later end.
            if self.known.get(&id).is_some_and(|booked| booked.until == until) {
                self.known.remove(&id);
            }
        }
    }
}
