//! Describes a chart over time: rows that share one time axis.
//!
//! Layout and drawing are in `draw.rs`.

mod draw;

use tollgate_server::drawing::{Anchor, Look};

/// One picture.
pub(super) struct Chart {
    pub(super) title: &'static str,
    /// The limit in rules-file syntax, and how to read the marks.
    pub(super) subtitle: &'static str,
    /// Text alternative for readers who cannot see the picture.
    pub(super) description: &'static str,
    pub(super) legend: Vec<(Look, &'static str)>,
    pub(super) axis: Axis,
    /// Instants of dotted vertical lines across all rows.
    pub(super) edges: Vec<f64>,
    pub(super) rows: Vec<Row>,
}

/// The time axis below the last row.
pub(super) struct Axis {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) ticks: Vec<(f64, String)>,
}

pub(super) enum Row {
    /// Labels of intervals.
    Ruler(Vec<Interval>),
    Plot(Plot),
    /// Requests and whether they were admitted.
    Marks {
        caption: &'static str,
        marks: Vec<Mark>,
    },
    /// Bars from one instant to another, each on a track.
    Bars {
        caption: &'static str,
        bars: Vec<Bar>,
    },
    /// Arrivals above, departures below, an arrow from each arrival to its departure.
    Flow {
        arrivals: &'static str,
        departures: &'static str,
        passages: Vec<Passage>,
    },
}

pub(super) struct Interval {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) label: String,
}

/// A quantity over time.
pub(super) struct Plot {
    pub(super) caption: &'static str,
    pub(super) height_px: f64,
    /// Upper end of the value axis.
    pub(super) max: f64,
    /// Distance between grid lines.
    pub(super) step: f64,
    /// In drawing order.
    pub(super) layers: Vec<Layer>,
}

pub(super) enum Layer {
    /// Fills from zero up to the points.
    Area(Look, Vec<Point>),
    /// Fills between the value and the points above it.
    Above(Look, f64, Vec<Point>),
    Line(Look, Vec<Point>),
    /// A dashed line across the plot, labelled at its right end.
    Limit(f64, String),
    /// A text with a pointer to a point of the plot.
    Note(Note),
    /// A text with a bracket over an interval, at a value.
    Span {
        from: f64,
        to: f64,
        value: f64,
        text: String,
    },
}

/// A value at an instant. Two points at the same instant draw a step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Point {
    pub(super) at: f64,
    pub(super) value: f64,
}

pub(super) struct Note {
    pub(super) at: f64,
    pub(super) value: f64,
    /// Offset of the text from the point, in pixels. No pointer is drawn if both offsets are zero.
    pub(super) dx_px: f64,
    pub(super) dy_px: f64,
    pub(super) anchor: Anchor,
    pub(super) text: String,
}

/// One request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Mark {
    pub(super) at: f64,
    /// [`Look::Admitted`], [`Look::Refused`] or [`Look::Event`].
    pub(super) look: Look,
    /// Written into the mark unless it is 1.
    pub(super) cost: u64,
}

pub(super) struct Bar {
    pub(super) from: f64,
    pub(super) to: f64,
    /// [`Look::Bar`], [`Look::Lapsed`] or [`Look::Wait`].
    pub(super) look: Look,
    /// Counted from the top. Bars may share a track.
    pub(super) track: usize,
    pub(super) label: String,
    /// Instants of dots on the bar.
    pub(super) dots: Vec<f64>,
}

pub(super) struct Passage {
    pub(super) arrives: f64,
    /// `None` if the request was refused.
    pub(super) departs: Option<f64>,
}

impl Axis {
    /// An axis from 0 to `to` seconds, with a tick every `step` seconds.
    pub(super) fn seconds(to: u32, step: u32) -> Axis {
        let ticks = (0..=to).step_by(step as usize).map(|s| (f64::from(s), format!("{s} s"))).collect();
        Axis { from: 0.0, to: f64::from(to), ticks }
    }
}

impl Note {
    /// A text to the right of a point, with a pointer to it.
    pub(super) fn right(at: f64, value: f64, dx_px: f64, dy_px: f64, text: &str) -> Layer {
        Layer::Note(Note { at, value, dx_px, dy_px, anchor: Anchor::Start, text: text.to_owned() })
    }

    /// A text to the left of a point, with a pointer to it.
    pub(super) fn left(at: f64, value: f64, dx_px: f64, dy_px: f64, text: &str) -> Layer {
        Layer::Note(Note { at, value, dx_px: -dx_px, dy_px, anchor: Anchor::End, text: text.to_owned() })
    }
}

/// Removes points that are on the straight line between their neighbours, and spikes that start and end at the same
/// instant.
pub(super) fn simplify(points: Vec<Point>) -> Vec<Point> {
    let mut kept: Vec<Point> = Vec::with_capacity(points.len());
    for next in points {
        while let [.., a, b] = kept[..] {
            let instant = a.at == next.at;
            let turn = (b.at - a.at) * (next.value - a.value) - (next.at - a.at) * (b.value - a.value);
            let between =
                (a.at..=next.at).contains(&b.at) && (b.value - a.value) * (next.value - b.value) >= 0.0;
            if !instant && (turn.abs() > 1e-9 || !between) {
                break;
            }
            kept.pop();
        }
        if kept.last() != Some(&next) {
            kept.push(next);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simplify_keeps_only_corners() {
        let points = |pairs: &[(f64, f64)]| {
            pairs.iter().map(|&(at, value)| Point { at, value }).collect::<Vec<Point>>()
        };
        let line =
            points(&[(0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (2.0, 5.0), (3.0, 5.0), (4.0, 5.0), (4.0, 0.0)]);
        let corners = points(&[(0.0, 0.0), (2.0, 2.0), (2.0, 5.0), (4.0, 5.0), (4.0, 0.0)]);
        assert_eq!(simplify(line), corners);
        let spike = points(&[(0.0, 0.0), (1.0, 0.0), (1.0, 2.0), (1.0, 0.0), (2.0, 0.0)]);
        assert_eq!(simplify(spike), points(&[(0.0, 0.0), (2.0, 0.0)]));
    }
}
