//! The model store behind a network that loses and delays messages, with a replica that may be promoted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tollgate::ManualClock;
use tollgate_core::{Operation, Outcome, Plan, Retry, Span, Store, StoreError, Time, Verdict};

use super::executor::VirtualTime;
use super::ledger::{Ledger, Local};
use super::standby::Standby;
use crate::model::Model;
use crate::random::Random;

/// The longest time that a call of the store takes.
pub(super) const DEADLINE: Span = Span::from_ms(25);

/// The longest time for which a server repeats a refusal.
pub(super) const REPEATED_MAX: Span = Span::from_secs(1);

/// What the servers share.
#[derive(Clone)]
pub(super) struct Network {
    inner: Arc<Mutex<Inner>>,
    pub(super) time: VirtualTime,
    /// Any instant, from which virtual instants are counted.
    start: (Instant, Time),
}

pub(super) struct Inner {
    random: Random,
    primary: Model<ManualClock>,
    /// The primary as it was at the last replication.
    replica: Model<ManualClock>,
    clock: ManualClock,
    /// The primary's clock minus the true time, in microseconds.
    clock_offset_us: i64,
    /// How many of the ledger's admissions the replica has.
    replicated: usize,
    pub(super) faults: Faults,
    pub(super) ledger: Ledger,
    pub(super) servers: Vec<ServerState>,
    pub(super) seen: Seen,
}

/// One simulated server, apart from its limiter.
pub(super) struct ServerState {
    /// The server's clock minus the true time, in microseconds.
    pub(super) clock_offset_us: i64,
    /// What its limiters must do.
    pub(super) standby: Standby,
    /// Whether it cannot reach the store.
    pub(super) is_cut_off: bool,
    /// How often its process was started before.
    pub(super) restarts: u32,
    /// What the store refused to this process.
    pub(super) refusals: Vec<Refusal>,
    /// The check that the store just failed to answer.
    pub(super) unanswered: Option<Unanswered>,
    /// When the store applied the Plan that it just answered.
    pub(super) answered: Option<StoreInstant>,
}

/// An instant of the store's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreInstant {
    pub(super) at: Time,
    /// How many failovers came before. Each may lose writes and set the clock.
    pub(super) failovers: u64,
}

/// A refusal that a server may repeat for a while.
pub(super) struct Refusal {
    pub(super) rule: String,
    pub(super) cost: u64,
    /// The first instant at which it must ask again.
    pub(super) until: Time,
}

/// A check that the failure policies answer.
pub(super) struct Unanswered {
    /// Whether they must allow it.
    pub(super) is_allowed: bool,
    /// What is charged locally if they do.
    pub(super) charges: Vec<Local>,
}

/// The faults in force.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) down: bool,
    pub(super) rejects_credentials: bool,
    /// In percent of all replies.
    pub(super) lost_replies: usize,
    /// The longest delay of a message, in microseconds.
    pub(super) delay_us: usize,
}

/// How often each fault happened, so that a run without faults is detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Calls while the store did not answer.
    pub unreachable: u64,
    /// Calls that the store applied without an answer in time.
    pub lost_replies: u64,
    /// Calls whose request or reply came after the deadline.
    pub late: u64,
    /// Calls with rejected credentials.
    pub rejected: u64,
    /// Promotions of the replica.
    pub failovers: u64,
    /// Admissions that a promoted replica did not have.
    pub lost_writes: u64,
    /// Process starts after a crash.
    pub restarts: u64,
    /// Steps of a clock.
    pub clock_steps: u64,
}

