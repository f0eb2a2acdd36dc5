//! The state of any algorithm, and its byte layout, which is the same in every store.
//!
//! # Layout, version 1
//!
//! A state is a sequence of 64-bit little-endian words. A token is two words, high half first. Word 0 holds the version
//! in its lowest byte, the kind in the next byte, and the number of repeated records in the bits above. Except for the
//! halves of tokens, every other word is at most 2^53 - 1. Every instant is in microseconds.
//!
//! A fixed window, and the newest bucket of a sliding window, starts at a multiple of its length. Core relies on that
//! and rejects other states. The Lua twins compute the start each time.
//!
//! Only the log has records of 14 bytes: two numbers of 7 bytes each. They form a ring of `slots` records, and the oldest
//! is at index `first`. So a store can drop the oldest and add the newest without moving the others.
//!
//! | kind | name | words after word 0 | repeated |
//! |---|---|---|---|
//! | 1 | fixed window | start, window, used | |
//! | 2 | sliding window | bucket, newest | count, newest bucket first |
//! | 3 | sliding log | base, first, slots | time, running total |
//! | 4 | bucket | debt, time, scale | |
//! | 5 | concurrency | seen | until, token, weight |
//! | 6 | quota | start, end, seen, used | until, token, cost |
//! | 7 | meter | value, touched | |
//! | 8 | penalty | failures, until | |

use crate::algorithm::bucket::{Bucket, BucketState};
use crate::algorithm::concurrency::{Concurrency, ConcurrencyState, LEASES_MAX, Lease, LeaseChange};
use crate::algorithm::fixed_window::{FixedWindow, FixedWindowState};
use crate::algorithm::machine::Machine;
use crate::algorithm::meter::{Meter, MeterState};
use crate::algorithm::penalty::{Penalty, PenaltyState};
use crate::algorithm::quota::{Quota, QuotaChange, QuotaState, RESERVATIONS_MAX, Reservation};
use crate::algorithm::sliding_log::{ENTRIES_MAX, Entry, LogChange, SlidingLog, SlidingLogState, distance};
use crate::algorithm::sliding_window::{BUCKETS_MAX, SlidingWindow, SlidingWindowState};
use crate::plan::operation::Token;
use crate::time::{EXACT_MAX, Span, Time};

const VERSION: u8 = 1;
const WORD: usize = size_of::<u64>();
/// Bytes per number in an entry of a log.
const SHORT: usize = 7;

/// What a store keeps under one key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each variant is the state of its algorithm")]
pub enum State {
    FixedWindow(FixedWindowState),
    SlidingWindow(SlidingWindowState),
    SlidingLog(SlidingLogState),
    Bucket(BucketState),
    Concurrency(ConcurrencyState),
    Quota(QuotaState),
    Meter(MeterState),
    Penalty(PenaltyState),
}

/// What a decision asks to write under one key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each variant is the change of its algorithm")]
pub enum Change {
    Reset,
    FixedWindow(FixedWindowState),
    SlidingWindow(SlidingWindowState),
    SlidingLog(LogChange),
    Bucket(BucketState),
    Concurrency(LeaseChange),
    Quota(QuotaChange),
    Meter(MeterState),
    Penalty(Option<PenaltyState>),
}

/// The bytes are not a state of this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CorruptState {
    /// Wrong number of bytes.
    #[error("state has {found} bytes, expected {expected}")]
    Length {
        /// Number of bytes found.
        found: usize,
        /// Number of bytes expected.
        expected: usize,
    },
    /// Another version of the layout.
    #[error("unknown layout version {0}")]
    Version(u8),
    /// No algorithm has this kind.
    #[error("unknown state kind {0}")]
    Kind(u8),
    /// A value that no limit writes.
    #[error("word {word} is out of range: {found}")]
    Range {
        /// Index of the word.
        word: usize,
        /// Its value.
        found: u64,
    },
}

impl State {
    /// Applies a change that [`Limit::decide`](crate::limit::Limit::decide) returned for exactly this state.
    pub fn commit(slot: &mut Option<State>, change: Change) {
        macro_rules! commit {
            ($machine:ty, $kind:ident, $change:ident) => {{
                let mut state = match slot.take() {
                    Some(State::$kind(state)) => Some(state),
                    _ => None,
                };
                <$machine>::commit(&mut state, $change);
                *slot = state.map(State::$kind);
            }};
        }
        match change {
            Change::Reset => *slot = None,
            Change::FixedWindow(change) => commit!(FixedWindow, FixedWindow, change),
            Change::SlidingWindow(change) => commit!(SlidingWindow, SlidingWindow, change),
            Change::SlidingLog(change) => commit!(SlidingLog, SlidingLog, change),
            Change::Bucket(change) => commit!(Bucket, Bucket, change),
            Change::Concurrency(change) => commit!(Concurrency, Concurrency, change),
            Change::Quota(change) => commit!(Quota, Quota, change),
            Change::Meter(change) => commit!(Meter, Meter, change),
            Change::Penalty(change) => commit!(Penalty, Penalty, change),
        }
    }

