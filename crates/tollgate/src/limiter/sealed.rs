//! Receipts on their way through other people's hands: one text that is of no use to who changes it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use smallvec::SmallVec;
use tollgate_core::{Receipt, Store, SubjectHashers};

use super::{Decision, Limiter};

/// Separates the key of seals from everything else that is made of the secret.
const PURPOSE: &str = "tollgate 2026-11 seal of receipts";
/// As many bits as nobody guesses.
const SEAL_LEN: usize = 16;

/// The keys that seal receipts. They follow from the hash keys, so servers that share those know each other's seals.
pub(super) struct Seals {
    /// The one that seals first; others only open.
    keys: SmallVec<[[u8; 32]; 2]>,
}

/// A text that no server with this hash key made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "this is no receipt of this server, or of one with the same hash key; send it back as it was, and to where it is from"
)]
pub struct NotOurs;

impl Seals {
    pub(super) fn new(hashers: &SubjectHashers) -> Seals {
        Seals { keys: hashers.iter().map(|hasher| hasher.key_for(PURPOSE)).collect() }
    }

    /// The text: seal and receipts, each of them after its length.
    fn seal(&self, receipts: &[Receipt]) -> String {
        let mut bytes = vec![0; SEAL_LEN];
        for receipt in receipts {
            let encoded = receipt.encode();
            // A rule id has 64 bytes at most, and everything else is fixed.
            bytes.push(encoded.len() as u8);
            bytes.extend_from_slice(&encoded);
        }
        let seal = seal_of(&self.keys[0], &bytes[SEAL_LEN..]);
        bytes[..SEAL_LEN].copy_from_slice(&seal);
        URL_SAFE_NO_PAD.encode(&bytes)
    }

    fn open(&self, text: &str) -> Result<Vec<Receipt>, NotOurs> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| NotOurs)?;
        let (seal, mut rest) = bytes.split_at_checked(SEAL_LEN).ok_or(NotOurs)?;
        let mut seals = self.keys.iter().map(|key| seal_of(key, rest));
        if !seals.any(|known| is_same(&known, seal)) {
            return Err(NotOurs);
        }
        let mut receipts = Vec::new();
        while let [len, more @ ..] = rest {
            let (encoded, others) = more.split_at_checked((*len).into()).ok_or(NotOurs)?;
            receipts.push(Receipt::decode(encoded).map_err(|_| NotOurs)?);
            rest = others;
        }
        Ok(receipts)
    }
}

fn seal_of(key: &[u8; 32], bytes: &[u8]) -> [u8; SEAL_LEN] {
    let mut seal = [0; SEAL_LEN];
    seal.copy_from_slice(&blake3::keyed_hash(key, bytes).as_bytes()[..SEAL_LEN]);
    seal
}

/// Takes the same time wherever they differ: whoever measures it learns nothing.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

impl<S: Store> Limiter<S> {
    /// The [receipts](Decision::receipts) of a decision as one text for whoever asked; none if there are none. Nobody
    /// can read another's account out of it, and [`open_receipts`](Limiter::open_receipts) takes it only unchanged.
    pub fn sealed_receipts(&self, decision: &Decision) -> Option<String> {
        let receipts = decision.receipts();
        (!receipts.is_empty()).then(|| self.inner.seals.seal(&receipts))
    }

    /// The receipts in a text that this limiter made, or another one with the same hash key.
    pub fn open_receipts(&self, sealed: &str) -> Result<Vec<Receipt>, NotOurs> {
        self.inner.seals.open(sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attributes;
    use tollgate_core::SubjectHasher;

    const RULES: &str = "
version: 1
rules:
  - { id: at-once, per: user, limit: { concurrency: 2, lease: 30s } }
  - { id: bucket, per: user, limit: { token-bucket: 2/s, burst: 3 } }
";

    fn limiter(hashers: impl Into<SubjectHashers>) -> Limiter {
        Limiter::builder().rules_yaml(RULES).hash_key(hashers).build().unwrap()
    }

    fn sealed(limiter: &Limiter) -> (Vec<Receipt>, String) {
        let decision = limiter.check_now(&Attributes::from([("user", "u")])).unwrap();
        (decision.receipts(), limiter.sealed_receipts(&decision).unwrap())
    }

    #[test]
    fn receipts_come_back_as_they_were_and_nothing_else_does() {
        let limiter = limiter(SubjectHasher::new([7; 32]));
        let (receipts, text) = sealed(&limiter);
        assert_eq!(limiter.open_receipts(&text), Ok(receipts));
        let characters: Vec<char> = text.chars().collect();
        for place in 0..characters.len() {
            let mut changed = characters.clone();
            changed[place] = if changed[place] == 'A' { 'B' } else { 'A' };
            let changed: String = changed.into_iter().collect();
            assert_eq!(limiter.open_receipts(&changed), Err(NotOurs), "{place}");
            assert_eq!(limiter.open_receipts(&text[..place]), Err(NotOurs), "{place}");
        }
        for other in ["", "=", "ä", &format!("{text}A"), &format!("{text}AAAA")] {
            assert_eq!(limiter.open_receipts(other), Err(NotOurs), "{other}");
        }
    }

    #[test]
    fn a_seal_is_known_to_who_has_the_hash_key_and_to_nobody_else() {
        let (old, new) = (SubjectHasher::with_id(1, [1; 32]), SubjectHasher::with_id(2, [2; 32]));
        let (receipts, text) = sealed(&limiter(old.clone()));
        assert_eq!(limiter(new.clone()).open_receipts(&text), Err(NotOurs));
        let changing = limiter(SubjectHashers::rotating(new, old).unwrap());
        assert_eq!(changing.open_receipts(&text), Ok(receipts));
    }

    #[test]
    fn what_was_not_charged_has_no_receipt() {
        let limiter = limiter(SubjectHasher::new([7; 32]));
        let unmatched = limiter.check_now(&Attributes::new()).unwrap();
        assert_eq!(limiter.sealed_receipts(&unmatched), None);
    }
}
