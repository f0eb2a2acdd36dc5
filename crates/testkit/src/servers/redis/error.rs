//! Errors of test servers and of connections to them.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use super::admin::resp::{Malformed, Value};
use super::flavour::Flavour;

/// Why a server could not be started or controlled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program is not installed.
    #[error(
        "{flavour} is not installed: {program} does not exist; the first stage of `cargo xtask test` installs it"
    )]
    Missing {
        /// The flavour.
        flavour: Flavour,
        /// The path of the program.
        program: String,
    },
    /// An operation of the operating system failed.
    #[error("cannot {what}")]
    Io {
        /// The operation.
        what: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The server exited during its start.
    #[error("{flavour} exited during its start ({status}), its log:\n{log}")]
    Ended {
        /// The flavour.
        flavour: Flavour,
        /// Its exit status.
        status: ExitStatus,
        /// Its log.
        log: String,
    },
    /// The server runs, but does not answer.
    #[error("{flavour} does not answer PING (last try: {tried}), its log:\n{log}")]
    Silent {
        /// The flavour.
        flavour: Flavour,
        /// The result of the last PING.
        tried: String,
        /// Its log.
        log: String,
    },
    /// All tried ports are in use.
    #[error("no free port after {tries} tries")]
    NoPort {
        /// Number of ports tried.
        tries: usize,
    },
    /// The server was killed.
    #[error("the server was killed")]
    Killed,
    /// The server is built without TLS.
    #[error("{flavour} is built without TLS")]
    NoTls {
        /// The flavour.
        flavour: Flavour,
    },
    /// A command failed.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// A condition did not hold in time.
    #[error("not {what} within {within:?}: {seen}")]
    Late {
        /// The condition.
        what: String,
        /// The deadline.
        within: Duration,
        /// The last reason why it did not hold.
        seen: String,
    },
    /// No server of the topology has the requested role.
    #[error("there is no {0}")]
    NoServer(String),
    /// The node has no proxy.
    #[error("the node has no proxy; call `proxied` on its builder")]
    NoProxy,
    /// A certificate could not be created.
    #[error("cannot create a certificate")]
    Certificate(#[from] rcgen::Error),
}

impl Error {
    /// Wraps an error of the operating system with the name of the operation.
    pub(super) fn io<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source: source.into() }
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The connection failed, or the reply timed out.
    #[error("the connection failed")]
    Io(#[from] io::Error),
    /// The server replied with an error.
    #[error("the server replied with an error: {0}")]
    Refused(String),
    /// The reply is not RESP2.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The reply has the wrong type for this command.
    #[error("unexpected reply to {command}: {reply:?}")]
    Unexpected {
        /// The name of the command.
        command: &'static str,
        /// The reply.
        reply: Value,
    },
}

impl AdminError {
    /// Whether the reply timed out.
    pub fn is_timeout(&self) -> bool {
        let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
        matches!(self, AdminError::Io(error) if kinds.contains(&error.kind()))
    }
}