    /// Encodes the state in the layout of this version.
    pub fn encode(&self) -> Vec<u8> {
        let mut words = Words::default();
        match self {
            State::FixedWindow(state) => {
                words.head(1, 0).time(state.start).span(state.window).number(state.used);
            }
            State::SlidingWindow(state) => {
                words.head(2, state.counts.len()).span(state.bucket).time(state.newest);
                for &count in &state.counts {
                    words.number(count);
                }
            }
            State::SlidingLog(state) => {
                let count = state.entries.len();
                words.head(3, count).number(state.base).number(0).number(count as u64);
                for entry in &state.entries {
                    words.short(entry.time.us()).short(entry.total);
                }
            }
            State::Bucket(state) => {
                words.head(4, 0).number(state.debt).time(state.time).number(state.scale);
            }
            State::Concurrency(state) => {
                words.head(5, state.leases.len()).time(state.seen);
                for lease in &state.leases {
                    words.time(lease.until).token(lease.token).number(lease.weight);
                }
            }
            State::Quota(state) => {
                words.head(6, state.reservations.len());
                words.time(state.start).time(state.end).time(state.seen).number(state.used);
                for held in &state.reservations {
                    words.time(held.until).token(held.token).number(held.cost);
                }
            }
            State::Meter(state) => {
                words.head(7, 0).number(state.value).time(state.touched);
            }
            State::Penalty(state) => {
                words.head(8, 0).number(state.failures).time(state.until);
            }
        }
        words.bytes
    }

    /// Decodes and validates a state. No bytes that a store returns can cause a panic or a silently wrong decision.
    pub fn decode(bytes: &[u8]) -> Result<State, CorruptState> {
        let mut reader = Reader::new(bytes)?;
        let (kind, count) = reader.head()?;
        let (fixed, repeated, count_max) = match kind {
            1 | 4 => (3, 0, 0),
            2 => (2, WORD, BUCKETS_MAX as usize + 1),
            3 => (3, 0, ENTRIES_MAX as usize),
            5 => (1, 4 * WORD, LEASES_MAX as usize),
            6 => (4, 4 * WORD, RESERVATIONS_MAX),
            7 | 8 => (2, 0, 0),
            _ => return Err(CorruptState::Kind(kind)),
        };
        if count > count_max {
            return Err(CorruptState::Range { word: 0, found: count as u64 });
        }
        let fixed = (1 + fixed) * WORD;
        if kind != 3 {
            reader.expect(fixed + repeated * count)?;
        }
        Ok(match kind {
            1 => {
                let (start, window) = (reader.time()?, reader.positive_span()?);
                check_alignment(1, start, window)?;
                State::FixedWindow(FixedWindowState { start, window, used: reader.number()? })
            }
            2 => {
                let (bucket, newest) = (reader.positive_span()?, reader.time()?);
                check_alignment(2, newest, bucket)?;
                let counts = (0..count).map(|_| reader.number()).collect::<Result<_, _>>()?;
                State::SlidingWindow(SlidingWindowState { bucket, newest, counts })
            }
            3 => {
                let base = reader.number()?;
                let first = reader.number()?;
                let slots = reader.within(count as u64, ENTRIES_MAX)?;
                if first > slots.saturating_sub(1) {
                    return Err(CorruptState::Range { word: 2, found: first });
                }
                reader.expect(fixed + 2 * SHORT * slots as usize)?;
                let (mut time, mut cost) = (Time::ZERO, 0);
                let entries = (first..first + count as u64)
                    .map(|index| {
                        reader.at = fixed + 2 * SHORT * (index % slots) as usize;
                        time = reader.short(time.us(), EXACT_MAX).map(Time::from_us)?;
                        let total = reader.short(0, EXACT_MAX)?;
                        let found = distance(base, total);
                        if found < cost {
                            return Err(CorruptState::Range { word: reader.at / WORD, found: total });
                        }
                        cost = found;
                        Ok(Entry { time, total })
                    })
                    .collect::<Result<_, _>>()?;
                State::SlidingLog(SlidingLogState { base, entries })
            }
            4 => State::Bucket(BucketState {
                debt: reader.number()?,
                time: reader.time()?,
                scale: reader.number_from(1)?,
            }),
            5 => {
                let seen = reader.time()?;
                let mut until = Time::ZERO;
                let leases = (0..count)
                    .map(|_| {
                        until = reader.time_from(until)?;
                        Ok(Lease { until, token: reader.token()?, weight: reader.number_up_to(LEASES_MAX)? })
                    })
                    .collect::<Result<_, _>>()?;
                State::Concurrency(ConcurrencyState { seen, leases })
            }
            6 => {
                let start = reader.time()?;
                let end = reader.time_from(start)?;
                let (seen, used) = (reader.time()?, reader.number()?);
                let (mut until, mut reserved) = (Time::ZERO, 0);
                let reservations = (0..count)
                    .map(|_| {
                        until = reader.time_from(until)?;
                        let token = reader.token()?;
                        let cost = reader.number_up_to(EXACT_MAX - reserved)?;
                        reserved += cost;
                        Ok(Reservation { until, token, cost })
                    })
                    .collect::<Result<_, _>>()?;
                State::Quota(QuotaState { start, end, seen, used, reservations })
            }
            7 => State::Meter(MeterState { value: reader.number()?, touched: reader.time()? }),
            _ => State::Penalty(PenaltyState { failures: reader.number()?, until: reader.time()? }),
        })
    }
}

