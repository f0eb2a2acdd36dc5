//! A machine that asks core and its Lua twin on a real server the same question, and holds the one to the other.
//!
//! The twin gets the state as bytes under a key, and its answer, the bytes it leaves and their time to live are compared
//! with what core says. What comes out is the twin's answer, so that the suites of core's machines, which believe naive
//! oracles, judge the twin too.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tollgate::store::redis::{ScriptCodec, TimeSource};
use tollgate_core::{
    Answer, Change, Item, Keyspace, Limit, Machine, Operation, Plan, PlanError, State, Step, SubjectHasher,
    Time,
};

use crate::differential::is_foreseeing;
use crate::redis::resp::{Value, command};

/// So much longer than it counts is state kept: the clock of a suite does not run, that of the server does.
const MARGIN: Duration = Duration::from_secs(3_600);

/// A limit in core and in Lua.
#[derive(Clone, Copy, Debug)]
pub struct Twin {
    limit: Limit,
}

/// A connection to the server, and the script to run there. Suites make machines of numbers alone, so it is found by
/// thread.
struct Bench {
    stream: TcpStream,
    caller: ScriptCodec,
    keyspace: Keyspace,
    hasher: SubjectHasher,
    inbox: Vec<u8>,
    /// How many futures it was asked about.
    foreseen: u32,
}

thread_local! {
    static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
}

/// Lets the twins of this thread run on the server at this port, their sources changed by `edit`, while `test` runs.
///
/// # Panics
///
/// If the server is not there.
pub fn on_server<T>(
    port: u16,
    edit: impl Fn(&str, &str) -> String + Send + Sync + 'static,
    test: impl FnOnce() -> T,
) -> T {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server is there");
    stream.set_nodelay(true).expect("a socket takes its options");
    let caller = ScriptCodec::new(TimeSource::Application, MARGIN, edit);
    let keyspace = Keyspace::new("test", "twin").expect("a name");
    let bench = Bench {
        stream,
        caller,
        keyspace,
        hasher: SubjectHasher::new([7; 32]),
        inbox: Vec::new(),
        foreseen: 0,
    };
    BENCH.set(Some(bench));
    let result = test();
    BENCH.set(None);
    result
}

impl Twin {
    /// The twin of a limit.
    pub const fn new(limit: Limit) -> Twin {
        Twin { limit }
    }
}

/// What the twin made of it.
struct Found {
    answer: Answer,
    after: Option<State>,
    /// Milliseconds until what it left is forgotten.
    ttl_ms: i64,
}

impl Bench {
    /// None if no store would ever be asked this.
    fn ask(&mut self, limit: Limit, state: Option<&State>, now: Time, operation: Operation) -> Option<Found> {
        let keyspace = self.keyspace.clone();
        let key = keyspace.key(self.hasher.subject([("user", "u")]));
        let mut plan = Plan::new();
        match plan.push(Item::new(key, limit, operation)) {
            Ok(()) => (),
            Err(PlanError::CostAboveCapacity { .. } | PlanError::TokenMissing { .. }) => return None,
            Err(error) => panic!("{error}"),
        }
        let name = key.to_string();
        let mut out = match state {
            Some(state) => command(&[b"SET", name.as_bytes(), &state.encode()]),
            None => command(&[b"DEL", name.as_bytes()]),
        };
        let call = self.caller.command(&[(&plan, now)], true);
        out.extend_from_slice(&call);
        let look = [command(&[b"GET", name.as_bytes()]), command(&[b"PTTL", name.as_bytes()])].concat();
        out.extend_from_slice(&look);
        self.write(&out);
        let (_, mut reply, mut bytes, mut ttl) = (self.read(), self.read(), self.read(), self.read());
        if matches!(&reply, Value::Error(error) if error.starts_with("NOSCRIPT")) {
            self.write(&[self.caller.command(&[(&plan, now)], false), look].concat());
            (reply, bytes, ttl) = (self.read(), self.read(), self.read());
        }
        let reply = match reply {
            Value::Bulk(reply) => reply,
            other => panic!("{other:?}"),
        };
        let mut outcomes = self.caller.outcomes(&[&plan], &reply);
        let outcome = outcomes
            .remove(0)
            .unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(&error)));
        assert_eq!(outcome.now, now, "the instant of the decision");
        let after = match bytes {
            Value::Bulk(bytes) => {
                Some(State::decode(&bytes).unwrap_or_else(|error| panic!("{error}: {bytes:?}")))
            }
            _ => None,
        };
        let Value::Integer(ttl_ms) = ttl else { panic!("{ttl:?}") };
        Some(Found { answer: outcome.answers[0], after, ttl_ms })
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    fn read(&mut self) -> Value {
        loop {
            if let Some((value, length)) = Value::parse(&self.inbox).expect("RESP2") {
                self.inbox.drain(..length);
                return value;
            }
            let mut bytes = [0; 16 * 1024];
            let read = self.stream.read(&mut bytes).expect("the server answers");
            assert!(read > 0, "the server hung up");
            self.inbox.extend_from_slice(&bytes[..read]);
        }
    }
}

impl Machine for Twin {
    type State = State;
    type Change = Change;

    fn capacity(&self) -> u64 {
        self.limit.capacity()
    }

    /// Core's step with the twin's answer.
    ///
    /// # Panics
    ///
    /// If the twin leaves other state than core, or state that lives for another time.
    fn decide(&self, state: Option<&State>, now: Time, operation: &Operation) -> Step<Change> {
        let mut step = self.limit.decide(state, now, operation);
        let found = BENCH.with_borrow_mut(|bench| {
            let bench = bench.as_mut().expect("on_server is around it");
            // Every step is asked, and of the futures of each, which are many, every eighth.
            bench.foreseen += u32::from(is_foreseeing());
            let left_to_core = is_foreseeing() && !bench.foreseen.is_multiple_of(8);
            if left_to_core { None } else { bench.ask(self.limit, state, now, *operation) }
        });
        let Some(found) = found else { return step };
        assert_eq!(found.answer, step.answer, "the twin's answer, then core's, to {operation:?} at {now:?}");
        let mut after = state.cloned();
        if let Some(write) = &step.write {
            State::commit(&mut after, write.change.clone());
            if after.is_some() {
                let ttl_ms = (write.dies_at - now).ms_ceil() as i64 + MARGIN.as_millis() as i64;
                let late = ttl_ms - found.ttl_ms;
                assert!((0..5_000).contains(&late), "kept for {} ms instead of {ttl_ms} ms", found.ttl_ms);
            }
        }
        assert_eq!(found.after, after, "what the twin leaves, then what core leaves");
        step.answer = found.answer;
        step
    }

    fn commit(slot: &mut Option<State>, change: Change) {
        State::commit(slot, change);
    }
}

/// The constructor of an algorithm's twin from its numbers.
#[macro_export]
macro_rules! make_twin {
    ($file:ident, $kind:ident) => {
        |n| {
            let machine = $crate::make!($file, tollgate_core::algorithm::$file)(n)?;
            Ok($crate::twin::Twin::new(tollgate_core::Limit::$kind(machine)))
        }
    };
}
