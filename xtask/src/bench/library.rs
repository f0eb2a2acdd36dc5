//! The suite of libraries that decide inside of one process.

mod pictures;
mod tables;
mod targets;

use super::report::Report;
use super::table::number;
use super::told::Told;

/// Whom everybody is measured by.
const YARDSTICK: &str = "governor DashMap";

/// What is told of a run.
pub(super) fn told(report: &Report) -> Told {
    Told {
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
