//! Everything a server is told, in one typed place.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tollgate::core::{SubjectHashers, TrustedProxies};
use tollgate::headers::Dialect;
use tollgate::store::redis::RedisSettings;

use crate::serve::access::{Access, Scopes};

/// What a server is told. Everything in it has been checked, as far as that goes without the network.
pub(crate) struct Config {
    /// The rules file; the starter rules if there is none.
    pub(crate) rules: Option<PathBuf>,
    pub(crate) store: StoreConfig,
    /// The keys that make subjects; in memory a random one if there is none.
    pub(crate) hashers: Option<SubjectHashers>,
    /// Where to listen; `None` for not at all.
    pub(crate) http: Option<SocketAddr>,
    pub(crate) resp: Option<SocketAddr>,
    pub(crate) grpc: Option<SocketAddr>,
    pub(crate) tls: Option<TlsConfig>,
    pub(crate) access: Access,
    /// What everybody may do who shows neither token nor certificate.
    pub(crate) anonymous: Scopes,
    /// What the bearer of a certificate that `tls.client_ca` signed may do.
    pub(crate) certified: Scopes,
    /// Threads that serve; as many as there are cores if it is not said.
    pub(crate) threads: usize,
    pub(crate) connections_max: usize,
    pub(crate) dialect: Dialect,
    pub(crate) proxies: TrustedProxies,
    /// How long requests in flight may take to end when the server does.
    pub(crate) grace: Duration,
    pub(crate) log: LogConfig,
    pub(crate) traces: Option<TraceConfig>,
}

/// Where state is kept.
pub(crate) enum StoreConfig {
    Memory { keys_max: usize },
    Redis(RedisSettings),
}

/// Certificates, by the files they are in.
#[derive(Clone, Debug)]
pub(crate) struct TlsConfig {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// Whose clients are let in; without it no client is asked for a certificate.
    pub(crate) client_ca: Option<PathBuf>,
}

/// How a server tells what it does.
#[derive(Clone, Debug)]
pub(crate) struct LogConfig {
    pub(crate) format: LogFormat,
    /// What is told, as `tracing_subscriber::EnvFilter` reads it, like `info`.
    pub(crate) filter: String,
    /// The most refusals told in a second; others are only counted.
    pub(crate) refusals_per_second: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Where spans go.
#[derive(Clone, Debug)]
pub(crate) struct TraceConfig {
    /// An OTLP endpoint, like http://localhost:4317.
    pub(crate) endpoint: String,
    /// One in so many checks has a span.
    pub(crate) one_in: u32,
}

impl Default for Config {
    fn default() -> Config {
        let at = |port: u16| Some(SocketAddr::from(([127, 0, 0, 1], port)));
        Config {
            rules: None,
            store: StoreConfig::Memory { keys_max: 10_000_000 },
            hashers: None,
            http: at(8080),
            resp: at(6380),
            grpc: None,
            tls: None,
            access: Access::default(),
            anonymous: Scopes::CHECK.and(Scopes::READ),
            certified: Scopes::CHECK.and(Scopes::READ),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            connections_max: 10_000,
            dialect: Dialect::default(),
            proxies: TrustedProxies::default(),
            grace: Duration::from_secs(10),
            log: LogConfig { format: LogFormat::Text, filter: "info".to_owned(), refusals_per_second: 10 },
            traces: None,
        }
    }
}
