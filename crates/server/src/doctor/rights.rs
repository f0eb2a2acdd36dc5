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

async fn of_server(server: &mut InspectedServer, key: &[u8], deployment: Deployment) -> Finding {
    let needed: &[(&str, &[&[u8]])] = &[
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
    let of_deployment: &[(&str, &[&[u8]])] = match deployment {
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
    let unneeded: &[(&str, &[&[u8]])] = &[
        ("CONFIG", &[b"CONFIG", b"GET", b"maxmemory-policy"]),
        ("ACL", &[b"ACL", b"WHOAMI"]),
        ("KEYS", &[b"KEYS", b"tollgate-doctor"]),
        ("PUBLISH", &[b"PUBLISH", b"tollgate-doctor", b""]),
        ("keys outside of its prefix", &[b"GET", b"tollgate-doctor"]),
    ];
    let mut too_many = Vec::new();
    for (name, words) in unneeded {
        match server.command(words).await {
            Ok(_) => too_many.push(*name),
            // In a cluster, another server may own the key: the permission was checked before.
            Err(RedisError::ErrorReply(reply)) if reply.starts_with("MOVED") => too_many.push(*name),
            Err(_) => (),
        }
    }
    if too_many.is_empty() {
        return Finding::pass(CHECK, format!("{at}: the user has the rights that it needs, and no others"));
    }
    Finding::warn(
        CHECK,
        format!("{at}: the user may also use {}", too_many.join(", ")),
        "create a separate user with the ACL line of docs/guides/redis.md",
    )
}
