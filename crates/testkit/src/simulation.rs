//! Deterministic simulation of several servers whose store fails.
//!
//! Each simulated server is a real engine over a real guard. They share a model store behind a simulated network: replies
//! are delayed and lost, the store comes and goes, replicas are promoted without the last writes, clocks differ and step,
//! processes crash. Time and random numbers come from the seed, and one thread runs everything, so a seed always gives the
//! same run.
//!
//! Checked in every run:
//!
//! - Every answer of the failure policies equals that of a naive model ([`standby`](self)), so that local limiters neither
//!   forget nor run away (I14).
//! - The store's admissions stay within each limit, apart from writes that a failover lost (I13).
//! - What clients are admitted stays within the limit, also where servers hold and spend parts of it (I12).
//! - Per process start and window, at most one share is admitted locally, however often the store comes and goes (I14).
//! - A remembered refusal is repeated only until its time, for the same or a higher cost.
//! - What is booked after an outage was admitted without the store in the same period, was surely not charged before, and is
//!   booked once. Processes that keep running forget nothing of it (I14).
//! - No check outlives its deadline (I18).
//! - Effective time does not fall when clocks step, because the models do not let it (I16).
//! - After the faults end, no answer is degraded and all servers agree (I21).

mod executor;
mod ledger;
mod network;
mod rules;
mod run;
mod standby;

use std::fmt;
use std::pin::Pin;

use tollgate::engine::Engine;
use tollgate_core::Store;

pub use network::{Link, Seen};

/// The figures of a run, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of runs.
    pub runs: u64,
    /// Number of checks.
    pub checks: u64,
    /// Checks that the store answered.
    pub by_store: u64,
    /// Checks that parts of limits paid, which a server had booked before.
    pub by_slice: u64,
    /// Checks that were refused because the store had just refused the same.
    pub by_memory: u64,
    /// Checks that a failure policy allowed.
    pub allowed_by_policy: u64,
    /// Checks that a failure policy refused.
    pub refused_by_policy: u64,
    /// Units that were admitted without the store and booked when it was back.
    pub posted_units: u64,
    /// The faults that happened.
    pub seen: Seen,
}

/// A run that broke a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// What was broken.
    pub problem: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, problem } = self;
        write!(f, "seed {seed}: {problem}\nreplay with: cargo xtask simulate-faults --seed {seed} --seeds 1")
    }
}

/// What a server does apart from checks.
pub type Maintaining = Pin<Box<dyn Future<Output = ()>>>;

/// Runs one seed. `guard` makes the guarded store of a server, for a fleet of that many servers. `maintain` does what is due
/// apart from checks.
pub fn simulate<S: Store + 'static>(
    seed: u64,
    guard: impl Fn(Link, u32) -> S,
    maintain: impl Fn(Engine<S>) -> Maintaining,
) -> Result<Report, Failure> {
    run::run(seed, &guard, &maintain).map_err(|problem| Failure { seed, problem })
}

/// Runs `seeds` seeds from `first` on. Returns the sums, or the first failure.
pub fn simulate_many<S: Store + 'static>(
    first: u64,
    seeds: u64,
    guard: impl Fn(Link, u32) -> S,
    maintain: impl Fn(Engine<S>) -> Maintaining,
) -> Result<Report, Failure> {
    let mut sum = Report::default();
    for seed in first..first.saturating_add(seeds) {
        sum.add(&simulate(seed, &guard, &maintain)?);
    }
    Ok(sum)
}

impl Report {
    fn add(&mut self, other: &Report) {
        let Report {
            runs,
            checks,
            by_store,
            by_slice,
            by_memory,
            allowed_by_policy,
            refused_by_policy,
            posted_units,
            seen,
        } = other;
        self.runs += runs;
        self.checks += checks;
        self.by_store += by_store;
        self.by_slice += by_slice;
        self.by_memory += by_memory;
        self.allowed_by_policy += allowed_by_policy;
        self.refused_by_policy += refused_by_policy;
        self.posted_units += posted_units;
        self.seen.add(seen);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report {
            runs,
            checks,
            by_store,
            by_slice,
            by_memory,
            allowed_by_policy,
            refused_by_policy,
            posted_units,
            seen,
        } = self;
        writeln!(
            f,
            "{runs} runs, {checks} checks: {by_store} answered by the store, {by_slice} paid from slices, {by_memory} refused from memory, {allowed_by_policy} allowed and \
             {refused_by_policy} refused by policy, {posted_units} units booked after an outage"
        )?;
        let rows = seen.rows().map(|(name, count)| format!("{count} {name}"));
        write!(f, "faults: {}", rows.join(", "))
    }
}
