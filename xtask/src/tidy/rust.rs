//! A small lexer of Rust: distinguishes code, comments and strings, and finds paths, modules and attributes.
//!
//! It expects code that compiles. For other input it guarantees only that it terminates.

/// What is in a source file.
pub(super) struct Source<'a> {
    pub(super) tokens: Vec<Token<'a>>,
    pub(super) comments: Vec<Comment<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) line: usize,
    pub(super) kind: Kind<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    Ident(&'a str),
    Punct(char),
    /// A string literal, without its quotes.
    Text(&'a str),
    Integer,
    Float,
    /// A character or a lifetime.
    Quoted,
}

pub(super) struct Comment<'a> {
    pub(super) line: usize,
    pub(super) text: &'a str,
}

/// A path as the compiler sees it: `a::{b, c::d}` is two of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Path<'a> {
    pub(super) line: usize,
    /// The first is empty if something other than a name precedes the first `::`.
    pub(super) segments: Vec<&'a str>,
}

/// `#[…]` or `#![…]`.
pub(super) struct Attribute<'s, 'a> {
    pub(super) line: usize,
    /// What is between the brackets.
    pub(super) tokens: &'s [Token<'a>],
}

impl<'a> Source<'a> {
    pub(super) fn read(text: &'a str) -> Self {
        let mut reader =
            Reader { text, at: 0, line: 1, source: Source { tokens: Vec::new(), comments: Vec::new() } };
        while reader.at < text.len() {
            reader.step();
        }
        reader.source
    }

    /// Lines on which a macro of one of these names is called.
    pub(super) fn macro_calls(&self, names: &[&str]) -> Vec<(usize, &'a str)> {
        let calls = self.tokens.windows(2).filter_map(|pair| match (pair[0].kind, pair[1].kind) {
            (Kind::Ident(name), Kind::Punct('!')) if names.contains(&name) => Some((pair[0].line, name)),
            _ => None,
        });
        calls.collect()
    }

