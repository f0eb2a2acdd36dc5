//! The way of Plans to one server and back: one connection, many checks in flight, every queue bounded.
//!
//! Plans that wait while others are under way travel together. Nothing is sent twice unless Redis said that it did not
//! run it: what was under way when a connection broke is told as lost, and who asked decides what that means.

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

use super::connection::Connection;
use super::job::Job;
use super::node::{NodeState, NotYet, STALL_MIN};
use crate::store::redis::error::RedisError;
use crate::store::redis::protocol::batch::{Batch, Call, divide};
use crate::store::redis::protocol::reply::{self, Reply};
use crate::store::redis::topology::target::Address;

/// So many Plans are launched together at most.
const LOAD_MAX: usize = 64;
/// So many loads are under way at most; what comes meanwhile goes with the next.
const LOADS_MAX: usize = 2;
/// So many loads in a row whose answers come after the deadline are as good as none.
const LATE_MAX: u32 = 16;
/// A server that hangs up on a connection that nobody has used for so long is not to blame.
const IDLE: Duration = Duration::from_secs(1);
/// The answers to a full load of plain checks fit twice.
const INBOX: usize = 16 << 10;

/// Lives as long as somebody can send it jobs.
pub(crate) struct Lane {
    state: Arc<NodeState>,
    jobs: mpsc::UnboundedReceiver<Job>,
    /// For whoever chooses among lanes.
    is_connected: Arc<AtomicBool>,
}

/// Why a connection is at an end.
enum End {
    /// Nobody can ask any more.
    Done,
    /// The server is elsewhere now.
    Left,
    Broken(RedisError),
}

impl From<RedisError> for End {
    fn from(error: RedisError) -> End {
        End::Broken(error)
    }
}

impl Lane {
    pub(crate) fn new(
        state: Arc<NodeState>,
        jobs: mpsc::UnboundedReceiver<Job>,
        is_connected: Arc<AtomicBool>,
    ) -> Lane {
        Lane { state, jobs, is_connected }
    }

    /// Connects, serves, connects again.
    pub(crate) async fn run(mut self) {
        loop {
            match self.state.connect().await {
                Ok((address, connection)) => {
                    self.is_connected.store(true, Ordering::Relaxed);
                    let mut flight = Flight::new(address, connection);
                    let end = self.exchange(&mut flight).await;
                    self.is_connected.store(false, Ordering::Relaxed);
                    let worked = flight.worked();
                    flight.crash(&end);
                    match end {
                        End::Done => return self.state.left(),
                        End::Left => self.state.left(),
                        End::Broken(error) => self.state.broke(worked, error).await,
                    }
                }
                Err(not_yet) => {
                    if self.refuse(not_yet).await {
                        return;
                    }
                }
            }
            if let Some(cluster) = self.state.cluster.upgrade() {
                cluster.doubts();
            }
        }
    }

    /// Fails whatever is asked during a pause: who asks then should not wait. Says whether nobody can ask any more.
    async fn refuse(&mut self, not_yet: NotYet) -> bool {
        let NotYet { tried, until, error } = not_yet;
        let state = &self.state;
        let mut pause = pin!(async {
            tokio::select! {
                () = sleep_until(until) => (),
                // Another lane has got through.
                () = state.health.turns_from(true), if state.health.is_down() => (),
                () = state.whereabouts.differs(&tried) => (),
            }
        });
        loop {
            tokio::select! {
                job = self.jobs.recv() => match job {
                    Some(job) => state.hand_on(job, &error),
                    None => return true,
                },
                () = &mut pause => return false,
            }
        }
    }

    /// Sends and receives until nobody can ask any more or the connection is no good.
    async fn exchange(&mut self, flight: &mut Flight) -> End {
        let Err(end) = self.exchange_until_end(flight).await;
        end
    }

