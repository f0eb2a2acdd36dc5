//! The suite of servers.

mod pictures;
pub(super) mod programs;
mod tables;
mod targets;

use super::report::Report;
use super::table::number;
use super::told::Told;

const THROTTLE: &str = "tollgate CL.THROTTLE";
const CHECK: &str = "tollgate check";
const THROTTLECRAB: &str = "throttlecrab";
/// Whom everybody is measured by over RESP, HTTP and gRPC.
const BARE_ECHO: &str = "bare echo";
const BARE_HYPER: &str = "bare hyper";
const RLS: &str = "tollgate RLS";
const BARE_TONIC: &str = "bare tonic";

/// What is told of a run.
pub(super) fn told(report: &Report) -> Told {
    Told {
        targets: targets::all(report),
        pictures: pictures::all(report),
        tables: tables::all(report),
        notes: String::new(),
        effort: format!("{} decisions per contender, row and round", number(report.decisions as f64)),
        packages: &["hyper", "tokio", "tonic"],
    }
}
