//! The suites that pass on core fail on every planted mutant of it.

use std::collections::BTreeMap;
use std::panic;

use tollgate_testkit::mutants::ALL;

const STEPS: u64 = 400_000;
const SEED: u64 = 1;

#[test]
fn every_planted_mutant_is_caught() {
    // A mutant may also stop with a panic, over and over while its history is made smaller.
    panic::set_hook(Box::new(|_| ()));
    let survivors: Vec<_> = ALL.iter().filter(|mutant| (mutant.run)(STEPS, SEED).is_ok()).collect();
    let _default = panic::take_hook();
    let names: Vec<_> =
        survivors.iter().map(|mutant| format!("{}: {}", mutant.algorithm, mutant.wrong)).collect();
    assert!(names.is_empty(), "survived: {names:#?}");
}

#[test]
fn every_algorithm_has_at_least_five() {
    let mut counts = BTreeMap::new();
    ALL.iter().for_each(|mutant| *counts.entry(mutant.algorithm).or_insert(0) += 1);
    assert_eq!(counts.len(), 8, "{counts:?}");
    assert!(counts.values().all(|&count| count >= 5), "{counts:?}");
    // One machine is three algorithms, another two.
    assert!(counts["bucket"] >= 15 && counts["sliding_window"] >= 10, "{counts:?}");
}
