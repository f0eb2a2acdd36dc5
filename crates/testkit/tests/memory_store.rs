//! The store in memory.

use tollgate::MemoryStore;
use tollgate_testkit::conformance::agrees_with_the_model;

#[test]
fn memory_store_agrees_with_the_model_of_plans() {
    agrees_with_the_model(MemoryStore::with_clock, 300_000, 1)
        .unwrap_or_else(|difference| panic!("{difference}"));
}
