//! Who is counted, as a keyed hash; the secrets that hash, and how one takes the place of another.

use std::fmt;
use std::str::FromStr;

use super::sip::Sip;

/// A keyed hash of who is counted. The values themselves never leave the process.
///
/// The first 8 of its 128 bits are the id of the hash key, so that state counted under another secret is seen to be
/// just that. The text is 22 characters of URL-safe base 64, of which the first two are the id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subject(pub(super) u128);

/// Makes subjects. Without its secret no address can be found by trying all of them.
#[derive(Clone)]
pub struct SubjectHasher {
    key_id: u8,
    secret: [u8; SECRET_LEN],
    /// Starts every subject. SipHash-2-4: a keyed hash made for short values, four times as fast as BLAKE3 on them.
    start: Sip,
}

/// The hash keys in force: one, or two while one takes the place of the other.
///
/// # How to change the key
///
/// For a while **both keys are charged**: a check puts one item into its Plan for each hasher of
/// [`iter`](SubjectHashers::iter), alike in everything but the key, and reset, report and the like go to both. A Plan
/// is all or nothing, so each charge is booked under both keys or under none, and of the two answers the stricter
/// one counts. An admission gives a receipt for each key, and they are taken back together.
///
/// 1. Each server in turn gets the new key as current and the old one as previous. The old key still has every
///    charge and decides as before. The new key has a part of them, and refuses nothing that the old one admits.
/// 2. When the last server has both keys, wait until the old key counts nothing that the new one does not.
/// 3. Each server in turn gets the new key alone. The new key has every charge that counts, and decides.
///
/// Servers may differ by one step, in any order and for any time, and no clock takes part. Servers that have only
/// the old key must never run beside servers that have only the new one: they share no key, so each side would
/// admit a whole limit. [`SubjectHasher::fingerprint`] is there to notice.
///
/// # How long to wait
///
/// | limit | after that, no answer differs from those of an unchanged key |
/// |---|---|
/// | fixed window, sliding log | one window |
/// | sliding window | one window and one bucket |
/// | quota | one period; a rolling one then begins at another instant |
/// | concurrency | until every lease that was taken before has ended |
/// | token and leaky bucket | until the subject has once let it drain |
/// | penalty | until the subject has once been forgotten |
/// | meter | never: charge the difference of the two values to the new key |
///
/// Whoever is idle is through after the time to drain a full bucket. A subject that never pauses for that long
/// carries its debt from before step 1 on the old bucket only, and once step 3 is done can take that much more, once:
/// at most one capacity. It is no secret: at any time the difference of the two `remaining` is what dropping the old
/// key would hand out.
///
/// Where the two keys lie in different slots of a cluster, the Plan spans slots: it may refuse early, and never
/// admits more. Under a rule in shadow mode each key keeps books of its own, and either may report a refusal.
///
/// # Why not less
///
/// To look at the old key without charging it admits a whole limit on top of what was consumed before. To change at
/// an agreed instant does the same for every subject at once. To move the state when its subject is next seen needs
/// both keys in one slot, and a server that does not know the new key yet would find nothing and start afresh.
#[derive(Clone, Debug)]
pub struct SubjectHashers {
    current: SubjectHasher,
    previous: Option<SubjectHasher>,
}

/// Text or bytes that are no secret. What was found is not repeated: it may be most of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SecretError {
    /// Not 32 bytes.
    #[error("a hash key has {SECRET_LEN} bytes, not {found}; make one with `openssl rand -hex {SECRET_LEN}`")]
    Bytes {
        /// How many there are.
        found: usize,
    },
    /// Not 64 characters.
    #[error(
        "a hash key has {} hexadecimal digits, not {found}; make one with `openssl rand -hex {SECRET_LEN}`",
        2 * SECRET_LEN
    )]
    Length {
        /// How many characters there are.
        found: usize,
    },
    /// A character that is no hexadecimal digit.
    #[error("character {at} of the hash key is no hexadecimal digit; allowed are 0 to 9 and a to f")]
    Digit {
        /// Which, counted from 1.
        at: usize,
    },
}

/// Two hash keys that cannot be told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RotationError {
    /// One id for two keys.
    #[error("the current and the previous hash key both have the id {key_id}; give the new one another id")]
    SameId {
        /// The id.
        key_id: u8,
    },
    /// One secret for two keys.
    #[error("the current and the previous hash key have the same secret; make a new one for the current key")]
    SameSecret,
}

/// Text that is no subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a subject is {TEXT_LEN} characters of URL-safe base 64 that make 128 bits")]
pub struct SubjectParseError;

const SECRET_LEN: usize = 32;
/// Six bits each, the first has two.
const TEXT_LEN: usize = 22;
/// What is left of a subject's bits beside the id of the key.
const HASH_BITS: u32 = 120;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Separates the key of subjects from everything else that is ever derived from the secret.
const SUBJECT: &str = "tollgate 2026-11 key of subject hashes";
/// Separates fingerprints from everything else that is ever derived from the secret.
const FINGERPRINT: &str = "tollgate 2026-01 fingerprint of a subject hash key";

