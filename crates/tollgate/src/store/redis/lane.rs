//! The way of Plans to Redis and back: one connection, many checks in flight, every queue bounded.
//!
//! Plans that wait while others are under way travel together. Nothing is sent twice unless Redis said that it did not
//! run it: what was under way when a connection broke is told as lost, and who asked decides what that means.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;

use super::batch::{Batch, Job, Terms};
use super::connection::{Connection, dial};
use super::error::RedisError;
use super::reply::{self, Reply};
use super::script::Scripts;
use super::target::Target;

/// So many Plans travel together at most.
pub(super) const BATCH_MAX: usize = 64;
/// So many batches are under way at most; what comes meanwhile goes with the next.
const FLYING_MAX: usize = 2;
/// A connection that owes an answer for so long is given up, or for as long as callers wait if that is longer.
pub(super) const STALL_MIN: Duration = Duration::from_secs(1);
const DIAL_MAX: Duration = Duration::from_secs(2);
/// The first pause after a failed connection is drawn from up to this, each next one from up to twice as much.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Everything the lane needs; it lives as long as somebody can send it jobs.
pub(super) struct Lane {
    pub(super) target: Arc<Target>,
    pub(super) trusted: Option<TlsConnector>,
    pub(super) jobs: mpsc::Receiver<Job>,
    pub(super) terms: Terms,
    pub(super) scripts: Scripts,
    /// A connection that owes an answer for so long is given up.
    pub(super) stall: Duration,
    /// Draws pauses.
    pub(super) dice: fn() -> f64,
}

/// Why a connection is at an end.
enum End {
    /// Nobody can ask any more.
    Done,
    Broken {
        error: RedisError,
        /// Whether it had answered anything.
        after_work: bool,
    },
}

impl Lane {
    /// Connects, serves, connects again.
    pub(super) async fn run(mut self) {
        let (mut pause, mut fruitless) = (PAUSE_FIRST, 0_u32);
        loop {
            let dialled = timeout(DIAL_MAX, dial(&self.target, self.trusted.as_ref())).await;
            let failed = match dialled {
                Ok(Ok(connection)) => match self.serve(connection).await {
                    End::Done => return,
                    End::Broken { error, after_work } => {
                        if after_work {
                            (pause, fruitless) = (PAUSE_FIRST, 0);
                        } else {
                            fruitless += 1;
                        }
                        if fruitless < 2 && !matches!(error, RedisError::Refused(_)) {
                            continue;
                        }
                        // A server that lets us in and does no work is no better than none.
                        error
                    }
                },
                Ok(Err(error)) => error,
                Err(_) => lost(io::ErrorKind::TimedOut.into()),
            };
            let failed = self.not_sent(failed);
            if self.refuse(&failed, pause.mul_f64((self.dice)())).await {
                return;
            }
            pause = PAUSE_MAX.min(pause * 2);
        }
    }

    /// What those are told whose Plan is not sent because of this.
    fn not_sent(&self, error: RedisError) -> RedisError {
        match error {
            RedisError::Connect { .. } | RedisError::Refused(_) => error,
            other => {
                let source = Arc::new(io::Error::other(other));
                RedisError::Connect { address: self.target.address().into(), source }
            }
        }
    }

    /// Fails whatever is asked during a pause: who asks then should not wait. Says whether nobody can ask any more.
    async fn refuse(&mut self, error: &RedisError, pause: Duration) -> bool {
        let end = Instant::now() + pause;
        loop {
            tokio::select! {
                job = self.jobs.recv() => match job {
                    Some(job) => job.answer(Err(error.clone())),
                    None => return true,
                },
                () = sleep_until(end) => return false,
            }
        }
    }

    async fn serve(&mut self, connection: Connection) -> End {
        let mut flight =
            Flight { connection, flying: VecDeque::new(), inbox: Vec::new(), outbox: Vec::new(), landed: 0 };
        let error = match self.exchange(&mut flight).await {
            Ok(()) => RedisError::Closed,
            Err(error) => error,
        };
        let told = if matches!(error, RedisError::Refused(_)) { &RedisError::Lost(None) } else { &error };
        flight.flying.into_iter().for_each(|batch| batch.fail(told));
        match error {
            RedisError::Closed => End::Done,
            error => End::Broken { error, after_work: flight.landed > 0 },
        }
    }

