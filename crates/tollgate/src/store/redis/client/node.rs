//! A node: one Redis server, its breaker and the multiplexers that connect to it.

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, sleep, timeout};

use tollgate_core::stamped::NODE_UNKNOWN;

use super::breaker::{Breaker, BreakerCounts};
use super::connection::{CommandConnection, RedisStream};
use super::connector::Connector;
use super::multiplexer::Multiplexer;
use super::pending_plan::PendingPlan;
use super::permits::PermitPool;
use crate::store::redis::ServerStatus;
use crate::store::redis::error::RedisError;
use crate::store::redis::protocol::batch::{Call, CallSettings};
use crate::store::redis::protocol::resp::Reply;
use crate::store::redis::protocol::script::Scripts;
use crate::store::redis::topology::address::Address;
use crate::store::redis::topology::cluster::Cluster;
use crate::store::redis::topology::primary_locator::{Candidates, PrimaryLocator};

/// What all connections of one store share.
pub(crate) struct ClientContext {
    pub(crate) connector: Connector,
    pub(crate) call_settings: CallSettings,
    pub(crate) scripts: Scripts,
    /// How long a check may take. A later reply is useless.
    pub(crate) deadline: Duration,
    /// Number of connections to each server.
    pub(crate) connections: usize,
    /// Number of connections that were opened since the start.
    pub(crate) connections_opened: AtomicU64,
    /// The Plans in flight of the whole store.
    pub(crate) permits: PermitPool,
    pub(crate) runtime: Handle,
    /// Returns a random number from 0 to 1, to spread pauses.
    pub(crate) jitter: fn() -> f64,
}

impl ClientContext {
    /// How long a connection may owe a reply before it is closed.
    pub(crate) fn stall_timeout(&self) -> Duration {
        STALL_TIMEOUT_MIN.max(self.deadline)
    }

    /// How long a new connection may take to answer the probe. The first reply on a connection is its slowest, so this
    /// can be longer than the deadline.
    fn probe_timeout(&self) -> Duration {
        PROBE_TIMEOUT_MIN.max(self.deadline)
    }
}

pub(crate) const STALL_TIMEOUT_MIN: Duration = Duration::from_millis(200);
/// How long a connection attempt may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const PROBE_TIMEOUT_MIN: Duration = Duration::from_millis(25);
/// Upper bound of the first pause after a failed connection attempt. It doubles with each failure.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Used for a replica that the sentinels have chosen: it is about to become the primary.
const PAUSE_MAX_REPLICA: Duration = Duration::from_millis(80);

/// A server and the multiplexers that connect to it. When it is dropped, they finish their work and end.
pub(crate) struct Node {
    pub(crate) state: Arc<NodeState>,
    multiplexers: Arc<[MultiplexerHandle]>,
}

/// Sends Plans to one multiplexer.
struct MultiplexerHandle {
    queue: mpsc::UnboundedSender<PendingPlan>,
    is_connected: Arc<AtomicBool>,
}

/// What the multiplexers of one server share.
pub(crate) struct NodeState {
    pub(crate) context: Arc<ClientContext>,
    pub(crate) locator: PrimaryLocator,
    pub(crate) breaker: Arc<Breaker>,
    /// Handles the redirects of this server, if it belongs to a cluster.
    pub(crate) cluster: Weak<Cluster>,
    /// Empty once the [`Node`] was dropped.
    multiplexers: OnceLock<Weak<[MultiplexerHandle]>>,
    /// Number of multiplexers that are connected. While it is above 0 the server is up.
    connected: AtomicUsize,
    /// Locked during a connection attempt, so that there is only one at a time.
    backoff: Mutex<Backoff>,
}

/// When the next connection attempt may start.
#[derive(Debug)]
struct Backoff {
    /// The addresses that the pause applies to. Other addresses are tried at once.
    tried: Candidates,
    pause: Duration,
    /// The end of the pause, and the error that caused it.
    blocked: Option<(Instant, RedisError)>,
}

impl Backoff {
    fn new(tried: Candidates) -> Backoff {
        Backoff { tried, pause: PAUSE_FIRST, blocked: None }
    }
}

/// A connection attempt that failed, or that was not made because of a pause.
#[derive(Debug)]
pub(crate) struct NotConnected {
    pub(crate) tried: Candidates,
    pub(crate) retry_at: Instant,
    pub(crate) error: RedisError,
}

impl Node {
    /// Starts the multiplexers.
    pub(crate) fn new(
        context: &Arc<ClientContext>,
        locator: PrimaryLocator,
        breaker: Arc<Breaker>,
        cluster: Weak<Cluster>,
    ) -> Node {
        let state = Arc::new(NodeState {
            context: Arc::clone(context),
            locator,
            breaker,
            cluster,
            multiplexers: OnceLock::new(),
            connected: AtomicUsize::new(0),
            backoff: Mutex::new(Backoff::new(Candidates::new())),
        });
        let start = |_| {
            // The permits bound the length of this queue.
            let (sender, queue) = mpsc::unbounded_channel();
            let is_connected = Arc::<AtomicBool>::default();
            let multiplexer = Multiplexer::new(Arc::clone(&state), queue, Arc::clone(&is_connected));
            context.runtime.spawn(multiplexer.run());
            MultiplexerHandle { queue: sender, is_connected }
        };
        let multiplexers: Arc<[MultiplexerHandle]> = (0..context.connections).map(start).collect();
        state.multiplexers.get_or_init(|| Arc::downgrade(&multiplexers));
        Node { state, multiplexers }
    }

