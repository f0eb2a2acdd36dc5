//! Writes a rules file with comments.

use std::collections::HashSet;

/// A rules file that is being written.
#[derive(Debug, Default)]
pub(super) struct RulesFile {
    /// The limiter that the configuration was written for.
    source_limiter: &'static str,
    /// General differences between the two limiters.
    differences: Vec<String>,
    pub(super) rules: Vec<Rule>,
    pub(super) overrides: Vec<Override>,
    pub(super) bypass: Vec<Bypass>,
    ids: HashSet<String>,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) comments: Vec<String>,
    pub(super) id: String,
    pub(super) conditions: Vec<(String, ValueTest)>,
    /// All requests together if it is empty.
    pub(super) per: Vec<String>,
    pub(super) limit: WindowLimit,
    pub(super) shadow: bool,
}

#[derive(Debug)]
pub(super) struct Override {
    pub(super) comments: Vec<String>,
    pub(super) rule: String,
    pub(super) conditions: Vec<(String, ValueTest)>,
    pub(super) limit: WindowLimit,
}

#[derive(Debug)]
pub(super) struct Bypass {
    pub(super) conditions: Vec<(String, ValueTest)>,
    pub(super) reason: String,
}

/// A test of an attribute's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ValueTest {
    Is(String),
    StartsWith(String),
    OneOf(Vec<String>),
}

/// A number of units in a fixed window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WindowLimit {
    pub(super) units: u64,
    pub(super) seconds: u64,
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

    /// Formats the file; `from` is the name of the original file.
    pub(super) fn text(&self, from: &str) -> String {
        let mut out =
            format!("# Converted from {}, a configuration of {}.\n", one_line(from), self.source_limiter);
        out.push_str("#\n# Differences:\n");
        for line in &self.differences {
            out.push_str(&format!("# - {}\n", one_line(line)));
        }
        out.push_str("\nversion: 1\n\nrules:");
        if self.rules.is_empty() {
            out.push_str(" []");
        }
        out.push('\n');
        for rule in &self.rules {
            out.push_str(&rule.text());
        }
        if !self.overrides.is_empty() {
            out.push_str("\noverrides:\n");
        }
        for Override { comments, rule, conditions, limit } in &self.overrides {
            out.push_str(&comments_text(comments, "  "));
            let (when, limit) = (conditions_text(conditions), limit.text());
            out.push_str(&format!("  - {{ when: {when}, rule: {rule}, limit: {limit} }}\n"));
        }
        if !self.bypass.is_empty() {
            out.push_str("\nbypass:\n");
        }
        for Bypass { conditions, reason } in &self.bypass {
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
        match self.per.as_slice() {
            [] => out.push_str("    per: all\n"),
            [one] => out.push_str(&format!("    per: {one}\n    missing: skip\n")),
            many => out.push_str(&format!("    per: [{}]\n    missing: skip\n", many.join(", "))),
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
        let WindowLimit { units, seconds } = self;
        if units == 0 {
            return "deny".to_owned();
        }
        let names = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
        let (length, name) = names.into_iter().find(|(length, _)| seconds % length == 0).unwrap_or((1, "s"));
        match seconds / length {
            1 => format!("{{ fixed-window: {units}/{name} }}"),
            number => format!("{{ fixed-window: {units}/{number}{name} }}"),
        }
    }
}

fn comments_text(comments: &[String], indent: &str) -> String {
    comments.iter().map(|comment| format!("{indent}# {}\n", one_line(comment))).collect()
}

fn conditions_text(conditions: &[(String, ValueTest)]) -> String {
    let condition = |(name, test): &(String, ValueTest)| match test {
        ValueTest::Is(value) if is_plain(value) => format!("{name}: {value}"),
        ValueTest::Is(value) => format!("{name}: {{ is: {} }}", scalar(value)),
        ValueTest::StartsWith(value) => format!("{name}: {}", scalar(&format!("{value}*"))),
        ValueTest::OneOf(values) => {
            let values: Vec<String> = values.iter().map(|value| scalar(value)).collect();
            format!("{name}: [{}]", values.join(", "))
        }
    };
    let all: Vec<String> = conditions.iter().map(condition).collect();
    format!("{{ {} }}", all.join(", "))
}

/// Formats a text as a YAML scalar, in quotes unless it is a plain word.
fn scalar(text: &str) -> String {
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
