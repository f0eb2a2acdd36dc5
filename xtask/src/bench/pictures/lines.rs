//! Lines over the number of keys, each named at its right end.

use crate::bench::table::number;
use tollgate_server::drawing::{Anchor, Look, Spot, Svg};

/// One picture.
pub(in crate::bench) struct Lines<'a> {
    pub(in crate::bench) title: &'a str,
    pub(in crate::bench) subtitle: &'a str,
    /// The alternative text.
    pub(in crate::bench) description: &'a str,
    pub(in crate::bench) lines: &'a [Line],
}

/// One contender.
pub(in crate::bench) struct Line {
    pub(in crate::bench) label: String,
    pub(in crate::bench) look: Look,
    /// The decimal logarithm of the number of keys, and the value.
    pub(in crate::bench) points: Vec<(f64, f64)>,
}

const WIDTH_PX: f64 = 720.0;
const HEIGHT_PX: f64 = 400.0;
const LEFT_PX: f64 = 56.0;
const RIGHT_PX: f64 = 180.0;
const TOP_PX: f64 = 66.0;
const BOTTOM_PX: f64 = 44.0;
/// The least distance between two names.
const NAME_PX: f64 = 15.0;

impl Lines<'_> {
    /// Returns the SVG file.
    pub(in crate::bench) fn svg(&self) -> String {
        let mut svg = Svg::default();
        svg.text(Look::Title, Spot { x: 18.0, y: 28.0 }, Anchor::Start, self.title);
        svg.text(Look::Subtitle, Spot { x: 18.0, y: 46.0 }, Anchor::Start, self.subtitle);
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let most_keys = points().map(|point| point.0).fold(1.0, f64::max);
        let step = grid_step(points().map(|point| point.1).fold(1.0, f64::max));
        let most = points().map(|point| (point.1 / step).ceil() * step).fold(step, f64::max);
        let spot = |keys: f64, value: f64| Spot {
            x: LEFT_PX + keys / most_keys * (WIDTH_PX - LEFT_PX - RIGHT_PX),
            y: HEIGHT_PX - BOTTOM_PX - value / most * (HEIGHT_PX - TOP_PX - BOTTOM_PX),
        };
        for line in 0..=(most / step).round() as u32 {
            let value = f64::from(line) * step;
            let look = if line == 0 { Look::Axis } else { Look::Grid };
            svg.line(look, spot(0.0, value), spot(most_keys, value));
            let Spot { x, y } = spot(0.0, value);
            svg.text(Look::Label, Spot { x: x - 8.0, y: y + 4.0 }, Anchor::End, &number_of_axis(value));
        }
        for digits in 0..=most_keys.round() as u32 {
            let Spot { x, y } = spot(f64::from(digits), 0.0);
            let keys = number_of_axis(10_f64.powi(digits as i32));
            svg.text(Look::Label, Spot { x, y: y + 18.0 }, Anchor::Middle, &keys);
        }
        let below = Spot { x: spot(most_keys / 2.0, 0.0).x, y: HEIGHT_PX - 10.0 };
        svg.text(Look::Label, below, Anchor::Middle, "keys");
        for line in self.lines {
            let spots: Vec<Spot> = line.points.iter().map(|&(keys, value)| spot(keys, value)).collect();
            svg.polyline(line.look, &spots);
        }
        let ends = self.lines.iter().filter_map(|line| {
            let &(keys, value) = line.points.last()?;
            Some((spot(keys, value), format!("{} {}", line.label, number(value))))
        });
        for (end, name) in apart(ends.collect()) {
            svg.text(Look::Note, Spot { x: end.x + 8.0, y: end.y + 4.0 }, Anchor::Start, &name);
        }
        svg.finish(WIDTH_PX, HEIGHT_PX, self.title, self.description)
    }
}

/// Returns a step that gives about six grid lines at round numbers.
fn grid_step(most: f64) -> f64 {
    let power = 10_f64.powf((most / 6.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| most / step <= 6.0).unwrap_or(steps[3])
}

/// Formats an axis label; whole numbers have no decimals.
fn number_of_axis(value: f64) -> String {
    if value < 1_000.0 { format!("{value}") } else { number(value) }
}

/// Moves names up, from the bottom, where they would overlap.
fn apart(mut names: Vec<(Spot, String)>) -> Vec<(Spot, String)> {
    names.sort_by(|a, b| b.0.y.total_cmp(&a.0.y));
    for at in 1..names.len() {
        names[at].0.y = names[at].0.y.min(names[at - 1].0.y - NAME_PX);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_has_round_numbers_and_few_lines() {
        for (most, step) in [(5.0, 1.0), (60.0, 10.0), (61.0, 20.0), (461.0, 100.0), (1_100.0, 200.0)] {
            assert_eq!(grid_step(most), step, "{most}");
        }
    }

    #[test]
    fn names_do_not_overlap() {
        let at = |y| (Spot { x: 0.0, y }, String::new());
        let y: Vec<f64> = apart(vec![at(100.0), at(98.0), at(20.0)]).iter().map(|name| name.0.y).collect();
        assert_eq!(y, [100.0, 85.0, 20.0]);
    }
}
