//! Sliding logs of many entries in Redis.

use std::time::Duration;

use tollgate::store::redis::TimeSource;
use tollgate::{Clock, ManualClock};
use tollgate_core::{Item, Keyspace, Limit, Operation, Outcome, Plan, Span, State, Store, Time};
use tollgate_testkit::redis::{Flavour, Server};

use crate::common::{USER, WINDOW, charge, runtime, settings, shared, subject};

/// A log of thousands of entries is edited in place, wraps, grows and shrinks. The suite of the twins has only short logs.
#[test]
fn a_long_log_is_the_same_in_redis_and_in_memory() {
    use tollgate::MemoryStore;
    use tollgate_core::Mark;
    use tollgate_core::algorithm::sliding_log::SlidingLog;
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let clock: &'static ManualClock =
        Box::leak(Box::new(ManualClock::at(Time::from_us(1_700_000_000_000_000))));
    let store = {
        let _inside = runtime.enter();
        let settings = settings(&server.url()).time(TimeSource::Application).clock(clock);
        settings.margin(Duration::from_secs(3_600)).open().unwrap()
    };
    let memory = MemoryStore::with_clock(clock);
    let limit = Limit::SlidingLog(SlidingLog::with_entries(1 << 40, Span::from_ms(50), 2_000).unwrap());
    let keyspace = Keyspace::new("test", "log").unwrap();
    let key = keyspace.key(subject(USER));
    let mut random = 1_u64;
    let mut draw = move |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut marks: Vec<Mark> = Vec::new();
    let (mut refused, mut longest) = (0, 0);
    for step in 0..12_000_u64 {
        // First dense, then sparse: the log grows to its bound and shrinks again.
        clock.advance(Duration::from_micros(if step / 3_000 % 2 == 0 { draw(40) } else { draw(2_000) }));
        let operation = match draw(20) {
            0 if !marks.is_empty() => {
                let back = draw(marks.len().min(20) as u64) as usize;
                Operation::refund(marks[marks.len() - 1 - back], 1 + draw(3))
            }
            1 => Operation::Peek { cost: 1 << 40 },
            2 => Operation::Peek { cost: draw(1 << 40) },
            _ => Operation::charge(1 + draw(1 << 28)),
        };
        let mut plan = Plan::new();
        plan.push(Item::new(key, limit, operation)).unwrap();
        let (found, expected): (Outcome, Outcome) =
            (runtime.block_on(store.apply(&plan)).unwrap(), memory.apply_now(&plan));
        assert_eq!(found, expected, "step {step} {operation:?}");
        let answer = found.answers[0];
        marks.extend((answer.mark != Mark::None).then_some(answer.mark));
        refused += u64::from(answer.is_refused());
        if step % 500 == 0 {
            let mut admin = server.admin().unwrap();
            let reply = admin.command(&[b"GET", key.to_string().as_bytes()]).unwrap();
            let tollgate_testkit::redis::Value::Bulk(bytes) = reply else { panic!("{reply:?}") };
            let State::SlidingLog(log) = State::decode(&bytes).unwrap() else {
                panic!("another kind of state")
            };
            longest = longest.max(log.entries.len());
        }
    }
    assert!(longest > 1_500 && refused > 100, "longest {longest}, refused {refused}");
}

