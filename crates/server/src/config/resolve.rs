//! Converts the values of the layers to a configuration.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tollgate::core::{Cidr, Prefixes, ProxyHeader, SubjectHasher, SubjectHashers, TrustedProxies};
use tollgate::headers::{Dialect, Reset};
use tollgate_database::DatabaseUrl;
use tollgate_document::{Entry, Node, Problem, SourceSpan};

use super::layers::{Layers, Origin};
use super::settings::{SETTINGS, variable_name};
use super::{
    AttributeNames, CaptureConfig, Config, GrpcConfig, LedgerConfig, LogConfig, LogFormat, StoreConfig,
    TlsConfig, TraceConfig, shapes,
};
use crate::access::{Access, Binding, Digest, Scopes, Token};
use crate::config::store_url::{has_sentinels, settings_of};
use crate::files;
use crate::protocol::Protocol;
use crate::serve::edge::http::is_loopback;

/// Resolves the configuration and reports problems to the layers. It must not be used if the layers then have errors.
pub(super) fn resolve(layers: &mut Layers, cores: usize) -> Config {
    let (access, tls) = (access(layers), tls(layers));
    let has_credentials = !access.is_empty() || tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    let anonymous = match layers.get("anonymous") {
        Some(_) => scopes(layers, "anonymous"),
        None if has_credentials => Scopes::NONE,
        None => Scopes::CHECK_FAMILY.and(Scopes::READ),
    };
    let hashers = hashers(layers);
    let connections_max = size(layers, "connections_max");
    let http = address(layers, "http");
    let config = Config {
        rules: path(layers, "rules", true),
        store: store(layers, hashers.is_some()),
        store_deadline: duration(layers, "store_deadline"),
        require_store: scalar(layers, "require_store") == "true",
        in_flight_max_per_caller: size(layers, "in_flight_max_per_caller"),
        servers: u32::try_from(size(layers, "servers")).unwrap_or(u32::MAX),
        resp_output_max: size(layers, "resp_output_max"),
        ledger: ledger(layers, hashers.is_some()),
        hashers,
        request_id_horizon: duration(layers, "request_id_horizon"),
        receipt_life: duration(layers, "receipt_life"),
        addresses: Protocol::ALL.map(|protocol| (protocol, address(layers, protocol.name()))),
        tls,
        anonymous,
        certified: scopes(layers, "certified"),
        threads: layers.get("threads").map_or(cores, |_| size(layers, "threads")),
        connections_max,
        connections_max_per_address: match layers.get("connections_max_per_address") {
            Some(_) => size(layers, "connections_max_per_address"),
            None => (connections_max / 4).max(1),
        },
        control_on_http: layers.get("admin").is_none() && http.is_some_and(|at| is_loopback(at.ip())),
        allowed_hosts: items(layers, "allowed_hosts").into_iter().map(|(host, _)| host).collect(),
        dialect: dialect(layers),
        grpc: GrpcConfig {
            reflection: scalar(layers, "grpc_reflection") == "true",
            names: AttributeNames::new(attribute_names(layers)),
        },
        proxies: proxies(layers),
        proxy_protocol: TrustedProxies::new(cidr_blocks(layers, "proxy_protocol"), ProxyHeader::None),
        prefixes: prefixes(layers),
        shutdown_timeout: duration(layers, "shutdown_timeout"),
        log: LogConfig {
            format: if scalar(layers, "log_format") == "json" { LogFormat::Json } else { LogFormat::Text },
            filter: scalar(layers, "log_filter").to_owned(),
            refusals_per_second: u32::try_from(number(layers, "log_refusals_per_second")).unwrap_or(u32::MAX),
        },
        traces: traces(layers),
        capture: layers
            .path("capture_file")
            .map(|path| CaptureConfig { path, bytes_max: number(layers, "capture_bytes_max") }),
        access,
    };
    check_listeners(layers, &config, has_credentials);
    config
}

