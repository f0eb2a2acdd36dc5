//! The short form in which people write numbers with units: `2/s`, `100/10min`, `30s`.

use tollgate_core::Span;
use tollgate_document::number;

/// Units of time and their names; the first name of each is the one messages use.
const UNITS: [(&[&str], u64); 7] = [
    (&["us"], 1),
    (&["ms"], 1_000),
    (&["s", "sec", "second", "seconds"], 1_000_000),
    (&["min", "m", "minute", "minutes"], 60_000_000),
    (&["h", "hour", "hours"], 3_600_000_000),
    (&["d", "day", "days"], 86_400_000_000),
    (&["w", "week", "weeks"], 604_800_000_000),
];

/// So much per so long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Units.
    pub amount: u64,
    /// Per this long.
    pub period: Span,
}

/// Text that is no number of this kind.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShorthandError {
    /// Not a span.
    #[error(
        "{found:?} is not a length of time; write a whole number and one of us, ms, s, min, h, d, w, like 30s"
    )]
    Span {
        /// What was there.
        found: String,
    },
    /// Not a rate.
    #[error("{found:?} is not a rate; write an amount, a slash and a length of time, like 100/min or 5/10s")]
    Rate {
        /// What was there.
        found: String,
    },
}

/// `30s`, `10min`, `1d`; a unit alone is one of it.
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

/// `2/s`, `5/10min`.
pub fn rate(text: &str) -> Result<Rate, ShorthandError> {
    let wrong = || ShorthandError::Rate { found: text.to_owned() };
    let (amount, period) = text.split_once('/').ok_or_else(wrong)?;
    Ok(Rate { amount: number(amount).map_err(|_| wrong())?, period: span(period).map_err(|_| wrong())? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_rates() {
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
    fn nonsense_is_refused_with_an_example() {
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
