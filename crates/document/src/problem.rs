//! Problems of a file, and the list that every step adds to.
//!
//! [`render`](super::render) formats them.

use super::source::SourceSpan;

/// Maximum number of problems that a list keeps. Further ones are only counted.
pub const PROBLEMS_MAX: usize = 1_000;

/// Maximum number of characters that a message quotes.
const QUOTED_CHARS_MAX: usize = 60;

/// Maximum length of a name that suggestions are searched for. All known names are less than half as long.
const NAME_CHARS_MAX: usize = 64;

/// How serious a problem is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// The file is rejected.
    Error,
    /// The file is accepted, but something in it is probably a mistake.
    Warning,
    /// Something worth knowing.
    Note,
}

impl Severity {
    /// `error`, `warning` or `note`.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

/// A source span with a remark.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// The span.
    pub span: SourceSpan,
    /// The remark; empty to only underline the span.
    pub text: String,
}

/// One problem of a file.
///
/// ```
/// use tollgate_document::{SourceSpan, Problem};
///
/// let problem = Problem::error("unknown-rule", SourceSpan::new(40, 44), "unknown rule `serch`")
///     .label("did you mean `search`?")
///     .also(SourceSpan::new(10, 16), "the rule is here")
///     .help("an override names a rule in the same file");
/// assert_eq!(problem.code, "unknown-rule");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// How serious it is.
    pub severity: Severity,
    /// A stable identifier in kebab-case, for programs and for looking it up.
    pub code: &'static str,
    /// The fault and the value, in one sentence without a full stop.
    pub message: String,
    /// The span that the problem is about.
    pub label: Label,
    /// Other spans that explain the problem.
    pub more: Vec<Label>,
    /// How to fix it.
    pub help: Option<String>,
}

impl Problem {
    /// An error: the file is rejected.
    pub fn error(code: &'static str, span: SourceSpan, message: impl Into<String>) -> Problem {
        Problem::new(Severity::Error, code, span, message.into())
    }

    /// A warning: the file is accepted.
    pub fn warning(code: &'static str, span: SourceSpan, message: impl Into<String>) -> Problem {
        Problem::new(Severity::Warning, code, span, message.into())
    }

    /// A note: not a problem, but worth knowing.
    pub fn note(code: &'static str, span: SourceSpan, message: impl Into<String>) -> Problem {
        Problem::new(Severity::Note, code, span, message.into())
    }

    fn new(severity: Severity, code: &'static str, span: SourceSpan, message: String) -> Problem {
        let label = Label { span, text: String::new() };
        Problem { severity, code, message, label, more: Vec::new(), help: None }
    }

    /// Adds a remark to the span that the problem is about.
    #[must_use]
    pub fn label(mut self, text: impl Into<String>) -> Problem {
        self.label.text = text.into();
        self
    }

    /// Adds another span with a remark.
    #[must_use]
    pub fn also(mut self, span: SourceSpan, text: impl Into<String>) -> Problem {
        self.more.push(Label { span, text: text.into() });
        self
    }

    /// Adds how to fix it.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Problem {
        self.help = Some(text.into());
        self
    }
}

/// All problems of one source.
///
/// It keeps the first [`PROBLEMS_MAX`] and only counts the others, so that a hostile file cannot make it large.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problems {
    kept: Vec<Problem>,
    capacity: usize,
    errors: usize,
    left_out: usize,
}

impl Default for Problems {
    fn default() -> Problems {
        Problems::new()
    }
}

impl Problems {
    /// An empty list.
    pub const fn new() -> Problems {
        Problems { kept: Vec::new(), capacity: PROBLEMS_MAX, errors: 0, left_out: 0 }
    }

    /// A list that only counts, to find out whether there would be a problem.
    pub(super) const fn counting() -> Problems {
        Problems { kept: Vec::new(), capacity: 0, errors: 0, left_out: 0 }
    }

    /// Adds a problem.
    pub fn push(&mut self, problem: Problem) {
        self.errors += usize::from(problem.severity == Severity::Error);
        if self.kept.len() < self.capacity {
            self.kept.push(problem);
        } else {
            self.left_out += 1;
        }
    }

    /// Adds an error that is costly to build: `problem` is called only if the list is not full.
    pub fn push_error_with(&mut self, problem: impl FnOnce() -> Problem) {
        if self.kept.len() < self.capacity {
            self.push(problem());
        } else {
            self.errors += 1;
            self.left_out += 1;
        }
    }

    /// Adds the problems of a file whose text starts at `start`.
    pub(super) fn append_shifted(&mut self, found: Problems, start: usize) {
        (self.errors, self.left_out) = (self.errors + found.errors, self.left_out + found.left_out);
        for mut problem in found.kept {
            for label in std::iter::once(&mut problem.label).chain(&mut problem.more) {
                label.span = label.span.shifted(start);
            }
            if self.kept.len() < self.capacity {
                self.kept.push(problem);
            } else {
                self.left_out += 1;
            }
        }
    }