    async fn exchange_until_end(&mut self, flight: &mut Flight) -> Result<Infallible, End> {
        let state = &self.state;
        let (stall, address) = (state.link.stall(), flight.address.clone());
        let mut left = pin!(state.whereabouts.leaves(&address));
        let mut waiting = Vec::with_capacity(LOAD_MAX);
        // Once there is a reason to end, nothing more is taken on; what is under way may come home.
        let mut ending: Option<(End, Instant)> = None;
        loop {
            let stalls_at = flight.flying.front().map(|oldest| oldest.sent() + stall);
            let gives_up_at = match (&ending, stalls_at) {
                (Some((_, until)), Some(stalls_at)) => Some(stalls_at.min(*until)),
                (_, stalls_at) => stalls_at,
            };
            tokio::select! {
                biased;
                read = flight.connection.read_buf(&mut flight.inbox) => {
                    if read.map_err(RedisError::from)? == 0 {
                        return Err(RedisError::Lost(None).into());
                    }
                    flight.land(state)?;
                }
                found = self.jobs.recv_many(&mut waiting, LOAD_MAX), if ending.is_none() && flight.loads < LOADS_MAX => {
                    if found == 0 {
                        ending = Some((End::Done, Instant::now() + stall));
                    }
                    flight.load(wanted(&mut waiting), state);
                }
                () = &mut left, if ending.is_none() => {
                    // A primary that was replaced may be gone: little is waited for.
                    ending = Some((End::Left, Instant::now() + state.link.deadline.min(STALL_MIN)));
                }
                () = sleep_until(gives_up_at.unwrap_or_else(Instant::now)), if gives_up_at.is_some() => {
                    return match ending {
                        Some((end, _)) => Err(end),
                        None => Err(RedisError::from(io::Error::from(io::ErrorKind::TimedOut)).into()),
                    };
                }
            }
            flight.write(stall).await?;
            if let Some((end, _)) = ending.take_if(|_| flight.flying.is_empty()) {
                return Err(end);
            }
        }
    }
}

/// A connection and what is under way on it.
struct Flight {
    address: Address,
    connection: Connection,
    flying: VecDeque<Flying>,
    /// How many loads are under way.
    loads: usize,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// Whether anything was answered in time. An error is no answer: a full server sends one to everybody and hangs up.
    answered: bool,
    /// How many loads in a row were answered late.
    late: u32,
    /// When something was last sent, or the connection was made.
    used: Instant,
}

/// What an answer is owed for.
enum Flying {
    Batch(Batch),
    /// The word in front of a batch whose slot is moving.
    Asking {
        sent: Instant,
    },
}

impl Flying {
    fn sent(&self) -> Instant {
        match self {
            Flying::Batch(batch) => batch.sent,
            Flying::Asking { sent } => *sent,
        }
    }
}

impl Flight {
    fn new(address: Address, connection: Connection) -> Flight {
        Flight {
            address,
            connection,
            flying: VecDeque::new(),
            loads: 0,
            inbox: Vec::with_capacity(INBOX),
            outbox: Vec::new(),
            answered: false,
            late: 0,
            used: Instant::now(),
        }
    }

    /// Whether it was any good.
    fn worked(&self) -> bool {
        self.answered || self.flying.is_empty() && self.used.elapsed() > IDLE
    }

    /// Launches jobs in as many calls as they take.
    fn load(&mut self, jobs: Vec<Job>, state: &NodeState) {
        if jobs.is_empty() {
            return;
        }
        self.loads += 1;
        self.used = Instant::now();
        let mut calls = divide(jobs).into_iter().peekable();
        while let Some(mut jobs) = calls.next() {
            let mut plans: Vec<_> = jobs.iter_mut().map(|job| &mut job.plan).collect();
            let call = Call::new(&mut plans, state.link.terms, &state.link.scripts);
            let last_of_load = calls.peek().is_none();
            self.launch(Batch { jobs, call, sent: Instant::now(), last_of_load }, true);
        }
    }

