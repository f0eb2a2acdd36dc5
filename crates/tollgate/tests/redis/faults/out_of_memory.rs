//! Servers without memory, under load. `cargo xtask chaos` prints the same figures.

use tollgate_testkit::drill::fill_memory;

use crate::common::runtime;

#[test]
fn a_full_server_that_does_not_evict_fails_charges_and_admits_nothing_extra() {
    let found = fill_memory(&runtime(), "noeviction", 1).unwrap();
    assert_eq!((found.evicted, found.excess), (0, 0), "{found}");
    assert!(found.during.refused > 0, "a refusal writes nothing: {found}");
    assert!(found.fresh.failed > 0 && found.fresh.admitted == 0, "failure policies decide: {found}");
    assert!(found.after.admitted > 0 && found.after.refused > 0, "it recovers: {found}");
}

#[test]
fn a_full_server_that_evicts_admits_again_and_the_store_reports_it() {
    let found = fill_memory(&runtime(), "allkeys-random", 1).unwrap();
    assert!(found.evicted > 0 && found.excess > 0, "{found}");
    assert_eq!((found.during.failed, found.during.unknown), (0, 0), "{found}");
}
