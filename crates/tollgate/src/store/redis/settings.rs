//! How a Redis store is opened: its settings, their defaults, and the errors of opening.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use tollgate_core::{Span, StoreError};

use super::client::connector::Connector;
use super::client::multiplexer::{PIPELINE_PLANS_MAX, PIPELINES_MAX};
use super::client::node::ClientContext;
use super::client::permits::PermitPool;
use super::protocol::batch::CallSettings;
use super::protocol::script::Scripts;
use super::router::Router;
use super::topology::url::{RedisUrl, RedisUrlError, Topology};
use super::{Inner, RedisStore};
use crate::clock::{Clock, FastClock};

/// Settings of a Redis store. All but the URL have defaults.
#[derive(Clone, Debug)]
#[must_use = "settings do nothing until `open` or `connect`"]
pub struct RedisSettings<C = FastClock> {
    pub(super) url: RedisUrl,
    deadline: Duration,
    in_flight_max: usize,
    /// If None, one per worker thread of the runtime, at most [`CONNECTIONS_DEFAULT_MAX`].
    connections: Option<usize>,
    margin: Duration,
    time: TimeSource,
    clock: C,
}

/// Which clock decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimeSource {
    /// The clock of Redis: the same for all callers.
    #[default]
    Store,
    /// Each caller's clock, clamped to the clock of Redis plus or minus a tolerance. A wrong clock can neither freeze nor
    /// refill a key by more than that.
    Caller {
        /// Largest difference from the clock of Redis, in either direction.
        tolerance: Span,
    },
    /// The application's clock, unchecked. For simulations and tests.
    Application,
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL is invalid.
    #[error(transparent)]
    Url(#[from] RedisUrlError),
    /// The CA certificates cannot be read.
    #[error("cannot read the CA certificates for TLS")]
    Certificates(#[source] std::io::Error),
    /// There is no tokio runtime.
    #[error("no tokio runtime; open the Redis store inside one")]
    NoRuntime,
    /// Redis cannot be used.
    #[error("cannot use the Redis store")]
    Redis(#[from] StoreError),
}

/// Default of [`TimeSource::Caller`]'s tolerance.
pub const TOLERANCE_DEFAULT: Span = Span::from_secs(2);

const DEADLINE_DEFAULT: Duration = Duration::from_millis(25);
/// Avoids overflow of `Instant`.
const DEADLINE_MAX: Duration = Duration::from_secs(365 * 86_400);
const IN_FLIGHT_DEFAULT: usize = 4_096;
const IN_FLIGHT_MAX: usize = 1 << 20;
const CONNECTIONS_DEFAULT_MAX: usize = 8;
const CONNECTIONS_MAX: usize = 64;
/// Plans that one connection can have in flight, and those of its next pipeline.
const CONNECTION_PLANS_MAX: usize = (PIPELINES_MAX + 1) * PIPELINE_PLANS_MAX;
const MARGIN_DEFAULT: Duration = Duration::from_secs(1);

impl RedisSettings {
    /// Creates settings with defaults for a URL: `redis://user:password@host:port/database`, or `rediss://` for TLS.
    /// Parameters: `prefix=` is put in front of every key; `ca=` names a file of CA certificates to trust instead of the
    /// system's.
    ///
    /// `redis+sentinel://host:port,host:port/name/database` follows the primary that these sentinels know by that name.
    /// `sentinel_user=`, `sentinel_password=`, `sentinel_tls=` and `sentinel_ca=` apply to the sentinels themselves.
    /// `redis+cluster://host:port,host:port` is the cluster that these servers belong to.
    pub fn url(url: &str) -> Result<RedisSettings, RedisUrlError> {
        Ok(RedisSettings {
            url: RedisUrl::parse(url)?,
            deadline: DEADLINE_DEFAULT,
            in_flight_max: IN_FLIGHT_DEFAULT,
            connections: None,
            margin: MARGIN_DEFAULT,
            time: TimeSource::default(),
            clock: FastClock::new(),
        })
    }
}

impl RedisSettings {
    /// The same settings, with a new clock.
    #[doc(hidden)]
    pub fn fresh(&self) -> RedisSettings {
        let RedisSettings { url, deadline, in_flight_max, connections, margin, time, .. } = self;
        RedisSettings {
            url: url.clone(),
            deadline: *deadline,
            in_flight_max: *in_flight_max,
            connections: *connections,
            margin: *margin,
            time: *time,
            clock: FastClock::new(),
        }
    }
}

impl<C> RedisSettings<C> {
    /// Whether the URL names a cluster.
    #[doc(hidden)]
    pub const fn is_cluster(&self) -> bool {
        matches!(self.url.topology, Topology::Cluster(_))
    }
}

impl<C: Clock + Send + Sync + 'static> RedisSettings<C> {
    /// Sets how long a check may take. After that the rules' failure policies decide. Default: 25 ms.
    pub fn deadline(self, deadline: Duration) -> RedisSettings<C> {
        RedisSettings { deadline: deadline.min(DEADLINE_MAX), ..self }
    }

    /// Sets how many checks may be in flight. One more fails at once. Default: 4,096; at most 1,048,576.
    pub fn in_flight_max(self, in_flight_max: usize) -> RedisSettings<C> {
        RedisSettings { in_flight_max: in_flight_max.clamp(1, IN_FLIGHT_MAX), ..self }
    }

    /// Sets the number of connections to each server. Threads are spread over them, and only checks on one connection
    /// travel together. Default: the number of worker threads of the runtime, at most 8. At most 64.
    pub fn connections(self, connections: usize) -> RedisSettings<C> {
        RedisSettings { connections: Some(connections.clamp(1, CONNECTIONS_MAX)), ..self }
    }

    /// Keeps state this much longer than it counts. Default: 1 second. Use more if clocks differ a lot.
    pub fn margin(self, margin: Duration) -> RedisSettings<C> {
        RedisSettings { margin, ..self }
    }

    /// Sets which clock decides. Default: the clock of Redis.
    pub fn time(self, time: TimeSource) -> RedisSettings<C> {
        RedisSettings { time, ..self }
    }

    /// Sets the clock of this process.
    pub fn clock<D: Clock + Send + Sync + 'static>(self, clock: D) -> RedisSettings<D> {
        let RedisSettings { url, deadline, in_flight_max, connections, margin, time, .. } = self;
        RedisSettings { url, deadline, in_flight_max, connections, margin, time, clock }
    }

    /// Opens the store without waiting for Redis. Until Redis answers, the rules' failure policies decide.
    pub fn open(self) -> Result<RedisStore<C>, OpenError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| OpenError::NoRuntime)?;
        let RedisUrl { topology, options, prefix } = self.url;
        let connections = self
            .connections
            .unwrap_or_else(|| runtime.metrics().num_workers().clamp(1, CONNECTIONS_DEFAULT_MAX));
        let permits = PermitPool::new(
            self.in_flight_max,
            match topology {
                // Further Plans would only wait for a connection.
                Topology::Server(_) | Topology::Sentinels { .. } => connections * CONNECTION_PLANS_MAX,
                Topology::Cluster(_) => self.in_flight_max,
            },
            self.deadline,
        );
        let context = Arc::new(ClientContext {
            connector: Connector::new(options).map_err(OpenError::Certificates)?,
            call_settings: CallSettings::new(self.time, self.margin),
            scripts: Scripts::new(),
            deadline: self.deadline,
            connections,
            connections_opened: Default::default(),
            permits,
            runtime,
            jitter,
        });
        let inner = Inner {
            router: Router::open(Arc::clone(&context), topology)?,
            context,
            prefix,
            deadline: self.deadline,
            time: self.time,
            clock: self.clock,
            clock_offset_us: AtomicI64::new(0),
        };
        Ok(RedisStore { inner: Arc::new(inner) })
    }

    /// Opens the store and waits until Redis answers.
    pub async fn connect(self) -> Result<RedisStore<C>, OpenError> {
        let store = self.open()?;
        store.ready().await?;
        Ok(store)
    }
}

/// A random number from 0 to 1.
fn jitter() -> f64 {
    // Without randomness every pause has full length, which is what it would have without jitter.
    getrandom::u32().map_or(1.0, |random| f64::from(random) / f64::from(u32::MAX))
}
