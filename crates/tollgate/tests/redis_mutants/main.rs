//! The suites that pass on the Lua twins fail on every planted mutant of the twins.

use std::collections::BTreeMap;
use std::panic;

use tollgate_testkit::make_twin;
use tollgate_testkit::oracle::differential::{self, Difference, Tally};
use tollgate_testkit::oracle::sliding_window::Numbers;
use tollgate_testkit::oracle::suite;
use tollgate_testkit::redis::{Flavour, Server};
use tollgate_testkit::twin::{Twin, on_server};

mod table;

use table::MUTANTS;

/// Steps per mutant. A mutant that survives this many steps counts as undetected.
const STEPS: u64 = 60_000;
const SEED: u64 = 1;

fn find_difference(file: &str) -> Result<Tally, Difference> {
    if file == "ring" {
        return differential::find_difference::<suite::SlidingLog, Twin>(
            make_twin!(sliding_log, SlidingLog),
            STEPS,
            SEED,
        );
    }
    if file == "bucket_ring" {
        let make = |numbers: &Numbers| make_twin!(sliding_window, SlidingWindow)(numbers);
        return differential::find_difference::<suite::BucketRing, Twin>(make, STEPS, SEED);
    }
    if file == "holds" {
        return differential::find_difference::<suite::Reservations, Twin>(
            make_twin!(quota, Quota),
            STEPS,
            SEED,
        )
        .and_then(|_| {
            differential::find_difference::<suite::Quota, Twin>(make_twin!(quota, Quota), STEPS, SEED)
        });
    }
    macro_rules! find_difference {
        ($($file:ident $kind:ident),+ $(,)?) => {
            match file {
                $(stringify!($file) => differential::find_difference::<suite::$kind, Twin>(make_twin!($file, $kind), STEPS, SEED),)+
                other => panic!("no suite for {other}"),
            }
        };
    }
    find_difference![
        fixed_window FixedWindow,
        sliding_window SlidingWindow,
        sliding_log SlidingLog,
        bucket Bucket,
        concurrency Concurrency,
        quota Quota,
        meter Meter,
        penalty Penalty,
    ]
}

#[test]
fn every_planted_mutant_of_a_twin_is_caught() {
    let server = Server::start(Flavour::Redis70).unwrap();
    // A mutant often causes a panic, and the output of all panics would hide the result.
    panic::set_hook(Box::new(|_| ()));
    let mut survivors = Vec::new();
    for &(file, wrong, right_text, wrong_text) in MUTANTS {
        let planted = move |name: &str, source: &str| {
            if name == file { source.replacen(right_text, wrong_text, 1) } else { source.to_owned() }
        };
        if on_server(server.port(), planted, || find_difference(file)).is_ok() {
            survivors.push(format!("{file}: {wrong}"));
        }
    }
    let _default = panic::take_hook();
    assert!(survivors.is_empty(), "survived: {survivors:#?}");
}

#[test]
fn every_mutant_is_one_change_and_every_twin_has_at_least_five_mutants() {
    let mut counts = BTreeMap::new();
    for (file, wrong, right_text, wrong_text) in MUTANTS {
        let path = format!("{}/src/store/redis/lua/{file}.lua", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(&path).unwrap();
        let found = source.matches(right_text).count();
        assert_eq!(found, 1, "{file}: {wrong}: {right_text:?} occurs {found} times");
        assert_ne!(right_text, wrong_text, "{file}: {wrong}");
        *counts.entry(file).or_insert(0) += 1;
    }
    // Nine twins, what leases and reservations share, and what logs and rings share.
    assert_eq!(counts.len(), 11, "{counts:?}");
    assert!(counts.values().all(|&count| count >= 5), "{counts:?}");
    // The bucket has three algorithms, the sliding window has two.
    assert!(counts[&"bucket"] >= 15 && counts[&"sliding_window"] >= 10, "{counts:?}");
}
