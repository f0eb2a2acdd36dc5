//! A naive rate limiter: INCR, then EXPIRE, and a retry when the connection breaks.
//!
//! It is wrong on purpose: the tests that the Redis store passes must fail on it.

use std::future::{Future, ready};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate_core::plan::answer::AnsweredBy;
use tollgate_core::{
    Answer, Limit, Mark, Operation, Outcome, Plan, Retry, Span, Store, StoreError, Time, Verdict,
};

use crate::redis::{Admin, AdminError, Value};

/// A limiter that counts in one plain key per subject.
#[derive(Debug)]
pub struct NaiveStore {
    connection: Mutex<Admin>,
}

/// Number of attempts, as client libraries retry by default.
const TRIES: u32 = 5;

impl NaiveStore {
    /// Connects to the server at this port.
    pub fn connect(port: u16) -> Result<NaiveStore, AdminError> {
        Ok(NaiveStore { connection: Mutex::new(Admin::connect(port, None)?) })
    }

    /// Connects with this password, and with this timeout of every reply.
    pub fn connect_within(
        port: u16,
        password: Option<&str>,
        timeout: Duration,
    ) -> Result<NaiveStore, AdminError> {
        Ok(NaiveStore { connection: Mutex::new(Admin::connect_within(port, password, timeout)?) })
    }

    /// Adds to the counter of a key, and returns it.
    pub fn charge(&self, key: &str, cost: u64, window_ms: u64) -> Result<u64, AdminError> {
        let used = self.command(&[b"INCRBY", key.as_bytes(), cost.to_string().as_bytes()])?;
        if used == cost {
            // The first charge of a window sets the expiry. If its reply is lost, no later charge does.
            self.command(&[b"PEXPIRE", key.as_bytes(), window_ms.to_string().as_bytes()])?;
        }
        Ok(used)
    }

    /// Sends a command until a reply arrives. A command whose reply was lost may have been executed.
    fn command(&self, command: &[&[u8]]) -> Result<u64, AdminError> {
        let mut connection = self.connection.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut tries = 0;
        loop {
            tries += 1;
            match connection.command(command) {
                Ok(Value::Integer(number)) => return Ok(number.unsigned_abs()),
                Ok(Value::Bulk(text)) => return Ok(String::from_utf8_lossy(&text).parse().unwrap_or(0)),
                Ok(_) => return Ok(0),
                Err(_) if tries < TRIES => (),
                Err(error) => return Err(error),
            }
        }
    }

    fn count(&self, key: &str, operation: &Operation, window_ms: u64) -> Result<u64, AdminError> {
        let Operation::Charge { cost, .. } = operation else {
            return self.command(&[b"GET", key.as_bytes()]);
        };
        self.charge(key, *cost, window_ms)
    }

    fn apply_now(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        let now = Time::from_us(now);
        let answers = plan.items().iter().map(|item| {
            let Limit::FixedWindow(limit) = item.limit else {
                return Err(StoreError::Misconfigured("only fixed windows".into()));
            };
            let used = self
                .count(&item.key.to_string(), &item.operation, limit.window().ms_ceil())
                .map_err(|error| StoreError::Transient(Box::new(error)))?;
            let reset_at = now.plus(limit.window());
            let verdict = if used > limit.limit() {
                Verdict::Refused(Retry::At(reset_at))
            } else {
                Verdict::Admitted { delay: Span::ZERO }
            };
            let remaining = limit.limit().saturating_sub(used);
            Ok(Answer {
                verdict,
                limit: limit.limit(),
                remaining,
                reset_at,
                mark: Mark::None,
                by: AnsweredBy::Store,
            })
        });
        Ok(Outcome {
            now,
            answers: answers.collect::<Result<_, _>>()?,
            replayed: false,
            revisions: Vec::new(),
        })
    }
}

impl Store for NaiveStore {
    fn apply(&self, plan: &Plan<'_>) -> impl Future<Output = Result<Outcome, StoreError>> + Send {
        ready(self.apply_now(plan))
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        drop(self.apply_now(plan));
    }

    fn now(&self) -> Time {
        Time::ZERO
    }
}
