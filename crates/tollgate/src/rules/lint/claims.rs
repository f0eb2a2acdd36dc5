//! Whether conditions can hold together, and whether some follow from others.
//!
//! What a condition lets pass is a set of texts: a list of them, or a pattern. Two sets that meet have a text in
//! common. Deciding that takes the product of two patterns' lengths, so all of it together is bounded by [`Work`]:
//! when that is used up, the answer is "not known", and nobody claims anything.

use std::cell::Cell;
use std::collections::HashSet;

use tollgate_core::rules::{Condition, Test};

use tollgate_document::{Node, SourceSpan};

/// How much comparing a file may cost, in characters and pairs: a few seconds at most. Ten thousand overrides of one
/// rule fit.
const WORK_MAX: u64 = 200_000_000;

/// A condition, ready to be compared.
pub(super) struct Claim<'a> {
    pub(super) attribute: &'a str,
    pub(super) test: &'a Test,
    /// Where it stands in the file.
    pub(super) span: SourceSpan,
    /// A path pattern as it was written.
    pub(super) path: Option<&'a str>,
    form: Form<'a>,
    /// How much there is to compare.
    size: u64,
}

/// What a condition lets pass.
enum Form<'a> {
    /// These texts.
    Values(HashSet<&'a str>),
    /// Texts of this form.
    Texts(Vec<Token>),
    /// Paths of this form, with any query.
    Path(Vec<Segment<'a>>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Segment<'a> {
    Literal(&'a str),
    Any,
    Rest,
}

/// One character of a kind, or any number of them.
#[derive(Clone, Copy)]
struct Token {
    kind: Kind,
    many: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Only(char),
    Any,
    InPath,
    InSegment,
    /// What ends a path.
    EndsPath,
}

/// Conditions beside what they are written as: the value, and the place to point at.
pub(super) fn claims<'a>(
    conditions: &'a [Condition],
    written: impl Iterator<Item = (&'a Node, SourceSpan)>,
) -> Vec<Claim<'a>> {
    conditions
        .iter()
        .zip(written)
        .map(|(condition, (node, span))| Claim::new(condition, node, span))
        .collect()
}

impl<'a> Claim<'a> {
    fn new(condition: &'a Condition, node: &'a Node, span: SourceSpan) -> Claim<'a> {
        let path = node.text().filter(|_| matches!(condition.test, Test::Path(_)));
        let form = match &condition.test {
            Test::OneOf(values) => Form::Values(values.iter().map(String::as_str).collect()),
            Test::Prefix(prefix) => Form::Texts(literal(prefix).chain([Token::ANYTHING]).collect()),
            Test::Glob(glob) => Form::Texts(glob.chars().map(Token::of_a_glob).collect()),
            Test::Path(_) => Form::Path(segments(path.unwrap_or_default())),
        };
        let size = match (&condition.test, path) {
            (Test::OneOf(values), _) => values.iter().map(|value| value.len() + 1).sum(),
            (Test::Prefix(text) | Test::Glob(text), _) => text.len() + 1,
            (Test::Path(_), path) => path.map_or(0, str::len) + 1,
        };
        Claim { attribute: &condition.attribute, test: &condition.test, span, path, form, size: size as u64 }
    }

    /// Every text that passes starts so.
    fn head(&self) -> &'a str {
        match self.test {
            Test::OneOf(_) => "",
            Test::Prefix(prefix) => prefix,
            Test::Glob(glob) => glob.split(['*', '?']).next().unwrap_or_default(),
            Test::Path(_) => self.path.and_then(|path| path.split('{').next()).unwrap_or_default(),
        }
    }

    /// The forms that it has as a text. A path may end, or be followed by a query.
    fn texts(&self, with_query: bool) -> Vec<Vec<Token>> {
        match &self.form {
            Form::Values(_) => Vec::new(),
            Form::Texts(tokens) => vec![tokens.clone()],
            Form::Path(segments) => {
                let path: Vec<Token> = segments.iter().flat_map(|segment| segment.tokens()).collect();
                let query = [Token { kind: Kind::EndsPath, many: false }, Token::ANYTHING];
                let queried = with_query.then(|| path.iter().copied().chain(query).collect());
                queried.into_iter().chain([path]).collect()
            }
        }
    }
}

