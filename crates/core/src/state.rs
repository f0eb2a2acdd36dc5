//! The state of any algorithm, and its byte layout, which is the same in every store.
//!
//! # Layout, version 1
//!
//! A state is a sequence of 64-bit little-endian words. Word 0 holds the version in its lowest byte, the kind in the next
//! byte, and the number of repeated records in the bits above. Except for generations, every other word is at most
//! 2^53 - 1. Every instant is in microseconds.
//!
//! A fixed window, and the newest bucket of a sliding window, starts at a multiple of its length. Core relies on that
//! and rejects other states. The Lua twins compute the start each time.
//!
//! Only the log and the ring of a sliding window with many buckets have records of 14 bytes: two numbers of 7 bytes each.
//! They form a ring of `slots` records, and the oldest is at index `first`. So a store can drop the oldest and add the newest without moving the others.
//!
//! | kind | name | words after word 0 | repeated |
//! |---|---|---|---|
//! | 1 | fixed window | start, window, used | |
//! | 2 | sliding window | bucket, newest | count, newest bucket first |
//! | 3 | sliding log | base, first, slots | time, running total |
//! | 4 | bucket | debt, time, scale | |
//! | 7 | meter | value, touched | |
//! | 8 | penalty | failures, until | |
//! | 9 | concurrency | seen, generation (2) | end, units |
//! | 10 | quota | start, end, seen, used, generation (2) | end, units |
//! | 12 | bucket ring | base, first + 2^24 * slots, bucket | start, running total |
//! | 13 | stamped | node, epoch, revision, extra + 2^52, number of extra, adjustments; then a state of kind 7 or 10, or nothing | |
//!
//! Kind 11 is the record of a hold, which has a separate key (`plan/hold.rs`). Kinds 5 and 6 are retired: concurrency and
//! quota with one record per lease or reservation. State of a retired kind is valid and does not count.

use std::collections::VecDeque;

use crate::algorithm::bucket::{Bucket, BucketState};
use crate::algorithm::bucket_ring::{BucketRing, BucketRingState, RingChange};
use crate::algorithm::concurrency::{Concurrency, ConcurrencyState, LeaseChange};
use crate::algorithm::fixed_window::{FixedWindow, FixedWindowState};
use crate::algorithm::hold_sums::{HoldSums, PAIRS_MAX, Pair};
use crate::algorithm::machine::Machine;
use crate::algorithm::meter::{Meter, MeterState};
use crate::algorithm::penalty::{Penalty, PenaltyState};
use crate::algorithm::quota::{Quota, QuotaChange, QuotaState};
use crate::algorithm::sliding_log::{ENTRIES_MAX, Entry, LogChange, SlidingLog, SlidingLogState, distance};
use crate::algorithm::sliding_window::{BUCKETS_MAX, SlidingWindow, SlidingWindowState};
use crate::plan::hold::{Generation, HoldChange};
use crate::stamped::{EXTRA_END, Stamp, StampedAccount, StampedChange, StampedState};
use crate::time::{EXACT_MAX, Span, Time};

const VERSION: u8 = 1;
const WORD: usize = size_of::<u64>();
/// The kind of a state under a stamp, and the bytes of its stamp.
const STAMPED: u8 = 13;
const STAMP_BYTES: usize = 7 * WORD;
/// Bytes per number in an entry of a log.
const SHORT: usize = 7;
/// The index of the oldest record of a bucket ring is below this. The number of slots is stored above it.
const FIRST_END: u64 = 1 << 24;

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
    BucketRing(BucketRingState),
    Stamped(Box<StampedState>),
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
    BucketRing(RingChange),
    Stamped(StampedChange),
}