/// Returns the value of a setting, or its default.
fn scalar<'l>(layers: &'l Layers, name: &str) -> &'l str {
    let value = layers.get(name).and_then(|value| value.node.scalar());
    value.unwrap_or_else(|| {
        SETTINGS.iter().find(|setting| setting.name == name).map_or("", |setting| setting.default)
    })
}

fn number(layers: &Layers, name: &str) -> u64 {
    tollgate_document::number(scalar(layers, name)).unwrap_or(0)
}

fn size(layers: &Layers, name: &str) -> usize {
    usize::try_from(number(layers, name)).unwrap_or(usize::MAX)
}

fn duration(layers: &Layers, name: &str) -> Duration {
    shapes::duration(scalar(layers, name)).unwrap_or_default()
}

fn address(layers: &Layers, name: &str) -> Option<SocketAddr> {
    shapes::address(scalar(layers, name)).unwrap_or_default()
}

/// Returns the items of a list, each with its span. The items of a default have no span.
fn items(layers: &Layers, name: &str) -> Vec<(String, Option<SourceSpan>)> {
    match layers.get(name) {
        Some(value) => texts(&value.node),
        None => scalar(layers, name)
            .split(", ")
            .filter(|item| !item.is_empty())
            .map(|item| (item.to_owned(), None))
            .collect(),
    }
}

fn texts(node: &Node) -> Vec<(String, Option<SourceSpan>)> {
    node.one_or_many().iter().filter_map(|item| Some((item.text()?.to_owned(), Some(item.span)))).collect()
}

fn scopes(layers: &mut Layers, name: &str) -> Scopes {
    let words = items(layers, name);
    if words.len() > 1
        && let Some((_, span)) = words.iter().find(|(word, _)| word == "none")
    {
        let message = "`none` is combined with other scopes";
        layers.report(name, *span, |at| {
            Problem::error("none-and-more", at, message).help("remove `none`, or the other scopes")
        });
    }
    let scopes = words.iter().filter_map(|(word, _)| Scopes::named(word)).fold(Scopes::NONE, Scopes::and);
    let is_named_only =
        |word: &str| Scopes::named(word).is_some_and(|scope| !scope.common(Scopes::NAMED_ONLY).is_none());
    if let Some((word, span)) = words.iter().find(|(word, _)| is_named_only(word)) {
        let message = format!("scope `{word}` in `{name}`: only tokens can have it");
        let help = "remove it, and create a token with `tollgate token --name NAME --scopes change`";
        layers.report(name, *span, |at| Problem::error("scope-needs-token", at, message).help(help));
    }
    scopes.without(Scopes::NAMED_ONLY)
}

/// Returns the path of the file in a setting. Reports a problem if the file cannot be opened.
fn file(layers: &mut Layers, name: &str) -> Option<PathBuf> {
    path(layers, name, false)
}

/// Returns the path in a setting. Reports a problem if the file cannot be opened, or is a folder and must not be one.
fn path(layers: &mut Layers, name: &str, may_be_folder: bool) -> Option<PathBuf> {
    let path = layers.path(name)?;
    let opened = File::open(&path).and_then(|file| file.metadata()).and_then(|metadata| {
        if metadata.is_dir() && !may_be_folder { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(()) }
    });
    if let Err(error) = opened {
        let folder = match layers.origin(name) {
            Origin::File { .. } => "in the folder of this file",
            _ => "in the current directory",
        };
        let message = format!("cannot read {}: {error}", path.display());
        let help = format!("check the path and the permissions; relative paths start {folder}");
        layers.report(name, None, |at| Problem::error("unreadable-file", at, message).help(help));
    }
    Some(path)
}

