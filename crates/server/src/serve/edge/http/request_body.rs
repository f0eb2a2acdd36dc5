//! Reads the JSON body of a request. Text is borrowed from the body unless it contains escapes.

mod members;

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use tollgate::core::{Report, Span};

use crate::serve::edge::calls::holds::Settlement;
use crate::serve::edge::calls::meters::Scale;
use crate::serve::edge::excerpt::Excerpt;
use crate::serve::edge::request::{self, CheckRequest, RequestError};
use members::{Amount, AmountsOfRules, AttemptResult, AttributesSeed, Decimal, Text, Whole};

/// Checks in one batch, so that the response to all of them stays small.
pub(crate) const BATCH_MAX: usize = 64;

/// The members that a body can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BodyKind {
    /// `attributes`, `cost?`, `id?`.
    Check,
    /// `attributes`, `cost?`.
    Peek,
    /// `attributes`, `cost?`; or `ref` alone.
    Explain,
    /// `attributes`, `result`.
    Report,
    /// `receipt`.
    Receipt,
    /// `receipt`, `amount?`.
    Refund,
    /// `attributes`, `rule?`, `reason?`.
    Reset,
    /// `attributes`.
    Usage,
    /// `attributes`, `cost?`, `ttl_ms?`, `id?`.
    Reserve,
    /// `receipt`, `more`, `ttl_ms?`, `id?`.
    Extend,
    /// `receipt`, and `actual` or `rules` or both.
    Settle,
    /// `attributes`, `amount`, `scale?`, `rule?`, `id?`.
    MeterChange,
    /// `attributes`, `scale?`, `rule?`.
    MeterRead,
}

/// One body. Members that its kind does not have are absent.
#[derive(Debug, Default)]
pub(crate) struct RequestBody<'b> {
    attributes: Vec<(Cow<'b, str>, Cow<'b, str>)>,
    cost: Option<u64>,
    id: Option<Cow<'b, str>>,
    result: Option<Report>,
    receipt: Option<Cow<'b, str>>,
    amount: Option<u64>,
    rule: Option<Cow<'b, str>>,
    reason: Option<Cow<'b, str>>,
    more: Option<u64>,
    ttl_ms: Option<u64>,
    actual: Option<u64>,
    rules: Vec<(Cow<'b, str>, u64)>,
    decimal: Option<Cow<'b, str>>,
    scale: Option<u64>,
    reference: Option<Cow<'b, str>>,
}

/// Why a body is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body is not JSON: {0}")]
    NotJson(#[source] serde_json::Error),
    /// It is JSON of another shape.
    #[error("{0}")]
    Shape(#[source] serde_json::Error),
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl BodyKind {
    const fn members(self) -> &'static [&'static str] {
        match self {
            BodyKind::Check => &["attributes", "cost", "id"],
            BodyKind::Peek => &["attributes", "cost"],
            BodyKind::Explain => &["attributes", "cost", "ref"],
            BodyKind::Report => &["attributes", "result"],
            BodyKind::Receipt => &["receipt"],
            BodyKind::Refund => &["receipt", "amount"],
            BodyKind::Reset => &["attributes", "rule", "reason"],
            BodyKind::Usage => &["attributes"],
            BodyKind::Reserve => &["attributes", "cost", "ttl_ms", "id"],
            BodyKind::Extend => &["receipt", "more", "ttl_ms", "id"],
            BodyKind::Settle => &["receipt", "actual", "rules"],
            BodyKind::MeterChange => &["attributes", "amount", "scale", "rule", "id"],
            BodyKind::MeterRead => &["attributes", "scale", "rule"],
        }
    }

    const fn required(self) -> &'static [&'static str] {
        match self {
            BodyKind::Check
            | BodyKind::Peek
            | BodyKind::Reset
            | BodyKind::Usage
            | BodyKind::Reserve
            | BodyKind::MeterRead => &["attributes"],
            BodyKind::Explain => &[],
            BodyKind::Extend => &["receipt", "more"],
            BodyKind::MeterChange => &["attributes", "amount"],
            BodyKind::Report => &["attributes", "result"],
            BodyKind::Receipt | BodyKind::Refund | BodyKind::Settle => &["receipt"],
        }
    }

    /// Reads one body.
    pub(crate) fn read(self, body: &[u8]) -> Result<RequestBody<'_>, BodyError> {
        read(body, self)
    }

    /// Reads a list of bodies.
    pub(crate) fn read_list(self, body: &[u8]) -> Result<Vec<RequestBody<'_>>, BodyError> {
        read(body, ListOf(self))
    }
}

