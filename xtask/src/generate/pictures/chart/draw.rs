//! Lays out a chart from top to bottom and draws it as SVG.

use super::{Bar, Chart, Interval, Layer, Mark, Note, Passage, Plot, Point, Row};
use tollgate_server::drawing::{Anchor, Look, Spot, Svg, text_width};

const WIDTH: f64 = 720.0;
/// Left and right end of the time axis.
const LEFT: f64 = 92.0;
const RIGHT: f64 = WIDTH - 72.0;
const MARGIN: f64 = 18.0;
const TITLE_Y: f64 = 28.0;
const SUBTITLE_Y: f64 = 47.0;
const LEGEND_Y: f64 = 69.0;
const LEGEND_LINE: f64 = 18.0;
const ROW_GAP: f64 = 16.0;
/// Smaller than `ROW_GAP`, because a ruler labels the row below it.
const RULER_GAP: f64 = 4.0;
const AXIS_HEIGHT: f64 = 34.0;
const RULER_HEIGHT: f64 = 16.0;
const CAPTION_HEIGHT: f64 = 16.0;
const MARKS_PAD: f64 = 9.0;
const MARK_R: f64 = 4.5;
/// Radius of a mark that contains a number.
const WEIGHT_R: f64 = 7.0;
const MARK_STEP: f64 = 11.5;
const TRACK_HEIGHT: f64 = 20.0;
const FLOW_HEIGHT: f64 = 62.0;

impl Chart {
    /// Returns the picture as an SVG file.
    pub(crate) fn svg(&self) -> String {
        let mut renderer = Renderer { svg: Svg::default(), chart: self };
        let top = renderer.header();
        let bottom = self.rows.iter().fold(top, |y, row| y + renderer.height(row) + gap(row)) - ROW_GAP;
        renderer.edges(top, bottom);
        let mut y = top;
        for row in &self.rows {
            renderer.row(row, y);
            y += renderer.height(row) + gap(row);
        }
        renderer.axis(bottom + 6.0);
        renderer.svg.finish(WIDTH, bottom + 6.0 + AXIS_HEIGHT, self.title, self.description)
    }
}

struct Renderer<'c> {
    svg: Svg,
    chart: &'c Chart,
}