    fn launch(&mut self, batch: Batch, by_digest: bool) {
        if batch.asks_for_admission() {
            reply::command(&mut self.outbox, &[b"ASKING"]);
            self.flying.push_back(Flying::Asking { sent: batch.sent });
        }
        batch.call.write(&mut self.outbox, by_digest);
        self.flying.push_back(Flying::Batch(batch));
    }

    async fn write(&mut self, stall: Duration) -> Result<(), RedisError> {
        if self.outbox.is_empty() {
            return Ok(());
        }
        let write = async {
            self.connection.write_all(&self.outbox).await?;
            self.connection.flush().await
        };
        timeout(stall, write).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        self.outbox.clear();
        Ok(())
    }

    /// Hands out every reply that has come whole.
    fn land(&mut self, state: &NodeState) -> Result<(), RedisError> {
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut rest = &inbox[..];
        while let Some((reply, length)) = reply::parse(rest)? {
            rest = &rest[length..];
            match (self.flying.pop_front(), reply) {
                // If it was no good, neither is the answer that follows it.
                (Some(Flying::Asking { .. }), _) => (),
                (Some(Flying::Batch(batch)), Reply::Value(Some(answers))) => {
                    self.loads -= usize::from(batch.last_of_load);
                    self.timed(&batch, state.link.deadline);
                    batch.answer(answers);
                }
                (Some(Flying::Batch(batch)), Reply::Error(answer)) => {
                    self.refused(batch, RedisError::Refused(answer), state)?;
                }
                (Some(Flying::Batch(batch)), Reply::Value(None) | Reply::List(_)) => {
                    let error = RedisError::Nonsense("the script answers nothing that it could");
                    batch.fail(&error);
                    return Err(error);
                }
                (None, Reply::Error(answer)) => return Err(RedisError::Refused(answer)),
                (None, _) => return Err(RedisError::Nonsense("an answer that nobody asked for")),
            }
        }
        let taken = inbox.len() - rest.len();
        inbox.drain(..taken);
        self.inbox = inbox;
        if self.late >= LATE_MAX { Err(io::Error::from(io::ErrorKind::TimedOut).into()) } else { Ok(()) }
    }

    fn timed(&mut self, batch: &Batch, deadline: Duration) {
        if batch.sent.elapsed() <= deadline {
            (self.answered, self.late) = (true, 0);
        } else if batch.last_of_load {
            self.late += 1;
        }
    }

    /// Redis ran none of it.
    fn refused(&mut self, batch: Batch, error: RedisError, state: &NodeState) -> Result<(), RedisError> {
        if error.is("NOSCRIPT") {
            // It goes again, with the script's text.
            self.launch(batch, false);
            return Ok(());
        }
        self.loads -= usize::from(batch.last_of_load);
        if let Some(cluster) = state.cluster.upgrade() {
            cluster.sent_elsewhere(batch.jobs, error, &self.address);
            return Ok(());
        }
        batch.fail(&error);
        // This server takes no writes any more: another one does, and only a new connection finds it.
        if error.is_readonly() { Err(error) } else { Ok(()) }
    }

    /// Tells those whose answers will not come.
    fn crash(self, end: &End) {
        let told = match end {
            // What it refused was something else.
            End::Done | End::Left | End::Broken(RedisError::Refused(_)) => &RedisError::Lost(None),
            End::Broken(error) => error,
        };
        for flying in self.flying {
            if let Flying::Batch(batch) = flying {
                batch.fail(told);
            }
        }
    }
}

/// Those whom somebody still waits for, in time. The others were never sent, and are not carried out.
fn wanted(waiting: &mut Vec<Job>) -> Vec<Job> {
    let now = Instant::now();
    let (wanted, late): (Vec<Job>, Vec<Job>) = waiting.drain(..).partition(|job| job.is_wanted(now));
    late.into_iter().for_each(|job| job.answer(Err(RedisError::TooLate)));
    wanted
}
