//! A prefix tree over the tests of one attribute. A lookup walks down the tree once and returns every rule whose test the
//! value passes.

use super::condition::{Segment, Test};
use super::index::Found;
use crate::request::short_bytes;

/// A node of the tree. The texts on the path to it are the start of a value.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    /// Text between the parent and this node.
    text: Vec<u8>,
    /// Rules whose test ends here, and what may follow in a value.
    rules: Vec<(Follows, u32)>,
    /// Continues path patterns that have `{name}` here, after that segment.
    any_segment: Option<Box<Tree>>,
    /// First byte of each child, sorted.
    first_bytes: Vec<u8>,
    /// The children, in the order of `first_bytes`.
    children: Vec<Tree>,
}

/// What may follow in a value after the end of a test.
#[derive(Clone, Copy, Debug)]
enum Follows {
    /// Nothing: the test is the whole value.
    Nothing,
    /// Anything: the test is a prefix.
    Anything,
    /// Nothing, or a query: the test is a path.
    Query,
    /// The rest of a path, with at least one segment that is not empty.
    Segments,
}

impl Follows {
    #[inline]
    fn holds(self, rest: &[u8]) -> bool {
        match self {
            Follows::Nothing => rest.is_empty(),
            Follows::Anything => true,
            Follows::Query => matches!(rest, [] | [b'?' | b'#', ..]),
            Follows::Segments => !matches!(rest, [] | [b'/' | b'?' | b'#', ..]),
        }
    }
}

impl Tree {
    /// Adds a rule under a test. Globs, addresses and tests with exclusions are not indexed.
    pub(super) fn insert(&mut self, test: &Test, rule: u32) {
        match test {
            Test::OneOf(values) => {
                for value in values {
                    self.node(value.as_bytes()).rules.push((Follows::Nothing, rule));
                }
            }
            Test::Prefix(prefix) => self.node(prefix.as_bytes()).rules.push((Follows::Anything, rule)),
            Test::Path(pattern) => self.insert_path(&pattern.segments, rule),
            Test::Glob(_) | Test::Address(_) | Test::Except(_) | Test::Hashed(_) => (),
        }
    }

    fn insert_path(&mut self, segments: &[Segment], rule: u32) {
        let (mut node, mut text) = (self, Vec::new());
        for segment in segments {
            text.push(b'/');
            match segment {
                // `?` and `#` end a path, so no path has such a segment.
                Segment::Literal(literal) if literal.contains(['?', '#']) => return,
                Segment::Literal(literal) => text.extend_from_slice(literal.as_bytes()),
                Segment::Any => {
                    node = node.node(&std::mem::take(&mut text)).any_segment.get_or_insert_default()
                }
                Segment::Rest => return node.node(&text).rules.push((Follows::Segments, rule)),
            }
        }
        node.node(&text).rules.push((Follows::Query, rule));
    }

    /// Returns the node that this text leads to, and creates it if it is new.
    fn node(&mut self, mut text: &[u8]) -> &mut Tree {
        let mut node = self;
        while let Some(first) = text.first() {
            let at = node.first_bytes.binary_search(first).unwrap_or_else(|at| {
                node.first_bytes.insert(at, *first);
                node.children.insert(at, Tree { text: text.to_owned(), ..Tree::default() });
                at
            });
            node = &mut node.children[at];
            let common = node.text.iter().zip(text).take_while(|(own, other)| own == other).count();
            node.split(common);
            text = &text[common..];
        }
        node
    }

    /// Splits this node after `at` bytes of its text, unless it ends there.
    fn split(&mut self, at: usize) {
        if at < self.text.len() {
            let mut child = std::mem::take(self);
            self.text = std::mem::take(&mut child.text);
            child.text = self.text.split_off(at);
            self.first_bytes.push(child.text[0]);
            self.children.push(child);
        }
    }

    /// Adds the rules whose test this value passes. Below the root, `value` is the rest after the path to this node.
    #[inline(always)]
    pub(super) fn find(&self, value: &[u8], found: &mut Found) {
        let (mut node, mut rest) = (self, value);
        loop {
            for &(follows, rule) in &node.rules {
                if follows.holds(rest) {
                    found.push(rule);
                }
            }
            if let Some(any_segment) = &node.any_segment
                && Follows::Segments.holds(rest)
            {
                any_segment.find_after_segment(rest, found);
            }
            let next = rest.first().and_then(|first| node.first_bytes.binary_search(first).ok());
            let Some(next) = next.map(|at| &node.children[at]) else { return };
            let Some(after) = short_bytes::strip_prefix(rest, &next.text) else { return };
            (node, rest) = (next, after);
        }
    }

    /// Skips the first segment of `path` and continues the search. Never inlined, so that `find` can be.
    #[inline(never)]
    fn find_after_segment(&self, path: &[u8], found: &mut Found) {
        let is_end = |byte: &u8| matches!(byte, b'/' | b'?' | b'#');
        let end = path.iter().position(is_end).unwrap_or(path.len());
        self.find(&path[end..], found);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::condition::PathPattern;
    use super::*;

    /// A small alphabet and short texts, so that tests share prefixes and values nearly match.
    const TEXT: &str = "[ab/?é]{0,4}";

    fn test() -> impl Strategy<Value = Test> {
        let segment = prop_oneof![3 => "[ab?#]{0,2}", 1 => Just("{id}".to_owned())];
        let path = (prop::collection::vec(segment, 1..4), any::<bool>()).prop_map(|(segments, rest)| {
            let form = format!("/{}{}", segments.join("/"), if rest { "/{*rest}" } else { "" });
            Test::Path(PathPattern::parse(&form).expect("a valid pattern"))
        });
        prop_oneof![
            prop::collection::vec(TEXT, 1..3).prop_map(Test::OneOf),
            TEXT.prop_map(Test::Prefix),
            path,
        ]
    }

    proptest! {
        #[test]
        fn a_value_finds_exactly_the_tests_that_it_passes(
            tests in prop::collection::vec(test(), 1..20),
            values in prop::collection::vec("[/]?[ab/?#é]{0,7}", 1..20),
        ) {
            let mut tree = Tree::default();
            for (rule, test) in tests.iter().enumerate() {
                tree.insert(test, rule as u32);
            }
            for value in &values {
                let mut found = Found::new();
                tree.find(value.as_bytes(), &mut found);
                found.sort_unstable();
                found.dedup();
                let passed = (0..).zip(&tests).filter(|(_, test)| test.holds(value)).map(|(rule, _)| rule);
                prop_assert_eq!(found.to_vec(), passed.collect::<Vec<u32>>(), "{}", value);
            }
        }
    }
}