/// Returns a secret and the setting that it comes from: a variable, or the file that another setting names. The higher
/// layer wins; within one layer, the file wins.
fn secret(
    layers: &mut Layers,
    variable: &'static str,
    file_setting: &'static str,
) -> Option<(String, &'static str)> {
    let by_file = layers.get(file_setting).map(|given| given.origin.layer());
    let by_variable = layers.get(variable).map(|given| given.origin.layer());
    if by_file.is_some() && by_file >= by_variable {
        let path = file(layers, file_setting)?;
        let text = files::read(&path).ok()?.text().trim_ascii().to_owned();
        if text.is_empty() {
            let message = format!("{} is empty", path.display());
            layers.report(file_setting, None, |at| {
                Problem::error("empty-secret", at, message).help("write the secret to it")
            });
            return None;
        }
        return Some((text, file_setting));
    }
    let given = layers.get(variable)?;
    Some((given.node.text()?.to_owned(), variable))
}

fn store(layers: &mut Layers, has_hash_key: bool) -> StoreConfig {
    let keys_max = size(layers, "keys_max");
    let own_keys_max = match layers.get("own_keys_max") {
        Some(_) => size(layers, "own_keys_max"),
        None => (keys_max / 10).max(1),
    };
    let state_bytes_max = layers.get("state_bytes_max").is_some().then(|| size(layers, "state_bytes_max"));
    let memory = StoreConfig::Memory { keys_max, own_keys_max, state_bytes_max };
    let password = secret(layers, "store_password", "store_password_file");
    let sentinel_password = secret(layers, "store_sentinel_password", "store_sentinel_password_file");
    let url = scalar(layers, "store").to_owned();
    if url == "memory" {
        for name in ["store_password_file", "store_sentinel_password_file"] {
            if layers.get(name).is_some() {
                let message = format!("unused setting `{name}`: the memory store has no password");
                let help = "remove it, or set store: redis://HOST:PORT";
                layers.report(name, None, |at| Problem::error("unused-setting", at, message).help(help));
            }
        }
        return memory;
    }
    if shapes::store(&url).is_err() {
        return memory;
    }
    if !has_sentinels(&url) && layers.get("store_sentinel_password_file").is_some() {
        let message = "unused setting `store_sentinel_password_file`: the store has no sentinels";
        let help = "remove it, or write redis+sentinel://HOST:PORT/NAME";
        layers.report("store_sentinel_password_file", None, |at| {
            Problem::error("unused-setting", at, message).help(help)
        });
    }
    let sentinel_password = sentinel_password.filter(|_| has_sentinels(&url));
    let keyed = ["hash_key", "hash_key_file"].iter().any(|name| layers.get(name).is_some());
    if !has_hash_key && !keyed {
        let message = "missing hash key: servers that share a store need the same one";
        let help = "create one with `openssl rand -hex 32 > key` and give it to every server, with hash_key_file or in the \
                    variable TOLLGATE_HASH_KEY";
        layers.report("store", None, |at| Problem::error("no-hash-key", at, message).help(help));
    }
    let text = |secret: &Option<(String, &str)>| secret.as_ref().map(|(text, _)| text.clone());
    match settings_of(&url, text(&password).as_deref(), text(&sentinel_password).as_deref()) {
        Ok(settings) => StoreConfig::Redis(Box::new(settings.deadline(duration(layers, "store_deadline")))),
        // Cannot happen: the URL was checked, and passwords are percent-encoded.
        Err(_) => memory,
    }
}

