//! Somebody who takes part: makes decisions by key.

use crate::report;
use crate::script;

/// Decides about one key. Everybody's limit is [`PERIOD_S`] and [`BURST`], so that everything is admitted and no state
/// is over before the run is.
pub(crate) trait Decide: Send + Sync {
    /// Whether one request of this key is admitted, by the contender's own clock.
    #[expect(clippy::ptr_arg, reason = "some peers want a `String`, and none must pay for making one")]
    fn decide(&self, key: &String) -> bool;
}

/// One unit comes back in so many seconds.
pub(crate) const PERIOD_S: u64 = 200;
/// So many may come at once. With the period, just below what the narrowest peer can count.
pub(crate) const BURST: u32 = 20_000_000;

/// Somebody who takes part, before it is built.
#[derive(Clone, Copy)]
pub(crate) struct Entrant {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// Makes one, for about so many keys.
    pub(crate) build: fn(u64) -> Box<dyn Contender>,
    /// It does not take part with more keys.
    pub(crate) keys_max: u64,
    /// It is so slow that it makes only every so manieth decision.
    pub(crate) every: u64,
}

impl Entrant {
    /// Somebody who takes part everywhere.
    pub(crate) const fn new(
        name: &'static str,
        what: &'static str,
        build: fn(u64) -> Box<dyn Contender>,
    ) -> Self {
        Self { name, what, build, keys_max: u64::MAX, every: 1 }
    }

    /// How the report names it.
    pub(crate) fn described(&self) -> report::Contender {
        report::Contender { name: self.name.to_owned(), what: self.what.to_owned() }
    }

    /// Built, and asked once about every key.
    pub(crate) fn filled(&self, keys: u64) -> Box<dyn Contender> {
        let contender = (self.build)(keys);
        script::every_key(keys).for_each(|part| contender.fill(&part));
        contender
    }
}

/// A contender whose type is forgotten once per run, not once per decision.
pub(crate) trait Contender: Send + Sync {
    /// Asks about every key once.
    fn fill(&self, keys: &[String]);
    /// Makes so many decisions, along the script and round again, and gives how many were admitted.
    fn run(&self, script: &[String], decisions: u64) -> u64;
}

impl<D: Decide> Contender for D {
    // Not through the function below, whose name callgrind listens to.
    #[inline(never)]
    fn fill(&self, keys: &[String]) {
        keys.iter().for_each(|key| assert!(self.decide(key), "the first request of a key is admitted"));
    }

    fn run(&self, script: &[String], decisions: u64) -> u64 {
        measured_decisions(self, script, decisions)
    }
}

/// What callgrind counts, by the name of this function.
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
