//! Meters: counters that callers add to, subtract from, read and reset, with a fixed number of decimal digits.

use serde_json::{Value, json};
use tollgate::engine::{MeterSum, MeterValue};

use super::answer;
use crate::serve::edge::auth::Caller;
use crate::serve::edge::error::EdgeError;
use crate::serve::edge::excerpt::Excerpt;
use crate::serve::edge::request::{COST_MAX, CheckRequest, RequestError};
use crate::serve::gate::{Edge, Gate};

/// Which meters a call means, and how it writes amounts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meters<'a> {
    /// The meter of one rule; all that match if absent.
    pub(crate) rule: Option<&'a str>,
    pub(crate) scale: Scale,
}

/// Returns the meters that match, rule by rule.
pub(crate) async fn read(
    gate: &Gate,
    caller: &Caller,
    request: CheckRequest<'_>,
    meters: Meters<'_>,
) -> Result<Value, EdgeError> {
    let request = caller.bind(request)?;
    let usage = gate.usage(request.request()).await.map_err(|error| EdgeError::from(&error))?;
    let is_meant = |id: &str| meters.rule.is_none_or(|rule| rule == id) && gate.is_meter(id);
    let values = usage.into_iter().filter(|usage| is_meant(&usage.rule)).map(|usage| MeterValue {
        rule: usage.rule,
        value: usage.used,
        limit: usage.limit,
        remaining: usage.remaining,
    });
    let values: Vec<MeterValue> = values.collect();
    if values.is_empty() {
        return Err(EdgeError::no_meter(meters.rule));
    }
    Ok(json!({ "meters": meters.scale.values(&values) }))
}

/// Adds to the meters that match: to all of them, or if one is full to none.
pub(crate) async fn add(
    gate: &Gate,
    caller: &Caller,
    request: CheckRequest<'_>,
    amount: u64,
    meters: Meters<'_>,
) -> Result<Value, EdgeError> {
    let request = caller.bind(request)?;
    let sum = gate.add_to_meters(request.request(), amount, meters.rule).await;
    match sum.map_err(|error| EdgeError::from(&error))? {
        MeterSum::Added { meters: added, .. } if added.is_empty() => Err(EdgeError::no_meter(meters.rule)),
        MeterSum::Added { meters: added, replayed } => {
            Ok(json!({ "meters": meters.scale.values(&added), "replayed": replayed }))
        }
        MeterSum::Full { meter } => {
            Err(EdgeError::meter_full(&meter.rule, &meters.scale.text(meter.remaining)))
        }
    }
}

/// Subtracts from the meters that match, never below zero.
pub(crate) async fn subtract(
    gate: &Gate,
    caller: &Caller,
    request: CheckRequest<'_>,
    amount: u64,
    meters: Meters<'_>,
) -> Result<Value, EdgeError> {
    let request = caller.bind(request)?;
    let subtracted = gate.subtract_from_meters(request.request(), amount, meters.rule).await;
    let subtracted = subtracted.map_err(|error| EdgeError::from(&error))?;
    if subtracted.is_empty() {
        return Err(EdgeError::no_meter(meters.rule));
    }
    let replayed = subtracted.iter().any(|meter| meter.already_returned);
    let each = subtracted.iter().map(|meter| {
        let (amount, declined) = answer::amount(meter.amount);
        json!({ "rule": meter.rule, "amount": meters.scale.value(amount), "declined": declined })
    });
    Ok(json!({ "meters": each.collect::<Value>(), "replayed": replayed }))
}

/// Sets the meters that match to zero.
pub(crate) async fn reset(
    gate: &Gate,
    edge: (Edge, &Caller),
    request: &CheckRequest<'_>,
    rule: Option<&str>,
) -> Result<Value, EdgeError> {
    let reset = gate.reset_meters(edge, request.request(), rule).await;
    let returned = reset.map_err(|error| EdgeError::from(&error))?;
    if returned.is_empty() {
        return Err(EdgeError::no_meter(rule));
    }
    Ok(answer::results(&returned))
}

