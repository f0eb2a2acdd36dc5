//! Every setting of a server: the one table from which the file's keys, the variables, the flags, what
//! `tollgate config` prints and the page docs/reference/config.md are made.
//!
//! It knows nothing but itself, so that the page can be made from it without the server.

/// One setting. Its name is its key in the file; the names of its variable and of its flag follow from it.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub name: &'static str,
    pub kind: Kind,
    pub given: Given,
    /// What holds if it is not given, as it would be written; in words if it starts with a parenthesis; empty for nothing.
    pub default: &'static str,
    /// What it is, in one sentence without a full stop, then more if it needs more.
    pub help: &'static str,
    pub group: &'static str,
}

/// What a value looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The path of a file.
    File,
    /// `memory`, or the URL of a store.
    Store,
    /// An address and a port, or `off`.
    Address,
    /// A whole number from the first to the second.
    Number(u64, u64),
    /// A length of time, in milliseconds from the first to the second.
    Span(u64, u64),
    /// `true` or `false`.
    Switch,
    /// One of these words, each with what it means.
    Choice(&'static [(&'static str, &'static str)]),
    /// Blocks of addresses.
    Blocks,
    /// Any of `check`, `read` and `admin`; an empty list for none.
    Scopes,
    /// Names, digests and scopes.
    Tokens,
    /// Which events are told.
    Filter,
    /// The address of a collector of traces.
    Endpoint,
    /// Names for keys, like `remote_address=ip`.
    Names,
    /// Something that nobody else may read.
    Secret,
}

/// Where a setting may be given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Given {
    /// In the file, as a variable and as a flag.
    Anywhere,
    /// In the file only: too much for one line.
    File,
    /// As a variable only: files are copied, and others can see command lines.
    Variable,
}

const STATE: &str = "Rules and state";
const PORTS: &str = "Ports";
const ACCESS: &str = "Who may ask";
const CLIENTS: &str = "Clients and proxies";
const RUNNING: &str = "Running";
const TELLING: &str = "Logs and traces";

const DAY_MS: u64 = 86_400_000;

const fn anywhere(
    group: &'static str,
    name: &'static str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
) -> Setting {
    Setting { name, kind, given: Given::Anywhere, default, help, group }
}

const fn secret(group: &'static str, name: &'static str, help: &'static str) -> Setting {
    Setting { name, kind: Kind::Secret, given: Given::Variable, default: "", help, group }
}

/// The dialects of header fields.
const HEADERS: Kind = Kind::Choice(&[
    ("ietf-08", "`RateLimit-Policy` and `RateLimit` as drafts 08 to 11 of the IETF have them."),
    ("ietf-07", "`RateLimit` as a dictionary, draft 07."),
    ("ietf-06", "`RateLimit-Limit`, `-Remaining` and `-Reset`, draft 06 and before."),
    ("x-ratelimit-epoch", "`X-RateLimit-…`, the reset as seconds since 1970."),
    ("x-ratelimit-delta", "`X-RateLimit-…`, the reset as seconds from now."),
]);

const PROXY_HEADER: Kind = Kind::Choice(&[
    ("none", "No header is believed."),
    ("forwarded", "`Forwarded` (RFC 7239)."),
    ("x-forwarded-for", "`X-Forwarded-For`."),
]);

const LOG_FORMAT: Kind =
    Kind::Choice(&[("text", "For people."), ("json", "For programs, an object a line.")]);