/// What is left to spend on comparing.
pub(super) struct Work {
    left: Cell<u64>,
}

impl Work {
    pub(super) const fn new() -> Work {
        Work { left: Cell::new(WORK_MAX) }
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.left.get() == 0
    }

    /// Pays for a step; `None` if there is not enough left, and from then on.
    pub(super) fn spend(&self, cost: u64) -> Option<()> {
        let left = self.left.get().checked_sub(cost);
        self.left.set(left.unwrap_or(0));
        left.map(drop)
    }

    /// Whether one request can meet all of both; `None` if that is not known.
    pub(super) fn together(&self, one: &[Claim<'_>], other: &[Claim<'_>]) -> Option<bool> {
        self.spend((one.len() * other.len() + 1) as u64)?;
        let mut known = true;
        for (one, other) in one.iter().flat_map(|one| other.iter().map(move |other| (one, other))) {
            if one.attribute != other.attribute {
                continue;
            }
            match self.meet(one, other) {
                Some(true) => {}
                Some(false) => return Some(false),
                None => known = false,
            }
        }
        known.then_some(true)
    }

    /// Two conditions that no request can meet both.
    pub(super) fn contradiction<'c, 'a>(
        &self,
        one: &'c [Claim<'a>],
        other: &'c [Claim<'a>],
    ) -> Option<(&'c Claim<'a>, &'c Claim<'a>)> {
        self.spend((one.len() * other.len() + 1) as u64)?;
        let pairs = one.iter().flat_map(|one| other.iter().map(move |other| (one, other)));
        let mut same = pairs.filter(|(one, other)| one.attribute == other.attribute);
        same.find(|(one, other)| self.meet(one, other) == Some(false))
    }

    /// Whether whoever meets all of `known` is certain to meet all of `asked`.
    pub(super) fn follow(&self, known: &[&Claim<'_>], asked: &[Claim<'_>]) -> bool {
        if self.spend((known.len() * asked.len() + 1) as u64).is_none() {
            return false;
        }
        asked.iter().all(|asked| {
            known.iter().any(|known| known.attribute == asked.attribute && self.follows(known, asked))
        })
    }

    fn meet(&self, one: &Claim<'_>, other: &Claim<'_>) -> Option<bool> {
        match (&one.form, &other.form) {
            (Form::Values(values), Form::Values(others)) => {
                self.spend(values.len().min(others.len()) as u64)?;
                Some(!values.is_disjoint(others))
            }
            (Form::Values(values), _) => {
                self.spend(one.size.saturating_mul(other.size))?;
                Some(values.iter().any(|value| other.test.holds(value)))
            }
            (_, Form::Values(_)) => self.meet(other, one),
            (one_form, other_form) => {
                // Two paths take the same queries, so these need no look.
                let with_query = !matches!((one_form, other_form), (Form::Path(_), Form::Path(_)));
                let others = other.texts(with_query);
                for one in one.texts(with_query) {
                    for other in &others {
                        if self.texts_meet(&one, other)? {
                            return Some(true);
                        }
                    }
                }
                Some(false)
            }
        }
    }

    /// Whether a text has both forms: walks both at once, and comes to each pair of positions once.
    fn texts_meet(&self, one: &[Token], other: &[Token]) -> Option<bool> {
        let width = other.len() + 1;
        let pairs = (one.len() + 1) * width;
        self.spend(pairs as u64)?;
        let mut seen = vec![false; pairs];
        let mut open = vec![(0, 0)];
        while let Some((at, other_at)) = open.pop() {
            if std::mem::replace(&mut seen[at * width + other_at], true) {
                continue;
            }
            match (one.get(at), other.get(other_at)) {
                (None, None) => return Some(true),
                (token, other_token) => {
                    if token.is_some_and(|token| token.many) {
                        open.push((at + 1, other_at));
                    }
                    if other_token.is_some_and(|token| token.many) {
                        open.push((at, other_at + 1));
                    }
                    if let (Some(token), Some(other_token)) = (token, other_token)
                        && token.kind.meets(other_token.kind)
                    {
                        let next = |at: usize, token: &Token| if token.many { at } else { at + 1 };
                        open.push((next(at, token), next(other_at, other_token)));
                    }
                }
            }
        }
        Some(false)
    }

    /// Whether every text that passes `known` passes `asked`. It says no where it cannot tell.
    fn follows(&self, known: &Claim<'_>, asked: &Claim<'_>) -> bool {
        let paid = match (&known.form, &asked.form) {
            (Form::Values(_), Form::Values(_)) => self.spend(known.size),
            (Form::Values(_), _) => self.spend(known.size.saturating_mul(asked.size)),
            _ => self.spend(known.size.min(asked.size)),
        };
        if paid.is_none() {
            return false;
        }
        match (&known.form, &asked.form) {
            (Form::Values(values), Form::Values(allowed)) => values.is_subset(allowed),
            (Form::Values(values), _) => values.iter().all(|value| asked.test.holds(value)),
            (Form::Path(known), Form::Path(asked)) => path_follows(known, asked),
            _ => match asked.test {
                Test::Prefix(prefix) => known.head().starts_with(prefix.as_str()),
                _ => known.test == asked.test,
            },
        }
    }
}

