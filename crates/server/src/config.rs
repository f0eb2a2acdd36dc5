//! The configuration of a server.
//!
//! [`settings`] is the table of all settings. [`layers`] collects their values from the configuration file, the
//! environment and the command line. [`resolve`](mod@resolve) converts them to a [`Config`]. All problems of all layers
//! are reported at once.

mod flags;
mod layers;
mod resolve;
#[allow(missing_docs, reason = "`help` describes each setting")]
pub(crate) mod settings;
mod shapes;
mod show;
pub(crate) mod store_url;
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
pub(crate) use shapes::{rule_id, token_name};
pub(crate) use show::EffectiveSetting;
use tollgate_database::DatabaseUrl;

/// The prefix of every token. It lets secret scanners recognise leaked tokens.
pub(crate) const TOKEN_PREFIX: &str = "tg_";
/// The variable with the path of the configuration file. `--config` overrides it.
pub(crate) const CONFIG_VARIABLE: &str = "TOLLGATE_CONFIG";

/// The address of each protocol's listener; `None` if it is off.
pub(crate) type Addresses = [(Protocol, Option<SocketAddr>); Protocol::ALL.len()];

/// A valid configuration. Only what needs the network is not checked yet.
#[derive(Debug)]
pub(crate) struct Config {
    /// The rules file; `None` for the starter rules.
    pub(crate) rules: Option<PathBuf>,
    pub(crate) store: StoreConfig,
    /// How long the store may take to decide.
    pub(crate) store_deadline: Duration,
    /// Calls of one caller that may wait for the store.
    pub(crate) in_flight_max_per_caller: usize,
    /// Whether the server does not start while its store is down.
    pub(crate) require_store: bool,
    /// Number of servers that share the store, as the operator states it; 0 if unknown.
    pub(crate) servers: u32,
    /// Output of RESP connections that clients have not read, in bytes.
    pub(crate) resp_output_max: usize,
    /// The ledger's database and the folder of this server's journal.
    pub(crate) ledger: Option<LedgerConfig>,
    /// The hash keys; `None` for a random one, which only the memory store accepts.
    pub(crate) hashers: Option<SubjectHashers>,
    /// How long a request id is remembered.
    pub(crate) request_id_horizon: Duration,
    pub(crate) receipt_life: Duration,
    pub(crate) addresses: Addresses,
    pub(crate) tls: Option<TlsConfig>,
    pub(crate) access: Access,
    /// Scopes of callers without a token or certificate.
    pub(crate) anonymous: Scopes,
    /// Scopes of callers whose certificate `tls.client_ca` verifies.
    pub(crate) certified: Scopes,
    /// Number of worker threads; one per core by default.
    pub(crate) threads: usize,
    pub(crate) connections_max: usize,
    /// Connections of one client address.
    pub(crate) connections_max_per_address: usize,
    /// Whether the HTTP listener serves control routes: only if it is on a loopback address and `admin` is unset.
    pub(crate) control_on_http: bool,
    /// Hosts besides this machine that loopback and control listeners serve.
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) dialect: Dialect,
    pub(crate) grpc: GrpcConfig,
    pub(crate) proxies: TrustedProxies,
    /// The load balancers whose connections begin with a PROXY protocol header.
    pub(crate) proxy_protocol: TrustedProxies,
    /// How many leading bits of an address identify a client.
    pub(crate) prefixes: Prefixes,
    /// How long a shutdown waits for requests in flight.
    pub(crate) shutdown_timeout: Duration,
    pub(crate) log: LogConfig,
    pub(crate) traces: Option<TraceConfig>,
    pub(crate) capture: Option<CaptureConfig>,
}

/// The capture of checks.
#[derive(Clone, Debug)]
pub(crate) struct CaptureConfig {
    pub(crate) path: PathBuf,
    pub(crate) bytes_max: u64,
}

/// The ledger.
#[derive(Debug)]
pub(crate) struct LedgerConfig {
    pub(crate) url: DatabaseUrl,
    pub(crate) journal: PathBuf,
    /// How long posted charges stay in the journal.
    pub(crate) keep_journal: Duration,
    /// Bytes in the journal that are not posted, at most.
    pub(crate) journal_max: u64,
    /// How long charges are accepted while the database does not answer.
    pub(crate) queue_max: Duration,
    /// The copy of the live changes, for a start while the database is away.
    pub(crate) changes: PathBuf,
}

