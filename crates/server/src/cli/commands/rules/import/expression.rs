//! Conditions and variables of Limitador: the part of CEL that compares entries of a descriptor with texts.
//!
//! `descriptors[0].method == "GET" && !(descriptors[0]["path"].startsWith("/v1/"))`

use super::value_test::{Pattern, ValueTest};

/// An entry of a descriptor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// The index of the descriptor.
    pub(super) index: u32,
    pub(super) key: String,
}

/// Why an expression is not supported.
pub(super) type Fault = &'static str;

const FORMS: Fault = "only comparisons of `descriptors[N].key` with texts are supported: ==, !=, in, startsWith, endsWith, \
                      contains, && and !";
const NO_DESCRIPTOR: Fault = "it names no descriptor; Limitador binds only `descriptors`, so write \
                              `descriptors[0].key` or `descriptors[0][\"key\"]`";

/// Reads a condition: tests of entries, all of which must hold.
pub(super) fn conditions(text: &str) -> Result<Vec<(Entry, ValueTest)>, Fault> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0 };
    let tests = parser.conjunction()?;
    parser.end().map(|()| tests)
}

/// Reads a variable: one entry.
pub(super) fn variable(text: &str) -> Result<Entry, Fault> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0 };
    let entry = parser.entry()?;
    parser.end().map(|()| entry)
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Name(String),
    Number(u32),
    Text(String),
    Sign(&'static str),
}

const SIGNS: [&str; 10] = ["&&", "==", "!=", "!", "(", ")", "[", "]", ",", "."];

fn tokens(text: &str) -> Result<Vec<Token>, Fault> {
    let (mut tokens, mut rest) = (Vec::new(), text.trim_start());
    while let Some(first) = rest.chars().next() {
        let word = |fits: fn(char) -> bool| rest.find(|c: char| !fits(c)).unwrap_or(rest.len());
        let (token, length) = match first {
            '\'' | '"' => {
                let inner = &rest[1..];
                let end = inner.find(first).ok_or(FORMS)?;
                // Three quotes start another kind of literal.
                if inner[..end].contains(['\\', '\n']) || inner[end + 1..].starts_with(first) {
                    return Err("texts with escapes or line breaks are not supported");
                }
                (Token::Text(inner[..end].to_owned()), end + 2)
            }
            c if c.is_ascii_digit() => {
                let end = word(|c| c.is_ascii_alphanumeric());
                (Token::Number(rest[..end].parse().map_err(|_| FORMS)?), end)
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let end = word(|c| c.is_ascii_alphanumeric() || c == '_');
                // A letter before a quote changes its meaning: r"..." and b"...".
                if rest[end..].starts_with(['\'', '"']) {
                    return Err(FORMS);
                }
                (Token::Name(rest[..end].to_owned()), end)
            }
            _ => {
                let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign)).ok_or(FORMS)?;
                (Token::Sign(sign), sign.len())
            }
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

const DEPTH_MAX: usize = 16;

impl Parser {
    fn next(&mut self) -> Result<Token, Fault> {
        let token = self.tokens.get(self.at).cloned().ok_or(FORMS)?;
        self.at += 1;
        Ok(token)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let found = matches!(self.tokens.get(self.at), Some(Token::Sign(next)) if *next == sign);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), Fault> {
        if self.takes(sign) { Ok(()) } else { Err(FORMS) }
    }

    fn end(&self) -> Result<(), Fault> {
        if self.at == self.tokens.len() { Ok(()) } else { Err(FORMS) }
    }

    fn conjunction(&mut self) -> Result<Vec<(Entry, ValueTest)>, Fault> {
        let mut all = self.factor()?;
        while self.takes("&&") {
            all.extend(self.factor()?);
        }
        Ok(all)
    }

    fn factor(&mut self) -> Result<Vec<(Entry, ValueTest)>, Fault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("it is nested too deeply");
        }
        let found = if self.takes("!") {
            self.expect("(")?;
            let inner = self.conjunction()?;
            self.expect(")")?;
            // The negation of several tests is an alternative.
            let [(entry, test)] = inner.try_into().map_err(|_| FORMS)?;
            vec![(entry, negated(test)?)]
        } else if self.takes("(") {
            let inner = self.conjunction()?;
            self.expect(")")?;
            inner
        } else {
            vec![self.comparison()?]
        };
        self.depth -= 1;
        Ok(found)
    }

    fn comparison(&mut self) -> Result<(Entry, ValueTest), Fault> {
        if let Some(Token::Text(text)) = self.tokens.get(self.at).cloned() {
            self.at += 1;
            let sign = self.next()?;
            return Ok((self.entry()?, compared(&sign, &text)?));
        }
        let entry = self.entry()?;
        match self.next()? {
            Token::Name(word) if word == "in" => Ok((entry, ValueTest::OneOf(self.text_list()?))),
            Token::Sign(".") => {
                let Token::Name(function) = self.next()? else { return Err(FORMS) };
                self.expect("(")?;
                let Token::Text(text) = self.next()? else { return Err(FORMS) };
                self.expect(")")?;
                let glob = |glob: String| {
                    if text.contains(['*', '?']) {
                        return Err("a text with `*` or `?` is a pattern in a rules file");
                    }
                    Pattern::with_stars(&glob).ok_or(FORMS)
                };
                let pattern = match function.as_str() {
                    "startsWith" => Pattern::Prefix(text.clone()),
                    "endsWith" => glob(format!("*{text}"))?,
                    "contains" => glob(format!("*{text}*"))?,
                    _ => return Err(FORMS),
                };
                Ok((entry, ValueTest::like(pattern)))
            }
            sign => {
                let Token::Text(text) = self.next()? else { return Err(FORMS) };
                Ok((entry, compared(&sign, &text)?))
            }
        }
    }

    fn text_list(&mut self) -> Result<Vec<String>, Fault> {
        self.expect("[")?;
        let mut values = Vec::new();
        loop {
            let Token::Text(text) = self.next()? else { return Err(FORMS) };
            values.push(text);
            if !self.takes(",") {
                return self.expect("]").map(|()| values);
            }
        }
    }

    /// Reads `descriptors[0].key` or `descriptors[0]["key"]`.
    fn entry(&mut self) -> Result<Entry, Fault> {
        match self.next()? {
            Token::Name(name) if name == "descriptors" => (),
            Token::Name(_) => return Err(NO_DESCRIPTOR),
            _ => return Err(FORMS),
        }
        self.expect("[")?;
        let Token::Number(index) = self.next()? else { return Err(FORMS) };
        self.expect("]")?;
        let key = if self.takes(".") {
            let Token::Name(key) = self.next()? else { return Err(FORMS) };
            key
        } else {
            self.expect("[")?;
            let Token::Text(key) = self.next()? else { return Err(FORMS) };
            self.expect("]")?;
            key
        };
        Ok(Entry { index, key })
    }
}

