//! What the layers before Redis save: the share of checks without a round trip, and the CPU time of Redis for each check.
//!
//! Several limiters in this process share one Redis and a paced load: few hot keys and many cold ones. Every figure of a
//! layer stands beside that of exact checks under the same load.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::time::{MissedTickBehavior, interval};
use tollgate::core::plan::answer::AnsweredBy;
use tollgate::store::redis::RedisSettings;
use tollgate::{Decision, HashKey, Limiter};

use super::DrillError;
use crate::redis::{Flavour, Server};

/// Limiters that share the store.
const LIMITERS: usize = 3;
/// Tasks of each limiter. One task checks once per tick.
const TASKS: usize = 4;
const TICK: Duration = Duration::from_millis(2);
/// Keys with 15 of 16 checks together: more than 500 checks a second for each key and limiter.
const HOT: u64 = 2;
const COLD: u64 = 200;
const DEADLINE: Duration = Duration::from_secs(5);

/// How long each part of the drill runs.
#[derive(Clone, Copy, Debug)]
pub struct LayersRun {
    /// The load on exact checks, and the same on slices.
    pub load: Duration,
    /// Units of the key that is used up, with slices.
    pub used_up: u64,
    /// Checks of one key one after another, whose time is measured.
    pub timed_checks: usize,
}

impl LayersRun {
    /// As in the docs.
    pub const FULL: LayersRun =
        LayersRun { load: Duration::from_secs(20), used_up: 1_000_000, timed_checks: 400_000 };
    /// Shows that the drill works.
    pub const SHORT: LayersRun =
        LayersRun { load: Duration::from_secs(2), used_up: 20_000, timed_checks: 10_000 };
}

/// The figures of the drill.
#[derive(Clone, Copy, Debug)]
pub struct Layers {
    /// Exact checks of hot and cold keys.
    pub exact: LoadFigures,
    /// The same with slices.
    pub sliced: LoadFigures,
    /// Exact checks of hot keys only.
    pub exact_hot: LoadFigures,
    /// The same with slices.
    pub sliced_hot: LoadFigures,
    /// Time of a local check: median and 99th percentile.
    pub local_time: [Duration; 2],
    /// A key with slices that is used up.
    pub used_up: UsedUp,
    /// A client that goes on after it was refused: by the refusal memory.
    pub attacker: Refusals,
    /// A client far above its limit, without refusal memory: by the prefilter.
    pub flood: Refusals,
}

/// One run of the load.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadFigures {
    /// Checks of hot keys, and how many of them needed no round trip.
    pub hot: [u64; 2],
    /// The same of all keys.
    pub all: [u64; 2],
    /// CPU time of Redis.
    pub redis_cpu: Duration,
}

/// A limit that several limiters used up.
#[derive(Clone, Copy, Debug, Default)]
pub struct UsedUp {
    /// Units of the limit.
    pub limit: u64,
    /// Units that were admitted.
    pub admitted: u64,
    /// Refusals while units were left.
    pub early: u64,
}

/// Refusals of one client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Refusals {
    /// All refusals.
    pub all: u64,
    /// Those without a round trip.
    pub local: u64,
    /// Admissions in the same time.
    pub admitted: u64,
}

impl LoadFigures {
    /// CPU time of Redis for each check, in microseconds.
    pub fn cpu_us(&self) -> f64 {
        self.redis_cpu.as_secs_f64() * 1e6 / self.all[0].max(1) as f64
    }
}

impl Layers {
    /// How many times less CPU time Redis needs for a check of a hot key with slices.
    pub fn saving_on_hot_keys(&self) -> f64 {
        self.exact_hot.cpu_us() / self.sliced_hot.cpu_us().max(1e-9)
    }

    /// Broken promises, which no machine excuses.
    pub fn broken(&self) -> Vec<String> {
        let UsedUp { limit, admitted, .. } = self.used_up;
        let mut broken = Vec::new();
        if admitted != limit {
            broken.push(format!("slices: {admitted} of {limit} units were admitted"));
        }
        if self.attacker.admitted > 0 {
            broken.push(format!("refusal memory: {} admissions above the limit", self.attacker.admitted));
        }
        broken
    }

