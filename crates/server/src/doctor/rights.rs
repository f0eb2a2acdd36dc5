//! The rights of the server's user in the store: enough, and not too many.

use tollgate::store::redis::{Deployment, InspectedServer, Inspection, RedisError};

use super::info::is_denied;
use super::{Finding, Patient};
use crate::serve::fleet;

const CHECK: &str = "store-rights";

/// Tries every command that checks need on a key of the namespace, which it writes for a second. Then tries harmless forms
/// of commands that they do not need.
pub(super) async fn examine(inspection: &mut Inspection, patient: &Patient<'_>, findings: &mut Vec<Finding>) {
    let namespace = fleet::namespace(patient.rules);
    let key = format!("{}tg:1:{namespace}:{{doctor}}:@doctor", inspection.prefix);
    let deployment = inspection.deployment;
    for server in &mut inspection.servers {
        findings.push(of_server(server, key.as_bytes(), deployment).await);
    }
}

type Attempt<'c> = (&'static str, &'c [&'c [u8]]);

async fn of_server(server: &mut InspectedServer, key: &[u8], deployment: Deployment) -> Finding {
    let needed: &[Attempt<'_>] = &[
        ("+eval", &[b"EVAL", b"return 1", b"1", key]),
        ("+evalsha", &[b"EVALSHA", b"0000000000000000000000000000000000000000", b"1", key]),
        ("+set", &[b"SET", key, b"1", b"PX", b"1000"]),
        ("+get", &[b"GET", key]),
        ("+getrange", &[b"GETRANGE", key, b"0", b"0"]),
        ("+setrange", &[b"SETRANGE", key, b"0", b"1"]),
        ("+pexpire", &[b"PEXPIRE", key, b"1000"]),
        ("+del", &[b"DEL", key]),
        ("+time", &[b"TIME"]),
        ("+info", &[b"INFO", b"stats"]),
    ];
    let of_deployment: &[Attempt<'_>] = match deployment {
        Deployment::Standalone => &[],
        Deployment::Sentinels => &[("+role", &[b"ROLE"])],
        Deployment::Cluster => &[
            ("+cluster|info", &[b"CLUSTER", b"INFO"]),
            ("+cluster|slots", &[b"CLUSTER", b"SLOTS"]),
            ("+asking", &[b"ASKING"]),
        ],
    };
    let at = server.address.clone();
    let mut missing = Vec::new();
    for (permission, words) in needed.iter().chain(of_deployment) {
        match server.command(words).await {
            Err(RedisError::ErrorReply(reply)) if is_denied(&reply) => missing.push(*permission),
            // Another error says nothing about rights: another server owns the key, or the server is full.
            Ok(_) | Err(RedisError::ErrorReply(_)) => (),
            Err(error) => {
                return Finding::skip(CHECK, format!("{at}: {}", crate::failure::error_chain(&error)));
            }
        }
    }
    if !missing.is_empty() {
        return Finding::fail(
            CHECK,
            format!("{at}: the user lacks {}", missing.join(" ")),
            "docs/guides/redis.md shows the complete ACL line",
        );
    }
    match unneeded(server).await {
        Err(error) => Finding::skip(CHECK, format!("{at}: {}", crate::failure::error_chain(&error))),
        Ok(names) if names.is_empty() => {
            Finding::pass(CHECK, format!("{at}: the user has the rights that it needs, and no others"))
        }
        Ok(names) => Finding::warn(
            CHECK,
            format!("{at}: the user may also use {}", names.join(", ")),
            "create a separate user with the ACL line of docs/guides/redis.md",
        ),
    }
}

/// What the user may do although servers do not need it. Only harmless commands run.
async fn unneeded(server: &mut InspectedServer) -> Result<Vec<&'static str>, RedisError> {
    let attempts: [Attempt<'_>; 4] = [
        ("CONFIG", &[b"CONFIG", b"GET", b"maxmemory-policy"]),
        ("ACL", &[b"ACL", b"WHOAMI"]),
        ("PUBLISH", &[b"PUBLISH", b"tollgate-doctor", b""]),
        ("keys outside of its prefix", &[b"GET", b"tollgate-doctor"]),
    ];
    let mut permitted = Vec::new();
    for (name, words) in &attempts {
        permitted.extend(is_permitted(server, words).await?.then_some(*name));
    }
    // KEYS blocks a large server, so it is queued and dropped: rights are checked when a command is queued.
    if is_permitted(server, &[b"MULTI"]).await? {
        permitted.extend(is_permitted(server, &[b"KEYS", b"tollgate-doctor"]).await?.then_some("KEYS"));
        server.command(&[b"DISCARD"]).await?;
    }
    Ok(permitted)
}

async fn is_permitted(server: &mut InspectedServer, words: &[&[u8]]) -> Result<bool, RedisError> {
    match server.command(words).await {
        Ok(_) => Ok(true),
        // In a cluster, another server may own the key: the permission was checked before.
        Err(RedisError::ErrorReply(reply)) => Ok(reply.starts_with("MOVED")),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// The commands of every ACL line of the guide are tried, so that a new one is not forgotten here.
    #[test]
    fn every_permission_of_the_guide_is_tried() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/redis.md");
        let page = std::fs::read_to_string(page).expect("the page can be read");
        let lines = page.lines().filter(|line| line.starts_with("user tollgate ") && line.contains("~tg:*"));
        let mut permissions: Vec<&str> =
            lines.flat_map(str::split_whitespace).filter(|word| word.starts_with('+')).collect();
        permissions.sort_unstable();
        permissions.dedup();
        assert!(permissions.len() > 10, "{permissions:?}");
        // A connection to a database of another number needs it before anything can be tried.
        for permission in permissions.into_iter().filter(|permission| *permission != "+select") {
            assert!(include_str!("rights.rs").contains(&format!("\"{permission}\"")), "{permission}");
        }
    }
}
