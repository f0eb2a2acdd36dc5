//! Readings of a request's path.
//!
//! Proxies and servers do not agree on what a path means: one decodes `%2F` to a slash and another does not, one treats
//! `\` as a slash, one cuts `;parameters`, one decodes twice. A target that they read in several ways gets a small set of
//! [`Readings`], so that a rule can apply if any of them matches, and an exception only if all of them do.
//!
//! A reading is a path in its canonical form: no empty, `.` or `..` segment, letters, digits and `-._~!$&'()*+,=:@;`
//! unescaped, and every other byte escaped with uppercase digits.

use std::borrow::Cow;

/// Name of the attribute that holds the path.
pub const PATH: &str = "path";

/// Largest number of readings of one target. A target with more is refused: no honest client sends one.
pub const READINGS_MAX: usize = 16;

/// Largest number of bytes of a target with several readings. A longer one is refused, which bounds the time.
pub const AMBIGUOUS_BYTES_MAX: usize = 4 * 1024;

/// Whether paths that differ only in the case of ASCII letters are the same path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PathCase {
    /// They are different paths.
    #[default]
    Sensitive,
    /// They are the same path. Readings are in lower case.
    Insensitive,
}

/// What a target can mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Readings<'t> {
    /// Every server reads it like this. Borrowed if it was sent in its canonical form.
    One(Cow<'t, str>),
    /// Servers differ.
    Several {
        /// The reading in which everything is decoded and resolved: `/x%252f..%252fsearch` is `/search`. Subjects are
        /// counted by it, so that spellings of one path share a count.
        folded: String,
        /// The other readings.
        others: Vec<String>,
    },
    /// It has more than [`READINGS_MAX`] readings, or several and more than [`AMBIGUOUS_BYTES_MAX`] bytes.
    TooMany,
}

/// Returns the readings of a request target: a path, with or without a query, or an absolute URL.
///
/// Text that is neither has itself as its only reading. A canonical path costs one pass over its bytes and no allocation.
#[inline]
pub fn readings(target: &str, case: PathCase) -> Readings<'_> {
    let end = plain_len(target.as_bytes(), case);
    match target.as_bytes().get(end) {
        None => Readings::One(Cow::Borrowed(target)),
        Some(b'?' | b'#') if end > 0 => Readings::One(Cow::Borrowed(&target[..end])),
        Some(_) => all_readings(target, case),
    }
}

/// Whether this path was sent in its canonical form, without a query. Then it is its only reading.
#[inline]
pub(crate) fn is_canonical(target: &str, case: PathCase) -> bool {
    plain_len(target.as_bytes(), case) == target.len()
}

/// Whether this is the target of an HTTP request: a path, an absolute URL, or `*`.
pub fn is_target(text: &str) -> bool {
    text == "*" || path_of(text).is_some()
}

/// Returns the canonical form of a path in a rule. `*`, `?` and names in braces keep their meaning.
pub fn canonical_pattern(pattern: &str, case: PathCase) -> String {
    if !pattern.starts_with('/') {
        return pattern.to_owned();
    }
    let escaped = canonical_escapes(pattern.as_bytes(), b"{}?");
    text(resolved(&escaped, Style::PLAIN), case)
}

/// Returns the number of leading bytes that are canonical in any context. A path stops before its query.
#[inline]
fn plain_len(target: &[u8], case: PathCase) -> usize {
    if target.first() != Some(&b'/') {
        return 0;
    }
    let table = match case {
        PathCase::Sensitive => &SPECIAL,
        PathCase::Insensitive => &SPECIAL_IN_ANY_CASE,
    };
    let mut mask = ALWAYS;
    for (at, &byte) in target.iter().enumerate() {
        let entry = table[byte as usize];
        if entry & mask != 0 {
            return at;
        }
        mask = entry >> NEXT;
    }
    target.len()
}

/// The byte is not canonical.
const ALWAYS: u8 = 1;
/// The byte is not canonical after a slash: it ends an empty segment, or begins one of dots.
const AFTER_SLASH: u8 = 2;
/// The bits above this one are the mask for the next byte.
const NEXT: u8 = 4;

const SPECIAL: [u8; 256] = special(false);
const SPECIAL_IN_ANY_CASE: [u8; 256] = special(true);

/// For each byte, when it is not canonical, and what to test of the next byte. One lookup for each byte of a path is all that
/// a canonical one costs.
const fn special(upper_case_too: bool) -> [u8; 256] {
    let (mut table, mut byte) = ([0; 256], 0);
    while byte < 256 {
        let is_special = !PLAIN[byte] || (upper_case_too && (byte as u8).is_ascii_uppercase());
        let own = if is_special { ALWAYS } else { 0 };
        let own = if byte as u8 == b'/' || byte as u8 == b'.' { own | AFTER_SLASH } else { own };
        let next = if byte as u8 == b'/' { ALWAYS | AFTER_SLASH } else { ALWAYS };
        table[byte] = own | next << NEXT;
        byte += 1;
    }
    table
}

/// Bytes that mean the same escaped or not, and the slash.
const PLAIN: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0);
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let (marks, mut at) = (b"-._~!$&'()*+,=:@/", 0);
    while at < marks.len() {
        table[marks[at] as usize] = true;
        at += 1;
    }
    table
};

