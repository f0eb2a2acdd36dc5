//! A Plan that is queued or in flight.

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::permits::Permit;
use crate::store::redis::error::RedisError;
use crate::store::redis::protocol::plan_codec::{EncodedPlan, PlanReply};

/// Where the reply to a Plan goes.
pub(crate) type ReplySender = oneshot::Sender<Result<PlanReply, RedisError>>;

/// A Plan and the caller that waits for its reply.
pub(crate) struct PendingPlan {
    pub(crate) plan: EncodedPlan,
    /// The hash slot of its keys; 0 if there is no cluster.
    pub(crate) hash_slot: u16,
    pub(crate) queued: Instant,
    /// The Plan is not sent after this.
    pub(crate) deadline: Instant,
    /// None if no caller waits.
    pub(crate) reply_to: Option<ReplySender>,
    pub(crate) redirects: RedirectState,
    /// None for a part of a Plan: the whole Plan holds the permit.
    pub(crate) _permit: Option<Permit>,
}

/// What the redirects of a cluster require of the next call.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct RedirectState {
    /// Send `ASKING` first: the hash slot is migrating to the server that the Plan goes to.
    pub(crate) asking: bool,
    /// Send in a separate call. The hash slot is migrating, and keys of other Plans may still be on the other server.
    pub(crate) separate: bool,
    /// Number of redirects so far.
    pub(crate) hops: u8,
}

impl PendingPlan {
    /// Whether a caller still waits. If not, the Plan was never sent and must not be applied.
    pub(crate) fn is_wanted(&self, now: Instant) -> bool {
        now < self.deadline && self.reply_to.as_ref().is_none_or(|reply_to| !reply_to.is_closed())
    }

    /// Sends the result to the caller. A caller that no longer waits is ignored.
    pub(crate) fn complete(self, result: Result<PlanReply, RedisError>) {
        if let Some(reply_to) = self.reply_to {
            drop(reply_to.send(result));
        }
    }
}
