//! Decides whether conditions can hold together, and whether one condition implies another.
//!
//! A condition accepts a set of texts: a list of values, or a pattern. Two conditions overlap if a text passes both.
//! Comparing two patterns takes time proportional to the product of their lengths. [`ComparisonBudget`] bounds the
//! total: when it is used up, the result is "unknown", and no lint reports anything.

use std::cell::Cell;
use std::collections::HashSet;

use tollgate_core::Cidr;
use tollgate_core::rules::{Condition, Test};

use tollgate_document::{Node, SourceSpan};

/// Budget for comparisons in one file, in characters and pairs: a few seconds at most. It is enough for ten thousand
/// overrides of one rule.
const BUDGET: u64 = 200_000_000;

/// A condition with its source span, prepared for comparison.
pub(super) struct WrittenCondition<'a> {
    pub(super) attribute: &'a str,
    pub(super) test: &'a Test,
    /// Its position in the file.
    pub(super) span: SourceSpan,
    /// The source text of a path pattern.
    pub(super) path: Option<&'a str>,
    pattern: Pattern<'a>,
    /// The number of characters to compare.
    size: u64,
}

/// The texts that a condition accepts.
enum Pattern<'a> {
    /// These texts.
    Values(HashSet<&'a str>),
    /// Texts that match these tokens.
    Tokens(Vec<Token>),
    /// Paths with these segments, with any query.
    Path(Vec<Segment<'a>>),
    /// Addresses in these blocks.
    Blocks(&'a [Cidr]),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Segment<'a> {
    Literal(&'a str),
    Any,
    Rest,
}

/// One character of a kind, or any number of such characters.
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
    /// A character that ends a path: `?` or `#`.
    EndsPath,
}

/// Pairs conditions with their source: the value node, and the span that findings point at.
pub(super) fn written_conditions<'a>(
    conditions: &'a [Condition],
    written: impl Iterator<Item = (&'a Node, SourceSpan)>,
) -> Vec<WrittenCondition<'a>> {
    conditions
        .iter()
        .zip(written)
        .map(|(condition, (node, span))| WrittenCondition::new(condition, node, span))
        .collect()
}

impl<'a> WrittenCondition<'a> {
    fn new(condition: &'a Condition, node: &'a Node, span: SourceSpan) -> WrittenCondition<'a> {
        let path = node.text().filter(|_| matches!(condition.test, Test::Path(_)));
        let pattern = match condition.test.required() {
            Test::OneOf(values) => {
                let passing = values.iter().map(String::as_str).filter(|value| condition.test.holds(value));
                Pattern::Values(passing.collect())
            }
            Test::Prefix(prefix) => Pattern::Tokens(literal(prefix).chain([Token::ANYTHING]).collect()),
            Test::Glob(glob) => Pattern::Tokens(glob.chars().map(Token::of_a_glob).collect()),
            Test::Path(_) | Test::Except(_) | Test::Hashed(_) => {
                Pattern::Path(segments(path.unwrap_or_default()))
            }
            Test::Address(blocks) => Pattern::Blocks(blocks),
        };
        let size = match (condition.test.required(), path) {
            (Test::OneOf(values), _) => values.iter().map(|value| value.len() + 1).sum(),
            (Test::Prefix(text) | Test::Glob(text), _) => text.len() + 1,
            (Test::Path(_) | Test::Except(_) | Test::Hashed(_), path) => path.map_or(0, str::len) + 1,
            (Test::Address(blocks), _) => blocks.len() + 1,
        };
        WrittenCondition {
            attribute: &condition.attribute,
            test: &condition.test,
            span,
            path,
            pattern,
            size: size as u64,
        }
    }

    /// A prefix of every text that passes.
    fn literal_prefix(&self) -> &'a str {
        match self.test.required() {
            Test::OneOf(_) | Test::Except(_) | Test::Address(_) | Test::Hashed(_) => "",
            Test::Prefix(prefix) => prefix,
            Test::Glob(glob) => glob.split(['*', '?']).next().unwrap_or_default(),
            Test::Path(_) => self.path.and_then(|path| path.split('{').next()).unwrap_or_default(),
        }
    }

    fn has_exclusions(&self) -> bool {
        matches!(self.test, Test::Except(_))
    }

    /// Whether it excludes exactly what the other condition accepts.
    fn excludes(&self, other: &WrittenCondition<'_>) -> bool {
        match self.test {
            Test::Except(exclusion) => exclusion.patterns().contains(other.test.required()),
            _ => false,
        }
    }

    /// The pattern as token sequences. A path has two: without and with a query.
    fn token_sequences(&self, with_query: bool) -> Vec<Vec<Token>> {
        match &self.pattern {
            Pattern::Values(_) | Pattern::Blocks(_) => Vec::new(),
            Pattern::Tokens(tokens) => vec![tokens.clone()],
            Pattern::Path(segments) => {
                let path: Vec<Token> = segments.iter().flat_map(|segment| segment.tokens()).collect();
                let query = [Token { kind: Kind::EndsPath, many: false }, Token::ANYTHING];
                let queried = with_query.then(|| path.iter().copied().chain(query).collect());
                queried.into_iter().chain([path]).collect()
            }
        }
    }
}

