//! Somebody who takes part: how its calls are written and its replies are read.

use anyhow::Result;

use super::connection::Connection;
use super::script::Check;
use crate::report;

/// Everybody admits so many per hour, which is more than is ever asked.
pub(super) const PER_HOUR: u64 = 1_000_000;
/// So many microseconds bring one back.
pub(super) const INTERVAL_US: u64 = 3_600;

/// A contender whose script the server knows.
pub(super) trait Contender {
    /// The call that makes these checks, as it goes over the wire.
    fn call(&self, checks: &[Check]) -> Result<Vec<u8>>;
    /// How many of these checks came out as they should, by the reply to their call.
    fn admitted(&self, checks: &[Check], reply: &[u8]) -> Result<usize>;
}

/// Loads a contender's script, for these keys.
pub(super) type Build = fn(&mut Connection, &[String]) -> Result<Box<dyn Contender>>;

/// How its checks get to the server.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// Calls that were written before, over one connection, as many at once as go into a pipeline.
    Script(Build),
    /// A store that is asked by so many tasks at once, over so many connections. What it sends together is its own affair.
    Store { lanes: usize, tasks: usize },
}

/// Somebody who takes part, before its script is loaded.
#[derive(Clone, Copy)]
pub(super) struct Entrant {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) way: Way,
    /// So many checks travel in one call; None for who knows no more than one.
    pub(super) per_call: Option<usize>,
    /// Whether every second pipeline gives back what the one before took.
    pub(super) gives_back: bool,
}

impl Entrant {
    /// Somebody who takes and gives nothing back, one check per call.
    pub(super) const fn new(name: &'static str, what: &'static str, build: Build) -> Entrant {
        Entrant { name, what, way: Way::Script(build), per_call: None, gives_back: false }
    }

    /// A store with so many connections that is asked by so many tasks.
    pub(super) const fn store(name: &'static str, what: &'static str, lanes: usize, tasks: usize) -> Entrant {
        Entrant { name, what, way: Way::Store { lanes, tasks }, per_call: None, gives_back: false }
    }

    /// The same with so many checks per call.
    pub(super) const fn at(self, per_call: usize) -> Entrant {
        Entrant { per_call: Some(per_call), ..self }
    }

    /// How the report names its figures.
    pub(super) fn figures_name(&self) -> String {
        match self.per_call {
            Some(per_call) => format!("{}, {per_call} per call", self.name),
            None => self.name.to_owned(),
        }
    }

    /// How the report names it.
    pub(super) fn described(&self) -> report::Contender {
        report::Contender { name: self.name.to_owned(), what: self.what.to_owned() }
    }
}
