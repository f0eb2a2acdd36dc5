//! What state takes in Redis, told before there is any: keys, values, and all that the server keeps beside them.
//!
//! Lengths of keys and states come from core, which alone knows their form. The rest is how servers lay out a string with
//! an expiry, measured on those that are supported and compared with them by the tests.

use tollgate_core::algorithm::quota::{QuotaPeriod, RESERVATIONS_MAX};
use tollgate_core::{Key, Keyspace, Limit, Operation, Report, Span, State, SubjectHasher, Time, Token};

/// A server, as far as its memory is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Footprint {
    /// Whose tables.
    pub engine: Engine,
    /// Whose sizes.
    pub allocator: Allocator,
}

/// How keys and values are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Engine {
    /// As in Redis 6.2 and 7. Each key has an entry in the table of keys and another one in that of expiries.
    #[default]
    Redis,
    /// As in Valkey 9. Key, expiry and a small value are one piece of memory.
    Valkey,
}

/// To which sizes memory is rounded up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Allocator {
    /// What servers are built with on Linux.
    #[default]
    Jemalloc,
    /// That of glibc.
    Libc,
}

/// What one key takes, without its share of the tables that all keys lie in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyBytes {
    /// The key's text.
    pub key: u64,
    /// The state.
    pub value: u64,
    /// Headers, what is lost to rounding, and the entry that leads to it.
    pub overhead: u64,
    /// When it is to be forgotten.
    pub expiry: u64,
}

impl KeyBytes {
    /// All of it.
    pub const fn total(&self) -> u64 {
        self.key + self.value + self.overhead + self.expiry
    }
}

/// What a limit keeps several of for one subject: entries of a log, leases, reservations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Records {
    /// So many are there as soon as there is any state.
    pub least: u64,
    /// So many can there be.
    pub most: u64,
    /// What each takes. A log grows by an eighth at a time, so that it may take an eighth more.
    pub bytes: u64,
}

/// A Redis object: type, encoding, age, references, pointer.
const OBJECT: u64 = 16;
/// A string up to here lies right behind its object in Redis.
const EMBEDDED_MAX: u64 = 44;
/// Key, value and next one of a place in a table.
const ENTRY: u64 = 24;
const POINTER: u64 = 8;
/// Valkey keeps key and value in one piece up to here, the expiry not counted.
const PIECE_MAX: u64 = 128;
/// A bucket of Valkey's tables has seven places, and a table is doubled when 77 in 100 of all are taken.
const BUCKET: u64 = 64;
const BUCKET_HUNDREDTHS: u64 = 7 * 77;
/// Of a remembered request: digest, end, instant; then an answer for each rule.
const REMEMBERED: u64 = 40;
const ANSWER: u64 = 34;

impl Footprint {
    /// What a subject of this limit takes that has so many records, under a prefix of this length.
    pub fn subject(&self, prefix: usize, scope: &Keyspace, limit: &Limit, records: u64) -> KeyBytes {
        self.key((prefix + text(&anybody(scope))) as u64, state(limit, records))
    }

    /// What a request's id takes for as long as it is remembered, if the request met so many rules, this one first.
    pub fn request_id(&self, prefix: usize, scope: &Keyspace, rules: u64) -> KeyBytes {
        let key = anybody(scope);
        let text = text(&key.request_id_key(key.subject()));
        self.key((prefix + text) as u64, REMEMBERED + ANSWER * rules)
    }

    /// The tables that so many keys and their expiries lie in.
    pub const fn tables(&self, keys: u64) -> u64 {
        let one = match self.engine {
            Engine::Redis => POINTER * max(keys, 4).next_power_of_two(),
            Engine::Valkey => BUCKET * (keys * 100).div_ceil(BUCKET_HUNDREDTHS).next_power_of_two(),
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
                // The pointer gives way to what it would point to.
                let (head, named) = (OBJECT - POINTER, 1 + string(key));
                let taken = if head + named + string(value) <= PIECE_MAX {
                    self.allocated(head + POINTER + named + string(value))
                } else {
                    self.allocated(OBJECT + POINTER + named) + self.allocated(string(value))
                };
                (taken - POINTER, POINTER)
            }
        };
        KeyBytes { key, value, overhead: taken - key - value, expiry }
    }

    /// What is handed out when so much is asked for.
    const fn allocated(&self, bytes: u64) -> u64 {
        match self.allocator {
            // The classes of a build that aligns to 16, as distributions have it; up to 64 others have finer ones.
            Allocator::Jemalloc if bytes <= 128 => bytes.next_multiple_of(16),
            // Four sizes between a power of two and the next.
            Allocator::Jemalloc => bytes.next_multiple_of(bytes.next_power_of_two() / 8),
            Allocator::Libc => max((bytes + 8).next_multiple_of(16) - 8, 24),
        }
    }
}

impl Records {
    /// What this limit keeps several of; none if its state has one size for ever.
    pub fn of(limit: &Limit) -> Option<Records> {
        let (least, most) = match limit {
            Limit::SlidingLog(limit) => (1, limit.entries().min(limit.limit())),
            Limit::Concurrency(limit) => (1, limit.limit()),
            Limit::Quota(limit) => (0, (limit.allowance() + limit.grace()).min(RESERVATIONS_MAX as u64)),
            _ => return None,
        };
        let token = Token(2);
        let operations = match limit {
            Limit::Quota(_) => [Operation::Reserve { cost: 1, token, hold: Span::from_secs(1) }].to_vec(),
            _ => [Operation::Charge { cost: 1, token: Token(1) }, Operation::Charge { cost: 1, token }]
                .to_vec(),
        };
        let bytes = length(limit, &operations) - length(limit, &[first(limit)]);
        (most > least).then_some(Records { least, most, bytes })
    }
}

/// Length of the state with so many records.
fn state(limit: &Limit, records: u64) -> u64 {
    let smallest = length(limit, &[first(limit)]);
    let Some(Records { least, most, bytes }) = Records::of(limit) else { return smallest };
    let records = records.clamp(least, most);
    match limit {
        // A full ring is cut anew with room for one more entry and an eighth of those it has.
        Limit::SlidingLog(_) => smallest + bytes * (records - least + (records - 1) / 8),
        _ => smallest + bytes * (records - least),
    }
}

/// What leaves the smallest state there is.
const fn first(limit: &Limit) -> Operation {
    match limit {
        Limit::Penalty(_) => Operation::Report { result: Report::Failure },
        _ => Operation::Charge { cost: 1, token: Token(1) },
    }
}

/// How long the state is after these, a moment apart: the machine itself says it.
fn length(limit: &Limit, operations: &[Operation]) -> u64 {
    let mut now = match limit {
        Limit::Quota(quota) => match quota.period() {
            QuotaPeriod::Calendar(periods) => periods.starts()[1],
            QuotaPeriod::Rolling(_) => SOME_DAY,
        },
        _ => SOME_DAY,
    };
    let mut held = None;
    for operation in operations {
        now = now.plus(Span::from_us(1));
        if let Some(write) = limit.decide(held.as_ref(), now, operation).write {
            State::commit(&mut held, write.change);
        }
    }
    held.map_or(0, |state: State| state.encode().len() as u64)
}

const SOME_DAY: Time = Time::from_us(1_700_000_000_000_000);

/// A key of this scope: all of them are of one length.
fn anybody(scope: &Keyspace) -> Key<'_> {
    scope.key(SubjectHasher::new([0; 32]).subject([]))
}

fn text(key: &impl ToString) -> usize {
    key.to_string().len()
}

/// A string with its header and its end.
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
