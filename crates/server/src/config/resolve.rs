//! What the given settings mean together.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tollgate::core::{Cidr, Prefixes, ProxyHeader, SubjectHasher, SubjectHashers, TrustedProxies};
use tollgate::headers::{Dialect, Reset};
use tollgate_document::{Node, Problem, SourceSpan};

use super::layers::{Layers, Origin};
use super::settings::SETTINGS;
use super::{
    AttributeNames, Config, GrpcConfig, LogConfig, LogFormat, StoreConfig, TlsConfig, TraceConfig, shapes,
};
use crate::access::{Access, Digest, Scopes, Token};
use crate::files;
use crate::protocol::Protocol;
use crate::store_url::{has_sentinels, settings_of};

/// Makes a configuration. It is good for nothing if there are problems among the layers afterwards.
pub(super) fn resolve(layers: &mut Layers, cores: usize) -> Config {
    let (access, tls) = (access(layers), tls(layers));
    let guarded = !access.is_empty() || tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    let anonymous = match layers.given("anonymous") {
        Some(_) => scopes(layers, "anonymous"),
        None if guarded => Scopes::NONE,
        None => Scopes::CHECK.and(Scopes::READ),
    };
    let hashers = hashers(layers);
    let config = Config {
        rules: file(layers, "rules"),
        store: store(layers, hashers.is_some()),
        hashers,
        request_id_horizon: span(layers, "request_id_horizon"),
        addresses: Protocol::ALL.map(|protocol| (protocol, address(layers, protocol.name()))),
        tls,
        anonymous,
        certified: scopes(layers, "certified"),
        threads: layers.given("threads").map_or(cores, |_| size(layers, "threads")),
        connections_max: size(layers, "connections_max"),
        dialect: dialect(layers),
        grpc: GrpcConfig {
            reflection: word(layers, "grpc_reflection") == "true",
            names: AttributeNames::new(names(layers)),
        },
        proxies: proxies(layers),
        prefixes: prefixes(layers),
        grace: span(layers, "grace"),
        log: LogConfig {
            format: if word(layers, "log_format") == "json" { LogFormat::Json } else { LogFormat::Text },
            filter: word(layers, "log_filter").to_owned(),
            refusals_per_second: u32::try_from(number(layers, "log_refusals_per_second")).unwrap_or(u32::MAX),
        },
        traces: traces(layers),
        access,
    };
    ports(layers, &config, guarded);
    config
}

/// What was given, or else the default.
fn word<'l>(layers: &'l Layers, name: &str) -> &'l str {
    let given = layers.given(name).and_then(|given| given.node.scalar());
    given.unwrap_or_else(|| {
        SETTINGS.iter().find(|setting| setting.name == name).map_or("", |setting| setting.default)
    })
}

fn number(layers: &Layers, name: &str) -> u64 {
    tollgate_document::number(word(layers, name)).unwrap_or(0)
}

fn size(layers: &Layers, name: &str) -> usize {
    usize::try_from(number(layers, name)).unwrap_or(usize::MAX)
}

fn span(layers: &Layers, name: &str) -> Duration {
    shapes::span(word(layers, name)).unwrap_or_default()
}

fn address(layers: &Layers, name: &str) -> Option<SocketAddr> {
    shapes::address(word(layers, name)).unwrap_or_default()
}

/// The texts of a list, each with its place; those of the default have none.
fn words(layers: &Layers, name: &str) -> Vec<(String, Option<SourceSpan>)> {
    match layers.given(name) {
        Some(given) => texts(&given.node),
        None => word(layers, name)
            .split(", ")
            .filter(|word| !word.is_empty())
            .map(|word| (word.to_owned(), None))
            .collect(),
    }
}

fn texts(node: &Node) -> Vec<(String, Option<SourceSpan>)> {
    node.one_or_many().iter().filter_map(|item| Some((item.text()?.to_owned(), Some(item.span)))).collect()
}

fn scopes(layers: &mut Layers, name: &str) -> Scopes {
    let words = words(layers, name);
    if words.len() > 1
        && let Some((_, span)) = words.iter().find(|(word, _)| word == "none")
    {
        let message = "`none` stands beside other scopes";
        layers.report(name, *span, |at| {
            Problem::error("none-and-more", at, message).help("keep one or the other")
        });
    }
    words.iter().filter_map(|(word, _)| Scopes::named(word)).fold(Scopes::NONE, Scopes::and)
}

