//! What a request must look like for a rule to apply.

use crate::attributes::Attributes;

/// One attribute and what its value must be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// The attribute's name.
    pub attribute: String,
    /// What its value must be. An attribute that is absent meets no test.
    pub test: Test,
}

/// What a value must be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Test {
    /// One of these, exactly.
    OneOf(Vec<String>),
    /// Anything that starts so.
    Prefix(String),
    /// Anything of this form; `*` stands for any characters, `?` for one.
    Glob(String),
    /// A path of this form, segment by segment.
    Path(PathPattern),
}

/// A path's form: `/v1/items/{id}`, `/files/{*rest}`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathPattern {
    pub(super) segments: Vec<Segment>,
}

/// One segment of a path's form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Segment {
    /// Exactly this.
    Literal(String),
    /// Any one segment that is not empty.
    Any,
    /// All segments from here on, at least one.
    Rest,
}

/// A path's form that makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PathPatternError {
    /// Paths start with a slash.
    #[error("a path pattern starts with `/`")]
    NoSlash,
    /// Braces hold a name, and a segment is either literal or a name.
    #[error("segment {segment:?} must be text, a name in braces like {{id}}, or {{*rest}} at the end")]
    Segment {
        /// The segment.
        segment: String,
    },
    /// Nothing can follow the rest.
    #[error("{{*rest}} takes everything, so it must be the last segment")]
    RestNotLast,
    /// Longer than any path of ours.
    #[error("a path pattern has at most {SEGMENTS_MAX} segments")]
    TooLong,
}

/// More segments than this no pattern needs. No path is searched beyond those of a pattern.
const SEGMENTS_MAX: usize = 64;

impl Condition {
    /// Whether the request meets it.
    pub fn holds(&self, attributes: &Attributes<'_>) -> bool {
        attributes.get(&self.attribute).is_some_and(|value| self.test.holds(value))
    }
}

impl Test {
    /// Whether the value passes.
    pub fn holds(&self, value: &str) -> bool {
        match self {
            Test::OneOf(values) => values.iter().any(|allowed| allowed == value),
            Test::Prefix(prefix) => value.starts_with(prefix.as_str()),
            Test::Glob(pattern) => glob(pattern.as_bytes(), value.as_bytes()),
            Test::Path(pattern) => pattern.matches(value),
        }
    }
}

/// Whether `text` has the form of `pattern`. The work is at most the product of the lengths: after a mismatch only the
/// last `*` is tried again, one character further.
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
            // One character, which may be several bytes.
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
    /// Reads a path's form.
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

    /// Whether a path has this form. A query is not part of it.
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

/// A path's segments; `None` if it is no path.
fn segments_of(path: &str) -> Option<Segments<'_>> {
    Some(Segments { rest: Some(path.as_bytes().strip_prefix(b"/")?) })
}

/// Splits at slashes, up to a query. Bytes, because no character holds a byte of those it splits at.
struct Segments<'p> {
    rest: Option<&'p [u8]>,
}

impl<'p> Iterator for Segments<'p> {
    type Item = &'p [u8];

    fn next(&mut self) -> Option<&'p [u8]> {
        let rest = self.rest?;
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
        let (segment, behind) = rest.split_at(end);
        self.rest = behind.strip_prefix(b"/");
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
    fn globs_match_whole_values() {
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
    fn a_hostile_glob_stays_cheap() {
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
    fn a_wrong_path_pattern_says_what_is_allowed() {
        for pattern in ["v1", "/a{b}", "/{}", "/{*rest}/x", "/{a-b}", "/{"] {
            assert!(PathPattern::parse(pattern).is_err(), "{pattern}");
        }
    }
}
