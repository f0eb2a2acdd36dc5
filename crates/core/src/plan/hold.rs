//! Records of holds: one record per lease or reservation, stored apart from the account that counts its units.
//!
//! # Layout, version 1
//!
//! Five 64-bit little-endian words, like the states in `state.rs`. Word 0 holds the version in its lowest byte, the kind
//! (11) in the next byte, and the status in the bits above: 0 open, 1 settled, 2 cancelled, 3 settled late. The others are the generation
//! (two words), the end in microseconds, and the units: those that it holds, or those that were booked if it is settled.

use crate::plan::operation::Token;
use crate::state::CorruptState;
use crate::time::{EXACT_MAX, Span, Time};

/// How long a store remembers a reservation after its end, so that a late settlement is booked once.
pub const REMEMBERED: Span = Span::from_secs(3_600);

/// Bytes of an encoded record.
pub const HOLD_BYTES: usize = 5 * WORD;

const VERSION: u8 = 1;
const KIND: u8 = 11;
const WORD: usize = size_of::<u64>();

/// The record of one lease or reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    /// The generation of the account that counts its units. After a reset or an eviction the account has another one, and
    /// nothing is held.
    pub generation: Generation,
    /// When it ends, rounded up as `HoldSums` rounds.
    pub end: Time,
    /// Units held, or units booked if it is settled.
    pub units: u64,
    /// Whether it was settled or cancelled.
    pub status: HoldStatus,
}

/// Distinguishes the state of an account from earlier state under the same key, which was reset, evicted or of another
/// period: the instant of its first hold, and the lower half of that hold's token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Generation(pub [u64; 2]);

impl Generation {
    /// The generation of an account that had no hold yet.
    pub const NONE: Generation = Generation([0, 0]);

    /// Returns the generation of an account whose first hold has this token.
    pub const fn new(now: Time, token: Token) -> Generation {
        Generation([now.us(), token.0 as u64])
    }
}

/// How far a hold has come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HoldStatus {
    /// Neither settled nor cancelled. It may have ended.
    Open,
    /// Settled. Its units were booked.
    Settled,
    /// Cancelled.
    Cancelled,
    /// Settled after its end. Its units were booked, and a repeated settlement says so again.
    SettledLate,
}

/// What a store found under the token of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HoldLookup<'h> {
    /// No record.
    None,
    /// The record.
    Found(&'h Hold),
    /// No record, and no room for a new one.
    NoRoom,
}

impl<'h> HoldLookup<'h> {
    /// Returns the record, if there is one.
    pub const fn record(self) -> Option<&'h Hold> {
        match self {
            HoldLookup::Found(hold) => Some(hold),
            HoldLookup::None | HoldLookup::NoRoom => None,
        }
    }
}

impl<'h> From<Option<&'h Hold>> for HoldLookup<'h> {
    fn from(hold: Option<&'h Hold>) -> HoldLookup<'h> {
        hold.map_or(HoldLookup::None, HoldLookup::Found)
    }
}

/// What a decision asks to change in the record of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HoldChange {
    /// The token that the operation named.
    pub token: Token,
    /// The new record, or `None` to delete it.
    pub record: Option<HoldWrite>,
}

/// A record, and how long a store must keep it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HoldWrite {
    /// The record.
    pub hold: Hold,
    /// From this instant on, the record has no effect.
    pub dies_at: Time,
}

impl Hold {
    /// Whether its units count at `now` in an account of this generation, so that they can be given back.
    pub fn is_held(&self, now: Time, generation: Generation) -> bool {
        self.status == HoldStatus::Open && now < self.end && self.generation == generation
    }

    /// Whether these bytes begin like a record, not like a state.
    pub fn is_record(bytes: &[u8]) -> bool {
        matches!(bytes, [_, KIND, ..])
    }

    /// Encodes it in the layout of this version.
    pub fn encode(&self) -> [u8; HOLD_BYTES] {
        let status = match self.status {
            HoldStatus::Open => 0,
            HoldStatus::Settled => 1,
            HoldStatus::Cancelled => 2,
            HoldStatus::SettledLate => 3,
        };
        let head = u64::from(VERSION) | u64::from(KIND) << 8 | status << 16;
        let mut bytes = [0; HOLD_BYTES];
        let Generation([first, second]) = self.generation;
        let words = [head, first, second, self.end.us(), self.units];
        for (to, word) in bytes.chunks_exact_mut(WORD).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes and validates a record.
    pub fn decode(bytes: &[u8]) -> Result<Hold, CorruptState> {
        let [head, first, second, end, units] = words(bytes)?;
        let [version, kind, ..] = head.to_le_bytes();
        if version != VERSION {
            return Err(CorruptState::Version(version));
        }
        if kind != KIND {
            return Err(CorruptState::Kind(kind));
        }
        let status = match head >> 16 {
            0 => HoldStatus::Open,
            1 => HoldStatus::Settled,
            2 => HoldStatus::Cancelled,
            3 => HoldStatus::SettledLate,
            found => return Err(CorruptState::Range { word: 0, found }),
        };
        for (word, found) in [(3, end), (4, units)] {
            if found > EXACT_MAX {
                return Err(CorruptState::Range { word, found });
            }
        }
        let generation = Generation([first, second]);
        Ok(Hold { generation, end: Time::from_us(end), units, status })
    }
}

fn words(bytes: &[u8]) -> Result<[u64; 5], CorruptState> {
    let (words, rest) = bytes.as_chunks::<WORD>();
    match (words, rest) {
        (&[a, b, c, d, e], []) => Ok([a, b, c, d, e].map(u64::from_le_bytes)),
        _ => Err(CorruptState::Length { found: bytes.len(), expected: HOLD_BYTES }),
    }
}
