//! A Plan on its way, and who waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::store::redis::error::RedisError;
use crate::store::redis::protocol::wire::{Encoded, OwnReply};

/// A Plan and who waits for it.
pub(crate) struct Job {
    pub(crate) plan: Encoded,
    /// Where in a cluster its keys are; the same for all where there is no cluster.
    pub(crate) slot: u16,
    /// Not to be sent after this.
    pub(crate) deadline: Instant,
    /// Whoever waits, if anybody does.
    pub(crate) asker: Option<oneshot::Sender<Result<OwnReply, RedisError>>>,
    pub(crate) way: Way,
    /// Parts of a check have none: the whole has one.
    pub(crate) _permit: Option<Permit>,
}

/// What its way through a cluster has taught.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Way {
    /// Its slot is moving, and it goes to where the slot will be.
    pub(crate) asking: bool,
    /// Its slot is moving: together with others, whose keys are elsewhere, it would go nowhere.
    pub(crate) alone: bool,
    /// How often it was sent elsewhere.
    pub(crate) hops: u8,
}

impl Job {
    /// Whether somebody wants it still. If not it was never sent, and is not carried out.
    pub(crate) fn is_wanted(&self, now: Instant) -> bool {
        now < self.deadline && self.asker.as_ref().is_none_or(|asker| !asker.is_closed())
    }

    /// Tells whoever waits. That nobody does any more is their business.
    pub(crate) fn answer(self, answer: Result<OwnReply, RedisError>) {
        if let Some(asker) = self.asker {
            drop(asker.send(answer));
        }
    }
}

/// Lets so many jobs exist at once.
#[derive(Debug)]
pub(crate) struct Permits {
    given: Arc<AtomicUsize>,
    most: usize,
}

/// One job may exist.
#[derive(Debug)]
pub(crate) struct Permit {
    given: Arc<AtomicUsize>,
}

impl Permits {
    pub(crate) fn new(most: usize) -> Permits {
        Permits { given: Arc::default(), most }
    }

    /// A place among the jobs under way, if there is one left.
    pub(crate) fn take(&self) -> Result<Permit, RedisError> {
        let permit = Permit { given: Arc::clone(&self.given) };
        let before = self.given.fetch_add(1, Ordering::Relaxed);
        // Given back by the drop of a permit that was one too many.
        if before < self.most { Ok(permit) } else { Err(RedisError::Busy) }
    }

    /// How many there are.
    pub(crate) fn given(&self) -> usize {
        self.given.load(Ordering::Relaxed)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.given.fetch_sub(1, Ordering::Relaxed);
    }
}
