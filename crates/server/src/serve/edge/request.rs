//! The limits of a request and the validated form of it. They are the same on every transport.

use std::borrow::Cow;
use std::net::IpAddr;

use tollgate::core::rules::Request;
use tollgate::core::{Attributes, EXACT_MAX, Span};

use super::excerpt::Excerpt;

/// Attributes of one request.
pub(crate) const ATTRIBUTES_MAX: usize = 64;
/// Bytes of an attribute's name.
pub(crate) const NAME_BYTES_MAX: usize = 256;
/// Bytes of an attribute's value, and of a key with a limit that the caller sends along. URLs and tokens are long.
pub(crate) const VALUE_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a request id.
pub(crate) const ID_BYTES_MAX: usize = 256;
/// The largest cost. Every store counts up to it exactly.
pub(crate) const COST_MAX: u64 = EXACT_MAX;
/// The longest time in milliseconds for which a reservation can be held: a week.
pub(crate) const TTL_MS_MAX: u64 = 7 * 86_400_000;
/// How long a reservation is held if the request does not say.
pub(crate) const TTL_MS_DEFAULT: u64 = 60_000;

/// A request that keeps the limits: what every transport makes of what it received.
#[derive(Clone, Debug)]
pub(crate) struct CheckRequest<'a> {
    attributes: Attributes<'a>,
    count: usize,
    /// `None` if the request does not say.
    cost: Option<u64>,
    id: Option<Cow<'a, str>>,
    /// The only rules that may count it; `None` for all.
    permitted_rules: Option<&'a [String]>,
}

/// Why a request is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("an attribute has no name; give it one, or leave it out")]
    NoName,
    #[error("attribute name {name} has {len} bytes, more than {NAME_BYTES_MAX}; shorten it")]
    NameTooLong { name: Excerpt, len: usize },
    #[error(
        "attribute {name} has {len} bytes, more than {VALUE_BYTES_MAX}; shorten it, or send a hash of it"
    )]
    ValueTooLong { name: Excerpt, len: usize },
    #[error("duplicate attribute {0}; send one value for each name")]
    Duplicate(Excerpt),
    #[error("more than {ATTRIBUTES_MAX} attributes; send only those that rules use")]
    TooManyAttributes,
    #[error("the request id is empty; send 1 to {ID_BYTES_MAX} bytes, or leave it out")]
    EmptyId,
    #[error("the request id has {0} bytes, more than {ID_BYTES_MAX}; shorten it, or send a hash of it")]
    IdTooLong(usize),
    #[error("cost {0} exceeds the maximum {COST_MAX}")]
    CostTooLarge(u64),
    #[error("amount {0} is out of range; send a whole number from 1 to {COST_MAX}")]
    AmountOutOfRange(u64),
    #[error(
        "amount {found} is invalid; send a decimal number above 0 with at most {digits} digits after the point, and at most \
         {COST_MAX} units"
    )]
    Amount { found: Excerpt, digits: u32 },
    #[error("scale {0} exceeds the maximum 15; send the number of digits after the point")]
    ScaleTooLarge(u64),
    #[error("ttl {0} ms is out of range; send a whole number of milliseconds from 1 to {TTL_MS_MAX}")]
    TtlOutOfRange(u64),
    #[error(
        "the token is bound to another value of attribute {0}; send that value, or leave the attribute out"
    )]
    Bound(Excerpt),
}

impl RequestError {
    /// Whether something is too long, too large or too many. A client behind a gateway can cause this on purpose.
    pub(crate) const fn is_too_large(&self) -> bool {
        match self {
            RequestError::NameTooLong { .. }
            | RequestError::ValueTooLong { .. }
            | RequestError::TooManyAttributes
            | RequestError::IdTooLong(_)
            | RequestError::CostTooLarge(_)
            | RequestError::AmountOutOfRange(_)
            | RequestError::Amount { .. }
            | RequestError::ScaleTooLarge(_)
            | RequestError::TtlOutOfRange(_) => true,
            RequestError::NoName
            | RequestError::Duplicate(_)
            | RequestError::EmptyId
            | RequestError::Bound(_) => false,
        }
    }
}

