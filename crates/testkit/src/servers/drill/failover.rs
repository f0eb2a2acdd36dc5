//! A primary fails and a replica replaces it.

use std::fmt;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::runtime::Runtime;
use tollgate::store::redis::{RedisSettings, RedisStore};
use tollgate_core::Time;

use super::DrillError;
use super::load::{Load, Shape, Tally};
use crate::redis::{Admin, Cluster, SentinelSet, Value, slot_of};

/// Deadline of a check in drills. The machine also runs the servers, the load and perhaps a compiler.
const DEADLINE: Duration = Duration::from_millis(100);
const BEFORE: Duration = Duration::from_millis(400);
/// Long enough that the limits are reached. Only then can there be over-admission.
const AFTER: Duration = Duration::from_millis(600);
const UNHEARD: Duration = Duration::from_millis(50);
const PROMOTION_MAX: Duration = Duration::from_secs(30);
const SHAPE: Shape = Shape { tasks: 16, subjects: 40, most: 80, rules: 1, with_ids: false };

/// How the primary fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It is killed, like in a power failure.
    Kill,
    /// It is killed after its replica was cut off for a while.
    KillUnheard,
    /// It hangs with open connections, and resumes later.
    Stop,
}

/// The figures of one failover.
#[derive(Clone, Copy, Debug)]
pub struct Failover {
    /// From the fault until a replica was promoted.
    pub promoted_after: Duration,
    /// From the promotion until the first check was answered.
    pub recovered_after: Duration,
    /// Admissions that the promoted replica never received.
    pub lost: u64,
    /// Admissions beyond the limits.
    pub excess: u64,
    /// All answers.
    pub tally: Tally,
}

impl fmt::Display for Failover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failover { promoted_after, recovered_after, lost, excess, tally } = self;
        let Tally { admitted, refused, unknown, failed } = tally;
        write!(
            f,
            "promoted after {:>5} ms, recovered {:>4} ms later, lost writes {lost}, excess {excess}; admitted {admitted}, \
             refused {refused}, unknown {unknown}, failed {failed}",
            promoted_after.as_millis(),
            recovered_after.as_millis(),
        )
    }
}

/// Connects a store for drills.
pub(super) fn store(runtime: &Runtime, url: &str) -> Result<RedisStore, DrillError> {
    Ok(runtime.block_on(RedisSettings::url(url)?.deadline(DEADLINE).connect())?)
}

/// Returns the longest time without an answer when no fault is injected, for comparison.
pub fn control(runtime: &Runtime, url: &str, seed: u64) -> Result<Duration, DrillError> {
    let store = store(runtime, url)?;
    // Uses separate subjects, so that other drills do not see the charges.
    let mut load = Load::start(runtime, &store, Shape { most: 1 << 40, ..SHAPE }, seed ^ u64::MAX)?;
    sleep(BEFORE);
    load.widest_gap();
    sleep(BEFORE + AFTER);
    let gap = load.widest_gap();
    load.stop(runtime)?;
    Ok(gap)
}

/// Lets the primary of a set fail several times while one store is under load.
pub fn sentinel_failovers(
    runtime: &Runtime,
    set: &mut SentinelSet,
    fault: Fault,
    times: u64,
    seed: u64,
) -> Result<Vec<Failover>, DrillError> {
    let store = store(runtime, &set.url())?;
    (0..times)
        .map(|round| {
            let failover = sentinel_failover(runtime, &store, set, fault, seed + round)?;
            println!("sentinel {fault:?} {round:>2}: {failover}");
            Ok(failover)
        })
        .collect()
}

