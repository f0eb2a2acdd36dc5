//! A machine that applies each operation in core and in its Lua twin on a real server, and compares the two.
//!
//! The twin gets the state as bytes under a key. Its answer, the bytes that it leaves and their TTL must equal those of
//! core. The machine returns the twin's answer, so that the suites also compare the twin with the naive oracles.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tollgate::store::redis::{ScriptCodec, TimeSource};
use tollgate_core::{
    Answer, Change, Hold, HoldChange, HoldLookup, HoldWrite, Item, Keyspace, Limit, Machine, Operation, Plan,
    PlanError, State, Step, SubjectHasher, Time,
};

use crate::oracle::differential::is_looking_ahead;
use crate::redis::admin::resp::{Value, command};

/// Extra TTL of state, because the server's clock advances while that of the suite does not.
const MARGIN: Duration = Duration::from_secs(3_600);

/// TTL of the state that a twin finds. A change that keeps the expiry must leave it.
const STORED_TTL_MS: &[u8] = b"12345678000";

/// A limit that is decided in core and in Lua.
#[derive(Clone, Copy, Debug)]
pub struct Twin {
    limit: Limit,
}

/// A connection to the server, and the script. Thread-local, because suites create machines from numbers alone.
struct Connection {
    stream: TcpStream,
    caller: ScriptCodec,
    keyspace: Keyspace,
    hasher: SubjectHasher,
    inbox: Vec<u8>,
    /// Number of peeks at future instants.
    look_aheads: u32,
}

thread_local! {
    static CONNECTION: RefCell<Option<Connection>> = const { RefCell::new(None) };
}

/// Runs `test` with the twins of this thread on the server at this port. `edit` changes their sources.
///
/// # Panics
///
/// If the server cannot be reached.
pub fn on_server<T>(
    port: u16,
    edit: impl Fn(&str, &str) -> String + Send + Sync + 'static,
    test: impl FnOnce() -> T,
) -> T {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server is there");
    stream.set_nodelay(true).expect("a socket takes its options");
    let caller = ScriptCodec::new(TimeSource::Application, MARGIN, edit);
    let keyspace = Keyspace::new("test", "twin").expect("a name");
    let connection = Connection {
        stream,
        caller,
        keyspace,
        hasher: SubjectHasher::new([7; 32]),
        inbox: Vec::new(),
        look_aheads: 0,
    };
    CONNECTION.set(Some(connection));
    let result = test();
    CONNECTION.set(None);
    result
}

impl Twin {
    /// Creates the twin of a limit.
    pub const fn new(limit: Limit) -> Twin {
        Twin { limit }
    }
}

/// The twin's answer, and what it left in the server.
struct TwinStep {
    answer: Answer,
    after: Option<State>,
    /// TTL of the state that it left, in milliseconds.
    ttl_ms: i64,
    /// The record that it left under the operation's token, and its TTL.
    hold: Option<(Hold, i64)>,
}

