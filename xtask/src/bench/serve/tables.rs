//! The tables of the server suite.

use super::{BARE_ECHO, BARE_HYPER, BARE_TONIC};
use crate::bench::table::{Table, number, or_dash};
use crate::bench::tables::{Titled, cpu_ratio, spread, titled};
use tollgate_bench_report::Figure;
use tollgate_bench_report::{Measured, Report, Row};

/// Every table that has lines.
pub(super) fn all(report: &Report) -> Vec<Titled> {
    titled([
        ("RESP, 64 connections: CPU ns of the server per decision", resp_cpu(report)),
        ("RESP, 64 connections: decisions per second", resp_speed(report)),
        ("HTTP, 64 connections, one request at a time on each", one_row(report, "http", BARE_HYPER)),
        ("gRPC, 10 connections, 32 calls at once on each", one_row(report, "grpc", BARE_TONIC)),
    ])
}

/// The RESP rows, by commands in flight per connection.
fn resp(report: &Report) -> Option<[&Row; 3]> {
    Some([report.row("resp-1")?, report.row("resp-16")?, report.row("resp-64")?])
}

fn resp_cpu(report: &Report) -> Table {
    let mut table = Table::new([
        "RESP",
        "1 at a time",
        "x bare echo",
        "16 at once",
        "x bare echo",
        "64 at once",
        "x bare echo",
    ]);
    let cells = |row: &Row, name: &str| {
        let measured = row.of(name);
        let ratio = or_dash(measured, |measured| cpu_ratio(row, measured, BARE_ECHO));
        [or_dash(measured, |measured| spread(&measured.cpu_ns)), ratio]
    };
    let Some(rows) = resp(report) else { return table };
    for Measured { contender, .. } in &rows[0].results {
        let cells = rows.iter().flat_map(|row| cells(row, contender));
        table.lines.push([contender.clone()].into_iter().chain(cells).collect());
    }
    table
}

fn resp_speed(report: &Report) -> Table {
    let mut table = Table::new(["RESP", "1 at a time", "16 at once", "64 at once"]);
    let Some(rows) = resp(report) else { return table };
    for Measured { contender, .. } in &rows[0].results {
        let cells = rows.iter().map(|row| or_dash(row.of(contender), per_second));
        table.lines.push([contender.clone()].into_iter().chain(cells).collect());
    }
    table
}

fn one_row(report: &Report, id: &str, bare: &str) -> Table {
    let against = format!("x {bare}");
    let mut table = Table::new(["", "CPU ns of the server", &against, "decisions per second"]);
    let Some(row) = report.row(id) else { return table };
    for measured in &row.results {
        table.lines.push(vec![
            measured.contender.clone(),
            spread(&measured.cpu_ns),
            cpu_ratio(row, measured, bare),
            per_second(measured),
        ]);
    }
    table
}

fn per_second(measured: &Measured) -> String {
    or_dash(Figure::of(&measured.wall_ns), |figure| number(1e9 / figure.median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contender_has_one_line_for_all_rows_of_resp() {
        let row = |id: &str, ours: f64, bare: f64| {
            let measured = |name: &str, ns: f64| Measured {
                contender: name.to_owned(),
                cpu_ns: vec![ns],
                wall_ns: vec![2.0 * ns],
                instructions: None,
            };
            let results = vec![measured("ours", ours), measured(BARE_ECHO, bare)];
            Row { id: id.to_owned(), title: String::new(), keys: 1, results }
        };
        let report = Report {
            suite: "serve".to_owned(),
            rounds: 1,
            decisions: 1,
            server: None,
            contenders: Vec::new(),
            rows: vec![row("resp-1", 9.0, 6.0), row("resp-16", 4.0, 2.0), row("resp-64", 500.0, 250.0)],
            memory: Vec::new(),
        };
        let ratios: Vec<Vec<String>> = resp_cpu(&report).lines;
        assert_eq!(ratios[0][2], "1.50");
        assert_eq!(ratios[0][6], "2.00");
        assert_eq!(resp_speed(&report).lines[0], ["ours", "55,555,556", "125,000,000", "1,000,000"]);
    }
}