/// The number of decimal digits of an amount, from 0 to [`Scale::MAX`]. A meter counts units: with two digits, 1.25 is 125
/// units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scale(u32);

impl Scale {
    /// One unit with more digits would leave no room for whole numbers.
    pub(crate) const MAX: u64 = 15;

    pub(crate) const fn new(digits: u64) -> Result<Scale, RequestError> {
        if digits <= Scale::MAX { Ok(Scale(digits as u32)) } else { Err(RequestError::ScaleTooLarge(digits)) }
    }

    /// The units of a decimal number, of which there is at least one. A number with more digits than the scale is an error:
    /// it would be rounded.
    pub(crate) fn amount(self, text: &str) -> Result<u64, RequestError> {
        let invalid = || RequestError::Amount { found: Excerpt::of(text), digits: self.0 };
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = self.0 as usize;
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty()
            || !is_number(whole)
            || !is_number(fraction)
            || fraction.len() > digits
            || (fraction.is_empty() && text.ends_with('.'))
        {
            return Err(invalid());
        }
        let mut units = 0_u64;
        let zeros = std::iter::repeat_n(b'0', digits - fraction.len());
        for digit in whole.bytes().chain(fraction.bytes()).chain(zeros) {
            let next = units.checked_mul(10).and_then(|units| units.checked_add((digit - b'0').into()));
            units = next.filter(|units| *units <= COST_MAX).ok_or_else(invalid)?;
        }
        if units == 0 { Err(invalid()) } else { Ok(units) }
    }

    /// Units as a decimal number with all digits of the scale.
    pub(crate) fn text(self, units: u64) -> String {
        let digits = self.0 as usize;
        if digits == 0 {
            return units.to_string();
        }
        let text = format!("{units:0>width$}", width = digits + 1);
        let (whole, fraction) = text.split_at(text.len() - digits);
        format!("{whole}.{fraction}")
    }

    /// Units as a number if the scale is whole, otherwise as a decimal number in quotes.
    fn value(self, units: u64) -> Value {
        if self.0 == 0 { json!(units) } else { json!(self.text(units)) }
    }

    fn values(self, meters: &[MeterValue]) -> Value {
        let each = meters.iter().map(|meter| {
            json!({
                "rule": meter.rule,
                "value": self.value(meter.value),
                "limit": self.value(meter.limit),
                "remaining": self.value(meter.remaining),
            })
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn units(digits: u64, text: &str) -> Option<u64> {
        Scale::new(digits).expect("a scale").amount(text).ok()
    }

    #[test]
    fn decimal_numbers_are_read_exactly_or_not_at_all() {
        for (digits, text, expected) in [
            (0, "7", Some(7)),
            (0, "007", Some(7)),
            (2, "7", Some(700)),
            (2, "1.2", Some(120)),
            (2, "1.25", Some(125)),
            (2, "0.01", Some(1)),
            (15, "9.007199254740991", Some(COST_MAX)),
            (0, "9007199254740991", Some(COST_MAX)),
            // Too many digits, too large, zero, negative, and other texts.
            (2, "1.256", None),
            (2, "1.250", None),
            (0, "1.0", None),
            (0, "9007199254740992", None),
            (15, "9.007199254740992", None),
            (0, "99999999999999999999999", None),
            (0, "0", None),
            (2, "0.00", None),
            (0, "-1", None),
            (0, "+1", None),
            (2, "1.", None),
            (2, ".5", None),
            (2, "1.2.3", None),
            (2, "1e3", None),
            (2, " 1", None),
            (2, "", None),
            (2, "1,5", None),
            (2, "٣", None),
        ] {
            assert_eq!(units(digits, text), expected, "{text} with {digits} digits");
        }
        assert!(Scale::new(15).is_ok() && Scale::new(16).is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same_units(digits in 0..=Scale::MAX, number in 1..=COST_MAX) {
            let scale = Scale::new(digits).expect("a scale");
            prop_assert_eq!(scale.amount(&scale.text(number)), Ok(number));
        }
    }
}
