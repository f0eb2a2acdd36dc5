//! Ten faults on three servers that share a store: the short form of `cargo xtask chaos`.

use std::sync::PoisonError;
use std::time::Duration;

use tollgate_testkit::chaos::{self, Fault, Settings};

fn settings() -> Settings {
    Settings {
        binary: env!("CARGO_BIN_EXE_tollgate").to_owned(),
        seed: 1,
        // A debug build, on a machine that is busy with other tests.
        per_second: 600,
        subjects: 500,
        deadline: Duration::from_millis(100),
        around: Duration::from_millis(700),
        time: Duration::from_secs(2),
        dead: Duration::from_secs(2),
        hostile: 1_000,
    }
}

#[test]
fn ten_faults_admit_nothing_beyond_what_the_store_lost_and_charge_nothing_twice() {
    let _shared = crate::MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    let faults: Vec<Fault> = Fault::ALL.iter().copied().filter(|fault| fault.is_in_short_form()).collect();
    assert_eq!(faults.len(), 10);
    let mut rows = Vec::new();
    for fault in faults {
        let row = chaos::run(fault, &settings()).unwrap_or_else(|error| panic!("{fault}: {error}"));
        println!("{fault}: {}; took {:?}", row.happened, row.took);
        rows.push(row);
    }
    println!("{}", chaos::table(&rows));
    let problems: Vec<&String> = rows.iter().flat_map(|row| &row.problems).collect();
    assert!(problems.is_empty(), "{problems:#?}");
    // The account finds what a Redis without data gives back.
    let killed = &rows[0];
    assert!(killed.fault == Fault::Kill.name() && killed.lost > 0 && killed.over_admitted > 0, "{killed:?}");
    // The control shows that the faults are real: a naive limiter fails under the same ones.
    let naive = |of: fn(&chaos::Naive) -> u64| rows.iter().map(|row| of(&row.naive)).sum::<u64>();
    assert!(naive(|naive| naive.double_charged) > 0, "lost replies charge the naive limiter twice");
    assert!(naive(|naive| naive.orphans) > 0, "lost replies leave keys of the naive limiter for ever");
}
