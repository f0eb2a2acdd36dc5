//! Receipts as one tamper-proof text, for callers that keep them between requests.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use constant_time_eq::constant_time_eq;
use smallvec::SmallVec;
use tollgate_core::{Receipt, Store, SubjectHashers};

use super::{Decision, Engine};

/// Derives the sealing key from the hash key; no other derived key uses this text.
const PURPOSE: &str = "tollgate 2026-11 seal of receipts";
/// 128 bits cannot be guessed.
const SEAL_LEN: usize = 16;

/// The keys that seal receipts. They are derived from the hash keys, so servers that share those accept each other's
/// seals.
pub(super) struct ReceiptSeals {
    /// The first key seals; the others only open.
    keys: SmallVec<[[u8; 32]; 2]>,
}

/// The text was not sealed with this hash key, or was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid receipt; return it unchanged, to the server that issued it or one with the same hash key")]
pub struct InvalidReceipts;

impl ReceiptSeals {
    pub(super) fn new(hashers: &SubjectHashers) -> ReceiptSeals {
        ReceiptSeals { keys: hashers.iter().map(|hasher| hasher.key_for(PURPOSE)).collect() }
    }

    /// The seal, then each receipt after its length, as base64.
    fn seal(&self, receipts: &[Receipt]) -> String {
        let mut bytes = vec![0; SEAL_LEN];
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

    fn open(&self, text: &str) -> Result<Vec<Receipt>, InvalidReceipts> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidReceipts)?;
        let (seal, mut rest) = bytes.split_at_checked(SEAL_LEN).ok_or(InvalidReceipts)?;
        let mut seals = self.keys.iter().map(|key| seal_of(key, rest));
        if !seals.any(|known| constant_time_eq(&known, seal)) {
            return Err(InvalidReceipts);
        }
        let mut receipts = Vec::new();
        while let [low, high, more @ ..] = rest {
            let len = u16::from_le_bytes([*low, *high]);
            let (encoded, others) = more.split_at_checked(len.into()).ok_or(InvalidReceipts)?;
            receipts.push(Receipt::decode(encoded).map_err(|_| InvalidReceipts)?);
            rest = others;
        }
        if rest.is_empty() { Ok(receipts) } else { Err(InvalidReceipts) }
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
        let receipts = decision.receipts();
        (!receipts.is_empty()).then(|| self.inner.seals.seal(&receipts))
    }

    /// Opens a text that was sealed here or by another limiter with the same hash key.
    pub fn open_receipts(&self, sealed: &str) -> Result<Vec<Receipt>, InvalidReceipts> {
        self.inner.seals.open(sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn a_request_that_was_not_charged_has_no_receipts() {
        let limiter = limiter(HashKey::new([7; 32]));
        let unmatched = limiter.check(Request::new()).unwrap();
        assert_eq!(limiter.sealed_receipts(&unmatched), None);
    }
}
