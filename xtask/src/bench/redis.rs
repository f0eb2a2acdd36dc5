//! The Redis suite.

mod pictures;
mod tables;
mod targets;

use super::summary::Summary;
use super::table::number;
use tollgate_bench_report::Report;

/// All figures are compared with this contender.
const YARDSTICK: &str = "plain GCRA";
/// Tollgate's script, pipelined: what a service gets that calls a script for every check.
const ALONE: &str = "tollgate, 1 per call";
/// The Redis store as a busy service uses it.
const STORE: &str = "RedisStore, 512 tasks";
/// Tollgate's script with the most checks per call that the store sends.
const LARGEST: &str = "tollgate, 64 per call";

/// The summary of a run.
pub(super) fn summary(report: &Report) -> Summary {
    Summary {
        targets: targets::all(report),
        pictures: pictures::all(report),
        tables: tables::all(report),
        notes: String::new(),
        effort: format!("{} checks per contender, row and round", number(report.decisions as f64)),
        packages: &[],
    }
}
