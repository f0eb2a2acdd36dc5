//! Conditions on keyed hashes: live changes name secrets and subjects without their values.

use std::fmt;

use super::subject_selector::SubjectSelector;
use crate::key::{Subject, SubjectHashers};
use crate::request::attributes::Attributes;

/// Values of an attribute, by their hashes. They are the subjects of a rule that counts by this attribute alone.
#[derive(Clone)]
pub struct HashedValues {
    /// The attribute.
    pub attribute: String,
    /// The hash keys. While one replaces the other, both are compared.
    pub hashers: SubjectHashers,
    /// The hashes.
    pub hashes: Vec<Subject>,
}

impl HashedValues {
    /// Whether the hash of the value is one of these.
    pub fn holds(&self, value: &str) -> bool {
        self.hashers
            .iter()
            .map(|hasher| hasher.subject([(self.attribute.as_str(), value)]))
            .any(|hash| self.hashes.contains(&hash))
    }
}

/// The subject of a rule, by its hash or the beginning that logs and pages show.
#[derive(Clone)]
pub struct SubjectTest {
    /// What the rule counts by.
    pub per: SubjectSelector,
    /// The hash keys. While one replaces the other, both are compared.
    pub hashers: SubjectHashers,
    /// The text of the hash, or its [prefix](Subject::prefix).
    pub hash: String,
}

impl SubjectTest {
    /// Whether the request has this subject.
    pub fn holds(&self, attributes: &Attributes<'_>) -> bool {
        let Ok(parts) = self.per.find(attributes) else { return false };
        self.hashers.iter().any(|hasher| parts.hash(hasher).to_string().starts_with(&self.hash))
    }
}

impl PartialEq for HashedValues {
    fn eq(&self, other: &HashedValues) -> bool {
        self.attribute == other.attribute && self.hashes == other.hashes
    }
}

impl Eq for HashedValues {}

impl PartialEq for SubjectTest {
    fn eq(&self, other: &SubjectTest) -> bool {
        self.per == other.per && self.hash == other.hash
    }
}

impl Eq for SubjectTest {}

impl fmt::Debug for HashedValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashedValues")
            .field("attribute", &self.attribute)
            .field("hashes", &self.hashes)
            .finish()
    }
}

impl fmt::Debug for SubjectTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubjectTest").field("per", &self.per).field("hash", &self.hash).finish()
    }
}