    pub(crate) fn status(&self) -> ServerStatus {
        let NodeState { locator, breaker, .. } = &*self.state;
        let BreakerCounts { opened, closed } = breaker.counts();
        let address = locator.candidates().last().map(Address::to_string);
        ServerStatus { address, down: breaker.reason(), opened, closed }
    }

    /// Queues a Plan, or fails it at once if the server is down.
    pub(crate) fn send(&self, pending: PendingPlan) {
        if let Some(error) = self.state.breaker.reason() {
            return pending.complete(Err(error));
        }
        // Use this thread's multiplexer, or a connected one if it is not connected.
        let own = thread_index() % self.multiplexers.len();
        find_connected(&self.multiplexers, own).unwrap_or(&self.multiplexers[own]).send(pending);
    }
}

impl MultiplexerHandle {
    fn send(&self, pending: PendingPlan) {
        if let Err(mpsc::error::SendError(pending)) = self.queue.send(pending) {
            // The runtime is shutting down and has dropped the multiplexer.
            pending.complete(Err(RedisError::Closed));
        }
    }
}

/// Finds the first connected multiplexer, starting at index `first`.
fn find_connected(multiplexers: &[MultiplexerHandle], first: usize) -> Option<&MultiplexerHandle> {
    let (before, after) = multiplexers.split_at(first);
    after.iter().chain(before).find(|multiplexer| multiplexer.is_connected.load(Ordering::Relaxed))
}

/// The index of this thread among all threads that have sent Plans. It spreads threads over multiplexers.
fn thread_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static INDEX: Cell<Option<usize>> = const { Cell::new(None) };
    }
    INDEX.with(|own| {
        own.get().unwrap_or_else(|| {
            let index = NEXT.fetch_add(1, Ordering::Relaxed);
            own.set(Some(index));
            index
        })
    })
}

impl NodeState {
    /// Returns a connection that has answered a probe, its address and the number of the server's present life.
    pub(crate) async fn connect(&self) -> Result<(Address, RedisStream, u64), NotConnected> {
        let mut backoff = self.backoff.lock().await;
        let candidates = self.locator.candidates();
        if backoff.tried != candidates {
            *backoff = Backoff::new(candidates);
        }
        let blocked = backoff.blocked.clone().filter(|(retry_at, _)| Instant::now() < *retry_at);
        if let Some((retry_at, error)) = blocked {
            return Err(NotConnected { tried: backoff.tried.clone(), retry_at, error });
        }
        match self.connect_and_report().await {
            Ok(connected) => {
                backoff.blocked = None;
                self.connected.fetch_add(1, Ordering::Relaxed);
                self.context.connections_opened.fetch_add(1, Ordering::Relaxed);
                self.breaker.close();
                Ok(connected)
            }
            Err(error) => Err(self.back_off(&mut backoff, error)),
        }
    }

    /// Passes a Plan from a multiplexer that is not connected to one that is, or fails it.
    pub(crate) fn forward_or_fail(&self, pending: PendingPlan, error: &RedisError) {
        let multiplexers = self.multiplexers.get().and_then(Weak::upgrade);
        match multiplexers.as_deref().and_then(|multiplexers| find_connected(multiplexers, 0)) {
            Some(multiplexer) => multiplexer.send(pending),
            None => pending.complete(Err(error.clone())),
        }
    }

