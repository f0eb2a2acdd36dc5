//! The moments at which limiters are usually wrong (I3 of the requirements), each on every store, under concurrent traffic.
//!
//! One table: every moment on memory, one server, sentinels and a cluster, as far as it exists there. All calls are recorded,
//! and the history checker proves that nothing was admitted beyond a limit, and that every refusal had a reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tollgate::store::redis::{RedisSettings, RedisStore, TimeSource};
use tollgate::{Clock, MemoryStore, SystemClock};
use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::quota::{Quota, QuotaPeriod};
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate_core::time::calendar::Periods;
use tollgate_core::{Item, Keyspace, Limit, Operation, Outcome, Plan, Span, Store, StoreError, Time, Token};
use tollgate_testkit::history::{CallResult, Checker, Held, History, Record, Verdict};
use tollgate_testkit::redis::{Cluster, Flavour, SentinelSet, Server};

use crate::common::{LONG, USER, runtime, subject};

const TASKS: u32 = 6;
const CAPACITY: u64 = 20;
/// The capacity while the rules have other numbers.
const OTHER_CAPACITY: u64 = 30;
const WINDOW: Span = Span::from_ms(200);
/// Calls of a stopped server fail after this.
const SHORT: Duration = Duration::from_millis(60);

/// What happens while the traffic runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    /// Several windows end.
    WindowEdge,
    /// Calendar periods end.
    Rollover,
    /// There are pauses in which all state expires.
    Expiry,
    /// The server closes all connections.
    Reconnect,
    /// The server forgets all scripts.
    ScriptFlush,
    /// The server hangs for longer than the deadline.
    Timeout,
    /// The rules get other numbers, and their own again.
    RulesChange,
    /// The clock that decides jumps ahead and back.
    ClockJumps,
}

const MOMENTS: [Moment; 8] = [
    Moment::WindowEdge,
    Moment::Rollover,
    Moment::Expiry,
    Moment::Reconnect,
    Moment::ScriptFlush,
    Moment::Timeout,
    Moment::RulesChange,
    Moment::ClockJumps,
];

impl Moment {
    /// Whether it needs a server.
    fn is_remote(self) -> bool {
        matches!(self, Moment::Reconnect | Moment::ScriptFlush | Moment::Timeout)
    }

    fn lasts(self) -> Duration {
        Duration::from_millis(match self {
            // The periods of the quota cover a little more.
            Moment::Rollover => 800,
            Moment::Expiry => 1_800,
            _ => 1_000,
        })
    }
}

/// A clock that the test can set.
#[derive(Clone, Default)]
struct JumpingClock {
    ahead_us: Arc<AtomicI64>,
    /// The latest instant that it has shown.
    latest_us: Arc<AtomicU64>,
}

impl Clock for JumpingClock {
    fn now(&self) -> Time {
        let now_us = SystemClock.now().us().saturating_add_signed(self.ahead_us.load(Ordering::SeqCst));
        self.latest_us.fetch_max(now_us, Ordering::SeqCst);
        Time::from_us(now_us)
    }
}

impl JumpingClock {
    fn latest(&self) -> Time {
        Time::from_us(self.latest_us.load(Ordering::SeqCst))
    }
}

/// The store under test.
enum Place {
    Memory(MemoryStore<JumpingClock>),
    Redis(RedisStore<JumpingClock>),
}

impl Place {
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        match self {
            Place::Memory(store) => store.apply(plan).await,
            Place::Redis(store) => store.apply(plan).await,
        }
    }

    fn is_unapplied(&self, error: &StoreError) -> bool {
        match self {
            Place::Memory(_) => false,
            Place::Redis(store) => store.is_unapplied(error),
        }
    }

    fn connections_opened(&self) -> u64 {
        match self {
            Place::Memory(_) => 0,
            Place::Redis(store) => store.generation(),
        }
    }
}

/// The limits that count while calls arrive. Only the capacity differs.
fn limits(moment: Moment, capacity: u64, began: Time) -> Vec<Limit> {
    if moment == Moment::Rollover {
        let period = Span::from_ms(300);
        let first = Time::from_us(began.us() - 50_000);
        let starts = [first, first.plus(period), first.plus(period).plus(period)];
        let end = starts[2].plus(period);
        let periods = Periods::new([starts[0], starts[1], starts[2], end]).unwrap();
        let quota =
            |grace| Limit::Quota(Quota::new(capacity, grace, QuotaPeriod::Calendar(periods)).unwrap());
        return vec![quota(0), quota(5)];
    }
    let sliding = |buckets, counting| {
        Limit::SlidingWindow(SlidingWindow::new(capacity, WINDOW, buckets, counting).unwrap())
    };
    vec![
        Limit::FixedWindow(FixedWindow::new(capacity, WINDOW).unwrap()),
        sliding(4, Counting::Interpolated),
        sliding(4, Counting::Strict),
        Limit::SlidingLog(SlidingLog::with_entries(capacity, WINDOW, 64).unwrap()),
        // The rate stays, so that the debt keeps its unit.
        Limit::Bucket(Bucket::tokens(CAPACITY, WINDOW, capacity).unwrap()),
        Limit::Quota(Quota::new(capacity, 0, QuotaPeriod::Rolling(WINDOW)).unwrap()),
        Limit::Concurrency(Concurrency::new(capacity, WINDOW).unwrap()),
    ]
}

