//! The pictures of the measurements: how many units each window of the trace held.

use super::chart::{Axis, Chart, Layer, Plot, Point, Row, simplify};
use crate::generate::measure::{LIMIT, Measured, Measurements, ORIGIN, WINDOW};
use tollgate_core::algorithm::sliding_window::Counting;
use tollgate_core::{Span, Time};
use tollgate_server::drawing::Look;

const SHOWN_MIN: u64 = 10;

pub(super) fn fixed_window_burst(measurements: &Measurements) -> Chart {
    let measured = &measurements.fixed.trace;
    let from = shown_from(measured);
    Chart {
        title: "Fixed window: units admitted in any minute",
        subtitle: "fixed-window: 100/min. Ten minutes of the trace around the worst minute.",
        description: "The units admitted in the minute before each instant, over ten minutes of the measured trace. \
                      The count exceeds the limit of one hundred wherever a busy time crosses a window edge, and \
                      never reaches two hundred.",
        legend: vec![
            (Look::Level, "admitted in the last minute"),
            (Look::Excess, "above the limit"),
            (Look::Limit, "limit, and twice the limit"),
            (Look::Edge, "window edge"),
        ],
        axis: minutes(),
        edges: (1..SHOWN_MIN).map(|minute| minute as f64 * 60.0).collect(),
        rows: vec![plot(
            "units",
            150.0,
            230.0,
            measured,
            from,
            vec![
                Layer::Limit(LIMIT as f64, "limit 100".to_owned()),
                Layer::Limit(2.0 * LIMIT as f64, "2 × limit".to_owned()),
            ],
        )],
    }
}

pub(super) fn sliding_window_error(measurements: &Measurements) -> Chart {
    let shown = [(1, "buckets: 1"), (6, "buckets: 6"), (60, "buckets: 60")];
    let window = |buckets| measurements.window(buckets, Counting::Interpolated).map(|window| &window.trace);
    let from = window(1).map_or(Time::ZERO, shown_from);
    let rows = shown
        .into_iter()
        .filter_map(|(buckets, caption)| {
            let layers = vec![Layer::Limit(LIMIT as f64, "limit 100".to_owned())];
            Some(plot(caption, 84.0, 150.0, window(buckets)?, from, layers))
        })
        .collect();
    Chart {
        title: "Interpolated sliding window: units admitted in any minute",
        subtitle: "sliding-window: 100/min, counting: interpolated. Ten minutes of the trace around the worst minute.",
        description: "The units admitted in the minute before each instant, over ten minutes of the measured trace, \
                      for one, six and sixty buckets. With one bucket the count exceeds the limit of one hundred in \
                      several places; with six buckets rarely and by little; with sixty hardly ever.",
        legend: vec![
            (Look::Level, "admitted in the last minute"),
            (Look::Excess, "above the limit"),
            (Look::Limit, "limit"),
        ],
        axis: minutes(),
        edges: vec![],
        rows,
    }
}

/// Returns a full minute, chosen so that the worst minute is in the middle if the trace allows it.
fn shown_from(measured: &Measured) -> Time {
    measured.most_at.minus(Span::from_secs(SHOWN_MIN / 2 * 60)).floor(WINDOW).max(ORIGIN)
}

fn minutes() -> Axis {
    let ticks = (0..=SHOWN_MIN).map(|minute| (minute as f64 * 60.0, format!("{minute} min"))).collect();
    Axis { from: 0.0, to: SHOWN_MIN as f64 * 60.0, ticks }
}

fn plot(
    caption: &'static str,
    height_px: f64,
    max: f64,
    measured: &Measured,
    from: Time,
    limits: Vec<Layer>,
) -> Row {
    let to = from.plus(Span::from_secs(SHOWN_MIN * 60));
    let points: Vec<Point> = measured
        .trailing(from, to, Span::from_secs(1))
        .into_iter()
        .map(|(time, count)| Point { at: (time - from).us() as f64 / 1e6, value: count as f64 })
        .collect();
    let points = simplify(points);
    let mut layers = vec![
        Layer::Area(Look::LevelArea, points.clone()),
        Layer::Above(Look::Excess, LIMIT as f64, points.clone()),
        Layer::Line(Look::Level, points),
    ];
    layers.extend(limits);
    Row::Plot(Plot { caption, height_px, max, step: 50.0, layers })
}
