//! The pictures of the leaky bucket: the meter refuses overflow, the shaper books departure slots.

use crate::generate::pictures::chart::{Axis, Chart, Layer, Note, Passage, Plot, Row};
use crate::generate::pictures::script::{Gauge, charges, run};
use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::{Limit, LimitError, Span, Verdict};
use tollgate_server::drawing::Look;

pub(in crate::generate::pictures) fn meter() -> Result<Chart, LimitError> {
    let bucket = Bucket::meter(1, Span::from_secs(1), 4)?;
    let script = charges(&[
        1_000, 1_400, 1_800, 2_200, 2_600, 3_000, 3_400, 4_000, 4_500, 5_500, 6_500, 12_500, 13_500, 14_500,
        15_500, 16_500, 17_500,
    ]);
    let trace = run(Limit::Bucket(bucket), &script, Gauge::Debt(bucket).until(24_000));
    Ok(Chart {
        title: "Leaky bucket as a meter",
        subtitle: "leaky-bucket: 1/s, capacity: 4. Requests that do not fit are refused.",
        description: "The level of a bucket that leaks one unit per second and holds four. A dense series of requests \
                      fills it; requests that would raise it above four are refused. Later, one request a second \
                      drains as fast as it arrives, and the level stays low.",
        legend: vec![
            (Look::Admitted, "admitted"),
            (Look::Refused, "refused"),
            (Look::Level, "level"),
            (Look::Limit, "capacity"),
        ],
        axis: Axis::seconds(24, 4),
        edges: vec![],
        rows: vec![
            Row::Plot(Plot {
                caption: "units in the bucket",
                height_px: 120.0,
                max: 5.5,
                step: 1.0,
                layers: vec![
                    Layer::Area(Look::LevelArea, trace.level.clone()),
                    Layer::Line(Look::Level, trace.level),
                    Layer::Limit(4.0, "capacity 4".to_owned()),
                    Note::right(8.5, 2.0, 18.0, -8.0, "leaks 1 per second"),
                    Note::right(15.0, 1.0, 18.0, -34.0, "at this rate the level stays low"),
                ],
            }),
            Row::Marks { caption: "requests", marks: trace.marks },
        ],
    })
}

pub(in crate::generate::pictures) fn shaper() -> Result<Chart, LimitError> {
    let bucket = Bucket::queue(1, Span::from_secs(2), 4)?;
    let script = charges(&[1_000, 1_600, 2_200, 2_800, 3_400, 4_000, 4_600, 9_500, 17_000, 17_600, 22_500]);
    let trace = run(Limit::Bucket(bucket), &script, Gauge::Debt(bucket).until(26_000));
    let passages = trace
        .marks
        .iter()
        .zip(&trace.answers)
        .map(|(mark, answer)| {
            let departs = match answer.verdict {
                Verdict::Admitted { delay } => Some(mark.at + delay.us() as f64 / 1e6),
                _ => None,
            };
            Passage { arrives: mark.at, departs }
        })
        .collect();
    Ok(Chart {
        title: "Leaky bucket as a shaper",
        subtitle: "leaky-bucket: 1/2s, queue: 4. Each admission states the delay before its departure.",
        description: "Requests arrive in a bunch and depart one every two seconds. Each arrow leads from an arrival \
                      to the departure that was booked for it. The first request departs at once, four wait behind \
                      it, and requests that find the queue full are refused.",
        legend: vec![
            (Look::Admitted, "admitted"),
            (Look::Refused, "refused"),
            (Look::Arrow, "delay"),
            (Look::Level, "booked, not yet drained"),
            (Look::Limit, "queue plus one departing"),
        ],
        axis: Axis::seconds(26, 2),
        edges: vec![],
        rows: vec![
            Row::Flow { arrivals: "arrivals", departures: "departures", passages },
            Row::Plot(Plot {
                caption: "units booked",
                height_px: 110.0,
                max: 6.5,
                step: 1.0,
                layers: vec![
                    Layer::Area(Look::LevelArea, trace.level.clone()),
                    Layer::Line(Look::Level, trace.level),
                    Layer::Limit(5.0, "4 + 1".to_owned()),
                    Note::right(15.0, 0.0, 12.0, -40.0, "empty: the next departs at once"),
                ],
            }),
        ],
    })
}