/// A file that can be opened.
fn file(layers: &mut Layers, name: &str) -> Option<PathBuf> {
    let path = layers.path(name)?;
    let opened = File::open(&path).and_then(|file| file.metadata()).and_then(|metadata| {
        if metadata.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(()) }
    });
    if let Err(error) = opened {
        let folder = match layers.origin(name) {
            Origin::File { .. } => "in the folder of this file",
            _ => "in the current directory",
        };
        let message = format!("cannot read {}: {error}", path.display());
        let help = format!("check the path, and who may read it; relative paths start {folder}");
        layers.report(name, None, |at| Problem::error("unreadable-file", at, message).help(help));
    }
    Some(path)
}

/// What a variable holds, or the file that a setting names: the higher layer counts, and of one layer the file.
fn secret(
    layers: &mut Layers,
    variable: &'static str,
    file_setting: &'static str,
) -> Option<(String, &'static str)> {
    let by_file = layers.given(file_setting).map(|given| given.origin.layer());
    let by_variable = layers.given(variable).map(|given| given.origin.layer());
    if by_file.is_some() && by_file >= by_variable {
        let path = file(layers, file_setting)?;
        let text = files::read(&path).ok()?.text().trim_ascii().to_owned();
        if text.is_empty() {
            let message = format!("{} is empty", path.display());
            layers.report(file_setting, None, |at| {
                Problem::error("empty-secret", at, message).help("put the secret into it")
            });
            return None;
        }
        return Some((text, file_setting));
    }
    let given = layers.given(variable)?;
    Some((given.node.text()?.to_owned(), variable))
}

fn store(layers: &mut Layers, has_hash_key: bool) -> StoreConfig {
    let keys_max = size(layers, "keys_max");
    let password = secret(layers, "store_password", "store_password_file");
    let sentinel_password = secret(layers, "store_sentinel_password", "store_sentinel_password_file");
    let url = word(layers, "store").to_owned();
    if url == "memory" {
        for name in ["store_password_file", "store_sentinel_password_file"] {
            if layers.given(name).is_some() {
                let message = format!("`{name}` is given, and the store is in memory");
                let help = "leave it out, or name the store: store: redis://HOST:PORT";
                layers.report(name, None, |at| Problem::error("unused-setting", at, message).help(help));
            }
        }
        return StoreConfig::Memory { keys_max };
    }
    if shapes::store(&url).is_err() {
        return StoreConfig::Memory { keys_max };
    }
    if !has_sentinels(&url) && layers.given("store_sentinel_password_file").is_some() {
        let message = "`store_sentinel_password_file` is given, and the store has no sentinels";
        let help = "leave it out, or write redis+sentinel://HOST:PORT/NAME";
        layers.report("store_sentinel_password_file", None, |at| {
            Problem::error("unused-setting", at, message).help(help)
        });
    }
    let sentinel_password = sentinel_password.filter(|_| has_sentinels(&url));
    let keyed = ["hash_key", "hash_key_file"].iter().any(|name| layers.given(name).is_some());
    if !has_hash_key && !keyed {
        let message = "a shared store needs the hash key of your servers";
        let help = "make one with `openssl rand -hex 32 > key`, give it to every server, and name it with hash_key_file, or \
                    put it into the variable TOLLGATE_HASH_KEY";
        layers.report("store", None, |at| Problem::error("no-hash-key", at, message).help(help));
    }
    let text = |secret: &Option<(String, &str)>| secret.as_ref().map(|(text, _)| text.clone());
    match settings_of(&url, text(&password).as_deref(), text(&sentinel_password).as_deref()) {
        Ok(settings) => StoreConfig::Redis(Box::new(settings.deadline(span(layers, "store_deadline")))),
        // The passwords are written as a URL needs them.
        Err(_) => StoreConfig::Memory { keys_max },
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
                let help = "while a key takes the place of another they differ, and so do hash_key_id and \
                            previous_hash_key_id";
                layers.report(name, None, |at| {
                    Problem::error("bad-rotation", at, error.to_string()).help(help)
                });
                None
            }
        },
        (None, Some((_, name))) => {
            if layers.given("hash_key").is_none() && layers.given("hash_key_file").is_none() {
                let message = "there is a previous hash key, and no current one";
                let help =
                    "name the current one with hash_key_file, or put it into the variable TOLLGATE_HASH_KEY";
                layers.report(name, None, |at| Problem::error("no-hash-key", at, message).help(help));
            }
            None
        }
        (None, None) => None,
    }
}

