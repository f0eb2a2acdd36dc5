//! The report of a run, written by the bench and read by `cargo xtask bench`.

mod figures;
mod numbers;

pub use figures::Figure;
pub use numbers::thousands;
use serde::{Deserialize, Serialize};

/// One run of one suite.
#[derive(Serialize, Deserialize, Debug)]
pub struct Report {
    /// The name of the suite.
    pub suite: String,
    /// Number of rounds.
    pub rounds: u32,
    /// Decisions per contender, row and round; the slowest contenders make fewer.
    pub decisions: u64,
    /// Name and version of the Redis server, in the Redis suite.
    pub server: Option<String>,
    /// All contenders.
    pub contenders: Vec<Contender>,
    /// The workloads and their figures.
    pub rows: Vec<Row>,
    /// Memory figures, by number of keys.
    pub memory: Vec<Memory>,
}

/// One contender.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Contender {
    /// Its name in tables.
    pub name: String,
    /// The exact call, and what a reader must know to compare it.
    pub what: String,
}

/// One workload.
#[derive(Serialize, Deserialize, Debug)]
pub struct Row {
    /// The name that targets and pictures refer to.
    pub id: String,
    /// The name in tables.
    pub title: String,
    /// Number of keys.
    pub keys: u64,
    /// One entry per contender.
    pub results: Vec<Measured>,
}

/// The figures of one contender for one row.
#[derive(Serialize, Deserialize, Debug)]
pub struct Measured {
    /// The contender.
    pub contender: String,
    /// CPU time per decision, summed over all threads or of the server; one figure per round.
    pub cpu_ns: Vec<f64>,
    /// Wall-clock time per decision; one figure per round.
    pub wall_ns: Vec<f64>,
    /// Absent if instructions were not counted.
    pub instructions: Option<f64>,
}

/// Memory in use for this number of keys.
#[derive(Serialize, Deserialize, Debug)]
pub struct Memory {
    /// Number of keys.
    pub keys: u64,
    /// One entry per contender.
    pub results: Vec<Held>,
}

/// Memory of one contender.
#[derive(Serialize, Deserialize, Debug)]
pub struct Held {
    /// The contender.
    pub contender: String,
    /// Heap bytes in use per key.
    pub bytes_per_key: f64,
}
