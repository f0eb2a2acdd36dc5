//! Charts over time, in the look of the pictures of the documentation. Each has a table with the same numbers.

use tollgate::core::Time;

use super::html::table;
use super::{share, thousands};
use crate::cli::terminal::instant;
use crate::drawing::{Anchor, Look, Spot, Svg, escape, text_width};
use crate::simulate::replay::Timeline;
use crate::simulate::results::{Results, RuleResults};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = WIDTH - 20.0;
const TOP: f64 = 76.0;
const BOTTOM: f64 = HEIGHT - 36.0;
/// Grid lines of the value axis, about.
const LINES: f64 = 4.0;
const TICKS: usize = 8;

/// A quantity over time.
struct Series<'s> {
    name: &'s str,
    look: Look,
    /// Whether it is filled down to zero.
    is_area: bool,
    points: Vec<(Time, f64)>,
}

/// Requests and refusals of all rules, and the refusals under the old rules.
pub(super) fn over_time(results: &Results) -> String {
    let new = &results.new.timeline;
    let old = results.old.as_ref().map(|old| &old.timeline);
    let (requests, refused) = (points(new, |slot| slot.checks), points(new, |slot| slot.refused));
    let mut series = vec![
        Series { name: "requests", look: Look::LevelArea, is_area: true, points: requests },
        Series { name: "refused", look: Look::Excess, is_area: true, points: refused },
    ];
    if let Some(old) = old {
        let points = points(old, |slot| slot.refused);
        series.push(Series { name: "refused by the old rules", look: Look::Limit, is_area: false, points });
    }
    let chart = chart("chart-all", "Requests over time", new.slot_seconds(), &series);
    format!("<section><h2>Over time</h2>\n<figure>{chart}\n{}</figure></section>\n", numbers(new, old))
}

/// Checks and refusals of one rule.
pub(super) fn of_rule(results: &Results, rule: &RuleResults) -> String {
    let index = results.new.rules.iter().position(|other| other.id == rule.id).unwrap_or(0);
    let series = [
        Series {
            name: "checks",
            look: Look::LevelArea,
            is_area: true,
            points: points(&rule.timeline, |slot| slot.checks),
        },
        Series {
            name: "refused",
            look: Look::Excess,
            is_area: true,
            points: points(&rule.timeline, |slot| slot.refused),
        },
    ];
    let title = format!("Rule {}", rule.id);
    let chart = chart(&format!("chart-{index}"), &title, rule.timeline.slot_seconds(), &series);
    format!("<figure>{chart}\n{}</figure>\n", numbers(&rule.timeline, None))
}

fn points(timeline: &Timeline, value: impl Fn(&crate::simulate::replay::Slot) -> u64) -> Vec<(Time, f64)> {
    let per_second = timeline.slot_seconds() as f64;
    timeline.slots().map(|(at, slot)| (at, value(&slot) as f64 / per_second)).collect()
}

fn numbers(new: &Timeline, old: Option<&Timeline>) -> String {
    let mut heads = vec!["From", "Requests", "Refused", "Share"];
    if old.is_some() {
        heads.push("Old refused");
    }
    let mut of_old = old.map(|old| old.slots());
    let rows = new.slots().map(|(at, slot)| {
        let mut row = vec![
            instant(at),
            thousands(slot.checks),
            thousands(slot.refused),
            share(slot.refused, slot.checks),
        ];
        if let Some(of_old) = &mut of_old {
            row.push(of_old.next().map_or_else(|| "-".to_owned(), |(_, slot)| thousands(slot.refused)));
        }
        row
    });
    let rows: Vec<_> = rows.collect();
    format!("<details><summary>The numbers as a table</summary>{}</details>", table(&heads, rows, &[]))
}

