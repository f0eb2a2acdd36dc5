//! The pictures of the Redis suite: the cost of a check for the server, by checks per call.

use super::YARDSTICK;
use crate::bench::pictures::{Picture, cpu_bars};
use tollgate_bench_report::Report;

/// Every picture whose row was run.
pub(super) fn all(report: &Report) -> Vec<Picture> {
    let row = |id: &str, name: &str, title: &str| {
        let svg = report.row(id).map(|row| cpu_bars(row, title, YARDSTICK));
        Picture::new(report, name, title, svg)
    };
    let pictures = [
        row("many", "many", "CPU time of Redis per check, 1,000 keys"),
        row("hot", "hot", "CPU time of Redis per check, one key"),
    ];
    pictures.into_iter().flatten().collect()
}
