//! Counts and logs requests whose authentication or authorisation failed.

use super::counters::Counters;
use super::exposition::{Exposition, Kind};
use super::log::LogThrottle;
use crate::protocol::Protocol;
use crate::serve::edge::auth::AuthError;
use crate::serve::edge::error::EdgeError;

const REASONS: [&str; 3] = ["token-required", "unknown-token", "forbidden"];

/// The failures of all transports.
#[derive(Default)]
pub(crate) struct AuthFailures {
    counters: Counters,
    unknown_tokens: LogThrottle,
}

impl AuthFailures {
    /// Records a failure, and returns the error for the caller. A token that is not known may be a guess, and is logged.
    #[cold]
    pub(crate) fn note(&self, error: AuthError, protocol: Protocol) -> EdgeError {
        let reason = match error {
            AuthError::TokenRequired => 0,
            AuthError::UnknownToken => 1,
            AuthError::Forbidden(_) => 2,
        };
        self.counters.add(reason);
        if error == AuthError::UnknownToken
            && let Some(suppressed) = self.unknown_tokens.pass(1)
        {
            tracing::warn!(event = "unknown_token", protocol = protocol.name(), suppressed, "unknown token");
        }
        EdgeError::auth(error, protocol)
    }

    pub(crate) fn write(&self, page: &mut Exposition) {
        let mut family = page.family(
            "tollgate_auth_failures_total",
            Kind::Counter,
            "Requests that were refused because of their token or scopes.",
        );
        for (number, reason) in REASONS.iter().enumerate() {
            family.sample(&[("reason", reason)], self.counters.sum(number));
        }
    }
}
