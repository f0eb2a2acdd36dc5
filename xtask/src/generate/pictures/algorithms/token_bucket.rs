//! The picture of the token bucket: a burst, then requests at the rate, then a pause that refills it.

use crate::generate::pictures::chart::{Axis, Chart, Layer, Note, Plot, Row};
use crate::generate::pictures::script::{Gauge, charges, run};
use tollgate_core::algorithm::bucket::Bucket;
use tollgate_core::{Limit, LimitError, Span};
use tollgate_server::drawing::Look;

pub(in crate::generate::pictures) fn chart() -> Result<Chart, LimitError> {
    let bucket = Bucket::tokens(1, Span::from_secs(2), 5)?;
    let script = charges(&[
        2_000, 2_300, 2_600, 2_900, 3_200, 3_500, 3_800, 4_400, 6_000, 7_000, 8_000, 9_000, 10_000, 12_000,
        22_500, 22_800, 23_100, 23_400, 25_000,
    ]);
    let trace = run(Limit::Bucket(bucket), &script, Gauge::Tokens(bucket).until(30_000));
    Ok(Chart {
        title: "Token bucket",
        subtitle: "token-bucket: 1/2s, burst: 5. One token arrives every two seconds, five can be saved.",
        description: "The tokens in a bucket over thirty seconds. Five requests in a row empty the full bucket, and \
                      the next ones are refused. Then one request every two seconds is admitted, as fast as tokens \
                      arrive. In a pause the level rises in a straight line and stops at the capacity of five.",
        legend: vec![
            (Look::Admitted, "admitted"),
            (Look::Refused, "refused"),
            (Look::Level, "tokens left"),
            (Look::Limit, "capacity"),
        ],
        axis: Axis::seconds(30, 5),
        edges: vec![],
        rows: vec![
            Row::Plot(Plot {
                caption: "tokens",
                height_px: 130.0,
                max: 6.5,
                step: 1.0,
                layers: vec![
                    Layer::Area(Look::LevelArea, trace.level.clone()),
                    Layer::Line(Look::Level, trace.level),
                    Layer::Limit(5.0, "capacity 5".to_owned()),
                    Note::right(2.75, 2.4, 36.0, -36.0, "a burst spends the saved tokens"),
                    Note::left(17.0, 2.5, 16.0, -14.0, "one token every 2 s"),
                ],
            }),
            Row::Marks { caption: "requests", marks: trace.marks },
        ],
    })
}