    /// Targets that were missed.
    pub fn missed(&self) -> Vec<String> {
        let targets = [
            ("local share on hot keys", percent(self.sliced_hot.hot[1], self.sliced_hot.hot[0]), 95.0),
            ("CPU time saved on hot keys", self.saving_on_hot_keys(), 10.0),
            ("refusals without a round trip", percent(self.attacker.local, self.attacker.all), 99.0),
        ];
        let mut missed: Vec<String> = targets
            .iter()
            .filter(|(_, found, target)| found < target)
            .map(|(what, found, target)| format!("{what}: {found:.2}, target at least {target}"))
            .collect();
        let early = percent(self.used_up.early, self.used_up.admitted);
        if early >= 1.0 {
            missed.push(format!("early refusals: {early:.2} % of admissions, target below 1 %"));
        }
        if self.local_time[1] >= Duration::from_micros(20) {
            missed.push(format!(
                "99th percentile of a local check: {:?}, target below 20 us",
                self.local_time[1]
            ));
        }
        missed
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Layers { exact, sliced, exact_hot, sliced_hot, local_time, used_up, attacker, flood } = self;
        for (name, figures) in [
            ("exact, hot and cold keys", exact),
            ("slices, hot and cold keys", sliced),
            ("exact, hot keys only", exact_hot),
            ("slices, hot keys only", sliced_hot),
        ] {
            writeln!(
                f,
                "{name}: {} checks, {:.2} % without a round trip ({:.2} % on hot keys), {:.2} us of Redis CPU per check",
                figures.all[0],
                percent(figures.all[1], figures.all[0]),
                percent(figures.hot[1], figures.hot[0]),
                figures.cpu_us(),
            )?;
        }
        writeln!(
            f,
            "Redis CPU per check, exact beside slices: {:.1}x on hot and cold keys, {:.1}x on hot keys only",
            exact.cpu_us() / sliced.cpu_us().max(1e-9),
            self.saving_on_hot_keys(),
        )?;
        let [p50, p99] = local_time.map(|time| time.as_nanos() as f64 / 1_000.0);
        writeln!(f, "a local check: p50 {p50:.2} us, p99 {p99:.2} us")?;
        let UsedUp { limit, admitted, early } = used_up;
        writeln!(
            f,
            "slices, limit used up: {admitted} of {limit} admitted, {} over, {early} early refusals ({:.3} % of admissions)",
            admitted.saturating_sub(*limit),
            percent(*early, *admitted),
        )?;
        for (name, Refusals { all, local, .. }) in [("refusal memory", attacker), ("prefilter", flood)] {
            writeln!(f, "{name}: {all} refusals, {:.3} % without a round trip", percent(*local, *all))?;
        }
        Ok(())
    }
}

/// Measures all layers on a new Redis.
pub fn load_off_redis(runtime: &Runtime, run: LayersRun) -> Result<Layers, DrillError> {
    let server = Server::start(Flavour::Redis70)?;
    let figures = |rule: &str, cold: bool| -> Result<LoadFigures, DrillError> {
        load(runtime, &server, &limiters(runtime, &server, rule)?, cold, run.load)
    };
    let exact = "{ id: exact, per: user, limit: { fixed-window: 1000000000/1h } }";
    let sliced = "{ id: sliced, per: user, limit: { fixed-window: 1000000000/1h }, slices: { hold: 250ms } }";
    Ok(Layers {
        exact: figures(exact, true)?,
        sliced: figures(sliced, true)?,
        exact_hot: figures(exact, false)?,
        sliced_hot: figures(sliced, false)?,
        local_time: local_time(runtime, &server, run.timed_checks)?,
        used_up: use_up(runtime, &server, run.used_up)?,
        attacker: attack(runtime, &server, run.load)?,
        flood: flood(runtime, &server, run.load)?,
    })
}

fn limiters(runtime: &Runtime, server: &Server, rule: &str) -> Result<Vec<Limiter>, DrillError> {
    let limiter = |_| -> Result<Limiter, DrillError> {
        let settings = RedisSettings::url(&server.url())?.deadline(DEADLINE);
        let rules = format!("{{ version: 1, rules: [{rule}] }}");
        let builder = Limiter::builder().rules_yaml(rules).hash_key(HashKey::new([7; 32]));
        Ok(runtime.block_on(builder.servers(LIMITERS as u32).redis(settings).build())?)
    };
    (0..LIMITERS).map(limiter).collect()
}

/// Whether the decision needed no round trip.
fn is_local(decision: &Decision) -> bool {
    let local = |by| matches!(by, AnsweredBy::Slice | AnsweredBy::Memory | AnsweredBy::Prefilter);
    decision.rules().all(|rule| local(rule.outcome().by))
}

/// The same sequence of keys in every run.
fn key(number: u64, cold: bool) -> (String, bool) {
    match number % 16 {
        0 if cold => (format!("cold-{}", number.wrapping_mul(0x9e37_79b9) % COLD), false),
        _ => (format!("hot-{}", number % HOT), true),
    }
}

/// Runs the paced load on all limiters.
fn load(
    runtime: &Runtime,
    server: &Server,
    limiters: &[Limiter],
    cold: bool,
    time: Duration,
) -> Result<LoadFigures, DrillError> {
    let mut admin = server.admin()?;
    let cpu_before = admin.cpu_seconds()?;
    let tasks: Vec<_> = limiters
        .iter()
        .flat_map(|limiter| (0..TASKS).map(move |task| (limiter.clone(), task as u64)))
        .map(|(limiter, task)| {
            runtime.spawn(async move {
                let mut figures = LoadFigures::default();
                let (end, mut number) = (Instant::now() + time, task);
                let mut ticks = interval(TICK);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                while Instant::now() < end {
                    ticks.tick().await;
                    let (user, is_hot) = key(number, cold);
                    number += TASKS as u64 + 1;
                    let decision = limiter.check([("user", user.as_str())]).await?;
                    let local = u64::from(is_local(&decision));
                    figures.all = [figures.all[0] + 1, figures.all[1] + local];
                    if is_hot {
                        figures.hot = [figures.hot[0] + 1, figures.hot[1] + local];
                    }
                }
                Ok::<LoadFigures, DrillError>(figures)
            })
        })
        .collect();
    let mut sum = LoadFigures::default();
    for task in tasks {
        let LoadFigures { hot, all, .. } = runtime.block_on(task)??;
        sum.hot = [sum.hot[0] + hot[0], sum.hot[1] + hot[1]];
        sum.all = [sum.all[0] + all[0], sum.all[1] + all[1]];
    }
    let used = (admin.cpu_seconds()? - cpu_before).max(0.0);
    Ok(LoadFigures { redis_cpu: Duration::from_secs_f64(used), ..sum })
}

