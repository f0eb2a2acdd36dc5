//! The pictures of the suite in Redis: what a check costs the server, by how many travel together.

use super::YARDSTICK;
use crate::bench::pictures::{Picture, cpu_bars};
use crate::bench::report::Report;

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
