//! Tables of what was measured: what the suites share.

use super::figures::Figure;
use super::report::{Measured, Row};
use super::table::{Table, number, or_dash};

/// A table and what stands above it.
pub(super) struct Titled {
    pub(super) title: &'static str,
    pub(super) table: Table,
}

/// Those that have lines.
pub(super) fn titled(tables: impl IntoIterator<Item = (&'static str, Table)>) -> Vec<Titled> {
    let titled = tables.into_iter().map(|(title, table)| Titled { title, table });
    titled.filter(|titled| !titled.table.lines.is_empty()).collect()
}

/// All of them for the terminal.
pub(super) fn text(tables: &[Titled]) -> String {
    let texts = tables.iter().map(|Titled { title, table }| format!("{title}\n\n{}", table.text()));
    texts.collect::<Vec<String>>().join("\n")
}

/// The median, and the middle half in brackets.
pub(super) fn spread(rounds: &[f64]) -> String {
    or_dash(Figure::of(rounds), |figure| {
        format!("{} ({}..{})", number(figure.median), number(figure.low), number(figure.high))
    })
}

/// CPU time as a multiple of the yardstick's.
pub(super) fn cpu_ratio(row: &Row, measured: &Measured, yardstick: &str) -> String {
    or_dash(row.cpu_ratio(&measured.contender, yardstick), |ratio| number(ratio.median))
}

/// Time on the wall as a multiple of the yardstick's.
pub(super) fn wall_ratio(row: &Row, measured: &Measured, yardstick: &str) -> String {
    or_dash(row.wall_ratio(&measured.contender, yardstick), |ratio| number(ratio.median))
}
