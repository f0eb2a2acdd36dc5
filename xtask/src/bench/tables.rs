//! What was measured, as tables.

use super::figures::{Figure, YARDSTICK};
use super::report::{Measured, Report, Row};
use super::table::{Table, number, or_dash};

/// A table and what stands above it.
pub(super) struct Titled {
    pub(super) title: &'static str,
    pub(super) table: Table,
}

/// Every table that has lines.
pub(super) fn all(report: &Report) -> Vec<Titled> {
    let keyed: Vec<&Row> =
        report.rows.iter().filter(|row| row.keys > 1 && !row.id.starts_with("rules-")).collect();
    let tables = [
        ("One key", one_key(report)),
        ("Many keys: CPU ns per decision, median (middle half of the rounds)", matrix(&keyed, cell)),
        ("Many keys: CPU time as a multiple of governor's keyed DashMap", matrix(&keyed, ratio_cell)),
        ("From attributes, with 20 rules loaded", rules(report)),
        ("Bytes per key", memory(report)),
    ];
    let titled = tables.into_iter().map(|(title, table)| Titled { title, table });
    titled.filter(|titled| !titled.table.lines.is_empty()).collect()
}

/// All of them for the terminal.
pub(super) fn text(report: &Report) -> String {
    let texts = all(report).into_iter().map(|Titled { title, table }| format!("{title}\n\n{}", table.text()));
    texts.collect::<Vec<String>>().join("\n")
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
    let yardstick = two.of(YARDSTICK);
    for (alone, both) in one.results.iter().zip(&two.results) {
        let wall = yardstick.and_then(|theirs| Figure::ratio(&both.wall_ns, &theirs.wall_ns));
        table.lines.push(vec![
            alone.contender.clone(),
            spread(&alone.cpu_ns),
            ratio(one, alone),
            or_dash(alone.instructions, number),
            spread(&both.cpu_ns),
            ratio(two, both),
            spread(&both.wall_ns),
            or_dash(wall, |wall| number(wall.median)),
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

fn ratio_cell(row: &Row, measured: &Measured) -> String {
    ratio(row, measured)
}

fn spread(rounds: &[f64]) -> String {
    or_dash(Figure::of(rounds), |figure| {
        format!("{} ({}..{})", number(figure.median), number(figure.low), number(figure.high))
    })
}

fn ratio(row: &Row, measured: &Measured) -> String {
    or_dash(row.cpu_ratio(&measured.contender, YARDSTICK), |ratio| number(ratio.median))
}