#[cold]
#[inline(never)]
fn all_readings(target: &str, case: PathCase) -> Readings<'_> {
    let Some(path) = path_of(target) else { return Readings::One(Cow::Borrowed(target)) };
    let mut readings = Set::new(path.len(), case);
    // As it was sent, and as RFC 3986 and most proxies read it.
    let escaped = canonical_escapes(path, b"");
    readings.add(resolved(&escaped, Style::PLAIN));
    readings.add(escaped.clone());
    let decoded = decoded_fully(path);
    let has = |byte: u8| decoded.contains(&byte);
    // Merging slashes before dots are resolved gives another path than merging them afterwards.
    let merging: &[bool] = if has_empty_segment(&decoded) { &[false, true] } else { &[false] };
    let backslash: &[bool] = if has(b'\\') { &[false, true] } else { &[false] };
    let parameters: &[bool] = if has(b';') { &[false, true] } else { &[false] };
    for &merge_last in merging {
        if merge_last {
            readings.add(resolved(&escaped, Style { merge_last, ..Style::PLAIN }));
        }
        for &backslash in backslash {
            for &parameters in parameters {
                let style = Style { backslash, parameters, merge_last };
                let once = resolved(&decoded_once(path), style);
                // Two servers in a row decode twice, and each resolves dots.
                readings.add(escaped_bytes(&resolved(&decoded_once(&once), style)));
                readings.add(escaped_bytes(&once));
                readings.add(escaped_bytes(&resolved(&decoded, style)));
                if readings.is_full() {
                    return Readings::TooMany;
                }
            }
        }
    }
    let end = decoded.iter().position(|byte| matches!(byte, b'?' | b'#' | 0)).unwrap_or(decoded.len());
    let folded = resolved(&decoded[..end], Style { backslash: true, parameters: true, merge_last: false });
    readings.finish(escaped_bytes(&folded))
}

/// Different readings.
struct Set {
    len: usize,
    case: PathCase,
    found: Vec<String>,
}

impl Set {
    fn new(len: usize, case: PathCase) -> Set {
        Set { len, case, found: Vec::new() }
    }

    fn add(&mut self, reading: Vec<u8>) {
        let reading = text(reading, self.case);
        if !self.found.contains(&reading) {
            self.found.push(reading);
        }
    }

    fn is_full(&self) -> bool {
        self.found.len() > READINGS_MAX || (self.found.len() > 1 && self.len > AMBIGUOUS_BYTES_MAX)
    }

    fn finish<'t>(mut self, folded: Vec<u8>) -> Readings<'t> {
        self.add(folded.clone());
        if self.is_full() {
            return Readings::TooMany;
        }
        let folded = text(folded, self.case);
        self.found.retain(|reading| *reading != folded);
        match self.found.is_empty() {
            true => Readings::One(Cow::Owned(folded)),
            false => Readings::Several { folded, others: self.found },
        }
    }
}

/// Returns the path of a target without its query; `None` if it has no path.
fn path_of(target: &str) -> Option<&[u8]> {
    let target = target.split(['?', '#']).next()?;
    match target.split_once("://") {
        _ if target.starts_with('/') => Some(target.as_bytes()),
        // A client may send an absolute URL.
        Some((scheme, rest)) if is_scheme(scheme) => {
            Some(rest.find('/').map_or(&b"/"[..], |at| &rest.as_bytes()[at..]))
        }
        _ => None,
    }
}

