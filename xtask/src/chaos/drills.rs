//! The drills: faults on one store of the library, or on one server, with bounds on time and repeated rounds.

mod control;
mod ledger;
mod server;

use super::Options;
use std::sync::Arc;
use std::time::Duration;
use tollgate::MemoryStore;
use tollgate::store::redis::RedisSettings;
use tollgate_testkit::drill::{
    DrillError, Failover, Fault, Held, cluster_failover, control, crashing_holders, fill_memory, median,
    move_slots, planned_cluster_failovers, planned_sentinel_failovers, retried_returns, runtime,
    sentinel_failovers, stop_for,
};
use tollgate_testkit::redis::{Cluster, Flavour, SentinelSet, Server};

/// The longest recovery time of the store after the promotion; the promotion itself is Redis's.
const RECOVERY_MAX: Duration = Duration::from_millis(250);
const DEADLINE: Duration = Duration::from_millis(25);
/// Tolerance for late timers on a machine that also runs the servers and the load.
const TIMER: Duration = Duration::from_millis(25);
const GROWTH_MAX: u64 = 16 << 20;
/// A thousand holders send their requests at once.
const HOLDER_DEADLINE: Duration = Duration::from_secs(2);

/// A drill: its name, what it does, and how it runs.
pub(super) struct Drill {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) run: fn(&Options) -> Result<Problems, DrillError>,
}

/// All drills, in the order of the report.
pub(super) const DRILLS: &[Drill] = &[
    Drill {
        name: "sentinel",
        about: "The primary behind sentinels is killed, killed while its replica does not listen, and frozen.",
        run: sentinel,
    },
    Drill { name: "cluster", about: "A primary of a cluster is killed.", run: cluster },
    Drill {
        name: "planned",
        about: "An operator orders failovers of a healthy primary, behind sentinels and in a cluster.",
        run: planned,
    },
    Drill { name: "slots", about: "Hash slots move while their keys are used.", run: slots },
    Drill { name: "stop", about: "A server hangs.", run: stop },
    Drill { name: "full", about: "A server has no memory, and refuses writes or evicts keys.", run: full },
    Drill {
        name: "holders",
        about: "Holders of leases and reservations crash, on every store.",
        run: holders,
    },
    Drill {
        name: "returns",
        about: "Follow-ups are repeated because one reply in ten is lost.",
        run: returns,
    },
    Drill {
        name: "blast",
        about: "One caller floods a server whose line to Redis is slow.",
        run: server::blasts,
    },
    Drill {
        name: "pipeline",
        about: "A long pipeline runs on the thread of another connection.",
        run: server::pipelines,
    },
    Drill {
        name: "changes",
        about: "200 live changes on three servers, a database that crashes, and 10,000 calls against a model.",
        run: control::changes,
    },
    Drill {
        name: "upgrade",
        about: "Two builds side by side on one Redis and one PostgreSQL; --previous names the earlier one.",
        run: control::upgrades,
    },
    Drill {
        name: "doctor",
        about: "`tollgate doctor` scans a million keys beside checks.",
        run: server::key_scans,
    },
    Drill {
        name: "ledger",
        about: "Servers and databases of the ledger are killed and stopped; its disk is full; its database is set back.",
        run: ledger::drill,
    },
];

/// Broken bounds.
pub(super) type Problems = Vec<String>;

fn sentinel(options: &Options) -> Result<Problems, DrillError> {
    let runtime = runtime()?;
    let mut set = SentinelSet::start(Flavour::Redis70)?;
    let gap = control(&runtime, &set.url(), options.seed)?;
    println!("sentinel, no fault: longest time without an answer {} ms", gap.as_millis());
    let mut problems = Vec::new();
    for (number, fault) in (0..).zip([Fault::Kill, Fault::KillUnheard, Fault::Stop]) {
        let seed = options.seed + 1_000 * number;
        let failovers = sentinel_failovers(&runtime, &mut set, fault, options.times, seed)?;
        let recovery = median(failovers.iter().map(|failover| failover.recovered_after).collect());
        let sum = |of: fn(&Failover) -> u64| failovers.iter().map(of).sum::<u64>();
        println!(
            "sentinel {fault:?}, {} times: median recovery {} ms after the promotion, {} writes lost, {} admitted in excess",
            failovers.len(),
            recovery.as_millis(),
            sum(|failover| failover.lost),
            sum(|failover| failover.excess),
        );
        if recovery > RECOVERY_MAX {
            problems.push(format!("sentinel {fault:?}: recovery takes {} ms", recovery.as_millis()));
        }
        problems.extend(failovers.iter().filter_map(|failover| too_much(&format!("{fault:?}"), failover)));
    }
    Ok(problems)
}

fn too_much(what: &str, failover: &Failover) -> Option<String> {
    let Failover { lost, excess, .. } = failover;
    (excess > lost).then(|| format!("{what}: {excess} admitted in excess of {lost} lost writes"))
}

