//! Servers and databases that are killed under load: every acknowledged charge is one entry, none is posted twice.
//!
//! `cargo xtask chaos --only ledger` kills a thousand times, on every store, and lets disks and databases fail.

use std::time::Duration;

use tollgate_testkit::drill::{LedgerDrill, LedgerFault, LedgerFigures, LedgerPlace, ledger};

fn drill(place: LedgerPlace, kills: u64, faults: Vec<LedgerFault>) -> LedgerFigures {
    let drill = LedgerDrill { binary: crate::BINARY.to_owned(), place, kills, faults, seed: 1 };
    let found = ledger(&drill).unwrap_or_else(|error| panic!("{place}: {error}"));
    println!("{place}: {found}");
    assert_eq!(found.problems, Vec::<String>::new(), "{place}: {found}");
    assert!(found.kills() >= kills && found.entries > 0, "{place}: {found}");
    found
}

#[test]
fn crash_with_the_memory_store_loses_and_doubles_nothing() {
    drill(LedgerPlace::MemorySqlite, 6, Vec::new());
}

#[test]
fn crash_with_redis_loses_and_doubles_nothing() {
    let found = drill(LedgerPlace::RedisSqlite, 6, Vec::new());
    assert_eq!(found.excess, 0, "Redis has lost nothing: {found}");
}

#[test]
fn crash_of_servers_and_postgres_loses_and_doubles_nothing_also_when_it_is_set_back() {
    let faults = vec![LedgerFault::DatabaseStopped(Duration::from_secs(4)), LedgerFault::SetBack];
    let found = drill(LedgerPlace::RedisPostgres, 6, faults);
    assert_eq!(found.excess, 0, "Redis has lost nothing: {found}");
}
