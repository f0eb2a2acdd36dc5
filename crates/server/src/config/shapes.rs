//! What may be written for a setting: the shape by which its values are checked, wherever they come from.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use tollgate::core::Cidr;
use tollgate::shorthand;
use tollgate::store::redis::RedisSettings;
use tollgate_document::shape::{Fields, Shape, check, choice, fields, list, number, text};
use tollgate_document::{Node, Problem, Problems, SourceSpan, quote, suggest};

use super::settings::{Kind, SETTINGS, Setting};
use crate::access::Digest;
use crate::store_url::holds_password;

const SCOPES: &[(&str, &str)] = &[
    ("check", "Ask for admission, and everything that follows from it: refunds, leases, reports."),
    ("read", "Look: rules, metrics, explanations."),
    ("admin", "Change what is counted."),
    ("none", "Nothing, and beside nothing else."),
];
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// A whole file.
pub(super) fn file() -> &'static Shape {
    static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
        let add =
            |fields: Fields, setting: &Setting| fields.optional(setting.name, of(setting.kind), setting.help);
        SETTINGS.iter().fold(fields("a configuration"), add).into()
    });
    &SHAPE
}

/// Reports what is wrong with a value.
pub(super) fn check_value(kind: Kind, node: &Node, problems: &mut Problems) {
    if kind != Kind::Secret {
        check(&of(kind), node, problems);
        check_bounds(kind, node, problems);
    }
}

/// Reports what a shape cannot say.
pub(super) fn check_bounds(kind: Kind, node: &Node, problems: &mut Problems) {
    let Kind::Span(least_ms, most_ms) = kind else { return };
    let Some(Ok(span)) = node.text().map(span) else { return };
    let bounds = Duration::from_millis(least_ms)..=Duration::from_millis(most_ms);
    if !bounds.contains(&span) {
        let message = format!("found {}, expected {}", node.found(), kind.form());
        problems.push(Problem::error("span-out-of-range", node.span, message));
    }
}

fn of(kind: Kind) -> Shape {
    match kind {
        Kind::File => text("the path of a file").checked(path).into(),
        Kind::Store => text("`memory` or a URL like redis://HOST:PORT").checked(store).into(),
        Kind::Address => text("an address and a port, or `off`").checked(checked_address).into(),
        Kind::Number(least, most) => number(least, most),
        Kind::Span(..) => text("a length of time like 25ms or 10s").checked(checked_span).no_number().into(),
        Kind::Switch => Shape::Bool,
        Kind::Choice(words) => choice(words),
        Kind::Blocks => list(text("a block of addresses like 10.0.0.0/8").checked(block)).or_one().into(),
        Kind::Scopes => list(choice(SCOPES)).or_one().into(),
        Kind::Tokens => list(token()).into(),
        Kind::Filter => text("a filter like info or info,tollgate=debug").checked(filter).no_number().into(),
        Kind::Endpoint => text("a URL like http://localhost:4317").checked(endpoint).no_number().into(),
        Kind::Names => list(text("a name for a key like generic_key=action").checked(named)).or_one().into(),
        // Only a file is asked whether one stands in it.
        Kind::Secret => text("no secret").checked(misplaced).into(),
    }
}

fn token() -> Fields {
    fields("a token")
        .required("name", text("a name").checked(name), "What people call it, in logs too.")
        .required(
            "digest",
            text("a digest like sha256:…").checked(digest),
            "SHA-256 of the token, as `tollgate token` prints it.",
        )
        .required("scopes", list(choice(SCOPES)).at_least(1).or_one(), "What its bearer may do.")
}

fn misplaced(_: &str) -> Result<(), String> {
    Err("a secret does not stand in this file; put it into the variable of that name, TOLLGATE_…, or into a file of its own, \
         and name that with the key that ends with _file"
        .to_owned())
}

fn path(text: &str) -> Result<(), String> {
    if text.is_empty() { Err("a path is empty".to_owned()) } else { Ok(()) }
}

/// Says what is wrong with a store.
pub(super) fn store(text: &str) -> Result<(), String> {
    if text == "memory" {
        return Ok(());
    }
    // Nothing of such a URL is repeated.
    if holds_password(text) {
        return Err("the URL of the store holds a password, and others can see command lines and configurations; \
                    leave it out, and put it into the variable TOLLGATE_STORE_PASSWORD or into a file for \
                    store_password_file, and that of sentinels into TOLLGATE_STORE_SENTINEL_PASSWORD or \
                    store_sentinel_password_file; an @ that is part of a path or of a parameter is written %40"
            .to_owned());
    }
    if !text.contains("://") {
        let near = if suggest(text, ["memory"]).is_some() { "; did you mean `memory`?" } else { "" };
        return Err(format!("{} is neither `memory` nor a URL like redis://HOST:PORT{near}", quote(text)));
    }
    RedisSettings::url(text).map(drop).map_err(|error| error.to_string())
}

