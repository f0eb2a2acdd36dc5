//! Keys: the names of subjects' state in a store. Subjects are keyed hashes of attribute values.

mod sip;
mod subject;

use std::fmt;
use std::hash::Hasher;
use std::str::FromStr;

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::plan::operation::Token;

pub use subject::{RotationError, SecretError, Subject, SubjectHasher, SubjectHashers, SubjectParseError};

/// Version of the key format.
const VERSION: u8 = 1;

/// The keys of one rule: its namespace and id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keyspace {
    namespace: String,
    rule: String,
    /// Distinguishes the same subject under different rules.
    salt: u128,
}

/// The name of one subject's state under one rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key<'r> {
    keyspace: &'r Keyspace,
    tag: Subject,
    subject: Subject,
}

/// A key that was read from a store, for example by a scan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredKey {
    keyspace: Keyspace,
    tag: Subject,
    subject: Subject,
}

/// A namespace or rule id is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what} {found:?} must be 1 to 64 letters, digits, `-`, `_` or `.`")]
pub struct KeyspaceError {
    what: &'static str,
    found: String,
}

/// The text is not a key of this version.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyParseError {
    /// The text has another format.
    #[error("invalid key; a key has the form tg:{VERSION}:<namespace>:{{<tag>}}:<rule>:<subject>")]
    Form,
    /// The namespace or the rule id is invalid.
    #[error(transparent)]
    Keyspace(#[from] KeyspaceError),
    /// The tag or the subject is invalid.
    #[error(transparent)]
    Subject(#[from] SubjectParseError),
}

impl Keyspace {
    /// Creates the keyspace of `rule` in `namespace` (product and environment).
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

    /// Returns the rule's id.
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Returns the namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns 128 bits that identify this rule in a memory store.
    #[inline]
    pub const fn fingerprint(&self) -> u128 {
        self.salt
    }

    /// Returns the key of `subject`, with the subject as its hash tag.
    pub const fn key(&self, subject: Subject) -> Key<'_> {
        Key { keyspace: self, tag: subject, subject }
    }

    /// Returns the key of `subject` with the hash tag `tag`, which must depend only on the subject's parts and be hashed
    /// with the same secret.
    pub const fn key_tagged(&self, tag: Subject, subject: Subject) -> Key<'_> {
        Key { keyspace: self, tag, subject }
    }
}

impl<'r> Key<'r> {
    /// Returns the keyspace of its rule.
    pub const fn keyspace(&self) -> &'r Keyspace {
        self.keyspace
    }

    /// Returns the subject.
    pub const fn subject(&self) -> Subject {
        self.subject
    }

    /// Returns its hash tag, which decides the hash slot.
    pub const fn tag(&self) -> Subject {
        self.tag
    }

    /// Returns the key under which a Plan that starts with this key remembers the request id `id`.
    pub const fn request_id_key(self, id: Subject) -> RequestIdKey<'r> {
        RequestIdKey { first: self, id }
    }

    /// Returns the key under which a store remembers the last reset of this key.
    pub const fn reset_key(self) -> ResetKey<'r> {
        ResetKey(self)
    }

    /// Returns the key under which a store keeps the record of the lease or reservation with this token.
    pub fn hold_key(self, token: Token) -> HoldKey<'r> {
        // One request may hold units of several rules and subjects under one token. The hash also keeps the token, which is
        // a credential, out of the key.
        let mut hasher = SipHasher24::new();
        hasher.write_u128(self.fingerprint());
        hasher.write_u128(token.0);
        HoldKey { account: self, id: Subject(hasher.finish128().as_u128()) }
    }

    /// Returns 128 bits that identify this key in a memory store. All bits but the first 8 are uniformly distributed.
    #[inline]
    pub const fn fingerprint(&self) -> u128 {
        self.subject.0 ^ self.keyspace.salt
    }
}

/// The key that remembers a request id, in the hash slot of the Plan's first item. No rule id can be `@id`.
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

/// The key that remembers the last reset of a key, in the same hash slot. No rule id can be `@reset`.
#[derive(Clone, Copy, Debug)]
pub struct ResetKey<'r>(Key<'r>);

impl fmt::Display for ResetKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Keyspace { namespace, rule, .. } = self.0.keyspace;
        write!(f, "tg:{VERSION}:{namespace}:{{{}}}:@reset:{rule}:{}", self.0.tag, self.0.subject)
    }
}

/// The key of the record of a lease or reservation, in the hash slot of its account. No rule id can be `@hold`.
#[derive(Clone, Copy, Debug)]
pub struct HoldKey<'r> {
    account: Key<'r>,
    id: Subject,
}

impl fmt::Display for HoldKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.account.keyspace.namespace();
        write!(f, "tg:{VERSION}:{namespace}:{{{}}}:@hold:{}", self.account.tag, self.id)
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
    /// Returns the key.
    pub const fn key(&self) -> Key<'_> {
        self.keyspace.key_tagged(self.tag, self.subject)
    }
}

/// Accepts exactly what [`Key`]'s `Display` writes.
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