/// Median and 99th percentile of checks that a slice decides.
fn local_time(runtime: &Runtime, server: &Server, checks: usize) -> Result<[Duration; 2], DrillError> {
    let rule =
        "{ id: timed, per: user, limit: { quota: 1000000000/1h, period: rolling }, slices: { hold: 250ms } }";
    let limiter = limiters(runtime, server, rule)?.swap_remove(0);
    runtime.block_on(async {
        let mut times = Vec::with_capacity(checks);
        for _ in 0..checks {
            let started = Instant::now();
            let decision = limiter.check([("user", "hot")]).await?;
            let took = started.elapsed();
            if is_local(&decision) {
                times.push(took);
            }
        }
        times.sort_unstable();
        let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or(Duration::MAX);
        Ok([at(50), at(99)])
    })
}

/// Uses up a limit with slices, until no check is admitted for longer than all holds.
fn use_up(runtime: &Runtime, server: &Server, limit: u64) -> Result<UsedUp, DrillError> {
    let rule = format!(
        "{{ id: used-up, per: user, limit: {{ quota: {limit}/1h, period: rolling }}, slices: {{ hold: 250ms }} }}"
    );
    let (admitted, early) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let limiters = limiters(runtime, server, &rule)?;
    let tasks: Vec<_> = limiters
        .iter()
        .flat_map(|limiter| std::iter::repeat_n(limiter.clone(), TASKS))
        .map(|limiter| {
            let (admitted, early) = (Arc::clone(&admitted), Arc::clone(&early));
            runtime.spawn(async move {
                let mut refusing: Option<Instant> = None;
                while refusing.is_none_or(|since| since.elapsed() < Duration::from_secs(2)) {
                    let decision = limiter.check([("user", "hot")]).await?;
                    if decision.allowed() {
                        refusing = None;
                        admitted.fetch_add(1, Ordering::Relaxed);
                        tokio::task::yield_now().await;
                    } else {
                        refusing.get_or_insert_with(Instant::now);
                        let is_early = admitted.load(Ordering::Relaxed) < limit;
                        early.fetch_add(u64::from(is_early), Ordering::Relaxed);
                        tokio::time::sleep(5 * TICK).await;
                    }
                }
                Ok::<(), DrillError>(())
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task)??;
    }
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    Ok(UsedUp { limit, admitted: read(&admitted), early: read(&early) })
}

/// A client that goes on after its limit is used up, on all limiters.
fn attack(runtime: &Runtime, server: &Server, time: Duration) -> Result<Refusals, DrillError> {
    let rule = "{ id: attacked, per: user, limit: { fixed-window: 10/30d } }";
    let limiters = limiters(runtime, server, rule)?;
    runtime.block_on(async {
        while limiters[0].check([("user", "192.0.2.1")]).await?.allowed() {}
        Ok::<(), DrillError>(())
    })?;
    ask_for(runtime, &limiters, "user", time)
}

/// An address that sends far more than its limit, under a rule that remembers no refusals.
fn flood(runtime: &Runtime, server: &Server, time: Duration) -> Result<Refusals, DrillError> {
    let rule =
        "{ id: flooded, per: ip, limit: { fixed-window: 100/30d }, prefilter: 300%, refusal_memory: off }";
    ask_for(runtime, &limiters(runtime, server, rule)?, "ip", time)
}

fn ask_for(
    runtime: &Runtime,
    limiters: &[Limiter],
    attribute: &'static str,
    time: Duration,
) -> Result<Refusals, DrillError> {
    let tasks: Vec<_> = limiters
        .iter()
        .cloned()
        .map(|limiter| {
            runtime.spawn(async move {
                let (mut found, end) = (Refusals::default(), Instant::now() + time);
                while Instant::now() < end {
                    let decision = limiter.check([(attribute, "192.0.2.1")]).await?;
                    if decision.allowed() {
                        found.admitted += 1;
                        continue;
                    }
                    found.all += 1;
                    found.local += u64::from(is_local(&decision));
                    tokio::task::yield_now().await;
                }
                Ok::<Refusals, DrillError>(found)
            })
        })
        .collect();
    let mut sum = Refusals::default();
    for task in tasks {
        let Refusals { all, local, admitted } = runtime.block_on(task)??;
        sum = Refusals { all: sum.all + all, local: sum.local + local, admitted: sum.admitted + admitted };
    }
    Ok(sum)
}