impl Seen {
    /// Returns all counts with their names.
    pub fn rows(&self) -> [(&'static str, u64); 8] {
        [
            ("calls without a store", self.unreachable),
            ("lost replies", self.lost_replies),
            ("late messages", self.late),
            ("rejected credentials", self.rejected),
            ("failovers", self.failovers),
            ("lost writes", self.lost_writes),
            ("restarts", self.restarts),
            ("clock steps", self.clock_steps),
        ]
    }

    pub(super) fn add(&mut self, other: &Seen) {
        self.unreachable += other.unreachable;
        self.lost_replies += other.lost_replies;
        self.late += other.late;
        self.rejected += other.rejected;
        self.failovers += other.failovers;
        self.lost_writes += other.lost_writes;
        self.restarts += other.restarts;
        self.clock_steps += other.clock_steps;
    }
}

impl Network {
    pub(super) fn new(time: VirtualTime, random: Random, servers: Vec<ServerState>) -> Network {
        let clock = ManualClock::at(time.now());
        let primary = Model::new(clock.clone());
        let inner = Inner {
            random,
            replica: primary.clone(),
            primary,
            clock,
            clock_offset_us: 0,
            replicated: 0,
            faults: Faults::default(),
            ledger: Ledger::default(),
            servers,
            seen: Seen::default(),
        };
        Network { inner: Arc::new(Mutex::new(inner)), start: (Instant::now(), time.now()), time }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store as one server sees it.
    pub(super) fn link(&self, server: usize) -> Link {
        let process = self.lock().servers[server].restarts;
        Link { network: self.clone(), server, process }
    }

    /// Returns the time on a server's clock.
    fn server_time(&self, server: usize) -> Time {
        let offset_us = self.lock().servers[server].clock_offset_us;
        shifted(self.time.now(), offset_us)
    }
}

impl Inner {
    /// Copies the primary's state to the replica.
    pub(super) fn replicate(&mut self) {
        self.replica = self.primary.clone();
        self.replicated = self.ledger.len();
        self.ledger.replicate();
    }

    /// Promotes the replica. What it had not received is lost. Its clock differs by `clock_step_us`.
    pub(super) fn fail_over(&mut self, clock_step_us: i64) {
        self.primary = self.replica.clone();
        self.seen.failovers += 1;
        self.seen.lost_writes += self.ledger.lose_after(self.replicated);
        self.clock_offset_us += clock_step_us;
    }

    fn apply(&mut self, plan: &Plan<'_>, now: Time) -> Result<Outcome, StoreError> {
        self.clock.set(shifted(now, self.clock_offset_us));
        let outcome = self.primary.apply_now(plan)?;
        self.ledger.note_applied(plan, &outcome);
        Ok(outcome)
    }

    /// Returns the store's time now.
    pub(super) fn store_instant(&self, now: Time) -> StoreInstant {
        StoreInstant { at: shifted(now, self.clock_offset_us), failovers: self.seen.failovers }
    }

    fn delay(&mut self) -> Span {
        Span::from_us(self.random.below(self.faults.delay_us.max(1)) as u64)
    }
}

/// For how long a server may repeat the refusals in an answer to a question that it sent at `sent`.
fn refusals(plan: &Plan<'_>, outcome: &Outcome, sent: Time) -> Vec<Refusal> {
    let items = plan.items().iter().zip(&outcome.answers);
    let refused = items.filter_map(|(item, answer)| {
        let Verdict::Refused(Retry::At(at)) = answer.verdict else { return None };
        let wait_us = at.us().saturating_sub(outcome.now.us()).min(REPEATED_MAX.us());
        let rule = item.key.keyspace().rule().to_owned();
        let cost = item.operation.cost().unwrap_or(0);
        Some(Refusal { rule, cost, until: sent.plus(Span::from_us(wait_us)) })
    });
    refused.collect()
}

fn shifted(time: Time, by_us: i64) -> Time {
    Time::from_us(time.us().saturating_add_signed(by_us))
}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
#[error("no answer")]
struct NoAnswer {
    /// Whether the server knows that the store has not applied the Plan.
    is_unapplied: bool,
}

/// One server's connection to the store.
pub struct Link {
    network: Network,
    server: usize,
    /// How often the server's process had been started before this one.
    process: u32,
}

impl Link {
    /// Returns a monotonic clock that shows the virtual time.
    pub fn instants(&self) -> impl Fn() -> Instant + Send + Sync + 'static {
        let Network { time, start: (start, began), .. } = self.network.clone();
        move || start + Duration::from_micros(time.now().us() - began.us())
    }

