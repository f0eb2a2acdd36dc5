//! Waits for a condition with a deadline.

use std::thread;
use std::time::{Duration, Instant};

use super::error::{AdminError, Error};

/// Why the condition does not hold yet. A server that does not answer now may do so at the next poll.
#[derive(Debug)]
pub(super) struct NotYet(pub(super) String);

impl From<AdminError> for NotYet {
    fn from(error: AdminError) -> NotYet {
        NotYet(match error {
            AdminError::Io(error) => error.to_string(),
            error => error.to_string(),
        })
    }
}

impl From<Error> for NotYet {
    fn from(error: Error) -> NotYet {
        match error {
            Error::Admin(error) => error.into(),
            error => NotYet(error.to_string()),
        }
    }
}

/// Polls until the condition holds.
pub(super) fn until<T>(
    what: &str,
    within: Duration,
    pause: Duration,
    mut ask: impl FnMut() -> Result<T, NotYet>,
) -> Result<T, Error> {
    let deadline = Instant::now() + within;
    loop {
        let NotYet(seen) = match ask() {
            Ok(answer) => return Ok(answer),
            Err(not_yet) => not_yet,
        };
        if Instant::now() >= deadline {
            return Err(Error::Late { what: what.to_owned(), within, seen });
        }
        thread::sleep(pause);
    }
}