impl Connection {
    /// Applies the operation on the server. Returns `None` if it is never sent to a store.
    fn apply(
        &mut self,
        limit: Limit,
        state: Option<&State>,
        hold: Option<&Hold>,
        now: Time,
        operation: Operation,
    ) -> Option<TwinStep> {
        let keyspace = self.keyspace.clone();
        let key = keyspace.key(self.hasher.subject([("user", "u")]));
        let mut plan = Plan::new();
        match plan.push(Item::new(key, limit, operation)) {
            Ok(()) => (),
            Err(PlanError::CostAboveCapacity { .. } | PlanError::TokenMissing { .. }) => return None,
            Err(error) => panic!("{error}"),
        }
        let name = key.to_string();
        // Operations without a record get the name of one that never exists.
        let hold_name =
            plan.items()[0].hold_key().map_or_else(|| "no record".to_owned(), |key| key.to_string());
        let bytes = (state.map(State::encode), hold.map(Hold::encode));
        let set = |name: &str, bytes: Option<&[u8]>| match bytes {
            Some(bytes) => command(&[b"SET", name.as_bytes(), bytes, b"PX", STORED_TTL_MS]),
            None => command(&[b"DEL", name.as_bytes()]),
        };
        let get =
            |name: &str| [command(&[b"GET", name.as_bytes()]), command(&[b"PTTL", name.as_bytes()])].concat();
        let inspect = [get(&name), get(&hold_name)].concat();
        let out = [
            set(&name, bytes.0.as_deref()),
            set(&hold_name, bytes.1.as_ref().map(|bytes| &bytes[..])),
            self.caller.command(&[(&plan, now)], true),
            inspect.clone(),
        ];
        self.write(&out.concat());
        let (_, _, mut reply) = (self.read(), self.read(), self.read());
        let mut left = [self.read(), self.read(), self.read(), self.read()];
        if matches!(&reply, Value::Error(error) if error.starts_with("NOSCRIPT")) {
            self.write(&[self.caller.command(&[(&plan, now)], false), inspect].concat());
            reply = self.read();
            left = [self.read(), self.read(), self.read(), self.read()];
        }
        let [bytes, ttl, hold_bytes, hold_ttl] = left;
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
        let (Value::Integer(ttl_ms), Value::Integer(hold_ttl_ms)) = (ttl, hold_ttl) else {
            panic!("TTL is not a number")
        };
        let hold = match hold_bytes {
            Value::Bulk(bytes) => {
                let hold = Hold::decode(&bytes).unwrap_or_else(|error| panic!("{error}: {bytes:?}"));
                Some((hold, hold_ttl_ms))
            }
            _ => None,
        };
        Some(TwinStep { answer: outcome.answers[0], after, ttl_ms, hold })
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
            assert!(read > 0, "the server closed the connection");
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

    fn decide(&self, state: Option<&State>, now: Time, operation: &Operation) -> Step<Change> {
        self.decide_hold(state, HoldLookup::None, now, operation)
    }

    /// Returns core's step with the twin's answer.
    ///
    /// # Panics
    ///
    /// If the twin's answer, state, record or TTL differs from core's.
    fn decide_hold(
        &self,
        state: Option<&State>,
        hold: HoldLookup<'_>,
        now: Time,
        operation: &Operation,
    ) -> Step<Change> {
        let mut step = self.limit.decide_hold(state, hold, now, operation);
        let hold = hold.record().filter(|_| self.limit.hold_token(operation).is_some());
        let found = CONNECTION.with_borrow_mut(|connection| {
            let connection = connection.as_mut().expect("called inside on_server");
            // The server decides every step, but only every eighth of the many peeks at future instants.
            connection.look_aheads += u32::from(is_looking_ahead());
            let only_core = is_looking_ahead() && !connection.look_aheads.is_multiple_of(8);
            if only_core { None } else { connection.apply(self.limit, state, hold, now, *operation) }
        });
        let Some(found) = found else { return step };
        assert_eq!(found.answer, step.answer, "answers of twin and core to {operation:?} at {now:?}");
        let assert_ttl = |dies_at: Option<Time>, ttl_ms: i64| {
            let expected_ms = match dies_at {
                Some(dies_at) => (dies_at - now).ms_ceil() as i64 + MARGIN.as_millis() as i64,
                None => 12_345_678_000,
            };
            let late = expected_ms - ttl_ms;
            assert!((0..5_000).contains(&late), "kept for {ttl_ms} ms instead of {expected_ms} ms");
        };
        let (mut after, mut hold) = (state.cloned(), hold.copied());
        if let Some(write) = &step.write {
            State::commit(&mut after, write.change.clone());
            if after.is_some() {
                assert_ttl(write.dies_at, found.ttl_ms);
            }
            if let Some(HoldChange { record, .. }) = write.change.hold_change() {
                hold = record.map(|HoldWrite { hold, .. }| hold);
                if let (Some(write), Some((_, ttl_ms))) = (record, found.hold) {
                    assert_ttl(Some(write.dies_at), ttl_ms);
                }
            }
        }
        assert_eq!(found.after, after, "states after twin and core");
        assert_eq!(found.hold.map(|(hold, _)| hold), hold, "records after twin and core");
        step.answer = found.answer;
        step
    }

    fn hold_change(change: &Change) -> Option<HoldChange> {
        change.hold_change()
    }

    fn commit(slot: &mut Option<State>, change: Change) {
        State::commit(slot, change);
    }
}

/// Returns the constructor of an algorithm's twin, from the suite's numbers.
#[macro_export]
macro_rules! make_twin {
    ($file:ident, $kind:ident) => {
        |n| {
            let machine = $crate::make!($file, tollgate_core::algorithm::$file)(n)?;
            Ok($crate::twin::Twin::new(tollgate_core::Limit::$kind(machine)))
        }
    };
}
