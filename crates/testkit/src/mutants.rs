//! Mutants of core's algorithms, planted by the build script, which the suites must catch.

use crate::differential::{Difference, Tally, run};
use crate::{make, suite};

/// A copy of an algorithm that is wrong in one line.
pub struct Mutant {
    /// The algorithm's file.
    pub algorithm: &'static str,
    /// What is wrong with it.
    pub wrong: &'static str,
    /// Runs the algorithm's suite on it, for at most so many steps from this seed.
    pub run: fn(u64, u64) -> Result<Tally, Difference>,
}

macro_rules! hunt {
    (fixed_window, $at:ident, $steps:expr, $seed:expr) => {
        run::<suite::FixedWindow, _>(make!(fixed_window, $at), $steps, $seed)
    };
    (sliding_window, $at:ident, $steps:expr, $seed:expr) => {
        run::<suite::SlidingWindow, _>(make!(sliding_window, $at), $steps, $seed)
    };
    (sliding_log, $at:ident, $steps:expr, $seed:expr) => {
        run::<suite::SlidingLog, _>(make!(sliding_log, $at), $steps, $seed)
    };
    (bucket, $at:ident, $steps:expr, $seed:expr) => {
        run::<suite::Bucket, _>(make!(bucket, $at), $steps, $seed)
    };
    (concurrency, $at:ident, $steps:expr, $seed:expr) => {
        run::<suite::Concurrency, _>(make!(concurrency, $at), $steps, $seed)
    };
    (quota, $at:ident, $steps:expr, $seed:expr) => {
        run::<suite::Quota, _>(make!(quota, $at), $steps, $seed)
    };
    (meter, $at:ident, $steps:expr, $seed:expr) => {
        run::<suite::Meter, _>(make!(meter, $at), $steps, $seed)
    };
    (penalty, $at:ident, $steps:expr, $seed:expr) => {
        run::<suite::Penalty, _>(make!(penalty, $at), $steps, $seed)
    };
}

include!(concat!(env!("OUT_DIR"), "/mutants.rs"));