/// The store.
#[derive(Debug)]
pub(crate) enum StoreConfig {
    Memory {
        keys_max: usize,
        /// Keys of limits that callers send along, besides those of rules.
        own_keys_max: usize,
        /// Bytes of large states, such as logs; `None` for the default of `keys_max`.
        state_bytes_max: Option<usize>,
    },
    Redis(Box<RedisSettings>),
}

impl StoreConfig {
    /// Keys of limits that callers send along. A shared store has no such bound.
    pub(crate) fn own_keys_max(&self) -> u32 {
        match self {
            StoreConfig::Memory { own_keys_max, .. } => u32::try_from(*own_keys_max).unwrap_or(u32::MAX),
            StoreConfig::Redis(_) => u32::MAX,
        }
    }
}

/// The files of the TLS certificates.
#[derive(Clone, Debug)]
pub(crate) struct TlsConfig {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// CA certificates used to verify client certificates. `None` requests no client certificates.
    pub(crate) client_ca: Option<PathBuf>,
}

/// The log of a server.
#[derive(Clone, Debug)]
pub(crate) struct LogConfig {
    pub(crate) format: LogFormat,
    /// Which events are logged, in the syntax of `tracing_subscriber::EnvFilter`, like `info`.
    pub(crate) filter: String,
    /// The maximum number of refusals to log per second. Metrics count all of them.
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

/// The export of spans.
#[derive(Clone, Debug)]
pub(crate) struct TraceConfig {
    /// The OTLP endpoint, like http://localhost:4317.
    pub(crate) endpoint: String,
    /// One in this many checks has a span.
    pub(crate) one_in: u32,
}

/// A configuration, the origin of each of its values, and its warnings.
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) settings: Vec<EffectiveSetting>,
    /// Warnings for a terminal, such as old names of settings; usually empty.
    pub(crate) warnings: String,
}

/// Why a configuration is not loaded.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// A file cannot be read.
    Unreadable(Failure),
    /// It has errors.
    Invalid {
        errors: usize,
        /// All problems with their positions, coloured for a terminal.
        problems: String,
    },
}

impl LoadError {
    /// The problems in plain text, for a log.
    pub(crate) fn cause(&self) -> String {
        match self {
            LoadError::Unreadable(failure) => failure.to_string(),
            LoadError::Invalid { problems, .. } => anstream::adapter::strip_str(problems).to_string(),
        }
    }
}

/// Loads the configuration from the file, the environment and the command line.
///
/// If any of them has errors, prints all problems and returns an error that ends with `consequence`.
pub(crate) fn load(flags: &Flags, consequence: &str) -> Result<Loaded> {
    try_load(flags).map_err(|error| match error {
        LoadError::Unreadable(failure) => failure.into(),
        LoadError::Invalid { errors, problems } => {
            stderr::write(&problems);
            let errors = if errors == 1 { "1 error".to_owned() } else { format!("{errors} errors") };
            let hint = "variables (TOLLGATE_…) override the file, and flags override both; docs/reference/config.md lists \
                        all settings";
            Failure::new(format!("the configuration has {errors}; {consequence}"), hint).into()
        }
    })
}

/// Loads the configuration like [`load`], and prints nothing.
pub(crate) fn try_load(flags: &Flags) -> Result<Loaded, LoadError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let (layers, config) = read(flags, variables, cores).map_err(LoadError::Unreadable)?;
    let problems = layers.render(tollgate_document::Colour::Ansi);
    match layers.error_count() {
        0 => Ok(Loaded { settings: show::effective_settings(&layers, &config), config, warnings: problems }),
        errors => Err(LoadError::Invalid { errors, problems }),
    }
}

/// Reads and resolves all layers.
fn read(
    flags: &Flags,
    variables: Vec<(OsString, OsString)>,
    cores: usize,
) -> Result<(Layers, Config), Failure> {
    let mut layers = Layers::default();
    let config_variable = variables.iter().find(|(name, value)| name == CONFIG_VARIABLE && !value.is_empty());
    let file = flags.file.clone().or_else(|| config_variable.map(|(_, path)| PathBuf::from(path)));
    if let Some(path) = file {
        let source = files::read(&path)?;
        layers.add_file(&path, source);
    }
    layers.add_variables(variables);
    layers.add_flags(flags.settings.iter().map(|(name, value)| (*name, value.as_str())));
    let config = resolve::resolve(&mut layers, cores);
    Ok((layers, config))
}
