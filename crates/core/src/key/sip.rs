//! SipHash-2-4 with 128 bits of output, over several pieces of input.
//!
//! Hand-written because a subject consists of a few short pieces: buffering them in a general hasher costs half as much as
//! the hash itself.

/// The state of a hash.
#[derive(Clone, Copy)]
pub(super) struct Sip {
    v: [u64; 4],
    /// The last bytes, fewer than a word.
    tail: u64,
    /// Number of bytes written.
    len: usize,
}

impl Sip {
    pub(super) fn new(key: [u8; 16]) -> Sip {
        let (words, _) = key.as_chunks::<8>();
        let [k0, k1] = [words[0], words[1]].map(u64::from_le_bytes);
        let v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        Sip { v, tail: 0, len: 0 }
    }

    #[inline(always)]
    pub(super) fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_word(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let word = match bytes.last_chunk::<8>() {
                // Shifts out the bytes that were already written.
                Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
                None => short_word(rest),
            };
            self.push(word, rest.len());
        }
    }

    #[inline(always)]
    pub(super) fn write_word(&mut self, word: u64) {
        self.push(word, 8);
    }

    /// Appends the low `len` bytes of `word`. Its other bytes must be zero.
    #[inline(always)]
    fn push(&mut self, word: u64, len: usize) {
        let held = self.len % 8;
        self.len += len;
        self.tail |= word << (8 * held);
        if held + len >= 8 {
            self.compress(self.tail);
            // Two shifts, because a shift by 64 bits is undefined.
            self.tail = word >> 1 >> (63 - 8 * held);
        }
    }

    #[inline(always)]
    pub(super) fn finish(mut self) -> u128 {
        self.compress(self.tail | (self.len as u64) << 56);
        self.v[2] ^= 0xee;
        let high = self.finish_half();
        self.v[1] ^= 0xdd;
        u128::from(high) << 64 | u128::from(self.finish_half())
    }

    #[inline(always)]
    fn finish_half(&mut self) -> u64 {
        (0..4).for_each(|_| self.round());
        self.v[0] ^ self.v[1] ^ self.v[2] ^ self.v[3]
    }

    #[inline(always)]
    fn compress(&mut self, word: u64) {
        self.v[3] ^= word;
        self.round();
        self.round();
        self.v[0] ^= word;
    }

    #[inline(always)]
    fn round(&mut self) {
        let [mut v0, mut v1, mut v2, mut v3] = self.v;
        v0 = v0.wrapping_add(v1);
        v1 = v1.rotate_left(13) ^ v0;
        v0 = v0.rotate_left(32);
        v2 = v2.wrapping_add(v3);
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.wrapping_add(v3);
        v3 = v3.rotate_left(21) ^ v0;
        v2 = v2.wrapping_add(v1);
        v1 = v1.rotate_left(17) ^ v2;
        v2 = v2.rotate_left(32);
        self.v = [v0, v1, v2, v3];
    }
}

/// Reads fewer than eight bytes as a word. From four bytes on it combines the first four and the last four, which may
/// overlap.
#[inline(always)]
fn short_word(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            let [first, last] = [first, last].map(|four| u64::from(u32::from_le_bytes(*four)));
            first | last << (8 * (bytes.len() - 4))
        }
        _ => bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use proptest::prelude::*;
    use siphasher::sip128::{Hasher128, SipHasher24};

    use super::*;

    proptest! {
        #[test]
        fn pieces_hash_like_the_whole_in_the_siphasher_crate(
            key: [u8; 16],
            pieces in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..40)), 0..6),
        ) {
            let (mut ours, mut theirs) = (Sip::new(key), SipHasher24::new_with_key(&key));
            for (word, bytes) in &pieces {
                ours.write_word(*word);
                ours.write(bytes);
                theirs.write(&word.to_le_bytes());
                theirs.write(bytes);
            }
            let hash = theirs.finish128();
            prop_assert_eq!(ours.finish(), u128::from(hash.h1) << 64 | u128::from(hash.h2));
        }
    }
}
