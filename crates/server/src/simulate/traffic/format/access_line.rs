//! The combined format of nginx and Apache, and the common format of Traefik: the same fields, then further ones.

use super::quoted::{request_line, split, unescape};
use super::{Skip, Values};

/// The fixed fields, in the order of their slots.
pub(super) const FIELDS: &[&str] = &[
    "remote_addr",
    "remote_user",
    "time_local",
    "method",
    "request_uri",
    "protocol",
    "status",
    "body_bytes_sent",
    "http_referer",
    "http_user_agent",
];

/// The largest number of a further field, as in `extra7`.
const EXTRA_MAX: usize = 32;

/// Reads `ADDRESS - USER [TIME] "REQUEST" STATUS BYTES "REFERER" "AGENT"` and what follows: quoted or plain words, and words
/// like `rt=0.012`, which are separate fields.
#[derive(Clone, Default, Debug)]
pub(in crate::simulate) struct AccessLine {
    /// Further fields in the order of their slots.
    further: Vec<Further>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Further {
    /// The word at this position after the agent.
    At(usize),
    /// The word `NAME=value`.
    Named(String),
}

impl AccessLine {
    pub(super) fn slot(&mut self, field: &str) -> Option<usize> {
        let field = field.trim_start_matches('$');
        if let Some(slot) = FIELDS.iter().position(|known| *known == field) {
            return Some(slot);
        }
        let further = match field.strip_prefix("extra").map(str::parse::<usize>) {
            Some(Ok(number @ 1..=EXTRA_MAX)) => Further::At(number - 1),
            Some(_) => return None,
            None => Further::Named(field.to_owned()),
        };
        let at = self.further.iter().position(|known| *known == further);
        let at = at.unwrap_or_else(|| {
            self.further.push(further);
            self.further.len() - 1
        });
        Some(FIELDS.len() + at)
    }

    #[inline]
    pub(super) fn read<'l>(&self, line: &'l str, values: &mut Values<'l>) -> Result<(), Skip> {
        let parts = parts(line).ok_or(Skip::Unreadable("no time in brackets and no quoted request"))?;
        let (method, target, protocol) = request_line(parts.request).ok_or(Skip::NotARequest)?;
        let fixed =
            [parts.address, parts.user, parts.time, method, target, protocol, parts.status, parts.bytes];
        values.extend(fixed.map(|field| present(field).map(unescape)));
        let mut rest = parts.rest.trim_start();
        for _ in 0..2 {
            let quoted = split(rest);
            values.push(quoted.and_then(|(value, _)| present(value)).map(unescape));
            rest = quoted.map_or("", |(_, after)| after).trim_start();
        }
        if !self.further.is_empty() {
            self.read_further(rest, values);
        }
        Ok(())
    }

    fn read_further<'l>(&self, mut rest: &'l str, values: &mut Values<'l>) {
        values.resize(FIELDS.len() + self.further.len(), None);
        for number in 0.. {
            rest = rest.trim_start();
            let (word, after) = match split(rest) {
                Some((quoted, after)) => (quoted, after),
                None if rest.is_empty() => break,
                None => rest.split_once(' ').unwrap_or((rest, "")),
            };
            rest = after;
            for (further, value) in self.further.iter().zip(&mut values[FIELDS.len()..]) {
                let found = match further {
                    Further::At(position) => (*position == number).then_some(word),
                    Further::Named(name) => {
                        word.strip_prefix(name.as_str()).and_then(|word| word.strip_prefix('='))
                    }
                };
                if let Some(found) = found {
                    let found = found.strip_prefix('"').unwrap_or(found);
                    *value = present(found.strip_suffix('"').unwrap_or(found)).map(unescape);
                }
            }
        }
    }
}

/// The parts of a line, as they are written.
struct Parts<'l> {
    address: &'l str,
    user: &'l str,
    time: &'l str,
    request: &'l str,
    status: &'l str,
    bytes: &'l str,
    rest: &'l str,
}