    /// Whether the file must be rejected.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Whether there is no problem at all.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.left_out == 0
    }

    /// The number of problems, including those that were left out.
    pub fn len(&self) -> usize {
        self.kept.len() + self.left_out
    }

    /// The number of problems that were counted but not kept.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// The kept problems in source order.
    pub fn in_order(&self) -> Vec<&Problem> {
        let mut problems: Vec<&Problem> = self.kept.iter().collect();
        problems.sort_by_key(|problem| (problem.label.span.start, problem.severity));
        problems
    }
}

/// The allowed name that is most similar to `found`, if one is similar enough.
///
/// Case and the choice between `_` and `-` are ignored. A third of the characters may differ (edit distance).
/// Otherwise `found` may be the prefix of exactly one name.
pub fn suggest<'a>(found: &str, allowed: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let found = normalise(found)?;
    let length = found.chars().count();
    let mut nearest: Option<(usize, &str)> = None;
    let mut extensions: Vec<&str> = Vec::new();
    for name in allowed {
        let Some(candidate) = normalise(name) else { continue };
        let edits_max = (length.max(candidate.chars().count()) / 3).max(1);
        let edits = strsim::osa_distance(&found, &candidate);
        // A name of one or two letters is one edit away from any other.
        let keeps_a_character = edits < length;
        if edits <= edits_max && keeps_a_character && nearest.is_none_or(|(least, _)| edits < least) {
            nearest = Some((edits, name));
        }
        if length >= 3 && candidate.starts_with(&found) {
            extensions.push(name);
        }
    }
    match (nearest, extensions.as_slice()) {
        (Some((_, name)), _) => Some(name),
        (None, [name]) => Some(name),
        _ => None,
    }
}

/// Lowercases a name and replaces `_` by `-`; `None` if it is too long to be a name.
fn normalise(name: &str) -> Option<String> {
    let short = !name.is_empty() && name.len() <= NAME_CHARS_MAX;
    short.then(|| name.to_lowercase().replace('_', "-"))
}

/// Quotes a text for a message: on one line, shortened, with control and invisible characters escaped.
pub fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for (count, c) in text.chars().enumerate() {
        if count == QUOTED_CHARS_MAX {
            out.push('…');
            break;
        }
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() || is_invisible(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Characters that change how the surrounding text is displayed.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggest_returns_the_nearest_name() {
        let allowed = ["token-bucket", "fixed-window", "sliding-window", "burst", "id", "description", "per"];
        for (found, expected) in [
            ("token-buckt", Some("token-bucket")),
            ("token_bucket", Some("token-bucket")),
            ("TokenBucket", Some("token-bucket")),
            ("tokne-bucket", Some("token-bucket")),
            ("brust", Some("burst")),
            ("desc", Some("description")),
            ("ID", Some("id")),
            ("pre", Some("per")),
            ("window", None),
            ("ip", Some("id")),
            ("x", None),
            ("", None),
            ("capacity", None),
        ] {
            assert_eq!(suggest(found, allowed), expected, "{found}");
        }
        assert_eq!(suggest(&"a".repeat(100_000), allowed), None);
        assert_eq!(
            suggest("modell", ["mode", "model"]),
            Some("model"),
            "the nearest name wins, not the first"
        );
        assert_eq!(suggest("x", ["y"]), None, "no character is the same");
        assert_eq!(suggest("slid", ["sliding-log", "sliding-window"]), None, "two names begin like this");
    }

    #[test]
    fn quote_shortens_text_and_escapes_control_characters() {
        assert_eq!(quote("a\"b\\c\n\u{1b}[31m\u{202e}"), r#""a\"b\\c\n\u{1b}[31m\u{202e}""#);
        assert_eq!(quote("übung"), "\"übung\"");
        assert_eq!(quote(&"x".repeat(1_000)).chars().count(), QUOTED_CHARS_MAX + 3);
    }

    #[test]
    fn a_full_list_still_counts_errors() {
        let mut problems = Problems::new();
        for start in 0..PROBLEMS_MAX {
            problems.push(Problem::warning("w", SourceSpan::new(start, start), ""));
        }
        assert!(!problems.has_errors());
        problems.push_error_with(|| unreachable!("the list is full"));
        assert!(problems.has_errors());
        assert_eq!((problems.in_order().len(), problems.left_out(), problems.len()), (1_000, 1, 1_001));
    }

    #[test]
    fn problems_are_returned_in_source_order() {
        let mut problems = Problems::new();
        for (start, code) in [(9, "c"), (1, "a"), (9, "d"), (4, "b")] {
            problems.push(Problem::error(code, SourceSpan::new(start, start), ""));
        }
        let codes: Vec<&str> = problems.in_order().iter().map(|problem| problem.code).collect();
        assert_eq!(codes, ["a", "b", "c", "d"]);
    }
}
