//! Everything a server is told, in one typed place.
//!
//! [`settings`] is the table of all there is; [`layers`] gathers what the file, the environment and the command line give;
//! [`resolve`](mod@resolve) says what it means together. All problems of all layers are told at once.

mod flags;
mod layers;
mod resolve;
#[allow(missing_docs, reason = "`help` describes each setting")]
pub(crate) mod settings;
mod shapes;
mod show;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use tollgate::core::{Prefixes, SubjectHashers, TrustedProxies};
use tollgate::headers::Dialect;
use tollgate::store::redis::RedisSettings;

use crate::access::{Access, Scopes};
use crate::failure::Failure;
use crate::files;
use crate::protocol::Protocol;
use crate::stderr;
pub(crate) use flags::Flags;
use layers::Layers;
pub(crate) use shapes::name as token_name;
pub(crate) use show::Shown;

/// What every token begins with, so that one that lies around is known for what it is.
pub(crate) const TOKEN_PREFIX: &str = "tg_";
/// Where the file with settings is, unless the command line says it.
pub(crate) const CONFIG_VARIABLE: &str = "TOLLGATE_CONFIG";

/// Where each protocol is spoken; `None` for nowhere.
pub(crate) type Addresses = [(Protocol, Option<SocketAddr>); Protocol::ALL.len()];

/// What a server is told. Everything in it has been checked, as far as that goes without the network.
#[derive(Debug)]
pub(crate) struct Config {
    /// The rules file; the starter rules if there is none.
    pub(crate) rules: Option<PathBuf>,
    pub(crate) store: StoreConfig,
    /// The keys that make subjects; in memory a random one if there is none.
    pub(crate) hashers: Option<SubjectHashers>,
    /// How long an id of a request stands for that request.
    pub(crate) request_id_horizon: Duration,
    /// Where to listen.
    pub(crate) addresses: Addresses,
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
    pub(crate) grpc: GrpcConfig,
    pub(crate) proxies: TrustedProxies,
    /// How much of an address tells clients apart.
    pub(crate) prefixes: Prefixes,
    /// How long requests in flight may take to end when the server does.
    pub(crate) grace: Duration,
    pub(crate) log: LogConfig,
    pub(crate) traces: Option<TraceConfig>,
}

/// Where state is kept.
#[derive(Debug)]
pub(crate) enum StoreConfig {
    Memory { keys_max: usize },
    Redis(Box<RedisSettings>),
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

/// How the gRPC transport reads messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct GrpcConfig {
    /// Whether clients can list the services (server reflection).
    pub(crate) reflection: bool,
    pub(crate) names: AttributeNames,
}

/// Keys of descriptor entries that also become attributes under another name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct AttributeNames(Vec<(String, String)>);

impl AttributeNames {
    /// Pairs of an entry's key and an attribute name.
    pub(crate) fn new(pairs: Vec<(String, String)>) -> AttributeNames {
        AttributeNames(pairs)
    }

    /// The attribute names of an entry with this key.
    pub(crate) fn of<'n>(&'n self, key: &str) -> impl Iterator<Item = &'n str> {
        self.0.iter().filter(move |(of, _)| of == key).map(|(_, name)| name.as_str())
    }
}

/// Where spans go.
#[derive(Clone, Debug)]
pub(crate) struct TraceConfig {
    /// An OTLP endpoint, like http://localhost:4317.
    pub(crate) endpoint: String,
    /// One in so many checks has a span.
    pub(crate) one_in: u32,
}

/// A configuration, and where each of its values comes from.
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) shown: Vec<Shown>,
}

/// The configuration that the command line, the environment and the file give. If anything is wrong with any of them, all
/// problems are printed, and `purpose` says what cannot be done.
pub(crate) fn load(flags: &Flags, purpose: &str) -> Result<Loaded> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let (layers, config) = read(flags, variables, cores)?;
    match layers.problems() {
        0 => Ok(Loaded { shown: show::all(&layers, &config), config }),
        number => {
            stderr::write(&layers.render(tollgate_document::Colour::Ansi));
            let problems = if number == 1 { "a problem".to_owned() } else { format!("{number} problems") };
            let hint = "the file comes first, TOLLGATE_… variables beat it, flags beat both; docs/reference/config.md lists all";
            Err(Failure::new(format!("the configuration has {problems}, so {purpose}"), hint).into())
        }
    }
}

/// Reads all layers.
fn read(
    flags: &Flags,
    variables: Vec<(OsString, OsString)>,
    cores: usize,
) -> Result<(Layers, Config), Failure> {
    let mut layers = Layers::default();
    let of_environment = variables.iter().find(|(name, value)| name == CONFIG_VARIABLE && !value.is_empty());
    let file = flags.file.clone().or_else(|| of_environment.map(|(_, path)| PathBuf::from(path)));
    if let Some(path) = file {
        let source = files::read(&path)?;
        layers.add_file(&path, source);
    }
    layers.add_variables(variables);
    layers.add_flags(flags.settings.iter().map(|(name, value)| (*name, value.as_str())));
    let config = resolve::resolve(&mut layers, cores);
    Ok((layers, config))
}
