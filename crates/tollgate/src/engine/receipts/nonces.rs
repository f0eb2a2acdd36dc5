//! Nonces: one number for each charge, however many receipts are made for it.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{Nonce, Subject, Time};

use crate::random::random;

/// The upper half of every nonce of this process. Random, so that two processes do not make the same nonces.
static PROCESS: OnceLock<u64> = OnceLock::new();
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Returns a nonce that was never used before.
pub fn new_nonce() -> Nonce {
    let process = *PROCESS.get_or_init(|| match random() {
        Ok(bytes) => u64::from_le_bytes(bytes),
        // Keys that the standard library drew from the operating system.
        Err(_) => RandomState::new().hash_one(std::process::id()),
    });
    Nonce(u128::from(process) << 64 | u128::from(NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// Returns the nonce of a charge under a request id. A repeated request gets the same decision again, so it must get the
/// same nonce. A later charge under the same id has another time.
pub(in crate::engine) fn nonce_of_request(id: Subject, charged_at: Time) -> Nonce {
    Nonce(id.to_u128() ^ u128::from(charged_at.us()))
}