    /// Sends and receives until nobody can ask any more or the connection is no good.
    async fn exchange(&mut self, flight: &mut Flight) -> Result<(), RedisError> {
        let mut waiting = Vec::with_capacity(BATCH_MAX);
        loop {
            let stalls_at = flight.flying.front().map(|oldest| oldest.sent + self.stall);
            tokio::select! {
                biased;
                read = flight.connection.read_buf(&mut flight.inbox) => {
                    if read.map_err(lost)? == 0 {
                        return Err(RedisError::Lost(None));
                    }
                    flight.land()?;
                }
                found = self.jobs.recv_many(&mut waiting, BATCH_MAX), if flight.flying.len() < FLYING_MAX => {
                    if found == 0 {
                        return Ok(());
                    }
                    let wanted = wanted(&mut waiting);
                    if !wanted.is_empty() {
                        flight.launch(Batch::new(wanted, self.terms, &self.scripts), true);
                    }
                }
                () = sleep_until(stalls_at.unwrap_or_else(Instant::now)), if stalls_at.is_some() => {
                    return Err(lost(io::ErrorKind::TimedOut.into()));
                }
            }
            flight.write(self.stall).await?;
        }
    }
}

/// A connection and what is under way on it.
struct Flight {
    connection: Connection,
    flying: VecDeque<Batch>,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// Batches answered. An error is no answer: a full server sends one to everybody and hangs up.
    landed: u64,
}

impl Flight {
    fn launch(&mut self, batch: Batch, by_digest: bool) {
        batch.write(&mut self.outbox, by_digest);
        self.flying.push_back(batch);
    }

    async fn write(&mut self, stall: Duration) -> Result<(), RedisError> {
        if self.outbox.is_empty() {
            return Ok(());
        }
        let write = async {
            self.connection.write_all(&self.outbox).await?;
            self.connection.flush().await
        };
        timeout(stall, write).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(lost)?;
        self.outbox.clear();
        Ok(())
    }

    /// Hands out every reply that has come whole. A batch whose script Redis does not know did not run: it goes again,
    /// with the script's text.
    fn land(&mut self) -> Result<(), RedisError> {
        let inbox = std::mem::take(&mut self.inbox);
        let mut rest = &inbox[..];
        while let Some((reply, length)) = reply::parse(rest)? {
            rest = &rest[length..];
            match (self.flying.pop_front(), reply) {
                (Some(batch), Reply::Value(Some(answers))) => {
                    self.landed += 1;
                    batch.answer(answers);
                }
                (Some(batch), Reply::Value(None)) => {
                    batch.fail(&RedisError::Nonsense("the script answers nothing"));
                }
                (Some(batch), Reply::Error(answer)) => self.refused(batch, RedisError::Refused(answer))?,
                (None, Reply::Error(answer)) => return Err(RedisError::Refused(answer)),
                (None, Reply::Value(_)) => {
                    return Err(RedisError::Nonsense("an answer that nobody asked for"));
                }
            }
        }
        self.inbox = rest.to_vec();
        Ok(())
    }

    fn refused(&mut self, batch: Batch, error: RedisError) -> Result<(), RedisError> {
        if error.is("NOSCRIPT") {
            self.launch(batch, false);
            return Ok(());
        }
        batch.fail(&error);
        // This server takes no writes any more: another one does, and only a new connection finds it.
        if error.is("READONLY") { Err(error) } else { Ok(()) }
    }
}

/// Those whom somebody still waits for, in time. The others were never sent, and are not carried out.
fn wanted(waiting: &mut Vec<Job>) -> Vec<Job> {
    let now = Instant::now();
    let (wanted, late): (Vec<Job>, Vec<Job>) = waiting.drain(..).partition(|job| job.is_wanted(now));
    late.into_iter().for_each(|job| job.answer(Err(RedisError::TooLate)));
    wanted
}

fn lost(error: io::Error) -> RedisError {
    RedisError::Lost(Some(Arc::new(error)))
}