    /// Records the regular end of a connection.
    pub(crate) fn connection_closed(&self) {
        self.connected.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records that a connection failed. One that never worked counts as a failed attempt: the server accepts connections
    /// and does not answer.
    pub(crate) async fn connection_failed(&self, worked: bool, error: RedisError) {
        self.connection_closed();
        let mut backoff = self.backoff.lock().await;
        if worked {
            backoff.pause = PAUSE_FIRST;
        } else {
            self.back_off(&mut backoff, error);
        }
    }

    fn back_off(&self, backoff: &mut Backoff, error: RedisError) -> NotConnected {
        let error = match backoff.tried.last() {
            Some(address) => error.for_unsent(address),
            None => error,
        };
        self.report_failure(error.clone());
        let retry_at = Instant::now() + backoff.pause.mul_f64((self.context.jitter)());
        let pause_max =
            if matches!(error, RedisError::Replica { .. }) { PAUSE_MAX_REPLICA } else { PAUSE_MAX };
        backoff.pause = pause_max.min(backoff.pause * 2);
        backoff.blocked = Some((retry_at, error.clone()));
        NotConnected { tried: backoff.tried.clone(), retry_at, error }
    }

    /// Opens the breaker, unless another multiplexer is connected.
    fn report_failure(&self, error: RedisError) {
        if self.connected.load(Ordering::Relaxed) == 0 {
            self.breaker.open(error);
        }
    }

    async fn connect_and_report(&self) -> Result<(Address, RedisStream, u64), RedisError> {
        let mut connecting = pin!(timeout(CONNECT_TIMEOUT, self.connect_to_candidates()));
        let connected = tokio::select! {
            connected = &mut connecting => connected,
            () = sleep(self.context.stall_timeout()) => {
                // Open the breaker already, so that checks do not wait for the rest of the attempt.
                self.report_failure(self.locator.timeout_error());
                connecting.await
            }
        };
        let (address, mut connection) = connected.unwrap_or_else(|_| Err(self.locator.timeout_error()))?;
        let node = timeout(self.context.stall_timeout(), node_number(&mut connection)).await;
        let node = node.unwrap_or_else(|_| Err(self.locator.timeout_error()))?;
        Ok((address, connection.into_stream(), node))
    }

    /// Opens a separate connection for occasional commands, without effect on the breaker.
    pub(crate) async fn open_command_connection(&self) -> Result<(Address, CommandConnection), RedisError> {
        let connected = timeout(CONNECT_TIMEOUT, self.connect_to_candidates()).await;
        connected.unwrap_or_else(|_| Err(self.locator.timeout_error()))
    }

    /// Tries each candidate address, and starts again if the candidates change.
    async fn connect_to_candidates(&self) -> Result<(Address, CommandConnection), RedisError> {
        loop {
            let candidates = self.locator.wait_for_candidates().await?;
            let attempt = async {
                let mut last_error = RedisError::Closed;
                for address in &candidates {
                    match self.connect_and_probe(address).await {
                        Ok(connection) => return Ok((address.clone(), connection)),
                        Err(error) => last_error = error,
                    }
                }
                Err(last_error)
            };
            tokio::select! {
                result = attempt => return result,
                () = self.locator.changed_from(&candidates) => (),
            }
        }
    }

    /// Connects, and checks with a call that executes nothing that the server works.
    async fn connect_and_probe(&self, address: &Address) -> Result<CommandConnection, RedisError> {
        let ClientContext { connector, call_settings, scripts, .. } = &*self.context;
        let mut connection = connector.connect(address, self.context.stall_timeout()).await?;
        let mut probe = Vec::new();
        Call::new(&mut [], NODE_UNKNOWN, *call_settings, scripts).write(&mut probe, true);
        let exchange = async {
            connection.send(&probe).await?;
            match connection.receive().await? {
                Reply::Error(text) => Err(RedisError::ErrorReply(text)),
                _ => Ok(()),
            }
        };
        match timeout(self.context.probe_timeout(), exchange).await {
            Err(_) => return Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            // The server would run the script if it had it.
            Ok(Err(error)) if error.has_code("NOSCRIPT") => (),
            Ok(result) => result?,
        }
        if matches!(self.locator, PrimaryLocator::Sentinels { .. }) {
            check_is_primary(&mut connection, address).await?;
        }
        Ok(connection)
    }
}

/// Returns a number of the server's process and of its history of replication, by which recorded rules distinguish state that
/// this life of the server wrote. `NODE_UNKNOWN` if the user may not run `INFO`: then no recorded rule is decided.
async fn node_number(connection: &mut CommandConnection) -> Result<u64, RedisError> {
    let mut ids = Vec::with_capacity(80);
    for (section, field) in [("server", "run_id:"), ("replication", "master_replid:")] {
        let reply = match connection.command(&[b"INFO", section.as_bytes()]).await {
            Ok(reply) => reply,
            Err(RedisError::ErrorReply(_)) => return Ok(NODE_UNKNOWN),
            Err(error) => return Err(error),
        };
        let id = reply.text().and_then(|text| text.lines().find_map(|line| line.strip_prefix(field)));
        let Some(id) = id else { return Ok(NODE_UNKNOWN) };
        ids.extend_from_slice(id.trim().as_bytes());
        ids.push(b'/');
    }
    let hash = blake3::hash(&ids);
    let (words, _) = hash.as_bytes().as_chunks::<8>();
    Ok(words.first().map_or(NODE_UNKNOWN, |word| (u64::from_le_bytes(*word) >> 11).max(1)))
}

/// Asks the server itself for its role: sentinels learn of changes later.
pub(crate) async fn check_is_primary(
    connection: &mut CommandConnection,
    address: &Address,
) -> Result<(), RedisError> {
    let role = connection.command(&[b"ROLE"]).await?;
    match role.elements().and_then(|elements| elements.first()).and_then(Reply::text) {
        Some("master") => Ok(()),
        Some(_) => Err(RedisError::Replica { address: address.to_string().into() }),
        None => Err(RedisError::UnexpectedReply("no role in the reply to ROLE")),
    }
}
