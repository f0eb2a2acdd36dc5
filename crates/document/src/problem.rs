//! What is wrong with a file, and the list into which every step puts it.
//!
//! How a problem looks on paper is the business of [`render`](super::render).

use super::source::Place;

/// How many problems a list keeps. The rest are counted.
pub const PROBLEMS_MAX: usize = 1_000;

/// How many characters of a text a message repeats.
const SHOWN_CHARS_MAX: usize = 60;

/// How long a name may be to have near misses; no name of ours is half as long.
const NAME_CHARS_MAX: usize = 64;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file is accepted, and something in it is probably not meant.
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

/// A place and what there is to say about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// Where.
    pub place: Place,
    /// What; empty to only point.
    pub text: String,
}

/// One thing that is wrong.
///
/// ```
/// use tollgate_document::{Place, Problem};
///
/// let problem = Problem::error("unknown-rule", Place::new(40, 44), "no rule is called `serch`")
///     .label("did you mean `search`?")
///     .also(Place::new(10, 16), "the rule is here")
///     .help("an override names a rule of the same file");
/// assert_eq!(problem.code, "unknown-rule");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// A stable name in kebab-case, for machines and for looking it up.
    pub code: &'static str,
    /// What was found, and what is allowed, in one sentence without a full stop.
    pub message: String,
    /// The place it is about.
    pub label: Label,
    /// Other places that explain it.
    pub more: Vec<Label>,
    /// What to do about it.
    pub help: Option<String>,
}

impl Problem {
    /// A problem for which the file is refused.
    pub fn error(code: &'static str, place: Place, message: impl Into<String>) -> Problem {
        Problem::new(Severity::Error, code, place, message.into())
    }

    /// A problem for which it is not.
    pub fn warning(code: &'static str, place: Place, message: impl Into<String>) -> Problem {
        Problem::new(Severity::Warning, code, place, message.into())
    }

    /// No problem, but worth knowing.
    pub fn note(code: &'static str, place: Place, message: impl Into<String>) -> Problem {
        Problem::new(Severity::Note, code, place, message.into())
    }

    fn new(severity: Severity, code: &'static str, place: Place, message: String) -> Problem {
        let label = Label { place, text: String::new() };
        Problem { severity, code, message, label, more: Vec::new(), help: None }
    }

    /// Says something at the place it is about.
    #[must_use]
    pub fn label(mut self, text: impl Into<String>) -> Problem {
        self.label.text = text.into();
        self
    }

    /// Points at another place.
    #[must_use]
    pub fn also(mut self, place: Place, text: impl Into<String>) -> Problem {
        self.more.push(Label { place, text: text.into() });
        self
    }

    /// Says what to do about it.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Problem {
        self.help = Some(text.into());
        self
    }
}

/// Every problem of one source.
///
/// It keeps the first [`PROBLEMS_MAX`] and counts the others, so that a hostile file cannot make it large.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problems {
    kept: Vec<Problem>,
    room: usize,
    errors: usize,
    left_out: usize,
}

impl Default for Problems {
    fn default() -> Problems {
        Problems::new()
    }
}

impl Problems {
    /// None yet.
    pub const fn new() -> Problems {
        Problems { kept: Vec::new(), room: PROBLEMS_MAX, errors: 0, left_out: 0 }
    }

    /// A list that only counts: to ask whether there would be a problem.
    pub(super) const fn counting() -> Problems {
        Problems { kept: Vec::new(), room: 0, errors: 0, left_out: 0 }
    }

    /// Adds one.
    pub fn push(&mut self, problem: Problem) {
        self.errors += usize::from(problem.severity == Severity::Error);
        if self.kept.len() < self.room {
            self.kept.push(problem);
        } else {
            self.left_out += 1;
        }
    }

    /// Adds an error whose words are costly to find: `problem` is called only if there is room for it.
    pub fn push_error_with(&mut self, problem: impl FnOnce() -> Problem) {
        if self.kept.len() < self.room {
            self.push(problem());
        } else {
            self.errors += 1;
            self.left_out += 1;
        }
    }

