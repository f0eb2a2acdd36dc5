//! Tables of answers for people.

use serde_json::Value;
use tollgate::core::Time;

use crate::cli::terminal;
use crate::text::escape_control;

/// How the cells of a column are aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows of text under a header. The text of the last column is not padded.
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row. Control characters are escaped: the text comes from a server.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| escape_control(&cell)).collect());
    }

    pub(crate) fn text(&self) -> String {
        let width = |index: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.chars().count());
            cells.chain([self.columns[index].0.len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut line = String::new();
            for (index, cell) in cells.enumerate() {
                let (Some(&width), Some(&(_, align))) = (widths.get(index), self.columns.get(index)) else {
                    continue;
                };
                let gap = if index == 0 { "" } else { "  " };
                line += &match align {
                    Align::Left => format!("{gap}{cell:<width$}"),
                    Align::Right => format!("{gap}{cell:>width$}"),
                };
            }
            format!("{}\n", line.trim_end())
        };
        let mut text = line(&mut self.columns.iter().map(|&(name, _)| name));
        for row in &self.rows {
            text += &line(&mut row.iter().map(String::as_str));
        }
        text
    }
}

/// A member as text: a number, a name, or a dash if it is absent.
pub(crate) fn cell(of: &Value, member: &str) -> String {
    match &of[member] {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A length of time in a member, in milliseconds.
pub(crate) fn duration_cell(of: &Value, member: &str) -> String {
    of[member].as_u64().map_or_else(|| "-".to_owned(), terminal::duration)
}

/// An instant in a member, in milliseconds since 1970.
pub(crate) fn instant_cell(of: &Value, member: &str) -> String {
    match of[member].as_u64().and_then(|ms| ms.checked_mul(1_000)) {
        Some(us) if us <= Time::MAX.us() => terminal::instant(Time::from_us(us)),
        _ => "-".to_owned(),
    }
}
