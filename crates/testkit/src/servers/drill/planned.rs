//! An operator makes a replica the primary while the primary is healthy.
//!
//! Both servers accept writes for a while. Those that the old primary accepts after the promotion are lost.

use std::fmt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tollgate::store::redis::RedisStore;

use super::DrillError;
use super::failover::{excess, store};
use super::load::{Load, Shape, Tally};
use super::stall::StallWatch;
use crate::redis::{Cluster, Promotion, SentinelSet, slot_of};

const BEFORE: Duration = Duration::from_millis(400);
/// Longer than sentinels need to announce the new primary.
const AFTER: Duration = Duration::from_millis(1_500);
/// Until the limits are reached. Only then can there be over-admission.
const REACHED_MAX: Duration = Duration::from_secs(20);
/// The excess may be at most what is written in this time.
const LEFT_WITHIN: Duration = Duration::from_millis(50);
/// Longer than a store needs to subscribe to all sentinels, with one repeated attempt.
const SUBSCRIBED: Duration = Duration::from_secs(2);
/// A machine that stalled for longer around the failover says nothing about the store. The round is repeated.
const STALL_MAX: Duration = Duration::from_millis(15);
/// Attempts of a round until its figures count whatever the machine did.
const ATTEMPTS: u64 = 6;
const SUBJECTS: usize = 40;
const SHAPE: Shape = Shape { tasks: 16, subjects: SUBJECTS, most: 400, rules: 1, with_ids: false };

/// The figures of one planned failover.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// Checks answered per second before the failover.
    pub per_second: u64,
    /// Longest time without an answer around the failover.
    pub gap: Duration,
    /// How late the machine woke a thread around the failover, at worst.
    pub stall: Duration,
    /// Admissions that the new primary does not know.
    pub lost: u64,
    /// Admissions beyond the limits.
    pub excess: u64,
    /// All answers.
    pub tally: Tally,
}

impl Planned {
    /// The number of checks in 50 ms, which is the bound of `lost` and `excess`.
    pub fn bound(&self) -> u64 {
        self.per_second * LEFT_WITHIN.as_millis() as u64 / 1_000
    }

    /// Whether the figures are within the bound.
    pub fn is_within_bound(&self) -> bool {
        self.lost <= self.bound() && self.excess <= self.bound()
    }
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Planned { per_second, gap, stall, lost, excess, tally } = self;
        let Tally { admitted, refused, unknown, failed } = tally;
        write!(
            f,
            "lost writes {lost}, excess {excess}, bound {} ({per_second} checks/s for {} ms); widest gap {} ms; machine \
             stalled {} ms; admitted {admitted}, refused {refused}, unknown {unknown}, failed {failed}",
            self.bound(),
            LEFT_WITHIN.as_millis(),
            gap.as_millis(),
            stall.as_millis(),
        )
    }
}

/// Orders failovers of a set, one after the other, while one store is under load. Checks of every second round have
/// request ids.
pub fn planned_sentinel_failovers(
    runtime: &Runtime,
    set: &SentinelSet,
    times: u64,
    seed: u64,
) -> Result<Vec<Planned>, DrillError> {
    let store = store(runtime, &set.url())?;
    // A store that has just connected may not have subscribed to every sentinel yet.
    sleep(SUBSCRIBED);
    let round = |round| {
        let with_ids = round % 2 == 1;
        undisturbed(|attempt| {
            set.wait_replicas_in_sync()?;
            let seed = seed + round + times * attempt;
            let planned = under_load(runtime, &store, with_ids, seed, |_| Ok(set.failover()?))?;
            println!("sentinel planned {round:>2}{}: {planned}", if with_ids { " with ids" } else { "" });
            set.wait_settled()?;
            Ok(planned)
        })
    };
    (0..times).map(round).collect()
}

/// Orders failovers of the primaries of a cluster, one after the other. Checks of every second round have request ids.
pub fn planned_cluster_failovers(
    runtime: &Runtime,
    cluster: &Cluster,
    times: u64,
    seed: u64,
) -> Result<Vec<Planned>, DrillError> {
    let store = store(runtime, &cluster.url())?;
    let round = |round| {
        let with_ids = round % 2 == 1;
        undisturbed(|attempt| {
            cluster.wait_replicas_in_sync()?;
            let planned = under_load(runtime, &store, with_ids, seed + round + times * attempt, |load| {
                let owner = cluster.owner(slot_of(load.keys(0)[0].as_bytes()))?;
                Ok(cluster.failover(cluster.replica_of(owner)?)?)
            })?;
            println!("cluster planned {round:>2}{}: {planned}", if with_ids { " with ids" } else { "" });
            cluster.wait_settled()?;
            Ok(planned)
        })
    };
    (0..times).map(round).collect()
}

/// Repeats a round while the machine disturbs it. A round within the bound counts, however busy the machine was.
fn undisturbed(round: impl Fn(u64) -> Result<Planned, DrillError>) -> Result<Planned, DrillError> {
    let mut attempt = 0;
    loop {
        let planned = round(attempt)?;
        attempt += 1;
        if planned.is_within_bound() || planned.stall <= STALL_MAX || attempt == ATTEMPTS {
            return Ok(planned);
        }
    }
}

fn under_load(
    runtime: &Runtime,
    store: &RedisStore,
    with_ids: bool,
    seed: u64,
    fail_over: impl FnOnce(&Load) -> Result<Promotion, DrillError>,
) -> Result<Planned, DrillError> {
    let mut load = Load::start(runtime, store, Shape { with_ids, ..SHAPE }, seed)?;
    sleep(BEFORE / 4);
    let (before, began) = (load.tally(|_| true), Instant::now());
    sleep(BEFORE);
    let (after, took) = (load.tally(|_| true), began.elapsed());
    load.widest_gap();
    let watch = StallWatch::start();
    fail_over(&load)?;
    sleep(AFTER);
    let (gap, stall) = (load.widest_gap(), watch.end());
    let until = Instant::now() + REACHED_MAX;
    let is_reached = |subject| load.tally(|number| number == subject).refused > 0;
    while !(0..SUBJECTS).all(is_reached) && Instant::now() < until {
        sleep(BEFORE / 4);
    }
    load.stop(runtime)?;
    let mut lost = 0;
    for (number, admitted) in load.admitted().into_iter().enumerate() {
        let charged = runtime.block_on(load.record().charged(store, number))?;
        lost += admitted.saturating_sub(charged);
    }
    let answered = |tally: &Tally| tally.admitted + tally.refused;
    Ok(Planned {
        per_second: ((answered(&after) - answered(&before)) as f64 / took.as_secs_f64()) as u64,
        gap,
        stall,
        lost,
        excess: excess(&load),
        tally: load.tally(|_| true),
    })
}
