//! The store in Redis or Valkey: any number of servers share the same limits, exactly, in one round trip.
//!
//! A Plan is one call of a Lua script that holds a twin of every machine in core, on the same bytes. Redis runs scripts
//! one at a time, so a Plan is one indivisible step. Plans that wait travel together in one call.

mod batch;
mod caller;
mod connection;
mod error;
mod footprint;
mod lane;
mod reply;
mod script;
mod target;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};
use tollgate_core::{Outcome, Plan, Span, Store, StoreError, Time};

pub use caller::Caller;
pub use error::RedisError;
pub use footprint::{Allocator, Engine, Footprint, KeyBytes, Records};
pub use target::{Target, TargetError};

use crate::clock::{Clock, FastClock};
use batch::{Job, Terms};
use lane::{Lane, STALL_MIN};
use script::Scripts;
use wire::{Encoded, ITEMS_MAX, decode, is_fresh};

/// State in Redis. Cheap to clone: all clones share one connection.
pub struct RedisStore<C = FastClock> {
    inner: Arc<Inner<C>>,
}

impl<C> Clone for RedisStore<C> {
    fn clone(&self) -> RedisStore<C> {
        RedisStore { inner: Arc::clone(&self.inner) }
    }
}

struct Inner<C> {
    jobs: mpsc::Sender<Job>,
    prefix: String,
    deadline: Duration,
    time: TimeSource,
    clock: C,
    /// How far Redis's clock was ahead of ours when it last answered, in microseconds.
    ahead_us: AtomicI64,
}

/// Whose clock decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimeSource {
    /// Redis's own: the same for everybody who asks.
    #[default]
    Store,
    /// Each caller's, kept within so much of Redis's: one bad clock can neither freeze nor refill a key by more.
    Caller {
        /// At most so far from Redis's clock, either way.
        tolerance: Span,
    },
    /// The application's, unchecked: for simulations and tests, where time is what the program says.
    Application,
}

/// How to use Redis. Every setting has a sane default.
#[derive(Clone, Debug)]
#[must_use = "settings do nothing until `open` or `connect`"]
pub struct RedisSettings<C = FastClock> {
    target: Target,
    deadline: Duration,
    waiting_max: usize,
    margin: Duration,
    time: TimeSource,
    clock: C,
}

/// No store can be made of this.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL is wrong.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The certificates to trust cannot be read.
    #[error("cannot read the certificates that TLS is to trust")]
    Certificates(#[source] std::io::Error),
    /// There is no tokio runtime to run in.
    #[error("a store in Redis needs a tokio runtime: open it inside one")]
    NoRuntime,
    /// Redis does not let us work.
    #[error("Redis does not answer as it should")]
    Redis(#[from] StoreError),
}

const DEADLINE: Duration = Duration::from_millis(25);
/// Who would wait for ever, waits this long: an instant beyond what the clock can tell does not exist.
const DEADLINE_MAX: Duration = Duration::from_secs(365 * 86_400);
const WAITING_MAX: usize = 4_096;
const MARGIN: Duration = Duration::from_secs(1);
/// What a caller's clock may differ from Redis's unless told otherwise.
pub const TOLERANCE_DEFAULT: Span = Span::from_secs(2);

impl RedisStore {
    /// The store at a URL such as `redis://host:6379/0`, once it answers. [`RedisSettings`] offers more.
    pub async fn connect(url: &str) -> Result<RedisStore, OpenError> {
        RedisSettings::url(url)?.connect().await
    }
}

impl RedisSettings {
    /// Defaults for the Redis at this URL: `redis://user:password@host:port/database`, `rediss://` for TLS. Parameters:
    /// `prefix=` in front of every key, `ca=` a file of certificates to trust instead of the system's.
    pub fn url(url: &str) -> Result<RedisSettings, TargetError> {
        Ok(RedisSettings {
            target: Target::parse(url)?,
            deadline: DEADLINE,
            waiting_max: WAITING_MAX,
            margin: MARGIN,
            time: TimeSource::default(),
            clock: FastClock::new(),
        })
    }
}

impl<C: Clock + Send + Sync + 'static> RedisSettings<C> {
    /// How long a check may take; after that the rules' failure policies answer. 25 ms unless told otherwise.
    pub fn deadline(self, deadline: Duration) -> RedisSettings<C> {
        RedisSettings { deadline: deadline.min(DEADLINE_MAX), ..self }
    }

    /// How many checks may wait to be sent; one more fails at once. 4,096 unless told otherwise, a million at most.
    pub fn waiting_max(self, waiting_max: usize) -> RedisSettings<C> {
        RedisSettings { waiting_max: waiting_max.clamp(1, 1 << 20), ..self }
    }

    /// Keeps state so much longer than it counts. One second unless told otherwise; more if clocks are far apart.
    pub fn margin(self, margin: Duration) -> RedisSettings<C> {
        RedisSettings { margin, ..self }
    }

    /// Whose clock decides. Redis's unless told otherwise.
    pub fn time(self, time: TimeSource) -> RedisSettings<C> {
        RedisSettings { time, ..self }
    }

    /// What this process takes for the time.
    pub fn clock<D: Clock + Send + Sync + 'static>(self, clock: D) -> RedisSettings<D> {
        let RedisSettings { target, deadline, waiting_max, margin, time, .. } = self;
        RedisSettings { target, deadline, waiting_max, margin, time, clock }
    }

    /// The store, whether or not Redis answers: until it does, the rules' failure policies do.
    pub fn open(self) -> Result<RedisStore<C>, OpenError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| OpenError::NoRuntime)?;
        let trusted =
            self.target.tls.as_ref().map(connection::trust).transpose().map_err(OpenError::Certificates)?;
        let (sender, receiver) = mpsc::channel(self.waiting_max);
        let prefix = self.target.prefix.clone();
        let lane = Lane {
            target: Arc::new(self.target),
            trusted,
            jobs: receiver,
            terms: Terms::new(self.time, self.margin),
            scripts: Scripts::new(),
            stall: STALL_MIN.max(self.deadline),
            dice,
        };
        runtime.spawn(lane.run());
        let inner = Inner {
            jobs: sender,
            prefix,
            deadline: self.deadline,
            time: self.time,
            clock: self.clock,
            ahead_us: AtomicI64::new(0),
        };
        Ok(RedisStore { inner: Arc::new(inner) })
    }
}

