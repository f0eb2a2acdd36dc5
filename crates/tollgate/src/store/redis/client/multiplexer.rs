//! The multiplexer: one connection to one server, many checks in flight, every queue bounded.
//!
//! Plans that arrive while others are in flight wait and travel together in the next pipeline. The multiplexer sends a
//! Plan again only if Redis said that it did not run it. When a connection breaks, the Plans in flight fail with
//! [`RedisError::ConnectionLost`], and their callers decide what to do.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::connection::RedisStream;
use super::node::{ClientContext, NodeState, NotConnected, STALL_TIMEOUT_MIN};
use super::pending_plan::PendingPlan;
use crate::store::redis::error::RedisError;
use crate::store::redis::protocol::batch::{Batch, Call, divide_into_calls};
use crate::store::redis::protocol::resp::{self, Reply};
use crate::store::redis::topology::address::Address;

/// Most Plans in one pipeline: calls that are sent together.
pub(crate) const PIPELINE_PLANS_MAX: usize = 64;
/// Most pipelines in flight. Plans that arrive meanwhile join the next one.
pub(crate) const PIPELINES_MAX: usize = 2;
/// After this many pipelines in a row with late replies, the connection counts as broken.
const LATE_PIPELINES_MAX: u32 = 16;
/// A server may close a connection that was idle for this long without being counted as failed.
const IDLE_MIN: Duration = Duration::from_secs(1);
/// Twice the replies to a full pipeline of plain checks.
const INPUT_CAPACITY: usize = 16 << 10;

/// The task that owns one connection of a node. It ends when the last sender of Plans is dropped.
pub(crate) struct Multiplexer {
    state: Arc<NodeState>,
    queue: mpsc::UnboundedReceiver<PendingPlan>,
    /// Read by senders that choose among multiplexers.
    is_connected: Arc<AtomicBool>,
}

/// Why a connection ends.
enum CloseReason {
    /// All senders of Plans were dropped.
    NoSenders,
    /// The primary is at another address now.
    PrimaryMoved,
    Failed(RedisError),
}

impl From<RedisError> for CloseReason {
    fn from(error: RedisError) -> CloseReason {
        CloseReason::Failed(error)
    }
}

impl Multiplexer {
    pub(crate) fn new(
        state: Arc<NodeState>,
        queue: mpsc::UnboundedReceiver<PendingPlan>,
        is_connected: Arc<AtomicBool>,
    ) -> Multiplexer {
        Multiplexer { state, queue, is_connected }
    }

    /// Connects, serves the connection until it ends, and connects again.
    pub(crate) async fn run(mut self) {
        loop {
            match self.state.connect().await {
                Ok((address, stream, node)) => {
                    self.is_connected.store(true, Ordering::Relaxed);
                    let mut connection = MultiplexedConnection::new(address, stream, node);
                    let reason = self.serve(&mut connection).await;
                    self.is_connected.store(false, Ordering::Relaxed);
                    let worked = connection.worked();
                    connection.fail_in_flight(&reason);
                    match reason {
                        CloseReason::NoSenders => return self.state.connection_closed(),
                        CloseReason::PrimaryMoved => self.state.connection_closed(),
                        CloseReason::Failed(error) => self.state.connection_failed(worked, error).await,
                    }
                }
                Err(not_connected) => {
                    if self.wait_to_reconnect(not_connected).await {
                        return;
                    }
                }
            }
            if let Some(cluster) = self.state.cluster.upgrade() {
                cluster.request_refresh();
            }
        }
    }

    /// Fails the Plans that arrive during a pause, so that their callers do not wait. Returns whether all senders were
    /// dropped.
    async fn wait_to_reconnect(&mut self, not_connected: NotConnected) -> bool {
        let NotConnected { tried, retry_at, error } = not_connected;
        let state = &self.state;
        let mut pause = pin!(async {
            tokio::select! {
                () = sleep_until(retry_at) => (),
                // Another multiplexer has connected.
                () = state.breaker.changed_from(true), if state.breaker.is_open() => (),
                () = state.locator.changed_from(&tried) => (),
            }
        });
        loop {
            tokio::select! {
                pending = self.queue.recv() => match pending {
                    Some(pending) => state.forward_or_fail(pending, &error),
                    None => return true,
                },
                () = &mut pause => return false,
            }
        }
    }

    /// Sends Plans and handles replies until the connection ends.
    async fn serve(&mut self, connection: &mut MultiplexedConnection) -> CloseReason {
        let Err(reason) = self.serve_until_closed(connection).await;
        reason
    }

