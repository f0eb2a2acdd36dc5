//! Subjects as keyed hashes, the hash keys, and their rotation.

use std::fmt;
use std::str::FromStr;

use super::sip::Sip;
use crate::limit::part::Shard;

/// A keyed hash of the attribute values that a rule counts by. The values themselves never leave the process.
///
/// The first 8 of its 128 bits are the id of the hash key, so that state counted under another secret can be recognised.
/// The text is 22 characters of URL-safe base 64, of which the first two are the id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subject(pub(super) u128);

/// Hashes attribute values to subjects. Without its secret, an address cannot be found by trying all of them.
#[derive(Clone)]
pub struct SubjectHasher {
    key_id: u8,
    secret: [u8; SECRET_LEN],
    /// Initial state of every hash. SipHash-2-4 is a keyed hash for short values, on which it is four times as fast as
    /// BLAKE3.
    start: Sip,
}

/// The hash keys in force: one, or two during a rotation.
///
/// # How to rotate the key
///
/// During a rotation **both keys are charged**. A check puts one item per hasher of [`iter`](SubjectHashers::iter) into
/// its Plan; the items differ only in their key. Reset, report and other follow-ups go to both. A Plan is atomic, so each
/// charge is recorded under both keys or under neither, and the stricter of the two answers counts. An admission gives
/// one receipt per key, and both are refunded together.
///
/// 1. Give each server in turn the new key as current and the old one as previous. The old key still has every charge and
///    decides as before. The new key has some of the charges and refuses nothing that the old one admits.
/// 2. When the last server has both keys, wait until the old key counts nothing that the new one does not.
/// 3. Give each server in turn only the new key. It now has every charge that counts, and decides.
///
/// Servers may differ by one step, in any order and for any time. No clock is involved. Servers with only the old key must
/// never run at the same time as servers with only the new one: they share no key, so each group would admit a whole
/// limit. Compare [`SubjectHasher::fingerprint`] to detect this.
///
/// # How long to wait
///
/// | limit | wait this long; then no answer differs from those of an unchanged key |
/// |---|---|
/// | fixed window, sliding log | one window |
/// | sliding window | one window and one bucket |
/// | quota | one period; a rolling period then starts at another instant |
/// | concurrency | until every lease that was taken before step 1 has ended |
/// | token and leaky bucket | until the subject's bucket has drained once |
/// | penalty | until the subject's failures have expired once |
/// | meter | never; charge the difference of the two values to the new key |
///
/// An idle subject's bucket has drained after the fill time. A subject that never pauses for that long has its debt from
/// before step 1 only under the old key. After step 3 it can consume that much more, once: at most one capacity. At any
/// time, the difference between the two `remaining` values shows how much that would be.
///
/// If the two keys are in different hash slots of a cluster, the Plan spans slots: it may refuse early, but never admits
/// more. Under a shadow rule the two keys are counted independently, and either may report a refusal.
///
/// # Alternatives that fail
///
/// - Peeking at the old key without charging it admits a whole limit in addition to what was consumed before.
/// - Switching at an agreed instant does the same for every subject at once.
/// - Moving the state when its subject is next seen needs both keys in one hash slot. A server that does not know the new
///   key yet would find no state.
#[derive(Clone, Debug)]
pub struct SubjectHashers {
    current: SubjectHasher,
    previous: Option<SubjectHasher>,
}

/// The hash key is invalid. Messages do not repeat the input, which may be most of a secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SecretError {
    /// The key does not have 32 bytes.
    #[error(
        "hash key has {found} bytes, expected {SECRET_LEN}; make one with `openssl rand -hex {SECRET_LEN}`"
    )]
    Bytes {
        /// Number of bytes.
        found: usize,
    },
    /// The key does not have 64 characters.
    #[error(
        "hash key has {found} characters, expected {} hexadecimal digits; make one with `openssl rand -hex {SECRET_LEN}`",
        2 * SECRET_LEN
    )]
    Length {
        /// Number of characters.
        found: usize,
    },
    /// A character is not a hexadecimal digit.
    #[error("character {at} of the hash key is not a hexadecimal digit; allowed are 0 to 9 and a to f")]
    Digit {
        /// Its position, counted from 1.
        at: usize,
    },
}

