//! Load from many tasks. Every answer is recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tollgate::store::redis::{RedisError, RedisStore};
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::{
    Item, Keyspace, Limit, Operation, Plan, Span, State, Store, StoreError, Subject, SubjectHasher, Time,
};

use super::DrillError;
use crate::servers::random::Random;

/// Longer than any drill.
const WINDOW: Span = Span::from_secs(30 * 86_400);
/// How long a request id is remembered.
const ID_HORIZON: Span = Span::from_secs(60);
/// Pause after a failure, because a task that fails at once would otherwise retry in a busy loop.
const PAUSE: Duration = Duration::from_millis(1);

/// Tasks that send checks until they are stopped.
pub struct Load {
    record: Arc<LoadRecord>,
    stopped: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

/// The rules and subjects of the load, and all answers.
pub(super) struct LoadRecord {
    pub(super) limit: Limit,
    pub(super) most: u64,
    /// One per item of a Plan.
    keyspaces: Vec<Keyspace>,
    pub(super) accounts: Vec<Account>,
    with_ids: bool,
    hasher: SubjectHasher,
    /// Number of checks.
    asked: AtomicU64,
    slowest_us: AtomicU64,
    began: Instant,
    /// Microseconds since the start.
    last_success_us: AtomicU64,
    widest_gap_us: AtomicU64,
}

/// The answers to the checks of one subject.
pub(super) struct Account {
    pub(super) subject: Subject,
    pub(super) admitted: AtomicU64,
    refused: AtomicU64,
    /// Checks that may have been charged.
    unknown: AtomicU64,
    /// Checks that were not charged.
    failed: AtomicU64,
}

/// Numbers of answers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Checks that were admitted.
    pub admitted: u64,
    /// Checks that were refused.
    pub refused: u64,
    /// Checks whose answer was lost. They may have been charged.
    pub unknown: u64,
    /// Checks that were not charged, because no server could be reached.
    pub failed: u64,
}

impl Load {
    /// Starts the load.
    pub fn start(runtime: &Runtime, store: &RedisStore, shape: Shape, seed: u64) -> Result<Load, DrillError> {
        let record = Arc::new(LoadRecord::new(shape, seed)?);
        let stopped = Arc::new(AtomicBool::new(false));
        let tasks = (0..shape.tasks).map(|task| {
            let (record, stopped, store) = (Arc::clone(&record), Arc::clone(&stopped), store.clone());
            runtime.spawn(async move {
                let mut random = Random::new(seed ^ (task as u64) << 32);
                while !stopped.load(Ordering::Relaxed) {
                    record.check(&store, random.below(record.accounts.len())).await;
                    tokio::time::sleep(PAUSE).await;
                }
            })
        });
        let tasks = tasks.collect();
        Ok(Load { record, stopped, tasks })
    }

    /// Returns the answers so far, for the subjects that `which` selects by number.
    pub fn tally(&self, which: impl Fn(usize) -> bool) -> Tally {
        self.record.tally(which)
    }

    /// Returns the keys of a subject.
    pub fn keys(&self, number: usize) -> Vec<String> {
        self.record.keys(number)
    }

    /// Waits until a check after `from` is admitted or refused. Returns `None` if that takes longer than `within`.
    pub fn answered_after(&self, from: Instant, within: Duration) -> Option<Instant> {
        let from_us = self.record.us(from);
        let until = Instant::now() + within;
        while Instant::now() < until {
            let last_us = self.record.last_success_us.load(Ordering::Relaxed);
            if last_us > from_us {
                return Some(self.record.began + Duration::from_micros(last_us));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        None
    }

    /// Returns the longest time without an answer since the last call.
    pub fn widest_gap(&self) -> Duration {
        Duration::from_micros(self.record.widest_gap_us.swap(0, Ordering::Relaxed))
    }

    /// Returns the longest time that any check took.
    pub fn slowest(&self) -> Duration {
        Duration::from_micros(self.record.slowest_us.load(Ordering::Relaxed))
    }

    /// Returns the admissions so far, by subject.
    pub(super) fn admitted(&self) -> Vec<u64> {
        self.record.accounts.iter().map(|account| account.admitted.load(Ordering::Relaxed)).collect()
    }

    pub(super) fn record(&self) -> &LoadRecord {
        &self.record
    }

    /// Stops the load and waits for the last answers.
    pub fn stop(&mut self, runtime: &Runtime) -> Result<(), DrillError> {
        self.stopped.store(true, Ordering::Relaxed);
        for task in self.tasks.drain(..) {
            runtime.block_on(task)?;
        }
        Ok(())
    }
}

/// The size of the load.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Number of tasks.
    pub tasks: usize,
    /// Number of subjects.
    pub subjects: usize,
    /// Limit of each subject.
    pub most: u64,
    /// Rules per check, all in the hash slot of the subject.
    pub rules: usize,
    /// Whether every check has a separate request id.
    pub with_ids: bool,
}

impl LoadRecord {
    fn new(shape: Shape, seed: u64) -> Result<LoadRecord, DrillError> {
        let hasher = SubjectHasher::new([9; 32]);
        let account = |number: usize| Account {
            subject: hasher.subject([("user", format!("{seed}-{number}").as_str())]),
            admitted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        };
        let keyspaces = (0..shape.rules).map(|rule| Keyspace::new("drill", &format!("rule-{rule}")));
        Ok(LoadRecord {
            limit: Limit::FixedWindow(FixedWindow::new(shape.most, WINDOW)?),
            most: shape.most,
            keyspaces: keyspaces.collect::<Result<_, _>>()?,
            accounts: (0..shape.subjects).map(account).collect(),
            with_ids: shape.with_ids,
            hasher: SubjectHasher::new([9; 32]),
            asked: AtomicU64::new(seed << 32),
            slowest_us: AtomicU64::new(0),
            began: Instant::now(),
            last_success_us: AtomicU64::new(0),
            widest_gap_us: AtomicU64::new(0),
        })
    }

