//! `TG.CHECK`, `TG.PEEK` and `TG.RESET`: their arguments and their replies.

use std::fmt;

use tollgate::Decision;
use tollgate::core::decision::{RetryAfter, Source};
use tollgate::limiter::Returned;

use super::frame::Words;
use super::reply::Reply;
use super::text::{Quoted, integer};
use crate::serve::edge::request::{COST_MAX, CheckRequest, RequestError};

pub(crate) const USAGE: &str = "TG.CHECK attribute value [attribute value ...] [COST n] [ID x]";
pub(crate) const USAGE_PEEK: &str = "TG.PEEK attribute value [attribute value ...] [COST n] [ID x]";
pub(crate) const USAGE_RESET: &str = "TG.RESET attribute value [attribute value ...]";

/// Why the arguments are invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ArgumentError<'b> {
    Usage { usage: &'static str },
    NotText { what: &'static str, found: &'b [u8] },
    Misplaced { option: &'static str },
    DuplicateOption { option: &'static str },
    Cost { found: &'b [u8] },
    Request(RequestError),
}

impl From<RequestError> for ArgumentError<'_> {
    fn from(error: RequestError) -> Self {
        ArgumentError::Request(error)
    }
}

impl fmt::Display for ArgumentError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArgumentError::Usage { usage } => {
                let name = usage.split(' ').next().unwrap_or_default().to_ascii_lowercase();
                write!(f, "wrong number of arguments for '{name}' command; write {usage}")
            }
            ArgumentError::NotText { what, found } => {
                write!(f, "the {what} {} is not UTF-8; send text", Quoted(found))
            }
            ArgumentError::Misplaced { option } => write!(
                f,
                "misplaced {option}; it goes after the attributes of TG.CHECK and TG.PEEK, and an attribute of this name is \
                 written {}",
                option.to_ascii_lowercase()
            ),
            ArgumentError::DuplicateOption { option } => write!(f, "duplicate {option}; send it once"),
            ArgumentError::Cost { found } => {
                write!(f, "COST is {}; it must be an integer from 0 to {COST_MAX}", Quoted(found))
            }
            ArgumentError::Request(error) => error.fmt(f),
        }
    }
}

const OPTIONS: &str = "[COST n] [ID x]";
const COST: &str = "COST";
const ID: &str = "ID";

/// Reads what follows the name of the command: names and values in turn, then options if the usage has any.
#[inline]
pub(crate) fn read<'b>(
    usage: &'static str,
    mut words: Words<'b, '_>,
) -> Result<CheckRequest<'b>, ArgumentError<'b>> {
    let options = usage.ends_with(OPTIONS);
    let (mut cost, mut id) = (None, None);
    while options
        && words.len() >= 2
        && let Some(option) = words.get(words.len() - 2).and_then(option)
        && let Some(found) = words.get(words.len() - 1)
    {
        let given = if option == COST { &mut cost } else { &mut id };
        if given.replace(found).is_some() {
            return Err(ArgumentError::DuplicateOption { option });
        }
        words = words.without_last(2);
    }
    if words.len() == 0 || words.len() % 2 == 1 {
        return Err(ArgumentError::Usage { usage });
    }
    let mut request = CheckRequest::new();
    for index in (0..words.len()).step_by(2) {
        let (Some(name), Some(value)) = (words.get(index), words.get(index + 1)) else { break };
        if let Some(option) = option(name) {
            return Err(ArgumentError::Misplaced { option });
        }
        let text = |bytes, what| {
            std::str::from_utf8(bytes).map_err(|_| ArgumentError::NotText { what, found: name })
        };
        request.add(text(name, "name")?, text(value, "value of")?)?;
    }
    if let Some(found) = cost {
        let number = integer(found).and_then(|number| u64::try_from(number).ok());
        request.set_cost(number.ok_or(ArgumentError::Cost { found })?)?;
    }
    if let Some(found) = id {
        let id = std::str::from_utf8(found).map_err(|_| ArgumentError::NotText { what: "ID", found })?;
        request.set_id(id)?;
    }
    Ok(request)
}

fn option(word: &[u8]) -> Option<&'static str> {
    [COST, ID].into_iter().find(|option| option.as_bytes() == word)
}

/// Writes the decision with the names of its JSON.
pub(crate) fn write_decision(decision: &Decision, reply: &mut Reply<'_>) {
    let headline = decision.headline();
    let numbers = headline.as_ref().and_then(|rule| rule.outcome().numbers);
    let retry_after_ms = match numbers.map(|numbers| numbers.retry_after) {
        _ if decision.allowed() => Some(0),
        Some(RetryAfter::Ms(ms)) => Some(ms),
        Some(RetryAfter::Never) | None => None,
    };
    reply.map(9);
    reply.raw(b"$7\r\nallowed\r\n");
    reply.boolean(decision.allowed());
    reply.raw(b"$4\r\nrule\r\n");
    match headline {
        Some(rule) => reply.bulk(rule.id().as_bytes()),
        None => reply.null(),
    }
    reply.raw(b"$5\r\nlimit\r\n");
    number_or_null(numbers.map(|numbers| numbers.limit), reply);
    reply.raw(b"$9\r\nremaining\r\n");
    number_or_null(numbers.map(|numbers| numbers.remaining), reply);
    reply.raw(b"$14\r\nretry_after_ms\r\n");
    number_or_null(retry_after_ms, reply);
    reply.raw(b"$11\r\nreset_at_ms\r\n");
    number_or_null(numbers.map(|numbers| numbers.reset_at_ms), reply);
    reply.raw(b"$8\r\ndelay_ms\r\n");
    reply.count(decision.plan_decision().delay_ms);
    reply.raw(b"$6\r\nsource\r\n");
    reply.bulk(source(decision.source()));
    reply.raw(b"$8\r\ndegraded\r\n");
    reply.boolean(decision.degraded());
}

fn number_or_null(number: Option<u64>, reply: &mut Reply<'_>) {
    match number {
        Some(number) => reply.count(number),
        None => reply.null(),
    }
}

const fn source(source: Source) -> &'static [u8] {
    match source {
        Source::Store => b"store",
        Source::Fallback => b"fallback",
        Source::Unmatched => b"unmatched",
        Source::List => b"list",
        Source::Rule => b"rule",
    }
}

/// Writes the rules whose consumption was deleted.
pub(crate) fn write_reset(returned: &[Returned], reply: &mut Reply<'_>) {
    let done = returned.iter().filter(|returned| returned.amount.is_ok());
    reply.array(done.clone().count());
    done.for_each(|returned| reply.bulk(returned.rule.as_bytes()));
}
