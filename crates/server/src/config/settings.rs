//! The table of all settings of a server.
//!
//! The keys of the configuration file, the environment variables, the flags, the output of `tollgate config` and the page
//! docs/reference/config.md are all generated from it. The table does not depend on the rest of the server.

use tollgate_document::shape::RenamedKey;

/// One setting. Its key in the configuration file is its name; the variable and the flag are derived from it.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub name: &'static str,
    pub kind: Kind,
    pub accepted_in: AcceptedIn,
    /// The default as it would be written in the file; a description if it starts with a parenthesis; empty for none.
    pub default: &'static str,
    /// A short description without a full stop.
    pub help: &'static str,
    /// Sentences that follow the description; usually empty.
    pub details: &'static str,
    pub group: &'static str,
}

/// The type of a setting's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The path of a file.
    File,
    /// `memory`, or the URL of a store.
    Store,
    /// The URL of a database.
    Database,
    /// An IP address and a port, or `off`.
    Address,
    /// A whole number between two bounds, both included.
    Number(u64, u64),
    /// A duration between two bounds in milliseconds, both included.
    Duration(u64, u64),
    /// `true` or `false`.
    Bool,
    /// One of these words, each with its meaning.
    Choice(&'static [(&'static str, &'static str)]),
    /// A list of CIDR blocks.
    CidrBlocks,
    /// A list of host names and addresses.
    Hosts,
    /// A list of scopes, or `none`.
    Scopes,
    /// Tokens: names, digests and scopes.
    Tokens,
    /// Levels of log events, by target.
    LogFilter,
    /// The URL of an OpenTelemetry collector.
    Endpoint,
    /// Attribute names by key of a descriptor entry, like `remote_address=ip`.
    AttributeNames,
    /// A secret, which is never printed.
    Secret,
}

/// Where a setting is accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcceptedIn {
    /// In the configuration file, as a variable and as a flag.
    Everywhere,
    /// In the configuration file only: the value does not fit on one line.
    File,
    /// As a variable only: files are copied, and other users can see command lines.
    Variable,
}

const STATE: &str = "Rules and store";
const LISTENERS: &str = "Listeners";
const ACCESS: &str = "Access";
const CLIENTS: &str = "Clients and proxies";
const RUNTIME: &str = "Runtime";
const OBSERVABILITY: &str = "Logs and traces";

const DAY_MS: u64 = 86_400_000;

const fn setting(
    group: &'static str,
    name: &'static str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
) -> Setting {
    Setting { name, kind, accepted_in: AcceptedIn::Everywhere, default, help, details: "", group }
}

const fn secret(group: &'static str, name: &'static str, help: &'static str) -> Setting {
    Setting { accepted_in: AcceptedIn::Variable, ..setting(group, name, Kind::Secret, "", help) }
}

const HEADERS: Kind = Kind::Choice(&[
    ("ietf-08", "`RateLimit-Policy` and `RateLimit`, as in the IETF drafts 08 to 11."),
    ("ietf-07", "`RateLimit` as a dictionary, as in draft 07."),
    ("ietf-06", "`RateLimit-Limit`, `-Remaining` and `-Reset`, as in draft 06 and earlier."),
    ("x-ratelimit-epoch", "`X-RateLimit-…`; the reset is a Unix time in seconds."),
    ("x-ratelimit-delta", "`X-RateLimit-…`; the reset is in seconds from now."),
]);

const PROXY_HEADER: Kind = Kind::Choice(&[
    ("none", "No header is trusted."),
    ("forwarded", "`Forwarded` (RFC 7239)."),
    ("x-forwarded-for", "`X-Forwarded-For`."),
]);

const LOG_FORMAT: Kind =
    Kind::Choice(&[("text", "For people."), ("json", "For programs: one JSON object per line.")]);

/// Old names of settings. The file, the variables and the flags accept them, with a warning, until the named release.
pub const RENAMED: &[RenamedKey] = &[RenamedKey { old: "grace", new: "shutdown_timeout", until: "0.2.0" }];

