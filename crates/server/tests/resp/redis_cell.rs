//! `CL.THROTTLE` beside redis-cell: what the module answered is written down and must be answered here too, but where it
//! is wrong.

use std::collections::HashMap;

use tollgate::core::{Item, Keyspace, Subject, Time};
use tollgate::{ManualClock, MemoryStore};

use crate::properties::frame::{Limits, Places, next};
use crate::properties::reply::{Protocol, Reply};
use crate::properties::throttle::{Question, Recent};

/// Our limiter, at a time that is set.
struct Limiter<'c> {
    clock: &'c ManualClock,
    store: MemoryStore<&'c ManualClock>,
    scope: Keyspace,
    subjects: HashMap<String, u128>,
}

const START: u64 = 1_700_000_000_000_000;

impl<'c> Limiter<'c> {
    fn new(clock: &'c ManualClock) -> Limiter<'c> {
        let store = MemoryStore::with_clock(clock);
        let scope = Keyspace::new("default", "CL.THROTTLE").expect("a keyspace");
        Limiter { clock, store, scope, subjects: HashMap::new() }
    }

    /// The five numbers, so many microseconds after the start.
    fn ask(&mut self, at_us: u64, arguments: &str) -> Vec<i64> {
        self.clock.set(Time::from_us(START + at_us));
        let mut line = format!("CL.THROTTLE {arguments}\n").into_bytes();
        let mut places = Places::new();
        next(&mut line, &Limits::KNOWN, &mut places).expect("a command").expect("a whole one");
        let question =
            Question::read(places.words(&line).from(1), &mut Recent::default()).expect("a question");
        let new = self.subjects.len() as u128 + 1;
        let subject = *self.subjects.entry(question.key.to_owned()).or_insert(new);
        let key = self.scope.key(Subject::from_u128(subject << 64 | subject));
        let item = Item::new(key, question.limit, question.operation());
        let (now, answer) = self.store.apply_item(&item).expect("an item");
        let mut out = Vec::new();
        question.answer(now, &answer, &mut Reply::new(&mut out, Protocol::Resp2)).expect("an answer");
        let text = String::from_utf8(out).expect("text");
        let numbers = text.split("\r\n").filter_map(|line| line.strip_prefix(':'));
        numbers.map(|number| number.parse().expect("a number")).collect()
    }
}

#[test]
fn what_redis_cell_answered_is_answered_here() {
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
        assert_eq!(limiter.ask(1_000 * at_ms, arguments), answered, "{row}");
        count += 1;
    }
    assert!(count >= 190, "{count} rows");
}

/// What redis-cell 0.5.0 answers instead is beside it.
#[test]
fn where_redis_cell_is_wrong_we_are_right() {
    let clock = ManualClock::at(Time::from_us(START));
    let mut limiter = Limiter::new(&clock);
    for (at_us, arguments, right, _of_redis_cell) in [
        // A wait of less than a millisecond is rounded down, and a retry at once is refused again.
        (0, "half 0 2 1", [0, 1, 0, -1, 1], [0, 1, 0, -1, 1]),
        (499_500, "half 0 2 1", [1, 1, 0, 1, 1], [1, 1, 0, 0, 0]),
        // Above 1000 a second the key is gone before its time, so that nobody is ever refused.
        (0, "fast 0 2000 1", [0, 1, 0, -1, 1], [0, 1, 0, -1, 0]),
        (100, "fast 0 2000 1", [1, 1, 0, 1, 1], [0, 1, 0, -1, 0]),
        (500, "fast 0 2000 1", [0, 1, 0, -1, 1], [0, 1, 0, -1, 0]),
        // Above a million a second what remains is divided by zero.
        (0, "faster 10 2000000 1", [0, 11, 10, -1, 1], [0, 11, i64::MAX, -1, 0]),
        (0, "fastest 10 9007199254740991 1", [0, 11, 10, -1, 1], [0; 5]),
    ] {
        assert_eq!(limiter.ask(at_us, arguments), right, "{arguments} after {at_us} us");
    }
}
