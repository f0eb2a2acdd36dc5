//! What a store's error means for whoever typed the command.

use std::error::Error;

use tollgate::core::StoreError;
use tollgate::store::redis::{OpenError, RedisError};

use crate::failure::{Failure, error_chain};

/// What Redis says, and what to do about it; the first that fits.
const ANSWERS: [(&str, &str); 14] = [
    (
        "NOAUTH",
        "the server wants a password: put it into the variable TOLLGATE_STORE_PASSWORD or into a file for \
         --store-password-file, and the user into the URL: redis://USER@HOST:PORT",
    ),
    (
        "WRONGPASS",
        "user or password is wrong; the user stands in the URL, the password in the variable TOLLGATE_STORE_PASSWORD or in \
         the file of --store-password-file",
    ),
    (
        "DB index",
        "the database is the number at the end of the URL, like /0; servers have 16 unless told otherwise",
    ),
    ("NOPERM", PERMISSIONS),
    ("permission", PERMISSIONS),
    ("can't run this command", PERMISSIONS),
    (
        "OOM",
        "the server is full; `tollgate estimate` says how much memory the rules need, to be compared with maxmemory",
    ),
    ("MOVED", CLUSTER),
    ("CROSSSLOT", CLUSTER),
    ("cluster support disabled", "this server is no cluster; write redis:// instead of redis+cluster://"),
    ("CLUSTERDOWN", NOT_WHOLE),
    (
        "unknown command",
        "a sentinel knows no such command; if this is one, write redis+sentinel://HOST:PORT/NAME. If not, a command was \
         renamed or is not offered, and Tollgate cannot work without it",
    ),
    ("READONLY", "this server is a replica; name the one that takes writes"),
    ("", "the answer is the server's own; its log may tell more"),
];

/// The same of a sentinel.
const SENTINEL_ANSWERS: [(&str, &str); 5] = [
    (
        "No such master",
        "the name behind the slash in the URL is the one in the sentinels' `sentinel monitor NAME …`",
    ),
    (
        "NOAUTH",
        "the sentinels want a password of their own: put it into the variable TOLLGATE_STORE_SENTINEL_PASSWORD or into a \
         file for --store-sentinel-password-file, and the user into the URL: sentinel_user=USER",
    ),
    (
        "WRONGPASS",
        "the sentinels have users and passwords of their own; the user stands in the URL as sentinel_user=, the password in \
         the variable TOLLGATE_STORE_SENTINEL_PASSWORD or in the file of --store-sentinel-password-file",
    ),
    (
        "NOPERM",
        "the user of sentinel_user= lacks a permission on the sentinels; docs/guides/redis.md has the ACL line with all that \
         are needed",
    ),
    (
        "unknown command",
        "what answers there is no sentinel; the URL names the sentinels, which say where the primary is. Without sentinels \
         write redis://",
    ),
];

const PERMISSIONS: &str = "the user lacks a permission, or the prefix is not one of its own; docs/guides/redis.md has the \
                           ACL line with all that are needed";
const CLUSTER: &str = "this server is part of a cluster; write redis+cluster:// instead of redis://";
const NOT_WHOLE: &str = "the cluster is not whole; `redis-cli cluster info` says more";

/// A store that could not decide, in words.
pub(super) fn failure(error: &StoreError) -> Failure {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<RedisError>());
    let Some(cause) = cause else {
        let hint =
            "something else writes under the prefix of Tollgate; give each its own, or its own database";
        return Failure::of_store(error_chain(error), hint);
    };
    Failure::of_store(error_chain(cause), hint(cause))
}

/// Certificates that cannot be read.
pub(super) fn certificates(error: &OpenError) -> Failure {
    Failure::of_store(
        error_chain(error),
        "name a file in PEM form with ca= in the URL: rediss://HOST:PORT?ca=FILE",
    )
}

fn hint(error: &RedisError) -> &'static str {
    match error {
        RedisError::ErrorReply(answer) => said(&ANSWERS, answer).unwrap_or_default(),
        RedisError::Connect { source, .. } if source.to_string().contains("certificate") => {
            "name the file of whoever vouches for the server with ca= in the URL: rediss://HOST:PORT?ca=FILE"
        }
        RedisError::Connect { .. } => {
            "check host and port, that the server runs, and that rediss:// is written if and only if it speaks TLS"
        }
        RedisError::NoPrimary { source, .. } => match source.as_deref() {
            Some(source @ RedisError::ErrorReply(answer)) => {
                said(&SENTINEL_ANSWERS, answer).unwrap_or_else(|| hint(source))
            }
            Some(source) => hint(source),
            None => "check hosts and ports of the sentinels, and that they run",
        },
        RedisError::Replica { .. } => "the sentinels are about to name another; ask again",
        RedisError::NoOwner { source, .. } => source.as_deref().map_or(NOT_WHOLE, hint),
        RedisError::PartiallyApplied(source) => hint(source),
        RedisError::NoReply | RedisError::ConnectionLost(_) => {
            "the server is slow or gone, and may have charged the check; with --id it can be asked again without harm"
        }
        RedisError::Busy | RedisError::TooLate | RedisError::Closed => {
            "nothing was charged; the server is slow or gone, ask again"
        }
        RedisError::TooManyRules { .. } => {
            "let fewer rules match one request: the linter names those that match everything"
        }
        RedisError::UnexpectedReply(_) => "what answers there is no Redis; check host and port",
    }
}

/// What is to be done about an answer.
fn said(hints: &[(&str, &'static str)], answer: &str) -> Option<&'static str> {
    hints.iter().find(|(word, _)| answer.contains(word)).map(|(_, hint)| *hint)
}