impl Renderer<'_> {
    fn x(&self, at: f64) -> f64 {
        let axis = &self.chart.axis;
        LEFT + (at - axis.from) / (axis.to - axis.from) * (RIGHT - LEFT)
    }

    /// Draws title and legend; returns the y position of the first row.
    fn header(&mut self) -> f64 {
        self.svg.text(Look::Title, spot(MARGIN, TITLE_Y), Anchor::Start, self.chart.title);
        self.svg.text(Look::Subtitle, spot(MARGIN, SUBTITLE_Y), Anchor::Start, self.chart.subtitle);
        let (mut x, mut y) = (MARGIN, LEGEND_Y);
        for &(look, text) in &self.chart.legend {
            let width = 24.0 + text_width(Look::Label, text) + 16.0;
            if x + width > WIDTH {
                (x, y) = (MARGIN, y + LEGEND_LINE);
            }
            self.swatch(look, spot(x, y - 4.0));
            self.svg.text(Look::Label, spot(x + 24.0, y), Anchor::Start, text);
            x += width;
        }
        y + 14.0
    }

    fn swatch(&mut self, look: Look, left: Spot) {
        match look {
            Look::Admitted | Look::Refused | Look::Event => {
                self.svg.circle(look, spot(left.x + 9.0, left.y), MARK_R);
            }
            Look::Arrow => self.svg.arrow(left, spot(left.x + 18.0, left.y)),
            Look::Level | Look::Limit | Look::Edge => {
                self.svg.line(look, left, spot(left.x + 18.0, left.y));
            }
            _ => self.svg.rect(look, spot(left.x + 1.0, left.y - 5.0), 16.0, 10.0, 2.0),
        }
    }

    fn edges(&mut self, top: f64, bottom: f64) {
        for &edge in &self.chart.edges {
            let x = self.x(edge);
            self.svg.line(Look::Edge, spot(x, top), spot(x, bottom + 6.0));
        }
    }

    fn axis(&mut self, y: f64) {
        self.svg.line(Look::Axis, spot(LEFT, y), spot(RIGHT, y));
        for (at, label) in &self.chart.axis.ticks {
            let x = self.x(*at);
            self.svg.line(Look::Axis, spot(x, y), spot(x, y + 4.0));
            self.svg.text(Look::Label, spot(x, y + 17.0), Anchor::Middle, label);
        }
    }

    fn height(&self, row: &Row) -> f64 {
        match row {
            Row::Ruler(_) => RULER_HEIGHT,
            Row::Plot(plot) => CAPTION_HEIGHT + plot.height_px,
            Row::Marks { marks, .. } => {
                let highest = self.stacked(marks).into_iter().map(|(_, level)| level).max().unwrap_or(0);
                2.0 * MARKS_PAD + highest as f64 * MARK_STEP
            }
            Row::Bars { bars, .. } => {
                let tracks = bars.iter().map(|bar| bar.track + 1).max().unwrap_or(1);
                tracks as f64 * TRACK_HEIGHT
            }
            Row::Flow { .. } => FLOW_HEIGHT,
        }
    }

    fn row(&mut self, row: &Row, top: f64) {
        match row {
            Row::Ruler(intervals) => self.ruler(intervals, top),
            Row::Plot(plot) => self.plot(plot, top),
            Row::Marks { caption, marks } => self.marks(caption, marks, top, self.height(row)),
            Row::Bars { caption, bars } => self.bars(caption, bars, top),
            Row::Flow { arrivals, departures, passages } => self.flow(arrivals, departures, passages, top),
        }
    }

    fn ruler(&mut self, intervals: &[Interval], top: f64) {
        for interval in intervals {
            let (from, to) = (self.x(interval.from), self.x(interval.to));
            let at = spot((from + to) / 2.0, top + 11.0);
            self.svg.text(Look::Label, at, Anchor::Middle, &interval.label);
        }
    }

    fn plot(&mut self, plot: &Plot, top: f64) {
        self.svg.text(Look::Label, spot(LEFT, top + 9.0), Anchor::Start, plot.caption);
        let top = top + CAPTION_HEIGHT;
        let bottom = top + plot.height_px;
        let scale = Scale { bottom, px_per_unit: plot.height_px / plot.max };
        let lines = (plot.max / plot.step).floor() as u32;
        for value in (0..=lines).map(|line| f64::from(line) * plot.step) {
            let y = scale.y(value);
            self.svg.line(Look::Grid, spot(LEFT, y), spot(RIGHT, y));
            self.svg.text(Look::Label, spot(LEFT - 8.0, y + 4.0), Anchor::End, &format!("{value}"));
        }
        for layer in &plot.layers {
            self.layer(layer, &scale);
        }
        self.limit_names(&plot.layers, &scale);
    }

    /// Labels the right ends of the limit lines without overlap, the lowest first.
    fn limit_names(&mut self, layers: &[Layer], scale: &Scale) {
        let mut limits: Vec<(f64, &str)> = layers
            .iter()
            .filter_map(|layer| match layer {
                Layer::Limit(value, name) => Some((*value, name.as_str())),
                _ => None,
            })
            .collect();
        limits.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let mut lowest = f64::INFINITY;
        for (value, name) in limits {
            let y = (scale.y(value) + 4.0).min(lowest);
            self.svg.text(Look::LimitText, spot(RIGHT + 6.0, y), Anchor::Start, name);
            lowest = y - 12.0;
        }
    }

    fn layer(&mut self, layer: &Layer, scale: &Scale) {
        match layer {
            Layer::Area(look, points) => self.area(*look, 0.0, points, scale),
            Layer::Above(look, floor, points) => {
                let raised: Vec<Point> =
                    points.iter().map(|point| Point { value: point.value.max(*floor), ..*point }).collect();
                self.area(*look, *floor, &raised, scale);
            }
            Layer::Line(look, points) => {
                let spots = self.spots(points, scale);
                self.svg.polyline(*look, &spots);
            }
            Layer::Limit(value, _) => {
                let y = scale.y(*value);
                self.svg.line(Look::Limit, spot(LEFT, y), spot(RIGHT, y));
            }
            Layer::Note(note) => self.note(note, scale),
            Layer::Span { from, to, value, text } => {
                let (from, to, y) = (self.x(*from), self.x(*to), scale.y(*value));
                let bracket = [spot(from, y + 5.0), spot(from, y), spot(to, y), spot(to, y + 5.0)];
                self.svg.polyline(Look::Span, &bracket);
                self.svg.text(Look::Note, spot((from + to) / 2.0, y - 5.0), Anchor::Middle, text);
            }
        }
    }

    fn area(&mut self, look: Look, floor: f64, points: &[Point], scale: &Scale) {
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
        let mut spots = self.spots(points, scale);
        spots.push(spot(self.x(last.at), scale.y(floor)));
        spots.push(spot(self.x(first.at), scale.y(floor)));
        self.svg.polygon(look, &spots);
    }

    fn spots(&self, points: &[Point], scale: &Scale) -> Vec<Spot> {
        points.iter().map(|point| spot(self.x(point.at), scale.y(point.value))).collect()
    }

    fn note(&mut self, note: &Note, scale: &Scale) {
        let target = spot(self.x(note.at), scale.y(note.value));
        let text = spot(target.x + note.dx_px, target.y + note.dy_px);
        if note.dx_px != 0.0 || note.dy_px != 0.0 {
            let gap = match note.anchor {
                Anchor::Start => -4.0,
                Anchor::Middle => 0.0,
                Anchor::End => 4.0,
            };
            self.svg.line(Look::Pointer, target, spot(text.x + gap, text.y - 4.0));
        }
        self.svg.text(Look::Note, text, note.anchor, &note.text);
    }

    fn marks(&mut self, caption: &str, marks: &[Mark], top: f64, height: f64) {
        let base = top + height - MARKS_PAD;
        self.caption(caption, base);
        self.svg.line(Look::Grid, spot(LEFT, base), spot(RIGHT, base));
        for (mark, level) in self.stacked(marks) {
            self.mark(&mark, base - level as f64 * MARK_STEP);
        }
    }

    fn caption(&mut self, caption: &str, y: f64) {
        self.svg.text(Look::Label, spot(LEFT - 12.0, y + 4.0), Anchor::End, caption);
    }

    fn mark(&mut self, mark: &Mark, y: f64) {
        let at = spot(self.x(mark.at), y);
        if mark.cost == 1 {
            self.svg.circle(mark.look, at, MARK_R);
            return;
        }
        let text = if mark.look == Look::Refused { Look::RefusedText } else { Look::AdmittedText };
        self.svg.circle(mark.look, at, WEIGHT_R);
        self.svg.text(text, spot(at.x, at.y + 3.5), Anchor::Middle, &mark.cost.to_string());
    }

    /// Assigns each mark the lowest level at which it does not overlap an earlier mark.
    fn stacked(&self, marks: &[Mark]) -> Vec<(Mark, usize)> {
        let mut right_ends: Vec<f64> = Vec::new();
        let mut stacked = Vec::with_capacity(marks.len());
        for mark in marks {
            let radius = if mark.cost == 1 { MARK_R } else { WEIGHT_R };
            let left = self.x(mark.at) - radius;
            let level = right_ends.iter().position(|&end| end < left).unwrap_or(right_ends.len());
            if level == right_ends.len() {
                right_ends.push(0.0);
            }
            right_ends[level] = left + 2.0 * radius + 2.0;
            stacked.push((*mark, level));
        }
        stacked
    }

    fn bars(&mut self, caption: &str, bars: &[Bar], top: f64) {
        self.caption(caption, top + TRACK_HEIGHT / 2.0);
        for bar in bars {
            let (from, to) = (self.x(bar.from), self.x(bar.to));
            let corner = spot(from, top + bar.track as f64 * TRACK_HEIGHT + 3.0);
            self.svg.rect(bar.look, corner, to - from, TRACK_HEIGHT - 6.0, 3.0);
            for &dot in &bar.dots {
                self.svg.circle(Look::Event, spot(self.x(dot), corner.y + 7.0), 3.5);
            }
            let inside = text_width(Look::BarText, &bar.label) + 4.0 < to - from;
            let x = if inside { from + 4.0 } else { to + 4.0 };
            self.svg.text(Look::BarText, spot(x, corner.y + 10.8), Anchor::Start, &bar.label);
        }
    }

    fn flow(&mut self, arrivals: &str, departures: &str, passages: &[Passage], top: f64) {
        let (above, below) = (top + MARKS_PAD, top + FLOW_HEIGHT - MARKS_PAD);
        for (caption, y) in [(arrivals, above), (departures, below)] {
            self.caption(caption, y);
            self.svg.line(Look::Grid, spot(LEFT, y), spot(RIGHT, y));
        }
        for passage in passages {
            if let Some(departs) = passage.departs {
                let (from, to) =
                    (spot(self.x(passage.arrives), above), spot(self.x(departs), below - MARK_R));
                self.svg.arrow(from, to);
            }
        }
        for passage in passages {
            let look = if passage.departs.is_some() { Look::Admitted } else { Look::Refused };
            self.mark(&Mark { at: passage.arrives, look, cost: 1 }, above);
            if let Some(departs) = passage.departs {
                self.mark(&Mark { at: departs, look, cost: 1 }, below);
            }
        }
    }
}

/// Converts a value to a y position.
struct Scale {
    bottom: f64,
    px_per_unit: f64,
}

impl Scale {
    fn y(&self, value: f64) -> f64 {
        self.bottom - value * self.px_per_unit
    }
}

/// Returns the space below a row.
fn gap(row: &Row) -> f64 {
    if matches!(row, Row::Ruler(_)) { RULER_GAP } else { ROW_GAP }
}

fn spot(x: f64, y: f64) -> Spot {
    Spot { x, y }
}
