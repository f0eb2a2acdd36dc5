//! Quoted parts of access logs and their escapes.

use std::borrow::Cow;

use crate::serve::edge::lossless_text::lossless_text;

/// Splits a line that starts with a quote after its closing quote. A backslash escapes the next character.
#[inline]
pub(super) fn split(line: &str) -> Option<(&str, &str)> {
    let inner = line.strip_prefix('"')?;
    let bytes = inner.as_bytes();
    let mut from = 0;
    loop {
        let end = from + memchr::memchr2(b'"', b'\\', &bytes[from..])?;
        if bytes[end] == b'"' {
            return Some((&inner[..end], &inner[end + 1..]));
        }
        from = end + 2;
        if from > bytes.len() {
            return None;
        }
    }
}

/// Resolves the escapes of nginx (`\x22`) and Apache (`\"`).
#[inline]
pub(super) fn unescape(text: &str) -> Cow<'_, str> {
    if memchr::memchr(b'\\', text.as_bytes()).is_none() { Cow::Borrowed(text) } else { resolved(text) }
}

#[cold]
fn resolved(text: &str) -> Cow<'_, str> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let hexadecimal = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
        match after {
            [b'x' | b'X', high, low, further @ ..]
                if hexadecimal(high).is_some() && hexadecimal(low).is_some() =>
            {
                out.push(hexadecimal(high).unwrap_or(0) << 4 | hexadecimal(low).unwrap_or(0));
                rest = further;
            }
            [escaped @ (b'n' | b't' | b'r' | b'"' | b'\\'), further @ ..] => {
                out.push(match escaped {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    other => *other,
                });
                rest = further;
            }
            _ => out.push(byte),
        }
    }
    Cow::Owned(lossless_text(&out).into_owned())
}

/// Divides a request line into method, target and protocol. Returns `None` for what is not HTTP.
#[inline]
pub(super) fn request_line(request: &str) -> Option<(&str, &str, &str)> {
    let bytes = request.as_bytes();
    let first = memchr::memchr(b' ', bytes)?;
    let last = memchr::memrchr(b' ', bytes)?;
    let method = &request[..first];
    let is_method = !method.is_empty()
        && method.len() <= 32
        && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-' || byte == b'_');
    if !is_method || last <= first || !request[last + 1..].starts_with("HTTP/") {
        return None;
    }
    Some((method, &request[first + 1..last], &request[last + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_nginx_and_apache_are_resolved() {
        assert_eq!(split(r#""a\"b" rest"#), Some((r#"a\"b"#, " rest")));
        assert_eq!(split(r#""unclosed\""#), None);
        assert_eq!(split(r#""cut short\"#), None);
        assert_eq!(unescape(r#"\x22a\"\\\x"#), r#""a"\\x"#);
        assert_eq!(unescape("plain"), "plain");
        assert_ne!(unescape(r"\xff"), unescape(r"\xfe"), "bytes that are not UTF-8 stay different");
    }

    #[test]
    fn a_request_line_has_three_parts() {
        assert_eq!(request_line("GET /a b HTTP/1.1"), Some(("GET", "/a b", "HTTP/1.1")));
        for text in ["", "-", "GET /", r"\x16\x03\x01", "GET HTTP/1.1", "GET / FTP/1"] {
            assert_eq!(request_line(text), None, "{text}");
        }
    }
}
