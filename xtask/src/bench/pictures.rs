//! The pictures of `docs/performance.md`: code that all suites share.

pub(super) mod bars;
pub(super) mod lines;

use super::table::number;
use bars::{Bar, Bars};
use tollgate_bench_report::Figure;
use tollgate_bench_report::{Report, Row};
use tollgate_server::drawing::Look;

/// One file.
pub(super) struct Picture {
    pub(super) file: String,
    pub(super) title: String,
    pub(super) svg: String,
}

impl Picture {
    /// `None` if the row was not run.
    pub(super) fn new(report: &Report, name: &str, title: &str, svg: Option<String>) -> Option<Picture> {
        Some(Picture { file: format!("{}-{name}.svg", report.suite), title: title.to_owned(), svg: svg? })
    }
}

/// Bars longer than this multiple of the yardstick are cut; otherwise all others would be too short to compare.
const OFF_SCALE: f64 = 3.0;

/// Whether the contender is Tollgate.
pub(super) fn is_ours(contender: &str) -> bool {
    contender.starts_with("tollgate")
}

/// Tollgate is filled, the yardstick is dashed, all others are pale.
pub(super) fn bar_look(contender: &str, yardstick: &str) -> Look {
    match contender {
        _ if is_ours(contender) => Look::Admitted,
        _ if contender == yardstick => Look::Lapsed,
        _ => Look::Bar,
    }
}

/// Draws the CPU time of every contender of the row.
pub(super) fn cpu_bars(row: &Row, title: &str, yardstick: &str) -> String {
    let bars = row.results.iter().filter_map(|measured| {
        let Figure { low, median, high } = Figure::of(&measured.cpu_ns)?;
        let label = measured.contender.clone();
        Some(Bar { look: bar_look(&label, yardstick), label, value: median, whisker: Some((low, high)) })
    });
    let subtitle = "ns; median and middle half of the rounds, shorter is better";
    drawn(title, subtitle, bars.collect(), yardstick)
}

/// Draws bars, cut where they are far longer than the yardstick's.
pub(super) fn drawn(title: &str, subtitle: &str, bars: Vec<Bar>, yardstick: &str) -> String {
    let values = bars.iter().map(|bar| format!("{}: {}", bar.label, number(bar.value)));
    let description = values.collect::<Vec<String>>().join("; ");
    let yardstick = bars.iter().find(|bar| bar.label == yardstick).map_or(f64::MAX, |bar| bar.value);
    Bars { title, subtitle, description: &description, bars: &bars, cut_at: OFF_SCALE * yardstick }.svg()
}