fn ledger(layers: &mut Layers, has_hash_key: bool) -> Option<LedgerConfig> {
    let password = secret(layers, "database_password", "database_password_file");
    let Some(url) = layers.get("database").and_then(|value| value.node.scalar()).map(str::to_owned) else {
        for name in
            ["database_password_file", "journal", "keep_journal", "journal_max", "queue_max", "data_dir"]
        {
            if layers.get(name).is_some() {
                let message = format!("unused setting `{name}`: there is no database");
                let help = "remove it, or set database: sqlite:PATH";
                layers.report(name, None, |at| Problem::error("unused-setting", at, message).help(help));
            }
        }
        return None;
    };
    // The shape has reported an invalid URL.
    let mut url: DatabaseUrl = url.parse().ok()?;
    if let Some((password, _)) = &password {
        url.set_password(password);
    }
    let keyed = ["hash_key", "hash_key_file"].iter().any(|name| layers.get(name).is_some());
    if !has_hash_key && !keyed {
        let message = "missing hash key: the ledger names subjects by it, after a restart too";
        let help = "create one with `openssl rand -hex 32 > key` and set hash_key_file or TOLLGATE_HASH_KEY";
        layers.report("database", None, |at| Problem::error("no-hash-key", at, message).help(help));
    }
    match layers.path("journal").or_else(|| url.default_journal()) {
        Some(journal) => {
            let changes = match layers.path("data_dir") {
                Some(folder) => folder.join("live-changes.json"),
                None => {
                    let mut path = journal.clone().into_os_string();
                    path.push(".changes");
                    path.into()
                }
            };
            Some(LedgerConfig {
                url,
                changes,
                keep_journal: duration(layers, "keep_journal"),
                journal_max: number(layers, "journal_max"),
                queue_max: duration(layers, "queue_max"),
                journal,
            })
        }
        None => {
            let message = "missing setting `journal`: PostgreSQL has no default folder";
            let help = "set journal: FOLDER, on a disk of this server";
            layers.report("database", None, |at| Problem::error("no-journal", at, message).help(help));
            None
        }
    }
}

fn hashers(layers: &mut Layers) -> Option<SubjectHashers> {
    let current = hasher(layers, "hash_key", "hash_key_file", "hash_key_id");
    let previous = hasher(layers, "previous_hash_key", "previous_hash_key_file", "previous_hash_key_id");
    match (current, previous) {
        (Some((current, _)), None) => Some(current.into()),
        (Some((current, _)), Some((previous, name))) => match SubjectHashers::rotating(current, previous) {
            Ok(hashers) => Some(hashers),
            Err(error) => {
                let help = "the two keys must differ, and so must hash_key_id and previous_hash_key_id";
                layers.report(name, None, |at| {
                    Problem::error("bad-rotation", at, error.to_string()).help(help)
                });
                None
            }
        },
        (None, Some((_, name))) => {
            if layers.get("hash_key").is_none() && layers.get("hash_key_file").is_none() {
                let message = "missing hash key: only the previous one is set";
                let help = "set hash_key_file or the variable TOLLGATE_HASH_KEY";
                layers.report(name, None, |at| Problem::error("no-hash-key", at, message).help(help));
            }
            None
        }
        (None, None) => None,
    }
}

/// Returns a hash key and the setting that it comes from.
fn hasher(
    layers: &mut Layers,
    variable: &'static str,
    file_setting: &'static str,
    id_setting: &'static str,
) -> Option<(SubjectHasher, &'static str)> {
    let id = u8::try_from(number(layers, id_setting)).unwrap_or(0);
    let Some((text, from)) = secret(layers, variable, file_setting) else {
        let is_set = [variable, file_setting].iter().any(|name| layers.get(name).is_some());
        if layers.get(id_setting).is_some() && !is_set {
            let message = format!("missing hash key: only `{id_setting}` is set");
            let help = format!("set {file_setting} or the variable {}", variable_name(variable));
            layers.report(id_setting, None, |at| Problem::error("no-hash-key", at, message).help(help));
        }
        return None;
    };
    match SubjectHasher::from_hex(id, &text) {
        Ok(hasher) => Some((hasher, from)),
        Err(error) => {
            let message = match layers.path(file_setting).filter(|_| from == file_setting) {
                Some(path) => format!("{}: {error}", path.display()),
                None => error.to_string(),
            };
            let help = "use the same key on every server";
            layers.report(from, None, |at| Problem::error("bad-hash-key", at, message).help(help));
            None
        }
    }
}

