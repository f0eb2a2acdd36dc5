//! Names for leases and reservations that cannot be guessed.

use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering};

use siphasher::sip128::{Hash128, Hasher128, SipHasher24};
use tollgate_core::Token;

/// Makes tokens by hashing a counter with a secret key: one token does not reveal the next.
pub(in crate::engine) struct Tokens {
    key: SipHasher24,
    next: AtomicU64,
}

impl Tokens {
    pub(in crate::engine) fn new(key: [u8; 16]) -> Tokens {
        Tokens { key: SipHasher24::new_with_key(&key), next: AtomicU64::new(0) }
    }

    pub(in crate::engine) fn next(&self) -> Token {
        let mut hasher = self.key;
        hasher.write_u64(self.next.fetch_add(1, Ordering::Relaxed));
        let Hash128 { h1, h2 } = hasher.finish128();
        // Zero means "no token"; the hash is zero once in 2^128.
        Token((u128::from(h1) << 64 | u128::from(h2)).max(1))
    }
}
