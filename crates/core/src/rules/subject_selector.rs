//! Which attributes make up the subject that a rule counts by.

use std::fmt;

use smallvec::SmallVec;

use crate::key::{Subject, SubjectHasher};
use crate::request::attributes::Attributes;

/// Name of the attribute that holds the client's address.
pub(super) const ADDRESS: &str = "ip";

/// Selects the subject of a request. Without parts, all requests share one subject.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SubjectSelector {
    /// Each part is a fallback chain of attributes. The first one that is present counts.
    pub parts: Vec<Vec<String>>,
}

/// The subject of one request: kind and value of each part.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SubjectParts<'a> {
    /// In the order of the rule. The kind is the attribute's name, so that user 7 and API key 7 are different subjects.
    pub parts: SmallVec<[(&'a str, &'a str); 4]>,
}

impl SubjectSelector {
    /// Returns the subject of a request, or the first chain without a present attribute.
    ///
    /// An absent or empty attribute never becomes an empty subject.
    pub fn find<'a>(&'a self, attributes: &Attributes<'a>) -> Result<SubjectParts<'a>, &'a [String]> {
        let mut subjects = SubjectParts::default();
        self.find_into(attributes, &mut subjects)?;
        Ok(subjects)
    }

    /// Like [`find`](SubjectSelector::find), but overwrites `subjects`. Moving the parts costs as much as finding them.
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

    /// Whether every subject includes this attribute.
    pub fn always_includes(&self, attribute: &str) -> bool {
        self.parts.iter().any(|chain| matches!(chain.as_slice(), [only] if only == attribute))
    }
}

impl<'a> SubjectParts<'a> {
    /// Returns the subject as a keyed hash.
    pub fn hash(&self, hasher: &SubjectHasher) -> Subject {
        hasher.subject(self.parts.iter().copied())
    }

    /// Whether the subject is anonymous: it includes an address. An attacker can have millions of addresses.
    pub fn is_anonymous(&self) -> bool {
        self.parts.iter().any(|&(kind, _)| kind == ADDRESS)
    }

    /// Returns the hash of only these attributes' parts, in the order given. It becomes the key's hash tag.
    pub fn hash_partition(&self, hasher: &SubjectHasher, attributes: &[String]) -> Subject {
        let part = |name: &String| self.parts.iter().copied().find(|(kind, _)| kind == name);
        hasher.subject(attributes.iter().filter_map(part))
    }
}

/// Prints kinds only, because values can be secrets or personal data.
impl fmt::Debug for SubjectParts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.parts.iter().map(|(kind, _)| kind)).finish()
    }
}