/// A check on a log of 100,000 entries reads a few of them and writes one.
#[test]
fn a_log_of_a_hundred_thousand_takes_16_bytes_an_entry_and_few_commands() {
    use tollgate_core::algorithm::sliding_log::{Entry, SlidingLog, SlidingLogState};
    const ENTRIES: u64 = 100_000;
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let clock: &'static ManualClock =
        Box::leak(Box::new(ManualClock::at(Time::from_us(1_700_000_000_000_000))));
    let store = {
        let _inside = runtime.enter();
        let settings = settings(&server.url()).time(TimeSource::Application).clock(clock);
        settings.margin(Duration::from_secs(3_600)).open().unwrap()
    };
    // Entries are one second apart, so the oldest leave one by one.
    let second = Span::from_secs(1);
    let window = Span::from_secs(ENTRIES);
    let limit = Limit::SlidingLog(SlidingLog::with_entries(1 << 40, window, ENTRIES + 10_000).unwrap());
    let start = clock.now().minus(Span::from_us(ENTRIES * second.us()));
    let entries = (1..=ENTRIES)
        .map(|number| Entry { time: start.plus(Span::from_us(number * second.us())), total: number });
    let state = State::SlidingLog(SlidingLogState { base: 0, entries: entries.collect() });
    let key = shared().key(subject(USER)).to_string();
    let mut admin = server.admin().unwrap();
    admin.command(&[b"SET", key.as_bytes(), &state.encode(), b"PX", b"600000000"]).unwrap();

    let mut commands = |operation, steps: u64| {
        admin.command(&[b"CONFIG", b"RESETSTAT"]).unwrap();
        for _ in 0..steps {
            clock.advance(second.into());
            let mut plan = Plan::new();
            plan.push(Item::new(shared().key(subject(USER)), limit, operation)).unwrap();
            runtime.block_on(store.apply(&plan)).unwrap();
        }
        let stats = admin.info("commandstats").unwrap();
        let calls = |name: &str| {
            let line = stats.get(&format!("cmdstat_{name}"))?;
            line.split(',').find_map(|part| part.strip_prefix("calls="))?.parse::<u64>().ok()
        };
        let all: Vec<u64> = ["getrange", "setrange", "set", "get", "pexpire"]
            .map(|name| calls(name).unwrap_or(0) / steps)
            .to_vec();
        let bytes = admin.memory_usage(key.as_bytes()).unwrap().unwrap();
        (all, bytes)
    };
    // The first admission reallocates the ring. The others edit it in place.
    commands(Operation::charge(1), 1);
    let (charged, bytes) = commands(Operation::charge(1), 50);
    let (refused, _) = commands(Operation::Peek { cost: 1 << 40 }, 50);
    println!(
        "reads, writes, sets, gets, expiries per charge: {charged:?}, per refusal: {refused:?}; {bytes} bytes"
    );
    assert!(charged[0] <= 6 && charged[1..] == [2, 0, 0, 1], "{charged:?}");
    // A refusal searches for the entry that must leave: one read per step of a binary search.
    // The search starts at the oldest entry, which usually frees enough. In the worst case it reads twice the logarithm.
    assert!(refused[0] <= 45 && refused[1..] == [0, 0, 0, 0], "{refused:?}");
    assert!(bytes <= 16 * ENTRIES, "{bytes} bytes for {ENTRIES} entries");
}

/// A log can have the largest number of entries that a limit allows, and no more slots.
#[test]
fn a_log_of_a_million_entries_stays_readable() {
    use tollgate_core::algorithm::sliding_log::{ENTRIES_MAX, Entry, SlidingLog, SlidingLogState};
    const ENTRIES: u64 = 1_000_000;
    let server = Server::start(Flavour::Redis70).unwrap();
    let runtime = runtime();
    let store = runtime.block_on(settings(&server.url()).connect()).unwrap();
    let limit = Limit::SlidingLog(SlidingLog::with_entries(1 << 40, WINDOW, ENTRIES_MAX).unwrap());
    let start = store.now().minus(Span::from_secs(3_600));
    let entries =
        (1..=ENTRIES).map(|number| Entry { time: start.plus(Span::from_us(number)), total: number });
    let state = State::SlidingLog(SlidingLogState { base: 0, entries: entries.collect() }).encode();
    let key = shared().key(subject(USER)).to_string();
    let mut admin = server.admin().unwrap();
    admin.command(&[b"SET", key.as_bytes(), &state, b"PX", b"600000000"]).unwrap();
    for number in 1..=3 {
        let outcome = runtime.block_on(store.apply(&charge(limit, shared(), number))).unwrap();
        assert_eq!(outcome.answers[0].remaining, (1 << 40) - ENTRIES - number);
    }
}
