//! The fault simulation passes on the guard and fails on every planted mutant of it.

use std::sync::Arc;

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

/// Guards a simulated store with the guard in module `at`.
macro_rules! guarded {
    ($($at:ident)::+, $link:expr, $servers:expr) => {{
        use $($at)::+ as guard;
        let clock = guard::MonotonicClock::simulated($link.instants());
        let fleet = Arc::new(guard::FleetSize::stated($servers));
        guard::Guarded::new($link, fleet).with_refusal_memory(true).with_clock(clock)
    }};
}

/// What the engine's task calls.
macro_rules! maintain {
    () => {
        |engine| Box::pin(async move { engine.store().maintain().await })
    };
}

macro_rules! run_guard {
    ($at:ident, $seeds:expr) => {
        simulate_many(1, $seeds, |link, servers| guarded!($at, link, servers), maintain!())
    };
}

include!(concat!(env!("OUT_DIR"), "/guard_mutants.rs"));

#[test]
fn the_guard_keeps_its_promises_under_all_seeds() {
    let report =
        simulate_many(1, SEEDS, |link, servers| guarded!(tollgate::guard, link, servers), maintain!())
            .unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    for (fault, count) in report.seen.rows() {
        assert!(count > SEEDS / 10, "hardly any {fault}: {report}");
    }
    let Report { by_store, by_slice, by_memory, allowed_by_policy, refused_by_policy, posted_units, .. } =
        report;
    for seen in [by_store, by_slice, by_memory, allowed_by_policy, refused_by_policy, posted_units] {
        assert!(seen > SEEDS, "hardly seen: {report}");
    }
}

#[test]
fn every_planted_mutant_of_the_guard_is_found() {
    let mut survivors = Vec::new();
    for Mutant { wrong, run } in ALL {
        match run(MUTANT_SEEDS) {
            Ok(_) => survivors.push(wrong),
            Err(Failure { seed, problem }) => println!("{wrong}: seed {seed}, {problem}"),
        }
    }
    assert!(survivors.is_empty(), "survived: {survivors:#?}");
}

#[test]
fn a_seed_always_gives_the_same_run() {
    let run = || simulate(7, |link, servers| guarded!(tollgate::guard, link, servers), maintain!());
    assert_eq!(run(), run());
}

#[test]
fn a_failure_names_the_command_that_replays_it() {
    let failure = ALL.iter().find_map(|mutant| (mutant.run)(MUTANT_SEEDS).err()).expect("a mutant is found");
    let replay = format!("cargo xtask simulate-faults --seed {} --seeds 1", failure.seed);
    assert!(failure.to_string().contains(&replay), "{failure}");
}
