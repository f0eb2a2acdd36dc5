//! The fault simulation passes on the guard and fails on every planted mutant of it.

use std::sync::Arc;

use tollgate::guard::{FleetSize, Guarded};
use tollgate_testkit::simulation::{Failure, Report, simulate, simulate_many};

/// `cargo xtask simulate-faults` runs any number.
const SEEDS: u64 = 2_000;
/// Each mutant must be found within this many.
const MUTANT_SEEDS: u64 = 200;

/// A copy of the guard that is wrong in one place.
struct Mutant {
    wrong: &'static str,
    run: fn(u64) -> Result<Report, Failure>,
}

macro_rules! run_guard {
    ($at:ident, $seeds:expr) => {
        simulate_many(1, $seeds, |link, servers| {
            $at::Guarded::new(link, Arc::new($at::FleetSize::stated(servers)))
        })
    };
}

include!(concat!(env!("OUT_DIR"), "/guard_mutants.rs"));

#[test]
fn the_guard_keeps_its_promises_under_all_seeds() {
    let report =
        simulate_many(1, SEEDS, |link, servers| Guarded::new(link, Arc::new(FleetSize::stated(servers))))
            .unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    for (fault, count) in report.seen.rows() {
        assert!(count > SEEDS / 10, "hardly any {fault}: {report}");
    }
    let Report { by_store, allowed_by_policy, refused_by_policy, .. } = report;
    for seen in [by_store, allowed_by_policy, refused_by_policy] {
        assert!(seen > SEEDS, "hardly seen: {report}");
    }
}

#[test]
fn every_planted_mutant_of_the_guard_is_found() {
    let survivors: Vec<_> =
        ALL.iter().filter(|mutant| (mutant.run)(MUTANT_SEEDS).is_ok()).map(|mutant| mutant.wrong).collect();
    assert!(survivors.is_empty(), "survived: {survivors:#?}");
}

#[test]
fn a_seed_always_gives_the_same_run() {
    let run = || simulate(7, |link, servers| Guarded::new(link, Arc::new(FleetSize::stated(servers))));
    assert_eq!(run(), run());
}

#[test]
fn a_failure_names_the_command_that_replays_it() {
    let failure = ALL.iter().find_map(|mutant| (mutant.run)(MUTANT_SEEDS).err()).expect("a mutant is found");
    let replay = format!("cargo xtask simulate-faults --seed {} --seeds 1", failure.seed);
    assert!(failure.to_string().contains(&replay), "{failure}");
}