/// A hash key, and the setting that it comes from.
fn hasher(
    layers: &mut Layers,
    variable: &'static str,
    file_setting: &'static str,
    id_setting: &'static str,
) -> Option<(SubjectHasher, &'static str)> {
    let id = u8::try_from(number(layers, id_setting)).unwrap_or(0);
    let Some((text, from)) = secret(layers, variable, file_setting) else {
        let given = [variable, file_setting].iter().any(|name| layers.given(name).is_some());
        if layers.given(id_setting).is_some() && !given {
            let message = format!("`{id_setting}` is given, and there is no such key");
            let help = format!(
                "name its file with {file_setting}, or put it into the variable TOLLGATE_{}",
                variable.to_uppercase()
            );
            layers.report(id_setting, None, |at| Problem::error("no-hash-key", at, message).help(help));
        }
        return None;
    };
    match SubjectHasher::from_hex(id, &text) {
        Ok(hasher) => Some((hasher, from)),
        Err(error) => {
            let message = match layers.path(file_setting).filter(|_| from == file_setting) {
                Some(path) => format!("in {}: {error}", path.display()),
                None => error.to_string(),
            };
            let help = "every server has the same";
            layers.report(from, None, |at| Problem::error("bad-hash-key", at, message).help(help));
            None
        }
    }
}

fn tls(layers: &mut Layers) -> Option<TlsConfig> {
    let [certificate, key, client_ca] =
        ["tls_certificate", "tls_key", "tls_client_ca"].map(|name| file(layers, name));
    let lacks = match (&certificate, &key, &client_ca) {
        (Some(_), None, _) => Some(("tls_certificate", "tls_key")),
        (None, Some(_), _) => Some(("tls_key", "tls_certificate")),
        (None, None, Some(_)) => Some(("tls_client_ca", "tls_certificate")),
        _ => None,
    };
    if let Some((given, lacking)) = lacks {
        let message = format!("`{given}` is given, and `{lacking}` is not");
        let help = "TLS needs tls_certificate and tls_key; tls_client_ca comes on top of them";
        layers.report(given, None, |at| Problem::error("incomplete-tls", at, message).help(help));
    }
    Some(TlsConfig { certificate: certificate?, key: key?, client_ca })
}

fn access(layers: &mut Layers) -> Access {
    let Some(given) = layers.given("tokens") else { return Access::default() };
    let mut tokens: Vec<Token> = Vec::new();
    let mut problems = Vec::new();
    for item in given.node.list().unwrap_or_default() {
        let text = |key: &str| item.get(key).and_then(Node::text);
        let (Some(name), Some(digest)) =
            (text("name"), text("digest").and_then(|text| text.parse::<Digest>().ok()))
        else {
            continue;
        };
        let span = |key: &str| item.get(key).map_or(item.span, |node| node.span);
        if tokens.iter().any(|token| token.name == name) {
            let message = format!("two tokens are called `{name}`");
            let help = "a name stands for one token, also while one takes the place of another";
            problems.push((span("name"), "duplicate-token", message, help));
        }
        if let Some(other) = tokens.iter().find(|token| token.digest == digest) {
            let message = format!("`{name}` has the digest of `{}`", other.name);
            problems.push((
                span("digest"),
                "duplicate-token",
                message,
                "make another one with `tollgate token`",
            ));
        }
        let words = item.get("scopes").map(texts).unwrap_or_default();
        if let Some((_, Some(at))) = words.iter().find(|(word, _)| word == "none") {
            let message = format!("`{name}` may do nothing");
            problems.push((*at, "useless-token", message, "give it check, read or admin, or leave it out"));
        }
        let scopes = words.iter().filter_map(|(word, _)| Scopes::named(word)).fold(Scopes::NONE, Scopes::and);
        tokens.push(Token { name: name.to_owned(), digest, scopes });
    }
    for (span, code, message, help) in problems {
        layers.report("tokens", Some(span), |at| Problem::error(code, at, message).help(help));
    }
    Access::new(tokens)
}

fn dialect(layers: &Layers) -> Dialect {
    match word(layers, "headers") {
        "ietf-07" => Dialect::Ietf07,
        "ietf-06" => Dialect::Ietf06,
        "x-ratelimit-epoch" => Dialect::XRateLimit { reset: Reset::Epoch },
        "x-ratelimit-delta" => Dialect::XRateLimit { reset: Reset::Delta },
        _ => Dialect::Ietf08,
    }
}