/// Draws series on one time axis, as an SVG element for a page that has the style sheet.
fn chart(id: &str, title: &str, slot_seconds: u64, series: &[Series<'_>]) -> String {
    let mut svg = Svg::default();
    let times = || series.iter().flat_map(|series| &series.points).map(|(at, _)| at.us());
    let (from, to) = (times().min().unwrap_or(0), times().max().unwrap_or(0) + slot_seconds * 1_000_000);
    let most = series.iter().flat_map(|series| &series.points).map(|(_, value)| *value).fold(0.0, f64::max);
    let step = nice(most / LINES);
    let top = (most / step).ceil().max(1.0) * step;
    let x = |at: u64| LEFT + (at - from) as f64 / (to - from).max(1) as f64 * (RIGHT - LEFT);
    let y = |value: f64| BOTTOM - value / top * (BOTTOM - TOP);
    svg.text(Look::Title, Spot { x: 18.0, y: 28.0 }, Anchor::Start, title);
    let per = format!("per second, in slots of {}", slot_text(slot_seconds));
    svg.text(Look::Subtitle, Spot { x: 18.0, y: 47.0 }, Anchor::Start, &per);
    legend(&mut svg, series);
    for line in 0..=(top / step).round() as u32 {
        let value = f64::from(line) * step;
        svg.line(Look::Grid, Spot { x: LEFT, y: y(value) }, Spot { x: RIGHT, y: y(value) });
        svg.text(Look::Label, Spot { x: LEFT - 8.0, y: y(value) + 4.0 }, Anchor::End, &amount(value));
    }
    for Series { look, is_area, points, .. } in series {
        // Each value holds for its slot.
        let mut spots: Vec<Spot> = Vec::with_capacity(2 * points.len() + 2);
        for (at, value) in points {
            spots.push(Spot { x: x(at.us()), y: y(*value) });
            spots.push(Spot { x: x(at.us() + slot_seconds * 1_000_000), y: y(*value) });
        }
        let (Some(first), Some(last)) = (spots.first().copied(), spots.last().copied()) else { continue };
        if *is_area {
            spots.push(Spot { x: last.x, y: BOTTOM });
            spots.push(Spot { x: first.x, y: BOTTOM });
            svg.polygon(*look, &spots);
        } else {
            svg.polyline(*look, &spots);
        }
    }
    svg.line(Look::Axis, Spot { x: LEFT, y: BOTTOM }, Spot { x: RIGHT, y: BOTTOM });
    for (at, text) in ticks(from, to) {
        svg.line(Look::Axis, Spot { x: x(at), y: BOTTOM }, Spot { x: x(at), y: BOTTOM + 4.0 });
        svg.text(Look::Label, Spot { x: x(at), y: BOTTOM + 18.0 }, Anchor::Middle, &text);
    }
    let description = series.iter().map(|series| series.name).collect::<Vec<_>>().join(", ");
    svg.inline(WIDTH, HEIGHT, id, title, &description)
}

fn legend(svg: &mut Svg, series: &[Series<'_>]) {
    let mut x = RIGHT;
    for Series { name, look, is_area, .. } in series.iter().rev() {
        x -= text_width(Look::Label, name) + 40.0;
        if *is_area {
            svg.rect(*look, Spot { x, y: 36.0 }, 16.0, 10.0, 2.0);
        } else {
            svg.line(*look, Spot { x, y: 41.0 }, Spot { x: x + 18.0, y: 41.0 });
        }
        svg.text(Look::Label, Spot { x: x + 24.0, y: 45.0 }, Anchor::Start, name);
    }
}

/// The next of 1, 2 and 5 times a power of ten.
fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let digit = value / power;
    power
        * if digit <= 1.0 {
            1.0
        } else if digit <= 2.0 {
            2.0
        } else if digit <= 5.0 {
            5.0
        } else {
            10.0
        }
}

fn amount(value: f64) -> String {
    match value {
        1e6.. => format!("{} M", value / 1e6),
        1e4.. => format!("{} k", value / 1e3),
        _ => format!("{}", (value * 1e6).round() / 1e6),
    }
}

fn slot_text(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Round times on the axis and their labels, in UTC.
fn ticks(from: u64, to: u64) -> Vec<(u64, String)> {
    const STEPS: &[u64] = &[
        1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
        2_419_200, 31_536_000,
    ];
    let seconds = (to - from) / 1_000_000;
    let fits = STEPS.iter().find(|&&step| seconds / step < TICKS as u64);
    let step = fits.or(STEPS.last()).copied().unwrap_or(1);
    let first = (from / 1_000_000).div_ceil(step);
    (first..)
        .map(|number| number * step)
        .take_while(|&second| second * 1_000_000 <= to)
        .take(4 * TICKS)
        .map(|second| {
            let text = instant(Time::from_us(second * 1_000_000));
            let (date, time) = text.split_once('T').unwrap_or((&text, ""));
            let time = time.trim_end_matches('Z');
            let label = if step >= 86_400 || time.starts_with("00:00:00") {
                date.get(5..)
            } else if step < 60 {
                time.get(..8)
            } else {
                time.get(..5)
            };
            (second * 1_000_000, escape(label.unwrap_or(&text)))
        })
        .collect()
}
