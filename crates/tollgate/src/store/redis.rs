//! The Redis store: any number of servers share the same limits, exactly, in one round trip.
//!
//! The life of a Plan:
//!
//! 1. [`RedisStore::apply`](tollgate_core::Store::apply) takes a permit, which bounds the Plans in flight, and encodes the
//!    Plan (`protocol/plan_codec`).
//! 2. The router chooses the server: the only one, the primary behind the sentinels, or the owner of the hash slot in a
//!    cluster (`router`, `topology`).
//! 3. A connection to that server sends all Plans that wait for it as one call of a Lua script (`client/multiplexer`,
//!    `protocol/batch`).
//! 4. Redis runs the script, which contains a twin of every algorithm of core and works on the same bytes. Redis runs one
//!    script at a time, so a Plan is one atomic step.
//! 5. The store decodes the reply into an Outcome. If the deadline passes first, it returns an error.
//!
//! A Plan whose keys are in several hash slots of a cluster takes several calls (`topology/multi_slot`).

mod client;
mod error;
mod eval;
mod evictions;
mod footprint;
mod inspect;
mod protocol;
mod router;
mod settings;
mod topology;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};
use tollgate_core::{Exactness, Outcome, Plan, Store, StoreError, Time};

pub use error::RedisError;
pub use footprint::{Allocator, Engine, Footprint, KeyBytes, Records, holds_max};
#[doc(hidden)]
pub use inspect::{Deployment, InspectedServer, Inspection, RedisReply};
pub use protocol::script_codec::ScriptCodec;
pub use router::ServerStatus;
pub use settings::{OpenError, RedisSettings, TOLERANCE_DEFAULT, TimeSource};
pub use topology::url::{RedisUrl, RedisUrlError};

use crate::clock::{Clock, FastClock};
use client::node::{ClientContext, Node};
use client::pending_plan::{PendingPlan, ReplySender};
use client::permits::Permit;
use protocol::plan_codec::{Attempt, EncodedPlan, ITEMS_MAX, PlanReply, decode};
use router::Router;
use topology::multi_slot::{may_span_hash_slots, plans_by_hash_slot};

/// Keeps state in Redis or Valkey. Cheap to clone: all clones share the same connections.
pub struct RedisStore<C = FastClock> {
    inner: Arc<Inner<C>>,
}

impl<C> Clone for RedisStore<C> {
    fn clone(&self) -> RedisStore<C> {
        RedisStore { inner: Arc::clone(&self.inner) }
    }
}

struct Inner<C> {
    router: Router,
    context: Arc<ClientContext>,
    prefix: String,
    deadline: Duration,
    time: TimeSource,
    clock: C,
    /// How far the clock of Redis was ahead of ours at its last reply, in microseconds.
    clock_offset_us: AtomicI64,
}

/// First pause before a Plan with a request id is sent again. Doubles each time.
const RETRY_PAUSE_FIRST: Duration = Duration::from_millis(1);
/// How long `ready` waits for the servers, and how long a Plan without a waiting caller may be in flight.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

