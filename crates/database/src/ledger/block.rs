//! Blocks: each batch of a writer is chained to the one before by a hash, so that a changed row is found.

use sha2::{Digest, Sha256};

use super::record::Id;
use super::rows::Entry;

/// A SHA-256 hash.
pub type Hash = [u8; 32];

/// The header of a posted batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// The writer.
    pub writer: Id,
    /// Number of the block, from 1.
    pub number: i64,
    /// First sequence number.
    pub first_seq: i64,
    /// Last sequence number.
    pub last_seq: i64,
    /// Number of rows. Folded records share a row.
    pub rows: i64,
    /// When it was posted, in microseconds since 1970.
    pub at_us: i64,
    /// Hash of the block before; zeros in the first one.
    pub prev: Hash,
}

/// Returns the hash of a block and its rows. Numbers are big-endian, texts and optional ids have their length before them,
/// so that PostgreSQL can compute the same with `int8send` and `sha256`.
pub fn chain(block: &Block, entries: &[Entry]) -> Hash {
    let mut hash = Sha256::new();
    let number = |hash: &mut Sha256, number: i64| hash.update(number.to_be_bytes());
    hash.update(block.prev);
    hash.update(block.writer.0);
    for each in [block.number, block.first_seq, block.last_seq, block.rows, block.at_us] {
        number(&mut hash, each);
    }
    for entry in entries {
        for each in [entry.seq, entry.n] {
            number(&mut hash, each);
        }
        let subject = &entry.account.subject;
        for text in [entry.kind.name(), &subject.rule, &entry.cause, &entry.actor] {
            bytes(&mut hash, text.as_bytes());
        }
        bytes(&mut hash, &subject.id.0);
        for id in [entry.token, entry.request, entry.nonce] {
            bytes(&mut hash, id.as_ref().map_or(&[], |id| &id.0));
        }
        let amounts = [entry.d_posted, entry.d_pending, entry.d_granted];
        for each in [entry.account.period_us, entry.at_us, entry.rev].into_iter().chain(amounts) {
            number(&mut hash, each);
        }
    }
    hash.finalize().into()
}

fn bytes(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as i64).to_be_bytes());
    hash.update(bytes);
}