/// The table, in the order in which it is shown.
pub const SETTINGS: &[Setting] = &[
    anywhere(
        STATE,
        "rules",
        Kind::File,
        "(the starter rules)",
        "The rules file; `tollgate lint` finds its problems",
    ),
    anywhere(
        STATE,
        "store",
        Kind::Store,
        "memory",
        "Where state is kept: memory, or a Redis or Valkey that servers share: redis://USER@HOST:PORT/DATABASE, \
         redis+sentinel://USER@HOST:PORT,HOST:PORT/NAME or redis+cluster://USER@HOST:PORT,HOST:PORT; with rediss instead of \
         redis for TLS; never with a password",
    ),
    secret(STATE, "store_password", "The password of the store"),
    anywhere(STATE, "store_password_file", Kind::File, "", "A file with the password of the store"),
    secret(STATE, "store_sentinel_password", "The password of the store's sentinels"),
    anywhere(
        STATE,
        "store_sentinel_password_file",
        Kind::File,
        "",
        "A file with the password of the store's sentinels",
    ),
    anywhere(
        STATE,
        "store_deadline",
        Kind::Span(1, 60_000),
        "25ms",
        "How long the store may take to decide; after that each rule's `on_failure` answers",
    ),
    anywhere(
        STATE,
        "keys_max",
        Kind::Number(1, 1_000_000_000),
        "10000000",
        "The most keys that the store in memory holds; beyond that new subjects share one account",
    ),
    secret(
        STATE,
        "hash_key",
        "The hash key of your servers: 64 hexadecimal digits; a shared store needs one",
    ),
    anywhere(STATE, "hash_key_file", Kind::File, "", "A file with the hash key of your servers"),
    anywhere(
        STATE,
        "hash_key_id",
        Kind::Number(0, 255),
        "0",
        "The id of the hash key; another key, another id",
    ),
    secret(STATE, "previous_hash_key", "The hash key that is being replaced: both are charged for a while"),
    anywhere(
        STATE,
        "previous_hash_key_file",
        Kind::File,
        "",
        "A file with the hash key that is being replaced",
    ),
    anywhere(
        STATE,
        "previous_hash_key_id",
        Kind::Number(0, 255),
        "0",
        "The id of the hash key that is being replaced",
    ),
    anywhere(
        STATE,
        "request_id_horizon",
        Kind::Span(1_000, DAY_MS),
        "1min",
        "How long a request that is sent again under the same id gets the same answer and is charged once",
    ),
    anywhere(PORTS, "http", Kind::Address, "127.0.0.1:8080", "Where HTTP is spoken"),
    anywhere(PORTS, "resp", Kind::Address, "127.0.0.1:6380", "Where the protocol of Redis is spoken"),
    anywhere(PORTS, "grpc", Kind::Address, "off", "Where gRPC is spoken, like Envoy's rate limit service"),
    anywhere(
        PORTS,
        "grpc_reflection",
        Kind::Switch,
        "false",
        "Tell clients of gRPC which services there are and what their messages look like",
    ),
    anywhere(
        PORTS,
        "tls_certificate",
        Kind::File,
        "",
        "A file with the certificate of this server and those above it, in PEM form: all ports speak TLS",
    ),
    anywhere(
        PORTS,
        "tls_key",
        Kind::File,
        "",
        "A file with the private key of that certificate, in PEM form",
    ),
    anywhere(
        PORTS,
        "tls_client_ca",
        Kind::File,
        "",
        "A file with the certificates of whoever vouches for clients, in PEM form; who shows a certificate of theirs may do what \
         `certified` says",
    ),
    Setting {
        name: "tokens",
        kind: Kind::Tokens,
        given: Given::File,
        default: "",
        help: "The tokens that clients show, as digests, each with what it may do; `tollgate token` makes one",
        group: ACCESS,
    },
    anywhere(
        ACCESS,
        "anonymous",
        Kind::Scopes,
        "(check and read if there are neither tokens nor client certificates, else nothing)",
        "What everybody may do who shows neither token nor certificate",
    ),
    anywhere(
        ACCESS,
        "certified",
        Kind::Scopes,
        "check, read",
        "What whoever shows a certificate of tls_client_ca may do",
    ),
    anywhere(
        ACCESS,
        "insecure",
        Kind::Switch,
        "false",
        "Listen where others can reach it although there are neither tokens nor client certificates",
    ),
    anywhere(
        CLIENTS,
        "trusted_proxies",
        Kind::Blocks,
        "",
        "The addresses of proxies that are believed when they say for whom they ask",
    ),
    anywhere(CLIENTS, "proxy_header", PROXY_HEADER, "none", "The header field in which those proxies say it"),
    anywhere(
        CLIENTS,
        "client_prefix_v4",
        Kind::Number(0, 32),
        "32",
        "How many leading bits of an IPv4 address tell clients apart",
    ),
    anywhere(
        CLIENTS,
        "client_prefix_v6",
        Kind::Number(0, 128),
        "64",
        "How many leading bits of an IPv6 address tell clients apart",
    ),
    anywhere(
        CLIENTS,
        "grpc_attributes",
        Kind::Names,
        "remote_address=ip",
        "Entries of descriptors that are attributes under another name as well, by their keys",
    ),
    anywhere(CLIENTS, "headers", HEADERS, "ietf-08", "The header fields that tell clients where they stand"),
    anywhere(RUNNING, "threads", Kind::Number(1, 1_024), "(one per core)", "How many threads serve"),
    anywhere(
        RUNNING,
        "connections_max",
        Kind::Number(1, 1_000_000),
        "10000",
        "The most connections at a time; one more is closed at once",
    ),
    anywhere(
        RUNNING,
        "grace",
        Kind::Span(0, 3_600_000),
        "10s",
        "How long requests in flight may take to end when the server does",
    ),
    anywhere(TELLING, "log_format", LOG_FORMAT, "text", "How events are written to standard error"),
    anywhere(
        TELLING,
        "log_filter",
        Kind::Filter,
        "info",
        "Which events are told: off, error, warn, info, debug or trace; or several, by part, like info,tollgate=debug",
    ),
    anywhere(
        TELLING,
        "log_refusals_per_second",
        Kind::Number(0, 1_000_000),
        "10",
        "The most refusals that are told in a second; all of them are counted",
    ),
    anywhere(
        TELLING,
        "traces_endpoint",
        Kind::Endpoint,
        "",
        "Where spans are sent by OTLP, like http://localhost:4317",
    ),
    anywhere(
        TELLING,
        "traces_one_in",
        Kind::Number(1, 1_000_000_000),
        "1000",
        "One in so many checks has a span",
    ),
];