/// All settings, in the order in which they are printed.
pub const SETTINGS: &[Setting] = &[
    setting(
        STATE,
        "rules",
        Kind::File,
        "(the starter rules)",
        "Rules file, or folder of rules files; `tollgate lint` finds their problems",
    ),
    Setting {
        details: "One server: redis://USER@HOST:PORT/DATABASE. Sentinels: redis+sentinel://USER@HOST:PORT,HOST:PORT/NAME. \
                  Cluster: redis+cluster://USER@HOST:PORT,HOST:PORT. For TLS, write rediss instead of redis. Leave the \
                  password out of the URL.",
        ..setting(
            STATE,
            "store",
            Kind::Store,
            "memory",
            "Where state is kept: memory, or the URL of a shared Redis or Valkey",
        )
    },
    secret(STATE, "store_password", "Password of the store"),
    setting(STATE, "store_password_file", Kind::File, "", "File that contains the password of the store"),
    secret(STATE, "store_sentinel_password", "Password of the store's sentinels"),
    setting(
        STATE,
        "store_sentinel_password_file",
        Kind::File,
        "",
        "File that contains the password of the store's sentinels",
    ),
    setting(
        STATE,
        "store_deadline",
        Kind::Duration(1, 60_000),
        "25ms",
        "How long the store may take to decide; then each rule's `on_failure` applies",
    ),
    setting(
        STATE,
        "require_store",
        Kind::Bool,
        "false",
        "Do not start while the store is down; otherwise each rule's `on_failure` answers until it is up",
    ),
    setting(
        STATE,
        "keys_max",
        Kind::Number(1, 1_000_000_000),
        "10000000",
        "Maximum number of keys in the memory store; further subjects share one overflow subject",
    ),
    setting(
        STATE,
        "state_bytes_max",
        Kind::Number(1_048_576, 1_000_000_000_000),
        "(256 per key of keys_max, at least 1 GiB)",
        "Bytes of large states, such as logs, in the memory store; then new subjects share the overflow subject",
    ),
    setting(
        STATE,
        "own_keys_max",
        Kind::Number(1, 1_000_000_000),
        "(a tenth of keys_max)",
        "Maximum number of keys of callers' own limits (CL.THROTTLE) in the memory store, besides keys_max",
    ),
    setting(
        STATE,
        "in_flight_max_per_caller",
        Kind::Number(1, 65_536),
        "256",
        "Checks of one caller that may be in flight or wait for a shared store; further ones are refused",
    ),
    setting(
        STATE,
        "servers",
        Kind::Number(0, 10_000),
        "0",
        "Number of servers that share the store, at least; `on_failure: local fair` gives each an equal share",
    ),
    Setting {
        details: "SQLite serves one server: sqlite:PATH. PostgreSQL serves many: postgres://USER@HOST:PORT/DATABASE; run \
                  `tollgate database migrate` first. Leave the password out of the URL.",
        ..setting(
            STATE,
            "database",
            Kind::Database,
            "",
            "Database of the ledger, of live changes and of the audit trail",
        )
    },
    secret(STATE, "database_password", "Password of the database"),
    setting(
        STATE,
        "database_password_file",
        Kind::File,
        "",
        "File that contains the password of the database",
    ),
    setting(
        STATE,
        "journal",
        Kind::File,
        "(for SQLite: the path of its file and .journal)",
        "Folder in which this server keeps recorded charges until the database has them",
    ),
    setting(
        STATE,
        "keep_journal",
        Kind::Duration(60_000, 90 * DAY_MS),
        "24h",
        "How long recorded charges stay in the journal after they were posted, for a database that is restored to an earlier time",
    ),
    setting(
        STATE,
        "journal_max",
        Kind::Number(1 << 20, 1 << 50),
        "1073741824",
        "Bytes in the journal that are not posted; beyond them, rules with `ledger` are answered by `on_failure`",
    ),
    setting(
        STATE,
        "queue_max",
        Kind::Duration(1_000, DAY_MS),
        "15min",
        "How long rules with `ledger` go on while the database does not answer; then `on_failure` answers",
    ),
    setting(
        STATE,
        "data_dir",
        Kind::File,
        "(beside the journal)",
        "Folder in which this server keeps a copy of the live changes, for a start while the database is away",
    ),
    secret(STATE, "hash_key", "Hash key of your servers, 64 hexadecimal digits; required for a shared store"),
    setting(STATE, "hash_key_file", Kind::File, "", "File that contains the hash key of your servers"),
    setting(STATE, "hash_key_id", Kind::Number(0, 255), "0", "Id of the hash key; a new key needs a new id"),
    secret(
        STATE,
        "previous_hash_key",
        "Hash key that is being replaced; requests are charged under both keys for a while",
    ),
    setting(
        STATE,
        "previous_hash_key_file",
        Kind::File,
        "",
        "File that contains the hash key that is being replaced",
    ),
    setting(
        STATE,
        "previous_hash_key_id",
        Kind::Number(0, 255),
        "0",
        "Id of the hash key that is being replaced",
    ),
    setting(
        STATE,
        "request_id_horizon",
        Kind::Duration(1_000, DAY_MS),
        "1min",
        "How long a request id is remembered: the same id gets the same answer and is charged once",
    ),
    setting(
        STATE,
        "receipt_life",
        Kind::Duration(1_000, DAY_MS),
        "1h",
        "How long a receipt can be returned: returns and resets are remembered for as long",
    ),
    setting(LISTENERS, "http", Kind::Address, "127.0.0.1:8080", "Address of the HTTP listener"),
    setting(
        LISTENERS,
        "resp",
        Kind::Address,
        "127.0.0.1:6380",
        "Address of the listener for the Redis protocol (RESP)",
    ),
    setting(
        LISTENERS,
        "grpc",
        Kind::Address,
        "off",
        "Address of the gRPC listener, which speaks Envoy's rate limit service",
    ),
    setting(
        LISTENERS,
        "admin",
        Kind::Address,
        "(the http listener if it is on a loopback address, otherwise off)",
        "Address of the control listener: control routes, metrics, health and the dashboard",
    ),
    setting(
        LISTENERS,
        "allowed_hosts",
        Kind::Hosts,
        "",
        "Hosts that loopback and control listeners serve besides localhost and loopback addresses",
    ),
    setting(
        LISTENERS,
        "grpc_reflection",
        Kind::Bool,
        "false",
        "Offer gRPC server reflection, so that clients can list services and message types",
    ),
    setting(
        LISTENERS,
        "tls_certificate",
        Kind::File,
        "",
        "Certificate chain of this server, in PEM format; turns on TLS on all listeners",
    ),
    setting(LISTENERS, "tls_key", Kind::File, "", "Private key of the certificate, in PEM format"),
    setting(
        LISTENERS,
        "tls_client_ca",
        Kind::File,
        "",
        "CA certificates used to verify client certificates, in PEM format",
    ),
    Setting {
        accepted_in: AcceptedIn::File,
        ..setting(
            ACCESS,
            "tokens",
            Kind::Tokens,
            "",
            "Tokens of callers, as digests with scopes, and what they are bound to; `tollgate token` creates one",
        )
    },
    setting(
        ACCESS,
        "anonymous",
        Kind::Scopes,
        "(check, refund, report, record, read; none with tokens or client CA)",
        "Scopes of callers without a token or certificate; never change or admin",
    ),
    setting(
        ACCESS,
        "certified",
        Kind::Scopes,
        "check",
        "Scopes of callers whose client certificate tls_client_ca verifies; never change or admin",
    ),
    setting(
        ACCESS,
        "insecure",
        Kind::Bool,
        "false",
        "Listen on addresses that other machines can reach, without tokens or client certificates",
    ),
    setting(
        CLIENTS,
        "trusted_proxies",
        Kind::CidrBlocks,
        "",
        "Addresses of proxies whose proxy_header is trusted",
    ),
    setting(
        CLIENTS,
        "proxy_header",
        PROXY_HEADER,
        "none",
        "Header field in which trusted proxies send the client's address",
    ),
    Setting {
        details: "A connection from these addresses must begin with a header of version 1 or 2, before TLS, and the address in it is \
                  the client's. A header from any other address is refused as an invalid request.",
        ..setting(
            CLIENTS,
            "proxy_protocol",
            Kind::CidrBlocks,
            "",
            "Addresses of load balancers that send a PROXY protocol header on every connection, to any listener",
        )
    },
    setting(
        CLIENTS,
        "client_prefix_v4",
        Kind::Number(0, 32),
        "32",
        "Number of leading bits of an IPv4 address that identify a client",
    ),
    setting(
        CLIENTS,
        "client_prefix_v6",
        Kind::Number(0, 128),
        "64",
        "Number of leading bits of an IPv6 address that identify a client",
    ),
    setting(
        CLIENTS,
        "grpc_attributes",
        Kind::AttributeNames,
        "remote_address=ip",
        "Additional attribute names for entries of gRPC descriptors, by key",
    ),
    setting(CLIENTS, "headers", HEADERS, "ietf-08", "Rate limit header fields of responses"),
    setting(RUNTIME, "threads", Kind::Number(1, 1_024), "(one per core)", "Number of worker threads"),
    setting(
        RUNTIME,
        "connections_max",
        Kind::Number(1, 1_000_000),
        "10000",
        "Maximum number of open connections; the server closes further ones at once",
    ),
    setting(
        RUNTIME,
        "connections_max_per_address",
        Kind::Number(1, 1_000_000),
        "(a quarter of connections_max)",
        "Maximum number of open connections of one client address",
    ),
    setting(
        RUNTIME,
        "resp_output_max",
        Kind::Number(65_536, 1_000_000_000_000),
        "67108864",
        "Bytes of output that the clients of all RESP connections together may leave unread",
    ),
    setting(
        RUNTIME,
        "shutdown_timeout",
        Kind::Duration(0, 3_600_000),
        "10s",
        "How long a shutdown waits for requests in flight",
    ),
    setting(OBSERVABILITY, "log_format", LOG_FORMAT, "text", "Format of the log on standard error"),
    setting(
        OBSERVABILITY,
        "log_filter",
        Kind::LogFilter,
        "info",
        "Events to log: off, error, warn, info, debug or trace; or by target, like info,tollgate=debug",
    ),
    setting(
        OBSERVABILITY,
        "log_refusals_per_second",
        Kind::Number(0, 1_000_000),
        "10",
        "Maximum number of refusals to log per second; metrics count all of them",
    ),
    setting(
        OBSERVABILITY,
        "traces_endpoint",
        Kind::Endpoint,
        "",
        "OTLP endpoint that receives spans, like http://localhost:4317",
    ),
    setting(
        OBSERVABILITY,
        "traces_one_in",
        Kind::Number(1, 1_000_000_000),
        "1000",
        "Create a span for one in N checks",
    ),
    Setting {
        details: "Method, path, action and plan are in the clear, other attributes are hashed one by one. `tollgate simulate` \
                  replays the file.",
        ..setting(
            OBSERVABILITY,
            "capture_file",
            Kind::File,
            "",
            "File to which checks are captured; an existing one is continued",
        )
    },
    setting(
        OBSERVABILITY,
        "capture_bytes_max",
        Kind::Number(65_536, 1_000_000_000_000),
        "1073741824",
        "Maximum size of the capture; further checks are dropped and counted",
    ),
];