#[inline]
fn parts(line: &str) -> Option<Parts<'_>> {
    let (address, rest) = line.split_at(memchr::memchr(b' ', line.as_bytes())?);
    // A name of a user may contain spaces and brackets, but the time is followed by a quote.
    let open = memchr::memchr(b'[', rest.as_bytes())?;
    let close = open + memchr::memmem::find(&rest.as_bytes()[open..], b"] \"")?;
    let names = rest[..open].trim_matches(' ');
    let user = names.split_once(' ').map_or(names, |(_ident, user)| user.trim_start());
    let time = &rest[open + 1..close];
    let (request, rest) = split(&rest[close + 2..])?;
    let (status, rest) = word(rest);
    let (bytes, rest) = word(rest);
    Some(Parts { address, user, time, request, status, bytes, rest })
}

#[inline]
fn word(rest: &str) -> (&str, &str) {
    let rest = rest.strip_prefix(' ').unwrap_or(rest);
    rest.split_at(memchr::memchr(b' ', rest.as_bytes()).unwrap_or(rest.len()))
}

/// Servers write `-` for a field without a value.
#[inline]
pub(super) fn present(field: &str) -> Option<&str> {
    Some(field).filter(|field| !field.is_empty() && *field != "-")
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn read(line: &str, fields: &[&str]) -> Result<Vec<Option<String>>, Skip> {
        let mut reader = AccessLine::default();
        let slots: Vec<_> = fields.iter().map(|field| reader.slot(field).expect("a field")).collect();
        let mut values = Vec::new();
        reader.read(line, &mut values)?;
        Ok(slots.iter().map(|slot| values.get(*slot).cloned().flatten().map(Cow::into_owned)).collect())
    }

    fn some(texts: &[&str]) -> Vec<Option<String>> {
        texts.iter().map(|text| (!text.is_empty()).then(|| (*text).to_owned())).collect()
    }

    #[test]
    fn combined_lines_have_their_fields() {
        let line = r#"192.0.2.1 - jane doe [18/Nov/2026:20:03:57 +0000] "GET /a?b=\x22 HTTP/1.1" 200 12 "-" "Mozilla \"x\"" rt=0.012 "203.0.113.9" us="0.01""#;
        let fields =
            ["remote_addr", "remote_user", "time_local", "method", "$request_uri", "status", "http_referer"];
        let expected = ["192.0.2.1", "jane doe", "18/Nov/2026:20:03:57 +0000", "GET", "/a?b=\"", "200", ""];
        assert_eq!(read(line, &fields), Ok(some(&expected)));
        let further = ["http_user_agent", "rt", "extra2", "us", "absent"];
        assert_eq!(read(line, &further), Ok(some(&["Mozilla \"x\"", "0.012", "203.0.113.9", "0.01", ""])));
    }

    #[test]
    fn the_common_format_of_traefik_ends_with_a_duration() {
        let line = r#"192.0.2.1 - - [18/Nov/2026:20:03:57 +0000] "POST /a HTTP/2.0" 200 12 "-" "-" 7 "router@file" "http://10.0.0.1" 12ms"#;
        assert_eq!(read(line, &["remote_user", "extra2", "extra4"]), Ok(some(&["", "router@file", "12ms"])));
    }

    #[test]
    fn lines_without_a_request_and_broken_lines_differ() {
        let tls = r#"192.0.2.1 - - [18/Nov/2026:20:03:57 +0000] "\x16\x03\x01" 400 150 "-" "-""#;
        assert_eq!(read(tls, &[]), Err(Skip::NotARequest));
        for line in ["", "x", "192.0.2.1 - - [18/Nov/2026", r#"192.0.2.1 - - [t] "GET / HTTP/1.1"#, "{}"] {
            assert!(matches!(read(line, &[]), Err(Skip::Unreadable(_))), "{line}");
        }
    }
}
