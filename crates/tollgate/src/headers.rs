//! The header fields that tell a client where it stands, in the dialects that clients know.
//!
//! Which rules are listed:
//!
//! - The numbers of one rule, the decision's headline. It is the one the client meets first, most dialects have room
//!   for no other, and the numbers of a rule shared by many would tell each of them about the rest.
//! - [`Dialect::Ietf08`] also names every rule that was enforced in `RateLimit-Policy`, which is to stay the same from
//!   answer to answer while the headline moves. The older drafts forbid two policies of the same size, so there it
//!   holds the headline alone, and is left out if that has no window, which those drafts demand.
//! - None, if there is nothing to say: no rule matched, a list or a failure policy decided, or all rules are shadows.
//!
//! What remains is rounded down, everything else up. `Retry-After` is the wait until the request would be admitted,
//! the reset until everything is back: for a bucket the first is the shorter one, and by the drafts it takes
//! precedence. It is there only if waiting helps.
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

use crate::limiter::Decision;
use line::Line;

/// The most fields a dialect has.
const FIELDS_MAX: usize = 5;

/// The largest integer of a structured field: fifteen digits, a little less than our own largest. What is larger is
/// written as this.
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// How the numbers are written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Dialect {
    /// `RateLimit-Policy` and `RateLimit` as lists of named policies: drafts 08 to 11 of the IETF.
    #[default]
    Ietf08,
    /// `RateLimit` as a dictionary: draft 07.
    Ietf07,
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`: draft 06 and before.
    Ietf06,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, as many services have it.
    XRateLimit {
        /// What the last one holds.
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

/// One field, ready to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Its value, in ASCII.
    pub value: String,
    /// Whether it may stand beside another field of the same name: it is a list.
    pub list: bool,
}

/// The fields of one answer.
pub type Fields = SmallVec<[Field; FIELDS_MAX]>;

impl Dialect {
    /// The fields for this decision. `Retry-After` is the same in all dialects.
    pub fn fields(self, decision: &Decision) -> Fields {
        let mut fields = match decision.headline().and_then(Line::of) {
            Some(headline) => self.write(&headline, decision.rules().filter_map(Line::of)),
            None => Fields::new(),
        };
        fields.extend(retry_after_s(decision).map(|wait| Field::one("retry-after", wait.to_string())));
        fields
    }

    fn write<'d>(self, headline: &Line<'d>, enforced: impl Iterator<Item = Line<'d>>) -> Fields {
        let Line { limit, remaining, reset_after_s, reset_at_s, .. } = *headline;
        let mut fields = Fields::new();
        match self {
            Dialect::Ietf08 => {
                fields.push(Field::list("ratelimit-policy", policies(enforced)));
                let mut value = String::with_capacity(headline.id.len() + ROOM);
                push_quoted(&mut value, headline.id);
                push_number(&mut value, ";r=", remaining);
                push_number(&mut value, ";t=", reset_after_s);
                fields.push(Field::list("ratelimit", value));
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

/// As it stands in an HTTP/1.1 message.
impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.value)
    }
}

/// The wait of a refusal in whole seconds, if waiting helps. Never zero: a client would ask again at once.
pub fn retry_after_s(decision: &Decision) -> Option<u64> {
    if decision.allowed() {
        return None;
    }
    let wait = decision.retry_after()?;
    Some((wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1))
}

/// Every rule once: while one hash key takes the place of another, each is charged twice.
fn policies<'d>(lines: impl Iterator<Item = Line<'d>>) -> String {
    let mut value = String::new();
    let mut last = None;
    for line in lines.filter(|line| line.blocking) {
        if last.replace(line.id) == Some(line.id) {
            continue;
        }
        if value.is_empty() {
            value.reserve(line.id.len() + ROOM);
        } else {
            value.push_str(", ");
        }
        push_quoted(&mut value, line.id);
        push_number(&mut value, ";q=", line.limit);
        if line.counts_at_once {
            value.push_str(r#";qu="concurrent-requests""#);
        }
        if let Some(window_s) = line.window_s {
            push_number(&mut value, ";w=", window_s);
        }
    }
    value
}

fn nameless_policy(line: &Line<'_>) -> Option<Field> {
    let window_s = line.window_s?;
    Some(Field::list("ratelimit-policy", format!("{};w={}", integer(line.limit), integer(window_s))))
}

const fn integer(number: u64) -> u64 {
    if number > INTEGER_MAX { INTEGER_MAX } else { number }
}

/// What a field takes beside the rule's id, as a rule.
const ROOM: usize = 48;

/// These fields are written for every request, so nothing here is formatted.
fn push_number(value: &mut String, name: &str, number: u64) {
    value.push_str(name);
    value.push_str(itoa::Buffer::new().format(integer(number)));
}

/// A string of a structured field. It can hold printable ASCII, and rule ids are nothing else; any other character
/// becomes a question mark, so that the field as a whole stays readable.
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
