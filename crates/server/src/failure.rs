//! Errors that end a command: what went wrong and a hint, for people.

use std::error::Error;
use std::fmt;

use crate::text::escape_control;

/// What went wrong, and what to do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    hint: String,
    kind: FailureKind,
}

/// What failed. It decides the exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FailureKind {
    /// The command line, the configuration or a file.
    Input,
    /// The store, a database or a server: it did not answer or could not decide.
    Store,
    /// A server answered, and declined.
    Declined,
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { what: what.into(), hint: hint.into(), kind: FailureKind::Input }
    }

    /// A failure of the store.
    pub(crate) fn of_store(what: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { kind: FailureKind::Store, ..Failure::new(what, hint) }
    }

    /// A server declined what was asked.
    pub(crate) fn declined(what: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { kind: FailureKind::Declined, ..Failure::new(what, hint) }
    }

    pub(crate) fn hint(&self) -> &str {
        &self.hint
    }

    pub(crate) const fn kind(&self) -> FailureKind {
        self.kind
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for Failure {}

/// An error and its causes in one line. A cause that the text already ends with is not repeated.
pub(crate) fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let message = next.to_string();
        if !text.ends_with(&message) {
            text = format!("{text}: {message}");
        }
        cause = next.source();
    }
    escape_control(&text)
}