impl SubjectHasher {
    /// A hasher with this secret, whose id is 0. The secret must be random.
    pub fn new(secret: [u8; 32]) -> SubjectHasher {
        SubjectHasher::with_id(0, secret)
    }

    /// A hasher with this secret and id. An id is never used again for another secret.
    pub fn with_id(key_id: u8, secret: [u8; 32]) -> SubjectHasher {
        let derived = blake3::derive_key(SUBJECT, &secret);
        let mut key = [0; 16];
        key.copy_from_slice(&derived[..16]);
        SubjectHasher { key_id, secret, start: Sip::new(key) }
    }

    /// A hasher with a secret of 32 bytes.
    pub fn from_bytes(key_id: u8, secret: &[u8]) -> Result<SubjectHasher, SecretError> {
        let secret = secret.try_into().map_err(|_| SecretError::Bytes { found: secret.len() })?;
        Ok(SubjectHasher::with_id(key_id, secret))
    }

    /// A hasher with a secret of 64 hexadecimal digits. White space around them, as files end with it, is ignored.
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

    /// The id of its secret.
    pub const fn key_id(&self) -> u8 {
        self.key_id
    }

    /// A key for another purpose, made of the same secret. Keys of different purposes have nothing to do with each other,
    /// and none leads back to the secret.
    pub fn key_for(&self, purpose: &str) -> [u8; 32] {
        blake3::derive_key(purpose, &self.secret)
    }

    /// What servers compare to see that they have the same secret: 16 hexadecimal digits that anybody may read. They
    /// are hashed from the secret alone and lead neither back to it nor to any subject.
    pub fn fingerprint(&self) -> String {
        let digest = blake3::derive_key(FINGERPRINT, &self.secret);
        let first = digest[..8].iter().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte));
        format!("{first:016x}")
    }

    /// The subject made of these parts, each the kind of a value and the value. Every part is preceded by both lengths,
    /// so that different parts never run together into the same bytes.
    pub fn subject<'p>(&self, parts: impl IntoIterator<Item = (&'p str, &'p str)>) -> Subject {
        let mut hasher = self.start;
        for (kind, value) in parts {
            // In one word, which saves a step of the hash: nothing in a request is four gigabytes long.
            hasher.write_word((kind.len() as u64) << 32 | value.len() as u64);
            hasher.write(kind.as_bytes());
            hasher.write(value.as_bytes());
        }
        let hash = hasher.finish();
        Subject(u128::from(self.key_id) << HASH_BITS | hash >> (u128::BITS - HASH_BITS))
    }
}

impl fmt::Debug for SubjectHasher {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubjectHasher").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

impl SubjectHashers {
    /// Both keys of a change. They must differ in their ids and in their secrets.
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

    /// The key that stays. Where one subject is enough, in a log for instance, it is this one's.
    pub const fn current(&self) -> &SubjectHasher {
        &self.current
    }

    /// The key that is being replaced, if one is.
    pub const fn previous(&self) -> Option<&SubjectHasher> {
        self.previous.as_ref()
    }

    /// Every key that must be charged, the current one first.
    pub fn iter(&self) -> impl Iterator<Item = &SubjectHasher> {
        std::iter::once(&self.current).chain(&self.previous)
    }
}

/// One key, nothing changing.
impl From<SubjectHasher> for SubjectHashers {
    fn from(current: SubjectHasher) -> SubjectHashers {
        SubjectHashers { current, previous: None }
    }
}

impl Subject {
    /// Everybody a store has no room for, together.
    pub const OVERFLOW: Subject = Subject((1 << HASH_BITS) - 1);

    /// The hash, with the id of its key in front.
    pub const fn to_u128(self) -> u128 {
        self.0
    }

    /// A subject from its hash, as a receipt carries it.
    pub const fn from_u128(hash: u128) -> Subject {
        Subject(hash)
    }

    /// One of so many that stand for all subjects, the same one for the same subject. 0 counts as 1.
    pub const fn slot_tag(self, parts: u16) -> Subject {
        let hash = self.0 & ((1 << HASH_BITS) - 1);
        Subject(hash % if parts == 0 { 1 } else { parts as u128 })
    }

    /// The id of the secret it was hashed with.
    pub const fn key_id(self) -> u8 {
        (self.0 >> HASH_BITS) as u8
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut text, mut rest) = ([0; TEXT_LEN], self.0);
        for digit in text.iter_mut().rev() {
            *digit = ALPHABET[rest as usize & 63];
            rest >>= 6;
        }
        // All at once, because keys are written for every check.
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
    /// Logs carry the id of the key and a prefix of the hash only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:08x}…", self.key_id(), (self.0 >> (HASH_BITS - 32)) as u32)
    }
}
