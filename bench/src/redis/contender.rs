//! A contender of the Redis suite: how it writes calls and reads replies.

use anyhow::Result;

use super::connection::Connection;
use super::script::Check;

/// Every contender admits this number per hour, which is more than a run asks for.
pub(super) const PER_HOUR: u64 = 1_000_000;
/// Microseconds until one unit is refilled.
pub(super) const INTERVAL_US: u64 = 3_600;

/// A contender whose script is loaded.
pub(super) trait Contender {
    /// Encodes the call that makes these checks.
    fn call(&self, checks: &[Check]) -> Result<Vec<u8>>;
    /// Returns how many of these checks were answered as expected.
    fn admitted(&self, checks: &[Check], reply: &[u8]) -> Result<usize>;
}

/// Loads the contender's script for these keys.
pub(super) type Build = fn(&mut Connection, &[String]) -> Result<Box<dyn Contender>>;

/// How its checks reach the server.
#[derive(Clone, Copy)]
pub(super) enum SendMode {
    /// Calls that were encoded before the run, over one connection, one pipeline at a time.
    Script(Build),
    /// A store that this number of tasks call at once, over this number of connections. The store decides what it batches.
    Store { connection_count: usize, tasks: usize },
}

/// A contender before its script is loaded.
#[derive(Clone, Copy)]
pub(super) struct Entrant {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) mode: SendMode,
    /// Checks per call; `None` if it supports only one.
    pub(super) per_call: Option<usize>,
    /// Whether every second pipeline releases what the previous one took.
    pub(super) gives_back: bool,
}

impl Entrant {
    /// A contender that releases nothing, with one check per call.
    pub(super) const fn new(name: &'static str, what: &'static str, build: Build) -> Entrant {
        Entrant { name, what, mode: SendMode::Script(build), per_call: None, gives_back: false }
    }

    /// A store with this number of connections, called by this number of tasks.
    pub(super) const fn store(
        name: &'static str,
        what: &'static str,
        connection_count: usize,
        tasks: usize,
    ) -> Entrant {
        let mode = SendMode::Store { connection_count, tasks };
        Entrant { name, what, mode, per_call: None, gives_back: false }
    }

    /// The same with this number of checks per call.
    pub(super) const fn at(self, per_call: usize) -> Entrant {
        Entrant { per_call: Some(per_call), ..self }
    }

    /// The name of its figures in the report.
    pub(super) fn figures_name(&self) -> String {
        match self.per_call {
            Some(per_call) => format!("{}, {per_call} per call", self.name),
            None => self.name.to_owned(),
        }
    }

    /// The contender as the report describes it.
    pub(super) fn described(&self) -> tollgate_bench_report::Contender {
        tollgate_bench_report::Contender { name: self.name.to_owned(), what: self.what.to_owned() }
    }
}