fn sentinel_failover(
    runtime: &Runtime,
    store: &RedisStore,
    set: &mut SentinelSet,
    fault: Fault,
    seed: u64,
) -> Result<Failover, DrillError> {
    set.wait_replicas_in_sync()?;
    let replica = set.replica_index()?;
    let mut load = Load::start(runtime, store, SHAPE, seed)?;
    sleep(if fault == Fault::KillUnheard { BEFORE / 4 } else { BEFORE });
    let old = match fault {
        Fault::Kill => set.kill9_primary()?,
        Fault::KillUnheard => {
            // The primary is gone, so there is nothing to wait for.
            set.node(replica).admin()?.command(&[b"REPLICAOF", b"127.0.0.1", b"1"])?;
            sleep(UNHEARD);
            set.kill9_primary()?
        }
        Fault::Stop => set.stop_primary()?,
    };
    let gone = Instant::now();
    // Waits for answers that were in flight. There are no others before a promotion.
    sleep(Duration::from_millis(20));
    let lost = charges_not_replicated(&load, &mut set.node(replica).admin()?, &load.admitted())?;
    let promotion = set.wait_promoted(old, PROMOTION_MAX)?;
    let answered = load.answered_after(promotion.at, PROMOTION_MAX).ok_or("no check was answered again")?;
    sleep(AFTER);
    load.stop(runtime)?;
    match fault {
        Fault::Kill | Fault::KillUnheard => set.restart(old)?,
        Fault::Stop => set.resume(old)?,
    }
    set.wait_settled()?;
    Ok(Failover {
        promoted_after: promotion.at - gone,
        recovered_after: answered - promotion.at,
        lost,
        excess: excess(&load),
        tally: load.tally(|_| true),
    })
}

/// Kills a primary of a cluster. Returns the failover of its slots, and the answers for all other slots meanwhile.
pub fn cluster_failover(
    runtime: &Runtime,
    cluster: &mut Cluster,
    seed: u64,
) -> Result<(Failover, Tally), DrillError> {
    let store = store(runtime, &cluster.url())?;
    let victim = cluster.primaries()[0];
    let replica = cluster.replica_of(victim)?;
    // Enough subjects that every server has some, and limits that are never reached.
    let mut load = Load::start(runtime, &store, Shape { subjects: 120, most: 400, ..SHAPE }, seed)?;
    let owner = |number: usize| cluster.owner(slot_of(load.keys(number)[0].as_bytes()));
    let hit: Vec<bool> =
        (0..120).map(|number| owner(number).map(|owner| owner == victim)).collect::<Result<_, _>>()?;
    sleep(BEFORE);
    cluster.kill9(victim)?;
    let gone = Instant::now();
    sleep(Duration::from_millis(20));
    let mut admitted = load.admitted();
    admitted.iter_mut().zip(&hit).filter(|(_, hit)| !**hit).for_each(|(admitted, _)| *admitted = 0);
    let mut heard = cluster.admin(replica)?;
    // A cluster replica answers for its primary's slots only after READONLY.
    heard.command(&[b"READONLY"])?;
    let lost = charges_not_replicated(&load, &mut heard, &admitted)?;
    let promotion = cluster.wait_promoted(replica, PROMOTION_MAX)?;
    let before = load.tally(|number| hit[number]);
    let until = Instant::now() + PROMOTION_MAX;
    let answered = loop {
        let now = load.tally(|number| hit[number]);
        if now.admitted + now.refused > before.admitted + before.refused {
            break Instant::now();
        }
        if Instant::now() > until {
            return Err("the slots of the killed server were never answered for again".into());
        }
        sleep(Duration::from_millis(1));
    };
    sleep(AFTER);
    load.stop(runtime)?;
    cluster.restart(victim)?;
    cluster.wait_settled()?;
    let failover = Failover {
        promoted_after: promotion.at - gone,
        recovered_after: answered.saturating_duration_since(promotion.at),
        lost,
        excess: excess(&load),
        tally: load.tally(|number| hit[number]),
    };
    let others = load.tally(|number| !hit[number]);
    println!("cluster Kill: {failover}; slots of other servers: {others:?}");
    Ok((failover, others))
}

/// Returns the admissions that a replica never received.
fn charges_not_replicated(load: &Load, replica: &mut Admin, admitted: &[u64]) -> Result<u64, DrillError> {
    let now = Time::from_us(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as u64);
    let mut lost = 0;
    for (number, admitted) in admitted.iter().enumerate().filter(|(_, admitted)| **admitted > 0) {
        let charged = match replica.command(&[b"GET", load.keys(number)[0].as_bytes()])? {
            Value::Bulk(bytes) => load.record().charged_in(&bytes, now)?,
            _ => 0,
        };
        lost += admitted.saturating_sub(charged);
    }
    Ok(lost)
}

pub(super) fn excess(load: &Load) -> u64 {
    load.admitted().into_iter().map(|admitted| admitted.saturating_sub(load.record().most)).sum()
}
