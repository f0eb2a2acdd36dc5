//! `TG.CHECK`, `TG.PEEK` and `TG.RESET`: what is known of a request, and what the rules say to it.

use std::fmt;

use tollgate::Decision;
use tollgate::core::decision::{RetryAfter, Source};
use tollgate::core::rules::Request;
use tollgate::core::{Attributes, EXACT_MAX};
use tollgate::limiter::Returned;

use super::frame::Words;
use super::reply::Reply;
use super::text::{Quoted, integer};

pub(crate) const USAGE: &str = "TG.CHECK attribute value [attribute value ...] [COST n] [ID x]";
pub(crate) const USAGE_PEEK: &str = "TG.PEEK attribute value [attribute value ...] [COST n] [ID x]";
pub(crate) const USAGE_RESET: &str = "TG.RESET attribute value [attribute value ...]";

/// A request, as it was described.
#[derive(Clone, Debug)]
pub(crate) struct Question<'b> {
    attributes: Attributes<'b>,
    cost: u64,
    id: Option<&'b str>,
}

/// Why nothing could be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wrong<'b> {
    Usage { usage: &'static str },
    NotText { what: &'static str, found: &'b [u8] },
    NoName,
    Twice { name: &'b [u8] },
    Misplaced { option: &'static str },
    OptionTwice { option: &'static str },
    Cost { found: &'b [u8] },
    Id { found: &'b [u8] },
}

impl fmt::Display for Wrong<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Wrong::Usage { usage } => {
                let name = usage.split(' ').next().unwrap_or_default().to_ascii_lowercase();
                write!(f, "wrong number of arguments for '{name}' command; write {usage}")
            }
            Wrong::NotText { what, found } => {
                write!(f, "the {what} {} is not UTF-8; attributes are text", Quoted(found))
            }
            Wrong::NoName => f.write_str("an attribute has no name; names and values take turns"),
            Wrong::Twice { name } => {
                write!(f, "the attribute {} is given twice; a request has one value for each", Quoted(name))
            }
            Wrong::Misplaced { option } => write!(
                f,
                "{option} comes after the attributes of TG.CHECK and TG.PEEK only; an attribute is called {} in lower case",
                option.to_ascii_lowercase()
            ),
            Wrong::OptionTwice { option } => write!(f, "{option} is given twice; give it once"),
            Wrong::Cost { found } => {
                write!(f, "COST is {}; it must be an integer from 0 to {EXACT_MAX}", Quoted(found))
            }
            Wrong::Id { found } => {
                write!(f, "ID is {}; it must be text of 1 to {ID_MAX} bytes", Quoted(found))
            }
        }
    }
}

/// The most bytes of an id.
const ID_MAX: usize = 256;
const OPTIONS: &str = "[COST n] [ID x]";
const COST: &str = "COST";
const ID: &str = "ID";

impl<'b> Question<'b> {
    /// From what comes after the name of the command: names and values in turn, then options if there may be any.
    pub(crate) fn read(usage: &'static str, mut words: Words<'b, '_>) -> Result<Question<'b>, Wrong<'b>> {
        let options = usage.ends_with(OPTIONS);
        let (mut cost, mut id) = (None, None);
        while options
            && words.len() >= 2
            && let Some(option) = words.get(words.len() - 2).and_then(option)
            && let Some(found) = words.get(words.len() - 1)
        {
            let given = if option == COST { &mut cost } else { &mut id };
            if given.replace(found).is_some() {
                return Err(Wrong::OptionTwice { option });
            }
            words = words.without_last(2);
        }
        if words.len() == 0 || words.len() % 2 == 1 {
            return Err(Wrong::Usage { usage });
        }
        let attributes = attributes(words)?;
        let cost = cost.map_or(Ok(1), |found| {
            let number = integer(found).and_then(|number| u64::try_from(number).ok());
            number.filter(|&number| number <= EXACT_MAX).ok_or(Wrong::Cost { found })
        })?;
        let id = id.map(|found| {
            let text = std::str::from_utf8(found).ok();
            text.filter(|text| (1..=ID_MAX).contains(&text.len())).ok_or(Wrong::Id { found })
        });
        Ok(Question { attributes, cost, id: id.transpose()? })
    }

    pub(crate) fn request(&self) -> Request<'_> {
        let request = Request::new(&self.attributes).cost(self.cost);
        match self.id {
            Some(id) => request.id(id),
            None => request,
        }
    }
}

fn option(word: &[u8]) -> Option<&'static str> {
    [COST, ID].into_iter().find(|option| option.as_bytes() == word)
}

fn attributes<'b>(words: Words<'b, '_>) -> Result<Attributes<'b>, Wrong<'b>> {
    let mut attributes = Attributes::new();
    for index in (0..words.len()).step_by(2) {
        let (Some(name), Some(value)) = (words.get(index), words.get(index + 1)) else { break };
        if let Some(option) = option(name) {
            return Err(Wrong::Misplaced { option });
        }
        let text = std::str::from_utf8(name).map_err(|_| Wrong::NotText { what: "name", found: name })?;
        let value =
            std::str::from_utf8(value).map_err(|_| Wrong::NotText { what: "value of", found: name })?;
        if text.is_empty() {
            return Err(Wrong::NoName);
        }
        if attributes.get(text).is_some() {
            return Err(Wrong::Twice { name });
        }
        attributes.set(text, value);
    }
    Ok(attributes)
}

/// The decision, by the names that its JSON has.
pub(crate) fn answer(decision: &Decision, reply: &mut Reply<'_>) {
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
    known(numbers.map(|numbers| numbers.limit), reply);
    reply.raw(b"$9\r\nremaining\r\n");
    known(numbers.map(|numbers| numbers.remaining), reply);
    reply.raw(b"$14\r\nretry_after_ms\r\n");
    known(retry_after_ms, reply);
    reply.raw(b"$11\r\nreset_at_ms\r\n");
    known(numbers.map(|numbers| numbers.reset_at_ms), reply);
    reply.raw(b"$8\r\ndelay_ms\r\n");
    reply.count(decision.plan_decision().delay_ms);
    reply.raw(b"$6\r\nsource\r\n");
    reply.bulk(source(decision.source()));
    reply.raw(b"$8\r\ndegraded\r\n");
    reply.boolean(decision.degraded());
}

fn known(number: Option<u64>, reply: &mut Reply<'_>) {
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

/// The rules whose counts were forgotten.
pub(crate) fn forgotten(returned: &[Returned], reply: &mut Reply<'_>) {
    let done = returned.iter().filter(|returned| returned.amount.is_ok());
    reply.array(done.clone().count());
    done.for_each(|returned| reply.bulk(returned.rule.as_bytes()));
}
