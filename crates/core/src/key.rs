//! Whose state: subjects as keyed hashes, and the key that names their state in a store.

use std::fmt;

/// The version of the key's form.
const VERSION: u8 = 1;

/// A keyed 128-bit hash of who is counted. The values themselves never leave the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subject(u128);

/// Makes subjects. Without its secret no address can be found by trying all of them.
#[derive(Clone)]
pub struct SubjectHasher {
    secret: [u8; 32],
}

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

/// A name that a key cannot carry.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what} {found:?} must be 1 to 64 letters, digits, `-`, `_` or `.`")]
pub struct ScopeError {
    what: &'static str,
    found: String,
}

impl SubjectHasher {
    /// A hasher with this secret.
    pub const fn new(secret: [u8; 32]) -> SubjectHasher {
        SubjectHasher { secret }
    }

    /// The subject made of these parts, each the kind of a value and the value. Every part is preceded by its
    /// length, so that different parts never run together into the same bytes.
    pub fn subject<'p>(&self, parts: impl IntoIterator<Item = (&'p str, &'p str)>) -> Subject {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        for (kind, value) in parts {
            for part in [kind, value] {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part.as_bytes());
            }
        }
        Subject(first_half(&hasher.finalize()))
    }
}

impl fmt::Debug for SubjectHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SubjectHasher(secret)")
    }
}

impl Subject {
    /// The hash.
    pub const fn to_u128(self) -> u128 {
        self.0
    }

    /// A subject from its hash, as a receipt carries it.
    pub const fn from_u128(hash: u128) -> Subject {
        Subject(hash)
    }
}

/// 22 characters of URL-safe base 64.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        (0..22).rev().try_for_each(|digit| {
            let six_bits = (self.0 >> (digit * 6)) as usize & 63;
            fmt::Write::write_char(f, char::from(ALPHABET[six_bits]))
        })
    }
}

impl fmt::Debug for Subject {
    /// Logs carry a prefix only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}…", (self.0 >> 96) as u32)
    }
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

    /// The key of `subject`, in a slot of its own.
    pub const fn key(&self, subject: Subject) -> Key<'_> {
        Key { scope: self, tag: subject, subject }
    }

    /// The key of `subject`, in the slot of `tag`, which may depend on nothing but the subject's own parts.
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

    /// 128 bits that tell this key from every other, for stores in memory.
    pub const fn fingerprint(&self) -> u128 {
        self.subject.0 ^ self.scope.salt
    }
}

/// The only place where the key is a string.
impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scope { namespace, rule, .. } = self.scope;
        write!(f, "tg:{VERSION}:{namespace}:{{{}}}:{rule}:{}", self.tag, self.subject)
    }
}

fn first_half(hash: &blake3::Hash) -> u128 {
    let bytes = hash.as_bytes();
    bytes[..16].iter().fold(0, |sum, &byte| sum << 8 | u128::from(byte))
}
