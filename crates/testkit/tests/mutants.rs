//! The suites that pass on core fail on every planted mutant of core.

use std::collections::BTreeMap;
use std::panic;

use tollgate_testkit::make;
use tollgate_testkit::oracle::differential::{self, Difference, Tally};
use tollgate_testkit::oracle::suite;

/// A copy of an algorithm that is wrong in one line.
struct Mutant {
    /// The algorithm's file.
    algorithm: &'static str,
    /// What is wrong with it.
    wrong: &'static str,
    /// Runs the algorithm's suite on it, with at most this many steps and this seed.
    run: fn(u64, u64) -> Result<Tally, Difference>,
}

macro_rules! find_difference {
    (fixed_window, $at:ident, $steps:expr, $seed:expr) => {
        differential::find_difference::<suite::FixedWindow, _>(make!(fixed_window, $at), $steps, $seed)
    };
    (sliding_window, $at:ident, $steps:expr, $seed:expr) => {
        differential::find_difference::<suite::SlidingWindow, _>(make!(sliding_window, $at), $steps, $seed)
    };
    (sliding_log, $at:ident, $steps:expr, $seed:expr) => {
        differential::find_difference::<suite::SlidingLog, _>(make!(sliding_log, $at), $steps, $seed)
    };
    (bucket, $at:ident, $steps:expr, $seed:expr) => {
        differential::find_difference::<suite::Bucket, _>(make!(bucket, $at), $steps, $seed)
    };
    (concurrency, $at:ident, $steps:expr, $seed:expr) => {
        differential::find_difference::<suite::Concurrency, _>(make!(concurrency, $at), $steps, $seed)
    };
    (quota, $at:ident, $steps:expr, $seed:expr) => {
        differential::find_difference::<suite::Quota, _>(make!(quota, $at), $steps, $seed)
    };
    (bucket_ring, $at:ident, $steps:expr, $seed:expr) => {
        differential::find_difference::<suite::BucketRing, _>(make!(bucket_ring, $at), $steps, $seed)
    };
    (hold_sums, $at:ident, $steps:expr, $seed:expr) => {
        differential::find_difference::<suite::Reservations, _>(make!(quota, $at), $steps, $seed)
            .and_then(|_| differential::find_difference::<suite::Quota, _>(make!(quota, $at), $steps, $seed))
    };
    (meter, $at:ident, $steps:expr, $seed:expr) => {
        differential::find_difference::<suite::Meter, _>(make!(meter, $at), $steps, $seed)
    };
    (penalty, $at:ident, $steps:expr, $seed:expr) => {
        differential::find_difference::<suite::Penalty, _>(make!(penalty, $at), $steps, $seed)
    };
}

include!(concat!(env!("OUT_DIR"), "/mutants.rs"));

const STEPS: u64 = 400_000;
const SEED: u64 = 1;

#[test]
fn every_planted_mutant_is_caught() {
    // A mutant may also panic, and the output of all panics would hide the result.
    panic::set_hook(Box::new(|_| ()));
    let survivors: Vec<_> = ALL.iter().filter(|mutant| (mutant.run)(STEPS, SEED).is_ok()).collect();
    let _default = panic::take_hook();
    let names: Vec<_> =
        survivors.iter().map(|mutant| format!("{}: {}", mutant.algorithm, mutant.wrong)).collect();
    assert!(names.is_empty(), "survived: {names:#?}");
}

#[test]
fn every_algorithm_has_at_least_five_mutants() {
    let mut counts = BTreeMap::new();
    ALL.iter().for_each(|mutant| *counts.entry(mutant.algorithm).or_insert(0) += 1);
    // Eight algorithms, the ring of a sliding window, and the sums of leases and reservations.
    assert_eq!(counts.len(), 10, "{counts:?}");
    assert!(counts.values().all(|&count| count >= 5), "{counts:?}");
    // The bucket has three algorithms, the sliding window has two.
    assert!(counts["bucket"] >= 15 && counts["sliding_window"] >= 10, "{counts:?}");
}
