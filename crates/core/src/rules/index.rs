//! Finds the rules that may match a request without checking all rules.
//!
//! Each rule is indexed under one of its conditions: the one that the fewest other rules share. There is one prefix tree
//! per attribute. A lookup of the request's values returns the rules whose indexed condition holds. The caller then
//! checks their other conditions. Rules without a condition that can be indexed are checked every time.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::condition::{Condition, Segment, Test};
use super::tree::Tree;
use crate::request::attributes::Attributes;
use crate::request::path::PATH;

/// Indexes of rules, in the order of the file.
pub(super) type Found = SmallVec<[u32; 8]>;

#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    attributes: Vec<(String, Tree)>,
    always: Vec<u32>,
    /// Per rule, the indexes of the conditions that the tree does not check.
    unindexed: Vec<Vec<usize>>,
}

impl Index {
    /// Builds the index. `rules` are the conditions of each rule, in the order of the rules.
    pub(super) fn new<'c>(rules: impl Iterator<Item = &'c [Condition]> + Clone) -> Index {
        let mut shared: HashMap<(&str, String), usize> = HashMap::new();
        for condition in rules.clone().flatten() {
            for entry in entries(&condition.test) {
                *shared.entry((&condition.attribute, entry)).or_default() += 1;
            }
        }
        // The largest number of rules that share an index entry with this condition. `None` if it cannot be indexed.
        let sharing = |condition: &Condition| {
            let entries = entries(&condition.test).into_iter();
            entries.filter_map(|entry| shared.get(&(condition.attribute.as_str(), entry))).max().copied()
        };
        let mut index = Index::default();
        for (number, conditions) in rules.enumerate() {
            let number = number as u32;
            let indexable = conditions.iter().enumerate().filter_map(|(at, each)| Some((sharing(each)?, at)));
            let indexed = indexable.min_by_key(|&(sharing, _)| sharing).map(|(_, at)| at);
            match indexed.map(|at| &conditions[at]) {
                Some(condition) => index.tree(&condition.attribute).insert(&condition.test, number),
                None => index.always.push(number),
            }
            index.unindexed.push((0..conditions.len()).filter(|&at| Some(at) != indexed).collect());
        }
        index
    }

    /// Returns the rules that may match, in the order of the file.
    pub(super) fn candidates(&self, attributes: &Attributes<'_>) -> Found {
        let mut found = Found::new();
        // A loop is faster than `extend_from_slice` for so few rules.
        for &rule in &self.always {
            found.push(rule);
        }
        for (name, tree) in &self.attributes {
            if let Some(value) = attributes.get(name) {
                tree.find(value.as_bytes(), &mut found);
            }
        }
        if !attributes.path_readings().is_empty() {
            self.add_other_readings(attributes, &mut found);
        }
        if found.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
        found
    }

    /// Adds the rules that another reading of the path may match.
    #[cold]
    fn add_other_readings(&self, attributes: &Attributes<'_>, found: &mut Found) {
        for (_, tree) in self.attributes.iter().filter(|(name, _)| name == PATH) {
            for reading in attributes.path_readings() {
                tree.find(reading.as_bytes(), found);
            }
        }
    }

    /// Whether a candidate's other conditions hold.
    #[inline]
    pub(super) fn confirms(&self, rule: u32, conditions: &[Condition], attributes: &Attributes<'_>) -> bool {
        self.unindexed[rule as usize].iter().all(|&at| conditions[at].holds(attributes))
    }

    fn tree(&mut self, attribute: &str) -> &mut Tree {
        let at = self.attributes.iter().position(|(name, _)| name == attribute).unwrap_or_else(|| {
            self.attributes.push((attribute.to_owned(), Tree::default()));
            self.attributes.len() - 1
        });
        &mut self.attributes[at].1
    }
}

/// Returns names for the tree entries of a test. A glob, an address and a test with exclusions have none.
fn entries(test: &Test) -> Vec<String> {
    match test {
        Test::OneOf(values) => values.iter().map(|value| format!("={value}")).collect(),
        Test::Prefix(prefix) => vec![format!("^{prefix}")],
        Test::Path(pattern) => vec![pattern.segments.iter().map(Segment::entry).collect()],
        Test::Glob(_) | Test::Address(_) | Test::Except(_) | Test::Hashed(_) => Vec::new(),
    }
}

impl Segment {
    /// A literal segment contains no braces, so different patterns never get the same name.
    fn entry(&self) -> String {
        match self {
            Segment::Literal(literal) => format!("/{literal}"),
            Segment::Any => "/{}".to_owned(),
            Segment::Rest => "/{*}".to_owned(),
        }
    }
}
