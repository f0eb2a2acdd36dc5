//! The Prometheus text format.

use std::fmt::{Display, Write};

/// A page of metrics.
#[derive(Default)]
pub(crate) struct Exposition {
    text: String,
}

/// The type of a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Only grows; its name ends in `_total`.
    Counter,
    Gauge,
    Histogram,
}

/// The samples of one name.
pub(crate) struct Family<'e> {
    text: &'e mut String,
    name: &'static str,
}

impl Exposition {
    /// Starts a family. Its samples follow directly, and each family is started once.
    pub(crate) fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        put(&mut self.text, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        Family { text: &mut self.text, name }
    }

    /// A family of one sample without labels.
    pub(crate) fn single(&mut self, name: &'static str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help).sample(&[], value);
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

impl Family<'_> {
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.part("", labels, value);
    }

    /// A sample whose name has a suffix, as in histograms.
    pub(crate) fn part(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        put(self.text, format_args!("{}{suffix}", self.name));
        for (index, (name, label)) in labels.iter().enumerate() {
            put(
                self.text,
                format_args!("{}{name}=\"{}\"", if index == 0 { '{' } else { ',' }, Escaped(label)),
            );
        }
        let close = if labels.is_empty() { "" } else { "}" };
        put(self.text, format_args!("{close} {value}\n"));
    }
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("writing to a string cannot fail");
}

/// A label's value between its quotes.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                _ => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_quoted_and_samples_follow_their_type() {
        let mut page = Exposition::default();
        let mut family = page.family("x_total", Kind::Counter, "What x did.");
        family.sample(&[("rule", "a\"b\\c\nd"), ("outcome", "allowed")], 3);
        page.single("y", Kind::Gauge, "How y is.", 0.5);
        assert_eq!(
            page.into_text(),
            "# HELP x_total What x did.\n# TYPE x_total counter\n\
             x_total{rule=\"a\\\"b\\\\c\\nd\",outcome=\"allowed\"} 3\n\
             # HELP y How y is.\n# TYPE y gauge\ny 0.5\n"
        );
    }
}
