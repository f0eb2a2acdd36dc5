//! Finds the rules that may match without looking at the others.
//!
//! Each rule is filed under one of its conditions, the one that the fewest other rules share, in a tree for the attribute
//! that it is about. A request looks up its own values; of what it finds there, that one condition holds and the others
//! are then checked. Rules without such a condition are looked at every time.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::condition::{Condition, Segment, Test};
use super::tree::Tree;
use crate::attributes::Attributes;

/// Positions of rules in their file.
pub(super) type Found = SmallVec<[u32; 8]>;

#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    attributes: Vec<(String, Tree)>,
    always: Vec<u32>,
    /// Per rule, those of its conditions that it is not filed under, by place.
    unfiled: Vec<Vec<usize>>,
}

impl Index {
    /// Files rules by their conditions, given in the order of the rules.
    pub(super) fn new<'c>(rules: impl Iterator<Item = &'c [Condition]> + Clone) -> Index {
        let mut shared: HashMap<(&str, String), usize> = HashMap::new();
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
                Some(condition) => index.tree(&condition.attribute).file(&condition.test, number),
                None => index.always.push(number),
            }
            index.unfiled.push((0..conditions.len()).filter(|&at| Some(at) != under).collect());
        }
        index
    }

    /// The rules that may match, in the order of the file.
    pub(super) fn candidates(&self, attributes: &Attributes<'_>) -> Found {
        let mut found = Found::new();
        // Few, so one by one is quicker than as a block.
        for &rule in &self.always {
            found.push(rule);
        }
        for (name, tree) in &self.attributes {
            if let Some(value) = attributes.get(name) {
                tree.find(value.as_bytes(), &mut found);
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
        self.unfiled[rule as usize].iter().all(|&at| conditions[at].holds(attributes))
    }

    fn tree(&mut self, attribute: &str) -> &mut Tree {
        let at = self.attributes.iter().position(|(name, _)| name == attribute).unwrap_or_else(|| {
            self.attributes.push((attribute.to_owned(), Tree::default()));
            self.attributes.len() - 1
        });
        &mut self.attributes[at].1
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
