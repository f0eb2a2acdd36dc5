//! A server hangs for a while: connections stay open and nothing is answered.

use std::fmt;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tollgate::store::redis::RedisSettings;

use super::DrillError;
use super::load::{Load, Shape, Tally};
use crate::redis::Server;

/// The figures of the drill.
#[derive(Clone, Copy, Debug)]
pub struct Stopped {
    /// Largest growth of this process's memory.
    pub grown_bytes: u64,
    /// Longest time that any check took.
    pub slowest: Duration,
    /// Longest time that any check took before the server was stopped.
    pub slowest_before: Duration,
    /// Largest number of checks in flight.
    pub in_flight: usize,
    /// How often the breaker opened.
    pub opened: u64,
    /// How often the breaker closed.
    pub closed: u64,
    /// Time from the server's resumption until the first answer.
    pub recovered_after: Duration,
    /// All answers.
    pub tally: Tally,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stopped {
            grown_bytes,
            slowest,
            slowest_before,
            in_flight,
            opened,
            closed,
            recovered_after,
            tally,
        } = self;
        write!(
            f,
            "grown by {} KiB, slowest check {} ms ({} ms before), {in_flight} in flight at most, breaker opened {opened} and \
             closed {closed} times, recovered after {} ms; {tally:?}",
            grown_bytes / 1024,
            slowest.as_millis(),
            slowest_before.as_millis(),
            recovered_after.as_millis(),
        )
    }
}

/// Stops a server for a while, under load.
pub fn stop_for(
    runtime: &Runtime,
    server: &Server,
    deadline: Duration,
    time: Duration,
    seed: u64,
) -> Result<Stopped, DrillError> {
    let store = runtime.block_on(RedisSettings::url(&server.url())?.deadline(deadline).connect())?;
    let shape = Shape { tasks: 256, subjects: 1_000, most: 1 << 40, rules: 1, with_ids: false };
    let mut load = Load::start(runtime, &store, shape, seed)?;
    sleep(Duration::from_millis(500));
    let (memory, slowest_before) = (memory()?, load.slowest());
    server.stop()?;
    let until = Instant::now() + time;
    let (mut most, mut in_flight) = (memory, 0);
    while Instant::now() < until {
        sleep(Duration::from_millis(10));
        most = most.max(self::memory()?);
        in_flight = in_flight.max(store.in_flight());
    }
    server.resume()?;
    let resumed = Instant::now();
    let answered =
        load.answered_after(resumed, Duration::from_secs(20)).ok_or("no check was answered again")?;
    sleep(Duration::from_millis(500));
    most = most.max(self::memory()?);
    load.stop(runtime)?;
    let servers = store.servers();
    let server = servers.first().ok_or("the store has no server")?;
    let stopped = Stopped {
        grown_bytes: most - memory,
        slowest: load.slowest(),
        slowest_before,
        in_flight,
        opened: server.opened,
        closed: server.closed,
        recovered_after: answered - resumed,
        tally: load.tally(|_| true),
    };
    println!("stopped for {} s: {stopped}", time.as_secs_f64());
    Ok(stopped)
}

/// Returns the resident memory of this process in bytes.
fn memory() -> Result<u64, DrillError> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}
