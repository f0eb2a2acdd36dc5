//! The tables of the library suite.

use super::YARDSTICK;
use crate::bench::table::{Table, number, or_dash};
use crate::bench::tables::{Titled, cpu_ratio, spread, titled, wall_ratio};
use tollgate_bench_report::{Measured, Report, Row};

/// Every table that has lines.
pub(super) fn all(report: &Report) -> Vec<Titled> {
    let keyed: Vec<&Row> =
        report.rows.iter().filter(|row| row.keys > 1 && !row.id.starts_with("rules-")).collect();
    titled([
        ("One key", one_key(report)),
        ("Many keys: CPU ns per decision, median (interquartile range)", matrix(&keyed, cell)),
        ("Many keys: CPU time as a multiple of governor's keyed DashMap", matrix(&keyed, ratio)),
        ("From attributes, with 20 rules loaded", rules(report)),
        ("Bytes per key", memory(report)),
    ])
}

fn one_key(report: &Report) -> Table {
    let mut table = Table::new([
        "one key",
        "CPU ns",
        "x governor",
        "instructions",
        "2 threads: CPU ns",
        "x governor",
        "2 threads: wall ns",
        "x governor",
    ]);
    let (Some(one), Some(two)) = (report.row("hot"), report.row("hot-2-threads")) else { return table };
    for (alone, both) in one.results.iter().zip(&two.results) {
        table.lines.push(vec![
            alone.contender.clone(),
            spread(&alone.cpu_ns),
            ratio(one, alone),
            or_dash(alone.instructions, number),
            spread(&both.cpu_ns),
            ratio(two, both),
            spread(&both.wall_ns),
            wall_ratio(two, both, YARDSTICK),
        ]);
    }
    table
}

fn rules(report: &Report) -> Table {
    let mut table = Table::new(["20 rules", "one key: CPU ns", "x governor", "instructions"]);
    let Some(hot) = report.row("rules-hot") else { return table };
    let many = report.row("rules-many");
    if let Some(many) = many {
        table.head.extend([format!("{} keys: CPU ns", number(many.keys as f64)), "x governor".to_owned()]);
    }
    for measured in &hot.results {
        let mut line = vec![
            measured.contender.clone(),
            spread(&measured.cpu_ns),
            ratio(hot, measured),
            or_dash(measured.instructions, number),
        ];
        if let Some(many) = many {
            let found = many.of(&measured.contender);
            line.push(or_dash(found, |measured| spread(&measured.cpu_ns)));
            line.push(or_dash(found, |measured| ratio(many, measured)));
        }
        table.lines.push(line);
    }
    table
}

/// A line per row, a column per contender.
fn matrix(rows: &[&Row], cell: fn(&Row, &Measured) -> String) -> Table {
    let names: Vec<&String> = match rows.first() {
        Some(row) => row.results.iter().map(|measured| &measured.contender).collect(),
        None => Vec::new(),
    };
    let mut table = Table::new(["keys".to_owned()].into_iter().chain(names.iter().map(|&name| name.clone())));
    for row in rows {
        let cells = names.iter().map(|name| or_dash(row.of(name), |measured| cell(row, measured)));
        table.lines.push([row.title.clone()].into_iter().chain(cells).collect());
    }
    table
}

fn memory(report: &Report) -> Table {
    let names: Vec<&String> = match report.memory.first() {
        Some(memory) => memory.results.iter().map(|held| &held.contender).collect(),
        None => Vec::new(),
    };
    let mut table = Table::new(["keys".to_owned()].into_iter().chain(names.iter().map(|&name| name.clone())));
    for memory in &report.memory {
        let cells = names.iter().map(|name| or_dash(report.bytes_per_key(memory.keys, name), number));
        table.lines.push([number(memory.keys as f64)].into_iter().chain(cells).collect());
    }
    table
}

fn cell(_: &Row, measured: &Measured) -> String {
    spread(&measured.cpu_ns)
}

fn ratio(row: &Row, measured: &Measured) -> String {
    cpu_ratio(row, measured, YARDSTICK)
}