fn tls(layers: &mut Layers) -> Option<TlsConfig> {
    let [certificate, key, client_ca] =
        ["tls_certificate", "tls_key", "tls_client_ca"].map(|name| file(layers, name));
    let incomplete = match (&certificate, &key, &client_ca) {
        (Some(_), None, _) => Some(("tls_certificate", "tls_key")),
        (None, Some(_), _) => Some(("tls_key", "tls_certificate")),
        (None, None, Some(_)) => Some(("tls_client_ca", "tls_certificate")),
        _ => None,
    };
    if let Some((set, missing)) = incomplete {
        let message = format!("missing setting `{missing}`: `{set}` requires it");
        let help = "TLS needs tls_certificate and tls_key; tls_client_ca is optional";
        layers.report(set, None, |at| Problem::error("incomplete-tls", at, message).help(help));
    }
    Some(TlsConfig { certificate: certificate?, key: key?, client_ca })
}

fn access(layers: &mut Layers) -> Access {
    let Some(value) = layers.get("tokens") else { return Access::default() };
    let mut tokens: Vec<Token> = Vec::new();
    let mut problems = Vec::new();
    for item in value.node.list().unwrap_or_default() {
        let text = |key: &str| item.get(key).and_then(Node::text);
        let (Some(name), Some(digest)) =
            (text("name"), text("digest").and_then(|text| text.parse::<Digest>().ok()))
        else {
            continue;
        };
        let span = |key: &str| item.get(key).map_or(item.span, |node| node.span);
        if tokens.iter().any(|token| token.name == name) {
            let message = format!("duplicate token name `{name}`");
            let help = "give each token its own name, also during a rotation";
            problems.push((span("name"), "duplicate-token", message, help));
        }
        if let Some(other) = tokens.iter().find(|token| token.digest == digest) {
            let message = format!("duplicate digest: the tokens `{}` and `{name}` are the same", other.name);
            problems.push((
                span("digest"),
                "duplicate-token",
                message,
                "create another token with `tollgate token`",
            ));
        }
        let words = item.get("scopes").map(texts).unwrap_or_default();
        if let Some((_, Some(at))) = words.iter().find(|(word, _)| word == "none") {
            let message = format!("token `{name}` has no scope");
            problems.push((*at, "useless-token", message, "give it a scope, or remove it"));
        }
        let scopes = words.iter().filter_map(|(word, _)| Scopes::named(word)).fold(Scopes::NONE, Scopes::and);
        let pairs = item.get("attributes").map(Node::entries).unwrap_or_default();
        let pair = |entry: &Entry| Some((entry.key.text()?.to_owned(), entry.value.text()?.to_owned()));
        let rules = item.get("rules").map(texts).unwrap_or_default().into_iter().map(|(rule, _)| rule);
        let bound = Binding::new(pairs.iter().filter_map(pair).collect(), rules.collect());
        if !bound.is_empty() && !Scopes::CHECK_FAMILY.allow(scopes) {
            let message = format!(
                "token `{name}` is bound and has the scope `{}`, which concerns all attributes and rules",
                scopes.without(Scopes::CHECK_FAMILY)
            );
            let help =
                "give a bound token only check, refund, report and record; use another token for the rest";
            problems.push((span("scopes"), "bound-token-scope", message, help));
        }
        tokens.push(Token::new(name, digest, scopes, bound));
    }
    for (span, code, message, help) in problems {
        layers.report("tokens", Some(span), |at| Problem::error(code, at, message).help(help));
    }
    Access::new(tokens)
}

fn dialect(layers: &Layers) -> Dialect {
    match scalar(layers, "headers") {
        "ietf-07" => Dialect::Ietf07,
        "ietf-06" => Dialect::Ietf06,
        "x-ratelimit-epoch" => Dialect::XRateLimit { reset: Reset::Epoch },
        "x-ratelimit-delta" => Dialect::XRateLimit { reset: Reset::Delta },
        _ => Dialect::Ietf08,
    }
}

