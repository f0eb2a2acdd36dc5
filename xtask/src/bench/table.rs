//! A table, for the terminal and for a page.

use tollgate_bench_report::thousands;

/// Cells by line. Every line is as long as the head.
pub(super) struct Table {
    pub(super) head: Vec<String>,
    pub(super) lines: Vec<Vec<String>>,
}

impl Table {
    /// A table with this head.
    pub(super) fn new(head: impl IntoIterator<Item = impl Into<String>>) -> Table {
        Table { head: head.into_iter().map(Into::into).collect(), lines: Vec::new() }
    }

    /// Formats as Markdown: the first column is text, the others are numbers.
    pub(super) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = format!("|---|{}\n", "--:|".repeat(self.head.len().saturating_sub(1)));
        let lines: String = self.lines.iter().map(|cells| line(cells)).collect();
        line(&self.head) + &rule + &lines
    }

    /// Formats as plain text with columns of equal width.
    pub(super) fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.lines.iter().chain([&self.head]).map(|cells| cells[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let mut text = String::new();
        for cells in [&self.head].into_iter().chain(&self.lines) {
            let padded = cells.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            text += padded.collect::<Vec<String>>().join("  ").trim_end();
            text += "\n";
        }
        text
    }
}

/// Formats with three significant digits: `0.48`, `4.81`, `48.1`, `481`, `4,810`.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        1_000.0.. => thousands(value.round() as u64),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The cell of a missing measurement.
pub(super) fn or_dash<T>(value: Option<T>, write: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        for (value, text) in
            [(0.484, "0.48"), (4.806, "4.81"), (48.06, "48.1"), (480.6, "481"), (12_345.6, "12,346")]
        {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_table_reads_in_the_terminal_and_on_a_page() {
        let mut table = Table::new(["who", "ns"]);
        table.lines.push(vec!["governor".to_owned(), "5".to_owned()]);
        assert_eq!(table.text(), "who       ns\ngovernor   5\n");
        assert_eq!(table.markdown(), "| who | ns |\n|---|--:|\n| governor | 5 |\n");
    }
}
