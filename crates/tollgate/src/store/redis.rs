//! The store in Redis or Valkey: any number of servers share the same limits, exactly, in one round trip.
//!
//! A Plan is one call of a Lua script that holds a twin of every machine in core, on the same bytes. Redis runs scripts
//! one at a time, so a Plan is one indivisible step. Plans that wait travel together in one call.

mod client;
mod error;
mod exchange;
mod footprint;
mod protocol;
mod topology;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};
use tollgate_core::{Exactness, Outcome, Plan, Span, Store, StoreError, Time};

pub use client::caller::Caller;
pub use error::RedisError;
pub use exchange::Note;
pub use footprint::{Allocator, Engine, Footprint, KeyBytes, Records};
pub use topology::target::{Target, TargetError};

use crate::clock::{Clock, FastClock};
use client::connection::Door;
use client::job::{Job, Permit, Permits, Way};
use client::node::{Link, Node};
use protocol::batch::Terms;
use protocol::script::Scripts;
use protocol::wire::{Attempt, Encoded, ITEMS_MAX, OwnReply, decode, is_fresh};
use topology::cluster::Cluster;
use topology::sentinel::Sentinels;
use topology::slot::slot_of;
use topology::split::spans_slots;
use topology::target::Place;
use topology::whereabouts::Whereabouts;

/// State in Redis. Cheap to clone: all clones share the same connections.
pub struct RedisStore<C = FastClock> {
    inner: Arc<Inner<C>>,
}

impl<C> Clone for RedisStore<C> {
    fn clone(&self) -> RedisStore<C> {
        RedisStore { inner: Arc::clone(&self.inner) }
    }
}

struct Inner<C> {
    router: Router,
    permits: Permits,
    prefix: String,
    deadline: Duration,
    time: TimeSource,
    clock: C,
    /// How far Redis's clock was ahead of ours when it last answered, in microseconds.
    ahead_us: AtomicI64,
}

/// Which server gets what.
enum Router {
    /// One server has everything.
    One(Node),
    Cluster(Arc<Cluster>),
}

/// How one of the servers is doing.
#[derive(Clone, Debug)]
pub struct ServerStatus {
    /// Where it is; None as long as no sentinel says it.
    pub address: Option<String>,
    /// Why nothing is sent to it, if it is down.
    pub down: Option<RedisError>,
    /// How often it went down.
    pub opened: u64,
    /// How often it came back.
    pub closed: u64,
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
    in_flight_max: usize,
    /// As many as the runtime has workers, if nobody says otherwise.
    lanes: Option<usize>,
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
const IN_FLIGHT_MAX: usize = 4_096;
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
    ///
    /// `redis+sentinel://host:port,host:port/name/database` follows the primary that these sentinels know by that name;
    /// `sentinel_user=`, `sentinel_password=`, `sentinel_tls=` and `sentinel_ca=` are for the sentinels themselves.
    /// `redis+cluster://host:port,host:port` is the cluster that these servers belong to.
    pub fn url(url: &str) -> Result<RedisSettings, TargetError> {
        Ok(RedisSettings {
            target: Target::parse(url)?,
            deadline: DEADLINE,
            in_flight_max: IN_FLIGHT_MAX,
            lanes: None,
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

    /// How many checks may be under way; one more fails at once. 4,096 unless told otherwise, a million at most.
    pub fn in_flight_max(self, in_flight_max: usize) -> RedisSettings<C> {
        RedisSettings { in_flight_max: in_flight_max.clamp(1, 1 << 20), ..self }
    }

    /// How many connections lead to each server. Threads that ask are spread over them, and checks travel together only
    /// with others of their connection. As many as the runtime has worker threads unless told otherwise, but at most 8.
    pub fn lanes(self, lanes: usize) -> RedisSettings<C> {
        RedisSettings { lanes: Some(lanes.clamp(1, 64)), ..self }
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
        let RedisSettings { target, deadline, in_flight_max, lanes, margin, time, .. } = self;
        RedisSettings { target, deadline, in_flight_max, lanes, margin, time, clock }
    }

    /// The store, whether or not Redis answers: until it does, the rules' failure policies do.
    pub fn open(self) -> Result<RedisStore<C>, OpenError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| OpenError::NoRuntime)?;
        let Target { place, access, prefix } = self.target;
        let link = Arc::new(Link {
            door: Door::new(access).map_err(OpenError::Certificates)?,
            terms: Terms::new(self.time, self.margin),
            scripts: Scripts::new(),
            deadline: self.deadline,
            lanes: self.lanes.unwrap_or_else(|| runtime.metrics().num_workers().clamp(1, LANES_MAX)),
            runtime,
            dice,
        });
        let inner = Inner {
            router: Router::open(link, place)?,
            permits: Permits::new(self.in_flight_max),
            prefix,
            deadline: self.deadline,
            time: self.time,
            clock: self.clock,
            ahead_us: AtomicI64::new(0),
        };
        Ok(RedisStore { inner: Arc::new(inner) })
    }

    /// The store, once Redis has answered.
    pub async fn connect(self) -> Result<RedisStore<C>, OpenError> {
        let store = self.open()?;
        store.ready().await?;
        Ok(store)
    }
}

impl Router {
    fn open(link: Arc<Link>, place: Place) -> Result<Router, OpenError> {
        Ok(match place {
            Place::Node(address) => {
                let whereabouts = Whereabouts::Fixed(address);
                Router::One(Node::new(&link, whereabouts, Arc::default(), Weak::new()))
            }
            Place::Sentinel { addresses, name, access } => {
                let door = Door::new(access).map_err(OpenError::Certificates)?;
                let health = Arc::default();
                let sentinels = Arc::new(Sentinels::new(door, Arc::clone(&name), Arc::clone(&health), &link));
                let primary = sentinels.primary.subscribe();
                let node = Node::new(&link, Whereabouts::Watched { name, primary }, health, Weak::new());
                sentinels.listen(addresses);
                Router::One(node)
            }
            Place::Cluster(seeds) => Router::Cluster(Cluster::new(link, seeds)),
        })
    }