fn proxies(layers: &mut Layers) -> TrustedProxies {
    let blocks = cidr_blocks(layers, "trusted_proxies");
    let header = match scalar(layers, "proxy_header") {
        "forwarded" => ProxyHeader::Forwarded,
        "x-forwarded-for" => ProxyHeader::XForwardedFor,
        _ => ProxyHeader::None,
    };
    if header == ProxyHeader::None && !blocks.is_empty() {
        let message = "missing setting `proxy_header`: `trusted_proxies` requires it";
        let help = "set the header that your proxies write: proxy_header: x-forwarded-for or forwarded";
        layers
            .report("trusted_proxies", None, |at| Problem::error("no-proxy-header", at, message).help(help));
    } else if header != ProxyHeader::None && blocks.is_empty() && layers.get("trusted_proxies").is_none() {
        let message = "missing setting `trusted_proxies`: `proxy_header` requires it";
        let help =
            "any client can send the header; set the addresses of your proxies: trusted_proxies: 10.0.0.0/8";
        layers.report("proxy_header", None, |at| Problem::error("no-proxies", at, message).help(help));
    }
    TrustedProxies::new(blocks, header)
}

fn cidr_blocks(layers: &Layers, name: &str) -> Vec<Cidr> {
    items(layers, name).iter().filter_map(|(word, _)| word.parse().ok()).collect()
}

/// Returns the additional attribute names of descriptor entries, by key.
fn attribute_names(layers: &Layers) -> Vec<(String, String)> {
    let pair = |(word, _): &(String, Option<SourceSpan>)| {
        let (key, name) = shapes::attribute_name(word).ok()?;
        Some((key.to_owned(), name.to_owned()))
    };
    items(layers, "grpc_attributes").iter().filter_map(pair).collect()
}

fn prefixes(layers: &Layers) -> Prefixes {
    let bits = |name| u8::try_from(number(layers, name)).unwrap_or(u8::MAX);
    // The shape has reported what is out of range.
    Prefixes::new(bits("client_prefix_v4"), bits("client_prefix_v6")).unwrap_or_default()
}

fn traces(layers: &mut Layers) -> Option<TraceConfig> {
    let one_in = u32::try_from(number(layers, "traces_one_in")).unwrap_or(u32::MAX);
    let endpoint = scalar(layers, "traces_endpoint").to_owned();
    if endpoint.is_empty() {
        if layers.get("traces_one_in").is_some() {
            let message = "unused setting `traces_one_in`: no endpoint receives traces";
            let help = "set traces_endpoint: http://localhost:4317, or remove it";
            layers
                .report("traces_one_in", None, |at| Problem::error("unused-setting", at, message).help(help));
        }
        return None;
    }
    Some(TraceConfig { endpoint, one_in })
}

/// Checks the listeners. A server must not be reachable by other machines without credentials by accident.
fn check_listeners(layers: &mut Layers, config: &Config, has_credentials: bool) {
    let open: Vec<(&str, SocketAddr)> = config
        .addresses
        .iter()
        .filter_map(|(protocol, address)| Some((protocol.name(), (*address)?)))
        .collect();
    if open.is_empty() {
        let message = "no listener: all of them are off";
        let help = "switch one on, like http: 127.0.0.1:8080";
        layers.report("http", None, |at| Problem::error("no-port", at, message).help(help));
    }
    for (index, (name, address)) in open.iter().enumerate() {
        let same = open.iter().take(index).find(|(_, other)| other == address && address.port() != 0);
        if let Some((other, _)) = same {
            // At least one of the two is not a default: the defaults differ.
            let (set, other) = if layers.get(name).is_some() { (*name, *other) } else { (*other, *name) };
            let message = format!("duplicate address {address}: `{set}` and `{other}` listen on it");
            layers.report(set, None, |at| {
                Problem::error("same-port", at, message)
                    .help("use different ports, or switch one listener off")
            });
        }
        if !is_loopback(address.ip()) && !has_credentials && scalar(layers, "insecure") != "true" {
            let message = format!("public listener without access control: `{name}` listens on {address}");
            let help = format!(
                "create a token with `tollgate token` and add its digest to tokens; or verify client certificates with \
                 tls_client_ca; or listen on 127.0.0.1:{}; or set --insecure if only trusted callers can reach it",
                address.port()
            );
            layers.report(name, None, |at| Problem::error("public-without-access", at, message).help(help));
        }
    }
}