impl RequestBody<'_> {
    /// The request in the body, if it keeps the limits.
    pub(crate) fn check_request(&self) -> Result<CheckRequest<'_>, BodyError> {
        let mut request = CheckRequest::new();
        for (name, value) in &self.attributes {
            request.add(name, value)?;
        }
        if let Some(cost) = self.cost {
            request.set_cost(cost)?;
        }
        if let Some(id) = &self.id {
            request.set_id(id)?;
        }
        Ok(request)
    }

    pub(crate) fn result(&self) -> Report {
        self.result.unwrap_or(Report::Failure)
    }

    /// The reference of a refusal.
    pub(crate) fn reference(&self) -> Option<&str> {
        self.reference.as_deref()
    }

    pub(crate) fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// Why consumption is reset.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    pub(crate) fn receipt(&self) -> &str {
        self.receipt.as_deref().unwrap_or_default()
    }

    /// The units to give back; all of them if the body does not say.
    pub(crate) fn amount(&self) -> u64 {
        self.amount.unwrap_or(u64::MAX)
    }

    /// How long a reservation is held.
    pub(crate) fn hold(&self) -> Result<Span, BodyError> {
        Ok(request::hold(self.ttl_ms)?)
    }

    /// The units by which a reservation is extended.
    pub(crate) fn more(&self) -> Result<u64, BodyError> {
        Ok(request::amount(self.more.unwrap_or(0))?)
    }

    /// The request id of a call without attributes.
    pub(crate) fn id(&self) -> Result<Option<&str>, BodyError> {
        Ok(self.id.as_deref().map(request::id).transpose()?)
    }

    /// What a reservation really used.
    pub(crate) fn settlement(&self) -> Result<Settlement<'_>, BodyError> {
        let actual = self.actual.map(request::used).transpose()?;
        let named = self.rules.iter().map(|(rule, amount)| Ok((&**rule, request::used(*amount)?)));
        Ok(Settlement { actual, named: named.collect::<Result<_, RequestError>>()? })
    }

    /// The number of decimal digits that a meter counts.
    pub(crate) fn scale(&self) -> Result<Scale, BodyError> {
        Ok(Scale::new(self.scale.unwrap_or(0))?)
    }

    /// The units that are added to a meter or subtracted from it.
    pub(crate) fn meter_amount(&self) -> Result<u64, BodyError> {
        Ok(self.scale()?.amount(self.decimal.as_deref().unwrap_or_default())?)
    }
}

fn read<'b, S: DeserializeSeed<'b>>(body: &'b [u8], seed: S) -> Result<S::Value, BodyError> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = seed.deserialize(&mut json).and_then(|read| json.end().map(|()| read));
    read.map_err(|error| if error.is_data() { BodyError::Shape(error) } else { BodyError::NotJson(error) })
}

impl<'b> DeserializeSeed<'b> for BodyKind {
    type Value = RequestBody<'b>;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<RequestBody<'b>, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'b> Visitor<'b> for BodyKind {
    type Value = RequestBody<'b>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with {}", self.members().join(", "))
    }