impl<'a> CheckRequest<'a> {
    /// A request without attributes, cost and id.
    pub(crate) fn new() -> CheckRequest<'a> {
        CheckRequest { attributes: Attributes::new(), count: 0, cost: None, id: None, permitted_rules: None }
    }

    /// Adds an attribute. A name can be added once.
    #[inline]
    pub(crate) fn add(&mut self, name: &'a str, value: &'a str) -> Result<(), RequestError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
            return Err(bad_attribute(name, value));
        }
        if self.attributes.get(name).is_some() {
            return Err(RequestError::Duplicate(Excerpt::of(name)));
        }
        if self.count == ATTRIBUTES_MAX {
            return Err(RequestError::TooManyAttributes);
        }
        self.count += 1;
        self.attributes.set(name, value);
        Ok(())
    }

    /// Sets the client's whole address, of which the attribute `ip` is the block that is counted.
    pub(crate) fn set_client_address(&mut self, address: IpAddr) {
        self.attributes.set_client_address(address);
    }

    /// Whether an attribute of this name was added.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.attributes.get(name).is_some()
    }

    pub(crate) fn set_cost(&mut self, cost: u64) -> Result<(), RequestError> {
        if cost > COST_MAX {
            return Err(RequestError::CostTooLarge(cost));
        }
        self.cost = Some(cost);
        Ok(())
    }

    pub(crate) fn set_id(&mut self, id: &'a str) -> Result<(), RequestError> {
        self.id = Some(Cow::Borrowed(self::id(id)?));
        Ok(())
    }

    /// Separates the request id from the same id of callers with another scope.
    pub(crate) fn scope_id(&mut self, scope: &str) {
        if let Some(id) = &mut self.id {
            *id = Cow::Owned(format!("{scope}:{id}"));
        }
    }

    /// Sets the only rules that may count it.
    pub(crate) const fn permit_rules(&mut self, ids: &'a [String]) {
        self.permitted_rules = Some(ids);
    }

    pub(crate) const fn attributes(&self) -> &Attributes<'a> {
        &self.attributes
    }

    /// Its cost, which is 1 if it does not say.
    pub(crate) fn cost(&self) -> u64 {
        self.cost.unwrap_or(1)
    }

    /// The request as the limiter takes it.
    #[inline]
    pub(crate) fn request(&self) -> Request<'_> {
        let mut request = Request { permitted_rules: self.permitted_rules, ..Request::new(&self.attributes) };
        if let Some(cost) = self.cost {
            request = request.cost(cost);
        }
        match &self.id {
            Some(id) => request.id(id),
            None => request,
        }
    }
}

/// How long a reservation is held, if the time is in range.
pub(crate) fn hold(ttl_ms: Option<u64>) -> Result<Span, RequestError> {
    match ttl_ms.unwrap_or(TTL_MS_DEFAULT) {
        ms @ 1..=TTL_MS_MAX => Ok(Span::from_ms(ms)),
        ms => Err(RequestError::TtlOutOfRange(ms)),
    }
}

/// Units to add or to give back, of which there is at least one.
pub(crate) const fn amount(units: u64) -> Result<u64, RequestError> {
    match units {
        1..=COST_MAX => Ok(units),
        _ => Err(RequestError::AmountOutOfRange(units)),
    }
}

/// Units that were used, which may be none.
pub(crate) const fn used(units: u64) -> Result<u64, RequestError> {
    if units <= COST_MAX { Ok(units) } else { Err(RequestError::CostTooLarge(units)) }
}

/// The request id of a call without attributes.
pub(crate) const fn id(text: &str) -> Result<&str, RequestError> {
    match text.len() {
        0 => Err(RequestError::EmptyId),
        1..=ID_BYTES_MAX => Ok(text),
        len => Err(RequestError::IdTooLong(len)),
    }
}

#[cold]
fn bad_attribute(name: &str, value: &str) -> RequestError {
    match (name.len(), value.len()) {
        (0, _) => RequestError::NoName,
        (len, _) if len > NAME_BYTES_MAX => RequestError::NameTooLong { name: Excerpt::of(name), len },
        (_, len) => RequestError::ValueTooLong { name: Excerpt::of(name), len },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_request_is_valid_and_one_more_of_anything_is_not() {
        let names: Vec<String> = (0..=ATTRIBUTES_MAX).map(|n| format!("{n:0>NAME_BYTES_MAX$}")).collect();
        let (value, id) = ("v".repeat(VALUE_BYTES_MAX + 1), "i".repeat(ID_BYTES_MAX + 1));
        let mut request = CheckRequest::new();
        for name in &names[..ATTRIBUTES_MAX] {
            request.add(name, &value[1..]).expect("it fits");
        }
        request.set_id(&id[1..]).expect("it fits");
        request.set_cost(COST_MAX).expect("it fits");
        assert_eq!(request.request().attributes.iter().count(), ATTRIBUTES_MAX);

        assert_eq!(request.add(&names[ATTRIBUTES_MAX], ""), Err(RequestError::TooManyAttributes));
        assert_eq!(request.set_id(&id), Err(RequestError::IdTooLong(ID_BYTES_MAX + 1)));
        assert_eq!(request.set_id(""), Err(RequestError::EmptyId));
        assert_eq!(request.set_cost(COST_MAX + 1), Err(RequestError::CostTooLarge(COST_MAX + 1)));
        let mut request = CheckRequest::new();
        let long = "n".repeat(NAME_BYTES_MAX + 1);
        for (name, value, expected) in [
            ("", "", RequestError::NoName),
            (&*long, "", RequestError::NameTooLong { name: Excerpt::of(&long), len: NAME_BYTES_MAX + 1 }),
            ("n", &*value, RequestError::ValueTooLong { name: Excerpt::of("n"), len: VALUE_BYTES_MAX + 1 }),
        ] {
            assert_eq!(request.add(name, value), Err(expected));
        }
        request.add("n", "1").expect("it fits");
        assert_eq!(request.add("n", "2"), Err(RequestError::Duplicate(Excerpt::of("n"))));
        assert_eq!(request.attributes().get("n"), Some("1"));
    }

    #[test]
    fn errors_name_the_fault_and_quote_little_of_the_input() {
        let name = "x".repeat(1_000);
        let error = CheckRequest::new().add(&name, "").expect_err("it is too long").to_string();
        assert_eq!(
            error,
            format!("attribute name \"{}…\" has 1000 bytes, more than 256; shorten it", "x".repeat(40))
        );
        assert_eq!(
            RequestError::Duplicate(Excerpt::of("us\ner")).to_string(),
            "duplicate attribute \"us\\ner\"; send one value for each name"
        );
    }
}
