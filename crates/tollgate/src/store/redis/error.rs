//! Errors between the store and Redis, and whether a Plan may have been applied in spite of one.

use std::sync::Arc;

use tollgate_core::StoreError;

use crate::store::redis::protocol::plan_codec::ITEMS_MAX;

/// Why a Plan has no Outcome.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RedisError {
    /// Too many checks are in flight. The Plan was not sent.
    #[error("too many checks are waiting for Redis")]
    Busy,
    /// The Plan has more items than one call can carry. It was not sent.
    #[error("{items} rules match one check, more than the maximum of {ITEMS_MAX} per call")]
    TooManyRules {
        /// Number of rules that match.
        items: usize,
    },
    /// The deadline passed while the Plan was queued. It was not sent.
    #[error("the deadline passed before the check was sent to Redis")]
    TooLate,
    /// The Plan was sent and no reply came in time. It may have been applied.
    #[error("no reply from Redis within the deadline")]
    NoReply,
    /// The Plan was sent and the connection broke before the reply. It may have been applied.
    #[error("connection to Redis lost before the reply")]
    ConnectionLost(#[source] Option<Arc<std::io::Error>>),
    /// No connection can be made. The Plan was not sent.
    #[error("cannot connect to Redis at {address}")]
    Connect {
        /// Host and port.
        address: Arc<str>,
        /// Why.
        source: Arc<std::io::Error>,
    },
    /// No sentinel knows the primary. The Plan was not sent.
    #[error("no sentinel knows the primary {name:?}")]
    NoPrimary {
        /// The primary's name in the URL.
        name: Arc<str>,
        /// The last sentinel's error.
        source: Option<Arc<RedisError>>,
    },
    /// The sentinels named this server, but it is not the primary, or not yet. The Plan was not sent.
    #[error("Redis at {address} is a replica")]
    Replica {
        /// Host and port.
        address: Arc<str>,
    },
    /// No server of the cluster is known to own the keys. The Plan was not sent.
    #[error("no known server of the cluster owns hash slot {hash_slot}")]
    NoOwner {
        /// The keys' hash slot.
        hash_slot: u16,
        /// Why the cluster's hash slots are not known.
        source: Option<Arc<RedisError>>,
    },
    /// The keys are on several servers, and not all of them answered. Part of the Plan may have been applied.
    #[error("not every server of the cluster answered")]
    PartiallyApplied(#[source] Arc<RedisError>),
    /// Redis replied with an error. Nothing was applied.
    #[error("Redis replied with an error: {0}")]
    ErrorReply(Arc<str>),
    /// The reply is not one that Redis or our script sends.
    #[error("unexpected reply from Redis: {0}")]
    UnexpectedReply(&'static str),
    /// The store was dropped.
    #[error("the store is shutting down")]
    Closed,
}

/// Codes of error replies that persist until a setting is changed. All other errors may be temporary.
const PERMANENT_CODES: [&str; 6] = ["NOAUTH", "WRONGPASS", "NOPERM", "DENIED", "CROSSSLOT", "ERR"];
/// Texts of temporary errors that have the code ERR: Redis wraps errors of a script's commands, and has no code for its
/// limit on clients.
const TEMPORARY_TEXTS: [&str; 8] = [
    "OOM ",
    "READONLY",
    "MASTERDOWN",
    "NOREPLICAS",
    "MISCONF",
    "LOADING",
    "max number of clients",
    "Script killed",
];

impl RedisError {
    /// Whether the Plan may have been applied in spite of the error.
    pub const fn may_have_applied(&self) -> bool {
        matches!(
            self,
            RedisError::NoReply
                | RedisError::ConnectionLost(_)
                | RedisError::UnexpectedReply(_)
                | RedisError::PartiallyApplied(_)
        )
    }

    /// Whether the error persists until a setting is changed.
    fn is_misconfigured(&self) -> bool {
        match self {
            RedisError::TooManyRules { .. } => true,
            RedisError::PartiallyApplied(source)
            | RedisError::NoPrimary { source: Some(source), .. }
            | RedisError::NoOwner { source: Some(source), .. } => source.is_misconfigured(),
            RedisError::ErrorReply(reply) => {
                let code = reply.split_ascii_whitespace().next().unwrap_or_default();
                PERMANENT_CODES.contains(&code) && !TEMPORARY_TEXTS.iter().any(|text| reply.contains(text))
            }
            _ => false,
        }
    }

    /// Whether this is an error reply with this code, which is the first word of its text.
    pub(super) fn has_code(&self, code: &str) -> bool {
        matches!(self, RedisError::ErrorReply(reply) if reply.split_ascii_whitespace().next() == Some(code))
    }

    /// Whether the server refused a write because it is a replica. Old servers wrap this into the script's error.
    pub(super) fn is_readonly(&self) -> bool {
        matches!(self, RedisError::ErrorReply(reply) if reply.contains("READONLY"))
    }

    /// The error for a Plan that was not sent, because this error happened to others on the same server.
    pub(super) fn for_unsent(self, address: &dyn std::fmt::Display) -> RedisError {
        match self {
            RedisError::ConnectionLost(_) | RedisError::NoReply | RedisError::UnexpectedReply(_) => {
                let source = Arc::new(std::io::Error::other(self));
                RedisError::Connect { address: address.to_string().into(), source }
            }
            other => other,
        }
    }
}

impl From<std::io::Error> for RedisError {
    /// Converts an I/O error on an established connection.
    fn from(error: std::io::Error) -> RedisError {
        RedisError::ConnectionLost(Some(Arc::new(error)))
    }
}

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> StoreError {
        if error.is_misconfigured() {
            StoreError::Misconfigured(Box::new(error))
        } else {
            StoreError::Transient(Box::new(error))
        }
    }
}
