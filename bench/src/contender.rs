//! A contender of the library suite: makes decisions by key.

use crate::script;

/// Decides about one key. Every contender has the limit [`PERIOD_S`] and [`BURST`], so that everything is admitted and no
/// state expires before the run ends.
pub(crate) trait Decide: Send + Sync {
    /// Returns whether one request of this key is admitted, by the contender's own clock.
    #[expect(
        clippy::ptr_arg,
        reason = "some peers take a `String`, and making one must not be part of the measurement"
    )]
    fn decide(&self, key: &String) -> bool;
}

/// Seconds until one unit is refilled.
pub(crate) const PERIOD_S: u64 = 200;
/// The burst. With the period, just below what the most limited peer can represent.
pub(crate) const BURST: u32 = 20_000_000;

/// A contender before it is built.
#[derive(Clone, Copy)]
pub(crate) struct Entrant {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// Builds the contender, for about this number of keys.
    pub(crate) build: fn(u64) -> Box<dyn Contender>,
    /// The most keys that it can be measured with.
    pub(crate) keys_max: u64,
    /// Slow contenders make only one of this number of decisions.
    pub(crate) every: u64,
}

impl Entrant {
    /// A contender of every row.
    pub(crate) const fn new(
        name: &'static str,
        what: &'static str,
        build: fn(u64) -> Box<dyn Contender>,
    ) -> Self {
        Self { name, what, build, keys_max: u64::MAX, every: 1 }
    }

    /// The contender as the report describes it.
    pub(crate) fn described(&self) -> tollgate_bench_report::Contender {
        tollgate_bench_report::Contender { name: self.name.to_owned(), what: self.what.to_owned() }
    }

    /// Builds it and asks it once about every key.
    pub(crate) fn filled(&self, keys: u64) -> Box<dyn Contender> {
        let contender = (self.build)(keys);
        script::every_key(keys).for_each(|part| contender.fill(&part));
        contender
    }
}

/// A contender behind one dynamic call per run, not one per decision.
pub(crate) trait Contender: Send + Sync {
    /// Asks about every key once.
    fn fill(&self, keys: &[String]);
    /// Makes this number of decisions, repeating the script as needed; returns how many were admitted.
    fn run(&self, script: &[String], decisions: u64) -> u64;
}

impl<D: Decide> Contender for D {
    // Not through the function below: callgrind counts everything inside it, by its name.
    #[inline(never)]
    fn fill(&self, keys: &[String]) {
        keys.iter().for_each(|key| assert!(self.decide(key), "the first request of a key is admitted"));
    }

    fn run(&self, script: &[String], decisions: u64) -> u64 {
        measured_decisions(self, script, decisions)
    }
}

/// Callgrind counts the instructions inside this function, by its name.
#[inline(never)]
fn measured_decisions<D: Decide>(contender: &D, script: &[String], decisions: u64) -> u64 {
    let mut admitted = 0;
    let mut left = decisions as usize;
    while left > 0 {
        let part = &script[..script.len().min(left)];
        for key in part {
            admitted += u64::from(contender.decide(key));
        }
        left -= part.len();
    }
    admitted
}
