//! Whose state: subjects as keyed hashes, and the key that names their state in a store.

mod sip;
mod subject;

use std::fmt;
use std::str::FromStr;

pub use subject::{RotationError, SecretError, Subject, SubjectHasher, SubjectHashers, SubjectParseError};

/// The version of the key's form.
const VERSION: u8 = 1;

/// What all keys of one rule have in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keyspace {
    namespace: String,
    rule: String,
    /// Tells the same subject under different rules apart.
    salt: u128,
}

/// Names one subject's state under one rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key<'r> {
    keyspace: &'r Keyspace,
    tag: Subject,
    subject: Subject,
}

/// A key as it was found in a store, by a scan for instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredKey {
    keyspace: Keyspace,
    tag: Subject,
    subject: Subject,
}

/// A name that a key cannot carry.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what} {found:?} must be 1 to 64 letters, digits, `-`, `_` or `.`")]
pub struct KeyspaceError {
    what: &'static str,
    found: String,
}

/// Text that is no key of this version.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyParseError {
    /// It has another form.
    #[error("a key has the form tg:{VERSION}:<namespace>:{{<tag>}}:<rule>:<subject>")]
    Form,
    /// A name is wrong.
    #[error(transparent)]
    Keyspace(#[from] KeyspaceError),
    /// Its tag or its subject is wrong.
    #[error(transparent)]
    Subject(#[from] SubjectParseError),
}

impl Keyspace {
    /// The keyspace of `rule` in `namespace` (product and environment).
    pub fn new(namespace: &str, rule: &str) -> Result<Keyspace, KeyspaceError> {
        for (what, name) in [("namespace", namespace), ("rule id", rule)] {
            let fits = (1..=64).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
            if !fits {
                let found = name.chars().take(80).collect();
                return Err(KeyspaceError { what, found });
            }
        }
        let mut hasher = blake3::Hasher::new();
        for name in [namespace, rule] {
            hasher.update(&[name.len() as u8]);
            hasher.update(name.as_bytes());
        }
        let salt = first_half(&hasher.finalize());
        Ok(Keyspace { namespace: namespace.to_owned(), rule: rule.to_owned(), salt })
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
        Key { keyspace: self, tag: subject, subject }
    }

    /// The key of `subject`, in the slot of `tag`, which may depend on nothing but the subject's own parts and is
    /// hashed with the same secret.
    pub const fn key_tagged(&self, tag: Subject, subject: Subject) -> Key<'_> {
        Key { keyspace: self, tag, subject }
    }
}

impl<'r> Key<'r> {
    /// The rule it belongs to.
    pub const fn keyspace(&self) -> &'r Keyspace {
        self.keyspace
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
    pub const fn request_id_key(self, id: Subject) -> RequestIdKey<'r> {
        RequestIdKey { first: self, id }
    }

    /// 128 bits that tell this key from every other, for stores in memory. All but the first 8 are as good as random.
    pub const fn fingerprint(&self) -> u128 {
        self.subject.0 ^ self.keyspace.salt
    }
}

/// The key under which a request id is remembered: in the slot of the Plan's first item. No rule can be called `@id`.
#[derive(Clone, Copy, Debug)]
pub struct RequestIdKey<'r> {
    first: Key<'r>,
    id: Subject,
}

impl fmt::Display for RequestIdKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.first.keyspace.namespace();
        write!(f, "tg:{VERSION}:{namespace}:{{{}}}:@id:{}", self.first.tag, self.id)
    }
}

/// The only place where the key is written as a string.
impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Keyspace { namespace, rule, .. } = self.keyspace;
        write!(f, "tg:{VERSION}:{namespace}:{{{}}}:{rule}:{}", self.tag, self.subject)
    }
}

impl StoredKey {
    /// The key.
    pub const fn key(&self) -> Key<'_> {
        self.keyspace.key_tagged(self.tag, self.subject)
    }
}

/// Takes exactly what [`Key`] writes.
impl FromStr for StoredKey {
    type Err = KeyParseError;

    fn from_str(text: &str) -> Result<StoredKey, KeyParseError> {
        let parts: smallvec::SmallVec<[&str; 6]> = text.splitn(6, ':').collect();
        let [product, version, namespace, tag, rule, subject] = parts[..] else {
            return Err(KeyParseError::Form);
        };
        if product != "tg" || version != VERSION.to_string() {
            return Err(KeyParseError::Form);
        }
        let tag = tag.strip_prefix('{').and_then(|tag| tag.strip_suffix('}')).ok_or(KeyParseError::Form)?;
        let keyspace = Keyspace::new(namespace, rule)?;
        Ok(StoredKey { keyspace, tag: tag.parse()?, subject: subject.parse()? })
    }
}

fn first_half(hash: &blake3::Hash) -> u128 {
    let bytes = hash.as_bytes();
    bytes[..16].iter().fold(0, |sum, &byte| sum << 8 | u128::from(byte))
}

#[cfg(test)]
mod tests;