/// The two hash keys of a rotation are not distinct.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RotationError {
    /// Both keys have the same id.
    #[error("the current and the previous hash key both have the id {key_id}; give the new one another id")]
    SameId {
        /// The id.
        key_id: u8,
    },
    /// Both keys have the same secret.
    #[error("the current and the previous hash key have the same secret; make a new one for the current key")]
    SameSecret,
}

/// The text is not a subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid subject; a subject is {TEXT_LEN} characters of URL-safe base 64 that make 128 bits")]
pub struct SubjectParseError;

const SECRET_LEN: usize = 32;
/// Characters of a subject's text: six bits each, but the first has two.
const TEXT_LEN: usize = 22;
/// Characters of the prefix that people see.
const PREFIX_LEN: usize = 10;
/// Bits of a subject without the id of the key.
const HASH_BITS: u32 = 120;
/// An odd number without a pattern: the fraction of the golden ratio.
const SPREAD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Derivation context of the key that hashes subjects.
const SUBJECT: &str = "tollgate 2026-11 key of subject hashes";
/// Derivation context of fingerprints.
const FINGERPRINT: &str = "tollgate 2026-01 fingerprint of a subject hash key";

impl SubjectHasher {
    /// Creates a hasher with this secret and the id 0. The secret must be random.
    pub fn new(secret: [u8; 32]) -> SubjectHasher {
        SubjectHasher::with_id(0, secret)
    }

    /// Creates a hasher with this secret and id. Never use an id again for another secret.
    pub fn with_id(key_id: u8, secret: [u8; 32]) -> SubjectHasher {
        let derived = blake3::derive_key(SUBJECT, &secret);
        let mut key = [0; 16];
        key.copy_from_slice(&derived[..16]);
        SubjectHasher { key_id, secret, start: Sip::new(key) }
    }

    /// Creates a hasher with a secret of 32 bytes.
    pub fn from_bytes(key_id: u8, secret: &[u8]) -> Result<SubjectHasher, SecretError> {
        let secret = secret.try_into().map_err(|_| SecretError::Bytes { found: secret.len() })?;
        Ok(SubjectHasher::with_id(key_id, secret))
    }

    /// Creates a hasher with a secret of 64 hexadecimal digits. White space around them is ignored.
    pub fn from_hex(key_id: u8, secret: &str) -> Result<SubjectHasher, SecretError> {
        let digits = secret.trim_ascii();
        let found = digits.chars().count();
        if found != 2 * SECRET_LEN {
            return Err(SecretError::Length { found });
        }
        let mut secret = [0; SECRET_LEN];
        for (index, character) in digits.chars().enumerate() {
            let digit = character.to_digit(16).ok_or(SecretError::Digit { at: index + 1 })?;
            secret[index / 2] = secret[index / 2] << 4 | digit as u8;
        }
        Ok(SubjectHasher::with_id(key_id, secret))
    }

    /// Returns the id of its secret.
    pub const fn key_id(&self) -> u8 {
        self.key_id
    }

    /// Derives a key for another purpose from the secret. Neither the secret nor the key of another purpose can be
    /// computed from it.
    pub fn key_for(&self, purpose: &str) -> [u8; 32] {
        blake3::derive_key(purpose, &self.secret)
    }

    /// Returns 16 hexadecimal digits that servers compare to detect different secrets.
    ///
    /// They are a hash of the secret alone and are safe to publish: they reveal neither the secret nor a subject.
    pub fn fingerprint(&self) -> String {
        let digest = blake3::derive_key(FINGERPRINT, &self.secret);
        let first = digest[..8].iter().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte));
        format!("{first:016x}")
    }

    /// Returns the subject of these parts, each a kind and a value. Both lengths precede each part, so that different
    /// parts never give the same bytes.
    pub fn subject<'p>(&self, parts: impl IntoIterator<Item = (&'p str, &'p str)>) -> Subject {
        let mut hasher = self.start;
        for (kind, value) in parts {
            // One word saves a step of the hash. No value in a request is 4 GiB long.
            hasher.write_word((kind.len() as u64) << 32 | value.len() as u64);
            hasher.write(kind.as_bytes());
            hasher.write(value.as_bytes());
        }
        let hash = hasher.finish();
        Subject(u128::from(self.key_id) << HASH_BITS | hash >> (u128::BITS - HASH_BITS))
    }
}