fn compared(sign: &Token, text: &str) -> Result<ValueTest, Fault> {
    match sign {
        Token::Sign("==") => Ok(ValueTest::is(text)),
        Token::Sign("!=") => negated(ValueTest::is(text)),
        _ => Err(FORMS),
    }
}

fn negated(test: ValueTest) -> Result<ValueTest, Fault> {
    match test {
        ValueTest::OneOf(not_values) => {
            Ok(ValueTest::Like { pattern: Pattern::ANY, not_values, not_patterns: Vec::new() })
        }
        ValueTest::Like { pattern, not_values, not_patterns }
            if not_values.is_empty() && not_patterns.is_empty() =>
        {
            Ok(ValueTest::Like { pattern: Pattern::ANY, not_values, not_patterns: vec![pattern] })
        }
        // Not (any value except these) is one of these.
        ValueTest::Like { pattern, not_values, not_patterns } => {
            if pattern == Pattern::ANY && not_patterns.is_empty() {
                Ok(ValueTest::OneOf(not_values))
            } else {
                Err(FORMS)
            }
        }
    }
}

/// Joins two tests of one entry. Fails if one condition of a rules file cannot express both.
pub(super) fn both(one: ValueTest, two: ValueTest) -> Result<ValueTest, Fault> {
    match (one, two) {
        (ValueTest::OneOf(values), other) | (other, ValueTest::OneOf(values)) => {
            let values: Vec<String> = values.into_iter().filter(|value| other.accepts(value)).collect();
            if values.is_empty() {
                Err("no value meets all conditions, so the limit never applies")
            } else {
                Ok(ValueTest::OneOf(values))
            }
        }
        (
            ValueTest::Like { pattern: one, not_values: mut values, not_patterns: mut patterns },
            ValueTest::Like { pattern: two, not_values, not_patterns },
        ) => {
            let pattern = match (one, two) {
                (pattern, any) | (any, pattern) if any == Pattern::ANY => pattern,
                (one, two) if one == two => one,
                _ => return Err("two patterns for one entry are not supported"),
            };
            values.extend(not_values);
            patterns.extend(not_patterns);
            Ok(ValueTest::Like { pattern, not_values: values, not_patterns: patterns })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u32, key: &str) -> Entry {
        Entry { index, key: key.to_owned() }
    }

    fn one_of(values: &[&str]) -> ValueTest {
        ValueTest::OneOf(values.iter().map(|&value| value.to_owned()).collect())
    }

    fn not(values: &[&str]) -> ValueTest {
        negated(one_of(values)).expect("values")
    }

    #[test]
    fn comparisons_of_entries_with_texts_are_read() {
        let prefix = |text: &str| ValueTest::like(Pattern::Prefix(text.to_owned()));
        let glob = |text: &str| ValueTest::like(Pattern::Glob(text.to_owned()));
        for (text, expected) in [
            ("descriptors[0].method == 'GET'", vec![(entry(0, "method"), one_of(&["GET"]))]),
            ("'GET' == descriptors[1].method", vec![(entry(1, "method"), one_of(&["GET"]))]),
            (
                "descriptors[0]['req.path'] == \"/a b && c\"",
                vec![(entry(0, "req.path"), one_of(&["/a b && c"]))],
            ),
            (
                "(descriptors[0].x == '1') && descriptors[2]['y'] != '2'",
                vec![(entry(0, "x"), one_of(&["1"])), (entry(2, "y"), not(&["2"]))],
            ),
            ("descriptors[0].m in ['GET', \"HEAD\"]", vec![(entry(0, "m"), one_of(&["GET", "HEAD"]))]),
            ("!(descriptors[0].m in ['GET','*'])", vec![(entry(0, "m"), not(&["GET", "*"]))]),
            ("!(descriptors[0].m != 'GET')", vec![(entry(0, "m"), one_of(&["GET"]))]),
            ("descriptors[0].p.startsWith('/v1/*')", vec![(entry(0, "p"), prefix("/v1/*"))]),
            ("descriptors[0].p.endsWith('.php')", vec![(entry(0, "p"), glob("*.php"))]),
            ("descriptors[0].p.contains('x')", vec![(entry(0, "p"), glob("*x*"))]),
        ] {
            assert_eq!(conditions(text).as_ref(), Ok(&expected), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "method == 'GET'",
            "descriptors[0].m == 'GET' || descriptors[0].m == 'PUT'",
            "!(descriptors[0].m == 'GET' && descriptors[0].n == 'a')",
            "int(descriptors[0].x) == 1",
            "descriptors[0].x == 1",
            "descriptors[0].x == descriptors[0].y",
            "descriptors[0].x == 'it\\'s'",
            "descriptors[0].x == '''a'''",
            "descriptors[0].x == r'a'",
            "descriptors[i].x == '1'",
            "descriptors[0].x.y == '1'",
            "descriptors[0].x.matches('a+')",
            "descriptors[0].x.contains('*')",
            "descriptors[0].x in []",
            "descriptors[0].x == 'a' extra",
            "descriptors.all(d, d.x == 'a')",
            "limit.name == 'a'",
            "true",
            "",
            &"(".repeat(10_000),
        ] {
            assert!(conditions(text).is_err(), "{text}");
        }
        for text in ["user_id", "descriptors[0]", "size(descriptors)", "descriptors[0].user.id", ""] {
            assert!(variable(text).is_err(), "{text}");
        }
        assert_eq!(variable("descriptors[0]['user.id']"), Ok(entry(0, "user.id")));
        assert_eq!(variable(" descriptors[3].user_id "), Ok(entry(3, "user_id")));
    }

    #[test]
    fn two_tests_of_one_entry_are_joined_or_refused() {
        let prefix = |text: &str| ValueTest::like(Pattern::Prefix(text.to_owned()));
        assert_eq!(both(not(&["a"]), not(&["b"])), Ok(not(&["a", "b"])));
        assert_eq!(both(one_of(&["a", "b"]), not(&["b"])), Ok(one_of(&["a"])));
        assert_eq!(both(prefix("b"), one_of(&["a", "b"])), Ok(one_of(&["b"])));
        let except = both(prefix("a"), not(&["ab"])).expect("a prefix with an exception");
        assert!(except.accepts("ac") && !except.accepts("ab") && !except.accepts("b"));
        assert!(both(one_of(&["a"]), one_of(&["b"])).is_err());
        assert!(both(prefix("a"), prefix("ab")).is_err());
    }
}
