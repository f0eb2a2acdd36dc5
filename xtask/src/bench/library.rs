//! The library suite: limiters that decide inside one process.

mod pictures;
mod tables;
mod targets;

use super::summary::Summary;
use super::table::number;
use tollgate_bench_report::Report;

/// All figures are compared with this contender.
const YARDSTICK: &str = "governor DashMap";

/// The summary of a run.
pub(super) fn summary(report: &Report) -> Summary {
    Summary {
        targets: targets::all(report),
        pictures: pictures::all(report),
        tables: tables::all(report),
        notes: notes(report),
        effort: format!(
            "{} decisions per contender, row and round (a tenth of that for limitador)",
            number(report.decisions as f64)
        ),
        packages: &["gcra", "governor", "limitador", "ratelimit", "throttlecrab", "hashbrown", "mimalloc"],
    }
}

fn notes(report: &Report) -> String {
    let mut results = report.rows.iter().flat_map(|row| &row.results);
    if results.any(|measured| measured.instructions.is_some()) {
        String::new()
    } else {
        "Instructions were not counted: callgrind was not available on that machine.\n\n".to_owned()
    }
}
