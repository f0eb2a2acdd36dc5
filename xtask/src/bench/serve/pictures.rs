//! The pictures of the server suite.

use super::{BARE_HYPER, BARE_TONIC, THROTTLECRAB};
use crate::bench::pictures::{Picture, cpu_bars};
use tollgate_bench_report::Report;

/// Every picture whose row was run.
pub(super) fn all(report: &Report) -> Vec<Picture> {
    let row = |id: &str, title: &str, yardstick| {
        let svg = report.row(id).map(|row| cpu_bars(row, title, yardstick));
        Picture::new(report, id, title, svg)
    };
    let pictures = [
        row("resp-64", "CPU time of the server per decision, RESP, 64 at once", THROTTLECRAB),
        row("http", "CPU time of the server per decision, HTTP", BARE_HYPER),
        row("grpc", "CPU time of the server per decision, gRPC", BARE_TONIC),
    ];
    pictures.into_iter().flatten().collect()
}
