//! The body of a refusal: a problem document (RFC 9457, `application/problem+json`).
//!
//! It names rules and the caller's own wait. It never holds a key, a subject or a number that others share in.

use smallvec::SmallVec;
use tollgate_core::PlanError;
use tollgate_core::decision::Source;

use crate::json::{list, name, number, text};
use crate::limiter::{CheckError, Decision};

/// The media type.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// The problem type of the IETF's rate limit drafts for a limit that is used up.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
/// The one for a service that can do less than usual for a while.
const REDUCED_CAPACITY: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
/// Says nothing beyond the status.
const BLANK: &str = "about:blank";

/// Why a request was not let through, for the one who sent it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The problem's type, as a URI.
    pub kind: &'static str,
    /// The type in words.
    pub title: &'static str,
    /// A name for programs; it stays the same from version to version.
    pub code: &'static str,
    /// The rule to tell the caller about.
    pub rule: Option<&'a str>,
    /// The wait until the request would be admitted, in milliseconds; none if waiting does not help or nobody knows.
    pub retry_after_ms: Option<u64>,
    /// Every rule that refused.
    pub violated: SmallVec<[&'a str; 4]>,
}

impl<'a> Problem<'a> {
    /// The problem with a refusal; none if the decision is not one.
    pub fn of_refusal(decision: &'a Decision) -> Option<Problem<'a>> {
        (!decision.allowed).then(|| Problem::of_refused(decision))
    }

    /// The problem with a decision that is known to be a refusal.
    pub(crate) fn of_refused(decision: &'a Decision) -> Problem<'a> {
        let (status, kind, title, code) = match decision.source {
            Source::Store | Source::Unmatched => {
                (429, QUOTA_EXCEEDED, "The limit is used up", "quota-exceeded")
            }
            // Not the client's fault, and nobody knows for how long.
            Source::Fallback => (
                503,
                REDUCED_CAPACITY,
                "The service can do less than usual for now",
                "temporary-reduced-capacity",
            ),
            // Asking again does not help, whatever the rate: that is not "too many requests".
            Source::List | Source::Rule => (403, BLANK, "Forbidden", "denied"),
        };
        let mut violated: SmallVec<[&str; 4]> =
            decision.rules().filter(|rule| rule.blocking && !rule.allowed).map(|rule| rule.id()).collect();
        violated.dedup();
        Problem {
            status,
            kind,
            title,
            code,
            rule: decision.headline().map(|rule| rule.id()),
            retry_after_ms: decision.retry_after().and_then(|wait| u64::try_from(wait.as_millis()).ok()),
            violated,
        }
    }

    /// The problem with a request that could not be decided.
    ///
    /// A cost that no wait makes admissible is the request's own fault: 413, which clients do not retry, and which
    /// says what would help. So is an id that was used for another request: 409. Everything else is ours: 500.
    pub fn of_error(error: &'a CheckError) -> Problem<'a> {
        let (status, title, code) = match error {
            CheckError::Plan(PlanError::CostAboveCapacity { .. } | PlanError::CostTooLarge { .. }) => {
                (413, "Content Too Large", "cost-above-capacity")
            }
            CheckError::IdReused => (409, "Conflict", "request-id-reused"),
            _ => (500, "Internal Server Error", "undecided"),
        };
        let rule = match error {
            CheckError::IdReused => None,
            CheckError::Plan(
                PlanError::CostAboveCapacity { rule, .. }
                | PlanError::CostTooLarge { rule, .. }
                | PlanError::TokenMissing { rule }
                | PlanError::DuplicateKey { rule }
                | PlanError::Mixed { rule },
            ) => Some(rule.as_str()),
            CheckError::Undecided(undecided) => Some(undecided.rule.as_str()),
        };
        Problem { status, kind: BLANK, title, code, rule, retry_after_ms: None, violated: SmallVec::new() }
    }

    /// The document.
    pub fn to_json(&self) -> String {
        let mut json = String::with_capacity(256);
        json.push('{');
        self.write_json_members(&mut json);
        if let Some(rule) = self.rule {
            name(&mut json, "rule");
            text(&mut json, rule);
        }
        if let Some(wait_ms) = self.retry_after_ms {
            name(&mut json, "retry_after_ms");
            number(&mut json, wait_ms);
        }
        json.push('}');
        json
    }

    /// The members that make a document a problem, without the braces, appended to a text: what the decision tells by
    /// itself, rule and wait, is left to it.
    pub fn write_json_members(&self, json: &mut String) {
        name(json, "type");
        text(json, self.kind);
        name(json, "title");
        text(json, self.title);
        name(json, "status");
        number(json, self.status.into());
        name(json, "code");
        text(json, self.code);
        if !self.violated.is_empty() {
            name(json, "violated-policies");
            list(json, self.violated.iter(), |json, rule| text(json, rule));
        }
    }
}

#[cfg(test)]
mod tests;