fn proxies(layers: &mut Layers) -> TrustedProxies {
    let blocks: Vec<Cidr> =
        words(layers, "trusted_proxies").iter().filter_map(|(word, _)| word.parse().ok()).collect();
    let header = match word(layers, "proxy_header") {
        "forwarded" => ProxyHeader::Forwarded,
        "x-forwarded-for" => ProxyHeader::XForwardedFor,
        _ => ProxyHeader::None,
    };
    if header == ProxyHeader::None && !blocks.is_empty() {
        let message = "proxies are trusted, and no header field to read from them is named";
        let help = "name the one that your proxies write: proxy_header: x-forwarded-for or forwarded";
        layers
            .report("trusted_proxies", None, |at| Problem::error("no-proxy-header", at, message).help(help));
    } else if header != ProxyHeader::None && blocks.is_empty() && layers.given("trusted_proxies").is_none() {
        let message = "a header field is to be read, and no proxy is trusted to write it";
        let help = "anybody can send it; name your proxies' addresses: trusted_proxies: 10.0.0.0/8";
        layers.report("proxy_header", None, |at| Problem::error("no-proxies", at, message).help(help));
    }
    TrustedProxies::new(blocks, header)
}

/// The attributes that entries of descriptors are, by their keys.
fn names(layers: &Layers) -> Vec<(String, String)> {
    let pair = |(word, _): &(String, Option<SourceSpan>)| {
        let (key, name) = shapes::key_and_name(word).ok()?;
        Some((key.to_owned(), name.to_owned()))
    };
    words(layers, "grpc_attributes").iter().filter_map(pair).collect()
}

fn prefixes(layers: &Layers) -> Prefixes {
    let bits = |name| u8::try_from(number(layers, name)).unwrap_or(u8::MAX);
    // What is out of range was told by the shape.
    Prefixes::new(bits("client_prefix_v4"), bits("client_prefix_v6")).unwrap_or_default()
}

fn traces(layers: &mut Layers) -> Option<TraceConfig> {
    let one_in = u32::try_from(number(layers, "traces_one_in")).unwrap_or(u32::MAX);
    let endpoint = word(layers, "traces_endpoint").to_owned();
    if endpoint.is_empty() {
        if layers.given("traces_one_in").is_some() {
            let message = "`traces_one_in` is given, and there is nowhere to send traces";
            let help = "name the collector: traces_endpoint: http://localhost:4317";
            layers
                .report("traces_one_in", None, |at| Problem::error("unused-setting", at, message).help(help));
        }
        return None;
    }
    Some(TraceConfig { endpoint, one_in })
}

/// Nobody is to find out later that a limiter was open to everybody.
fn ports(layers: &mut Layers, config: &Config, guarded: bool) {
    let open: Vec<(&str, SocketAddr)> = config
        .addresses
        .iter()
        .filter_map(|(protocol, address)| Some((protocol.name(), (*address)?)))
        .collect();
    if open.is_empty() {
        let message = "every port is off";
        let help = "let the server listen somewhere: http: 127.0.0.1:8080";
        layers.report("http", None, |at| Problem::error("no-port", at, message).help(help));
    }
    for (index, (name, address)) in open.iter().enumerate() {
        let same = open.iter().take(index).find(|(_, other)| other == address && address.port() != 0);
        if let Some((other, _)) = same {
            // One of the two was given: the defaults differ.
            let (given, other) = if layers.given(name).is_some() { (*name, *other) } else { (*other, *name) };
            let message = format!("`{given}` and `{other}` listen on {address}");
            layers.report(given, None, |at| {
                Problem::error("same-port", at, message).help("give each its own port, or switch one off")
            });
        }
        if !is_loopback(address.ip()) && !guarded && word(layers, "insecure") != "true" {
            let message =
                format!("`{name}` listens on {address}, where others can reach it, and anybody could ask");
            let help = format!(
                "make a token with `tollgate token` and put its digest into tokens; or let only clients with certificates in, \
                 by tls_client_ca; or listen on 127.0.0.1:{}; or say --insecure if the network lets nobody else through",
                address.port()
            );
            layers.report(name, None, |at| Problem::error("public-without-access", at, message).help(help));
        }
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}
