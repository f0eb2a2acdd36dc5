//! Holders that crash, and follow-ups whose replies are lost. `cargo xtask chaos --only holders` and `--only returns` run
//! more of them.

use std::sync::Arc;

use tokio::runtime::Runtime;
use tollgate::MemoryStore;
use tollgate_core::Store;
use tollgate_testkit::drill::{Held, crashing_holders, retried_returns};
use tollgate_testkit::redis::{Cluster, Flavour, SentinelSet, Server};

use crate::common::{runtime, settings};

/// `cargo xtask chaos` runs 1,000.
const HOLDERS: usize = 300;
/// `cargo xtask chaos` runs 100,000.
const RETURNS: u64 = 4_000;

fn limit_holds_and_units_come_back<S: Store + Send + Sync + 'static>(runtime: &Runtime, store: S) {
    let store = Arc::new(store);
    for held in [Held::Leases, Held::Reservations] {
        let found = crashing_holders(runtime, &store, held, HOLDERS, 1).unwrap();
        assert!(found.is_fine() && found.failed == 0, "{held:?}: {found}");
    }
}

#[test]
fn crashed_holders_never_exceed_the_limit_and_their_units_come_back_in_memory() {
    limit_holds_and_units_come_back(&runtime(), MemoryStore::new());
}

#[test]
fn crashed_holders_never_exceed_the_limit_and_their_units_come_back_on_redis() {
    let runtime = runtime();
    let server = Server::start(Flavour::Redis70).unwrap();
    let store = runtime.block_on(settings(&server.url()).connect()).unwrap();
    limit_holds_and_units_come_back(&runtime, store);
}

#[test]
fn crashed_holders_never_exceed_the_limit_and_their_units_come_back_behind_sentinels() {
    let runtime = runtime();
    let set = SentinelSet::start(Flavour::Redis70).unwrap();
    let store = runtime.block_on(settings(&set.url()).connect()).unwrap();
    limit_holds_and_units_come_back(&runtime, store);
}

#[test]
fn crashed_holders_never_exceed_the_limit_and_their_units_come_back_on_a_cluster() {
    let runtime = runtime();
    let cluster = Cluster::start(Flavour::Redis70).unwrap();
    let store = runtime.block_on(settings(&cluster.url()).connect()).unwrap();
    limit_holds_and_units_come_back(&runtime, store);
}

#[test]
fn retried_returns_and_records_are_counted_exactly_once_while_replies_are_lost() {
    let found = retried_returns(&runtime(), RETURNS, 0.1, 1).unwrap();
    assert_eq!((found.wrong_subjects, found.counted), (0, found.expected), "{found}");
    assert!(found.returned >= RETURNS && found.retries > 0 && found.lost >= 20, "{found}");
}
