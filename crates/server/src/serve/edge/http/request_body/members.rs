//! Reads the values of members.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use tollgate::core::Report;

use crate::serve::edge::excerpt::Excerpt;
use crate::serve::edge::request::{ATTRIBUTES_MAX, COST_MAX};

/// Rules that a settlement can name.
const RULES_MAX: usize = 64;

/// Names and values.
pub(super) struct AttributesSeed;

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
pub(super) struct Text;

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

/// A whole number of the member with this name. `CheckRequest` and its neighbours check the range.
pub(super) struct Whole(pub(super) &'static str);

impl<'b> DeserializeSeed<'b> for Whole {
    type Value = u64;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<u64, D::Error> {
        json.deserialize_u64(self)
    }
}

impl Visitor<'_> for Whole {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as a whole number from 0 to {COST_MAX}, without quotes", self.0)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        u64::try_from(number).map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(number), &self))
    }

    /// Some languages write every number with a decimal point.
    fn visit_f64<E: Error>(self, number: f64) -> Result<u64, E> {
        if number.fract() != 0.0 || !(0.0..=COST_MAX as f64).contains(&number) {
            return Err(E::invalid_value(serde::de::Unexpected::Float(number), &self));
        }
        Ok(number as u64)
    }
}

/// Units to give back.
pub(super) struct Amount;

impl<'b> DeserializeSeed<'b> for Amount {
    type Value = u64;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<u64, D::Error> {
        match Whole("amount").deserialize(json) {
            Ok(amount @ 1..=COST_MAX) => Ok(amount),
            _ => Err(D::Error::custom(format_args!(
                "amount must be a whole number from 1 to {COST_MAX}, without quotes"
            ))),
        }
    }
}

/// The amount of each rule that a settlement names.
pub(super) struct AmountsOfRules;

impl<'b> DeserializeSeed<'b> for AmountsOfRules {
    type Value = Vec<(Cow<'b, str>, u64)>;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'b> Visitor<'b> for AmountsOfRules {
    type Value = Vec<(Cow<'b, str>, u64)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rules as an object of rule ids and whole numbers")
    }

    fn visit_map<A: MapAccess<'b>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut amounts: Self::Value = Vec::new();
        while let Some(rule) = map.next_key_seed(Text)? {
            if amounts.len() == RULES_MAX {
                return Err(A::Error::custom(format_args!("rules names more than {RULES_MAX} rules")));
            }
            if amounts.iter().any(|(known, _)| *known == rule) {
                let rule = Excerpt::of(&rule);
                return Err(A::Error::custom(format_args!(
                    "duplicate rule {rule}; send one amount for each"
                )));
            }
            amounts.push((rule, map.next_value_seed(Whole("the amount of a rule"))?));
        }
        Ok(amounts)
    }
}

/// An amount of a meter: a whole number, or a string with a decimal point.
pub(super) struct Decimal;

impl<'b> DeserializeSeed<'b> for Decimal {
    type Value = Cow<'b, str>;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<Cow<'b, str>, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'b> Visitor<'b> for Decimal {
    type Value = Cow<'b, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("amount as a whole number, or as a decimal number in quotes")
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
        Err(E::invalid_value(serde::de::Unexpected::Signed(number), &self))
    }

    /// A fraction is rounded when it is parsed, so it must be sent as a string.
    fn visit_f64<E: Error>(self, number: f64) -> Result<Cow<'b, str>, E> {
        Whole("amount")
            .visit_f64(number)
            .map(|number| Cow::Owned(number.to_string()))
            .map_err(|_: E| E::invalid_value(serde::de::Unexpected::Float(number), &self))
    }
}

/// The result of an attempt.
pub(super) struct AttemptResult;

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
