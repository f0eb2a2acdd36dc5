//! Checks every key that a store leaves in a server.

use std::time::Duration;

use super::Admin;
use super::resp::Value;

/// Returns the number of keys, if every key starts with `prefix`, expires within `ttl_max`, and contains none of `subjects`
/// in plain text, neither in its name nor in its value.
///
/// It searches the dump of each value, so the server must not compress values. [`Server`](crate::redis::Server) is
/// started that way.
pub fn no_orphans(
    admin: &mut Admin,
    prefix: &str,
    ttl_max: Duration,
    subjects: &[&str],
) -> Result<usize, String> {
    let keys = admin.scan("*").map_err(|error| format!("cannot list the keys: {error}"))?;
    let mut found = 0;
    for key in keys {
        let name = key.escape_ascii().to_string();
        match check_key(admin, &key, prefix, ttl_max, subjects) {
            Ok(Presence::There) => found += 1,
            Ok(Presence::Gone) => {}
            Err(problem) => return Err(format!("the key {name} {problem}")),
        }
    }
    Ok(found)
}

/// A key can expire while it is checked.
enum Presence {
    There,
    Gone,
}

fn check_key(
    admin: &mut Admin,
    key: &[u8],
    prefix: &str,
    ttl_max: Duration,
    subjects: &[&str],
) -> Result<Presence, String> {
    if !key.starts_with(prefix.as_bytes()) {
        return Err(format!("does not begin with {prefix}"));
    }
    match admin.pttl(key).map_err(|error| format!("cannot be asked for its end: {error}"))? {
        -2 => return Ok(Presence::Gone),
        -1 => return Err("never expires".to_owned()),
        // In the last millisecond of a key its TTL is 0.
        ttl_ms if ttl_ms.unsigned_abs() as u128 > ttl_max.as_millis() => {
            return Err(format!("expires only in {ttl_ms} ms, the bound is {} ms", ttl_max.as_millis()));
        }
        _ => {}
    }
    let value = match admin.command(&[b"DUMP", key]).map_err(|error| format!("cannot be read: {error}"))? {
        Value::Bulk(value) => value,
        Value::Nil => return Ok(Presence::Gone),
        reply => return Err(format!("cannot be read: {reply:?}")),
    };
    for subject in subjects.iter().filter(|subject| !subject.is_empty()) {
        if contains(key, subject) {
            return Err(format!("has the subject {subject:?} in its name"));
        }
        if contains(&value, subject) {
            return Err(format!("has the subject {subject:?} in its value"));
        }
    }
    Ok(Presence::There)
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}
