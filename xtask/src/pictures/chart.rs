//! A chart over time: rows one below the other that share one time axis.
//!
//! Says what is shown. How it is laid out and drawn is in `draw.rs`.

use super::svg::{Anchor, Look};

/// One picture.
pub(super) struct Chart {
    pub(super) title: &'static str,
    /// The limit as a rules file writes it, and what else the reader must know.
    pub(super) subtitle: &'static str,
    /// The picture in words, for those who cannot see it.
    pub(super) description: &'static str,
    pub(super) legend: Vec<(Look, &'static str)>,
    pub(super) axis: Axis,
    /// Instants at which a dotted line crosses all rows.
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
    /// Names for stretches of time.
    Ruler(Vec<Stretch>),
    Plot(Plot),
    /// Who asked when, and what became of it.
    Lane {
        caption: &'static str,
        marks: Vec<Mark>,
    },
    /// What lasts from one instant to another, each on a track of its own.
    Bars {
        caption: &'static str,
        bars: Vec<Bar>,
    },
    /// Arrivals above, departures below, an arrow from each to each.
    Flow {
        arrivals: &'static str,
        departures: &'static str,
        passages: Vec<Passage>,
    },
}

pub(super) struct Stretch {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) label: String,
}

/// A quantity over time.
pub(super) struct Plot {
    pub(super) caption: &'static str,
    pub(super) height_px: f64,
    /// The largest value shown.
    pub(super) max: f64,
    /// The distance of the lines of the grid.
    pub(super) step: f64,
    /// In the order in which they are drawn.
    pub(super) layers: Vec<Layer>,
}

pub(super) enum Layer {
    /// Everything from zero up to the points.
    Area(Look, Vec<Point>),
    /// Everything between the value and the points that lie above it.
    Above(Look, f64, Vec<Point>),
    Line(Look, Vec<Point>),
    /// A dashed line across the plot, named at its right end.
    Limit(f64, String),
    /// A text that points at a place.
    Note(Note),
    /// A text over a stretch of time, at a height.
    Span {
        from: f64,
        to: f64,
        value: f64,
        text: String,
    },
}

/// A value at an instant. Two points of one instant make a step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Point {
    pub(super) at: f64,
    pub(super) value: f64,
}

pub(super) struct Note {
    pub(super) at: f64,
    pub(super) value: f64,
    /// How far the text lies from the place, in pixels; no pointer is drawn if it lies right there.
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
    /// Written into the mark if it is not one.
    pub(super) cost: u64,
}

pub(super) struct Bar {
    pub(super) from: f64,
    pub(super) to: f64,
    /// [`Look::Bar`], [`Look::Lapsed`] or [`Look::Wait`].
    pub(super) look: Look,
    /// From the top; several bars may share a track.
    pub(super) track: usize,
    pub(super) label: String,
    /// Small marks on the bar.
    pub(super) beats: Vec<f64>,
}

pub(super) struct Passage {
    pub(super) arrives: f64,
    /// Refused if it never does.
    pub(super) departs: Option<f64>,
}

impl Axis {
    /// From 0 to `to` seconds.
    pub(super) fn seconds(to: u32, step: u32) -> Axis {
        let ticks = (0..=to).step_by(step as usize).map(|s| (f64::from(s), format!("{s} s"))).collect();
        Axis { from: 0.0, to: f64::from(to), ticks }
    }
}

impl Note {
    /// A text to the right of a place, with a pointer to it.
    pub(super) fn right(at: f64, value: f64, dx_px: f64, dy_px: f64, text: &str) -> Layer {
        Layer::Note(Note { at, value, dx_px, dy_px, anchor: Anchor::Start, text: text.to_owned() })
    }

    /// A text to the left of a place, with a pointer to it.
    pub(super) fn left(at: f64, value: f64, dx_px: f64, dy_px: f64, text: &str) -> Layer {
        Layer::Note(Note { at, value, dx_px: -dx_px, dy_px, anchor: Anchor::End, text: text.to_owned() })
    }
}

/// The same line without the points that lie straight between their neighbours, and without what is over in the
/// same instant.
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
    fn only_corners_are_kept() {
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
