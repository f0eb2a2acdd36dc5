//! What can go wrong between here and Redis, and whether the Plan may have been carried out all the same.

use std::sync::Arc;

use tollgate_core::StoreError;

use crate::store::redis::protocol::wire::ITEMS_MAX;

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RedisError {
    /// So many checks are under way that one more could only be late. It was not sent.
    #[error("too many checks are waiting for Redis")]
    Busy,
    /// A check that so many rules match does not fit into one call. It was not sent.
    #[error("{items} rules match one check; {ITEMS_MAX} are the most that one call carries")]
    TooManyRules {
        /// How many.
        items: usize,
    },
    /// It was still waiting to be sent when its time was over.
    #[error("the deadline passed before the check could be sent to Redis")]
    TooLate,
    /// It was sent, and no reply came in time: it may have been carried out.
    #[error("Redis did not answer within the deadline")]
    NoReply,
    /// It was sent, and the connection broke before the reply: it may have been carried out.
    #[error("the connection to Redis broke before its reply")]
    Lost(#[source] Option<Arc<std::io::Error>>),
    /// No connection can be made. It was not sent.
    #[error("cannot connect to Redis at {address}")]
    Connect {
        /// Host and port.
        address: Arc<str>,
        /// Why.
        source: Arc<std::io::Error>,
    },
    /// No sentinel says where the primary is. It was not sent.
    #[error("no sentinel says where the primary {name:?} is")]
    NoPrimary {
        /// The name that the sentinels were asked for.
        name: Arc<str>,
        /// What the last of them said.
        source: Option<Arc<RedisError>>,
    },
    /// The sentinels named it, but it takes no writes, or not yet. It was not sent.
    #[error("the server at {address} is a replica")]
    Replica {
        /// Host and port.
        address: Arc<str>,
    },
    /// It is not known which server of the cluster has the keys. It was not sent.
    #[error("it is not known which server of the cluster holds slot {slot}")]
    NoOwner {
        /// The keys' slot.
        slot: u16,
        /// Why nothing better is known.
        source: Option<Arc<RedisError>>,
    },
    /// Its keys are on several servers, and not all of them answered: some of it may have been carried out.
    #[error("not every server of the cluster answered")]
    Partly(#[source] Arc<RedisError>),
    /// Redis answers with an error: nothing was carried out.
    #[error("Redis answers: {0}")]
    Refused(Arc<str>),
    /// Something answers that is not Redis, or not as our script does.
    #[error("Redis answers with nonsense: {0}")]
    Nonsense(&'static str),
    /// The store was dropped.
    #[error("the store is being shut down")]
    Closed,
}

/// Error words that stand until somebody changes a setting. Everything else may pass.
const SETTINGS: [&str; 6] = ["NOAUTH", "WRONGPASS", "NOPERM", "DENIED", "CROSSSLOT", "ERR"];
/// What may pass although Redis calls it a plain error: it wraps what a script met, and has no word for a full house.
const PASSING: [&str; 8] = [
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
    /// Whether the Plan may have been carried out although there is no answer.
    pub const fn may_be_done(&self) -> bool {
        matches!(
            self,
            RedisError::NoReply | RedisError::Lost(_) | RedisError::Nonsense(_) | RedisError::Partly(_)
        )
    }

    /// Whether waiting does not help.
    fn is_misconfigured(&self) -> bool {
        match self {
            RedisError::TooManyRules { .. } => true,
            RedisError::Partly(source)
            | RedisError::NoPrimary { source: Some(source), .. }
            | RedisError::NoOwner { source: Some(source), .. } => source.is_misconfigured(),
            RedisError::Refused(answer) => {
                let word = answer.split_ascii_whitespace().next().unwrap_or_default();
                SETTINGS.contains(&word) && !PASSING.iter().any(|passing| answer.contains(passing))
            }
            _ => false,
        }
    }

    /// Whether what Redis answered begins with this word, in capitals by its custom.
    pub(super) fn is(&self, word: &str) -> bool {
        matches!(self, RedisError::Refused(answer) if answer.split_ascii_whitespace().next() == Some(word))
    }

    /// Whether the server takes no writes. The oldest wrap it into what their scripts met.
    pub(super) fn is_readonly(&self) -> bool {
        matches!(self, RedisError::Refused(answer) if answer.contains("READONLY"))
    }

    /// What those are told whose Plan is not sent to this server because of what happened to others.
    pub(super) fn of_unsent(self, address: &dyn std::fmt::Display) -> RedisError {
        match self {
            RedisError::Lost(_) | RedisError::NoReply | RedisError::Nonsense(_) => {
                let source = Arc::new(std::io::Error::other(self));
                RedisError::Connect { address: address.to_string().into(), source }
            }
            other => other,
        }
    }
}

impl From<std::io::Error> for RedisError {
    /// Something was under way on a connection.
    fn from(error: std::io::Error) -> RedisError {
        RedisError::Lost(Some(Arc::new(error)))
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