impl Setting {
    /// `TOLLGATE_HASH_KEY_FILE`, if it may be given there.
    pub fn variable(&self) -> Option<String> {
        (self.given != Given::File).then(|| format!("TOLLGATE_{}", self.name.to_ascii_uppercase()))
    }

    /// `--hash-key-file`, if it may be given there.
    pub fn flag(&self) -> Option<String> {
        (self.given == Given::Anywhere).then(|| format!("--{}", self.name.replace('_', "-")))
    }
}

impl Kind {
    /// What a value looks like, in a few words.
    pub fn form(self) -> String {
        match self {
            Kind::File => "a path".to_owned(),
            Kind::Store => "`memory` or a URL".to_owned(),
            Kind::Address => {
                "an address and a port, like `127.0.0.1:8080` or `[::1]:8080`, or `off`".to_owned()
            }
            Kind::Number(least, most) => format!("a number from {least} to {most}"),
            Kind::Span(least, most) => format!("a length of time from {} to {}", span(least), span(most)),
            Kind::Switch => "`true` or `false`".to_owned(),
            Kind::Choice(words) => {
                let words: Vec<String> = words.iter().map(|(word, doc)| format!("`{word}`: {doc}")).collect();
                words.join(" ")
            }
            Kind::Blocks => "blocks of addresses, like `10.0.0.0/8`".to_owned(),
            Kind::Scopes => "any of `check`, `read` and `admin`, or nothing".to_owned(),
            Kind::Tokens => "a list; each has `name`, `digest` and `scopes`".to_owned(),
            Kind::Filter => "a filter of events".to_owned(),
            Kind::Endpoint => "a URL".to_owned(),
            Kind::Names => "names for keys, like `generic_key=action`".to_owned(),
            Kind::Secret => "a secret".to_owned(),
        }
    }
}

/// Milliseconds in the largest unit that leaves no rest.
fn span(ms: u64) -> String {
    let units = [(DAY_MS, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms")];
    let unit = units.into_iter().find(|(unit, _)| ms >= *unit && ms.is_multiple_of(*unit));
    unit.map_or_else(|| "0s".to_owned(), |(unit, name)| format!("{}{name}", ms / unit))
}