impl<C: Clock + Send + Sync + 'static> RedisSettings<C> {
    /// The store, once Redis has answered.
    pub async fn connect(self) -> Result<RedisStore<C>, OpenError> {
        let store = self.open()?;
        store.ready().await?;
        Ok(store)
    }
}

impl<C: Clock> RedisStore<C> {
    /// Asks Redis for nothing, and says whether that works: it is there, lets us in, and runs our script.
    pub async fn ready(&self) -> Result<(), StoreError> {
        let plan = Plan::new();
        let reply = self.ask(&plan, Instant::now() + READY_MAX).await?;
        decode(&plan, &reply).map(|_| ())
    }

    /// One way to Redis and back.
    async fn ask(&self, plan: &Plan<'_>, deadline: Instant) -> Result<Vec<u8>, RedisError> {
        let (asker, answer) = oneshot::channel();
        self.send(plan, deadline, Some(asker))?;
        match timeout_at(deadline, answer).await {
            Ok(Ok(reply)) => reply,
            // The lane ends when the runtime does.
            Ok(Err(_)) => Err(RedisError::Closed),
            Err(_) => Err(RedisError::NoReply),
        }
    }

    fn send(
        &self,
        plan: &Plan<'_>,
        deadline: Instant,
        asker: Option<oneshot::Sender<Result<Vec<u8>, RedisError>>>,
    ) -> Result<(), RedisError> {
        let items = plan.items().len();
        if items > ITEMS_MAX {
            return Err(RedisError::TooManyRules { items });
        }
        let Inner { jobs, prefix, time, clock, .. } = &*self.inner;
        let now = if *time == TimeSource::Store { Time::ZERO } else { clock.now() };
        let job = Job { plan: Encoded::new(plan, prefix, now), deadline, asker };
        jobs.try_send(job).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => RedisError::Busy,
            mpsc::error::TrySendError::Closed(_) => RedisError::Closed,
        })
    }

    /// Learns how far Redis's clock is from ours.
    fn learn(&self, now: Time) {
        if self.inner.time == TimeSource::Store {
            let ahead_us = now.us() as i64 - self.inner.clock.now().us() as i64;
            self.inner.ahead_us.store(ahead_us, Ordering::Relaxed);
        }
    }
}

impl<C: Clock + Send + Sync> Store for RedisStore<C> {
    /// Never sends a charge twice, unless it has a request id, under which Redis charges it once.
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        if plan.items().is_empty() {
            return Ok(Outcome { now: self.now(), answers: Default::default() });
        }
        let deadline = Instant::now() + self.inner.deadline;
        let mut pause = PAUSE_FIRST;
        loop {
            match self.ask(plan, deadline).await {
                Ok(reply) => {
                    let outcome = decode(plan, &reply)?;
                    // An answer that was given before tells an earlier time.
                    if is_fresh(&reply) {
                        self.learn(outcome.now);
                    }
                    return Ok(outcome);
                }
                Err(error) => {
                    let again = plan.request().is_some()
                        && matches!(error, RedisError::Lost(_) | RedisError::Connect { .. });
                    if !again || Instant::now() + pause >= deadline {
                        return Err(error.into());
                    }
                    sleep(pause).await;
                    pause *= 2;
                }
            }
        }
    }

    fn apply_unawaited(&self, plan: &Plan<'_>) {
        // Full queues and dead connections are for those who wait to tell; a lease that is not given back ends by itself.
        drop(self.send(plan, Instant::now() + READY_MAX, None));
    }

    fn now(&self) -> Time {
        let now = self.inner.clock.now();
        Time::from_us(now.us().saturating_add_signed(self.inner.ahead_us.load(Ordering::Relaxed)))
    }
}

/// How long who has a request id waits before asking again, the first time.
const PAUSE_FIRST: Duration = Duration::from_millis(1);
/// How long Redis may take to get ready, and how long something that nobody waits for may be under way.
const READY_MAX: Duration = Duration::from_secs(5);

/// A number from 0 up to 1.
fn dice() -> f64 {
    // Without randomness the pause is a whole one: no worse than without jitter.
    getrandom::u32().map_or(1.0, |drawn| f64::from(drawn) / f64::from(u32::MAX))
}
