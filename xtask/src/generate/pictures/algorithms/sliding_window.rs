//! The picture of the sliding window: the same requests under strict and interpolated counting.

use crate::generate::pictures::chart::{Axis, Chart, Interval, Layer, Note, Plot, Row};
use crate::generate::pictures::script::{Gauge, Trace, charges, run};
use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate_core::{Limit, LimitError, Span};
use tollgate_server::drawing::Look;

pub(in crate::generate::pictures) fn chart() -> Result<Chart, LimitError> {
    let strict = trace(Counting::Strict)?;
    let interpolated = trace(Counting::Interpolated)?;
    Ok(Chart {
        title: "Sliding window, counted in buckets",
        subtitle: "sliding-window: 6/12s, buckets: 3. The same requests, counted in both ways.",
        description: "Requests over nine buckets of four seconds with a limit of six per twelve seconds, twice. \
                      With strict counting, the five requests of the first bucket count until the whole bucket is outside \
                      the window, and requests are refused until then. With interpolated counting, they fade out \
                      while their bucket leaves the window, and requests are admitted earlier.",
        legend: vec![
            (Look::Admitted, "admitted"),
            (Look::Refused, "refused"),
            (Look::Level, "counted by the limiter"),
            (Look::Limit, "limit"),
            (Look::Edge, "bucket edge"),
        ],
        axis: Axis::seconds(36, 4),
        edges: (1..9_u32).map(|n| f64::from(n * 4)).collect(),
        rows: vec![
            Row::Ruler(
                (0..9_u32)
                    .map(|n| Interval {
                        from: f64::from(n * 4),
                        to: f64::from(n * 4 + 4),
                        label: format!("bucket {}", n + 1),
                    })
                    .collect(),
            ),
            plot(
                "counting: strict (the oldest bucket counts in full)",
                &strict,
                vec![Note::right(16.0, 1.0, 30.0, 7.0, "bucket 1 leaves all at once")],
            ),
            Row::Marks { caption: "requests", marks: strict.marks },
            plot(
                "counting: interpolated (the oldest bucket counts by its overlap, rounded up)",
                &interpolated,
                vec![Note::right(14.4, 4.0, 30.0, 34.0, "bucket 1 leaves unit by unit")],
            ),
            Row::Marks { caption: "requests", marks: interpolated.marks },
        ],
    })
}

fn trace(counting: Counting) -> Result<Trace, LimitError> {
    let limit = Limit::SlidingWindow(SlidingWindow::new(6, Span::from_secs(12), 3, counting)?);
    let script = charges(&[
        1_000, 1_500, 2_000, 2_500, 3_000, 6_000, 9_000, 12_500, 13_500, 14_500, 15_500, 16_500, 18_000,
        19_000, 20_500, 24_500, 25_500, 26_500, 29_000, 31_000, 33_000,
    ]);
    Ok(run(limit, &script, Gauge::Used.until(36_000)))
}

fn plot(caption: &'static str, trace: &Trace, notes: Vec<Layer>) -> Row {
    let mut layers = vec![
        Layer::Area(Look::LevelArea, trace.level.clone()),
        Layer::Line(Look::Level, trace.level.clone()),
        Layer::Limit(6.0, "limit 6".to_owned()),
    ];
    layers.extend(notes);
    Row::Plot(Plot { caption, height_px: 110.0, max: 7.5, step: 1.0, layers })
}
