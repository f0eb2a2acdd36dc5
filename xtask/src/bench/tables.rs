//! Tables of the figures: code that all suites share.

use super::table::{Table, number, or_dash};
use tollgate_bench_report::Figure;
use tollgate_bench_report::{Measured, Row};

/// A table and its title.
pub(super) struct Titled {
    pub(super) title: &'static str,
    pub(super) table: Table,
}

/// Returns the tables that have lines.
pub(super) fn titled(tables: impl IntoIterator<Item = (&'static str, Table)>) -> Vec<Titled> {
    let titled = tables.into_iter().map(|(title, table)| Titled { title, table });
    titled.filter(|titled| !titled.table.lines.is_empty()).collect()
}

/// Formats all tables for the terminal.
pub(super) fn text(tables: &[Titled]) -> String {
    let texts = tables.iter().map(|Titled { title, table }| format!("{title}\n\n{}", table.text()));
    texts.collect::<Vec<String>>().join("\n")
}

/// Formats the median, and the interquartile range in brackets.
pub(super) fn spread(rounds: &[f64]) -> String {
    or_dash(Figure::of(rounds), |figure| {
        format!("{} ({}..{})", number(figure.median), number(figure.low), number(figure.high))
    })
}

/// CPU time as a multiple of the yardstick's.
pub(super) fn cpu_ratio(row: &Row, measured: &Measured, yardstick: &str) -> String {
    or_dash(row.cpu_ratio(&measured.contender, yardstick), |ratio| number(ratio.median))
}

/// Wall-clock time as a multiple of the yardstick's.
pub(super) fn wall_ratio(row: &Row, measured: &Measured, yardstick: &str) -> String {
    or_dash(row.wall_ratio(&measured.contender, yardstick), |ratio| number(ratio.median))
}
