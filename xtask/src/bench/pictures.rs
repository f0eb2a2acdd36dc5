//! The pictures of `docs/performance.md`: what was measured, beside each other.

mod bars;
mod lines;

use super::figures::{Figure, YARDSTICK};
use super::report::{Report, Row};
use super::table::number;
use crate::pictures::svg::Look;
use bars::{Bar, Bars};
use lines::{Line, Lines};

/// One file.
pub(super) struct Picture {
    pub(super) file: String,
    pub(super) title: String,
    pub(super) svg: String,
}

/// Bytes per key are shown for so many.
const WEIGHED_KEYS: u64 = 1_000_000;
/// What is so many times dearer than the yardstick would press everything else into a corner.
const OFF_SCALE: f64 = 3.0;

/// Every picture whose rows were run.
pub(super) fn all(report: &Report) -> Vec<Picture> {
    let suite = &report.suite;
    let picture = |name: &str, title: &str, svg: Option<String>| {
        Some(Picture { file: format!("{suite}-{name}.svg"), title: title.to_owned(), svg: svg? })
    };
    let row = |id: &str, title: &str| report.row(id).map(|row| cpu_bars(row, title));
    let many = "CPU time per decision, from one key to ten million";
    let hot = "CPU time per decision, one key, one thread";
    let two = "CPU time per decision, one key, two threads";
    let rules = "CPU time per decision from attributes, 20 rules loaded, a million keys";
    let memory = "Bytes per key, a million keys";
    let pictures = [
        picture("keys", many, by_keys(report, many)),
        picture("hot", hot, row("hot", hot)),
        picture("two-threads", two, row("hot-2-threads", two)),
        picture("rules", rules, row("rules-many", rules)),
        picture("memory", memory, memory_bars(report, memory)),
    ];
    pictures.into_iter().flatten().collect()
}

/// Ours is filled, the yardstick is dashed, all others are pale.
fn bar_look(contender: &str) -> Look {
    match contender {
        _ if is_ours(contender) => Look::Admitted,
        YARDSTICK => Look::Lapsed,
        _ => Look::Bar,
    }
}

fn line_look(contender: &str) -> Look {
    match contender {
        _ if is_ours(contender) => Look::Level,
        YARDSTICK => Look::Limit,
        "bare map" => Look::Edge,
        _ => Look::Pointer,
    }
}

fn is_ours(contender: &str) -> bool {
    contender.starts_with("tollgate")
}

fn cpu_bars(row: &Row, title: &str) -> String {
    let bars = row.results.iter().filter_map(|measured| {
        let Figure { low, median, high } = Figure::of(&measured.cpu_ns)?;
        let label = measured.contender.clone();
        Some(Bar { look: bar_look(&label), label, value: median, whisker: Some((low, high)) })
    });
    let subtitle = "ns; median and middle half of the rounds, shorter is better";
    drawn(title, subtitle, bars.collect())
}

fn memory_bars(report: &Report, title: &str) -> Option<String> {
    let memory = report.memory.iter().find(|memory| memory.keys == WEIGHED_KEYS)?;
    let bars = memory.results.iter().map(|held| {
        let label = held.contender.clone();
        Bar { look: bar_look(&label), label, value: held.bytes_per_key, whisker: None }
    });
    Some(drawn(title, "bytes of the heap that are in use, shorter is better", bars.collect()))
}

fn drawn(title: &str, subtitle: &str, bars: Vec<Bar>) -> String {
    let values = bars.iter().map(|bar| format!("{}: {}", bar.label, number(bar.value)));
    let description = values.collect::<Vec<String>>().join("; ");
    let yardstick = bars.iter().find(|bar| bar.label == YARDSTICK).map_or(f64::MAX, |bar| bar.value);
    Bars { title, subtitle, description: &description, bars: &bars, cut_at: OFF_SCALE * yardstick }.svg()
}

fn by_keys(report: &Report, title: &str) -> Option<String> {
    let mut rows = vec![report.row("hot")?];
    rows.extend(report.rows.iter().filter(|row| row.id.starts_with("uniform-")));
    let mut lines = Vec::new();
    for measured in &rows.last()?.results {
        let name = &measured.contender;
        let points = rows.iter().filter_map(|row| {
            let figure = Figure::of(&row.of(name)?.cpu_ns)?;
            Some(((row.keys as f64).log10(), figure.median))
        });
        lines.push(Line { look: line_look(name), label: name.clone(), points: points.collect() });
    }
    let ends =
        lines.iter().filter_map(|line| Some(format!("{}: {}", line.label, number(line.points.last()?.1))));
    let description = format!("At the right end: {}", ends.collect::<Vec<String>>().join("; "));
    let subtitle = "ns; median of the rounds, every key as often as any other, lower is better";
    Some(Lines { title, subtitle, description: &description, lines: &lines }.svg())
}