impl Setting {
    /// The variable, like `TOLLGATE_HASH_KEY_FILE`, if the setting is accepted there.
    pub fn variable(&self) -> Option<String> {
        (self.accepted_in != AcceptedIn::File).then(|| variable_name(self.name))
    }

    /// The flag, like `--hash-key-file`, if the setting is accepted there.
    pub fn flag(&self) -> Option<String> {
        (self.accepted_in == AcceptedIn::Everywhere).then(|| flag_name(self.name))
    }
}

/// `TOLLGATE_HASH_KEY_FILE` for `hash_key_file`.
pub(crate) fn variable_name(name: &str) -> String {
    format!("TOLLGATE_{}", name.to_ascii_uppercase())
}

/// `--hash-key-file` for `hash_key_file`.
pub(crate) fn flag_name(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

impl Kind {
    /// Describes the values in a few words.
    pub fn description(self) -> String {
        match self {
            Kind::File => "a path".to_owned(),
            Kind::Store => "`memory` or a URL".to_owned(),
            Kind::Database => "`sqlite:PATH` or `postgres://…`".to_owned(),
            Kind::Address => "`IP:PORT` or `off`".to_owned(),
            Kind::Number(min, max) => format!("a number from {min} to {max}"),
            Kind::Duration(min, max) => format!("a duration from {} to {}", duration(min), duration(max)),
            Kind::Bool => "`true` or `false`".to_owned(),
            Kind::Choice(_) => "a word, see below".to_owned(),
            Kind::CidrBlocks => "CIDR blocks, like `10.0.0.0/8`".to_owned(),
            Kind::Hosts => "host names, like `tollgate.internal`".to_owned(),
            Kind::Scopes => "scopes, or `none`".to_owned(),
            Kind::Tokens => "a list of `name`, `digest`, `scopes`, `attributes` and `rules`".to_owned(),
            Kind::LogFilter => "a filter".to_owned(),
            Kind::Endpoint => "a URL".to_owned(),
            Kind::AttributeNames => "`KEY=ATTRIBUTE` pairs".to_owned(),
            Kind::Secret => "a secret".to_owned(),
        }
    }
}

/// Milliseconds in the largest unit that divides them.
fn duration(ms: u64) -> String {
    let units = [(DAY_MS, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms")];
    let unit = units.into_iter().find(|(unit, _)| ms >= *unit && ms.is_multiple_of(*unit));
    unit.map_or_else(|| "0s".to_owned(), |(unit, name)| format!("{}{name}", ms / unit))
}
