//! The tests of one attribute as a tree of bytes: what they begin with alike is compared once, and a value finds all that
//! it passes on one way down.

use super::condition::{Segment, Test};
use super::index::Found;
use crate::short_bytes;

/// A place in the tree: what lies on the way to it is the beginning of a value.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    /// What leads here from the place above.
    text: Vec<u8>,
    /// Rules whose test ends here, and what of a value may follow.
    filed: Vec<(Follows, u32)>,
    /// Where the forms of paths go on that have any one segment here.
    any: Option<Box<Tree>>,
    /// The places below, and the bytes they begin with, in order.
    firsts: Vec<u8>,
    below: Vec<Tree>,
}

/// What of a value may follow where a test ends.
#[derive(Clone, Copy, Debug)]
enum Follows {
    /// Nothing: it is the value.
    Nothing,
    /// Anything: it is a prefix.
    Anything,
    /// Nothing but a query: it is a path.
    Query,
    /// The rest of a path, at least one segment that is not empty.
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
    /// Files a rule under a test. A glob has no place here.
    pub(super) fn file(&mut self, test: &Test, rule: u32) {
        match test {
            Test::OneOf(values) => {
                for value in values {
                    self.down(value.as_bytes()).filed.push((Follows::Nothing, rule));
                }
            }
            Test::Prefix(prefix) => self.down(prefix.as_bytes()).filed.push((Follows::Anything, rule)),
            Test::Path(pattern) => self.file_path(&pattern.segments, rule),
            Test::Glob(_) => (),
        }
    }

    fn file_path(&mut self, segments: &[Segment], rule: u32) {
        let (mut place, mut text) = (self, Vec::new());
        for segment in segments {
            text.push(b'/');
            match segment {
                // From there on it would be a query, so no path has such a segment.
                Segment::Literal(literal) if literal.contains(['?', '#']) => return,
                Segment::Literal(literal) => text.extend_from_slice(literal.as_bytes()),
                Segment::Any => place = place.down(&std::mem::take(&mut text)).any.get_or_insert_default(),
                Segment::Rest => return place.down(&text).filed.push((Follows::Segments, rule)),
            }
        }
        place.down(&text).filed.push((Follows::Query, rule));
    }

    /// The place to which this text leads from here, made if it is new.
    fn down(&mut self, mut text: &[u8]) -> &mut Tree {
        let mut place = self;
        while let Some(first) = text.first() {
            let at = place.firsts.binary_search(first).unwrap_or_else(|at| {
                place.firsts.insert(at, *first);
                place.below.insert(at, Tree { text: text.to_owned(), ..Tree::default() });
                at
            });
            place = &mut place.below[at];
            let alike = place.text.iter().zip(text).take_while(|(own, other)| own == other).count();
            place.split(alike);
            text = &text[alike..];
        }
        place
    }

    /// Makes a place after so many bytes of the text, if there is none.
    fn split(&mut self, at: usize) {
        if at < self.text.len() {
            let mut below = std::mem::take(self);
            self.text = std::mem::take(&mut below.text);
            below.text = self.text.split_off(at);
            self.firsts.push(below.text[0]);
            self.below.push(below);
        }
    }

    /// Notes the rules whose test this value passes, or the rest of one that led here.
    #[inline(always)]
    pub(super) fn find(&self, value: &[u8], found: &mut Found) {
        let (mut place, mut rest) = (self, value);
        loop {
            for &(follows, rule) in &place.filed {
                if follows.holds(rest) {
                    found.push(rule);
                }
            }
            if let Some(any) = &place.any
                && Follows::Segments.holds(rest)
            {
                any.find_behind_segment(rest, found);
            }
            let next = rest.first().and_then(|first| place.firsts.binary_search(first).ok());
            let Some(next) = next.map(|at| &place.below[at]) else { return };
            let Some(behind) = short_bytes::behind(rest, &next.text) else { return };
            (place, rest) = (next, behind);
        }
    }

    /// The same for what follows the first segment of a path. Never inlined, so that the way without such segments is.
    #[inline(never)]
    fn find_behind_segment(&self, path: &[u8], found: &mut Found) {
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

    /// Few letters and short words, so that tests share beginnings and values come close.
    const TEXT: &str = "[ab/?é]{0,4}";

    fn test() -> impl Strategy<Value = Test> {
        let segment = prop_oneof![3 => "[ab?#]{0,2}", 1 => Just("{id}".to_owned())];
        let path = (prop::collection::vec(segment, 1..4), any::<bool>()).prop_map(|(segments, rest)| {
            let form = format!("/{}{}", segments.join("/"), if rest { "/{*rest}" } else { "" });
            Test::Path(PathPattern::parse(&form).expect("the form is one"))
        });
        prop_oneof![
            prop::collection::vec(TEXT, 1..3).prop_map(Test::OneOf),
            TEXT.prop_map(Test::Prefix),
            path,
        ]
    }

    proptest! {
        #[test]
        fn a_value_finds_the_tests_that_it_passes_and_no_others(
            tests in prop::collection::vec(test(), 1..20),
            values in prop::collection::vec("[/]?[ab/?#é]{0,7}", 1..20),
        ) {
            let mut tree = Tree::default();
            for (rule, test) in tests.iter().enumerate() {
                tree.file(test, rule as u32);
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
