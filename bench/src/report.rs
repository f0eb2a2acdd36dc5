//! What a run found, as it travels from the program that measures to the one that writes pages.

use serde::{Deserialize, Serialize};

/// One run of one suite.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Report {
    pub(crate) suite: String,
    pub(crate) rounds: u32,
    /// Decisions that one contender makes for one row in one round, but for the slowest.
    pub(crate) decisions: u64,
    /// Name and version of the server that decided, if one did.
    pub(crate) server: Option<String>,
    /// Everyone who took part.
    pub(crate) contenders: Vec<Contender>,
    pub(crate) rows: Vec<Row>,
    pub(crate) memory: Vec<Memory>,
}

/// Somebody who took part.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Contender {
    pub(crate) name: String,
    /// What exactly was called, and what the reader must know to compare.
    pub(crate) what: String,
}

/// One workload.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) keys: u64,
    pub(crate) results: Vec<Measured>,
}

/// What one contender needed for one row.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Measured {
    pub(crate) contender: String,
    /// CPU time per decision, of all threads together or of the server, one figure per round.
    pub(crate) cpu_ns: Vec<f64>,
    /// Time on the wall per decision, one figure per round.
    pub(crate) wall_ns: Vec<f64>,
    /// Missing where nobody counted.
    pub(crate) instructions: Option<f64>,
}

/// How much is held for so many keys.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Memory {
    pub(crate) keys: u64,
    pub(crate) results: Vec<Held>,
}

/// How much one contender holds.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Held {
    pub(crate) contender: String,
    pub(crate) bytes_per_key: f64,
}
