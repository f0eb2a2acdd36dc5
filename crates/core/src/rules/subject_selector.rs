//! Who is counted: the subject of a rule.

use std::fmt;

use smallvec::SmallVec;

use crate::attributes::Attributes;
use crate::key::{Subject, SubjectHasher};

/// The attribute that holds the client's address.
const ADDRESS: &str = "ip";

/// The parts of a rule's subject. No parts: everybody together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SubjectSelector {
    /// Each part is a chain of attributes, the first that is there counts.
    pub parts: Vec<Vec<String>>,
}

/// A subject found in a request: each part's kind and value.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SubjectParts<'a> {
    /// In the order of the rule. The kind is the attribute's name, so that a user 7 and an API key 7 are two.
    pub parts: SmallVec<[(&'a str, &'a str); 4]>,
}

impl SubjectSelector {
    /// The subject of this request; the first chain none of whose attributes is there, if any.
    ///
    /// An attribute that is absent or empty never becomes an empty subject.
    pub fn find<'a>(&'a self, attributes: &Attributes<'a>) -> Result<SubjectParts<'a>, &'a [String]> {
        let mut subjects = SubjectParts::default();
        self.find_into(attributes, &mut subjects)?;
        Ok(subjects)
    }

    /// [`find`](SubjectSelector::find) in place of what was found before: moving it costs as much as finding it.
    #[inline]
    pub(super) fn find_into<'a>(
        &'a self,
        attributes: &Attributes<'a>,
        subjects: &mut SubjectParts<'a>,
    ) -> Result<(), &'a [String]> {
        subjects.parts.clear();
        for chain in &self.parts {
            let found = chain.iter().find_map(|name| {
                let value = attributes.get(name).filter(|value| !value.is_empty())?;
                Some((name.as_str(), value))
            });
            subjects.parts.push(found.ok_or(chain.as_slice())?);
        }
        Ok(())
    }

    /// Whether this attribute is always part of the subject.
    pub fn always_includes(&self, attribute: &str) -> bool {
        self.parts.iter().any(|chain| matches!(chain.as_slice(), [only] if only == attribute))
    }
}

impl<'a> SubjectParts<'a> {
    /// The subject as a keyed hash.
    pub fn hash(&self, hasher: &SubjectHasher) -> Subject {
        hasher.subject(self.parts.iter().copied())
    }

    /// Whether an address is all that is known of it. Addresses come for free by the million.
    pub fn is_anonymous(&self) -> bool {
        self.parts.iter().any(|&(kind, _)| kind == ADDRESS)
    }

    /// The hash of only these attributes' parts, in the order given: what decides the slot.
    pub fn hash_partition(&self, hasher: &SubjectHasher, attributes: &[String]) -> Subject {
        let part = |name: &String| self.parts.iter().copied().find(|(kind, _)| kind == name);
        hasher.subject(attributes.iter().filter_map(part))
    }
}

/// Kinds only: values may be keys, addresses and people.
impl fmt::Debug for SubjectParts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.parts.iter().map(|(kind, _)| kind)).finish()
    }
}