/// Checks that a window starts at a multiple of its length.
fn check_alignment(word: usize, start: Time, window: Span) -> Result<(), CorruptState> {
    let found = start.us();
    if found.is_multiple_of(window.us()) { Ok(()) } else { Err(CorruptState::Range { word, found }) }
}

/// Writes the layout.
#[derive(Default)]
struct Words {
    bytes: Vec<u8>,
}

impl Words {
    fn word(&mut self, word: u64) -> &mut Words {
        self.bytes.extend_from_slice(&word.to_le_bytes());
        self
    }

    fn head(&mut self, kind: u8, count: usize) -> &mut Words {
        self.word(u64::from(VERSION) | u64::from(kind) << 8 | (count as u64) << 16)
    }

    fn number(&mut self, number: u64) -> &mut Words {
        self.word(number)
    }

    fn short(&mut self, number: u64) -> &mut Words {
        self.bytes.extend_from_slice(&number.to_le_bytes()[..SHORT]);
        self
    }

    fn time(&mut self, time: Time) -> &mut Words {
        self.word(time.us())
    }

    fn span(&mut self, span: Span) -> &mut Words {
        self.word(span.us())
    }

    fn token(&mut self, token: Token) -> &mut Words {
        self.word((token.0 >> 64) as u64).word(token.0 as u64)
    }
}

/// Reads the layout and checks the range of each number.
struct Reader<'b> {
    bytes: &'b [u8],
    /// Offset of the next number.
    at: usize,
}

impl<'b> Reader<'b> {
    fn new(bytes: &'b [u8]) -> Result<Reader<'b>, CorruptState> {
        if bytes.len() < WORD {
            return Err(CorruptState::Length { found: bytes.len(), expected: WORD });
        }
        Ok(Reader { bytes, at: 0 })
    }

    fn head(&mut self) -> Result<(u8, usize), CorruptState> {
        let head = self.raw(WORD)?;
        let [version, kind, ..] = head.to_le_bytes();
        if version != VERSION {
            return Err(CorruptState::Version(version));
        }
        // A count that does not fit into usize also exceeds every maximum.
        Ok((kind, usize::try_from(head >> 16).unwrap_or(usize::MAX)))
    }

    fn expect(&self, expected: usize) -> Result<(), CorruptState> {
        let found = self.bytes.len();
        if found == expected { Ok(()) } else { Err(CorruptState::Length { found, expected }) }
    }

    fn raw(&mut self, len: usize) -> Result<u64, CorruptState> {
        let bytes = self.bytes.get(self.at..self.at + len);
        self.at += len;
        let (found, expected) = (self.bytes.len(), self.at);
        let bytes = bytes.ok_or(CorruptState::Length { found, expected })?;
        Ok(bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
    }

    fn between(&mut self, len: usize, min: u64, max: u64) -> Result<u64, CorruptState> {
        let word = self.at / WORD;
        let found = self.raw(len)?;
        if (min..=max).contains(&found) { Ok(found) } else { Err(CorruptState::Range { word, found }) }
    }

    fn within(&mut self, min: u64, max: u64) -> Result<u64, CorruptState> {
        self.between(WORD, min, max)
    }

    fn short(&mut self, min: u64, max: u64) -> Result<u64, CorruptState> {
        self.between(SHORT, min, max)
    }

    fn number(&mut self) -> Result<u64, CorruptState> {
        self.within(0, EXACT_MAX)
    }

    fn number_from(&mut self, min: u64) -> Result<u64, CorruptState> {
        self.within(min, EXACT_MAX)
    }

    fn number_up_to(&mut self, max: u64) -> Result<u64, CorruptState> {
        self.within(0, max)
    }

    fn time(&mut self) -> Result<Time, CorruptState> {
        self.number().map(Time::from_us)
    }

    fn time_from(&mut self, min: Time) -> Result<Time, CorruptState> {
        self.number_from(min.us()).map(Time::from_us)
    }

    fn positive_span(&mut self) -> Result<Span, CorruptState> {
        self.number_from(1).map(Span::from_us)
    }

    fn token(&mut self) -> Result<Token, CorruptState> {
        Ok(Token(u128::from(self.raw(WORD)?) << 64 | u128::from(self.raw(WORD)?)))
    }
}
