//! Short forms of rates and lengths of time: `2/s`, `100/10min`, `30s`.

use tollgate_core::Span;
use tollgate_document::number;

/// Units of time and their names. Messages use the first name.
const UNITS: [(&[&str], u64); 7] = [
    (&["us"], 1),
    (&["ms"], 1_000),
    (&["s", "sec", "second", "seconds"], 1_000_000),
    (&["min", "m", "minute", "minutes"], 60_000_000),
    (&["h", "hour", "hours"], 3_600_000_000),
    (&["d", "day", "days"], 86_400_000_000),
    (&["w", "week", "weeks"], 604_800_000_000),
];

/// An amount per period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// The number of units.
    pub amount: u64,
    /// The period.
    pub period: Span,
}

/// The text is not a rate or a length of time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShorthandError {
    /// Invalid length of time.
    #[error(
        "{found:?} is not a length of time; write a whole number and one of us, ms, s, min, h, d, w, like 30s"
    )]
    Span {
        /// The text.
        found: String,
    },
    /// Invalid rate.
    #[error("{found:?} is not a rate; write an amount, a slash and a length of time, like 100/min or 5/10s")]
    Rate {
        /// The text.
        found: String,
    },
}

/// Parses a length of time: `30s`, `10min`, `1d`. A unit without a number means one.
pub fn span(text: &str) -> Result<Span, ShorthandError> {
    let invalid = || ShorthandError::Span { found: text.to_owned() };
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(invalid)?;
    let (count, unit) = text.split_at(unit_at);
    let count = if count.is_empty() { 1 } else { number(count).map_err(|_| invalid())? };
    let (_, unit_us) = UNITS.into_iter().find(|(names, _)| names.contains(&unit)).ok_or_else(invalid)?;
    let us = count.checked_mul(unit_us).filter(|&us| us <= Span::MAX.us()).ok_or_else(invalid)?;
    Ok(Span::from_us(us))
}

/// Parses a rate: `2/s`, `5/10min`.
pub fn rate(text: &str) -> Result<Rate, ShorthandError> {
    let invalid = || ShorthandError::Rate { found: text.to_owned() };
    let (amount, period) = text.split_once('/').ok_or_else(invalid)?;
    Ok(Rate { amount: number(amount).map_err(|_| invalid())?, period: span(period).map_err(|_| invalid())? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_rates_are_parsed() {
        for (text, amount, us) in [
            ("2/s", 2, 1_000_000),
            ("100/min", 100, 60_000_000),
            ("5/10min", 5, 600_000_000),
            ("10_000/d", 10_000, 86_400_000_000),
        ] {
            assert_eq!(rate(text), Ok(Rate { amount, period: Span::from_us(us) }), "{text}");
        }
    }

    #[test]
    fn an_invalid_rate_is_refused_with_an_example() {
        for text in [
            "",
            "2",
            "/s",
            "2/",
            "-2/s",
            "2.5/s",
            "2/parsec",
            "2/s/s",
            "99999999999999999999/s",
            "1/9999999999w",
        ] {
            let error = rate(text).expect_err(text);
            assert!(error.to_string().contains("like 100/min"), "{error}");
        }
        assert!(span("10").is_err());
    }
}
