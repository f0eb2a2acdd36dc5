//! The picture of the sliding log: every entry counts for exactly one window.

use crate::generate::pictures::chart::{Axis, Bar, Chart, Layer, Note, Plot, Row};
use crate::generate::pictures::script::{Gauge, Step, run};
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::{Limit, LimitError, Operation, Span};
use tollgate_server::drawing::Look;

pub(in crate::generate::pictures) fn chart() -> Result<Chart, LimitError> {
    const WINDOW_S: f64 = 10.0;
    let limit = Limit::SlidingLog(SlidingLog::new(6, Span::from_secs(10))?);
    let charges: [(u64, u64); 9] = [
        (1_000, 1),
        (2_500, 2),
        (4_500, 1),
        (6_500, 2),
        (8_000, 2),
        (12_500, 2),
        (13_500, 1),
        (14_500, 1),
        (17_500, 2),
    ];
    let script: Vec<Step> = charges.iter().map(|&(at_ms, cost)| (at_ms, Operation::charge(cost))).collect();
    let trace = run(limit, &script, Gauge::Used.until(30_000));
    let admitted = trace.marks.iter().filter(|mark| mark.look == Look::Admitted);
    let bars = admitted
        .enumerate()
        .map(|(track, mark)| Bar {
            from: mark.at,
            to: mark.at + WINDOW_S,
            look: Look::Bar,
            track,
            label: if mark.cost == 1 { "1 unit".to_owned() } else { format!("{} units", mark.cost) },
            dots: Vec::new(),
        })
        .collect();
    Ok(Chart {
        title: "Sliding log",
        subtitle: "sliding-log: 6/10s. Numbers in marks are costs above one.",
        description: "Requests of cost one and two with a limit of six in any ten seconds. Each admitted request is \
                      a bar of ten seconds, the time for which it counts. A request of two units at eight seconds \
                      is refused with a retry at twelve and a half seconds, when three units will have left. It \
                      returns then and is admitted.",
        legend: vec![
            (Look::Admitted, "admitted"),
            (Look::Refused, "refused"),
            (Look::Level, "used in the last 10 s"),
            (Look::Limit, "limit"),
            (Look::Bar, "an entry, while it counts"),
        ],
        axis: Axis::seconds(30, 5),
        edges: vec![],
        rows: vec![
            Row::Plot(Plot {
                caption: "units used",
                height_px: 115.0,
                max: 8.0,
                step: 1.0,
                layers: vec![
                    Layer::Area(Look::LevelArea, trace.level.clone()),
                    Layer::Line(Look::Level, trace.level),
                    Layer::Limit(6.0, "limit 6".to_owned()),
                    Note::right(12.5, 5.0, 26.0, -28.0, "refused at 8 s with retry at 12.5 s"),
                ],
            }),
            Row::Marks { caption: "requests", marks: trace.marks },
            Row::Bars { caption: "entries", bars },
        ],
    })
}
