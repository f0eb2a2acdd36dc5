//! Conditions: which attribute values a request must have for a rule to match.

use super::exclusion::Exclusion;
use crate::attributes::Attributes;

/// A test of one attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// The attribute's name.
    pub attribute: String,
    /// The test of its value. An absent attribute passes no test.
    pub test: Test,
}

/// A test of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Test {
    /// The value is exactly one of these.
    OneOf(Vec<String>),
    /// The value starts with this.
    Prefix(String),
    /// The value matches this glob. `*` stands for any characters, `?` for one character.
    Glob(String),
    /// The value is a path that matches this pattern, segment by segment.
    Path(PathPattern),
    /// The value passes a test and is not excluded.
    Except(Box<Exclusion>),
}

/// A path pattern, such as `/v1/items/{id}` or `/files/{*rest}`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathPattern {
    pub(super) segments: Vec<Segment>,
}

/// One segment of a path pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Segment {
    /// Exactly this text.
    Literal(String),
    /// Any segment that is not empty.
    Any,
    /// All remaining segments, at least one.
    Rest,
}

/// Why a path pattern is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PathPatternError {
    /// The pattern does not start with a slash.
    #[error("path pattern does not start with `/`")]
    NoSlash,
    /// A segment is neither text nor a name in braces.
    #[error("invalid segment {segment:?}; use text, a name in braces like {{id}}, or {{*rest}} at the end")]
    Segment {
        /// The segment.
        segment: String,
    },
    /// A segment follows the rest.
    #[error("{{*rest}} is not the last segment; it matches everything that follows")]
    RestNotLast,
    /// The pattern has too many segments.
    #[error("path pattern has more than {SEGMENTS_MAX} segments")]
    TooLong,
}

/// Largest number of segments in a pattern. It also bounds how much of a path is compared.
const SEGMENTS_MAX: usize = 64;

impl Condition {
    /// Whether the request meets the condition.
    pub fn holds(&self, attributes: &Attributes<'_>) -> bool {
        attributes.get(&self.attribute).is_some_and(|value| self.test.holds(value))
    }
}

impl Test {
    /// Returns the test that values must pass, without its exclusions.
    pub fn required(&self) -> &Test {
        match self {
            Test::Except(exclusion) => exclusion.base().required(),
            test => test,
        }
    }

    /// Whether the value passes the test.
    pub fn holds(&self, value: &str) -> bool {
        match self {
            Test::OneOf(values) => values.iter().any(|allowed| allowed == value),
            Test::Prefix(prefix) => value.starts_with(prefix.as_str()),
            Test::Glob(pattern) => glob(pattern.as_bytes(), value.as_bytes()),
            Test::Path(pattern) => pattern.matches(value),
            Test::Except(exclusion) => exclusion.holds(value),
        }
    }
}

/// Whether `text` matches `pattern`. The work is at most the product of the lengths: after a mismatch, only the last `*`
/// is tried again, one character further.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&byte) if byte == text[t] => (p, t) = (p + 1, t + 1),
            // `?` matches one character, which can be several bytes.
            Some(b'?') => {
                p += 1;
                t += 1;
                while text.get(t).is_some_and(|byte| byte & 0xC0 == 0x80) {
                    t += 1;
                }
            }
            _ => match star {
                Some((star_p, star_t)) => {
                    (p, t) = (star_p + 1, star_t + 1);
                    star = Some((star_p, star_t + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

impl PathPattern {
    /// Parses a path pattern.
    pub fn parse(text: &str) -> Result<PathPattern, PathPatternError> {
        let rest = text.strip_prefix('/').ok_or(PathPatternError::NoSlash)?;
        let segments = rest.split('/').map(segment).collect::<Result<Vec<_>, _>>()?;
        if segments.len() > SEGMENTS_MAX {
            return Err(PathPatternError::TooLong);
        }
        let rest_at = segments.iter().position(|segment| *segment == Segment::Rest);
        if rest_at.is_some_and(|at| at + 1 < segments.len()) {
            return Err(PathPatternError::RestNotLast);
        }
        Ok(PathPattern { segments })
    }

    /// Whether a path matches. The query is ignored.
    pub fn matches(&self, path: &str) -> bool {
        let Some(mut parts) = segments_of(path) else { return false };
        for segment in &self.segments {
            match (segment, parts.next()) {
                (Segment::Rest, part) => return part.is_some_and(|part| !part.is_empty()),
                (Segment::Any, Some(part)) if !part.is_empty() => (),
                (Segment::Literal(literal), Some(part)) if part == literal.as_bytes() => (),
                _ => return false,
            }
        }
        parts.next().is_none()
    }
}

/// Returns the segments of a path, or `None` if it does not start with a slash.
fn segments_of(path: &str) -> Option<Segments<'_>> {
    Some(Segments { rest: Some(path.as_bytes().strip_prefix(b"/")?) })
}

/// Splits at slashes, up to the query. It works on bytes: the separators are ASCII and never part of another character.
struct Segments<'p> {
    rest: Option<&'p [u8]>,
}

impl<'p> Iterator for Segments<'p> {
    type Item = &'p [u8];

    fn next(&mut self) -> Option<&'p [u8]> {
        let rest = self.rest?;
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
        let (segment, tail) = rest.split_at(end);
        self.rest = tail.strip_prefix(b"/");
        Some(segment)
    }
}

fn segment(text: &str) -> Result<Segment, PathPatternError> {
    let wrong = || PathPatternError::Segment { segment: text.to_owned() };
    let Some(name) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
        return if text.contains(['{', '}']) { Err(wrong()) } else { Ok(Segment::Literal(text.to_owned())) };
    };
    let (segment, name) = match name.strip_prefix('*') {
        Some(name) => (Segment::Rest, name),
        None => (Segment::Any, name),
    };
    let named = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if named { Ok(segment) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_matches_the_whole_value() {
        for (pattern, text, matches) in [
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
            ("a?c", "aéc", true),
            ("a?c", "ac", false),
            ("*a*b*", "xxaxxbxx", true),
            ("", "a", false),
            ("**", "abc", true),
        ] {
            assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), matches, "{pattern} {text}");
        }
    }

    #[test]
    fn a_glob_with_many_stars_takes_bounded_work() {
        let pattern = "*a".repeat(500);
        let text = "a".repeat(499) + "b";
        assert!(!glob(pattern.as_bytes(), text.as_bytes()));
    }

    #[test]
    fn paths_match_segment_by_segment() {
        for (pattern, path, matches) in [
            ("/v1/items/{id}", "/v1/items/7", true),
            ("/v1/items/{id}", "/v1/items/7?x=/y", true),
            ("/v1/items/{id}", "/v1/items/", false),
            ("/v1/items/{id}", "/v1/items/7/8", false),
            ("/v1/items/{id}", "/v1/items", false),
            ("/files/{*rest}", "/files/a/b/c", true),
            ("/files/{*rest}", "/files/", false),
            ("/", "/", true),
            ("/a/", "/a", false),
            ("/a", "a", false),
        ] {
            assert_eq!(PathPattern::parse(pattern).unwrap().matches(path), matches, "{pattern} {path}");
        }
    }

    #[test]
    fn invalid_path_patterns_are_rejected() {
        for pattern in ["v1", "/a{b}", "/{}", "/{*rest}/x", "/{a-b}", "/{"] {
            assert!(PathPattern::parse(pattern).is_err(), "{pattern}");
        }
    }
}
