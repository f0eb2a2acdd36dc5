//! The body of a refusal: a problem document (RFC 9457, `application/problem+json`).
//!
//! It names rules and the wait. It never holds a key, a subject, or the numbers of other clients.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::PlanError;
use tollgate_core::decision::Source;

use crate::limiter::{CheckError, Decision};
use crate::wire::json::{list, name, number, text};

/// The media type.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// The problem type of the IETF rate limit drafts for an exhausted limit.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
/// The problem type for a service with temporarily reduced capacity.
const REDUCED_CAPACITY: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
/// The problem type that adds nothing to the status.
const BLANK: &str = "about:blank";

/// Why a request was refused, for the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The problem's type, as a URI.
    pub kind: &'static str,
    /// A short summary of the type.
    pub title: &'static str,
    /// A stable name for programs.
    pub code: &'static str,
    /// The headline rule.
    pub rule: Option<&'a str>,
    /// How long to wait before the request is admitted; `None` if waiting does not help or the wait is unknown.
    pub retry_after: Option<Duration>,
    /// Every rule that refused.
    pub violated: SmallVec<[&'a str; 4]>,
    /// What is missing from the request, for people.
    pub detail: Option<String>,
}

impl<'a> Problem<'a> {
    /// The problem of a refusal; `None` if the request is allowed.
    pub fn of_refusal(decision: &'a Decision) -> Option<Problem<'a>> {
        (!decision.allowed()).then(|| Problem::of_refused(decision))
    }

    /// The problem of an exhausted limit, for a refusal that is not a decision.
    pub fn quota_exceeded(
        rule: Option<&'a str>,
        retry_after: Option<Duration>,
        violated: impl Iterator<Item = &'a str>,
    ) -> Problem<'a> {
        let (title, code) = ("The limit is used up", "quota-exceeded");
        let (status, kind, violated) = (429, QUOTA_EXCEEDED, violated.collect());
        Problem { status, kind, title, code, rule, retry_after, violated, detail: None }
    }

    /// The problem of a decision that is known to be a refusal.
    pub(crate) fn of_refused(decision: &'a Decision) -> Problem<'a> {
        let (status, kind, title, code) = match decision.source() {
            Source::Store | Source::Slice | Source::Memory | Source::Prefilter => {
                (429, QUOTA_EXCEEDED, "The limit is used up", "quota-exceeded")
            }
            // Not the client's fault, and the duration is unknown.
            Source::Fallback => (
                503,
                REDUCED_CAPACITY,
                "The service can do less than usual for now",
                "temporary-reduced-capacity",
            ),
            // A retry does not help at any rate, so this is not "too many requests".
            Source::Rule if decision.missing_subject().is_some() => {
                (403, BLANK, "Forbidden", "missing-subject")
            }
            Source::List | Source::Rule => (403, BLANK, "Forbidden", "denied"),
            Source::Unmatched => (403, BLANK, "Forbidden", "unmatched"),
        };
        let mut violated: SmallVec<[&str; 4]> = decision
            .rules()
            .filter(|rule| rule.blocking() && !rule.allowed())
            .map(|rule| rule.id())
            .collect();
        violated.dedup();
        Problem {
            status,
            kind,
            title,
            code,
            rule: decision.rule(),
            retry_after: decision.retry_after(),
            violated,
            detail: decision.missing_subject().map(missing_detail),
        }
    }

    /// The problem of a check that could not be decided.
    ///
    /// A cost above the capacity is 413, which clients do not retry. A rule that may not count it is 403. A request id that was used for another request is
    /// 409. Everything else is 500.
    pub fn of_error(error: &'a CheckError) -> Problem<'a> {
        let (status, title, code) = match error {
            CheckError::Plan(PlanError::CostAboveCapacity { .. } | PlanError::CostTooLarge { .. }) => {
                (413, "Content Too Large", "cost-above-capacity")
            }
            CheckError::Plan(PlanError::NotPermitted { .. }) => (403, "Forbidden", "rule-not-permitted"),
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
                | PlanError::NotPermitted { rule }
                | PlanError::NotDivisible { rule, .. }
                | PlanError::Mixed { rule },
            ) => Some(rule.as_str()),
            CheckError::Undecided(undecided) => Some(undecided.rule.as_str()),
        };
        let violated = SmallVec::new();
        Problem { status, kind: BLANK, title, code, rule, retry_after: None, violated, detail: None }
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
        if let Some(wait) = self.retry_after {
            name(&mut json, "retry_after_ms");
            number(&mut json, u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        }
        json.push('}');
        json
    }

    /// Appends the members that make a JSON object a problem, without braces, rule and wait: for callers that write the
    /// decision into the same object.
    pub fn write_json_members(&self, json: &mut String) {
        name(json, "type");
        text(json, self.kind);
        name(json, "title");
        text(json, self.title);
        name(json, "status");
        number(json, self.status.into());
        name(json, "code");
        text(json, self.code);
        if let Some(detail) = &self.detail {
            name(json, "detail");
            text(json, detail);
        }
        if !self.violated.is_empty() {
            name(json, "violated-policies");
            list(json, self.violated.iter(), |json, rule| text(json, rule));
        }
    }
}

/// Names the attributes, never their values.
fn missing_detail(parts: &[Vec<String>]) -> String {
    let parts: Vec<String> = parts.iter().map(|chain| chain.join(" or ")).collect();
    format!("the rule requires the attribute {}, which the request does not have", parts.join(", and "))
}

#[cfg(test)]
mod tests;