    async fn serve_until_closed(
        &mut self,
        connection: &mut MultiplexedConnection,
    ) -> Result<Infallible, CloseReason> {
        let state = &self.state;
        let (stall_timeout, address) = (state.context.stall_timeout(), connection.address.clone());
        let mut primary_moved = pin!(state.locator.moved_from(&address));
        let mut queued = Vec::with_capacity(PIPELINE_PLANS_MAX);
        // Once this is set, no more Plans are taken from the queue. Those in flight may finish until the instant.
        let mut closing: Option<(CloseReason, Instant)> = None;
        loop {
            let stalls_at = connection.expected.front().map(|oldest| oldest.sent() + stall_timeout);
            let gives_up_at = match (&closing, stalls_at) {
                (Some((_, until)), Some(stalls_at)) => Some(stalls_at.min(*until)),
                (_, stalls_at) => stalls_at,
            };
            tokio::select! {
                biased;
                read = connection.stream.read_buf(&mut connection.input) => {
                    if read.map_err(RedisError::from)? == 0 {
                        return Err(RedisError::ConnectionLost(None).into());
                    }
                    connection.handle_replies(state)?;
                }
                received = self.queue.recv_many(&mut queued, PIPELINE_PLANS_MAX),
                    if closing.is_none() && connection.pipelines < PIPELINES_MAX =>
                {
                    if received == 0 {
                        closing = Some((CloseReason::NoSenders, Instant::now() + stall_timeout));
                    }
                    connection.queue_pipeline(drain_wanted(&mut queued), state);
                }
                () = &mut primary_moved, if closing.is_none() => {
                    // A primary that was replaced may be gone, so do not wait long.
                    let wait = state.context.deadline.min(STALL_TIMEOUT_MIN);
                    closing = Some((CloseReason::PrimaryMoved, Instant::now() + wait));
                }
                () = sleep_until(gives_up_at.unwrap_or_else(Instant::now)), if gives_up_at.is_some() => {
                    return match closing {
                        Some((reason, _)) => Err(reason),
                        None => Err(RedisError::from(io::Error::from(io::ErrorKind::TimedOut)).into()),
                    };
                }
            }
            connection.flush(stall_timeout).await?;
            if let Some((reason, _)) = closing.take_if(|_| connection.expected.is_empty()) {
                return Err(reason);
            }
        }
    }
}

/// A connection and the calls in flight on it.
struct MultiplexedConnection {
    address: Address,
    /// The number of the server's present life, with which it stamps state of recorded rules.
    node: u64,
    stream: RedisStream,
    /// Replies that Redis owes, oldest first.
    expected: VecDeque<ExpectedReply>,
    /// Number of pipelines in flight.
    pipelines: usize,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Whether a call was answered in time. An error reply does not count: a server that has reached its limit on clients
    /// sends one to each and closes the connection.
    answered: bool,
    /// Number of pipelines in a row that were answered late.
    late_pipelines: u32,
    /// When something was last sent, or the connection was made.
    last_used: Instant,
}

/// What a reply belongs to.
enum ExpectedReply {
    Batch(Batch),
    /// The `ASKING` in front of a batch whose hash slot is migrating.
    Asking {
        sent: Instant,
    },
}

impl ExpectedReply {
    fn sent(&self) -> Instant {
        match self {
            ExpectedReply::Batch(batch) => batch.sent,
            ExpectedReply::Asking { sent } => *sent,
        }
    }
}

impl MultiplexedConnection {
    fn new(address: Address, stream: RedisStream, node: u64) -> MultiplexedConnection {
        MultiplexedConnection {
            address,
            node,
            stream,
            expected: VecDeque::new(),
            pipelines: 0,
            input: Vec::with_capacity(INPUT_CAPACITY),
            output: Vec::new(),
            answered: false,
            late_pipelines: 0,
            last_used: Instant::now(),
        }
    }

    /// Whether the connection answered in time, or ended only because it was idle.
    fn worked(&self) -> bool {
        self.answered || self.expected.is_empty() && self.last_used.elapsed() > IDLE_MIN
    }

    /// Writes Plans to the output buffer, in as many calls as needed.
    fn queue_pipeline(&mut self, pending: Vec<PendingPlan>, state: &NodeState) {
        if pending.is_empty() {
            return;
        }
        self.pipelines += 1;
        self.last_used = Instant::now();
        let mut calls = divide_into_calls(pending).into_iter().peekable();
        while let Some(mut pending) = calls.next() {
            let mut plans: Vec<_> = pending.iter_mut().map(|pending| &mut pending.plan).collect();
            let call = Call::new(&mut plans, self.node, state.context.call_settings, &state.context.scripts);
            let last_of_pipeline = calls.peek().is_none();
            self.queue_batch(Batch { pending, call, sent: Instant::now(), last_of_pipeline }, true);
        }
    }

