//! Parses rates and durations in short notation: `2/s`, `100/10min`, `30s`.

use tollgate_core::Span;
use tollgate_document::number;

/// Units of time with their names and lengths in microseconds.
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
    /// The amount, in units.
    pub amount: u64,
    /// The period.
    pub period: Span,
}

/// Text that is not a rate or a duration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShorthandError {
    /// Not a duration.
    #[error("invalid duration {found:?}; write a whole number and one of us, ms, s, min, h, d, w, like 30s")]
    Span {
        /// The text.
        found: String,
    },
    /// Not a rate.
    #[error("invalid rate {found:?}; write an amount, a slash and a duration, like 100/min or 5/10s")]
    Rate {
        /// The text.
        found: String,
    },
}

/// Parses a duration like `30s`, `10min` or `1d`. A unit without a number means one of it.
pub fn span(text: &str) -> Result<Span, ShorthandError> {
    let wrong = || ShorthandError::Span { found: text.to_owned() };
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let (count, unit) = text.split_at(unit_at);
    let count = if count.is_empty() { 1 } else { number(count).map_err(|_| wrong())? };
    let (_, unit_us) = UNITS.into_iter().find(|(names, _)| names.contains(&unit)).ok_or_else(wrong)?;
    let us = count.checked_mul(unit_us).filter(|&us| us <= Span::MAX.us()).ok_or_else(wrong)?;
    Ok(Span::from_us(us))
}

/// Parses a rate like `2/s` or `5/10min`.
pub fn rate(text: &str) -> Result<Rate, ShorthandError> {
    let wrong = || ShorthandError::Rate { found: text.to_owned() };
    let (amount, period) = text.split_once('/').ok_or_else(wrong)?;
    Ok(Rate { amount: number(amount).map_err(|_| wrong())?, period: span(period).map_err(|_| wrong())? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_parsed() {
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
    fn an_invalid_rate_is_an_error_with_an_example() {
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
