//! The shapes that check the values of settings, whatever layer they come from.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use tollgate::core::{Cidr, Keyspace};
use tollgate::shorthand;
use tollgate::store::redis::RedisSettings;
use tollgate_document::shape::{Fields, Shape, check, choice, fields, list, map_of, number, text};
use tollgate_document::{Node, Problem, Problems, SourceSpan, quote, suggest};

use super::settings::{Kind, SETTINGS, Setting};
use crate::access::{Digest, Scopes};
use crate::config::store_url::holds_password;
use crate::serve::edge::request::NAME_BYTES_MAX;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The shape of a configuration file.
pub(super) fn file() -> &'static Shape {
    static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
        let add = |fields: Fields, setting: &Setting| {
            fields.optional(setting.name, shape(setting.kind), setting.help)
        };
        SETTINGS.iter().fold(fields("a configuration file"), add).into()
    });
    &SHAPE
}

/// Reports the problems of a value.
pub(super) fn check_value(kind: Kind, node: &Node, problems: &mut Problems) {
    if kind != Kind::Secret {
        check(&shape(kind), node, problems);
        check_bounds(kind, node, problems);
    }
}

/// Reports a duration outside its bounds, which a shape cannot express.
pub(super) fn check_bounds(kind: Kind, node: &Node, problems: &mut Problems) {
    let Kind::Duration(min_ms, max_ms) = kind else { return };
    let Some(Ok(duration)) = node.text().map(duration) else { return };
    let bounds = Duration::from_millis(min_ms)..=Duration::from_millis(max_ms);
    if !bounds.contains(&duration) {
        let message = format!("found {}, expected {}", node.found(), kind.description());
        problems.push(Problem::error("duration-out-of-range", node.span, message));
    }
}

fn shape(kind: Kind) -> Shape {
    match kind {
        Kind::File => text("the path of a file").checked(path).into(),
        Kind::Database => {
            text("a URL like sqlite:PATH or postgres://USER@HOST/DATABASE").checked(database).into()
        }
        Kind::Store => text("`memory` or a URL like redis://HOST:PORT").checked(store).into(),
        Kind::Address => text("an IP address and a port, or `off`").checked(checked_address).into(),
        Kind::Number(min, max) => number(min, max),
        Kind::Duration(..) => {
            text("a duration like 25ms or 10s").checked(checked_duration).no_number().into()
        }
        Kind::Bool => Shape::Bool,
        Kind::Choice(words) => choice(words),
        Kind::CidrBlocks => list(text("a CIDR block like 10.0.0.0/8").checked(cidr_block)).or_one().into(),
        Kind::Hosts => list(text("a host name like tollgate.internal").checked(host)).or_one().into(),
        Kind::Scopes => list(choice(Scopes::WORDS)).or_one().into(),
        Kind::Tokens => list(token()).into(),
        Kind::LogFilter => {
            text("a log filter like info or info,tollgate=debug").checked(log_filter).no_number().into()
        }
        Kind::Endpoint => text("a URL like http://localhost:4317").checked(endpoint).no_number().into(),
        Kind::AttributeNames => {
            list(text("a pair like generic_key=action").checked(checked_attribute_name)).or_one().into()
        }
        // Only a file is checked for secrets, which it must not contain.
        Kind::Secret => text("no secret").checked(misplaced_secret).into(),
    }
}

fn token() -> Fields {
    fields("a token")
        .required("name", text("a name").checked(token_name), "The name of the token, which logs contain.")
        .required(
            "digest",
            text("a digest like sha256:…").checked(digest),
            "The SHA-256 of the token, as `tollgate token` prints it.",
        )
        .required("scopes", list(choice(Scopes::WORDS)).at_least(1).or_one(), "What the token permits.")
        .optional(
            "attributes",
            map_of("attribute values", text("an attribute name").checked(bound_name), text("a value")),
            "The only values that the token may send for these attributes; it fills in absent ones.",
        )
        .optional(
            "rules",
            list(text("the id of a rule").checked(rule_id)).at_least(1).or_one(),
            "The only rules that may count requests with the token. A request that another rule matches is refused.",
        )
}

fn misplaced_secret(_: &str) -> Result<(), String> {
    Err("secrets are not accepted in this file; set the variable TOLLGATE_… instead, or write the secret to a separate file \
         and set the key that ends with _file"
        .to_owned())
}

fn path(text: &str) -> Result<(), String> {
    if text.is_empty() { Err("the path is empty; write the path of a file".to_owned()) } else { Ok(()) }
}

/// Checks the value of `store`.
pub(super) fn store(text: &str) -> Result<(), String> {
    if text == "memory" {
        return Ok(());
    }
    // No part of such a URL is printed.
    if holds_password(text) {
        return Err("the URL of the store contains a password, which others could see on a command line or in a file; \
                    remove it, and set the variable TOLLGATE_STORE_PASSWORD or store_password_file instead (for \
                    sentinels TOLLGATE_STORE_SENTINEL_PASSWORD or store_sentinel_password_file); write an @ in a path \
                    or parameter as %40"
            .to_owned());
    }
    if !text.contains("://") {
        let near = if suggest(text, ["memory"]).is_some() { "; did you mean `memory`?" } else { "" };
        return Err(format!(
            "invalid store {}: write `memory` or a URL like redis://HOST:PORT{near}",
            quote(text)
        ));
    }
    RedisSettings::url(text).map(drop).map_err(|error| error.to_string())
}