/// The remaining budget for comparisons.
pub(super) struct ComparisonBudget {
    left: Cell<u64>,
}

impl ComparisonBudget {
    pub(super) const fn new() -> ComparisonBudget {
        ComparisonBudget { left: Cell::new(BUDGET) }
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.left.get() == 0
    }

    /// Spends part of the budget; `None` once the budget is exceeded.
    pub(super) fn spend(&self, cost: u64) -> Option<()> {
        let left = self.left.get().checked_sub(cost);
        self.left.set(left.unwrap_or(0));
        left.map(drop)
    }

    /// Whether one request can meet all conditions of both lists; `None` if unknown.
    pub(super) fn can_hold_together(
        &self,
        one: &[WrittenCondition<'_>],
        other: &[WrittenCondition<'_>],
    ) -> Option<bool> {
        self.spend((one.len() * other.len() + 1) as u64)?;
        let mut known = true;
        for (one, other) in one.iter().flat_map(|one| other.iter().map(move |other| (one, other))) {
            if one.attribute != other.attribute {
                continue;
            }
            match self.overlap(one, other) {
                Some(true) => {}
                Some(false) => return Some(false),
                None => known = false,
            }
        }
        known.then_some(true)
    }

    /// Finds two conditions that no request can meet together.
    pub(super) fn contradiction<'c, 'a>(
        &self,
        one: &'c [WrittenCondition<'a>],
        other: &'c [WrittenCondition<'a>],
    ) -> Option<(&'c WrittenCondition<'a>, &'c WrittenCondition<'a>)> {
        self.spend((one.len() * other.len() + 1) as u64)?;
        let pairs = one.iter().flat_map(|one| other.iter().map(move |other| (one, other)));
        let mut same = pairs.filter(|(one, other)| one.attribute == other.attribute);
        same.find(|(one, other)| self.overlap(one, other) == Some(false))
    }