/// What the tasks of one moment share.
struct Traffic {
    moment: Moment,
    place: Place,
    clock: JumpingClock,
    began: Instant,
    keyspaces: Vec<Keyspace>,
    /// The limits with both capacities.
    limits: [Vec<Limit>; 2],
    done: AtomicBool,
}

/// The calls under one limit.
type Calls = Vec<(usize, Record)>;

impl Traffic {
    /// Whether the rules have their other numbers now.
    fn has_other_numbers(&self) -> bool {
        self.moment == Moment::RulesChange && (self.began.elapsed().as_millis() / 90) % 2 == 1
    }

    /// Whether a pause is in progress, which is longer than all state lives.
    fn is_paused(&self) -> bool {
        self.moment == Moment::Expiry && self.began.elapsed().as_millis() % 700 > 200
    }

    async fn call(&self, task: u32, number: u64) -> Option<(usize, Record)> {
        let index = (u64::from(task) + number) as usize % self.keyspaces.len();
        let limit = self.limits[usize::from(self.has_other_numbers())][index];
        let token = Token((u128::from(task) << 64) | (u128::from(number) + 1));
        let item =
            Item::new(self.keyspaces[index].key(subject(USER)), limit, Operation::Charge { cost: 1, token });
        let plan = Plan::of(item).unwrap();
        let before = self.clock.now();
        let found = self.place.apply(&plan).await;
        let after = self.clock.now();
        // The clock may have jumped back, and state keeps the latest instant that it has seen.
        let jumps = self.moment == Moment::ClockJumps;
        let (start, end) = (before.min(after), if jumps { self.clock.latest() } else { after });
        let record = |answer, end| Record::new(limit_name(&limit), 1, answer, start, end).by(task);
        let record = match found {
            Ok(outcome) if outcome.answers[0].is_admitted() => {
                let record = record(CallResult::Allow, end);
                match limit {
                    Limit::Concurrency(_) => record.with_held(Held::leased(start, end, WINDOW)),
                    _ => record,
                }
            }
            Ok(_) => record(CallResult::Refuse, end),
            Err(error) if self.place.is_unapplied(&error) => return None,
            // It may be executed later.
            Err(_) => record(CallResult::Unknown, Time::MAX),
        };
        Some((index, record))
    }