    /// Whether the file must be refused.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.left_out == 0
    }

    /// How many there are, with those that were left out.
    pub fn len(&self) -> usize {
        self.kept.len() + self.left_out
    }

    /// How many there was no room for.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Those that were kept, in the order of the file.
    pub fn in_order(&self) -> Vec<&Problem> {
        let mut problems: Vec<&Problem> = self.kept.iter().collect();
        problems.sort_by_key(|problem| (problem.label.place.start, problem.severity));
        problems
    }
}

/// The allowed name that `found` was probably meant to be.
///
/// Case and the choice between `_` and `-` cost nothing, a slip of the finger costs one, and a third of the name may
/// be slips. Failing that, `found` may be the beginning of exactly one name.
pub fn suggest<'a>(found: &str, allowed: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let found = plain(found)?;
    let length = found.chars().count();
    let mut nearest: Option<(usize, &str)> = None;
    let mut longer: Vec<&str> = Vec::new();
    for name in allowed {
        let Some(candidate) = plain(name) else { continue };
        let slips_max = (length.max(candidate.chars().count()) / 3).max(1);
        let slips = strsim::osa_distance(&found, &candidate);
        // A name of one or two letters is one slip away from any other.
        let enough_left = slips < length;
        if slips <= slips_max && enough_left && nearest.is_none_or(|(least, _)| slips < least) {
            nearest = Some((slips, name));
        }
        if length >= 3 && candidate.starts_with(&found) {
            longer.push(name);
        }
    }
    match (nearest, longer.as_slice()) {
        (Some((_, name)), _) => Some(name),
        (None, [name]) => Some(name),
        _ => None,
    }
}

/// A name without what people mix up, if it is short enough to be a name.
fn plain(name: &str) -> Option<String> {
    let short = !name.is_empty() && name.len() <= NAME_CHARS_MAX;
    short.then(|| name.to_lowercase().replace('_', "-"))
}

/// A text as a message repeats it: in quotes, on one line, harmless to a terminal, and not too long.
pub fn shown(text: &str) -> String {
    let mut out = String::from("\"");
    for (count, c) in text.chars().enumerate() {
        if count == SHOWN_CHARS_MAX {
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

/// Characters that change how the text around them is shown.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_miss_finds_its_name() {
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
        assert_eq!(suggest("modell", ["mode", "model"]), Some("model"), "the nearest counts, not the first");
        assert_eq!(suggest("x", ["y"]), None, "nothing is left of it");
        assert_eq!(suggest("slid", ["sliding-log", "sliding-window"]), None, "two names begin like this");
    }

    #[test]
    fn a_repeated_text_is_short_and_harmless() {
        assert_eq!(shown("a\"b\\c\n\u{1b}[31m\u{202e}"), r#""a\"b\\c\n\u{1b}[31m\u{202e}""#);
        assert_eq!(shown("übung"), "\"übung\"");
        assert_eq!(shown(&"x".repeat(1_000)).chars().count(), SHOWN_CHARS_MAX + 3);
    }

    #[test]
    fn a_full_list_still_knows_that_there_were_errors() {
        let mut problems = Problems::new();
        for start in 0..PROBLEMS_MAX {
            problems.push(Problem::warning("w", Place::new(start, start), ""));
        }
        assert!(!problems.has_errors());
        problems.push_error_with(|| unreachable!("there is no room"));
        assert!(problems.has_errors());
        assert_eq!((problems.in_order().len(), problems.left_out(), problems.len()), (1_000, 1, 1_001));
    }

    #[test]
    fn problems_come_in_the_order_of_the_file() {
        let mut problems = Problems::new();
        for (start, code) in [(9, "c"), (1, "a"), (9, "d"), (4, "b")] {
            problems.push(Problem::error(code, Place::new(start, start), ""));
        }
        let codes: Vec<&str> = problems.in_order().iter().map(|problem| problem.code).collect();
        assert_eq!(codes, ["a", "b", "c", "d"]);
    }
}