fn is_scheme(scheme: &str) -> bool {
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

/// How a server reads a path that is decoded.
#[derive(Clone, Copy)]
struct Style {
    /// A backslash is a slash.
    backslash: bool,
    /// `;` and what follows is not part of a segment.
    parameters: bool,
    /// `..` removes an empty segment like any other.
    merge_last: bool,
}

impl Style {
    const PLAIN: Style = Style { backslash: false, parameters: false, merge_last: false };
}

/// Returns the path without empty segments, `.` and `..`.
fn resolved(path: &[u8], style: Style) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut is_folder = false;
    let is_slash = |byte: &u8| *byte == b'/' || (style.backslash && *byte == b'\\');
    for segment in path.split(is_slash).skip(1) {
        let cut = segment.iter().position(|byte| style.parameters && *byte == b';').unwrap_or(segment.len());
        let segment = &segment[..cut];
        is_folder = matches!(segment, b"" | b"." | b"..");
        match segment {
            b"" if style.merge_last => kept.push(segment),
            b"" | b"." => (),
            b".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
    }
    let mut whole = Vec::with_capacity(path.len() + 1);
    for segment in kept.into_iter().filter(|segment| !segment.is_empty()) {
        whole.push(b'/');
        whole.extend_from_slice(segment);
    }
    if is_folder || whole.is_empty() {
        whole.push(b'/');
    }
    whole
}

/// Whether the path has an empty segment before its last.
fn has_empty_segment(path: &[u8]) -> bool {
    let is_slash = |byte: u8| matches!(byte, b'/' | b'\\');
    path.windows(2).any(|pair| is_slash(pair[0]) && (is_slash(pair[1]) || pair[1] == b';'))
}

/// The byte that two hexadecimal digits after a `%` stand for.
fn escape_at(path: &[u8], at: usize) -> Option<u8> {
    let [b'%', high, low] = *path.get(at..at + 3)? else { return None };
    let digit = |digit: u8| char::from(digit).to_digit(16);
    Some((digit(high)? * 16 + digit(low)?) as u8)
}

/// Removes unnecessary escapes, writes the others in upper case, and escapes what must be. A slash, a backslash, a
/// semicolon and a percent sign stay escaped. `also` are further bytes that stay as they are.
fn canonical_escapes(path: &[u8], also: &[u8]) -> Vec<u8> {
    let mut canonical = Vec::with_capacity(path.len() + 8);
    let mut at = 0;
    while let Some(&byte) = path.get(at) {
        match escape_at(path, at) {
            Some(escaped) => {
                push(&mut canonical, escaped, PLAIN[escaped as usize] && escaped != b'/');
                at += 3;
            }
            None => {
                push(&mut canonical, byte, PLAIN[byte as usize] || byte == b';' || also.contains(&byte));
                at += 1;
            }
        }
    }
    canonical
}

/// Escapes the bytes of a decoded path.
fn escaped_bytes(path: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(path.len() + 8);
    path.iter().for_each(|&byte| push(&mut escaped, byte, PLAIN[byte as usize] || byte == b';'));
    escaped
}

fn push(path: &mut Vec<u8>, byte: u8, is_plain: bool) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if is_plain {
        path.push(byte);
    } else {
        path.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// Decodes every escape once.
fn decoded_once(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut at = 0;
    while let Some(&byte) = path.get(at) {
        let escaped = escape_at(path, at);
        decoded.push(escaped.unwrap_or(byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    decoded
}

/// Decodes escapes until none is left, in one pass, and the two-byte forms of ASCII characters that are not valid UTF-8.
fn decoded_fully(path: &[u8]) -> Vec<u8> {
    let mut decoded: Vec<u8> = Vec::with_capacity(path.len());
    for &byte in path {
        decoded.push(byte);
        // A decoded byte can complete another escape.
        loop {
            let len = decoded.len();
            let last = match *decoded {
                [.., b'%', _, _] => escape_at(&decoded, len - 3).map(|byte| (3, byte)),
                [.., lead @ (0xC0 | 0xC1), rest @ 0x80..=0xBF] => Some((2, (lead & 1) << 6 | (rest & 0x3F))),
                _ => None,
            };
            let Some((replaced, byte)) = last else { break };
            decoded.truncate(len - replaced);
            decoded.push(byte);
        }
    }
    decoded
}

/// The canonical form as text. All its bytes are ASCII.
fn text(path: Vec<u8>, case: PathCase) -> String {
    let mut path = path;
    if case == PathCase::Insensitive {
        let mut at = 0;
        while let Some(byte) = path.get_mut(at) {
            let is_escape = *byte == b'%';
            byte.make_ascii_lowercase();
            // The digits of an escape stay in upper case.
            at += if is_escape { 3 } else { 1 };
        }
    }
    String::from_utf8(path).unwrap_or_default()
}

/// Asserts what holds for the readings of any target. For fuzzing.
#[doc(hidden)]
pub fn assert_readings_hold(target: &str, case: PathCase) {
    let (first, others) = match readings(target, case) {
        Readings::One(path) => (path.into_owned(), Vec::new()),
        Readings::Several { folded, others } => (folded, others),
        Readings::TooMany => return,
    };
    assert!(others.len() < READINGS_MAX);
    let Some(path) = path_of(target) else {
        assert_eq!((first.as_str(), others.len()), (target, 0), "text that is no path is unchanged");
        return;
    };
    let mut seen = vec![first.as_str()];
    for reading in &others {
        assert!(!seen.contains(&reading.as_str()), "{target}: {reading} occurs twice");
        seen.push(reading);
    }
    for reading in seen {
        assert!(reading.starts_with('/') && reading.is_ascii(), "{target}: {reading}");
        assert!(reading.len() <= 3 * path.len() + 1, "{target}: {reading}");
        assert!(!reading.contains(['?', '#', '\\', ' ']), "{target}: {reading}");
        // Each reading is in the canonical form of its characters.
        let escapes = text(canonical_escapes(reading.as_bytes(), b""), case);
        assert_eq!(escapes, reading, "{target}");
    }
    let is_dots = |segment: &str| matches!(segment, "" | "." | "..");
    let segments = first.strip_prefix('/').unwrap_or(&first);
    let inner = segments.strip_suffix('/').unwrap_or(segments);
    assert!(inner.is_empty() || !inner.split('/').any(is_dots), "{target}: {first}");
    // The folded reading is one that every server reads alike, as far as escapes go.
    assert!(!first.contains("%2F") && !first.contains("%5C") && !first.contains(';'), "{target}: {first}");
    let again = readings(&first, case);
    assert_eq!(again, Readings::One(Cow::Borrowed(first.as_str())), "{target}");
}

#[cfg(test)]
mod tests;
