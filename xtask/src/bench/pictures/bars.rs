//! Horizontal bars, each with its name on the left and its value on the right.

use crate::bench::table::number;
use tollgate_server::drawing::{Anchor, Look, Spot, Svg};

/// One picture.
pub(in crate::bench) struct Bars<'a> {
    pub(in crate::bench) title: &'a str,
    pub(in crate::bench) subtitle: &'a str,
    /// The alternative text.
    pub(in crate::bench) description: &'a str,
    pub(in crate::bench) bars: &'a [Bar],
    /// A longer bar is cut, and drawn with a mark.
    pub(in crate::bench) cut_at: f64,
}

/// One value.
pub(in crate::bench) struct Bar {
    pub(in crate::bench) label: String,
    pub(in crate::bench) look: Look,
    pub(in crate::bench) value: f64,
    /// The interquartile range.
    pub(in crate::bench) whisker: Option<(f64, f64)>,
}

const WIDTH_PX: f64 = 720.0;
const LEFT_PX: f64 = 190.0;
const RIGHT_PX: f64 = 110.0;
const TOP_PX: f64 = 66.0;
const STEP_PX: f64 = 26.0;
const BAR_PX: f64 = 16.0;

impl Bars<'_> {
    /// Returns the SVG file.
    pub(in crate::bench) fn svg(&self) -> String {
        let mut svg = Svg::default();
        svg.text(Look::Title, Spot { x: 18.0, y: 28.0 }, Anchor::Start, self.title);
        svg.text(Look::Subtitle, Spot { x: 18.0, y: 46.0 }, Anchor::Start, self.subtitle);
        let longest = self.bars.iter().map(|bar| bar.value.min(self.cut_at)).fold(1.0, f64::max);
        let px = |value: f64| value.min(self.cut_at) / longest * (WIDTH_PX - LEFT_PX - RIGHT_PX);
        for (at, bar) in self.bars.iter().enumerate() {
            let top = TOP_PX + at as f64 * STEP_PX;
            let middle = top + BAR_PX / 2.0;
            let base = middle + 4.0;
            svg.text(Look::Note, Spot { x: LEFT_PX - 8.0, y: base }, Anchor::End, &bar.label);
            svg.rect(bar.look, Spot { x: LEFT_PX, y: top }, px(bar.value).max(1.0), BAR_PX, 2.0);
            if let Some((low, high)) = bar.whisker {
                let spot = |value| Spot { x: LEFT_PX + px(value), y: middle };
                svg.line(Look::Span, spot(low), spot(high));
            }
            let end = LEFT_PX + px(bar.whisker.map_or(bar.value, |(_, high)| high.max(bar.value)));
            let cut = if bar.value > self.cut_at { "… " } else { "" };
            let text = format!("{cut}{}", number(bar.value));
            svg.text(Look::Note, Spot { x: end + 8.0, y: base }, Anchor::Start, &text);
        }
        let height = TOP_PX + self.bars.len() as f64 * STEP_PX + 10.0;
        svg.finish(WIDTH_PX, height, self.title, self.description)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_that_is_off_the_scale_is_cut_and_says_so() {
        let bar = |label: &str, value| Bar { label: label.to_owned(), look: Look::Bar, value, whisker: None };
        let bars = [bar("short", 50.0), bar("long", 5_000.0)];
        let svg = Bars { title: "t", subtitle: "s", description: "d", bars: &bars, cut_at: 100.0 }.svg();
        assert!(svg.contains("width=\"210\" height=\"16\""), "half of the room: {svg}");
        assert!(svg.contains("width=\"420\" height=\"16\""), "all of the room: {svg}");
        assert!(svg.contains(">… 5,000</text>"), "{svg}");
    }
}
