//! Tests of an attribute's value, as conditions of a rules file.

use super::rules_file::scalar;

/// The values that a condition accepts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ValueTest {
    /// Exactly one of these.
    OneOf(Vec<String>),
    /// What matches the pattern, except what an excluded value or pattern matches.
    Like { pattern: Pattern, not_values: Vec<String>, not_patterns: Vec<Pattern> },
}

/// A set of texts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Pattern {
    Prefix(String),
    /// A text with `*` for any characters. It has at least one `*` before its end, and no `?`.
    Glob(String),
}

impl Pattern {
    pub(super) const ANY: Pattern = Pattern::Prefix(String::new());

    /// Reads a text with `*` for any characters. Returns `None` if a rules file cannot express it.
    pub(super) fn with_stars(text: &str) -> Option<Pattern> {
        match text.strip_suffix('*') {
            Some(prefix) if !prefix.contains('*') => Some(Pattern::Prefix(prefix.to_owned())),
            // A `?` beside a `*` stands for one character.
            _ => (!text.contains('?')).then(|| Pattern::Glob(text.to_owned())),
        }
    }

    pub(super) fn matches(&self, value: &str) -> bool {
        match self {
            Pattern::Prefix(prefix) => value.starts_with(prefix.as_str()),
            Pattern::Glob(glob) => glob_matches(glob, value),
        }
    }

    /// Whether no text can match both. `false` if it is not obvious.
    pub(super) fn is_disjoint(&self, other: &Pattern) -> bool {
        let (one, two) = (self.ends(), other.ends());
        let prefixes = one.0.starts_with(two.0) || two.0.starts_with(one.0);
        let suffixes = one.1.ends_with(two.1) || two.1.ends_with(one.1);
        !prefixes || !suffixes
    }

    /// What every matching text starts and ends with.
    fn ends(&self) -> (&str, &str) {
        match self {
            Pattern::Prefix(prefix) => (prefix, ""),
            Pattern::Glob(glob) => {
                (glob.split('*').next().unwrap_or_default(), glob.rsplit('*').next().unwrap_or_default())
            }
        }
    }

    /// Formats an item of `not`.
    fn excluded_text(&self) -> String {
        match self {
            // `*` ends a prefix, so one inside needs the long form.
            Pattern::Prefix(prefix) if prefix.contains('*') => format!("{{ prefix: {} }}", scalar(prefix)),
            Pattern::Prefix(prefix) => scalar(&format!("{prefix}*")),
            Pattern::Glob(glob) => scalar(glob),
        }
    }
}

/// Whether a text matches a glob: the parts between the stars follow each other in it.
fn glob_matches(glob: &str, value: &str) -> bool {
    let parts: Vec<&str> = glob.split('*').collect();
    let [first, middle @ .., last] = parts.as_slice() else { return glob == value };
    let Some(mut rest) = value.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else {
        return false;
    };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

impl ValueTest {
    pub(super) fn is(value: &str) -> ValueTest {
        ValueTest::OneOf(vec![value.to_owned()])
    }

    pub(super) const fn like(pattern: Pattern) -> ValueTest {
        ValueTest::Like { pattern, not_values: Vec::new(), not_patterns: Vec::new() }
    }

    /// Whether it accepts every value.
    pub(super) fn is_any(&self) -> bool {
        *self == ValueTest::like(Pattern::ANY)
    }

    pub(super) fn accepts(&self, value: &str) -> bool {
        match self {
            ValueTest::OneOf(values) => values.iter().any(|each| each == value),
            ValueTest::Like { pattern, not_values, not_patterns } => {
                pattern.matches(value)
                    && !not_values.iter().any(|each| each == value)
                    && !not_patterns.iter().any(|each| each.matches(value))
            }
        }
    }

    /// Formats the condition.
    pub(super) fn text(&self) -> String {
        match self {
            ValueTest::OneOf(values) => values_text(values),
            ValueTest::Like { pattern, not_values, not_patterns } => {
                let base = match pattern {
                    Pattern::Prefix(prefix) if prefix.is_empty() => None,
                    Pattern::Prefix(prefix) => Some(format!("prefix: {}", scalar(prefix))),
                    Pattern::Glob(glob) => Some(format!("pattern: {}", scalar(glob))),
                };
                let values = not_values.iter().map(|value| match value.contains('*') {
                    true => format!("{{ is: {} }}", scalar(value)),
                    false => scalar(value),
                });
                let excluded: Vec<String> =
                    values.chain(not_patterns.iter().map(Pattern::excluded_text)).collect();
                let not = match excluded.as_slice() {
                    [] => None,
                    [only] => Some(format!("not: {only}")),
                    many => Some(format!("not: [{}]", many.join(", "))),
                };
                let parts: Vec<String> = base.into_iter().chain(not).collect();
                // Any value: an empty prefix.
                if parts.is_empty() {
                    "{ prefix: \"\" }".to_owned()
                } else {
                    format!("{{ {} }}", parts.join(", "))
                }
            }
        }
    }
}

fn values_text(values: &[String]) -> String {
    let texts: Vec<String> = values.iter().map(|value| scalar(value)).collect();
    let are_plain = values.iter().zip(&texts).all(|(value, text)| value == text);
    match (texts.as_slice(), are_plain) {
        ([only], true) => only.clone(),
        ([only], false) => format!("{{ is: {only} }}"),
        (many, true) => format!("[{}]", many.join(", ")),
        (many, false) => format!("{{ is: [{}] }}", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters_and_parts_do_not_overlap() {
        for (pattern, value, expected) in [
            ("bar*b", "barb", true),
            ("bar*b", "bar-x-b", true),
            ("bar*b", "bar", false),
            ("ab*bc", "abc", false),
            ("*a*", "xay", true),
            ("a*b*c", "axbyc", true),
            ("a*b*c", "axc", false),
            ("foo*", "foo", true),
            ("*", "", true),
        ] {
            let pattern = Pattern::with_stars(pattern).expect("no question mark");
            assert_eq!(pattern.matches(value), expected, "{pattern:?} {value}");
        }
        assert_eq!(Pattern::with_stars("a?*b"), None);
        assert_eq!(Pattern::with_stars("a?*"), Some(Pattern::Prefix("a?".to_owned())));
    }
}
