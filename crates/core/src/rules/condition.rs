//! Conditions: which attribute values a request must have for a rule to match.

use core::net::IpAddr;

use super::exclusion::Exclusion;
use super::hashed::HashedValues;
use super::subject_selector::ADDRESS;
use crate::request::attributes::Attributes;
use crate::request::client_address::Cidr;
use crate::request::path::PATH;

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
    /// The value is an address, or a block of addresses, inside one of these blocks.
    Address(Vec<Cidr>),
    /// The value passes a test and is not excluded.
    Except(Box<Exclusion>),
    /// The keyed hash of the value is one of these. For live changes about secrets.
    Hashed(Box<HashedValues>),
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
    /// Whether the request meets the condition. If its path has several readings, one of them is enough.
    #[inline]
    pub fn holds(&self, attributes: &Attributes<'_>) -> bool {
        let readings = attributes.path_readings();
        self.holds_first(attributes)
            || (!readings.is_empty()
                && self.attribute == PATH
                && readings.iter().any(|reading| self.test.holds(reading)))
    }

    /// Whether the request meets the condition whichever way its path is read.
    pub fn holds_in_every_reading(&self, attributes: &Attributes<'_>) -> bool {
        self.holds_first(attributes)
            && (self.attribute != PATH
                || attributes.path_readings().iter().all(|reading| self.test.holds(reading)))
    }

    #[inline]
    fn holds_first(&self, attributes: &Attributes<'_>) -> bool {
        if let Test::Address(blocks) = &self.test
            && self.attribute == ADDRESS
            && let Some(address) = attributes.client_address()
        {
            return blocks.iter().any(|block| block.contains(address));
        }
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
            Test::Address(blocks) => is_inside(value, blocks),
            Test::Except(exclusion) => exclusion.holds(value),
            Test::Hashed(hashed) => hashed.holds(value),
        }
    }
}

/// Whether an address, or a whole block of addresses, is inside one of the blocks.
fn is_inside(value: &str, blocks: &[Cidr]) -> bool {
    if let Ok(address) = value.parse::<IpAddr>() {
        return blocks.iter().any(|block| block.contains(address));
    }
    let Ok(whole) = value.parse::<Cidr>() else { return false };
    blocks.iter().any(|block| block.contains_block(&whole))
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
    fn an_address_test_takes_addresses_and_blocks_of_both_families() {
        let test = |blocks: &[&str]| {
            Test::Address(blocks.iter().map(|block| block.parse().expect("a block")).collect())
        };
        for (blocks, value, holds) in [
            (&["2001:db8::1"][..], "2001:db8::1", true),
            (&["2001:db8::1"], "2001:0db8:0::0001", true),
            (&["2001:db8::1"], "2001:db8::2", false),
            (&["2001:db8::1"], "2001:db8::/64", false),
            (&["2001:db8::/32"], "2001:db8:5::/64", true),
            (&["2001:db8:5::/64"], "2001:db8::/32", false),
            (&["192.0.2.0/24"], "192.0.2.77", true),
            (&["192.0.2.0/24"], "::ffff:192.0.2.77", true),
            (&["::ffff:192.0.2.0/120"], "192.0.2.77", true),
            (&["192.0.2.0/24"], "192.0.3.1", false),
            (&["198.51.100.7", "10.0.0.0/8"], "10.1.2.3", true),
            (&["0.0.0.0/0"], "::1", false),
            (&["0.0.0.0/0"], "unknown", false),
            (&["0.0.0.0/0"], "", false),
        ] {
            assert_eq!(test(blocks).holds(value), holds, "{blocks:?} {value}");
        }
    }

    #[test]
    fn a_condition_on_the_address_tests_the_whole_address_and_not_the_block_that_is_counted() {
        let block = |text: &str| Test::Address(vec![text.parse().expect("a block")]);
        let condition = Condition { attribute: "ip".to_owned(), test: block("2001:db8::1") };
        let mut attributes = Attributes::from([("ip", "2001:db8::/64")]);
        assert!(!condition.holds(&attributes));
        attributes.set_client_address("2001:db8::1".parse().expect("an address"));
        assert!(condition.holds(&attributes));
        // Another attribute has its own value.
        let other = Condition { attribute: "peer".to_owned(), test: block("2001:db8::1") };
        assert!(!other.holds(&attributes));
    }

    #[test]
    fn a_condition_on_the_path_holds_in_any_reading_or_in_every_one() {
        let condition =
            |path: &str| Condition { attribute: "path".to_owned(), test: Test::OneOf(vec![path.to_owned()]) };
        let others = ["/b".to_owned(), "/c".to_owned()];
        let mut attributes = Attributes::from([("user", "/b")]);
        attributes.set_path_readings("/a", &others);
        for (path, any, every) in
            [("/a", true, false), ("/b", true, false), ("/c", true, false), ("/d", false, false)]
        {
            assert_eq!(condition(path).holds(&attributes), any, "{path}");
            assert_eq!(condition(path).holds_in_every_reading(&attributes), every, "{path}");
        }
        let all = Condition { attribute: "path".to_owned(), test: Test::Prefix("/".to_owned()) };
        assert!(all.holds_in_every_reading(&attributes));
        let user = Condition { attribute: "user".to_owned(), test: Test::OneOf(vec!["/a".to_owned()]) };
        assert!(!user.holds(&attributes), "readings belong to the path");
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
