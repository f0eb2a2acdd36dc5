//! Rules as text, with comments.

use std::collections::HashSet;

/// A whole rules file.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Who it was made for.
    made_for: &'static str,
    /// What differs in general.
    differs: Vec<String>,
    pub(super) rules: Vec<Rule>,
    pub(super) overrides: Vec<Override>,
    pub(super) bypass: Vec<Bypass>,
    ids: HashSet<String>,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) comments: Vec<String>,
    pub(super) id: String,
    pub(super) conditions: Vec<(String, Wanted)>,
    /// Everybody together if there is none.
    pub(super) per: Vec<String>,
    pub(super) amount: Amount,
    pub(super) shadow: bool,
}

#[derive(Debug)]
pub(super) struct Override {
    pub(super) comments: Vec<String>,
    pub(super) rule: String,
    pub(super) conditions: Vec<(String, Wanted)>,
    pub(super) amount: Amount,
}

#[derive(Debug)]
pub(super) struct Bypass {
    pub(super) conditions: Vec<(String, Wanted)>,
    pub(super) reason: String,
}

/// What an attribute must be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    Is(String),
    StartsWith(String),
    OneOf(Vec<String>),
}

/// How much, in a window of so many seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Amount {
    pub(super) units: u64,
    pub(super) seconds: u64,
}

impl Written {
    pub(super) fn new(made_for: &'static str, differs: &[&str]) -> Written {
        let differs = differs.iter().map(|&line| line.to_owned()).collect();
        Written { made_for, differs, ..Written::default() }
    }

    /// An id out of these words, which no other rule has.
    pub(super) fn id<'w>(&mut self, words: impl IntoIterator<Item = &'w str>) -> String {
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

    /// All of it; `from` is where it comes from.
    pub(super) fn text(&self, from: &str) -> String {
        let mut out = format!("# From {}, which was written for {}.\n", one_line(from), self.made_for);
        out.push_str("#\n# What differs:\n");
        for line in &self.differs {
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
        for Override { comments, rule, conditions, amount } in &self.overrides {
            out.push_str(&comments_text(comments, "  "));
            let (when, limit) = (conditions_text(conditions), amount.text());
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
        out.push_str(&format!("    limit: {}\n    on_failure: open\n", self.amount.text()));
        if self.shadow {
            out.push_str("    mode: shadow\n");
        }
        out
    }
}

impl Amount {
    fn text(self) -> String {
        let Amount { units, seconds } = self;
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

fn conditions_text(conditions: &[(String, Wanted)]) -> String {
    let condition = |(name, wanted): &(String, Wanted)| match wanted {
        Wanted::Is(value) if is_plain(value) => format!("{name}: {value}"),
        Wanted::Is(value) => format!("{name}: {{ is: {} }}", scalar(value)),
        Wanted::StartsWith(value) => format!("{name}: {}", scalar(&format!("{value}*"))),
        Wanted::OneOf(values) => {
            let values: Vec<String> = values.iter().map(|value| scalar(value)).collect();
            format!("{name}: [{}]", values.join(", "))
        }
    };
    let all: Vec<String> = conditions.iter().map(condition).collect();
    format!("{{ {} }}", all.join(", "))
}

/// As it stands in a file: text that is more than a word in quotes.
fn scalar(text: &str) -> String {
    // What JSON calls a string, YAML reads as the same text.
    if is_plain(text) { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

/// A word that nothing takes for anything else.
fn is_plain(text: &str) -> bool {
    let words = ["true", "false", "null", "yes", "no", "on", "off", "all", "y", "n"];
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
        && !words.contains(&text.to_ascii_lowercase().as_str())
}

/// A comment that stays one.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
