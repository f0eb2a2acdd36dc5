//! Saves all state to a file and restores it.
//!
//! # Format, version 1
//!
//! 1. The text `tollgate memory 1` and a newline.
//! 2. For each key: its fingerprint (16 bytes), the instant at which its state expires (8), the length of its state (4),
//!    and the state in core's layout. Numbers are little-endian. The record of a lease or reservation is an entry too: the
//!    fingerprint of its account's key, the instant, the length, the record in core's layout, and its token.
//! 3. An end marker: a fingerprint, an instant and a length of zero.
//! 4. A BLAKE3 hash of everything before it.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use tollgate_core::{CorruptState, Hold, HoldWrite, State, Time, Token};

use super::{MemoryStore, OVERFLOW_SHARD, shard_of};
use crate::clock::Clock;

const MAGIC: &[u8] = b"tollgate memory 1\n";
/// Longer than any state: a log of 100,000 requests takes 16 bytes for each.
const STATE_BYTES_MAX: u32 = 1 << 22;

/// What [`restore`](MemoryStore::restore) did with the keys of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Restored {
    /// Keys whose state was restored.
    pub keys: usize,
    /// Keys whose state has expired.
    pub expired: usize,
    /// Keys for which there is no room. Their subjects start without consumption.
    pub no_room: usize,
}

/// The snapshot cannot be restored. The store is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Reading failed.
    #[error("cannot read the snapshot")]
    Read(#[from] io::Error),
    /// The data is not a snapshot of this version.
    #[error("invalid snapshot: {0}")]
    NotASnapshot(&'static str),
    /// A state in the snapshot is invalid.
    #[error("invalid state in the snapshot")]
    Corrupt(#[from] CorruptState),
}

impl<C: Clock> MemoryStore<C> {
    /// Writes all state and returns the number of keys written.
    ///
    /// During concurrent checks each key is consistent, but different keys may be from different moments. When no checks
    /// run, as at shutdown, the snapshot is exact.
    pub fn snapshot(&self, to: &mut impl Write) -> io::Result<usize> {
        let mut out = Hashed { inner: to, hasher: blake3::Hasher::new() };
        let mut keys = 0;
        out.write_all(MAGIC)?;
        for number in 0..OVERFLOW_SHARD {
            // Copied, so that no check waits for the disk.
            let (entries, holds): (Vec<_>, Vec<_>) = {
                let shard = self.shards[number].lock();
                (shard.iter(&self.classes).collect(), shard.iter_holds().collect())
            };
            for (fingerprint, state, dies_at) in &entries {
                out.write_entry(*fingerprint, *dies_at, &state.encode())?;
            }
            for ((fingerprint, token), hold, dies_at) in &holds {
                let bytes = [&hold.encode()[..], &token.0.to_le_bytes()].concat();
                out.write_entry(*fingerprint, *dies_at, &bytes)?;
            }
            keys += entries.len();
        }
        out.write_all(&[0; 28])?;
        let hash = out.hasher.finalize();
        out.inner.write_all(hash.as_bytes())?;
        out.inner.flush()?;
        Ok(keys)
    }

    /// Restores all state of a snapshot, or nothing if the snapshot is invalid. Keys that already have state keep it.
    ///
    /// The limiter must have the same hash key as when the snapshot was written; with another, no subject is found again.
    pub fn restore(&self, from: &mut impl Read) -> Result<Restored, RestoreError> {
        let mut input = Hashed { inner: from, hasher: blake3::Hasher::new() };
        let mut magic = [0; MAGIC.len()];
        input.fill(&mut magic)?;
        if magic != MAGIC {
            return Err(RestoreError::NotASnapshot("unknown header, not a snapshot of this version"));
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
                return Err(RestoreError::NotASnapshot("state too long"));
            }
            let mut bytes = Vec::new();
            input.read_state(&mut bytes, u64::from(len))?;
            if State::is_retired(&bytes) {
                continue;
            }
            entries.push((fingerprint, Entry::decode(&bytes)?, Time::from_us(dies_at)));
        }
        let expected = input.hasher.finalize();
        let mut hash = [0; blake3::OUT_LEN];
        input.fill(&mut hash)?;
        if expected != hash {
            return Err(RestoreError::NotASnapshot("wrong hash: the snapshot was truncated or changed"));
        }
        Ok(self.insert_restored(entries))
    }

    fn insert_restored(&self, entries: Vec<(u128, Entry, Time)>) -> Restored {
        let now = self.clock.now();
        let mut restored = Restored::default();
        for (fingerprint, entry, dies_at) in entries {
            let state = match entry {
                Entry::Hold(token, hold) => {
                    let write = HoldWrite { hold, dies_at };
                    self.shards[shard_of(fingerprint)].lock().restore_hold((fingerprint, token), write, now);
                    continue;
                }
                Entry::State(state) => state,
            };
            if dies_at <= now {
                restored.expired += 1;
                continue;
            }
            let mut shard = self.shards[shard_of(fingerprint)].lock();
            if !self.has_room(&mut shard, now) {
                restored.no_room += 1;
            } else if shard.find(fingerprint).is_none() {
                shard.restore(fingerprint, state, dies_at);
                self.add_keys(1);
                restored.keys += 1;
            }
        }
        restored
    }

    /// Writes a [`snapshot`](MemoryStore::snapshot) to a file, atomically: a crash leaves either the old file or the new one.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<usize> {
        let path = path.as_ref();
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let mut file = BufWriter::new(File::create(&new)?);
        let keys = self.snapshot(&mut file)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        std::fs::rename(&new, path)?;
        Ok(keys)
    }

    /// [Restores](MemoryStore::restore) a snapshot from a file.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Restored, RestoreError> {
        self.restore(&mut BufReader::new(File::open(path)?))
    }
}

