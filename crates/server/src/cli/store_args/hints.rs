//! Hints for the errors of a store.

use std::error::Error;

use tollgate::core::StoreError;
use tollgate::store::redis::{OpenError, RedisError};

use crate::failure::{Failure, error_chain};

/// Parts of error replies of Redis, with hints. The first match counts.
const REPLY_HINTS: [(&str, &str); 14] = [
    (
        "NOAUTH",
        "the server requires a password: set TOLLGATE_STORE_PASSWORD or --store-password-file, and write the user in the URL: \
         redis://USER@HOST:PORT",
    ),
    (
        "WRONGPASS",
        "check the user in the URL, and the password in TOLLGATE_STORE_PASSWORD or in the file of --store-password-file",
    ),
    ("DB index", "the database is the number at the end of the URL, like /0; servers have 16 by default"),
    ("NOPERM", PERMISSIONS),
    ("permission", PERMISSIONS),
    ("can't run this command", PERMISSIONS),
    ("OOM", "the server is out of memory; compare the output of `tollgate estimate` with maxmemory"),
    ("MOVED", CLUSTER),
    ("CROSSSLOT", CLUSTER),
    (
        "cluster support disabled",
        "this server is not part of a cluster; write redis:// instead of redis+cluster://",
    ),
    ("CLUSTERDOWN", CLUSTER_DOWN),
    (
        "unknown command",
        "if this server is a sentinel, write redis+sentinel://HOST:PORT/NAME; otherwise a command that Tollgate needs is \
         renamed or disabled",
    ),
    ("READONLY", "this server is a replica; write the address of the primary"),
    ("", "this is the reply of the server; its log may contain more"),
];

/// The same for error replies of a sentinel.
const SENTINEL_REPLY_HINTS: [(&str, &str); 5] = [
    (
        "No such master",
        "the name after the slash in the URL must be the one in the sentinels' configuration: `sentinel monitor NAME …`",
    ),
    (
        "NOAUTH",
        "the sentinels require a separate password: set TOLLGATE_STORE_SENTINEL_PASSWORD or --store-sentinel-password-file, and \
         write the user in the URL: sentinel_user=USER",
    ),
    (
        "WRONGPASS",
        "the sentinels have separate users and passwords; check sentinel_user= in the URL, and the password in \
         TOLLGATE_STORE_SENTINEL_PASSWORD or in the file of --store-sentinel-password-file",
    ),
    (
        "NOPERM",
        "the user of sentinel_user= lacks a permission on the sentinels; docs/guides/redis.md shows the complete ACL line",
    ),
    (
        "unknown command",
        "the server at this address is not a sentinel; the URL names the sentinels, which know the primary. Without \
         sentinels, write redis://",
    ),
];

const PERMISSIONS: &str = "the user lacks a permission, or may not use this prefix; docs/guides/redis.md shows the complete \
                           ACL line";
const CLUSTER: &str = "this server is part of a cluster; write redis+cluster:// instead of redis://";
const CLUSTER_DOWN: &str = "a part of the cluster is down; run `redis-cli cluster info`";

/// Converts the error of a store to a failure with a hint.
pub(super) fn failure(error: &StoreError) -> Failure {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<RedisError>());
    let Some(cause) = cause else {
        let hint =
            "another program writes keys with the prefix of Tollgate; use separate prefixes or databases";
        return Failure::of_store(error_chain(error), hint);
    };
    Failure::of_store(error_chain(cause), hint(cause))
}

/// Converts an error about certificate files to a failure with a hint.
pub(super) fn certificates(error: &OpenError) -> Failure {
    Failure::of_store(
        error_chain(error),
        "pass a file in PEM format with ca= in the URL: rediss://HOST:PORT?ca=FILE",
    )
}

fn hint(error: &RedisError) -> &'static str {
    match error {
        RedisError::ErrorReply(reply) => find_hint(&REPLY_HINTS, reply).unwrap_or_default(),
        RedisError::Connect { source, .. } if source.to_string().contains("certificate") => {
            "pass the CA certificate of the server with ca= in the URL: rediss://HOST:PORT?ca=FILE"
        }
        RedisError::Connect { .. } => {
            "check host and port, and that the server runs; write rediss:// if and only if it uses TLS"
        }
        RedisError::NoPrimary { source, .. } => match source.as_deref() {
            Some(source @ RedisError::ErrorReply(reply)) => {
                find_hint(&SENTINEL_REPLY_HINTS, reply).unwrap_or_else(|| hint(source))
            }
            Some(source) => hint(source),
            None => "check the hosts and ports of the sentinels, and that they run",
        },
        RedisError::Replica { .. } => "a failover is in progress; try again",
        RedisError::NoOwner { source, .. } => source.as_deref().map_or(CLUSTER_DOWN, hint),
        RedisError::PartiallyApplied(source) => hint(source),
        RedisError::NoReply | RedisError::ConnectionLost(_) => {
            "the server is slow or down, and may have charged the check; with --id a repeated check is charged once"
        }
        RedisError::Busy | RedisError::TooLate | RedisError::Closed => {
            "nothing was charged; the server is slow or down, try again"
        }
        RedisError::TooManyRules { .. } => {
            "let fewer rules match one request; `tollgate lint` lists rules that match every request"
        }
        RedisError::UnexpectedReply(_) => {
            "the server at this address does not speak the Redis protocol; check host and port"
        }
    }
}

/// Returns the hint for an error reply.
fn find_hint(hints: &[(&str, &'static str)], reply: &str) -> Option<&'static str> {
    hints.iter().find(|(part, _)| reply.contains(part)).map(|(_, hint)| *hint)
}
