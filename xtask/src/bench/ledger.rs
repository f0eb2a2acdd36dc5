//! The ledger suite.

use super::summary::Summary;
use super::table::{Table, number};
use super::tables::{Titled, cpu_ratio, spread, titled, wall_ratio};
use super::targets::Target;
use tollgate_bench_report::{Figure, Report, Row};

const SINGLE: &str = "ledger, batches of 1";
const LARGEST: &str = "ledger, batches of 512";

/// The summary of a run.
pub(super) fn summary(report: &Report) -> Summary {
    Summary {
        targets: targets(report),
        pictures: Vec::new(),
        tables: tables(report),
        notes: String::new(),
        effort: format!(
            "{} entries one by one per round, 16 times as many in batches",
            number(report.decisions as f64)
        ),
        packages: &["rusqlite", "tokio-postgres"],
    }
}

fn targets(report: &Report) -> Vec<Target> {
    let found = |row: &str, of: fn(&Row) -> Option<f64>| of(report.row(row)?);
    vec![
        Target {
            what: "SQLite, batches of 512: time per entry against batches of 1 (15 times the entries per second)",
            at_most: 1.0 / 15.0,
            found: found("sqlite", |row| Some(row.wall_ratio(LARGEST, SINGLE)?.median)),
        },
        Target {
            what: "SQLite, batches of 512: time per entry against a loop of bare inserts",
            at_most: 2.0,
            found: found("sqlite", |row| {
                Some(row.wall_ratio(LARGEST, "bare inserts, 512 per commit")?.median)
            }),
        },
        Target {
            what: "PostgreSQL, batches of 512: time per entry against batches of 1",
            at_most: 1.0 / 15.0,
            found: found("postgres", |row| Some(row.wall_ratio(LARGEST, SINGLE)?.median)),
        },
        Target {
            what: "PostgreSQL, batches of 512: time per entry against bare COPY and upsert",
            at_most: 2.0,
            found: found("postgres", |row| {
                Some(row.wall_ratio(LARGEST, "bare COPY and upsert, 512 per commit")?.median)
            }),
        },
        Target {
            what: "CPU that recording adds to a check at 64 in flight, with journal, shipper and SQLite: ns",
            at_most: 1_500.0,
            found: found("checks", |row| {
                let cpu = |name| Some(Figure::of(&row.of(name)?.cpu_ns)?.median);
                Some(cpu("recorded")? - cpu("unrecorded")?)
            }),
        },
    ]
}

fn tables(report: &Report) -> Vec<Titled> {
    titled([
        ("SQLite, one entry", compared(report, "sqlite", SINGLE)),
        ("PostgreSQL, one entry", compared(report, "postgres", SINGLE)),
        ("One check, 64 in flight", compared(report, "checks", "unrecorded")),
    ])
}

fn compared(report: &Report, row: &str, yardstick: &str) -> Table {
    let beside = format!("x {yardstick}");
    let mut table =
        Table::new(["", "CPU ns of the process", beside.as_str(), "wall ns", beside.as_str(), "per second"]);
    let Some(row) = report.row(row) else { return table };
    for measured in &row.results {
        let per_second = Figure::of(&measured.wall_ns).map(|wall| 1e9 / wall.median);
        table.lines.push(vec![
            measured.contender.clone(),
            spread(&measured.cpu_ns),
            cpu_ratio(row, measured, yardstick),
            spread(&measured.wall_ns),
            wall_ratio(row, measured, yardstick),
            per_second.map_or_else(String::new, number),
        ]);
    }
    table
}
