//! What a store's error means for whoever typed the command.

use std::error::Error;

use tollgate::core::StoreError;
use tollgate::store::redis::{OpenError, RedisError};

use crate::terminal::{Failure, harmless};

/// What Redis says, and what to do about it; the first that fits.
const ANSWERS: [(&str, &str); 10] = [
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
    ("MOVED", "this server is part of a cluster; write redis+cluster:// instead of redis://"),
    ("READONLY", "this server is a replica; name the one that takes writes"),
    ("", "the answer is the server's own; its log may tell more"),
];

const PERMISSIONS: &str = "the user lacks a permission, or the prefix is not one of its own; docs/guides/redis.md has the \
                           ACL line with all that are needed";

/// A store that could not decide, in words.
pub(super) fn failure(error: &StoreError) -> Failure {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<RedisError>());
    let Some(cause) = cause else {
        let hint =
            "something else writes under the prefix of Tollgate; give each its own, or its own database";
        return Failure::of_store(chain(error), hint);
    };
    Failure::of_store(chain(cause), hint(cause))
}

/// Certificates that cannot be read.
pub(super) fn certificates(error: &OpenError) -> Failure {
    Failure::of_store(chain(error), "name a file in PEM form with ca= in the URL: rediss://HOST:PORT?ca=FILE")
}

fn hint(error: &RedisError) -> &'static str {
    match error {
        RedisError::Refused(answer) => {
            ANSWERS.iter().find(|(word, _)| answer.contains(word)).map_or("", |(_, hint)| *hint)
        }
        RedisError::Connect { source, .. } if source.to_string().contains("certificate") => {
            "name the file of whoever vouches for the server with ca= in the URL: rediss://HOST:PORT?ca=FILE"
        }
        RedisError::Connect { .. } => {
            "check host and port, that the server runs, and that rediss:// is written if and only if it speaks TLS"
        }
        RedisError::NoPrimary { source, .. } => match source.as_deref() {
            Some(RedisError::Refused(answer)) if answer.contains("No such master") => {
                "the name behind the slash in the URL is the one in the sentinels' `sentinel monitor NAME …`"
            }
            Some(source) => hint(source),
            None => "check hosts and ports of the sentinels, and that they run",
        },
        RedisError::Replica { .. } => "the sentinels are about to name another; ask again",
        RedisError::NoOwner { source, .. } => match source.as_deref() {
            Some(RedisError::Refused(answer)) if answer.contains("cluster support disabled") => {
                "this server is no cluster; write redis:// instead of redis+cluster://"
            }
            Some(source) => hint(source),
            None => "the cluster is not whole; `redis-cli cluster info` says more",
        },
        RedisError::Partly(source) => hint(source),
        RedisError::NoReply | RedisError::Lost(_) => {
            "the server is slow or gone, and may have charged the check; with --id it can be asked again without harm"
        }
        RedisError::Busy | RedisError::TooLate | RedisError::Closed => {
            "nothing was charged; the server is slow or gone, ask again"
        }
        RedisError::TooManyRules { .. } => {
            "let fewer rules match one request: the linter names those that match everything"
        }
        RedisError::Nonsense(_) => "what answers there is no Redis; check host and port",
    }
}

/// The error and its causes, each said once.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let said = next.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        cause = next.source();
    }
    harmless(&text)
}
