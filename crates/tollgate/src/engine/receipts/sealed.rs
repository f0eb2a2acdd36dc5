//! Receipts as one tamper-proof text, for callers that keep them between requests.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use constant_time_eq::constant_time_eq;
use smallvec::SmallVec;
use tollgate_core::{Receipt, Store, SubjectHashers};

use crate::engine::{Decision, Engine};

/// Derives the sealing key from the hash key; no other derived key uses this text.
const PURPOSE: &str = "tollgate 2026-11 seal of receipts";
/// 128 bits cannot be guessed.
const SEAL_LEN: usize = 16;

/// The keys that seal receipts. They are derived from the hash keys, so servers that share those accept each other's
/// seals.
pub(in crate::engine) struct ReceiptSeals {
    /// The first key seals; the others only open.
    keys: SmallVec<[[u8; 32]; 2]>,
}

/// Who may return receipts, as the caller of the engine identifies its clients: the hash of a tenant, for example.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiptOwner(pub [u8; ReceiptOwner::BYTES]);

impl ReceiptOwner {
    const BYTES: usize = 16;
}

/// The text was not sealed with this hash key, or was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid receipt; return it unchanged, to the server that issued it or one with the same hash key")]
pub struct InvalidReceipts;

impl ReceiptSeals {
    pub(in crate::engine) fn new(hashers: &SubjectHashers) -> ReceiptSeals {
        ReceiptSeals { keys: hashers.iter().map(|hasher| hasher.key_for(PURPOSE)).collect() }
    }

    /// The seal, the owner if there is one, then each receipt after its length, as base64. A length of zero precedes the
    /// owner, because no receipt is empty.
    fn seal(&self, owner: Option<ReceiptOwner>, receipts: &[Receipt]) -> String {
        let mut bytes = vec![0; SEAL_LEN];
        if let Some(ReceiptOwner(owner)) = owner {
            bytes.extend_from_slice(&[0, 0]);
            bytes.extend_from_slice(&owner);
        }
        for receipt in receipts {
            let encoded = receipt.encode();
            // Names have at most 64 bytes, and all other fields have a fixed length.
            bytes.extend_from_slice(&(encoded.len() as u16).to_le_bytes());
            bytes.extend_from_slice(&encoded);
        }
        let seal = seal_of(&self.keys[0], &bytes[SEAL_LEN..]);
        bytes[..SEAL_LEN].copy_from_slice(&seal);
        URL_SAFE_NO_PAD.encode(&bytes)
    }

    fn open(&self, text: &str) -> Result<(Option<ReceiptOwner>, Vec<Receipt>), InvalidReceipts> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidReceipts)?;
        let (seal, mut rest) = bytes.split_at_checked(SEAL_LEN).ok_or(InvalidReceipts)?;
        let mut seals = self.keys.iter().map(|key| seal_of(key, rest));
        if !seals.any(|known| constant_time_eq(&known, seal)) {
            return Err(InvalidReceipts);
        }
        let mut owner = None;
        if let [0, 0, more @ ..] = rest {
            let (bytes, receipts) = more.split_first_chunk().ok_or(InvalidReceipts)?;
            (owner, rest) = (Some(ReceiptOwner(*bytes)), receipts);
        }
        let mut receipts = Vec::new();
        while let [low, high, more @ ..] = rest {
            let len = u16::from_le_bytes([*low, *high]);
            let (encoded, others) = more.split_at_checked(len.into()).ok_or(InvalidReceipts)?;
            receipts.push(Receipt::decode(encoded).map_err(|_| InvalidReceipts)?);
            rest = others;
        }
        if rest.is_empty() { Ok((owner, receipts)) } else { Err(InvalidReceipts) }
    }
}

fn seal_of(key: &[u8; 32], bytes: &[u8]) -> [u8; SEAL_LEN] {
    let mut seal = [0; SEAL_LEN];
    seal.copy_from_slice(&blake3::keyed_hash(key, bytes).as_bytes()[..SEAL_LEN]);
    seal
}

impl<S: Store> Engine<S> {
    /// The [receipts](Decision::receipts) of a decision as one sealed text; `None` if there are no receipts.
    pub fn sealed_receipts(&self, decision: &Decision) -> Option<String> {
        self.seal_receipts_of(decision, None)
    }

    /// Like [`sealed_receipts`](Engine::sealed_receipts), for an owner. The text names the owner.
    pub fn seal_receipts_of(&self, decision: &Decision, owner: Option<ReceiptOwner>) -> Option<String> {
        self.seal_receipts(&decision.receipts(), owner)
    }