    /// Whether every request that meets all of `known` also meets all of `asked`.
    pub(super) fn implies_all(
        &self,
        known: &[&WrittenCondition<'_>],
        asked: &[WrittenCondition<'_>],
    ) -> bool {
        if self.spend((known.len() * asked.len() + 1) as u64).is_none() {
            return false;
        }
        asked.iter().all(|asked| {
            known.iter().any(|known| known.attribute == asked.attribute && self.implies(known, asked))
        })
    }

    fn overlap(&self, one: &WrittenCondition<'_>, other: &WrittenCondition<'_>) -> Option<bool> {
        match (&one.pattern, &other.pattern) {
            (Pattern::Values(values), Pattern::Values(others)) => {
                self.spend(values.len().min(others.len()) as u64)?;
                Some(!values.is_disjoint(others))
            }
            (Pattern::Values(values), _) => {
                self.spend(one.size.saturating_mul(other.size))?;
                Some(values.iter().any(|value| other.test.holds(value)))
            }
            (_, Pattern::Values(_)) => self.overlap(other, one),
            (Pattern::Blocks(blocks), Pattern::Blocks(others)) => {
                self.spend(one.size.saturating_mul(other.size))?;
                Some(blocks.iter().any(|block| others.iter().any(|other| block.overlaps(other))))
            }
            // An address as text: not compared.
            (Pattern::Blocks(_), _) | (_, Pattern::Blocks(_)) => Some(true),
            (one_pattern, other_pattern) => {
                // Two path patterns accept the same queries, so queries need not be compared.
                let with_query =
                    !matches!((one_pattern, other_pattern), (Pattern::Path(_), Pattern::Path(_)));
                // What is excluded is not compared: an overlap of the rest is unknown.
                let is_exact = !one.has_exclusions() && !other.has_exclusions();
                if one.excludes(other) || other.excludes(one) {
                    return Some(false);
                }
                let others = other.token_sequences(with_query);
                for one in one.token_sequences(with_query) {
                    for other in &others {
                        if self.patterns_overlap(&one, other)? {
                            return is_exact.then_some(true);
                        }
                    }
                }
                Some(false)
            }
        }
    }

    /// Whether a text matches both sequences. Visits each pair of positions at most once.
    fn patterns_overlap(&self, one: &[Token], other: &[Token]) -> Option<bool> {
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
                        && token.kind.overlaps(other_token.kind)
                    {
                        let next = |at: usize, token: &Token| if token.many { at } else { at + 1 };
                        open.push((next(at, token), next(other_at, other_token)));
                    }
                }
            }
        }
        Some(false)
    }

    /// Whether every text that passes `known` also passes `asked`. Returns `false` if unknown.
    fn implies(&self, known: &WrittenCondition<'_>, asked: &WrittenCondition<'_>) -> bool {
        let paid = match (&known.pattern, &asked.pattern) {
            (Pattern::Values(_), Pattern::Values(_)) => self.spend(known.size),
            (Pattern::Values(_), _) | (Pattern::Blocks(_), Pattern::Blocks(_)) => {
                self.spend(known.size.saturating_mul(asked.size))
            }
            _ => self.spend(known.size.min(asked.size)),
        };
        if paid.is_none() {
            return false;
        }
        match (&known.pattern, &asked.pattern) {
            (Pattern::Values(values), Pattern::Values(allowed)) => values.is_subset(allowed),
            (Pattern::Values(values), _) => values.iter().all(|value| asked.test.holds(value)),
            (Pattern::Path(known), Pattern::Path(asked)) => path_implies(known, asked),
            (Pattern::Blocks(known), Pattern::Blocks(asked)) => {
                known.iter().all(|block| asked.iter().any(|other| other.contains_block(block)))
            }
            _ => match asked.test {
                Test::Prefix(prefix) => known.literal_prefix().starts_with(prefix.as_str()),
                _ => known.test == asked.test,
            },
        }
    }
}

fn path_implies(known: &[Segment<'_>], asked: &[Segment<'_>]) -> bool {
    match (known, asked) {
        ([], []) => true,
        ([first, ..], [Segment::Rest, ..]) => first.is_filled(),
        ([first, known @ ..], [asked_first, asked @ ..]) => {
            let fits = match asked_first {
                Segment::Any => first.is_filled() && *first != Segment::Rest,
                _ => first == asked_first,
            };
            fits && path_implies(known, asked)
        }
        _ => false,
    }
}

/// Splits a valid path pattern into segments.
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
    fn contains(self, c: char) -> bool {
        match self {
            Kind::Only(only) => only == c,
            Kind::Any => true,
            Kind::InPath => !Kind::EndsPath.contains(c),
            Kind::InSegment => c != '/' && !Kind::EndsPath.contains(c),
            Kind::EndsPath => matches!(c, '?' | '#'),
        }
    }

    /// Whether a character exists that is of both kinds.
    fn overlaps(self, other: Kind) -> bool {
        match (self, other) {
            (Kind::Only(c), kind) | (kind, Kind::Only(c)) => kind.contains(c),
            // `EndsPath` is only compared with tokens of globs and prefixes, never with those of paths.
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests;
