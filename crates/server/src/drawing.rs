//! Writes SVG shapes and texts, and the style sheet that they share.
//!
//! Does not know time, limits or charts. The output is the same on every machine.

use std::fmt::Write;

/// A position in pixels from the upper left corner.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spot {
    pub x: f64,
    pub y: f64,
}

/// What a shape or a text shows. Each variant has one CSS class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    Title,
    Subtitle,
    Label,
    Note,
    Grid,
    Axis,
    Edge,
    Limit,
    LimitText,
    Level,
    LevelArea,
    ReservedArea,
    Excess,
    Admitted,
    AdmittedText,
    Refused,
    RefusedText,
    Event,
    Bar,
    BarText,
    Lapsed,
    Wait,
    Span,
    Pointer,
    Arrow,
}

/// Which end of a text is at its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// The background is white, so that the picture is readable on light and dark pages. No meaning depends on colour
/// alone: admitted requests are filled, refused ones are hollow.
pub const STYLE: &str = "\
text{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:12px;fill:#27313b}
.card{fill:#fff;stroke:#d5dbe1}
.title{font-size:15px;font-weight:bold}
.subtitle{fill:#55616d}
.label{font-size:11px;fill:#55616d;stroke:#fff;stroke-width:3;stroke-linejoin:round;paint-order:stroke}
.note{font-size:11.5px;stroke:#fff;stroke-width:3;stroke-linejoin:round;paint-order:stroke}
.grid{stroke:#e6eaee;fill:none}
.axis{stroke:#8a96a3;fill:none}
.edge{stroke:#9aa5b1;stroke-dasharray:2 3;fill:none}
.limit{stroke:#b45309;stroke-width:1.5;stroke-dasharray:7 4;fill:none}
.limit-text{font-size:11px;fill:#b45309}
.level{stroke:#1d5fa6;stroke-width:2;stroke-linejoin:round;fill:none}
.level-area{fill:#cfe0f2}
.reserved-area{fill:#e4d8f3}
.excess{fill:#e8a29b}
.admitted{fill:#16794c;stroke:#16794c;stroke-width:1.5}
.admitted-text{font-size:10px;font-weight:bold;fill:#fff}
.refused{fill:#fff;stroke:#c0322b;stroke-width:1.8}
.refused-text{font-size:10px;font-weight:bold;fill:#c0322b}
.event{fill:#1d5fa6;stroke:#fff}
.bar{fill:#cfe0f2;stroke:#1d5fa6}
.bar-text{font-size:10.5px}
.lapsed{fill:#fbe3c8;stroke:#b45309;stroke-dasharray:3 2}
.wait{fill:#f6d9d5}
.span{stroke:#27313b;fill:none}
.pointer{stroke:#27313b;stroke-width:.8;fill:none}
.arrow{stroke:#16794c;stroke-width:1.2;fill:none}
";

impl Look {
    const fn class(self) -> &'static str {
        match self {
            Look::Title => "title",
            Look::Subtitle => "subtitle",
            Look::Label => "label",
            Look::Note => "note",
            Look::Grid => "grid",
            Look::Axis => "axis",
            Look::Edge => "edge",
            Look::Limit => "limit",
            Look::LimitText => "limit-text",
            Look::Level => "level",
            Look::LevelArea => "level-area",
            Look::ReservedArea => "reserved-area",
            Look::Excess => "excess",
            Look::Admitted => "admitted",
            Look::AdmittedText => "admitted-text",
            Look::Refused => "refused",
            Look::RefusedText => "refused-text",
            Look::Event => "event",
            Look::Bar => "bar",
            Look::BarText => "bar-text",
            Look::Lapsed => "lapsed",
            Look::Wait => "wait",
            Look::Span => "span",
            Look::Pointer => "pointer",
            Look::Arrow => "arrow",
        }
    }

    /// Font size of a text with this look.
    pub const fn text_px(self) -> f64 {
        match self {
            Look::Title => 15.0,
            Look::Subtitle => 12.0,
            Look::Note => 11.5,
            Look::BarText => 10.5,
            Look::AdmittedText | Look::RefusedText => 10.0,
            _ => 11.0,
        }
    }
}

/// Collects shapes in drawing order.
#[derive(Default)]
pub struct Svg {
    body: String,
}

impl Svg {
    /// Returns the complete file.
    pub fn finish(self, width: f64, height: f64, title: &str, description: &str) -> String {
        let (w, h) = (px(width), px(height));
        let (title, description) = (escape(title), escape(description));
        let (card_w, card_h) = (px(width - 1.0), px(height - 1.0));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" \
             role=\"img\" aria-labelledby=\"title desc\">\n\
             <title id=\"title\">{title}</title>\n\
             <desc id=\"desc\">{description}</desc>\n\
             <style>\n{STYLE}</style>\n\
             <rect class=\"card\" x=\"0.5\" y=\"0.5\" width=\"{card_w}\" height=\"{card_h}\" rx=\"8\"/>\n\
             {}</svg>\n",
            self.body
        )
    }

    /// Returns an element for a page that has [`STYLE`]. The id must be unique on the page.
    pub fn inline(self, width: f64, height: f64, id: &str, title: &str, description: &str) -> String {
        let (w, h) = (px(width), px(height));
        let (title, description) = (escape(title), escape(description));
        let (card_w, card_h) = (px(width - 1.0), px(height - 1.0));
        format!(
            "<svg viewBox=\"0 0 {w} {h}\" role=\"img\" aria-labelledby=\"{id}-title {id}-desc\">\n\
             <title id=\"{id}-title\">{title}</title>\n\
             <desc id=\"{id}-desc\">{description}</desc>\n\
             <rect class=\"card\" x=\"0.5\" y=\"0.5\" width=\"{card_w}\" height=\"{card_h}\" rx=\"8\"/>\n\
             {}</svg>\n",
            self.body
        )
    }

    pub fn text(&mut self, look: Look, at: Spot, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let (class, x, y) = (look.class(), px(at.x), px(at.y));
        let text = escape(text);
        self.push(format_args!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\"{anchor}>{text}</text>\n"));
    }

    pub fn line(&mut self, look: Look, from: Spot, to: Spot) {
        let ends =
            format!("x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"", px(from.x), px(from.y), px(to.x), px(to.y));
        self.shape(look, "line", &ends);
    }

    pub fn polyline(&mut self, look: Look, spots: &[Spot]) {
        self.shape(look, "polyline", &format!("points=\"{}\"", points(spots)));
    }

    pub fn polygon(&mut self, look: Look, spots: &[Spot]) {
        self.shape(look, "polygon", &format!("points=\"{}\"", points(spots)));
    }

    pub fn rect(&mut self, look: Look, corner: Spot, width: f64, height: f64, radius: f64) {
        let round = if radius > 0.0 { format!(" rx=\"{}\"", px(radius)) } else { String::new() };
        let geometry = format!(
            "x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"{round}",
            px(corner.x),
            px(corner.y),
            px(width),
            px(height)
        );
        self.shape(look, "rect", &geometry);
    }

    pub fn circle(&mut self, look: Look, centre: Spot, radius: f64) {
        let geometry = format!("cx=\"{}\" cy=\"{}\" r=\"{}\"", px(centre.x), px(centre.y), px(radius));
        self.shape(look, "circle", &geometry);
    }

    /// Draws a straight line with an arrowhead at its end.
    pub fn arrow(&mut self, from: Spot, to: Spot) {
        const HEAD_PX: f64 = 6.0;
        self.line(Look::Arrow, from, to);
        let (dx, dy) = (to.x - from.x, to.y - from.y);
        let length = (dx * dx + dy * dy).sqrt();
        if length < HEAD_PX {
            return;
        }
        let (ux, uy) = (dx / length * HEAD_PX, dy / length * HEAD_PX);
        let back = Spot { x: to.x - ux, y: to.y - uy };
        let wing = |side: f64| Spot { x: back.x - uy * side, y: back.y + ux * side };
        self.polyline(Look::Arrow, &[wing(0.5), to, wing(-0.5)]);
    }

    fn shape(&mut self, look: Look, element: &str, attributes: &str) {
        self.push(format_args!("<{element} class=\"{}\" {attributes}/>\n", look.class()));
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.body.write_fmt(text).expect("writing to a string cannot fail");
    }
}

/// Estimates the width of a text. Fonts differ, so leave some room.
pub fn text_width(look: Look, text: &str) -> f64 {
    text.chars().count() as f64 * look.text_px() * 0.53
}

fn points(spots: &[Spot]) -> String {
    let pairs: Vec<String> = spots.iter().map(|spot| format!("{},{}", px(spot.x), px(spot.y))).collect();
    pairs.join(" ")
}

/// Formats pixels with at most one decimal.
fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    let short = text.strip_suffix(".0").unwrap_or(&text);
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}

/// Escapes a text for the content or an attribute of an element.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn px_drops_needless_decimals_and_signs() {
        for (value, text) in [(0.0, "0"), (-0.01, "0"), (12.0, "12"), (12.34, "12.3"), (-1.96, "-2")] {
            assert_eq!(px(value), text);
        }
    }

    #[test]
    fn text_and_description_are_escaped() {
        let mut svg = Svg::default();
        svg.text(Look::Note, Spot { x: 1.0, y: 2.0 }, Anchor::Middle, "a < b & \"c\"");
        let file = svg.finish(10.0, 10.0, "t", "<d>");
        assert!(file.contains(">a &lt; b &amp; &quot;c&quot;</text>\n"), "{file}");
        assert!(file.contains("<desc id=\"desc\">&lt;d&gt;</desc>"), "{file}");
    }
}
