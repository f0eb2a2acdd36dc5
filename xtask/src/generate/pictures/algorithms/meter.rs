//! The picture of the meter: it is added to, reaches its limit, is subtracted from, and expires.

use crate::generate::pictures::chart::{Axis, Chart, Layer, Mark, Note, Plot, Row};
use crate::generate::pictures::script::{Gauge, Step, run, seconds};
use tollgate_core::algorithm::meter::Meter;
use tollgate_core::{Limit, LimitError, Mark as Booking, Operation, Span};
use tollgate_server::drawing::Look;

pub(in crate::generate::pictures) fn chart() -> Result<Chart, LimitError> {
    let limit = Limit::Meter(Meter::new(Some(8), Some(Span::from_secs(12)))?);
    let add = |at_ms, cost| (at_ms, Operation::charge(cost));
    let subtract = |at_ms, cost| (at_ms, Operation::refund(Booking::Counter, cost));
    let script = [
        add(1_000, 2),
        add(3_000, 3),
        add(5_000, 2),
        add(6_500, 2),
        subtract(8_000, 3),
        add(9_500, 2),
        add(11_000, 1),
        add(26_000, 1),
        add(28_000, 2),
    ];
    let trace = run(limit, &script, Gauge::Used.until(32_000));
    let subtracted = subtractions(&script);
    Ok(Chart {
        title: "Meter",
        subtitle: "meter: 8, expiry: 12s. Numbers in marks are amounts.",
        description: "A counter with a limit of eight that expires after twelve seconds without a change. Additions \
                      raise it to seven, an addition of two is refused, a subtraction of three makes room, and it \
                      reaches seven again. After twelve seconds without a change it starts again at zero.",
        legend: vec![
            (Look::Admitted, "added"),
            (Look::Refused, "refused"),
            (Look::Event, "subtracted"),
            (Look::Level, "value"),
            (Look::Limit, "limit"),
        ],
        axis: Axis::seconds(32, 4),
        edges: vec![],
        rows: vec![
            Row::Plot(Plot {
                caption: "value",
                height_px: 120.0,
                max: 10.0,
                step: 2.0,
                layers: vec![
                    Layer::Area(Look::LevelArea, trace.level.clone()),
                    Layer::Line(Look::Level, trace.level),
                    Layer::Limit(8.0, "limit 8".to_owned()),
                    Note::right(23.0, 4.0, 14.0, -12.0, "expired after 12 s"),
                ],
            }),
            Row::Marks { caption: "add", marks: trace.marks },
            Row::Marks { caption: "subtract", marks: subtracted },
        ],
    })
}

fn subtractions(script: &[Step]) -> Vec<Mark> {
    let mark = |&(at_ms, operation): &Step| match operation {
        Operation::Refund { cost, .. } => Some(Mark { at: seconds(at_ms), look: Look::Event, cost }),
        _ => None,
    };
    script.iter().filter_map(mark).collect()
}
