//! Estimates the memory that state takes in Redis: keys, values, expiries and the server's overhead.
//!
//! The lengths of keys and states come from core, the only crate that knows their formats. The rest models how servers
//! store a string with an expiry. Tests compare it with the supported servers.

use tollgate_core::algorithm::hold_sums::PAIRS_MAX;
use tollgate_core::algorithm::quota::QuotaPeriod;
use tollgate_core::plan::hold::HOLD_BYTES;
use tollgate_core::{
    Account, Key, Keyspace, Limit, Operation, Report, Span, State, SubjectHasher, Time, Token,
};

/// The memory model of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Footprint {
    /// How the server stores keys and values.
    pub engine: Engine,
    /// How the server rounds allocations.
    pub allocator: Allocator,
}

/// How a server stores keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Engine {
    /// Redis 6.2 and 7: each key has an entry in the table of keys and one in the table of expiries.
    #[default]
    Redis,
    /// Valkey 9: key, expiry and a small value are one allocation.
    Valkey,
}

/// How allocations are rounded up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Allocator {
    /// jemalloc, which servers use on Linux.
    #[default]
    Jemalloc,
    /// The allocator of glibc.
    Libc,
}

/// The memory of one key, without its share of the server's hash tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyBytes {
    /// Length of the key.
    pub key: u64,
    /// Length of the state.
    pub value: u64,
    /// Headers, rounding and the entry in the table of keys.
    pub overhead: u64,
    /// The expiry.
    pub expiry: u64,
}

impl KeyBytes {
    /// The sum of all parts.
    pub const fn total(&self) -> u64 {
        self.key + self.value + self.overhead + self.expiry
    }

    /// The memory of this key and of `count` keys like `other`.
    #[must_use]
    pub const fn with(&self, other: KeyBytes, count: u64) -> KeyBytes {
        KeyBytes {
            key: self.key + count * other.key,
            value: self.value + count * other.value,
            overhead: self.overhead + count * other.overhead,
            expiry: self.expiry + count * other.expiry,
        }
    }
}

/// The variable part of a subject's state: entries of a log, or sums of leases or reservations by end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Records {
    /// Number of records in the smallest state.
    pub least: u64,
    /// Largest number of records.
    pub most: u64,
    /// Bytes per record. A log grows by an eighth at a time, so it may take an eighth more.
    pub bytes: u64,
}

/// The header of a Redis object: type, encoding, age, references, pointer.
const OBJECT: u64 = 16;
/// Longest string that Redis stores in the same allocation as its object.
const EMBEDDED_MAX: u64 = 44;
/// A hash table entry: pointers to key, value and next entry.
const ENTRY: u64 = 24;
const POINTER: u64 = 8;
/// Largest allocation in which Valkey stores key and value together, without the expiry.
const EMBEDDED_ENTRY_MAX: u64 = 128;
/// A bucket of Valkey's hash tables.
const BUCKET: u64 = 64;
/// Entries per 100 buckets at which Valkey doubles a table: 77 % of seven per bucket.
const BUCKET_ENTRIES_PER_100: u64 = 7 * 77;
/// A stored request id has a head (digest, expiry, attempt, time) and one answer per rule.
const REQUEST_ID_HEAD: u64 = 40;
const REQUEST_ID_ANSWER: u64 = 34;

impl Footprint {
    /// The memory of one subject with `records` records, under a prefix of `prefix` bytes.
    pub fn subject(&self, prefix: usize, keyspace: &Keyspace, limit: &Limit, records: u64) -> KeyBytes {
        self.key((prefix + text_length(&sample_key(keyspace))) as u64, state_length(limit, records))
    }

    /// The memory of the record of one lease or reservation, if the limit has any. It is kept until the end of the lease,
    /// or an hour after the end of the reservation.
    pub fn hold(&self, prefix: usize, keyspace: &Keyspace, limit: &Limit) -> Option<KeyBytes> {
        if !matches!(limit, Limit::Concurrency(_) | Limit::Quota(_)) {
            return None;
        }
        let length = text_length(&sample_key(keyspace).hold_key(Token(1)));
        Some(self.key((prefix + length) as u64, HOLD_BYTES as u64))
    }

    /// The memory of one stored request id, if `rules` rules matched the request and the first has this keyspace.
    pub fn request_id(&self, prefix: usize, keyspace: &Keyspace, rules: u64) -> KeyBytes {
        let key = sample_key(keyspace);
        let length = text_length(&key.request_id_key(key.subject()));
        self.key((prefix + length) as u64, REQUEST_ID_HEAD + REQUEST_ID_ANSWER * rules)
    }

    /// The memory of the hash tables for this many keys and their expiries.
    pub const fn tables(&self, keys: u64) -> u64 {
        let one = match self.engine {
            Engine::Redis => POINTER * max(keys, 4).next_power_of_two(),
            Engine::Valkey => BUCKET * (keys * 100).div_ceil(BUCKET_ENTRIES_PER_100).next_power_of_two(),
        };
        2 * one
    }