    /// The slot that decides where a Plan goes.
    fn slot(&self, plan: &Encoded) -> u16 {
        match self {
            Router::One(_) => 0,
            Router::Cluster(_) => plan.keys().next().map_or(0, slot_of),
        }
    }

    fn send(&self, job: Job) {
        match self {
            Router::One(node) => node.send(job),
            Router::Cluster(cluster) => cluster.send(job),
        }
    }
}

/// What is sent.
enum Share {
    /// A whole Plan, and its place among those under way.
    Whole(Option<Permit>),
    /// Part of one that has its place.
    Part(Attempt),
}

/// Part of a Plan that is not charged under its id.
const PART: Share = Share::Part(Attempt::Only);

/// What will come of a Plan that was sent.
type Pending = oneshot::Receiver<Result<OwnReply, RedisError>>;

impl<C: Clock> RedisStore<C> {
    /// Asks Redis for nothing, and says whether that works: it is there, lets us in, and runs our script. Of a cluster
    /// every server that has slots is asked.
    pub async fn ready(&self) -> Result<(), StoreError> {
        let deadline = Instant::now() + READY_MAX;
        let plan = Plan::new();
        let mut asked = Vec::new();
        let mut ask = |node: &Node| {
            let (asker, answer) = oneshot::channel();
            node.send(self.job(&plan, deadline, Some(asker), Share::Whole(None))?);
            asked.push(answer);
            Ok::<(), RedisError>(())
        };
        match &self.inner.router {
            Router::One(node) => ask(node)?,
            Router::Cluster(cluster) => {
                let servers = timeout_at(deadline, cluster.servers()).await;
                servers.unwrap_or(Err(RedisError::NoReply))?.iter().try_for_each(|server| ask(server))?;
            }
        }
        for pending in asked {
            let reply = await_reply(pending, deadline).await?;
            decode(&plan, &reply)?;
        }
        Ok(())
    }

    /// How the servers are doing: the one, the primary, or those of the cluster that have slots or are about to.
    pub fn servers(&self) -> Vec<ServerStatus> {
        match &self.inner.router {
            Router::One(node) => vec![node.status()],
            Router::Cluster(cluster) => cluster.nodes().iter().map(|node| node.status()).collect(),
        }
    }

    /// How many checks are under way.
    pub fn in_flight(&self) -> usize {
        self.inner.permits.given()
    }

    /// Sends a Plan.
    fn begin(&self, plan: &Plan<'_>, deadline: Instant, share: Share) -> Result<Pending, RedisError> {
        let (asker, answer) = oneshot::channel();
        self.inner.router.send(self.job(plan, deadline, Some(asker), share)?);
        Ok(answer)
    }

    /// Waits for what was found.
    async fn finish(
        &self,
        plan: &Plan<'_>,
        pending: Pending,
        deadline: Instant,
    ) -> Result<Outcome, StoreError> {
        let reply = await_reply(pending, deadline).await?;
        let outcome = decode(plan, &reply)?;
        // An answer that was given before tells an earlier time.
        if is_fresh(&reply) {
            self.learn(outcome.now);
        }
        Ok(outcome)
    }

    /// One way to Redis and back.
    async fn decide(&self, plan: &Plan<'_>, deadline: Instant, share: Share) -> Result<Outcome, StoreError> {
        let pending = self.begin(plan, deadline, share)?;
        self.finish(plan, pending, deadline).await
    }