    /// The names of all functions.
    pub(super) fn functions(&self) -> impl Iterator<Item = &'a str> {
        self.tokens.windows(2).filter_map(|pair| match (pair[0].kind, pair[1].kind) {
            (Kind::Ident("fn"), Kind::Ident(name)) => Some(name),
            _ => None,
        })
    }

    pub(super) fn attributes(&self) -> Vec<Attribute<'_, 'a>> {
        let mut attributes = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            let open = match (self.kind(at), self.kind(at + 1), self.kind(at + 2)) {
                (Some(Kind::Punct('#')), Some(Kind::Punct('[')), _) => at + 1,
                (Some(Kind::Punct('#')), Some(Kind::Punct('!')), Some(Kind::Punct('['))) => at + 2,
                _ => {
                    at += 1;
                    continue;
                }
            };
            let close = self.closing(open);
            let tokens = self.tokens.get(open + 1..close).unwrap_or_default();
            attributes.push(Attribute { line: self.tokens[at].line, tokens });
            at = close + 1;
        }
        attributes
    }

    /// The index of the bracket that closes the one at `open`, or the end.
    pub(super) fn closing(&self, open: usize) -> usize {
        open + group_len(&self.tokens[open..]).saturating_sub(1)
    }

    pub(super) fn paths(&self) -> Vec<Path<'a>> {
        let mut paths = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            at = match self.kind(at) {
                Some(Kind::Ident(_)) => {
                    let qualified = at >= 2 && self.is_separator(at - 2);
                    self.path(at, if qualified { &[""] } else { &[] }, &mut paths)
                }
                _ => at + 1,
            };
        }
        paths
    }

    pub(super) fn kind(&self, at: usize) -> Option<Kind<'a>> {
        self.tokens.get(at).map(|token| token.kind)
    }

    fn is_separator(&self, at: usize) -> bool {
        self.kind(at) == Some(Kind::Punct(':')) && self.kind(at + 1) == Some(Kind::Punct(':'))
    }

    /// Reads the path that starts at the identifier `at`; returns what follows it.
    fn path(&self, mut at: usize, prefix: &[&'a str], paths: &mut Vec<Path<'a>>) -> usize {
        let line = self.tokens[at].line;
        let mut segments = prefix.to_vec();
        while let Some(Kind::Ident(name)) = self.kind(at) {
            segments.push(name);
            at += 1;
            if !self.is_separator(at) {
                break;
            }
            match self.kind(at + 2) {
                Some(Kind::Ident(_)) => at += 2,
                Some(Kind::Punct('{')) => return self.group(at + 3, &segments, paths),
                _ => break,
            }
        }
        paths.push(Path { line, segments });
        at
    }

    /// Reads what is inside `prefix::{…}`, from behind the opening brace.
    fn group(&self, mut at: usize, prefix: &[&'a str], paths: &mut Vec<Path<'a>>) -> usize {
        while let Some(kind) = self.kind(at) {
            at = match kind {
                Kind::Punct('}') => return at + 1,
                // The new name in `old as new` is not a path.
                Kind::Ident("as") => at + 2,
                Kind::Ident(_) => self.path(at, prefix, paths),
                _ => at + 1,
            };
        }
        at
    }
}

/// How many tokens the group has that starts here, brackets included.
pub(super) fn group_len(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Punct('(' | '[' | '{') => depth += 1,
            Kind::Punct(')' | ']' | '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    source: Source<'a>,
}

impl<'a> Reader<'a> {
    fn step(&mut self) {
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else { return };
        if first.is_whitespace() {
            self.take(first.len_utf8());
        } else if rest.starts_with("//") {
            self.comment(rest.find('\n').unwrap_or(rest.len()));
        } else if rest.starts_with("/*") {
            self.comment(block_comment_len(rest));
        } else if let Some((open, len)) = string_len(rest) {
            let inside = rest[..len].trim_end_matches('#');
            let inside = inside.strip_suffix('"').unwrap_or(inside).get(open..).unwrap_or_default();
            self.token(Kind::Text(inside), len);
        } else if let Some(name) = rest.strip_prefix("r#").filter(|name| name.starts_with(begins_name)) {
            let len = name_len(name);
            self.token(Kind::Ident(&name[..len]), len + 2);
        } else if first == '\'' || rest.starts_with("b'") {
            self.token(Kind::Quoted, quoted_len(rest));
        } else if first.is_ascii_digit() {
            self.number(rest);
        } else if begins_name(first) {
            let len = name_len(rest);
            self.token(Kind::Ident(&rest[..len]), len);
        } else {
            self.token(Kind::Punct(first), first.len_utf8());
        }
    }

    fn number(&mut self, rest: &'a str) {
        let field = self.source.tokens.last().is_some_and(|token| token.kind == Kind::Punct('.'));
        let mut len = name_len(rest);
        let digits = &rest[..len];
        let decimal = !["0x", "0b", "0o"].iter().any(|prefix| digits.starts_with(prefix));
        let mut float = decimal && !field && digits.contains(['e', 'E', 'f']) && !digits.ends_with("size");
        if let Some(fraction) = rest[len..].strip_prefix('.').filter(|_| decimal && !field) {
            let next = fraction.chars().next();
            if next.is_none_or(|next| next != '.' && !begins_name(next)) {
                float = true;
                len += 1 + name_len(fraction);
            }
        }
        self.token(if float { Kind::Float } else { Kind::Integer }, len);
    }

    fn comment(&mut self, len: usize) {
        let text = &self.text[self.at..self.at + len];
        self.source.comments.push(Comment { line: self.line, text });
        self.take(len);
    }

    fn token(&mut self, kind: Kind<'a>, len: usize) {
        self.source.tokens.push(Token { line: self.line, kind });
        self.take(len);
    }

    fn take(&mut self, len: usize) {
        self.line += self.text[self.at..self.at + len].matches('\n').count();
        self.at += len;
    }
}

fn begins_name(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn name_len(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
}

fn block_comment_len(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let step = if text[at..].starts_with("/*") {
            depth += 1;
            2
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            2
        } else {
            text[at..].chars().next().map_or(1, char::len_utf8)
        };
        at += step;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Returns the length of the prefix of a string literal, and of the whole literal.
fn string_len(text: &str) -> Option<(usize, usize)> {
    let prefix = name_len(text);
    if !["", "b", "c", "r", "br", "cr"].contains(&&text[..prefix]) {
        return None;
    }
    let (raw, opening) = (text[..prefix].ends_with('r'), &text[prefix..]);
    let hashes = opening.len() - opening.trim_start_matches('#').len();
    if (hashes > 0 && !raw) || !opening[hashes..].starts_with('"') {
        return None;
    }
    let open = prefix + hashes + 1;
    let body = &text[open..];
    if raw {
        let end = format!("\"{}", "#".repeat(hashes));
        return Some((open, body.find(&end).map_or(text.len(), |at| open + at + end.len())));
    }
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some((open, open + at + 1)),
            _ => {}
        }
    }
    Some((open, text.len()))
}

/// The length of a character, or of a lifetime.
fn quoted_len(text: &str) -> usize {
    let open = text.find('\'').map_or(0, |at| at + 1);
    let body = &text[open..];
    if let Some(escape) = body.strip_prefix('\\') {
        let skip = escape.chars().next().map_or(0, char::len_utf8);
        return escape[skip..].find('\'').map_or(text.len(), |at| open + 1 + skip + at + 1);
    }
    let Some(first) = body.chars().next() else { return text.len() };
    if body[first.len_utf8()..].starts_with('\'') {
        return open + first.len_utf8() + 1;
    }
    open + name_len(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idents(text: &str) -> Vec<&str> {
        let source = Source::read(text);
        let idents = source.tokens.iter().filter_map(|token| match token.kind {
            Kind::Ident(name) => Some(name),
            _ => None,
        });
        idents.collect()
    }

    #[test]
    fn comments_and_literals_hide_what_is_in_them() {
        let cases = [
            ("a // b\nc", vec!["a", "c"]),
            ("a /* b /* c */ d */ e", vec!["a", "e"]),
            (r#"a "b \" c" d"#, vec!["a", "d"]),
            (r##"a r#"b " c"# d"##, vec!["a", "d"]),
            (r#"a b"b" c"c" br"d\" e"#, vec!["a", "e"]),
            (r"a 'b' '\'' '\u{62}' b'c' '\\' d", vec!["a", "d"]),
            ("fn a<'b>(c: &'b str)", vec!["fn", "a", "c", "str"]),
            ("r#type b", vec!["type", "b"]),
            ("a'", vec!["a"]),
            ("\"open", vec![]),
            ("/* open", vec![]),
        ];
        for (text, expected) in cases {
            assert_eq!(idents(text), expected, "{text}");
        }
    }

    #[test]
    fn lines_are_counted_through_comments_and_strings() {
        let source = Source::read("/* 1\n2 */ \"3\n\" a\nb");
        let lines: Vec<usize> = source.tokens.iter().map(|token| token.line).collect();
        assert_eq!(lines, [2, 3, 4]);
    }

    #[test]
    fn floats_are_distinguished_from_integers_ranges_and_fields() {
        let float = |text| Source::read(text).tokens.iter().any(|token| token.kind == Kind::Float);
        for text in ["1.5", "1.", "1e3", "1f64", "2.5e-3", "[1.]", "1_f32"] {
            assert!(float(text), "{text}");
        }
        for text in ["1", "1..2", "0xfe", "a.0.1", "1.max(2)", "1usize", "1_000_u64", "0b1", "7isize"] {
            assert!(!float(text), "{text}");
        }
    }

    #[test]
    fn grouped_paths_are_taken_apart() {
        let source =
            Source::read("use std::{fs as f, net::{self, TcpStream}, io::*}; <T as A>::b; x::<u8>::y");
        let paths: Vec<String> = source.paths().iter().map(|path| path.segments.join("::")).collect();
        let expected = [
            "use",
            "std::fs",
            "std::net::self",
            "std::net::TcpStream",
            "std::io",
            "T",
            "as",
            "A",
            "::b",
            "x",
            "u8",
            "::y",
        ];
        assert_eq!(paths, expected);
    }

    #[test]
    fn string_literals_keep_their_text() {
        let source = Source::read(r##"#[path = "a.rs"] r#"b"#"##);
        let texts: Vec<Kind<'_>> = source
            .tokens
            .iter()
            .map(|token| token.kind)
            .filter(|kind| matches!(kind, Kind::Text(_)))
            .collect();
        assert_eq!(texts, [Kind::Text("a.rs"), Kind::Text("b")]);
    }
}
