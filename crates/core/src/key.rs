//! Whose state: subjects as keyed hashes, and the key that names their state in a store.

mod sip;
mod subject;

use std::fmt;
use std::str::FromStr;

pub use subject::{NotASubject, RotationError, SecretError, Subject, SubjectHasher, SubjectHashers};

/// The version of the key's form.
const VERSION: u8 = 1;

/// What all keys of one rule have in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope {
    namespace: String,
    rule: String,
    /// Tells the same subject under different rules apart.
    salt: u128,
}

/// Names one subject's state under one rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key<'r> {
    scope: &'r Scope,
    tag: Subject,
    subject: Subject,
}

/// A key as it was found in a store, by a scan for instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredKey {
    scope: Scope,
    tag: Subject,
    subject: Subject,
}

/// A name that a key cannot carry.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what} {found:?} must be 1 to 64 letters, digits, `-`, `_` or `.`")]
pub struct ScopeError {
    what: &'static str,
    found: String,
}

/// Text that is no key of this version.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotAKey {
    /// It has another form.
    #[error("a key has the form tg:{VERSION}:<namespace>:{{<tag>}}:<rule>:<subject>")]
    Form,
    /// A name is wrong.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    /// Its tag or its subject is wrong.
    #[error(transparent)]
    Subject(#[from] NotASubject),
}

impl Scope {
    /// The scope of `rule` in `namespace` (product and environment).
    pub fn new(namespace: &str, rule: &str) -> Result<Scope, ScopeError> {
        for (what, name) in [("namespace", namespace), ("rule id", rule)] {
            let fits = (1..=64).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
            if !fits {
                let found = name.chars().take(80).collect();
                return Err(ScopeError { what, found });
            }
        }
        let mut hasher = blake3::Hasher::new();
        for name in [namespace, rule] {
            hasher.update(&[name.len() as u8]);
            hasher.update(name.as_bytes());
        }
        let salt = first_half(&hasher.finalize());
        Ok(Scope { namespace: namespace.to_owned(), rule: rule.to_owned(), salt })
    }

    /// The rule's id.
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Product and environment.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// 128 bits that tell this rule from every other, for stores in memory.
    pub const fn fingerprint(&self) -> u128 {
        self.salt
    }

    /// The key of `subject`, in a slot of its own.
    pub const fn key(&self, subject: Subject) -> Key<'_> {
        Key { scope: self, tag: subject, subject }
    }

    /// The key of `subject`, in the slot of `tag`, which may depend on nothing but the subject's own parts and is
    /// hashed with the same secret.
    pub const fn key_tagged(&self, tag: Subject, subject: Subject) -> Key<'_> {
        Key { scope: self, tag, subject }
    }
}

impl<'r> Key<'r> {
    /// The rule it belongs to.
    pub const fn scope(&self) -> &'r Scope {
        self.scope
    }

    /// Whose state it is.
    pub const fn subject(&self) -> Subject {
        self.subject
    }

    /// What decides its slot.
    pub const fn tag(&self) -> Subject {
        self.tag
    }

    /// Where `id` is remembered for a Plan that begins with this key.
    pub const fn of_request(self, id: Subject) -> IdKey<'r> {
        IdKey { first: self, id }
    }

    /// 128 bits that tell this key from every other, for stores in memory. All but the first 8 are as good as random.
    pub const fn fingerprint(&self) -> u128 {
        self.subject.0 ^ self.scope.salt
    }
}

/// The key under which a request id is remembered: in the slot of the Plan's first item. No rule can be called `@id`.
#[derive(Clone, Copy, Debug)]
pub struct IdKey<'r> {
    first: Key<'r>,
    id: Subject,
}

impl fmt::Display for IdKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.first.scope.namespace();
        write!(f, "tg:{VERSION}:{namespace}:{{{}}}:@id:{}", self.first.tag, self.id)
    }
}

/// The only place where the key is written as a string.
impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scope { namespace, rule, .. } = self.scope;
        write!(f, "tg:{VERSION}:{namespace}:{{{}}}:{rule}:{}", self.tag, self.subject)
    }
}

impl StoredKey {
    /// The key.
    pub const fn key(&self) -> Key<'_> {
        self.scope.key_tagged(self.tag, self.subject)
    }
}

/// Takes exactly what [`Key`] writes.
impl FromStr for StoredKey {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<StoredKey, NotAKey> {
        let parts: smallvec::SmallVec<[&str; 6]> = text.splitn(6, ':').collect();
        let [product, version, namespace, tag, rule, subject] = parts[..] else { return Err(NotAKey::Form) };
        if product != "tg" || version != VERSION.to_string() {
            return Err(NotAKey::Form);
        }
        let tag = tag.strip_prefix('{').and_then(|tag| tag.strip_suffix('}')).ok_or(NotAKey::Form)?;
        let scope = Scope::new(namespace, rule)?;
        Ok(StoredKey { scope, tag: tag.parse()?, subject: subject.parse()? })
    }
}

fn first_half(hash: &blake3::Hash) -> u128 {
    let bytes = hash.as_bytes();
    bytes[..16].iter().fold(0, |sum, &byte| sum << 8 | u128::from(byte))
}

#[cfg(test)]
mod tests;
