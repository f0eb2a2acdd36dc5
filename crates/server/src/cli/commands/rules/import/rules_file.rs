//! Writes a rules file with comments.

use std::collections::HashSet;

use super::value_test::ValueTest;

/// An attribute's name and the test of its value.
pub(super) type Condition = (String, ValueTest);

/// A rules file that is being written.
#[derive(Debug, Default)]
pub(super) struct RulesFile {
    /// The limiter that the configuration was written for.
    source_limiter: &'static str,
    /// General differences between the two limiters.
    differences: Vec<String>,
    pub(super) rules: Vec<Rule>,
    pub(super) bypass: Vec<Bypass>,
    ids: HashSet<String>,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) comments: Vec<String>,
    pub(super) id: String,
    pub(super) conditions: Vec<Condition>,
    /// All requests together if it is empty.
    pub(super) per: Vec<String>,
    pub(super) limit: WindowLimit,
    pub(super) shadow: bool,
}

#[derive(Debug)]
pub(super) struct Bypass {
    pub(super) comments: Vec<String>,
    pub(super) conditions: Vec<Condition>,
    pub(super) reason: String,
}

/// A number of units in a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WindowLimit {
    pub(super) units: u64,
    pub(super) seconds: u64,
    pub(super) start: WindowStart,
}

/// When a window starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WindowStart {
    /// At a multiple of its length.
    Aligned,
    /// With the first request.
    FirstUse,
}

impl RulesFile {
    pub(super) fn new(source_limiter: &'static str, differences: &[&str]) -> RulesFile {
        let differences = differences.iter().map(|&line| line.to_owned()).collect();
        RulesFile { source_limiter, differences, ..RulesFile::default() }
    }

    /// Builds an id from these words that no other rule has.
    pub(super) fn unique_id<'w>(&mut self, words: impl IntoIterator<Item = &'w str>) -> String {
        const CHARS_MAX: usize = 56;
        let mut id = String::new();
        for c in words.into_iter().collect::<Vec<_>>().join("-").chars() {
            let fits = c.is_ascii_alphanumeric() || "_.".contains(c);
            match (fits, id.ends_with('-')) {
                (true, _) => id.push(c),
                (false, false) => id.push('-'),
                (false, true) => (),
            }
        }
        let mut id: String = id.trim_matches('-').chars().take(CHARS_MAX).collect();
        if id.is_empty() {
            id.push_str("rule");
        }
        let mut unique = id.clone();
        let mut number = 2;
        while !self.ids.insert(unique.clone()) {
            unique = format!("{id}-{number}");
            number += 1;
        }
        unique
    }

    /// Formats the file; `from` are the names of the original files.
    pub(super) fn text(&self, from: &str) -> String {
        let mut out =
            format!("# Converted from {}, a configuration of {}.\n", one_line(from), self.source_limiter);
        out.push_str("#\n# Differences:\n");
        for line in &self.differences {
            out.push_str(&format!("# - {}\n", one_line(line)));
        }
        out.push_str("# - `NAME | domain` counts requests with an empty value of NAME together.\n");
        out.push_str("\nversion: 1\n\nrules:");
        if self.rules.is_empty() {
            out.push_str(" []");
        }
        out.push('\n');
        for rule in &self.rules {
            out.push_str(&rule.text());
        }
        if !self.bypass.is_empty() {
            out.push_str("\nbypass:\n");
        }
        for Bypass { comments, conditions, reason } in &self.bypass {
            out.push_str(&comments_text(comments, "  "));
            out.push_str(&format!(
                "  - {{ when: {}, reason: {} }}\n",
                conditions_text(conditions),
                scalar(reason)
            ));
        }
        out
    }
}

impl Rule {
    fn text(&self) -> String {
        let mut out = comments_text(&self.comments, "  ");
        out.push_str(&format!("  - id: {}\n", self.id));
        out.push_str(&format!("    match: {}\n", conditions_text(&self.conditions)));
        // An empty value is not a subject, so it is counted under `domain`, which is always present.
        let per: Vec<String> = self.per.iter().map(|name| format!("{name} | domain")).collect();
        match per.as_slice() {
            [] => out.push_str("    per: all\n"),
            [one] => out.push_str(&format!("    per: {one}\n")),
            many => out.push_str(&format!("    per: [{}]\n", many.join(", "))),
        }
        out.push_str(&format!("    limit: {}\n    on_failure: open\n", self.limit.text()));
        if self.shadow {
            out.push_str("    mode: shadow\n");
        }
        out
    }
}

impl WindowLimit {
    fn text(self) -> String {
        let WindowLimit { units, seconds, start } = self;
        if units == 0 {
            return "deny".to_owned();
        }
        let names = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
        let (length, name) = names.into_iter().find(|(length, _)| seconds % length == 0).unwrap_or((1, "s"));
        let number = seconds / length;
        match (start, number) {
            (WindowStart::Aligned, 1) => format!("{{ fixed-window: {units}/{name} }}"),
            (WindowStart::Aligned, _) => format!("{{ fixed-window: {units}/{number}{name} }}"),
            (WindowStart::FirstUse, _) => format!("{{ quota: {units}/{number}{name}, period: rolling }}"),
        }
    }
}

fn comments_text(comments: &[String], indent: &str) -> String {
    comments.iter().map(|comment| format!("{indent}# {}\n", one_line(comment))).collect()
}

fn conditions_text(conditions: &[Condition]) -> String {
    let all: Vec<String> = conditions.iter().map(|(name, test)| format!("{name}: {}", test.text())).collect();
    format!("{{ {} }}", all.join(", "))
}

/// Formats a text as a YAML scalar, in quotes unless it is a plain word.
pub(super) fn scalar(text: &str) -> String {
    // A JSON string is a YAML scalar with the same text.
    if is_plain(text) { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

/// Whether YAML reads the text as a string without quotes.
fn is_plain(text: &str) -> bool {
    let words = ["true", "false", "null", "yes", "no", "on", "off", "all", "y", "n"];
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
        && !words.contains(&text.to_ascii_lowercase().as_str())
}

/// Replaces control characters, so that a comment stays on one line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