    fn us(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.began).as_micros() as u64
    }

    fn keys(&self, number: usize) -> Vec<String> {
        let subject = self.accounts[number].subject;
        self.keyspaces.iter().map(|keyspace| keyspace.key(subject).to_string()).collect()
    }

    fn plan(&self, subject: Subject, operation: Operation) -> Result<Plan<'_>, DrillError> {
        let mut plan = Plan::new();
        for keyspace in &self.keyspaces {
            plan.push(Item::new(keyspace.key(subject), self.limit, operation))?;
        }
        Ok(plan)
    }

    async fn check(&self, store: &RedisStore, number: usize) {
        let account = &self.accounts[number];
        let Ok(mut plan) = self.plan(account.subject, Operation::charge(1)) else { return };
        if self.with_ids {
            let id = self.asked.fetch_add(1, Ordering::Relaxed).to_string();
            plan.set_request_id(self.hasher.subject([("request", id.as_str())]), ID_HORIZON, 0);
        }
        let asked = Instant::now();
        let found = store.apply(&plan).await;
        let (done, took) = (self.us(Instant::now()), asked.elapsed());
        self.slowest_us.fetch_max(took.as_micros() as u64, Ordering::Relaxed);
        let counter = match &found {
            Ok(outcome) if outcome.answers.iter().all(|answer| answer.is_admitted()) => &account.admitted,
            Ok(_) => &account.refused,
            Err(error) if may_have_applied(error) => &account.unknown,
            Err(_) => &account.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if found.is_ok() {
            let before = self.last_success_us.fetch_max(done, Ordering::Relaxed);
            if before > 0 {
                self.widest_gap_us.fetch_max(done.saturating_sub(before), Ordering::Relaxed);
            }
        }
    }

    fn tally(&self, which: impl Fn(usize) -> bool) -> Tally {
        let mut sum = Tally::default();
        for (_, account) in self.accounts.iter().enumerate().filter(|(number, _)| which(*number)) {
            sum.admitted += account.admitted.load(Ordering::Relaxed);
            sum.refused += account.refused.load(Ordering::Relaxed);
            sum.unknown += account.unknown.load(Ordering::Relaxed);
            sum.failed += account.failed.load(Ordering::Relaxed);
        }
        sum
    }

    /// Returns the charges of a subject according to the store. Fails if they differ between rules.
    pub(super) async fn charged(&self, store: &RedisStore, number: usize) -> Result<u64, DrillError> {
        let plan = self.plan(self.accounts[number].subject, Operation::Peek { cost: 0 })?;
        let outcome = store.apply(&plan).await?;
        let charged = outcome.answers.iter().map(|answer| self.most - answer.remaining);
        let charged: Vec<u64> = charged.collect();
        match charged.split_first() {
            Some((first, others)) if others.iter().all(|other| other == first) => Ok(*first),
            _ => Err(format!("subject {number}: rules that are charged together have {charged:?}").into()),
        }
    }

    /// Returns the charges in a state that was read from a server.
    pub(super) fn charged_in(&self, bytes: &[u8], now: Time) -> Result<u64, DrillError> {
        let state = State::decode(bytes)?;
        let standing = self.limit.decide(Some(&state), now, &Operation::Peek { cost: 0 });
        Ok(self.most - standing.answer.remaining)
    }
}

fn may_have_applied(error: &StoreError) -> bool {
    let StoreError::Transient(cause) = error else { return false };
    cause.downcast_ref::<RedisError>().is_some_and(RedisError::may_have_applied)
}