fn checked_address(text: &str) -> Result<(), String> {
    address(text).map(drop)
}

/// An address and a port; `None` for `off`.
pub(super) fn address(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "off" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        let port = text.rsplit(':').next().filter(|port| port.parse::<u16>().is_ok()).unwrap_or("8080");
        let found = quote(text);
        match text.rsplit_once(':').map(|(host, _)| host) {
            _ if ["on", "no", "none", "false", "disabled"].contains(&text) => {
                format!("{found} is no address; to listen nowhere write off")
            }
            Some("localhost") => format!("{found} is a name; write an address: 127.0.0.1:{port} or [::1]:{port}"),
            Some("" | "*") | None if text.ends_with(port) => format!(
                "{found} names no address; write 127.0.0.1:{port} for this machine alone, 0.0.0.0:{port} for everybody"
            ),
            Some(host) if host.contains(':') && !host.starts_with('[') => format!(
                "{found} is no address and port; an IPv6 address stands in brackets: [::1]:{port}"
            ),
            _ => format!("{found} is no address and port; write them like 127.0.0.1:8080 or [::1]:8080, or off"),
        }
    })
}

fn checked_span(text: &str) -> Result<(), String> {
    span(text).map(drop)
}

/// A length of time.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    shorthand::span(text).map(|span| Duration::from_micros(span.us())).map_err(|error| error.to_string())
}

fn block(text: &str) -> Result<(), String> {
    text.parse::<Cidr>().map(drop).map_err(|error| error.to_string())
}

fn named(text: &str) -> Result<(), String> {
    key_and_name(text).map(drop)
}

/// The key of an entry and the attribute that it is.
pub(super) fn key_and_name(text: &str) -> Result<(&str, &str), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    // A key may have an = in it, a name may not.
    match text.rsplit_once('=') {
        Some((key, name)) if !key.is_empty() && (1..=64).contains(&name.len()) && name.chars().all(plain) => {
            Ok((key, name))
        }
        _ => Err(format!(
            "{} names no key; write the key of an entry, = and an attribute of up to 64 letters, digits, `-`, `_` and `.`, \
             like generic_key=action",
            quote(text)
        )),
    }
}

/// What a token may be called.
pub(crate) fn name(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if (1..=64).contains(&text.len()) && text.chars().all(plain) {
        Ok(())
    } else {
        Err(format!("{} is no name; names have up to 64 letters, digits, `-`, `_` and `.`", quote(text)))
    }
}

fn digest(text: &str) -> Result<(), String> {
    text.parse::<Digest>().map(drop).map_err(|error| error.to_string())
}

fn filter(text: &str) -> Result<(), String> {
    for part in text.split(',') {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level).trim();
        if !LEVELS.contains(&level) {
            let near =
                suggest(level, LEVELS).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            return Err(format!(
                "{} is no level; there are off, error, warn, info, debug and trace{near}",
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
        Err("a collector's URL has no user and no password; write one like http://localhost:4317".to_owned())
    } else {
        Err(format!("{} is no URL of a collector; write one like http://localhost:4317", quote(text)))
    }
}

/// Where in a tree something stands that is not to be shown, right or wrong: passwords in URLs, tokens instead of digests.
pub(super) fn secrets(node: &Node, into: &mut Vec<SourceSpan>) {
    if let Some(text) = node.text()
        && (text.starts_with(super::TOKEN_PREFIX) || text.contains("://") && holds_password(text))
    {
        into.push(node.span);
    }
    node.list().unwrap_or_default().iter().for_each(|item| secrets(item, into));
    for entry in node.entries() {
        let misplaced = entry.key.text() == Some("digest")
            && entry.value.text().is_some_and(|text| digest(text).is_err());
        // Whatever is called a password or a secret does not belong into a file, and is not shown either.
        let named = entry.key.text().is_some_and(|key| {
            ["password", "secret", "token", "hash_key", "previous_hash_key"]
                .iter()
                .any(|word| key.ends_with(word))
        });
        if (misplaced || named) && entry.value.text().is_some() {
            into.push(entry.value.span);
        }
        secrets(&entry.value, into);
    }
}
