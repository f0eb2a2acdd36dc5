//! Finds the rules that may match without looking at the others.
//!
//! Each rule is filed under one of its conditions, the one that the fewest other rules share. A request looks up its own values;
//! of what it finds there, that one condition holds and the others are then checked. Rules without such a condition are
//! looked at every time.
//!
//! The maps have a quick hash without a secret: requests only look things up, so nobody from outside can fill a map with
//! keys that collide.

use rustc_hash::FxHashMap as HashMap;
use smallvec::SmallVec;

use super::condition::{Condition, Segment, Segments, Test, segments_of};
use crate::attributes::Attributes;

/// Positions of rules in their file.
pub(super) type Found = SmallVec<[u32; 8]>;

#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    attributes: Vec<(String, Filed)>,
    always: Vec<u32>,
    /// Per rule, which of its conditions it is filed under.
    under: Vec<Option<usize>>,
}

/// The rules filed under one attribute.
#[derive(Clone, Debug, Default)]
struct Filed {
    values: HashMap<String, Vec<u32>>,
    prefixes: HashMap<String, Vec<u32>>,
    /// The lengths that prefixes have.
    prefix_lens: Vec<usize>,
    paths: PathTree,
    has_paths: bool,
}

#[derive(Clone, Debug, Default)]
struct PathTree {
    literals: HashMap<Vec<u8>, PathTree>,
    /// A bit for every length that literals have: most paths part from all patterns here, before anything is hashed.
    literal_lens: u64,
    any: Option<Box<PathTree>>,
    /// Rules whose pattern ends here.
    ends: Vec<u32>,
    /// Rules whose pattern takes the rest from here.
    rest: Vec<u32>,
}

impl Index {
    /// Files rules by their conditions, given in the order of the rules.
    pub(super) fn new<'c>(rules: impl Iterator<Item = &'c [Condition]> + Clone) -> Index {
        let mut shared: HashMap<(&str, String), usize> = HashMap::default();
        for condition in rules.clone().flatten() {
            for place in places(&condition.test) {
                *shared.entry((&condition.attribute, place)).or_default() += 1;
            }
        }
        // How many rules lie at most where this condition would file one; nowhere for a form that cannot be filed.
        let crowd = |condition: &Condition| {
            let places = places(&condition.test).into_iter();
            places.filter_map(|place| shared.get(&(condition.attribute.as_str(), place))).max().copied()
        };
        let mut index = Index::default();
        for (number, conditions) in rules.enumerate() {
            let number = number as u32;
            let crowds = conditions.iter().enumerate().filter_map(|(at, each)| Some((crowd(each)?, at)));
            let under = crowds.min_by_key(|&(crowd, _)| crowd).map(|(_, at)| at);
            match under.map(|at| &conditions[at]) {
                Some(condition) => index.filed(&condition.attribute).file(&condition.test, number),
                None => index.always.push(number),
            }
            index.under.push(under);
        }
        index
    }

    /// The rules that may match, in the order of the file.
    pub(super) fn candidates(&self, attributes: &Attributes<'_>) -> Found {
        let mut found = Found::new();
        note(&mut found, &self.always);
        for (name, filed) in &self.attributes {
            if let Some(value) = attributes.get(name) {
                filed.find(value, &mut found);
            }
        }
        if found.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
        found
    }

    /// Whether a candidate really matches, given its conditions.
    #[inline]
    pub(super) fn confirms(&self, rule: u32, conditions: &[Condition], attributes: &Attributes<'_>) -> bool {
        let under = self.under[rule as usize];
        let rest = conditions.iter().enumerate().filter(|&(at, _)| Some(at) != under);
        rest.map(|(_, condition)| condition).all(|condition| condition.holds(attributes))
    }

    fn filed(&mut self, attribute: &str) -> &mut Filed {
        let at = self.attributes.iter().position(|(name, _)| name == attribute).unwrap_or_else(|| {
            self.attributes.push((attribute.to_owned(), Filed::default()));
            self.attributes.len() - 1
        });
        &mut self.attributes[at].1
    }
}

/// Few at a time, so one by one is quicker than as a block.
fn note(found: &mut Found, rules: &[u32]) {
    for &rule in rules {
        found.push(rule);
    }
}

/// Names for the places where a rule with this test lies.
fn places(test: &Test) -> Vec<String> {
    match test {
        Test::OneOf(values) => values.iter().map(|value| format!("={value}")).collect(),
        Test::Prefix(prefix) => vec![format!("^{prefix}")],
        Test::Path(pattern) => vec![pattern.segments.iter().map(Segment::place).collect()],
        Test::Glob(_) => Vec::new(),
    }
}

impl Segment {
    /// Braces cannot stand in a literal segment, so these never run together.
    fn place(&self) -> String {
        match self {
            Segment::Literal(literal) => format!("/{literal}"),
            Segment::Any => "/{}".to_owned(),
            Segment::Rest => "/{*}".to_owned(),
        }
    }
}

impl Filed {
    fn file(&mut self, test: &Test, rule: u32) {
        match test {
            Test::OneOf(values) => {
                for value in values {
                    self.values.entry(value.clone()).or_default().push(rule);
                }
            }
            Test::Prefix(prefix) => {
                self.prefixes.entry(prefix.clone()).or_default().push(rule);
                if let Err(place) = self.prefix_lens.binary_search(&prefix.len()) {
                    self.prefix_lens.insert(place, prefix.len());
                }
            }
            Test::Path(pattern) => {
                self.has_paths = true;
                self.paths.file(&pattern.segments, rule);
            }
            Test::Glob(_) => (),
        }
    }

    fn find(&self, value: &str, found: &mut Found) {
        if !self.values.is_empty()
            && let Some(rules) = self.values.get(value)
        {
            note(found, rules);
        }
        for &len in &self.prefix_lens {
            // A length inside a character is no prefix of the value.
            let Some(prefix) = value.get(..len) else { continue };
            if let Some(rules) = self.prefixes.get(prefix) {
                note(found, rules);
            }
        }
        if self.has_paths
            && let Some(segments) = segments_of(value)
        {
            self.paths.find(segments, found);
        }
    }
}

impl PathTree {
    fn file(&mut self, segments: &[Segment], rule: u32) {
        match segments {
            [] => self.ends.push(rule),
            [Segment::Rest, ..] => self.rest.push(rule),
            [Segment::Any, below @ ..] => self.any.get_or_insert_default().file(below, rule),
            [Segment::Literal(literal), below @ ..] => {
                self.literal_lens |= len_bit(literal.as_bytes());
                self.literals.entry(literal.clone().into_bytes()).or_default().file(below, rule);
            }
        }
    }

    fn find(&self, mut segments: Segments<'_>, found: &mut Found) {
        let mut node = self;
        loop {
            let Some(first) = segments.next() else {
                return note(found, &node.ends);
            };
            if !first.is_empty() {
                note(found, &node.rest);
                if let Some(any) = &node.any {
                    any.find(segments.clone(), found);
                }
            }
            let may_be_there = node.literal_lens & len_bit(first) != 0;
            match may_be_there.then(|| node.literals.get(first)).flatten() {
                Some(literal) => node = literal,
                None => return,
            }
        }
    }
}

/// The longest share the last bit.
fn len_bit(segment: &[u8]) -> u64 {
    1 << segment.len().min(u64::BITS as usize - 1)
}