    fn visit_map<A: MapAccess<'b>>(self, mut map: A) -> Result<RequestBody<'b>, A::Error> {
        let mut body = RequestBody::default();
        let mut seen = 0_u8;
        while let Some(name) = map.next_key_seed(Text)? {
            let Some(index) = self.members().iter().position(|known| *known == name) else {
                let known = self.members().join(", ");
                let inside = if self.members().contains(&"attributes") {
                    "; names and values that describe the request belong in attributes"
                } else {
                    ""
                };
                let name = Excerpt::of(&name);
                return Err(A::Error::custom(format_args!(
                    "unknown member {name}; leave it out, or use {known}{inside}"
                )));
            };
            if seen & 1 << index != 0 {
                return Err(A::Error::custom(format_args!("duplicate member {name}; send it once")));
            }
            seen |= 1 << index;
            match &*name {
                "attributes" => body.attributes = map.next_value_seed(AttributesSeed)?,
                "cost" => body.cost = Some(map.next_value_seed(Whole("cost"))?),
                "more" => body.more = Some(map.next_value_seed(Whole("more"))?),
                "ttl_ms" => body.ttl_ms = Some(map.next_value_seed(Whole("ttl_ms"))?),
                "actual" => body.actual = Some(map.next_value_seed(Whole("actual"))?),
                "scale" => body.scale = Some(map.next_value_seed(Whole("scale"))?),
                "rules" => body.rules = map.next_value_seed(AmountsOfRules)?,
                "amount" if self == BodyKind::MeterChange => {
                    body.decimal = Some(map.next_value_seed(Decimal)?);
                }
                "amount" => body.amount = Some(map.next_value_seed(Amount)?),
                "id" => body.id = Some(map.next_value_seed(Text)?),
                "result" => body.result = Some(map.next_value_seed(AttemptResult)?),
                "ref" => body.reference = Some(map.next_value_seed(Text)?),
                "rule" => body.rule = Some(map.next_value_seed(Text)?),
                "reason" => body.reason = Some(map.next_value_seed(Text)?),
                _ => body.receipt = Some(map.next_value_seed(Text)?),
            }
        }
        for (index, name) in self.members().iter().enumerate() {
            if seen & 1 << index == 0 && self.required().contains(name) {
                return Err(A::Error::custom(format_args!("{name} is missing; add it")));
            }
        }
        if self == BodyKind::Explain {
            match (seen & 0b001 != 0, seen & 0b100 != 0) {
                (false, false) => {
                    return Err(A::Error::custom("attributes is missing; add it, or the ref of a refusal"));
                }
                (_, true) if seen & 0b011 != 0 => {
                    return Err(A::Error::custom("ref stands alone; leave attributes and cost out"));
                }
                _ => (),
            }
        }
        if self == BodyKind::Settle && body.actual.is_none() && body.rules.is_empty() {
            return Err(A::Error::custom("actual is missing; add it, or an amount for each rule in rules"));
        }
        Ok(body)
    }
}

struct ListOf(BodyKind);

impl<'b> DeserializeSeed<'b> for ListOf {
    type Value = Vec<RequestBody<'b>>;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'b> Visitor<'b> for ListOf {
    type Value = Vec<RequestBody<'b>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of 1 to {BATCH_MAX} objects")
    }

    fn visit_seq<A: SeqAccess<'b>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut bodies = Vec::new();
        while let Some(body) = list.next_element_seed(self.0)? {
            if bodies.len() == BATCH_MAX {
                return Err(A::Error::custom(format_args!(
                    "more than {BATCH_MAX} checks; send them in parts"
                )));
            }
            bodies.push(body);
        }
        if bodies.is_empty() {
            return Err(A::Error::custom("the list is empty; send at least one check"));
        }
        Ok(bodies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(value: &str) -> Result<String, String> {
        let body = format!(r#"{{"attributes":{{"user":{value}}}}}"#);
        let body = BodyKind::Check.read(body.as_bytes()).map_err(|error| error.to_string())?;
        Ok(body.attributes[0].1.to_string())
    }

    #[test]
    fn whole_numbers_and_booleans_are_attribute_values() {
        for (value, text) in [
            ("42", "42"),
            ("-7", "-7"),
            ("0", "0"),
            ("18446744073709551615", "18446744073709551615"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("42.0", "42"),
            ("-7.0", "-7"),
            ("-0.0", "0"),
            ("1e3", "1000"),
            ("true", "true"),
            ("false", "false"),
            (r#""42""#, "42"),
        ] {
            assert_eq!(attribute(value).as_deref(), Ok(text), "{value}");
        }
    }

    #[test]
    fn fractions_large_numbers_and_other_values_are_errors_that_name_the_fix() {
        let large = ["18446744073709551616", "-9223372036854775809", "1e300"];
        for value in ["1.5", "-0.25", "null", "[]", "{}"].into_iter().chain(large) {
            let error = attribute(value).expect_err(value);
            assert!(error.contains("as a string in quotes"), "{value}: {error}");
        }
    }
}