impl<C: Clock + Send + Sync> Store for RedisStore<C> {
    /// Never sends a charge twice, unless it has a request id, under which Redis charges it once.
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        if plan.items().is_empty() {
            return Ok(Outcome {
                now: self.now(),
                answers: Default::default(),
                replayed: false,
                revisions: Vec::new(),
            });
        }
        let deadline = Instant::now() + self.inner.deadline;
        let spans_hash_slots = self.spans_hash_slots(plan);
        let mut pause = RETRY_PAUSE_FIRST;
        let mut doubt = None;
        loop {
            let result = if spans_hash_slots {
                self.apply_per_hash_slot(plan, deadline).await
            } else {
                let permit = self.inner.context.permits.take()?;
                self.call(plan, deadline, Attempt::Unnumbered, Some(permit)).await
            };
            match result {
                Err(error)
                    if plan.request_id().is_some()
                        && is_retryable(&error, doubt.is_some())
                        && Instant::now() + pause < deadline =>
                {
                    doubt = doubt.or(Some(error));
                    sleep(pause).await;
                    pause *= 2;
                }
                // An earlier attempt may have been applied, whatever happened to this one.
                Err(error) => return Err(doubt.unwrap_or(error)),
                result => return result,
            }
        }
    }

    /// Conservative for a Plan over several hash slots: a charge that is being refunded can cause a refusal.
    fn exactness(&self, plan: &Plan<'_>) -> Exactness {
        if self.spans_hash_slots(plan) { Exactness::Conservative } else { Exactness::Exact }
    }

    /// Does not send the Plan if too many are in flight: a lease that is not released expires by itself.
    fn apply_unawaited(&self, plan: &Plan<'_>) {
        let Ok(permit) = self.inner.context.permits.take() else { return };
        if self.spans_hash_slots(plan) {
            // The items of a follow-up do not depend on each other. A hash slot applies one Plan under an id.
            for plan in plans_by_hash_slot(plan) {
                self.send_unawaited(&plan, Attempt::Unnumbered, None);
            }
        } else {
            self.send_unawaited(plan, Attempt::Unnumbered, Some(permit));
        }
    }

    fn has_shared_clock(&self) -> bool {
        self.inner.time == TimeSource::Store
    }

    /// Counts connections: a new one may lead to a server that was restarted or promoted, without the last writes.
    fn generation(&self) -> u64 {
        self.inner.context.connections_opened.load(Ordering::Relaxed)
    }

    fn is_unapplied(&self, error: &StoreError) -> bool {
        let StoreError::Transient(cause) = error else { return false };
        cause.downcast_ref().is_some_and(|cause: &RedisError| !cause.may_have_applied())
    }

    fn now(&self) -> Time {
        let now = self.inner.clock.now();
        Time::from_us(now.us().saturating_add_signed(self.inner.clock_offset_us.load(Ordering::Relaxed)))
    }
}

/// Receives the reply to a Plan that was sent.
type ReplyReceiver = oneshot::Receiver<Result<PlanReply, RedisError>>;

impl<C: Clock> RedisStore<C> {
    /// Sends a Plan and waits for its Outcome: one round trip.
    async fn call(
        &self,
        plan: &Plan<'_>,
        deadline: Instant,
        attempt: Attempt,
        permit: Option<Permit>,
    ) -> Result<Outcome, StoreError> {
        let receiver = self.send(plan, deadline, attempt, permit)?;
        self.receive(plan, receiver, deadline).await
    }

    /// Queues a Plan for the server that holds its keys.
    fn send(
        &self,
        plan: &Plan<'_>,
        deadline: Instant,
        attempt: Attempt,
        permit: Option<Permit>,
    ) -> Result<ReplyReceiver, RedisError> {
        let (sender, receiver) = oneshot::channel();
        self.inner.router.send(self.encode(plan, deadline, Some(sender), attempt, permit)?);
        Ok(receiver)
    }

    /// Queues a Plan whose reply has no receiver.
    fn send_unawaited(&self, plan: &Plan<'_>, attempt: Attempt, permit: Option<Permit>) {
        // A Plan that fails here has no caller to report to. A lease that is not released expires by itself.
        if let Ok(pending) = self.encode(plan, Instant::now() + READY_TIMEOUT, None, attempt, permit) {
            self.inner.router.send(pending);
        }
    }

    fn encode(
        &self,
        plan: &Plan<'_>,
        deadline: Instant,
        reply_to: Option<ReplySender>,
        attempt: Attempt,
        permit: Option<Permit>,
    ) -> Result<PendingPlan, RedisError> {
        let items = plan.items().len();
        if items > ITEMS_MAX {
            return Err(RedisError::TooManyRules { items });
        }
        let Inner { router, prefix, time, clock, .. } = &*self.inner;
        let now = if *time == TimeSource::Store { Time::ZERO } else { clock.now() };
        let plan = EncodedPlan::new(plan, prefix, now, attempt);
        let hash_slot = router.hash_slot(&plan);
        Ok(PendingPlan {
            plan,
            hash_slot,
            queued: Instant::now(),
            deadline,
            reply_to,
            redirects: Default::default(),
            _permit: permit,
        })
    }

