//! Rate limit header fields, in the dialects that clients know.
//!
//! Which rules are shown:
//!
//! - [`Dialect::Ietf08`] lists every enforced rule, up to [`POLICIES_MAX`]. `RateLimit-Policy` has the order of the
//!   file, so that it stays the same from response to response. `RateLimit` starts with the headline rule, which the
//!   client reaches first; clients that read one item read that one. The others follow in the order of the file.
//! - The other dialects have room for the headline only. The older drafts forbid two policies of the same size and
//!   require a window, so they have no policy if the headline has no window.
//! - There are no numbers if no rule matched, a list or a failure policy decided, or all rules are shadow rules.
//! - If a failure policy decided, `X-RateLimit-Fallback` names it in all dialects: `open`, `degraded`, `local` and so on.
//!
//! The remaining units are rounded down, everything else up. `Retry-After` is the wait until the request would be
//! admitted; the reset is the wait until the whole limit is available. For a bucket the first is shorter, and the drafts
//! give it precedence. It is present only if waiting helps. If the store did not answer, it is one second.
//!
//! ```
//! use tollgate::LocalLimiter;
//! use tollgate::headers::Dialect;
//!
//! let limiter = LocalLimiter::from_yaml("
//!     version: 1
//!     rules:
//!       - { id: search-per-key, per: api_key, limit: { token-bucket: 2/s, burst: 240 } }
//! ")?;
//! let decision = limiter.check([("api_key", "k-1")])?;
//! let fields: Vec<String> = Dialect::Ietf08.fields(&decision).iter().map(|field| field.to_string()).collect();
//! assert_eq!(fields, [
//!     r#"ratelimit-policy: "search-per-key";q=240;w=120"#,
//!     r#"ratelimit: "search-per-key";r=239;t=1"#,
//! ]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod line;

use std::fmt;

use smallvec::SmallVec;
use tollgate_core::decision::Source;
use tollgate_core::plan::answer::AnsweredBy;

use crate::limiter::{Decision, RuleDecision};
use line::Line;

/// The largest number of fields in a dialect.
const FIELDS_MAX: usize = 5;

/// The field that names the failure policy that answered, so that callers can save work while the store is away.
const FALLBACK: &str = "x-ratelimit-fallback";

/// `Retry-After` of a refusal because the store did not answer.
pub const FALLBACK_RETRY_S: u64 = 1;

/// The largest integer of a structured field has fifteen digits, a little less than our own largest. A larger number is
/// written as this.
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// The largest number of rules that a field lists. It bounds the fields to about 2 KiB.
pub const POLICIES_MAX: usize = 16;

