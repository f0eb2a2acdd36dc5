//! An open-loop load: checks are due at a fixed rate, whether or not earlier ones are answered.
//!
//! A latency is counted from the instant at which the check was due, so a slow server cannot hide behind checks that were
//! not sent.

mod connection;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;

use super::traffic::{Answer, Call, Check, Class};
use crate::drill::DrillError;
use crate::servers::random::Random;
use connection::Connection;

/// Connections to each server. A server answers the commands of one connection in order.
const CONNECTIONS: usize = 16;
/// Commands that may wait for a connection.
const QUEUE: usize = 256;
const TICK: Duration = Duration::from_millis(1);
/// One in this number of checks with a request id is repeated, although it was answered.
const REPEATED: usize = 10;

/// The address of a process, and its number.
#[derive(Clone, Copy, Debug, Default)]
struct Process {
    address: Option<SocketAddr>,
    life: u32,
}

/// Where a server is, and what it answered.
#[derive(Debug, Default)]
pub(super) struct Target {
    process: Mutex<Process>,
    /// Answers of the store, and of failure policies.
    pub(super) by_store: AtomicU64,
    pub(super) by_policy: AtomicU64,
    /// The first answer that is neither a decision nor a refusal for too much load.
    error: OnceLock<String>,
}

impl Target {
    /// Sets the address of a new process; `None` while there is no process.
    pub(super) fn set(&self, address: Option<SocketAddr>) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        *process = Process { address, life: process.life + 1 };
    }

    fn get(&self) -> Option<(SocketAddr, u32)> {
        let Process { address, life } = *self.process.lock().unwrap_or_else(PoisonError::into_inner);
        address.map(|address| (address, life))
    }

    /// Returns the first unexpected answer.
    pub(super) fn error(&self) -> Option<&str> {
        self.error.get().map(String::as_str)
    }

    fn count(&self, answer: Answer) {
        match answer {
            Answer::Store { .. } => self.by_store.fetch_add(1, Ordering::SeqCst),
            Answer::Policy { .. } => self.by_policy.fetch_add(1, Ordering::SeqCst),
            _ => return,
        };
    }
}

/// The size of the load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Checks per second, of all servers together.
    pub(super) per_second: u64,
    /// Number of subjects. Their shares follow Zipf's law.
    pub(super) subjects: u32,
    pub(super) seed: u64,
}

/// A running load.
pub(super) struct Load {
    is_over: Arc<AtomicBool>,
    scheduler: JoinHandle<Vec<Call>>,
    connections: Vec<JoinHandle<Vec<Call>>>,
}

impl Load {
    pub(super) fn start(runtime: &Runtime, targets: &Arc<Vec<Target>>, shape: Shape) -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        let (repeat, repetitions) = mpsc::unbounded_channel();
        let (mut queues, mut connections) = (Vec::new(), Vec::new());
        for number in 0..targets.len() * CONNECTIONS {
            let (sender, checks) = mpsc::channel(QUEUE);
            let is_up = Arc::new(AtomicBool::new(false));
            queues.push(ConnectionQueue { sender, is_up: Arc::clone(&is_up) });
            let connection = Connection {
                targets: Arc::clone(targets),
                server: number % targets.len(),
                seed: shape.seed,
                checks,
                is_up,
                is_over: Arc::clone(&is_over),
                repeat: repeat.clone(),
            };
            connections.push(runtime.spawn(connection.run()));
        }
        let scheduler = Scheduler {
            queues,
            servers: targets.len(),
            shape,
            random: Random::new(shape.seed),
            repetitions,
            is_over: Arc::clone(&is_over),
            unsent: Vec::new(),
            asked: 0,
        };
        let scheduler = runtime.spawn(scheduler.run(repeat));
        Load { is_over, scheduler, connections }
    }

    /// Stops it, waits for the last answers, and returns all calls.
    pub(super) fn stop(self, runtime: &Runtime) -> Result<Vec<Call>, DrillError> {
        self.is_over.store(true, Ordering::SeqCst);
        let mut calls = runtime.block_on(self.scheduler)?;
        for connection in self.connections {
            calls.extend(runtime.block_on(connection)?);
        }
        calls.sort_by_key(|call| call.due);
        Ok(calls)
    }
}

/// A check on its way to a connection.
#[derive(Clone, Copy, Debug)]
struct DueCheck {
    check: Check,
    due: Instant,
}

/// The way to a connection.
struct ConnectionQueue {
    sender: mpsc::Sender<DueCheck>,
    is_up: Arc<AtomicBool>,
}

struct Scheduler {
    queues: Vec<ConnectionQueue>,
    servers: usize,
    shape: Shape,
    random: Random,
    repetitions: UnboundedReceiver<Check>,
    is_over: Arc<AtomicBool>,
    unsent: Vec<Call>,
    asked: u64,
}

impl Scheduler {
    async fn run(mut self, repeat: UnboundedSender<Check>) -> Vec<Call> {
        // Only connections repeat. The channel must stay open until the scheduler has read everything.
        drop(repeat);
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let began = Instant::now();
        let gap = Duration::from_nanos(1_000_000_000 / self.shape.per_second.max(1));
        while !self.is_over.load(Ordering::SeqCst) {
            ticks.tick().await;
            let due = (began.elapsed().as_nanos() / gap.as_nanos()) as u64;
            while self.asked < due {
                self.asked += 1;
                let check = self.random_check();
                self.send(DueCheck { check, due: began + gap * self.asked as u32 });
            }
            while let Ok(check) = self.repetitions.try_recv() {
                self.send(DueCheck { check, due: Instant::now() });
            }
        }
        self.unsent
    }

    fn random_check(&mut self) -> Check {
        let class = Class::random(&mut self.random);
        let user = match class {
            Class::Hot => 0,
            // The logarithm of a rank under Zipf's law is almost uniform.
            _ => f64::from(self.shape.subjects).powf(self.random.fraction()) as u32,
        };
        let id = (class == Class::Ids).then_some(self.asked);
        Check { class, user, id, is_repetition: false }
    }

    /// Sends to any connection that is up.
    fn send(&mut self, due_check: DueCheck) {
        let first = self.random.below(self.queues.len());
        for offset in 0..self.queues.len() {
            let queue = &self.queues[(first + offset) % self.queues.len()];
            if queue.is_up.load(Ordering::SeqCst) && queue.sender.try_send(due_check).is_ok() {
                return;
            }
        }
        let DueCheck { check, due } = due_check;
        let server = (first % self.servers) as u32;
        let now = Instant::now();
        self.unsent.push(Call { check, server, life: 0, due, sent: now, done: now, answer: Answer::Unsent });
    }
}

/// Whether a check with a request id is sent again after this answer.
fn is_repeated(check: &Check, answer: Answer, random: &mut Random) -> bool {
    check.id.is_some() && !check.is_repetition && (answer.may_be_charged() || random.below(REPEATED) == 0)
}
