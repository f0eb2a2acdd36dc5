//! References of refusals: short texts that explain a refusal later, with nothing stored.
//!
//! A reference is the refusal itself, encrypted and authenticated under a key that is derived from the hash key. Clients can
//! pass it on, and cannot read, change or forge it. Every server with the hash key can open it.

mod codec;
mod describe;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow};
use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use smallvec::SmallVec;
use tollgate::Decision;
use tollgate::core::{SubjectHasher, SubjectHashers};

pub(crate) use codec::{Refusal, RefusingRule, RuleNumbers};

/// The beginning of every reference, so that one is recognised in a log or a ticket.
pub(crate) const PREFIX: &str = "tgr_";
/// The header field that carries it.
pub(crate) const HEADER: &str = "tollgate-ref";
/// Derives the key of references from the hash key; no other derived key uses this text.
const PURPOSE: &str = "tollgate 2026-11 references of refusals";
const TAG_LEN: usize = 16;
/// The id of the hash key and the nonce, before the ciphertext.
const HEAD_LEN: usize = 1 + NONCE_LEN;
/// A longer text is no reference of ours: names and numbers are bounded.
pub(crate) const TEXT_LEN_MAX: usize = 1_024;

/// Makes references, and opens them.
pub(crate) struct References {
    /// The first key makes references; the others only open them.
    keys: SmallVec<[Key; 2]>,
    server: String,
    /// Random, so that servers with one key use different nonces. A repeated nonce of this cipher would reveal only whether
    /// two refusals are equal.
    nonce_start: [u8; 6],
    next_nonce: AtomicU64,
}

struct Key {
    id: u8,
    cipher: LessSafeKey,
}

/// The text is no reference of a server with these hash keys.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum ReferenceError {
    #[error("invalid reference: a reference begins with {PREFIX} and has letters, digits, - and _")]
    NotAReference,
    #[error("the reference was made under the hash key with the id {found}, which is not in use here")]
    OtherKey { found: u8 },
    #[error("the reference was changed, or made under another hash key with the same id")]
    Forged,
    #[error("the reference was made by a newer release")]
    Newer,
}

impl References {
    /// The references of the server with this name.
    pub(crate) fn new(hashers: &SubjectHashers, server: &str) -> Result<References> {
        let keys = hashers.iter().map(Key::new).collect::<Result<_>>()?;
        let mut nonce_start = [0; 6];
        getrandom::fill(&mut nonce_start).context("cannot get random numbers from the operating system")?;
        Ok(References {
            keys,
            server: codec::cut(server).to_owned(),
            nonce_start,
            next_nonce: AtomicU64::new(0),
        })
    }

    /// The reference of a refusal; `None` if the request is allowed. `rules` is the fingerprint of the rules in force.
    #[inline]
    pub(crate) fn of(&self, decision: &Decision, rules: &str) -> Option<String> {
        if decision.allowed() { None } else { self.seal_decision(decision, rules) }
    }

    #[cold]
    fn seal_decision(&self, decision: &Decision, rules: &str) -> Option<String> {
        let mut plain = codec::Plain::new();
        codec::write_decision(&mut plain, decision, &self.server, rules);
        self.seal(&mut plain)
    }

    /// The reference of a refusal that is no decision, such as that of an extension.
    #[cold]
    pub(crate) fn of_refusal(&self, refusal: &Refusal) -> Option<String> {
        let mut plain = codec::Plain::new();
        codec::write(&mut plain, &Refusal { server: self.server.clone(), ..refusal.clone() });
        self.seal(&mut plain)
    }

    /// `None` only if the cipher fails, which it does for no input of this length.
    fn seal(&self, plain: &mut [u8]) -> Option<String> {
        let key = self.keys.first()?;
        let number = self.next_nonce.fetch_add(1, Ordering::Relaxed);
        let mut nonce = [0; NONCE_LEN];
        nonce[..6].copy_from_slice(&self.nonce_start);
        nonce[6..].copy_from_slice(&number.to_be_bytes()[2..]);
        let aad = Aad::from([key.id]);
        let tag = key.cipher.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), aad, plain);
        let tag = tag.ok()?;
        let mut bytes = SmallVec::<[u8; 192]>::new();
        bytes.push(key.id);
        bytes.extend_from_slice(&nonce);
        bytes.extend_from_slice(plain);
        bytes.extend_from_slice(tag.as_ref());
        let mut text = String::with_capacity(PREFIX.len() + bytes.len().div_ceil(3) * 4);
        text.push_str(PREFIX);
        URL_SAFE_NO_PAD.encode_string(&bytes, &mut text);
        Some(text)
    }

    /// The name of this server, as references have it.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// The refusal that a reference describes.
    pub(crate) fn open(&self, text: &str) -> Result<Refusal, ReferenceError> {
        open(&self.keys, text)
    }
}

/// Opens a reference with one hash key, without a server.
pub(crate) fn open_with(hasher: &SubjectHasher, text: &str) -> Result<Refusal, anyhow::Error> {
    Ok(open(&[Key::new(hasher)?], text)?)
}

/// Whether a text is meant as a reference.
pub(crate) fn is_reference(text: &str) -> bool {
    text.starts_with(PREFIX) && !text.contains('=')
}

fn open(keys: &[Key], text: &str) -> Result<Refusal, ReferenceError> {
    let encoded = text.strip_prefix(PREFIX).filter(|encoded| encoded.len() <= TEXT_LEN_MAX);
    let encoded = encoded.ok_or(ReferenceError::NotAReference)?;
    let mut bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| ReferenceError::NotAReference)?;
    if bytes.len() < HEAD_LEN + TAG_LEN {
        return Err(ReferenceError::NotAReference);
    }
    let (head, sealed) = bytes.split_at_mut(HEAD_LEN);
    let found = head[0];
    let mut nonce = [0; NONCE_LEN];
    nonce.copy_from_slice(&head[1..]);
    let key = keys.iter().find(|key| key.id == found).ok_or(ReferenceError::OtherKey { found })?;
    let nonce = Nonce::assume_unique_for_key(nonce);
    let plain = key.cipher.open_in_place(nonce, Aad::from([found]), sealed);
    codec::read(plain.map_err(|_| ReferenceError::Forged)?).ok_or(ReferenceError::Newer)
}

impl Key {
    fn new(hasher: &SubjectHasher) -> Result<Key> {
        let key = UnboundKey::new(&AES_256_GCM_SIV, &hasher.key_for(PURPOSE));
        let key = key.map_err(|_| anyhow!("cannot make the key of references; please report it"))?;
        Ok(Key { id: hasher.key_id(), cipher: LessSafeKey::new(key) })
    }
}

impl fmt::Debug for References {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("References").field("server", &self.server).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