fn path_follows(known: &[Segment<'_>], asked: &[Segment<'_>]) -> bool {
    match (known, asked) {
        ([], []) => true,
        ([first, ..], [Segment::Rest, ..]) => first.is_filled(),
        ([first, known @ ..], [asked_first, asked @ ..]) => {
            let fits = match asked_first {
                Segment::Any => first.is_filled() && *first != Segment::Rest,
                _ => first == asked_first,
            };
            fits && path_follows(known, asked)
        }
        _ => false,
    }
}

/// A valid pattern's segments.
fn segments(path: &str) -> Vec<Segment<'_>> {
    let segment = |text: &'_ str| text.starts_with('{').then(|| text.starts_with("{*"));
    let parts = path.strip_prefix('/').unwrap_or(path).split('/');
    let parts = parts.map(|text| match segment(text) {
        Some(true) => Segment::Rest,
        Some(false) => Segment::Any,
        None => Segment::Literal(text),
    });
    parts.collect()
}

fn literal(text: &str) -> impl Iterator<Item = Token> {
    text.chars().map(|c| Token { kind: Kind::Only(c), many: false })
}

impl Segment<'_> {
    fn is_filled(&self) -> bool {
        *self != Segment::Literal("")
    }

    fn tokens(&self) -> Vec<Token> {
        let one = Token { kind: Kind::InSegment, many: false };
        let more = |kind| Token { kind, many: true };
        let slash = literal("/");
        match self {
            Segment::Literal(text) => slash.chain(literal(text)).collect(),
            Segment::Any => slash.chain([one, more(Kind::InSegment)]).collect(),
            Segment::Rest => slash.chain([one, more(Kind::InPath)]).collect(),
        }
    }
}

impl Token {
    const ANYTHING: Token = Token { kind: Kind::Any, many: true };

    fn of_a_glob(c: char) -> Token {
        match c {
            '*' => Token::ANYTHING,
            '?' => Token { kind: Kind::Any, many: false },
            c => Token { kind: Kind::Only(c), many: false },
        }
    }
}

impl Kind {
    fn has(self, c: char) -> bool {
        match self {
            Kind::Only(only) => only == c,
            Kind::Any => true,
            Kind::InPath => !Kind::EndsPath.has(c),
            Kind::InSegment => c != '/' && !Kind::EndsPath.has(c),
            Kind::EndsPath => matches!(c, '?' | '#'),
        }
    }

    /// Whether some character is of both kinds.
    fn meets(self, other: Kind) -> bool {
        match (self, other) {
            (Kind::Only(c), kind) | (kind, Kind::Only(c)) => kind.has(c),
            // Where a path ends is only asked of other texts, which have no kinds of a path.
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests;
