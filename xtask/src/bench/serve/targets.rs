//! The targets of the server suite.

use super::{BARE_ECHO, BARE_HYPER, BARE_TONIC, CHECK, RLS, THROTTLE, THROTTLECRAB};
use crate::bench::targets::Target;
use tollgate_bench_report::Figure;
use tollgate_bench_report::Report;

/// All targets of the suite.
pub(super) fn all(report: &Report) -> Vec<Target> {
    let ratio = |row: &str, ours, theirs| Some(report.row(row)?.cpu_ratio(ours, theirs)?.median);
    let cpu_ns = |row: &str, ours| Some(Figure::of(&report.row(row)?.of(ours)?.cpu_ns)?.median);
    let target = |what, at_most, found| Target { what, at_most, found };
    vec![
        target("RESP, 64 at once: CPU ns of a `CL.THROTTLE`", 900.0, cpu_ns("resp-64", THROTTLE)),
        target(
            "RESP, 64 at once: CPU of a `CL.THROTTLE` against throttlecrab (6 times less)",
            1.0 / 6.0,
            ratio("resp-64", THROTTLE, THROTTLECRAB),
        ),
        target(
            "RESP, one at a time: CPU of a `CL.THROTTLE` against a bare echo",
            1.25,
            ratio("resp-1", THROTTLE, BARE_ECHO),
        ),
        target("HTTP: CPU of `/v1/check` against bare hyper", 1.5, ratio("http", CHECK, BARE_HYPER)),
        target("gRPC: CPU of `ShouldRateLimit` against bare tonic", 1.4, ratio("grpc", RLS, BARE_TONIC)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_bench_report::{Measured, Row};

    fn row(id: &str, results: &[(&str, f64)]) -> Row {
        let measured = |&(name, ns): &(&str, f64)| Measured {
            contender: name.to_owned(),
            cpu_ns: vec![ns],
            wall_ns: vec![1.0],
            instructions: None,
        };
        let results = results.iter().map(measured).collect();
        Row { id: id.to_owned(), title: String::new(), keys: 1, results }
    }

    #[test]
    fn time_and_ratios_are_evaluated_row_by_row() {
        let verdicts = |ours: f64, alone: f64| {
            let report = Report {
                suite: "serve".to_owned(),
                rounds: 1,
                decisions: 1,
                server: None,
                contenders: Vec::new(),
                rows: vec![
                    row("resp-64", &[(THROTTLE, ours), (THROTTLECRAB, 5_400.0), (BARE_ECHO, 100.0)]),
                    row("resp-1", &[(THROTTLE, alone), (BARE_ECHO, 4_000.0)]),
                ],
                memory: Vec::new(),
            };
            all(&report).iter().map(Target::verdict).collect::<Vec<&str>>()
        };
        assert_eq!(verdicts(900.0, 5_000.0), ["pass", "pass", "pass", "not measured", "not measured"]);
        assert_eq!(verdicts(901.0, 5_001.0), ["fail", "fail", "fail", "not measured", "not measured"]);
    }
}