/// What an entry of a snapshot holds.
enum Entry {
    State(State),
    Hold(Token, Hold),
}

impl Entry {
    /// A record is followed by its token.
    fn decode(bytes: &[u8]) -> Result<Entry, CorruptState> {
        match bytes.split_last_chunk() {
            Some((hold, token)) if Hold::is_record(bytes) => {
                Ok(Entry::Hold(Token(u128::from_le_bytes(*token)), Hold::decode(hold)?))
            }
            _ => State::decode(bytes).map(Entry::State),
        }
    }
}

/// Hashes all bytes that are read or written.
struct Hashed<'i, I> {
    inner: &'i mut I,
    hasher: blake3::Hasher,
}

impl<I: Write> Hashed<'_, I> {
    fn write_entry(&mut self, fingerprint: u128, dies_at: Time, bytes: &[u8]) -> io::Result<()> {
        self.write_all(&fingerprint.to_le_bytes())?;
        self.write_all(&dies_at.us().to_le_bytes())?;
        self.write_all(&(bytes.len() as u32).to_le_bytes())?;
        self.write_all(bytes)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.inner.write_all(bytes)
    }
}

impl<I: Read> Hashed<'_, I> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), RestoreError> {
        self.inner.read_exact(bytes).map_err(read_error)?;
        self.hasher.update(bytes);
        Ok(())
    }

    /// Reads `len` bytes. Allocates only for bytes that exist, so that a wrong length cannot exhaust memory.
    fn read_state(&mut self, bytes: &mut Vec<u8>, len: u64) -> Result<(), RestoreError> {
        let read = self.inner.by_ref().take(len).read_to_end(bytes)?;
        if (read as u64) < len {
            return Err(RestoreError::NotASnapshot("truncated"));
        }
        self.hasher.update(bytes);
        Ok(())
    }
}

fn read_error(error: io::Error) -> RestoreError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => RestoreError::NotASnapshot("truncated"),
        _ => RestoreError::Read(error),
    }
}
