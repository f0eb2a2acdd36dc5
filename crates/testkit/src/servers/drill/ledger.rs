//! The ledger under `kill -9` and SIGSTOP: servers, databases and primaries die at random instants while clients charge.
//!
//! Every client repeats a check under its request id until it is answered. So its acknowledged units are known exactly, and the
//! ledger must have the same: no entry missing, none twice.

mod caller;
mod fault;
mod judge;
mod scene;

use std::fmt;
use std::time::{Duration, Instant};

pub use fault::LedgerFault;
pub use scene::LedgerPlace;

use super::DrillError;
use crate::random::Random;
use caller::Callers;
use judge::judge;
use scene::Scene;

/// How long a drill waits between two faults, at most.
const BETWEEN_MS: u64 = 250;

/// What a drill does.
#[derive(Clone, Debug)]
pub struct LedgerDrill {
    /// The program `tollgate`.
    pub binary: String,
    /// Where state and ledger are.
    pub place: LedgerPlace,
    /// Number of times that something is killed with SIGKILL.
    pub kills: u64,
    /// Other faults, in this order, after the kills.
    pub faults: Vec<LedgerFault>,
    /// The seed of all choices.
    pub seed: u64,
}

/// What a drill has found.
#[derive(Clone, Debug, Default)]
pub struct LedgerFigures {
    /// Servers that were killed.
    pub servers_killed: u64,
    /// Databases that were killed.
    pub databases_killed: u64,
    /// Primaries of the store that were killed.
    pub primaries_killed: u64,
    /// Processes that were stopped for a while by SIGSTOP.
    pub stopped: u64,
    /// Checks that were answered with an admission.
    pub acknowledged: u64,
    /// Their units.
    pub units: u64,
    /// Checks that were sent again, because their answer did not come.
    pub repeated: u64,
    /// Answers of a failure policy, which refuses here.
    pub by_policy: u64,
    /// Entries in the ledger.
    pub entries: u64,
    /// Blocks of all chains.
    pub blocks: u64,
    /// Admissions beyond the limit of the account whose limit is reached.
    pub excess: u64,
    /// What is wrong.
    pub problems: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

impl fmt::Display for LedgerFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kill -9 ({} servers, {} databases, {} primaries), {} SIGSTOP; {} checks of {} units acknowledged, {} sent again, \
             {} refused by policy; {} entries in {} blocks; excess {}; {} s",
            self.kills(),
            self.servers_killed,
            self.databases_killed,
            self.primaries_killed,
            self.stopped,
            self.acknowledged,
            self.units,
            self.repeated,
            self.by_policy,
            self.entries,
            self.blocks,
            self.excess,
            self.took.as_secs(),
        )
    }
}

impl LedgerFigures {
    /// Returns how often something was killed.
    pub fn kills(&self) -> u64 {
        self.servers_killed + self.databases_killed + self.primaries_killed
    }
}

/// Runs a drill. An error is a drill that could not run; what it finds wrong is in the figures.
pub fn ledger(drill: &LedgerDrill) -> Result<LedgerFigures, DrillError> {
    let began = Instant::now();
    let mut random = Random::new(drill.seed);
    let mut scene = Scene::start(drill)?;
    let longest = drill.faults.iter().map(|fault| fault.length()).max().unwrap_or_default();
    let callers = Callers::start(&scene.ports(), longest);
    let mut figures = LedgerFigures::default();
    // A load that never began would prove nothing.
    callers.wait_for_progress()?;
    while figures.kills() < drill.kills {
        scene.hurt(&mut random, &mut figures)?;
        std::thread::sleep(Duration::from_millis(random.bits() % BETWEEN_MS));
    }
    scene.heal()?;
    callers.wait_for_progress()?;
    for fault in &drill.faults {
        fault.inject(&mut scene, &callers, &mut figures)?;
        scene.heal()?;
        callers.wait_for_progress()?;
    }
    let answers = callers.stop()?;
    scene.settle()?;
    judge(&scene, &answers, &mut figures)?;
    figures.took = began.elapsed();
    Ok(figures)
}
