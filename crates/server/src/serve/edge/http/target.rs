//! The target of a forwarded request, as rules see it: the path alone, in its normal form.
//!
//! Servers behind a proxy treat `/a`, `/%61`, `//a` and `/./a` as the same path. If rules did not, a client could avoid
//! them by another spelling. Only equal paths are unified: `%2F` differs from `/`.

use std::borrow::Cow;

/// The path of a request target, without its query; `None` if there is none.
pub(super) fn path(target: &str) -> Option<Cow<'_, str>> {
    let target = target.split(['?', '#']).next()?;
    let path = match target.split_once("://") {
        _ if target.starts_with('/') => target,
        // A client may send an absolute URL.
        Some((scheme, rest)) if is_scheme(scheme) => rest.find('/').map_or("/", |at| &rest[at..]),
        _ if target == "*" => return Some(Cow::Borrowed(target)),
        _ => return None,
    };
    let is_normal = !path.contains('%') && !path.contains("//") && !path.contains("/.");
    Some(if is_normal { Cow::Borrowed(path) } else { Cow::Owned(normal(path)) })
}

fn is_scheme(scheme: &str) -> bool {
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

/// The path without empty segments, `.`, `..` and unnecessary escapes.
fn normal(path: &str) -> String {
    let mut kept: Vec<Cow<'_, str>> = Vec::new();
    let mut is_folder = false;
    for segment in path.split('/') {
        let segment = unescaped(segment);
        is_folder = matches!(&*segment, "" | "." | "..");
        match &*segment {
            "" | "." => (),
            ".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
    }
    let mut normal = String::with_capacity(path.len());
    for segment in &kept {
        normal.push('/');
        normal.push_str(segment);
    }
    if is_folder {
        normal.push('/');
    }
    normal
}

/// Bytes that mean the same escaped or not, besides letters and digits.
const PLAIN: &[u8] = b"-._~!$&'()*+,=:@";

/// Removes unnecessary escapes and writes the others in upper case.
fn unescaped(segment: &str) -> Cow<'_, str> {
    if !segment.contains('%') {
        return Cow::Borrowed(segment);
    }
    let mut plain = String::with_capacity(segment.len());
    let mut pieces = segment.split('%');
    plain.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let escaped = piece.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped.filter(|_| !piece.starts_with('+')) {
            Some(byte) if byte.is_ascii_alphanumeric() || PLAIN.contains(&byte) => {
                plain.push(byte.into());
                plain.push_str(&piece[2..]);
            }
            Some(_) => {
                plain.push('%');
                plain.push_str(&piece[..2].to_ascii_uppercase());
                plain.push_str(&piece[2..]);
            }
            None => {
                plain.push('%');
                plain.push_str(piece);
            }
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_path_has_one_normal_form() {
        for (target, expected) in [
            ("/search", "/search"),
            ("/search?q=/../x", "/search"),
            ("/search#top", "/search"),
            ("/search?q=<b>&r=`", "/search"),
            ("/%73ear%63h", "/search"),
            ("//search", "/search"),
            ("/./search", "/search"),
            ("/a/../search", "/search"),
            ("/a/%2e%2E/search", "/search"),
            ("/../../search", "/search"),
            ("/search/", "/search/"),
            ("/search//", "/search/"),
            ("/search/.", "/search/"),
            ("/search/a/..", "/search/"),
            ("/", "/"),
            ("//", "/"),
            ("/..", "/"),
            ("/v1/things%3Asearch", "/v1/things:search"),
            ("/%40me%2a", "/@me*"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%", "/a%"),
            ("/a%4", "/a%4"),
            ("/a%zz%+1", "/a%zz%+1"),
            ("/%C3%A4", "/%C3%A4"),
            ("/%ä", "/%ä"),
            ("/...", "/..."),
            ("/a<b`c", "/a<b`c"),
            ("http://shop.example/search?q", "/search"),
            ("http://shop.example", "/"),
            ("/x://y", "/x:/y"),
            ("*", "*"),
        ] {
            assert_eq!(path(target).as_deref(), Some(expected), "{target}");
        }
    }

    #[test]
    fn a_target_without_a_path_is_rejected() {
        for target in ["", "a b", "search", "?q", "://x/search", "1http://x/search", "a b://x/search"] {
            assert_eq!(path(target), None, "{target}");
        }
    }

    #[test]
    fn normalisation_is_idempotent() {
        for target in ["/%25%36%31", "/.%2e/%2e./a", "/a/b/../../..//c%7e/."] {
            let once = path(target).expect("a path").into_owned();
            // An escaped percent sign stays escaped, so nothing is unescaped twice.
            assert_eq!(path(&once).as_deref(), Some(once.as_str()), "{target}");
        }
    }
}
