//! The suite of scripts in Redis.

mod pictures;
mod tables;
mod targets;

use super::report::Report;
use super::table::number;
use super::told::Told;

/// Whom everybody is measured by.
const YARDSTICK: &str = "plain GCRA";
/// The same decision as ours, pipelined: what a service gets that calls a script for every check.
const ALONE: &str = "tollgate, 1 per call";
/// The store as a busy service uses it.
const STORE: &str = "RedisStore, 512 tasks";
/// Ours, with as many checks per call as the store ever sends.
const LARGEST: &str = "tollgate, 64 per call";

/// What is told of a run.
pub(super) fn told(report: &Report) -> Told {
    Told {
        targets: targets::all(report),
        pictures: pictures::all(report),
        tables: tables::all(report),
        notes: String::new(),
        effort: format!("{} checks per contender, row and round", number(report.decisions as f64)),
        packages: &[],
    }
}