    async fn run(&self, task: u32) -> Calls {
        let mut calls = Vec::new();
        for number in 0.. {
            if self.done.load(Ordering::Relaxed) {
                break;
            }
            if !self.is_paused() {
                calls.extend(self.call(task, number).await);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        calls
    }

    /// Causes the moment until its time is over. Returns how often it has happened.
    fn cause(&self, servers: &[&Server]) -> u32 {
        let mut times = 0;
        let left = || self.moment.lasts().saturating_sub(self.began.elapsed());
        let wait = |time: u64| std::thread::sleep(Duration::from_millis(time).min(left()));
        while !left().is_zero() {
            match self.moment {
                Moment::WindowEdge | Moment::Rollover | Moment::Expiry | Moment::RulesChange => wait(50),
                Moment::Reconnect => {
                    for server in servers {
                        server.admin().unwrap().command(&[b"CLIENT", b"KILL", b"TYPE", b"normal"]).unwrap();
                    }
                    wait(60);
                }
                Moment::ScriptFlush => {
                    servers.iter().for_each(|server| server.admin().unwrap().script_flush().unwrap());
                    wait(40);
                }
                Moment::Timeout => {
                    wait(120);
                    servers.iter().for_each(|server| server.stop().unwrap());
                    std::thread::sleep(2 * SHORT);
                    servers.iter().for_each(|server| server.resume().unwrap());
                    wait(150);
                }
                Moment::ClockJumps => {
                    let jump = [130_000, -90_000, 450_000, -300_000, -60_000, 70_000][times as usize % 6];
                    self.clock.ahead_us.fetch_add(jump, Ordering::SeqCst);
                    wait(95);
                }
            }
            times += 1;
        }
        times
    }
}

fn limit_name(limit: &Limit) -> String {
    format!("{:?}", limit.algorithm())
}

/// Runs the traffic of one moment and checks its history.
fn check(
    runtime: &Runtime,
    name: &str,
    moment: Moment,
    place: Place,
    clock: JumpingClock,
    servers: &[&Server],
) {
    let start = clock.now();
    let limits = [limits(moment, CAPACITY, start), limits(moment, OTHER_CAPACITY, start)];
    let keyspace = |number| Keyspace::new("moments", &format!("{moment:?}-{number}")).unwrap();
    let keyspaces = (0..limits[0].len()).map(keyspace).collect();
    let opened = place.connections_opened();
    let done = AtomicBool::new(false);
    let traffic = Traffic { moment, place, clock, began: Instant::now(), keyspaces, limits, done };
    let traffic = Arc::new(traffic);
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let traffic = Arc::clone(&traffic);
            runtime.spawn(async move { traffic.run(task).await })
        })
        .collect();
    let times = traffic.cause(servers);
    traffic.done.store(true, Ordering::Relaxed);
    let mut histories: Vec<History> = traffic.keyspaces.iter().map(|_| History::new()).collect();
    for task in tasks {
        for (index, record) in runtime.block_on(task).unwrap() {
            histories[index].push(record);
        }
    }
    let (mut unknown, mut refused) = (0, 0);
    for (index, history) in histories.iter().enumerate() {
        let [own, other] = [0, 1].map(|numbers| traffic.limits[numbers][index]);
        let strict: Verdict = Checker::new(own).check(history);
        // While the numbers change, the higher ones bound admissions, and the lower ones justify refusals.
        let most = if moment == Moment::RulesChange { other } else { own };
        let over_admitted = Checker::new(most).check(history).over_admitted;
        let context = || format!("{name}, {moment:?}, {own:?}: {strict}");
        assert!(over_admitted.is_empty(), "{} {over_admitted:?}", context());
        // A bucket that was filled under the higher numbers refuses for longer than the checker expects of the lower.
        let is_overfull = moment == Moment::RulesChange && matches!(own, Limit::Bucket(_));
        assert!(is_overfull || strict.falsely_refused.is_empty(), "{}", context());
        assert!(strict.unchecked.is_empty() && strict.counts.allowed > 0, "{}", context());
        unknown += strict.counts.unknown;
        refused += strict.counts.refused;
    }
    let opened = traffic.place.connections_opened() - opened;
    println!(
        "{name}, {moment:?}: {times} times, {unknown} calls without an answer, {opened} new connections"
    );
    let has_happened = match moment {
        Moment::Reconnect => opened >= 3,
        Moment::ScriptFlush => times >= 8 && unknown == 0,
        Moment::Timeout => unknown > 0,
        Moment::ClockJumps => times >= 6,
        _ => unknown == 0,
    };
    assert!(refused > 0, "{name}, {moment:?}: no limit was reached");
    assert!(has_happened, "{name}, {moment:?}: {times} times, {unknown} unknown, {opened} new connections");
}

/// All moments on one kind of servers.
fn check_servers(name: &str, url: &str, servers: &[&Server]) {
    let runtime = runtime();
    for moment in MOMENTS {
        let clock = JumpingClock::default();
        let (time, margin) = match moment {
            // The server's clock does not jump with ours, so state must live longer by it.
            Moment::ClockJumps => (TimeSource::Application, Duration::from_secs(60)),
            _ => (TimeSource::Store, Duration::ZERO),
        };
        let deadline = if moment == Moment::Timeout { SHORT } else { LONG };
        let settings = RedisSettings::url(url).unwrap().deadline(deadline);
        let settings = settings.time(time).margin(margin).clock(clock.clone());
        let store = runtime.block_on(settings.connect()).unwrap();
        check(&runtime, name, moment, Place::Redis(store), clock, servers);
    }
}

#[test]
fn every_moment_is_exact_in_memory() {
    let runtime = runtime();
    for moment in MOMENTS.into_iter().filter(|moment| !moment.is_remote()) {
        let clock = JumpingClock::default();
        check(&runtime, "memory", moment, Place::Memory(MemoryStore::with_clock(clock.clone())), clock, &[]);
    }
}

#[test]
fn every_moment_is_exact_on_redis() {
    let server = Server::start(Flavour::Redis70).unwrap();
    check_servers("Redis", &server.url(), &[&server]);
}

#[test]
fn every_moment_is_exact_behind_sentinels() {
    let set = SentinelSet::start(Flavour::Redis70).unwrap();
    check_servers("Sentinel", &set.url(), &[set.primary().unwrap()]);
}

#[test]
fn every_moment_is_exact_on_a_cluster() {
    let cluster = Cluster::start(Flavour::Redis70).unwrap();
    let servers: Vec<&Server> = cluster.primaries().into_iter().map(|node| cluster.node(node)).collect();
    check_servers("Cluster", &cluster.url(), &servers);
}