    /// Sends a Plan that nobody waits for.
    fn let_go(&self, plan: &Plan<'_>, share: Share) {
        // Dead connections are for those who wait to tell; a lease that is not given back ends by itself.
        if let Ok(job) = self.job(plan, Instant::now() + READY_MAX, None, share) {
            self.inner.router.send(job);
        }
    }

    fn job(
        &self,
        plan: &Plan<'_>,
        deadline: Instant,
        asker: Option<oneshot::Sender<Result<OwnReply, RedisError>>>,
        share: Share,
    ) -> Result<Job, RedisError> {
        let items = plan.items().len();
        if items > ITEMS_MAX {
            return Err(RedisError::TooManyRules { items });
        }
        let Inner { router, prefix, time, clock, .. } = &*self.inner;
        let now = if *time == TimeSource::Store { Time::ZERO } else { clock.now() };
        let (permit, attempt) = match share {
            Share::Whole(permit) => (permit, Attempt::Only),
            Share::Part(attempt) => (None, attempt),
        };
        let plan = Encoded::new(plan, prefix, now, attempt);
        let slot = router.slot(&plan);
        Ok(Job { plan, slot, deadline, asker, way: Way::default(), _permit: permit })
    }

    /// Learns how far Redis's clock is from ours.
    fn learn(&self, now: Time) {
        if self.inner.time == TimeSource::Store {
            let ahead_us = now.us() as i64 - self.inner.clock.now().us() as i64;
            self.inner.ahead_us.store(ahead_us, Ordering::Relaxed);
        }
    }

    fn splits(&self, plan: &Plan<'_>) -> bool {
        matches!(self.inner.router, Router::Cluster(_)) && spans_slots(plan)
    }
}

async fn await_reply(pending: Pending, deadline: Instant) -> Result<OwnReply, RedisError> {
    match timeout_at(deadline, pending).await {
        Ok(Ok(reply)) => reply,
        // The lanes end when the runtime does, whatever is under way.
        Ok(Err(_)) => Err(RedisError::Lost(None)),
        Err(_) => Err(RedisError::NoReply),
    }
}

/// Whether the same Plan may be sent again under its id.
fn may_pass(error: &StoreError) -> bool {
    let StoreError::Transient(cause) = error else { return false };
    matches!(
        cause.downcast_ref(),
        Some(RedisError::Lost(_) | RedisError::Connect { .. } | RedisError::Partly(_))
    )
}

impl<C: Clock + Send + Sync> Store for RedisStore<C> {
    /// Never sends a charge twice, unless it has a request id, under which Redis charges it once.
    async fn apply(&self, plan: &Plan<'_>) -> Result<Outcome, StoreError> {
        if plan.items().is_empty() {
            return Ok(Outcome { now: self.now(), answers: Default::default() });
        }
        let deadline = Instant::now() + self.inner.deadline;
        let splits = self.splits(plan);
        let mut pause = PAUSE_FIRST;
        loop {
            let decided = if splits {
                self.apply_in_parts(plan, deadline).await
            } else {
                let permit = self.inner.permits.take()?;
                self.decide(plan, deadline, Share::Whole(Some(permit))).await
            };
            match decided {
                Err(error)
                    if plan.request_id().is_some()
                        && may_pass(&error)
                        && Instant::now() + pause < deadline =>
                {
                    sleep(pause).await;
                    pause *= 2;
                }
                decided => return decided,
            }
        }
    }

    /// What spans slots of a cluster may be refused for a charge that is being taken back.
    fn exactness(&self, plan: &Plan<'_>) -> Exactness {
        if self.splits(plan) { Exactness::Conservative } else { Exactness::Exact }
    }

    /// If too much is under way it is not sent: a lease that is not given back ends by itself.
    fn apply_unawaited(&self, plan: &Plan<'_>) {
        let Ok(permit) = self.inner.permits.take() else { return };
        if self.splits(plan) {
            // A follow-up: its items stand each for itself.
            (0..plan.items().len()).for_each(|place| self.let_go(&plan.subset(|kept| kept == place), PART));
        } else {
            self.let_go(plan, Share::Whole(Some(permit)));
        }
    }

    fn now(&self) -> Time {
        let now = self.inner.clock.now();
        Time::from_us(now.us().saturating_add_signed(self.inner.ahead_us.load(Ordering::Relaxed)))
    }
}

/// Connections to each server, if nobody asks for more.
const LANES_MAX: usize = 8;
/// How long who has a request id waits before asking again, the first time.
const PAUSE_FIRST: Duration = Duration::from_millis(1);
/// How long Redis may take to get ready, and how long something that nobody waits for may be under way.
const READY_MAX: Duration = Duration::from_secs(5);

/// A number from 0 up to 1.
fn dice() -> f64 {
    // Without randomness the pause is a whole one: no worse than without jitter.
    getrandom::u32().map_or(1.0, |drawn| f64::from(drawn) / f64::from(u32::MAX))
}
