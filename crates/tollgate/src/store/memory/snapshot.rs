//! All state in a file, and back.
//!
//! # Format, version 1
//!
//! The text `tollgate memory 1` and a newline; then for each key its fingerprint (16 bytes), the instant from which on
//! it counts for nothing (8), the length of its state (4) and the state in core's layout, all little-endian; at the end a
//! fingerprint and an instant of zero, a length of zero, and a BLAKE3 hash of everything before it.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use tollgate_core::{CorruptState, State, Time};

use super::{MemoryStore, OVERFLOW, shard_of};
use crate::clock::Clock;

const MAGIC: &[u8] = b"tollgate memory 1\n";
/// Above any state: a log of a hundred thousand requests takes 16 bytes for each.
const STATE_BYTES_MAX: u32 = 1 << 22;

/// What a snapshot held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Restored {
    /// Keys that have their state back.
    pub keys: usize,
    /// Keys that count for nothing by now.
    pub dead: usize,
    /// Keys for which there is no room. Their subjects start afresh, as they would without a snapshot.
    pub no_room: usize,
}

/// This is no snapshot that can be used. The store is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// It cannot be read.
    #[error("the snapshot cannot be read")]
    Read(#[from] io::Error),
    /// It is something else.
    #[error("this is no snapshot of this version: {0}")]
    NotASnapshot(&'static str),
    /// A state in it is none.
    #[error("a state in the snapshot cannot be read")]
    Corrupt(#[from] CorruptState),
}

impl<C: Clock> MemoryStore<C> {
    /// Writes all state. While checks go on, each key is written as it is at some moment, not all at the same one; when
    /// nothing else runs, as at shutdown, it is exact. Says how many keys were written.
    pub fn snapshot(&self, to: &mut impl Write) -> io::Result<usize> {
        let mut out = Hashed { inner: to, hasher: blake3::Hasher::new() };
        let mut keys = 0;
        out.write_all(MAGIC)?;
        for number in 0..OVERFLOW {
            // Copied out, so that no check waits for the disk.
            let entries: Vec<_> = self.lock(number).iter(&self.classes).collect();
            for (fingerprint, state, dies_at) in &entries {
                let bytes = state.encode();
                out.write_all(&fingerprint.to_le_bytes())?;
                out.write_all(&dies_at.us().to_le_bytes())?;
                out.write_all(&(bytes.len() as u32).to_le_bytes())?;
                out.write_all(&bytes)?;
            }
            keys += entries.len();
        }
        out.write_all(&[0; 28])?;
        let hash = out.hasher.finalize();
        out.inner.write_all(hash.as_bytes())?;
        out.inner.flush()?;
        Ok(keys)
    }

    /// Takes in all state of a snapshot, or nothing if there is anything wrong with it. Keys that have state already keep
    /// it. The limiter must have the hash key it had then, or nobody will be found again.
    pub fn restore(&self, from: &mut impl Read) -> Result<Restored, RestoreError> {
        let mut input = Hashed { inner: from, hasher: blake3::Hasher::new() };
        let mut magic = [0; MAGIC.len()];
        input.fill(&mut magic)?;
        if magic != MAGIC {
            return Err(RestoreError::NotASnapshot("it starts differently"));
        }
        let mut entries = Vec::new();
        loop {
            let mut head = [0; 28];
            input.fill(&mut head)?;
            let number = |from: usize, len: usize| {
                head[from..from + len].iter().rev().fold(0_u128, |sum, &byte| sum << 8 | u128::from(byte))
            };
            let (fingerprint, dies_at, len) = (number(0, 16), number(16, 8) as u64, number(24, 4) as u32);
            if len == 0 {
                break;
            }
            if len > STATE_BYTES_MAX {
                return Err(RestoreError::NotASnapshot("a state is longer than any"));
            }
            let mut bytes = Vec::new();
            input.fill_more(&mut bytes, u64::from(len))?;
            entries.push((fingerprint, State::decode(&bytes)?, Time::from_us(dies_at)));
        }
        let expected = input.hasher.finalize();
        let mut hash = [0; blake3::OUT_LEN];
        input.fill(&mut hash)?;
        if expected != hash {
            return Err(RestoreError::NotASnapshot("its hash is another: it was cut or changed"));
        }
        Ok(self.take_in(entries))
    }

    fn take_in(&self, entries: Vec<(u128, State, Time)>) -> Restored {
        let now = self.clock.now();
        let mut restored = Restored::default();
        for (fingerprint, state, dies_at) in entries {
            if dies_at <= now {
                restored.dead += 1;
                continue;
            }
            let mut shard = self.lock(shard_of(fingerprint));
            if !self.has_room(&mut shard, now) {
                restored.no_room += 1;
            } else if shard.find(fingerprint).is_none() {
                shard.restore(fingerprint, state, dies_at);
                self.count(1);
                restored.keys += 1;
            }
        }
        restored
    }

    /// [`snapshot`](MemoryStore::snapshot) into a file that is either the old one or, whole, the new one.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<usize> {
        let path = path.as_ref();
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let mut file = BufWriter::new(File::create(&beside)?);
        let keys = self.snapshot(&mut file)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        std::fs::rename(&beside, path)?;
        Ok(keys)
    }

    /// [`restore`](MemoryStore::restore) from a file.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Restored, RestoreError> {
        self.restore(&mut BufReader::new(File::open(path)?))
    }
}

/// Hashes what passes.
struct Hashed<'i, I> {
    inner: &'i mut I,
    hasher: blake3::Hasher,
}

impl<I: Write> Hashed<'_, I> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.inner.write_all(bytes)
    }
}

impl<I: Read> Hashed<'_, I> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), RestoreError> {
        self.inner.read_exact(bytes).map_err(cut_short)?;
        self.hasher.update(bytes);
        Ok(())
    }

    /// Reads this many bytes, taking memory for no more than there are.
    fn fill_more(&mut self, bytes: &mut Vec<u8>, len: u64) -> Result<(), RestoreError> {
        let read = self.inner.by_ref().take(len).read_to_end(bytes)?;
        if (read as u64) < len {
            return Err(RestoreError::NotASnapshot("it ends too early"));
        }
        self.hasher.update(bytes);
        Ok(())
    }
}

fn cut_short(error: io::Error) -> RestoreError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => RestoreError::NotASnapshot("it ends too early"),
        _ => RestoreError::Read(error),
    }
}