    fn queue_batch(&mut self, batch: Batch, by_digest: bool) {
        if batch.needs_asking() {
            resp::write_command(&mut self.output, &[b"ASKING"]);
            self.expected.push_back(ExpectedReply::Asking { sent: batch.sent });
        }
        batch.call.write(&mut self.output, by_digest);
        self.expected.push_back(ExpectedReply::Batch(batch));
    }

    async fn flush(&mut self, stall_timeout: Duration) -> Result<(), RedisError> {
        if self.output.is_empty() {
            return Ok(());
        }
        let write = async {
            self.stream.write_all(&self.output).await?;
            self.stream.flush().await
        };
        timeout(stall_timeout, write).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        self.output.clear();
        Ok(())
    }

    /// Passes every complete reply to its callers.
    fn handle_replies(&mut self, state: &NodeState) -> Result<(), RedisError> {
        let mut input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        while let Some((reply, length)) = resp::parse(rest)? {
            rest = &rest[length..];
            match (self.expected.pop_front(), reply) {
                // If `ASKING` failed, the call that follows it fails too.
                (Some(ExpectedReply::Asking { .. }), _) => (),
                (Some(ExpectedReply::Batch(batch)), Reply::Value(Some(reply))) => {
                    self.pipelines -= usize::from(batch.last_of_pipeline);
                    self.record_latency(&batch, &state.context);
                    batch.complete(reply);
                }
                (Some(ExpectedReply::Batch(batch)), Reply::Error(text)) => {
                    self.handle_error_reply(batch, RedisError::ErrorReply(text), state)?;
                }
                (Some(ExpectedReply::Batch(batch)), Reply::Value(None) | Reply::Array(_)) => {
                    let error = RedisError::UnexpectedReply("the script's reply is not a string");
                    batch.fail(&error);
                    return Err(error);
                }
                (None, Reply::Error(text)) => return Err(RedisError::ErrorReply(text)),
                (None, _) => return Err(RedisError::UnexpectedReply("a reply without a command")),
            }
        }
        let consumed = input.len() - rest.len();
        input.drain(..consumed);
        self.input = input;
        if self.late_pipelines >= LATE_PIPELINES_MAX {
            Err(io::Error::from(io::ErrorKind::TimedOut).into())
        } else {
            Ok(())
        }
    }

    fn record_latency(&mut self, batch: &Batch, context: &ClientContext) {
        if let Some(oldest) = batch.pending.first() {
            context.permits.record_reply(oldest.queued);
        }
        if batch.sent.elapsed() <= context.deadline {
            (self.answered, self.late_pipelines) = (true, 0);
        } else if batch.last_of_pipeline {
            self.late_pipelines += 1;
        }
    }

    /// Handles an error reply: Redis ran nothing of the batch.
    fn handle_error_reply(
        &mut self,
        batch: Batch,
        error: RedisError,
        state: &NodeState,
    ) -> Result<(), RedisError> {
        if error.has_code("NOSCRIPT") {
            self.queue_batch(batch, false);
            return Ok(());
        }
        self.pipelines -= usize::from(batch.last_of_pipeline);
        if let Some(cluster) = state.cluster.upgrade() {
            cluster.redirect_or_fail(batch.pending, error, &self.address);
            return Ok(());
        }
        batch.fail(&error);
        // This server has become a replica. Only a new connection finds the primary.
        if error.is_readonly() { Err(error) } else { Ok(()) }
    }

    /// Fails the Plans whose replies will not come.
    fn fail_in_flight(self, reason: &CloseReason) {
        let error = match reason {
            // An error reply answered something else.
            CloseReason::NoSenders
            | CloseReason::PrimaryMoved
            | CloseReason::Failed(RedisError::ErrorReply(_)) => &RedisError::ConnectionLost(None),
            CloseReason::Failed(error) => error,
        };
        for expected in self.expected {
            if let ExpectedReply::Batch(batch) = expected {
                batch.fail(error);
            }
        }
    }
}

/// Returns the Plans whose callers still wait, and fails the others, which were never sent.
fn drain_wanted(queued: &mut Vec<PendingPlan>) -> Vec<PendingPlan> {
    let now = Instant::now();
    let (wanted, late): (Vec<PendingPlan>, Vec<PendingPlan>) =
        queued.drain(..).partition(|pending| pending.is_wanted(now));
    late.into_iter().for_each(|pending| pending.complete(Err(RedisError::TooLate)));
    wanted
}
