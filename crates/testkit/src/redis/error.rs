//! What can go wrong with a server of a test, or while talking to it.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use super::flavour::Flavour;
use super::resp::{Malformed, Value};

/// Why there is no server, or not the one that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program is not there.
    #[error("{flavour} is missing: there is no {program}; the first stage of `cargo xtask test` installs it")]
    Missing {
        /// Which server.
        flavour: Flavour,
        /// The program that was looked for.
        program: String,
    },
    /// The operating system refused something.
    #[error("cannot {what}")]
    Io {
        /// What was tried.
        what: String,
        /// Its answer.
        #[source]
        source: io::Error,
    },
    /// The server ended while it started.
    #[error("{flavour} ended while it started ({status}), its log:\n{log}")]
    Ended {
        /// Which server.
        flavour: Flavour,
        /// How it ended.
        status: ExitStatus,
        /// All it had to say.
        log: String,
    },
    /// The server runs, but does not answer.
    #[error("{flavour} does not answer PING (last try: {tried}), its log:\n{log}")]
    Silent {
        /// Which server.
        flavour: Flavour,
        /// What came of the last PING.
        tried: String,
        /// All it had to say.
        log: String,
    },
    /// Every port that was tried belongs to somebody.
    #[error("no free port among {tries} that were tried")]
    NoPort {
        /// How many were tried.
        tries: usize,
    },
    /// A signal, or a question, for a server that was killed.
    #[error("the server was killed")]
    Killed,
    /// The server is built without TLS.
    #[error("{flavour} is built without TLS")]
    NoTls {
        /// Which server.
        flavour: Flavour,
    },
    /// A question to a server has no answer.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// Something did not come to pass in time.
    #[error("not {what} within {within:?}: {seen}")]
    Late {
        /// What was waited for.
        what: String,
        /// For how long.
        within: Duration,
        /// What stood in the way at the end.
        seen: String,
    },
    /// No server of a topology is what was asked for.
    #[error("there is no {0}")]
    Nobody(String),
    /// The builder was not told to put proxies before the nodes.
    #[error("there is no proxy before the node to cut it off with")]
    NoProxy,
    /// No certificate could be made.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
}

impl Error {
    /// Wraps an error of the operating system, with what was tried.
    pub(super) fn io<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source: source.into() }
    }
}

/// Why a command has no reply.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The connection failed, or no reply came in time.
    #[error("the connection failed")]
    Io(#[from] io::Error),
    /// The server answered with an error.
    #[error("the server answered: {0}")]
    Refused(String),
    /// What came back is not RESP2.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The reply is not of the kind that this command has.
    #[error("unexpected reply to {command}: {reply:?}")]
    Unexpected {
        /// The name of the command.
        command: &'static str,
        /// What came back.
        reply: Value,
    },
}

impl AdminError {
    /// Whether no reply came in time.
    pub fn is_timeout(&self) -> bool {
        let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
        matches!(self, AdminError::Io(error) if kinds.contains(&error.kind()))
    }
}
