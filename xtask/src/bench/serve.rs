//! The server suite.

mod pictures;
pub(super) mod programs;
mod tables;
mod targets;

use super::summary::Summary;
use super::table::number;
use tollgate_bench_report::Report;

const THROTTLE: &str = "tollgate CL.THROTTLE";
const CHECK: &str = "tollgate check";
const THROTTLECRAB: &str = "throttlecrab";
/// The yardsticks over RESP, HTTP and gRPC.
const BARE_ECHO: &str = "bare echo";
const BARE_HYPER: &str = "bare hyper";
const RLS: &str = "tollgate RLS";
const BARE_TONIC: &str = "bare tonic";

/// The summary of a run.
pub(super) fn summary(report: &Report) -> Summary {
    Summary {
        targets: targets::all(report),
        pictures: pictures::all(report),
        tables: tables::all(report),
        notes: String::new(),
        effort: format!("{} decisions per contender, row and round", number(report.decisions as f64)),
        packages: &["hyper", "tokio", "tonic"],
    }
}
