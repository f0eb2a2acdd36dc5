//! The pictures of the library suite.

use super::YARDSTICK;
use crate::bench::pictures::bars::Bar;
use crate::bench::pictures::lines::{Line, Lines};
use crate::bench::pictures::{Picture, bar_look, cpu_bars, drawn, is_ours};
use crate::bench::table::number;
use tollgate_bench_report::Figure;
use tollgate_bench_report::Report;
use tollgate_server::drawing::Look;

/// Number of keys for which bytes per key are drawn.
const WEIGHED_KEYS: u64 = 1_000_000;

/// Every picture whose rows were run.
pub(super) fn all(report: &Report) -> Vec<Picture> {
    let picture = |name, title, svg| Picture::new(report, name, title, svg);
    let row = |id: &str, title: &str| report.row(id).map(|row| cpu_bars(row, title, YARDSTICK));
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

fn line_look(contender: &str) -> Look {
    match contender {
        _ if is_ours(contender) => Look::Level,
        YARDSTICK => Look::Limit,
        "bare map" => Look::Edge,
        _ => Look::Pointer,
    }
}

fn memory_bars(report: &Report, title: &str) -> Option<String> {
    let memory = report.memory.iter().find(|memory| memory.keys == WEIGHED_KEYS)?;
    let bars = memory.results.iter().map(|held| {
        let label = held.contender.clone();
        Bar { look: bar_look(&label, YARDSTICK), label, value: held.bytes_per_key, whisker: None }
    });
    Some(drawn(title, "bytes of the heap that are in use, shorter is better", bars.collect(), YARDSTICK))
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
