//! The tables of the Redis suite.

use super::YARDSTICK;
use crate::bench::table::{Table, or_dash};
use crate::bench::tables::{Titled, cpu_ratio, spread, titled, wall_ratio};
use tollgate_bench_report::{Measured, Report, Row};

/// Every table that has lines.
pub(super) fn all(report: &Report) -> Vec<Titled> {
    titled([
        ("1,000 keys, different ones in each call", compared_with_plain_scripts(report, "many")),
        ("One key", compared_with_plain_scripts(report, "hot")),
        ("Every algorithm of Tollgate, 1,000 keys", one_and_sixteen_per_call(report, "algorithms")),
        ("Check, record and reserve, 1,000 keys", one_and_sixteen_per_call(report, "operations")),
    ])
}

fn compared_with_plain_scripts(report: &Report, row: &str) -> Table {
    let mut table = Table::new(["one check", "Redis CPU ns", "x plain GCRA", "wall ns", "x plain GCRA"]);
    let Some(row) = report.row(row) else { return table };
    for measured in &row.results {
        table.lines.push(vec![
            measured.contender.clone(),
            spread(&measured.cpu_ns),
            cpu_ratio(row, measured, YARDSTICK),
            spread(&measured.wall_ns),
            wall_ratio(row, measured, YARDSTICK),
        ]);
    }
    table
}

/// A line per contender, with one check per call and with sixteen.
fn one_and_sixteen_per_call(report: &Report, row: &str) -> Table {
    let mut table = Table::new([
        "one check",
        "1 per call: Redis CPU ns",
        "x plain GCRA",
        "16 per call: Redis CPU ns",
        "x plain GCRA",
    ]);
    let Some(row) = report.row(row) else { return table };
    for measured in &row.results {
        let contender = measured.contender.as_str();
        let name = match contender.strip_suffix(", 1 per call") {
            Some(name) => name,
            None if contender == YARDSTICK => YARDSTICK,
            None => continue,
        };
        let together = row.of(&format!("{name}, 16 per call"));
        let [alone_ns, alone_ratio] = cells(row, Some(measured));
        let [together_ns, together_ratio] = cells(row, together);
        table.lines.push(vec![name.to_owned(), alone_ns, alone_ratio, together_ns, together_ratio]);
    }
    table
}

fn cells(row: &Row, measured: Option<&Measured>) -> [String; 2] {
    [
        or_dash(measured, |measured| spread(&measured.cpu_ns)),
        or_dash(measured, |measured| cpu_ratio(row, measured, YARDSTICK)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_has_one_line_for_one_and_sixteen_checks_per_call() {
        let measured = |name: &str, ns: f64| Measured {
            contender: name.to_owned(),
            cpu_ns: vec![ns],
            wall_ns: vec![ns],
            instructions: None,
        };
        let results =
            vec![measured("a, 1 per call", 4.0), measured("a, 16 per call", 1.0), measured(YARDSTICK, 2.0)];
        let row = Row { id: "algorithms".to_owned(), title: String::new(), keys: 1_000, results };
        let report = Report {
            suite: "redis".to_owned(),
            rounds: 1,
            decisions: 1,
            server: None,
            contenders: Vec::new(),
            rows: vec![row],
            memory: Vec::new(),
        };
        let lines = one_and_sixteen_per_call(&report, "algorithms").lines;
        assert_eq!(lines[0], ["a", "4.00 (4.00..4.00)", "2.00", "1.00 (1.00..1.00)", "0.50"]);
        assert_eq!(lines[1], [YARDSTICK, "2.00 (2.00..2.00)", "1.00", "-", "-"]);
        assert_eq!(lines.len(), 2);
    }
}
