//! Reads the JSON body of a request. Text is borrowed from the body unless it contains escapes.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use tollgate::core::Report;

use crate::serve::edge::excerpt::Excerpt;
use crate::serve::edge::request::{ATTRIBUTES_MAX, COST_MAX, CheckRequest, RequestError};

/// Checks in one batch, so that the response to all of them stays small.
pub(crate) const BATCH_MAX: usize = 64;

/// The members that a body can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BodyKind {
    /// `attributes`, `cost?`, `id?`.
    Check,
    /// `attributes`, `cost?`.
    Peek,
    /// `attributes`, `result`.
    Report,
    /// `receipt`.
    Receipt,
    /// `receipt`, `amount?`.
    Refund,
    /// `attributes`, `rule?`.
    Reset,
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
            BodyKind::Report => &["attributes", "result"],
            BodyKind::Receipt => &["receipt"],
            BodyKind::Refund => &["receipt", "amount"],
            BodyKind::Reset => &["attributes", "rule"],
        }
    }

    const fn required(self) -> &'static [&'static str] {
        match self {
            BodyKind::Check | BodyKind::Peek | BodyKind::Reset => &["attributes"],
            BodyKind::Report => &["attributes", "result"],
            BodyKind::Receipt | BodyKind::Refund => &["receipt"],
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

    pub(crate) fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    pub(crate) fn receipt(&self) -> &str {
        self.receipt.as_deref().unwrap_or_default()
    }

    /// The units to give back; all of them if the body does not say.
    pub(crate) fn amount(&self) -> u64 {
        self.amount.unwrap_or(u64::MAX)
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
                "cost" => body.cost = Some(map.next_value_seed(Cost)?),
                "amount" => body.amount = Some(map.next_value_seed(Amount)?),
                "id" => body.id = Some(map.next_value_seed(Text)?),
                "result" => body.result = Some(map.next_value_seed(AttemptResult)?),
                "rule" => body.rule = Some(map.next_value_seed(Text)?),
                _ => body.receipt = Some(map.next_value_seed(Text)?),
            }
        }
        for (index, name) in self.members().iter().enumerate() {
            if seen & 1 << index == 0 && self.required().contains(name) {
                return Err(A::Error::custom(format_args!("{name} is missing; add it")));
            }
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

/// Names and values.
struct AttributesSeed;

impl<'b> DeserializeSeed<'b> for AttributesSeed {
    type Value = Vec<(Cow<'b, str>, Cow<'b, str>)>;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'b> Visitor<'b> for AttributesSeed {
    type Value = Vec<(Cow<'b, str>, Cow<'b, str>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("attributes as an object of strings, whole numbers, true and false")
    }

    fn visit_map<A: MapAccess<'b>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::with_capacity(8);
        while let Some(name) = map.next_key_seed(Text)? {
            // One more than allowed is enough for `CheckRequest` to report it.
            if entries.len() > ATTRIBUTES_MAX {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = map.next_value_seed(AttributeValue)?;
            entries.push((name, value));
        }
        Ok(entries)
    }
}

/// Any string.
struct Text;

impl<'b> DeserializeSeed<'b> for Text {
    type Value = Cow<'b, str>;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<Cow<'b, str>, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'b> Visitor<'b> for Text {
    type Value = Cow<'b, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string in quotes")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'b str) -> Result<Cow<'b, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Cow<'b, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// A string, a whole number, `true` or `false`. Each has exactly one text, so that one value is always one subject.
///
/// A whole number may be written with a decimal point or an exponent, as some languages do. A number of more than 64 bits
/// would be rounded, so that two ids would share a count; it is an error, and so are fractions and `null`.
struct AttributeValue;

impl<'b> DeserializeSeed<'b> for AttributeValue {
    type Value = Cow<'b, str>;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<Cow<'b, str>, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'b> Visitor<'b> for AttributeValue {
    type Value = Cow<'b, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a whole number of at most 64 bits, true or false; write other values as a string in quotes")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'b str) -> Result<Cow<'b, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Cow<'b, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Cow<'b, str>, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Cow<'b, str>, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Cow<'b, str>, E> {
        // Exclusive: the parser rounds larger whole numbers to these bounds.
        const BELOW: f64 = -9_223_372_036_854_775_808.0;
        const ABOVE: f64 = 18_446_744_073_709_551_616.0;
        if number.fract() != 0.0 || number <= BELOW || number >= ABOVE {
            return Err(E::invalid_value(serde::de::Unexpected::Float(number), &self));
        }
        Ok(Cow::Owned(if number < 0.0 { (number as i64).to_string() } else { (number as u64).to_string() }))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Cow<'b, str>, E> {
        Ok(Cow::Borrowed(if value { "true" } else { "false" }))
    }
}

/// A whole number. `CheckRequest` checks its maximum.
struct Cost;

impl<'b> DeserializeSeed<'b> for Cost {
    type Value = u64;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<u64, D::Error> {
        json.deserialize_u64(self)
    }
}

impl Visitor<'_> for Cost {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cost as a whole number from 0 to {COST_MAX}, without quotes")
    }

    fn visit_u64<E: Error>(self, cost: u64) -> Result<u64, E> {
        Ok(cost)
    }

    fn visit_i64<E: Error>(self, cost: i64) -> Result<u64, E> {
        u64::try_from(cost).map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(cost), &self))
    }

    /// Some languages write every number with a decimal point.
    fn visit_f64<E: Error>(self, cost: f64) -> Result<u64, E> {
        if cost.fract() != 0.0 || !(0.0..=COST_MAX as f64).contains(&cost) {
            return Err(E::invalid_value(serde::de::Unexpected::Float(cost), &self));
        }
        Ok(cost as u64)
    }
}

/// Units to give back.
struct Amount;

impl<'b> DeserializeSeed<'b> for Amount {
    type Value = u64;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<u64, D::Error> {
        match Cost.deserialize(json) {
            Ok(amount @ 1..=COST_MAX) => Ok(amount),
            _ => Err(D::Error::custom(format_args!(
                "amount must be a whole number from 1 to {COST_MAX}, without quotes"
            ))),
        }
    }
}

/// The result of an attempt.
struct AttemptResult;

impl<'b> DeserializeSeed<'b> for AttemptResult {
    type Value = Report;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<Report, D::Error> {
        match &*Text.deserialize(json)? {
            "success" => Ok(Report::Success),
            "failure" => Ok(Report::Failure),
            other => {
                let other = Excerpt::of(other);
                Err(D::Error::custom(format_args!("result is {other}; it must be success or failure")))
            }
        }
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