/// Checks the value of `database`.
pub(super) fn database(text: &str) -> Result<(), String> {
    if text.contains("://") && holds_password(text) {
        return Err("the URL of the database contains a password, which others could see on a command line or in a file; \
                    remove it, and set the variable TOLLGATE_DATABASE_PASSWORD or database_password_file instead"
            .to_owned());
    }
    text.parse::<tollgate_database::DatabaseUrl>()
        .map(drop)
        .map_err(|error| crate::failure::error_chain(&error))
}

fn checked_address(text: &str) -> Result<(), String> {
    address(text).map(drop)
}

/// Parses an IP address and a port. Returns `None` for `off`.
pub(super) fn address(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "off" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        let port = text.rsplit(':').next().filter(|port| port.parse::<u16>().is_ok()).unwrap_or("8080");
        let found = quote(text);
        match text.rsplit_once(':').map(|(host, _)| host) {
            _ if ["on", "no", "none", "false", "disabled"].contains(&text) => {
                format!("invalid address {found}: write `off` to switch the listener off")
            }
            Some("localhost") => {
                format!("host name in {found}: write an IP address, 127.0.0.1:{port} or [::1]:{port}")
            },
            Some("" | "*") | None if text.ends_with(port) => format!(
                "missing address in {found}: write 127.0.0.1:{port} for this machine only, or 0.0.0.0:{port} for all interfaces"
            ),
            Some(host) if host.contains(':') && !host.starts_with('[') => format!(
                "invalid address {found}: write an IPv6 address in brackets, like [::1]:{port}"
            ),
            _ => format!("invalid address {found}: write an IP address and a port like 127.0.0.1:8080 or [::1]:8080, or `off`"),
        }
    })
}

fn checked_duration(text: &str) -> Result<(), String> {
    duration(text).map(drop)
}

/// Parses a duration like 25ms.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    shorthand::span(text).map(|span| Duration::from_micros(span.us())).map_err(|error| error.to_string())
}

fn cidr_block(text: &str) -> Result<(), String> {
    text.parse::<Cidr>().map(drop).map_err(|error| error.to_string())
}

fn host(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    let has_port = text.parse::<std::net::IpAddr>().is_err() && text.contains(':');
    if (1..=253).contains(&text.len()) && text.chars().all(plain) && !has_port {
        Ok(())
    } else {
        Err(format!(
            "invalid host {}: write a name or an address, without scheme, brackets and port",
            quote(text)
        ))
    }
}

fn checked_attribute_name(text: &str) -> Result<(), String> {
    attribute_name(text).map(drop)
}

/// Splits `KEY=ATTRIBUTE` into the key of a descriptor entry and the name of an attribute.
pub(super) fn attribute_name(text: &str) -> Result<(&str, &str), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    // A key may contain `=`; an attribute name may not.
    match text.rsplit_once('=') {
        Some((key, name)) if !key.is_empty() && (1..=64).contains(&name.len()) && name.chars().all(plain) => {
            Ok((key, name))
        }
        _ => Err(format!(
            "invalid pair {}: write the key of an entry, `=` and an attribute name of up to 64 letters, digits, `-`, `_` and \
             `.`, like generic_key=action",
            quote(text)
        )),
    }
}

/// Checks the name of a token.
pub(crate) fn token_name(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if (1..=64).contains(&text.len()) && text.chars().all(plain) {
        Ok(())
    } else {
        Err(format!("invalid name {}: write up to 64 letters, digits, `-`, `_` and `.`", quote(text)))
    }
}

fn bound_name(text: &str) -> Result<(), String> {
    if (1..=NAME_BYTES_MAX).contains(&text.len()) {
        Ok(())
    } else {
        Err(format!("invalid attribute name {}: write 1 to {NAME_BYTES_MAX} bytes", quote(text)))
    }
}

/// Checks the id of a rule that a token is bound to.
pub(crate) fn rule_id(text: &str) -> Result<(), String> {
    Keyspace::new("rules", text).map(drop).map_err(|error| error.to_string())
}

fn digest(text: &str) -> Result<(), String> {
    text.parse::<Digest>().map(drop).map_err(|error| error.to_string())
}

fn log_filter(text: &str) -> Result<(), String> {
    for part in text.split(',') {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level).trim();
        if !LEVELS.contains(&level) {
            let near =
                suggest(level, LEVELS).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            return Err(format!(
                "unknown level {}: the levels are off, error, warn, info, debug and trace{near}",
                quote(level)
            ));
        }
    }
    Ok(())
}

fn endpoint(text: &str) -> Result<(), String> {
    let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let host = host.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:[]".contains(c);
    if !host.is_empty() && host.chars().all(plain) {
        Ok(())
    } else if text.contains('@') {
        Err("the URL of a collector must not contain a user or password: write one like http://localhost:4317".to_owned())
    } else {
        Err(format!("invalid URL {}: write one like http://localhost:4317", quote(text)))
    }
}

/// Finds the secrets in a tree, also misplaced ones: passwords in URLs, tokens instead of digests.
pub(super) fn find_secrets(node: &Node, into: &mut Vec<SourceSpan>) {
    if let Some(text) = node.text()
        && (text.starts_with(super::TOKEN_PREFIX) || text.contains("://") && holds_password(text))
    {
        into.push(node.span);
    }
    node.list().unwrap_or_default().iter().for_each(|item| find_secrets(item, into));
    for entry in node.entries() {
        let misplaced = entry.key.text() == Some("digest")
            && entry.value.text().is_some_and(|text| digest(text).is_err());
        // A key that names a password or secret may hold one by mistake.
        let named = entry.key.text().is_some_and(|key| {
            ["password", "secret", "token", "hash_key", "previous_hash_key"]
                .iter()
                .any(|word| key.ends_with(word))
        });
        if (misplaced || named) && entry.value.text().is_some() {
            into.push(entry.value.span);
        }
        find_secrets(&entry.value, into);
    }
}