/// A way to write the numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Dialect {
    /// `RateLimit-Policy` and `RateLimit` as lists of named policies: drafts 08 to 11 of the IETF.
    #[default]
    Ietf08,
    /// `RateLimit` as a dictionary: draft 07.
    Ietf07,
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`: draft 06 and before.
    Ietf06,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, as many services send them.
    XRateLimit {
        /// What `X-RateLimit-Reset` holds.
        reset: Reset,
    },
}

/// What `X-RateLimit-Reset` holds; services do not agree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reset {
    /// The instant, in seconds since 1970.
    Epoch,
    /// The wait, in seconds.
    Delta,
}

/// One header field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// The name, in lower case.
    pub name: &'static str,
    /// The value, in ASCII.
    pub value: String,
    /// Whether the field is a list, so that a response may have several of this name.
    pub list: bool,
}

/// The fields of one response.
pub type Fields = SmallVec<[Field; FIELDS_MAX]>;

impl Dialect {
    /// The fields for this decision. `Retry-After` is the same in all dialects.
    pub fn fields(self, decision: &Decision) -> Fields {
        self.fields_with(decision, decision.rules())
    }

    /// The fields for requests that were decided together. The headline and `Retry-After` are those of the decision at
    /// `leading`. A rule that occurs in several decisions is listed once.
    pub fn fields_together(self, decisions: &[Decision], leading: usize) -> Fields {
        let Some(decision) = decisions.get(leading) else { return Fields::new() };
        self.fields_with(decision, decisions.iter().flat_map(Decision::rules))
    }

    #[inline]
    fn fields_with<'d>(
        self,
        decision: &'d Decision,
        rules: impl Iterator<Item = RuleDecision<'d>>,
    ) -> Fields {
        let mut fields = match decision.headline().and_then(Line::of) {
            Some(headline) => self.write(&headline, rules.filter_map(Line::of)),
            None => Fields::new(),
        };
        fields.extend(fallback(decision).map(|policy| Field::one(FALLBACK, policy.to_owned())));
        fields.extend(retry_after_s(decision).map(|wait| Field::one("retry-after", wait.to_string())));
        fields
    }

    fn write<'d>(self, headline: &Line<'d>, enforced: impl Iterator<Item = Line<'d>>) -> Fields {
        let Line { limit, remaining, reset_after_s, reset_at_s, .. } = *headline;
        let mut fields = Fields::new();
        match self {
            Dialect::Ietf08 => {
                let (policies, limits) = lists(headline, enforced);
                fields.push(Field::list("ratelimit-policy", policies));
                fields.push(Field::list("ratelimit", limits));
            }
            Dialect::Ietf07 => {
                fields.extend(nameless_policy(headline));
                let (limit, remaining) = (integer(limit), integer(remaining));
                let value = format!("limit={limit}, remaining={remaining}, reset={}", integer(reset_after_s));
                fields.push(Field::one("ratelimit", value));
            }
            Dialect::Ietf06 => {
                fields.extend(nameless_policy(headline));
                fields.push(Field::one("ratelimit-limit", integer(limit).to_string()));
                fields.push(Field::one("ratelimit-remaining", integer(remaining).to_string()));
                fields.push(Field::one("ratelimit-reset", integer(reset_after_s).to_string()));
            }
            Dialect::XRateLimit { reset } => {
                let reset = match reset {
                    Reset::Epoch => reset_at_s,
                    Reset::Delta => reset_after_s,
                };
                fields.push(Field::one("x-ratelimit-limit", limit.to_string()));
                fields.push(Field::one("x-ratelimit-remaining", remaining.to_string()));
                fields.push(Field::one("x-ratelimit-reset", reset.to_string()));
            }
        }
        fields
    }
}

impl Field {
    fn one(name: &'static str, value: String) -> Field {
        Field { name, value, list: false }
    }

    fn list(name: &'static str, value: String) -> Field {
        Field { name, value, list: true }
    }
}

/// `name: value`.
impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.value)
    }
}

/// The failure policy of the headline rule, if failure policies decided.
fn fallback(decision: &Decision) -> Option<&'static str> {
    if decision.source() != Source::Fallback {
        return None;
    }
    let policy = |rule: &RuleDecision<'_>| match rule.outcome().by {
        AnsweredBy::Policy(kind) => Some(kind.name()),
        _ => None,
    };
    let headline = decision.headline().as_ref().and_then(policy);
    headline.or_else(|| decision.rules().find_map(|rule| policy(&rule)))
}

/// The wait of a refusal in whole seconds, if waiting helps. At least 1, so that clients do not retry immediately.
pub fn retry_after_s(decision: &Decision) -> Option<u64> {
    if decision.allowed() {
        return None;
    }
    if decision.source() == Source::Fallback {
        // It is unknown how long the store stays down.
        return Some(FALLBACK_RETRY_S);
    }
    let wait = decision.retry_after()?;
    Some((wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1))
}

/// Returns the values of `RateLimit-Policy` and `RateLimit`.
///
/// Each rule is listed once: while a hash key is being replaced, each rule is charged twice, and several requests that
/// are decided together can match the same rule.
fn lists<'d>(headline: &Line<'d>, lines: impl Iterator<Item = Line<'d>>) -> (String, String) {
    let mut policies = String::with_capacity(headline.id.len() + ROOM);
    let mut limits = String::with_capacity(headline.id.len() + ROOM);
    push_limit(&mut limits, headline);
    let mut listed: SmallVec<[&str; POLICIES_MAX]> = SmallVec::new();
    let mut others = 0;
    for line in lines.filter(|line| line.blocking) {
        let is_headline = line.id == headline.id;
        // There is always room for the headline.
        if listed.contains(&line.id) || (!is_headline && others + 1 == POLICIES_MAX) {
            continue;
        }
        listed.push(line.id);
        if is_headline {
            // The headline has the numbers that are nearest to the limit.
            push_policy(&mut policies, headline);
        } else {
            others += 1;
            push_policy(&mut policies, &line);
            push_limit(&mut limits, &line);
        }
    }
    (policies, limits)
}

fn push_policy(list: &mut String, line: &Line<'_>) {
    push_name(list, line.id);
    push_number(list, ";q=", line.limit);
    if line.counts_concurrency {
        list.push_str(r#";qu="concurrent-requests""#);
    }
    if let Some(window_s) = line.window_s {
        push_number(list, ";w=", window_s);
    }
}

fn push_limit(list: &mut String, line: &Line<'_>) {
    push_name(list, line.id);
    push_number(list, ";r=", line.remaining);
    push_number(list, ";t=", line.reset_after_s);
}

/// Starts an item of a list.
fn push_name(list: &mut String, id: &str) {
    if !list.is_empty() {
        list.push_str(", ");
    }
    push_quoted(list, id);
}

fn nameless_policy(line: &Line<'_>) -> Option<Field> {
    let window_s = line.window_s?;
    Some(Field::list("ratelimit-policy", format!("{};w={}", integer(line.limit), integer(window_s))))
}

const fn integer(number: u64) -> u64 {
    if number > INTEGER_MAX { INTEGER_MAX } else { number }
}

/// The usual length of a field without the rule's id.
const ROOM: usize = 48;

/// Appends a number without `format!`, because these fields are written for every request.
fn push_number(value: &mut String, name: &str, number: u64) {
    value.push_str(name);
    value.push_str(itoa::Buffer::new().format(integer(number)));
}

/// Appends a string of a structured field. Rule ids are printable ASCII; any other character becomes a question mark, so
/// that the field stays valid.
fn push_quoted(value: &mut String, text: &str) {
    value.push('"');
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')) {
        value.push_str(text);
    } else {
        for c in text.chars() {
            match c {
                '"' | '\\' => value.extend(['\\', c]),
                ' '..='~' => value.push(c),
                _ => value.push('?'),
            }
        }
    }
    value.push('"');
}

#[cfg(test)]
mod tests;