    /// Receipts as one sealed text; `None` for an empty list. For receipts that no decision has, such as those of an
    /// extended reservation.
    pub fn seal_receipts(&self, receipts: &[Receipt], owner: Option<ReceiptOwner>) -> Option<String> {
        (!receipts.is_empty()).then(|| self.inner.seals.seal(owner, receipts))
    }

    /// Opens a text that was sealed here or by another limiter with the same hash key. The owner is not checked.
    pub fn open_receipts(&self, sealed: &str) -> Result<Vec<Receipt>, InvalidReceipts> {
        self.open_receipts_of(sealed).map(|(_, receipts)| receipts)
    }

    /// Like [`open_receipts`](Engine::open_receipts), with the owner. The caller decides whether the owner may return them.
    pub fn open_receipts_of(
        &self,
        sealed: &str,
    ) -> Result<(Option<ReceiptOwner>, Vec<Receipt>), InvalidReceipts> {
        self.inner.seals.open(sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Setup;
    use crate::{HashKey, HashKeys, LocalLimiter, Request};

    const RULES: &str = "
version: 1
rules:
  - { id: in-flight, per: user, limit: { concurrency: 2, lease: 30s } }
  - { id: bucket, per: user, limit: { token-bucket: 2/s, burst: 3 } }
";

    fn limiter(keys: impl Into<HashKeys>) -> LocalLimiter {
        LocalLimiter::builder().rules_yaml(RULES).hash_key(keys).build().unwrap()
    }

    fn sealed(limiter: &LocalLimiter) -> (Vec<Receipt>, String) {
        let decision = limiter.check([("user", "u")]).unwrap();
        (decision.receipts(), limiter.sealed_receipts(&decision).unwrap())
    }

    #[test]
    fn only_an_unchanged_text_opens() {
        let limiter = limiter(HashKey::new([7; 32]));
        let (receipts, text) = sealed(&limiter);
        assert_eq!(limiter.open_receipts(&text), Ok(receipts));
        let characters: Vec<char> = text.chars().collect();
        for index in 0..characters.len() {
            let mut changed = characters.clone();
            changed[index] = if changed[index] == 'A' { 'B' } else { 'A' };
            let changed: String = changed.into_iter().collect();
            assert_eq!(limiter.open_receipts(&changed), Err(InvalidReceipts), "{index}");
            assert_eq!(limiter.open_receipts(&text[..index]), Err(InvalidReceipts), "{index}");
        }
        for other in ["", "=", "ä", &format!("{text}A"), &format!("{text}AAAA")] {
            assert_eq!(limiter.open_receipts(other), Err(InvalidReceipts), "{other}");
        }
    }

    #[test]
    fn a_text_opens_only_with_the_hash_key_that_sealed_it() {
        let (old, new) = (HashKey::with_id(1, [1; 32]), HashKey::with_id(2, [2; 32]));
        let (receipts, text) = sealed(&limiter(old.clone()));
        assert_eq!(limiter(new.clone()).open_receipts(&text), Err(InvalidReceipts));
        let changing = limiter(HashKeys::rotating(new, old).unwrap());
        assert_eq!(changing.open_receipts(&text), Ok(receipts));
    }

    #[test]
    fn an_owner_is_sealed_with_the_receipts() {
        let engine = Setup::default().rules_yaml(RULES).hash_key(HashKey::new([7; 32]));
        let engine = engine.build(crate::MemoryStore::new()).unwrap();
        let attributes = tollgate_core::Attributes::from_iter([("user", "u")]);
        let decision = engine.check_now(tollgate_core::rules::Request::new(&attributes)).unwrap();
        let owner = Some(ReceiptOwner([9; 16]));
        let text = engine.seal_receipts_of(&decision, owner).unwrap();
        assert_eq!(engine.open_receipts_of(&text), Ok((owner, decision.receipts())));
        let unowned = engine.sealed_receipts(&decision).unwrap();
        assert_eq!(engine.open_receipts_of(&unowned), Ok((None, decision.receipts())));
        // The owner cannot be removed: the seal covers it.
        let mut bytes = URL_SAFE_NO_PAD.decode(&text).unwrap();
        bytes.drain(SEAL_LEN..SEAL_LEN + 1 + ReceiptOwner::BYTES);
        let cut = URL_SAFE_NO_PAD.encode(bytes);
        assert_eq!(engine.open_receipts_of(&cut), Err(InvalidReceipts));
    }

    #[test]
    fn a_request_that_was_not_charged_has_no_receipts() {
        let limiter = limiter(HashKey::new([7; 32]));
        let unmatched = limiter.check(Request::new()).unwrap();
        assert_eq!(limiter.sealed_receipts(&unmatched), None);
    }
}