    const fn key(&self, key: u64, value: u64) -> KeyBytes {
        let (taken, expiry) = match self.engine {
            Engine::Redis => {
                let held = if value <= EMBEDDED_MAX {
                    self.allocated(OBJECT + string(value))
                } else {
                    self.allocated(OBJECT) + self.allocated(string(value))
                };
                let entry = self.allocated(ENTRY);
                (self.allocated(string(key)) + held + entry, entry)
            }
            Engine::Valkey => {
                // An embedded value replaces the pointer to it.
                let (head, named) = (OBJECT - POINTER, 1 + string(key));
                let taken = if head + named + string(value) <= EMBEDDED_ENTRY_MAX {
                    self.allocated(head + POINTER + named + string(value))
                } else {
                    self.allocated(OBJECT + POINTER + named) + self.allocated(string(value))
                };
                (taken - POINTER, POINTER)
            }
        };
        KeyBytes { key, value, overhead: taken - key - value, expiry }
    }

    /// The size that the allocator returns for a request of this size.
    const fn allocated(&self, bytes: u64) -> u64 {
        match self.allocator {
            // The size classes of builds that align to 16 bytes, which distributions use. Others are finer up to 64.
            Allocator::Jemalloc if bytes <= 128 => bytes.next_multiple_of(16),
            // Four size classes between a power of two and the next.
            Allocator::Jemalloc => bytes.next_multiple_of(bytes.next_power_of_two() / 8),
            Allocator::Libc => max((bytes + 8).next_multiple_of(16) - 8, 24),
        }
    }
}

/// Open reservations per subject that an estimate assumes at most. No limit of the algorithm.
const RESERVATIONS_ASSUMED: u64 = 10_000;

/// Returns the largest number of leases or reservations of one subject, each of one unit.
pub fn holds_max(limit: &Limit) -> u64 {
    match limit {
        Limit::Concurrency(limit) => limit.limit(),
        Limit::Quota(limit) => (limit.allowance() + limit.grace()).min(RESERVATIONS_ASSUMED),
        _ => 0,
    }
}

impl Records {
    /// The records of a limit. None if its state has a fixed size.
    pub fn of(limit: &Limit) -> Option<Records> {
        let (least, most) = match limit {
            Limit::SlidingLog(limit) => (1, limit.entries().min(limit.limit())),
            Limit::Concurrency(limit) => (1, limit.limit().min(PAIRS_MAX as u64)),
            Limit::Quota(limit) => (0, (limit.allowance() + limit.grace()).min(PAIRS_MAX as u64)),
            _ => return None,
        };
        let bytes = match limit {
            Limit::SlidingLog(_) => {
                let charge = smallest_operation(limit);
                length_after(limit, &[charge, charge]) - length_after(limit, &[charge])
            }
            // End and units of a pair.
            _ => 16,
        };
        (most > least).then_some(Records { least, most, bytes })
    }
}

/// Length of the state with this many records.
fn state_length(limit: &Limit, records: u64) -> u64 {
    let smallest = length_after(limit, &[smallest_operation(limit)]);
    let Some(Records { least, most, bytes }) = Records::of(limit) else { return smallest };
    let records = records.clamp(least, most);
    match limit {
        // A full ring is rewritten with room for one more entry plus an eighth of those it has.
        Limit::SlidingLog(_) => smallest + bytes * (records - least + (records - 1) / 8),
        _ => smallest + bytes * (records - least),
    }
}

/// The operation that leaves the smallest state.
const fn smallest_operation(limit: &Limit) -> Operation {
    match limit {
        Limit::Penalty(_) => Operation::Report { result: Report::Failure },
        _ => Operation::Charge { cost: 1, token: Token(1) },
    }
}

/// Applies operations one microsecond apart and returns the length of the state.
fn length_after(limit: &Limit, operations: &[Operation]) -> u64 {
    let mut now = match limit {
        Limit::Quota(quota) => match quota.period() {
            QuotaPeriod::Calendar(periods) => periods.starts()[1],
            QuotaPeriod::Rolling(_) => ANY_TIME,
        },
        _ => ANY_TIME,
    };
    let mut account = Account::default();
    for operation in operations {
        now = now.plus(Span::from_us(1));
        account.apply(limit, now, operation);
    }
    account.state.map_or(0, |state: State| state.encode().len() as u64)
}

const ANY_TIME: Time = Time::from_us(1_700_000_000_000_000);

/// A key of this keyspace. All have the same length.
fn sample_key(keyspace: &Keyspace) -> Key<'_> {
    keyspace.key(SubjectHasher::new([0; 32]).subject([]))
}

fn text_length(key: &impl ToString) -> usize {
    key.to_string().len()
}

/// A string with its header and terminator.
const fn string(length: u64) -> u64 {
    let header = match length {
        0..256 => 3,
        256..65_536 => 5,
        _ => 9,
    };
    header + length + 1
}

const fn max(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}