impl Change {
    /// Returns what to change in the record of the operation's token.
    pub fn hold_change(&self) -> Option<HoldChange> {
        match self {
            Change::Concurrency(change) => Concurrency::hold_change(change),
            Change::Quota(change) => Quota::hold_change(change),
            Change::Stamped(change) => change.hold,
            _ => None,
        }
    }
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
            Change::BucketRing(change) => commit!(BucketRing, BucketRing, change),
            Change::Stamped(change) => *slot = Some(State::Stamped(change.state)),
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
                words.head(9, state.sums.pairs.len()).time(state.seen).generation(state.generation);
                words.pairs(&state.sums);
            }
            State::Quota(state) => {
                words.head(10, state.sums.pairs.len());
                words.time(state.start).time(state.end).time(state.seen).number(state.used);
                words.generation(state.generation).pairs(&state.sums);
            }
            State::Meter(state) => {
                words.head(7, 0).number(state.value).time(state.touched);
            }
            State::Penalty(state) => {
                words.head(8, 0).number(state.failures).time(state.until);
            }
            State::Stamped(state) => {
                let Stamp { node, epoch, revision, extra, extra_no, adjusted } = state.stamp;
                let extra = EXTRA_END.saturating_add(extra).unsigned_abs();
                words.head(STAMPED, 0).number(node).number(epoch.into()).number(revision.into());
                words.number(extra).number(extra_no).number(adjusted.into());
                if let Some(account) = &state.account {
                    let account = match account.clone() {
                        StampedAccount::Quota(account) => State::Quota(account),
                        StampedAccount::Meter(account) => State::Meter(account),
                    };
                    words.bytes.extend(account.encode());
                }
            }
            State::BucketRing(state) => {
                let count = state.entries.len();
                words.head(12, count).number(state.base).number(count as u64 * FIRST_END).span(state.bucket);
                for entry in &state.entries {
                    words.short(entry.time.us()).short(entry.total);
                }
            }
        }
        words.bytes
    }

    /// Whether these bytes are state of a kind that no limit writes any more. Such state does not count.
    pub fn is_retired(bytes: &[u8]) -> bool {
        matches!(bytes, [VERSION, 5 | 6, ..])
    }

    /// Decodes and validates a state. No bytes that a store returns can cause a panic or a silently wrong decision.
    pub fn decode(bytes: &[u8]) -> Result<State, CorruptState> {
        let mut reader = Reader::new(bytes)?;
        let (kind, count) = reader.head()?;
        if kind == STAMPED {
            return reader.stamped(count).map(|state| State::Stamped(Box::new(state)));
        }
        let (fixed, repeated, count_max) = match kind {
            1 | 4 => (3, 0, 0),
            2 => (2, WORD, BUCKETS_MAX as usize + 1),
            3 | 12 => (3, 0, ENTRIES_MAX as usize),
            7 | 8 => (2, 0, 0),
            9 => (3, 2 * WORD, PAIRS_MAX),
            10 => (6, 2 * WORD, PAIRS_MAX),
            _ => return Err(CorruptState::Kind(kind)),
        };
        if count > count_max {
            return Err(CorruptState::Range { word: 0, found: count as u64 });
        }
        let fixed = (1 + fixed) * WORD;
        if !matches!(kind, 3 | 12) {
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
                let entries = reader.ring(fixed, base, count as u64, first, slots)?;
                State::SlidingLog(SlidingLogState { base, entries })
            }
            4 => State::Bucket(BucketState {
                debt: reader.number()?,
                time: reader.time()?,
                scale: reader.number_from(1)?,
            }),
            7 => State::Meter(MeterState { value: reader.number()?, touched: reader.time()? }),
            8 => State::Penalty(PenaltyState { failures: reader.number()?, until: reader.time()? }),
            9 => {
                let (seen, generation) = (reader.time()?, reader.generation()?);
                State::Concurrency(ConcurrencyState { seen, generation, sums: reader.pairs(count)? })
            }
            12 => {
                let (base, ring, bucket) = (reader.number()?, reader.number()?, reader.positive_span()?);
                let (first, slots) = (ring % FIRST_END, ring / FIRST_END);
                if !(count as u64..=ENTRIES_MAX).contains(&slots) {
                    return Err(CorruptState::Range { word: 2, found: ring });
                }
                let entries = reader.ring(fixed, base, count as u64, first, slots)?;
                State::BucketRing(BucketRingState { bucket, base, entries })
            }
            _ => {
                let start = reader.time()?;
                let end = reader.time_from(start)?;
                let (seen, used, generation) = (reader.time()?, reader.number()?, reader.generation()?);
                State::Quota(QuotaState { start, end, seen, used, generation, sums: reader.pairs(count)? })
            }
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

    fn generation(&mut self, Generation([first, second]): Generation) -> &mut Words {
        self.word(first).word(second)
    }

    fn pairs(&mut self, sums: &HoldSums) -> &mut Words {
        for pair in &sums.pairs {
            self.time(pair.end).number(pair.units);
        }
        self
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

    /// Reads the stamp, and the account that follows it.
    fn stamped(&mut self, count: usize) -> Result<StampedState, CorruptState> {
        if count > 0 {
            return Err(CorruptState::Range { word: 0, found: count as u64 });
        }
        if self.bytes.len() < STAMP_BYTES {
            return Err(CorruptState::Length { found: self.bytes.len(), expected: STAMP_BYTES });
        }
        let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let stamp = Stamp {
            node: self.number()?,
            epoch: short(self.between(WORD, 0, u32::MAX.into())?),
            revision: short(self.between(WORD, 0, u32::MAX.into())?),
            extra: self.number()?.cast_signed() - EXTRA_END,
            extra_no: self.number()?,
            adjusted: short(self.between(WORD, 0, u32::MAX.into())?),
        };
        let account = match &self.bytes[STAMP_BYTES..] {
            [] => None,
            // No state is nested twice, so that no bytes exhaust the stack.
            rest @ [_, 7 | 10, ..] => match State::decode(rest)? {
                State::Quota(account) => Some(StampedAccount::Quota(account)),
                State::Meter(account) => Some(StampedAccount::Meter(account)),
                _ => return Err(CorruptState::Kind(STAMPED)),
            },
            [_, kind, ..] => return Err(CorruptState::Kind(*kind)),
            rest => return Err(CorruptState::Length { found: rest.len(), expected: WORD }),
        };
        Ok(StampedState { stamp, account })
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

    fn time(&mut self) -> Result<Time, CorruptState> {
        self.number().map(Time::from_us)
    }

    fn time_from(&mut self, min: Time) -> Result<Time, CorruptState> {
        self.number_from(min.us()).map(Time::from_us)
    }

    fn positive_span(&mut self) -> Result<Span, CorruptState> {
        self.number_from(1).map(Span::from_us)
    }

    /// Reads the entries of a ring in order of their times.
    fn ring(
        &mut self,
        fixed: usize,
        base: u64,
        count: u64,
        first: u64,
        slots: u64,
    ) -> Result<VecDeque<Entry>, CorruptState> {
        if first > slots.saturating_sub(1) {
            return Err(CorruptState::Range { word: 2, found: first });
        }
        self.expect(fixed + 2 * SHORT * slots as usize)?;
        let (mut time, mut cost) = (Time::ZERO, 0);
        let entries = (first..first + count).map(|index| {
            self.at = fixed + 2 * SHORT * (index % slots) as usize;
            time = self.short(time.us(), EXACT_MAX).map(Time::from_us)?;
            let total = self.short(0, EXACT_MAX)?;
            let found = distance(base, total);
            if found < cost {
                return Err(CorruptState::Range { word: self.at / WORD, found: total });
            }
            cost = found;
            Ok(Entry { time, total })
        });
        entries.collect()
    }

    fn generation(&mut self) -> Result<Generation, CorruptState> {
        Ok(Generation([self.raw(WORD)?, self.raw(WORD)?]))
    }

    /// Reads pairs in order of their ends, whose units together are an exact number.
    fn pairs(&mut self, count: usize) -> Result<HoldSums, CorruptState> {
        let (mut end, mut sum) = (0, 0);
        let pairs = (0..count).map(|_| {
            end = self.number_from(end + 1)?;
            let units = self.within(1, EXACT_MAX - sum)?;
            sum += units;
            Ok(Pair { end: Time::from_us(end), units })
        });
        Ok(HoldSums { pairs: pairs.collect::<Result<_, _>>()? })
    }
}
