//! The targets of the Redis suite.

use super::{ALONE, LARGEST, STORE, YARDSTICK};
use crate::bench::targets::Target;
use tollgate_bench_report::{Report, Row};

/// Compares an operation with a check of the same limit, both with one per call.
fn beside_check(row: &Row, operation: &str, limit: &str) -> Option<f64> {
    let check = format!("check of a {limit}, 1 per call");
    Some(row.cpu_ratio(&format!("{operation}, 1 per call"), &check)?.median)
}

/// All targets of the suite. "Pipelined" is the same decision by the same script, with one check per call and the same
/// number of checks in flight.
pub(super) fn all(report: &Report) -> Vec<Target> {
    let found = |row: &str, of: fn(&Row) -> Option<f64>| of(report.row(row)?);
    vec![
        Target {
            what: "many keys, batches of 64: Redis CPU against pipelined (1.6 times less)",
            at_most: 0.625,
            found: found("many", |row| Some(row.cpu_ratio(LARGEST, ALONE)?.median)),
        },
        Target {
            what: "many keys, `RedisStore`: Redis CPU against pipelined",
            at_most: 0.625,
            found: found("many", |row| Some(row.cpu_ratio(STORE, ALONE)?.median)),
        },
        Target {
            what: "one hot key, batches of 64: time against pipelined (5 times the throughput)",
            at_most: 0.2,
            found: found("hot", |row| Some(row.wall_ratio(LARGEST, ALONE)?.median)),
        },
        Target {
            what: "one hot key, `RedisStore`: time against pipelined",
            at_most: 0.2,
            found: found("hot", |row| Some(row.wall_ratio(STORE, ALONE)?.median)),
        },
        Target {
            what: "many keys, batches of 64: Redis CPU against plain GCRA, one check per call",
            at_most: 0.62,
            found: found("many", |row| Some(row.cpu_ratio(LARGEST, YARDSTICK)?.median)),
        },
        Target {
            what: "one hot key, batches of 64: Redis CPU against plain GCRA, one check per call",
            at_most: 0.35,
            found: found("hot", |row| Some(row.cpu_ratio(LARGEST, YARDSTICK)?.median)),
        },
        Target {
            what: "record in a token bucket: Redis CPU against a check",
            at_most: 1.1,
            found: found("operations", |row| beside_check(row, "record in a token bucket", "token bucket")),
        },
        Target {
            what: "record in a quota: Redis CPU against a check",
            at_most: 1.1,
            found: found("operations", |row| beside_check(row, "record in a quota", "quota")),
        },
        Target {
            what: "reserve of a quota: Redis CPU against a check",
            at_most: 1.6,
            found: found("operations", |row| beside_check(row, "reserve of a quota", "quota")),
        },
    ]
}
