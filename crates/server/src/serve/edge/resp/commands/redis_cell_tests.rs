//! Compares `CL.THROTTLE` with recorded replies of redis-cell, except where redis-cell is wrong.

use std::collections::HashMap;

use tollgate::core::{Item, Keyspace, Subject, Time};
use tollgate::{ManualClock, MemoryStore};

use super::throttle::{LastLimit, ThrottleRequest};
use crate::serve::edge::resp::frame::{Limits, WordSpans, next};
use crate::serve::edge::resp::reply::{Reply, RespVersion};

/// Our limiter with a manual clock.
struct Limiter<'c> {
    clock: &'c ManualClock,
    store: MemoryStore<&'c ManualClock>,
    keyspace: Keyspace,
    subjects: HashMap<String, u128>,
}

const START: u64 = 1_700_000_000_000_000;

impl<'c> Limiter<'c> {
    fn new(clock: &'c ManualClock) -> Limiter<'c> {
        let store = MemoryStore::with_clock(clock);
        let keyspace = Keyspace::new("default", "CL.THROTTLE").expect("a keyspace");
        Limiter { clock, store, keyspace, subjects: HashMap::new() }
    }

    /// The five numbers of a reply, `at_us` after the start.
    fn throttle(&mut self, at_us: u64, arguments: &str) -> Vec<i64> {
        self.clock.set(Time::from_us(START + at_us));
        let mut line = format!("CL.THROTTLE {arguments}\n").into_bytes();
        let mut spans = WordSpans::new();
        next(&mut line, &Limits::AUTHENTICATED, &mut spans).expect("a command").expect("a whole one");
        let words = spans.words(&line).from(1);
        let request = ThrottleRequest::read(words, &mut LastLimit::default(), false).expect("a request");
        let new = self.subjects.len() as u128 + 1;
        let subject = *self.subjects.entry(request.key.to_owned()).or_insert(new);
        let key = self.keyspace.key(Subject::from_u128(subject << 64 | subject));
        let item = Item::new(key, request.limit, request.operation());
        let (now, answer) = self.store.apply_item(&item).expect("an item");
        let mut out = Vec::new();
        request.write_reply(now, &answer, &mut Reply::new(&mut out, RespVersion::Resp2)).expect("a reply");
        let text = String::from_utf8(out).expect("text");
        let numbers = text.split("\r\n").filter_map(|line| line.strip_prefix(':'));
        numbers.map(|number| number.parse().expect("a number")).collect()
    }
}

#[test]
fn replies_equal_those_recorded_from_redis_cell() {
    let clock = ManualClock::at(Time::from_us(START));
    let mut limiter = Limiter::new(&clock);
    let rows = include_str!("redis_cell.txt").lines().filter(|line| !line.starts_with('#'));
    let mut count = 0;
    for row in rows {
        let (asked, answered) = row.split_once(" -> ").expect("a question and an answer");
        let (at_ms, arguments) = asked.split_once(' ').expect("a time and arguments");
        let at_ms: u64 = at_ms.parse().expect("milliseconds");
        let answered: Vec<i64> =
            answered.split(' ').map(|number| number.parse().expect("a number")).collect();
        assert_eq!(limiter.throttle(1_000 * at_ms, arguments), answered, "{row}");
        count += 1;
    }
    assert!(count >= 190, "{count} rows");
}

/// The last column is the reply of redis-cell 0.5.0.
#[test]
fn replies_are_right_where_redis_cell_is_wrong() {
    let clock = ManualClock::at(Time::from_us(START));
    let mut limiter = Limiter::new(&clock);
    for (at_us, arguments, right, _of_redis_cell) in [
        // redis-cell rounds a wait below a millisecond down, and refuses a retry at once.
        (0, "half 0 2 1", [0, 1, 0, -1, 1], [0, 1, 0, -1, 1]),
        (499_500, "half 0 2 1", [1, 1, 0, 1, 1], [1, 1, 0, 0, 0]),
        // Above 1000 a second, its key expires too early, and nothing is ever refused.
        (0, "fast 0 2000 1", [0, 1, 0, -1, 1], [0, 1, 0, -1, 0]),
        (100, "fast 0 2000 1", [1, 1, 0, 1, 1], [0, 1, 0, -1, 0]),
        (500, "fast 0 2000 1", [0, 1, 0, -1, 1], [0, 1, 0, -1, 0]),
        // Above a million a second, it divides by zero.
        (0, "faster 10 2000000 1", [0, 11, 10, -1, 1], [0, 11, i64::MAX, -1, 0]),
        (0, "fastest 10 9007199254740991 1", [0, 11, 10, -1, 1], [0; 5]),
    ] {
        assert_eq!(limiter.throttle(at_us, arguments), right, "{arguments} after {at_us} us");
    }
}