    /// Sends a Plan. Also returns when the store applied it, which the server does not know.
    async fn send(&self, plan: &Plan<'_>) -> (Result<Outcome, StoreError>, Option<StoreInstant>) {
        let unanswered = || Err(StoreError::Transient(Box::new(NoAnswer { is_unapplied: false })));
        let Network { time, .. } = &self.network;
        let sent = time.now();
        let left = || Span::from_us(DEADLINE.us().saturating_sub(time.now().us() - sent.us()));
        let (faults, is_cut_off, delay, is_refused) = {
            let mut inner = self.network.lock();
            let (delay, is_refused) = (inner.delay(), inner.random.below(2) == 0);
            (inner.faults, inner.servers[self.server].is_cut_off, delay, is_refused)
        };
        if faults.down || is_cut_off {
            // A refused connection is seen at once, a silent one at the deadline.
            self.network.lock().seen.unreachable += 1;
            if is_refused {
                return (Err(StoreError::Transient(Box::new(NoAnswer { is_unapplied: true }))), None);
            }
            time.sleep(left()).await;
            return (unanswered(), None);
        }
        time.sleep(delay.min(left())).await;
        if delay >= DEADLINE || self.network.lock().faults.down {
            self.network.lock().seen.late += 1;
            time.sleep(left()).await;
            return (unanswered(), None);
        }
        let (applied, instant, is_lost, delay) = {
            let mut inner = self.network.lock();
            if inner.faults.rejects_credentials {
                inner.seen.rejected += 1;
                return (Err(StoreError::Misconfigured("WRONGPASS".into())), None);
            }
            let applied = inner.apply(plan, time.now());
            let instant = Some(inner.store_instant(time.now()));
            let is_lost = inner.random.below(100) < faults.lost_replies;
            (applied, instant, is_lost, inner.delay())
        };
        let is_late = delay >= left();
        time.sleep(if is_lost { left() } else { delay.min(left()) }).await;
        if is_lost || is_late {
            let seen = &mut self.network.lock().seen;
            *(if is_lost { &mut seen.lost_replies } else { &mut seen.late }) += 1;
            return (unanswered(), instant);
        }
        (applied, instant)
    }
}

impl Store for Link {
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        let sent = self.network.time.now();
        let (answer, applied) = self.send(plan).await;
        let now = self.now();
        let mut inner = self.network.lock();
        let server = &mut inner.servers[self.server];
        let is_check = plan.items().iter().all(|item| item.asks_for_admission());
        if server.restarts != self.process || !is_check {
            // The process has crashed meanwhile, or it posts what it has admitted.
            return answer;
        }
        match &answer {
            Ok(outcome) => {
                server.answered = applied;
                server.standby.follow(plan, outcome);
                server.refusals.extend(refusals(plan, outcome, sent));
            }
            Err(error) => {
                let process = (self.server, server.restarts);
                let charges = plan.items().iter().map(|item| Local {
                    rule: item.key.keyspace().rule().to_owned(),
                    key: item.key.fingerprint(),
                    process,
                    cost: item.operation.cost().unwrap_or(0),
                    at: now,
                    is_certain: self.is_unapplied(error),
                });
                let charges = charges.collect();
                let is_allowed = server.standby.answer(plan, error, now);
                server.unanswered = Some(Unanswered { is_allowed, charges });
            }
        }
        answer
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        let mut inner = self.network.lock();
        let Faults { down, rejects_credentials, .. } = inner.faults;
        // A return is sent once. What is booked after the fact would be sent again until it arrives.
        let is_return = plan.items().iter().all(|item| matches!(item.operation, Operation::Refund { .. }));
        if is_return && (down || rejects_credentials || inner.servers[self.server].is_cut_off) {
            return;
        }
        // No limiter follows an answer that is not awaited.
        drop(inner.apply(plan, self.network.time.now()));
    }

    /// Counts failovers: a server sees each at once, by its broken connection.
    fn generation(&self) -> u64 {
        self.network.lock().seen.failovers
    }

    fn is_unapplied(&self, error: &StoreError) -> bool {
        let StoreError::Transient(cause) = error else { return false };
        cause.downcast_ref().is_some_and(|cause: &NoAnswer| cause.is_unapplied)
    }

    fn now(&self) -> Time {
        self.network.server_time(self.server)
    }
}