    /// Waits for the reply and decodes it.
    async fn receive(
        &self,
        plan: &Plan<'_>,
        receiver: ReplyReceiver,
        deadline: Instant,
    ) -> Result<Outcome, StoreError> {
        let reply = await_reply(receiver, deadline).await?;
        let outcome = decode(plan, &reply)?;
        // A replayed answer carries the time of the first one.
        if !outcome.replayed {
            self.update_clock_offset(outcome.now);
        }
        Ok(outcome)
    }

    fn update_clock_offset(&self, now: Time) {
        if self.inner.time == TimeSource::Store {
            let offset_us = now.us() as i64 - self.inner.clock.now().us() as i64;
            self.inner.clock_offset_us.store(offset_us, Ordering::Relaxed);
        }
    }

    fn spans_hash_slots(&self, plan: &Plan<'_>) -> bool {
        self.inner.router.is_cluster() && may_span_hash_slots(plan)
    }
}

impl RedisStore {
    /// Opens the store at a URL such as `redis://host:6379/0` and waits until it answers. [`RedisSettings`] offers more.
    pub async fn connect(url: &str) -> Result<RedisStore, OpenError> {
        RedisSettings::url(url)?.connect().await
    }
}

impl<C: Clock> RedisStore<C> {
    /// Checks that Redis answers, accepts our credentials and runs our script. In a cluster, checks every server that owns
    /// hash slots.
    pub async fn ready(&self) -> Result<(), StoreError> {
        let deadline = Instant::now() + READY_TIMEOUT;
        let plan = Plan::new();
        let mut receivers = Vec::new();
        let mut send = |node: &Node| {
            let (sender, receiver) = oneshot::channel();
            node.send(self.encode(&plan, deadline, Some(sender), Attempt::Unnumbered, None)?);
            receivers.push(receiver);
            Ok::<(), RedisError>(())
        };
        match &self.inner.router {
            Router::Single(node) => send(node)?,
            Router::Cluster(cluster) => {
                let servers = timeout_at(deadline, cluster.servers()).await;
                servers.unwrap_or(Err(RedisError::NoReply))?.iter().try_for_each(|server| send(server))?;
            }
        }
        for receiver in receivers {
            let reply = await_reply(receiver, deadline).await?;
            decode(&plan, &reply)?;
        }
        Ok(())
    }

    /// Returns the status of each server: the only one, the primary, or those of the cluster that own or will own hash
    /// slots.
    pub fn servers(&self) -> Vec<ServerStatus> {
        self.inner.router.status()
    }

    /// Whether the clock of Redis decides, and not that of a caller.
    pub fn decides_by_its_own_clock(&self) -> bool {
        self.inner.time == TimeSource::Store
    }

    /// Returns the number of checks in flight.
    pub fn in_flight(&self) -> usize {
        self.inner.context.permits.taken()
    }

    /// Returns how many checks can be in flight now so that Redis answers within half of the deadline. It follows the
    /// latency of replies. More checks are sent too, but wait longer.
    pub fn in_flight_target(&self) -> usize {
        self.inner.context.permits.window()
    }
}

async fn await_reply(receiver: ReplyReceiver, deadline: Instant) -> Result<PlanReply, RedisError> {
    match timeout_at(deadline, receiver).await {
        Ok(Ok(reply)) => reply,
        // The runtime is shutting down: it drops the multiplexers with the Plans in flight.
        Ok(Err(_)) => Err(RedisError::ConnectionLost(None)),
        Err(_) => Err(RedisError::NoReply),
    }
}

/// Whether the same Plan may be sent again under its request id: its connection broke, and a new one may work.
///
/// A server that cannot be reached is known to be down, and its callers are answered at once. Only a Plan that may have been
/// applied (`in_doubt`) waits for the server to return.
fn is_retryable(error: &StoreError, in_doubt: bool) -> bool {
    let StoreError::Transient(cause) = error else { return false };
    let cause = match cause.downcast_ref() {
        Some(RedisError::PartiallyApplied(source)) => Some(&**source),
        cause => cause,
    };
    match cause {
        Some(RedisError::ConnectionLost(_)) => true,
        Some(RedisError::Connect { .. }) => in_doubt,
        _ => false,
    }
}
