//! What a proxy was asked for, as rules see it: the path alone, in one form.
//!
//! Servers behind a proxy take `/a`, `/%61`, `//a` and `/./a` for the same. A rule that did not would be passed by whoever
//! writes the path in another way. What is no normal form of the same path stays as it was sent: `%2F` is no `/`.

use std::borrow::Cow;

/// The path of a request's target, without its query; none if there is no path in it.
pub(super) fn path(target: &str) -> Option<Cow<'_, str>> {
    let target = target.split(['?', '#']).next()?;
    let path = match target.split_once("://") {
        _ if target.starts_with('/') => target,
        // Clients may name the whole address.
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

/// The path without empty segments, `.` and `..`, and with nothing escaped that need not be.
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

/// What means the same in a path whether it is escaped or not, besides letters and digits.
const PLAIN: &[u8] = b"-._~!$&'()*+,=:@";

/// Without escapes that need not be; of others only the case of their digits may differ.
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
    fn a_path_has_one_form_however_it_is_written() {
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
    fn what_has_no_path_is_none() {
        for target in ["", "a b", "search", "?q", "://x/search", "1http://x/search", "a b://x/search"] {
            assert_eq!(path(target), None, "{target}");
        }
    }

    #[test]
    fn a_normal_form_is_its_own() {
        for target in ["/%25%36%31", "/.%2e/%2e./a", "/a/b/../../..//c%7e/."] {
            let once = path(target).expect("a path").into_owned();
            // An escaped percent sign stays escaped, so nothing is unescaped twice.
            assert_eq!(path(&once).as_deref(), Some(once.as_str()), "{target}");
        }
    }
}
