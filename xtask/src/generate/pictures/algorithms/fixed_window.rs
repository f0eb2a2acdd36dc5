//! The picture of the fixed window: the full limit is used on both sides of an edge.

use crate::generate::pictures::chart::{Axis, Chart, Interval, Layer, Plot, Row};
use crate::generate::pictures::script::{Gauge, charges, run};
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::{Limit, LimitError, Span};
use tollgate_server::drawing::Look;

pub(in crate::generate::pictures) fn chart() -> Result<Chart, LimitError> {
    let limit = Limit::FixedWindow(FixedWindow::new(5, Span::from_secs(10))?);
    let script = charges(&[
        8_200, 8_600, 9_000, 9_400, 9_800, 10_200, 10_600, 11_000, 11_400, 11_800, 12_400, 14_000, 17_000,
        22_000, 25_000, 28_000,
    ]);
    let trace = run(limit, &script, Gauge::Used.until(30_000));
    Ok(Chart {
        title: "Fixed window",
        subtitle: "fixed-window: 5/10s. The count starts at zero in every window.",
        description: "Requests over three windows of ten seconds with a limit of five. Five requests at the end \
                      of the first window and five at the start of the second are all admitted, ten within \
                      four seconds; three more in the second window are refused. The count falls to zero at \
                      every window edge.",
        legend: vec![
            (Look::Admitted, "admitted"),
            (Look::Refused, "refused"),
            (Look::Level, "used in this window"),
            (Look::Limit, "limit"),
            (Look::Edge, "window edge"),
        ],
        axis: Axis::seconds(30, 5),
        edges: vec![10.0, 20.0],
        rows: vec![
            Row::Ruler(
                (0..3_u32)
                    .map(|n| Interval {
                        from: f64::from(n * 10),
                        to: f64::from(n * 10 + 10),
                        label: format!("window {}", n + 1),
                    })
                    .collect(),
            ),
            Row::Plot(Plot {
                caption: "units used",
                height_px: 130.0,
                max: 7.5,
                step: 1.0,
                layers: vec![
                    Layer::Area(Look::LevelArea, trace.level.clone()),
                    Layer::Line(Look::Level, trace.level),
                    Layer::Limit(5.0, "limit 5".to_owned()),
                    Layer::Span { from: 8.2, to: 11.8, value: 6.0, text: "10 admitted in 3.6 s".to_owned() },
                ],
            }),
            Row::Marks { caption: "requests", marks: trace.marks },
        ],
    })
}