fn cluster(options: &Options) -> Result<Problems, DrillError> {
    let runtime = runtime()?;
    let mut problems = Vec::new();
    let mut recoveries = Vec::new();
    for round in 0..options.times.div_ceil(3) {
        // A new cluster each time: the first primary is the one that fails.
        let mut cluster = Cluster::start(Flavour::Redis70)?;
        let (failover, others) = cluster_failover(&runtime, &mut cluster, options.seed + round)?;
        recoveries.push(failover.recovered_after);
        problems.extend(too_much("cluster", &failover));
        if others.unknown + others.failed > 0 {
            problems.push(format!("cluster: slots of other servers saw errors: {others:?}"));
        }
    }
    println!("cluster: median recovery {} ms after the promotion", median(recoveries).as_millis());
    Ok(problems)
}

fn planned(options: &Options) -> Result<Problems, DrillError> {
    let runtime = runtime()?;
    let set = SentinelSet::start(Flavour::Redis70)?;
    let behind_sentinels = planned_sentinel_failovers(&runtime, &set, options.times, options.seed)?;
    drop(set);
    let cluster = Cluster::start(Flavour::Redis70)?;
    let in_cluster = planned_cluster_failovers(&runtime, &cluster, options.times, options.seed)?;
    let mut problems = Vec::new();
    for (name, rounds) in [("sentinel", behind_sentinels), ("cluster", in_cluster)] {
        let lost = rounds.iter().map(|round| round.lost).max().unwrap_or(0);
        let excess = rounds.iter().map(|round| round.excess).max().unwrap_or(0);
        println!("{name} planned, {} times: at most {lost} writes lost, {excess} in excess", rounds.len());
        let broken = rounds.iter().filter(|round| !round.is_within_bound() || round.excess > round.lost);
        problems.extend(broken.map(|round| format!("{name} planned: {round}")));
    }
    Ok(problems)
}

fn slots(options: &Options) -> Result<Problems, DrillError> {
    let runtime = runtime()?;
    let cluster = Cluster::start(Flavour::Redis70)?;
    let mut problems = Vec::new();
    for rules in [1, 3] {
        let found = move_slots(&runtime, &cluster, options.moves, rules, options.seed + rules as u64)?;
        if found.lost > 0 || found.extra > found.tally.unknown {
            problems.push(format!("slots: {found}"));
        }
    }
    Ok(problems)
}

fn stop(options: &Options) -> Result<Problems, DrillError> {
    let runtime = runtime()?;
    let server = Server::start(Flavour::Redis70)?;
    let time = Duration::from_secs(options.seconds);
    let found = stop_for(&runtime, &server, DEADLINE, time, options.seed)?;
    let fine = found.grown_bytes <= GROWTH_MAX
        && found.slowest <= DEADLINE + TIMER
        && (found.opened, found.closed) == (1, 1);
    Ok(if fine { Vec::new() } else { vec![format!("stop: {found}")] })
}

fn full(options: &Options) -> Result<Problems, DrillError> {
    let runtime = runtime()?;
    let mut problems = Vec::new();
    let refusing = fill_memory(&runtime, "noeviction", options.seed)?;
    if refusing.excess > 0 || refusing.fresh.failed == 0 || refusing.after.admitted == 0 {
        problems.push(format!("full, noeviction: {refusing}"));
    }
    let evicting = fill_memory(&runtime, "allkeys-random", options.seed)?;
    // Evicted subjects start again. The store must report it.
    if evicting.evicted == 0 {
        problems.push(format!("full, allkeys-random: the evictions are not reported: {evicting}"));
    }
    Ok(problems)
}

fn holders(options: &Options) -> Result<Problems, DrillError> {
    let runtime = runtime()?;
    let mut problems = Vec::new();
    let server = Server::start(Flavour::Redis70)?;
    let set = SentinelSet::start(Flavour::Redis70)?;
    let cluster = Cluster::start(Flavour::Redis70)?;
    for held in [Held::Leases, Held::Reservations] {
        let memory = Arc::new(MemoryStore::new());
        let mut found =
            vec![("memory", crashing_holders(&runtime, &memory, held, options.holders, options.seed)?)];
        for (name, url) in [("one server", server.url()), ("sentinel", set.url()), ("cluster", cluster.url())]
        {
            let store = runtime.block_on(RedisSettings::url(&url)?.deadline(HOLDER_DEADLINE).connect())?;
            found.push((
                name,
                crashing_holders(&runtime, &Arc::new(store), held, options.holders, options.seed)?,
            ));
        }
        let broken = found.iter().filter(|(_, found)| !found.is_fine());
        problems.extend(broken.map(|(name, found)| format!("holders, {name}, {held:?}: {found}")));
    }
    Ok(problems)
}

fn returns(options: &Options) -> Result<Problems, DrillError> {
    let found = retried_returns(&runtime()?, options.returns, 0.1, options.seed)?;
    let is_exact = found.wrong_subjects == 0 && found.returned >= options.returns && found.lost > 0;
    Ok(if is_exact { Vec::new() } else { vec![format!("returns: {found}")] })
}