impl fmt::Debug for SubjectHasher {
    /// Prints the id without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubjectHasher").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

impl SubjectHashers {
    /// Creates both keys of a rotation. They must differ in id and secret.
    pub fn rotating(
        current: SubjectHasher,
        previous: SubjectHasher,
    ) -> Result<SubjectHashers, RotationError> {
        if current.key_id == previous.key_id {
            return Err(RotationError::SameId { key_id: current.key_id });
        }
        if current.secret == previous.secret {
            return Err(RotationError::SameSecret);
        }
        Ok(SubjectHashers { current, previous: Some(previous) })
    }

    /// Returns the key that stays in force. Logs use its subjects.
    pub const fn current(&self) -> &SubjectHasher {
        &self.current
    }

    /// Returns the key that is being replaced, if there is one.
    pub const fn previous(&self) -> Option<&SubjectHasher> {
        self.previous.as_ref()
    }

    /// Returns every key that must be charged, the current one first.
    pub fn iter(&self) -> impl Iterator<Item = &SubjectHasher> {
        std::iter::once(&self.current).chain(&self.previous)
    }
}

/// One key, without a rotation.
impl From<SubjectHasher> for SubjectHashers {
    fn from(current: SubjectHasher) -> SubjectHashers {
        SubjectHashers { current, previous: None }
    }
}

impl Subject {
    /// The overflow subject: it counts all subjects beyond the cap on keys.
    pub const OVERFLOW: Subject = Subject((1 << HASH_BITS) - 1);

    /// Returns the hash, with the id of its key in the first 8 bits.
    pub const fn to_u128(self) -> u128 {
        self.0
    }

    /// Creates a subject from its hash, for example from a receipt.
    pub const fn from_u128(hash: u128) -> Subject {
        Subject(hash)
    }

    /// Maps the subject to one of `tags` hash tags, always to the same one. 0 counts as 1.
    pub const fn slot_tag(self, tags: u16) -> Subject {
        let hash = self.0 & ((1 << HASH_BITS) - 1);
        Subject(hash % if tags == 0 { 1 } else { tags as u128 })
    }

    /// Returns the subject under which one shard of a rule counts this one. Another number of shards gives other subjects,
    /// so that a rule whose number changes starts with nothing consumed.
    #[must_use]
    pub const fn of_shard(self, shard: Shard) -> Subject {
        // Different numbers, spread over all bits, so that shards are as far apart as different subjects.
        let number = (shard.of().count() << 8 | shard.index()) as u128 + 1;
        let spread = number.wrapping_mul(SPREAD) & ((1 << HASH_BITS) - 1);
        Subject(self.0 ^ spread)
    }

    /// Returns the hash tag of one shard if subjects are divided into `tags` hash tags: the shards of a subject have
    /// different ones, as far as there are enough.
    #[must_use]
    pub const fn slot_tag_of_shard(self, tags: u16, shard: Shard) -> Subject {
        let tags = if tags == 0 { 1 } else { tags as u128 };
        let hash = self.0 & ((1 << HASH_BITS) - 1);
        Subject((hash % tags + shard.index() as u128) % tags)
    }

    /// Returns the id of the secret that hashed it.
    pub const fn key_id(self) -> u8 {
        (self.0 >> HASH_BITS) as u8
    }
}

impl Subject {
    /// Returns the beginning of its text, which logs, explanations and responses show: the id of the key and 48 bits of
    /// the hash. The keys of the subject in the store contain the same characters.
    pub fn prefix(&self) -> String {
        let mut text = self.to_string();
        text.truncate(PREFIX_LEN);
        text
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut text, mut rest) = ([0; TEXT_LEN], self.0);
        for digit in text.iter_mut().rev() {
            *digit = ALPHABET[rest as usize & 63];
            rest >>= 6;
        }
        // One write, because every check formats keys.
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Subject {
    type Err = SubjectParseError;

    fn from_str(text: &str) -> Result<Subject, SubjectParseError> {
        if text.len() != TEXT_LEN {
            return Err(SubjectParseError);
        }
        text.bytes()
            .try_fold(0_u128, |sum, byte| {
                let six_bits = ALPHABET.iter().position(|&known| known == byte)?;
                let room = sum.leading_zeros() >= 6;
                room.then_some(sum << 6 | six_bits as u128)
            })
            .map(Subject)
            .ok_or(SubjectParseError)
    }
}

impl fmt::Debug for Subject {
    /// Prints the [prefix](Subject::prefix) only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.prefix())
    }
}
