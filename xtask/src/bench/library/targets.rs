//! The targets of the library suite.

use super::YARDSTICK;
use crate::bench::targets::Target;
use tollgate_bench_report::Figure;
use tollgate_bench_report::Report;

const OURS: &str = "tollgate";
const ONE_RULE: &str = "tollgate, 1 of 20 rules";
const THREE_RULES: &str = "tollgate, 3 of 20 rules";
const BARE_MAP: &str = "bare map";
const MILLION: u64 = 1_000_000;

/// All targets of the suite.
pub(super) fn all(report: &Report) -> Vec<Target> {
    let cpu = |row: &str, ours, theirs| Some(report.row(row)?.cpu_ratio(ours, theirs)?.median);
    let wall = |row: &str| Some(report.row(row)?.wall_ratio(OURS, YARDSTICK)?.median);
    let bytes = |name| report.bytes_per_key(MILLION, name);
    let target = |what, at_most, found| Target { what, at_most, found };
    vec![
        target(
            "one check by string key, 1,000,000 keys, uniform: CPU against governor DashMap",
            0.5,
            cpu("uniform-1000000", OURS, YARDSTICK),
        ),
        target(
            "1,000,000 keys: bytes per key against governor DashMap",
            0.5,
            bytes(OURS).zip(bytes(YARDSTICK)).map(|(ours, theirs)| ours / theirs),
        ),
        target(
            "one key on two threads: CPU against governor DashMap",
            0.7,
            cpu("hot-2-threads", OURS, YARDSTICK),
        ),
        target("one key on two threads: time against governor DashMap", 0.7, wall("hot-2-threads")),
        target(
            "20 rules, 1,000,000 keys: CPU of a check against governor DashMap",
            1.0,
            report
                .row("rules-many")
                .filter(|row| row.keys == MILLION)
                .and_then(|_| cpu("rules-many", ONE_RULE, YARDSTICK)),
        ),
        target("20 rules, one key: CPU against one check by key", 6.0, cpu("rules-hot", ONE_RULE, OURS)),
        target(
            "three rules in one check: CPU against one rule",
            2.5,
            cpu("rules-hot", THREE_RULES, ONE_RULE),
        ),
        target(
            "from 10,000 to 10,000,000 keys: growth of CPU against the growth of a bare map (1.0 plus a tenth for noise)",
            1.1,
            growth(report, OURS).zip(growth(report, BARE_MAP)).map(|(ours, bare)| ours / bare),
        ),
    ]
}

/// By how many ns a decision is more expensive with ten million keys than with ten thousand.
fn growth(report: &Report, contender: &str) -> Option<f64> {
    let cpu_ns = |row: &str| Some(Figure::of(&report.row(row)?.of(contender)?.cpu_ns)?.median);
    Some(cpu_ns("uniform-10000000")? - cpu_ns("uniform-10000")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_bench_report::{Held, Measured, Memory, Row};

    fn report(ours_ns: f64, ours_bytes: f64) -> Report {
        let measured = |name: &str, ns: f64| Measured {
            contender: name.to_owned(),
            cpu_ns: vec![ns],
            wall_ns: vec![ns],
            instructions: None,
        };
        let held = |name: &str, bytes_per_key| Held { contender: name.to_owned(), bytes_per_key };
        Report {
            suite: "library".to_owned(),
            rounds: 1,
            decisions: 1,
            server: None,
            contenders: Vec::new(),
            rows: vec![Row {
                id: "uniform-1000000".to_owned(),
                title: String::new(),
                keys: MILLION,
                results: vec![measured(OURS, ours_ns), measured(YARDSTICK, 100.0)],
            }],
            memory: vec![Memory {
                keys: MILLION,
                results: vec![held(OURS, ours_bytes), held(YARDSTICK, 80.0)],
            }],
        }
    }

    #[test]
    fn cpu_and_bytes_are_evaluated_and_missing_rows_are_not() {
        let verdicts = |ours_ns, ours_bytes| {
            let targets = all(&report(ours_ns, ours_bytes));
            [targets[0].verdict(), targets[1].verdict(), targets[2].verdict()]
        };
        assert_eq!(verdicts(50.0, 40.0), ["pass", "pass", "not measured"]);
        assert_eq!(verdicts(50.1, 40.1), ["fail", "fail", "not measured"]);
    }
}
