//! `cargo xtask simulate-faults`: the guard over a model store that fails, on virtual time.

use anyhow::{Result, anyhow};
use clap::Args;
use std::sync::Arc;
use std::time::Instant;
use tollgate::guard::{FleetSize, Guarded, MonotonicClock};
use tollgate_testkit::simulation::{Link, simulate_many};

#[derive(Args)]
pub(crate) struct Options {
    /// How many runs, each with the next seed.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The seed of the first run.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the seeds, and fails with the command that replays the first failure.
pub(crate) fn run(options: &Options) -> Result<()> {
    let start = Instant::now();
    let guard = |link: Link, servers| {
        let clock = MonotonicClock::simulated(link.instants());
        let fleet = Arc::new(FleetSize::stated(servers));
        Guarded::new(link, fleet).with_refusal_memory(true).with_clock(clock)
    };
    let report = simulate_many(options.seed, options.seeds, guard, |engine| {
        Box::pin(async move { engine.store().maintain().await })
    })
    .map_err(|failure| anyhow!("{failure}"))?;
    println!("{report}");
    println!("all promises kept, in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}
