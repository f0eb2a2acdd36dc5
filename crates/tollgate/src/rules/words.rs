//! Texts of a rules file that mean something by themselves: percentages, chains, failure policies.
//!
//! Rates and lengths of time are read by [`shorthand`]; here are the words for what people write instead of them.

use tollgate_core::rules::Rollout;
use tollgate_core::{EXACT_MAX, OnFailure, Span};

use crate::shorthand;
use tollgate_document::{quote, suggest};

/// Forms of `on_failure`, for messages.
pub(super) const FAILURE_FORMS: &str = "open, closed, degraded, `local N%` or `cap N/period`";

/// `25%`, `12.5%`: in hundredths of a percent.
pub(super) fn percent(text: &str) -> Result<u16, String> {
    let wrong =
        || format!("{} is no percentage; write one from 0% to 100% with at most two decimals", quote(text));
    let number = text.trim().strip_suffix('%').ok_or_else(wrong)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let decimals = part.len() <= 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    if !decimals || (number.contains('.') && part.is_empty()) {
        return Err(wrong());
    }
    let whole = tollgate_document::number(whole).map_err(|_| wrong())?;
    let part = if part.is_empty() {
        0
    } else {
        tollgate_document::number(&format!("{part:0<2}")).map_err(|_| wrong())?
    };
    let basis_points = whole.checked_mul(100).and_then(|whole| whole.checked_add(part)).ok_or_else(wrong)?;
    u16::try_from(basis_points).ok().filter(|&points| points <= 10_000).ok_or_else(wrong)
}

/// `25%` of the subjects.
pub(super) fn rollout(text: &str) -> Result<Rollout, String> {
    percent(text).and_then(|points| Rollout::new(points).ok_or_else(|| "more than everybody".to_owned()))
}

/// `api_key | user | ip`.
pub(super) fn chain(text: &str) -> Result<Vec<String>, String> {
    text.split('|').map(|name| attribute_name(name.trim()).map(|()| name.trim().to_owned())).collect()
}

/// Letters, digits, `_`, `-`, `.`: what people call attributes.
pub(super) fn attribute_name(name: &str) -> Result<(), String> {
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    if fits {
        Ok(())
    } else {
        Err(format!("{} is no attribute name; use 1 to 64 letters, digits, `_`, `-` and `.`", quote(name)))
    }
}

/// A rule's id or the namespace.
pub(super) fn id(text: &str) -> Result<(), String> {
    tollgate_core::Keyspace::new(text, text)
        .map(drop)
        .map_err(|_| format!("{} is no name; use 1 to 64 letters, digits, `-`, `_` and `.`", quote(text)))
}

/// `100/min`, of which something is left.
pub(super) fn rate(text: &str) -> Result<(), String> {
    match shorthand::rate(text) {
        Ok(rate) if rate.amount == 0 => {
            Err(format!("{} allows nothing; to refuse everything write `limit: deny`", quote(text)))
        }
        Ok(rate) if rate.period.is_zero() => Err(format!("{} is per no time at all", quote(text))),
        Ok(_) => Ok(()),
        Err(_) => Err(no_rate(text)),
    }
}

/// `30s`, which is not nothing.
pub(super) fn span(text: &str) -> Result<(), String> {
    match shorthand::span(text) {
        Ok(span) if span.is_zero() => Err(format!("{} is no time at all", quote(text))),
        Ok(_) => Ok(()),
        Err(_) => Err(format!("{} is no length of time: {}", quote(text), no_span(text))),
    }
}

/// `1000/month`: the amount, and what follows the slash.
pub(super) fn quota(text: &str) -> Result<(u64, &str), String> {
    let wrong = |why: String| format!("{} is no amount per period: {why}", quote(text));
    let Some((amount, period)) = text.split_once('/') else {
        return Err(wrong("write an amount, a slash and hour, day, week, month or year".to_owned()));
    };
    let amount = tollgate_document::number(amount).map_err(|_| wrong(no_amount(amount)))?;
    if amount == 0 {
        return Err(format!("{} allows nothing; to refuse everything write `limit: deny`", quote(text)));
    }
    Ok((amount, period.trim()))
}

fn no_rate(text: &str) -> String {
    let why = match text.split_once('/') {
        None => "write an amount, a slash and a length of time".to_owned(),
        Some((amount, _)) if tollgate_document::number(amount).is_err() => no_amount(amount),
        Some((_, period)) => no_span(period),
    };
    format!("{} is no rate: {why}", quote(text))
}

/// Why this is no amount.
fn no_amount(text: &str) -> String {
    let digits = text.trim();
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') {
        format!("an amount can be at most {EXACT_MAX}")
    } else {
        format!("{} is no whole number", quote(digits))
    }
}

/// Why this is no length of time.
fn no_span(text: &str) -> String {
    const UNITS: [&str; 9] = ["sec", "second", "seconds", "min", "minute", "minutes", "hour", "day", "week"];
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (count, unit) = text.split_at(unit_at);
    // A unit alone is one of it.
    if shorthand::span(unit).is_ok() {
        let digits = count.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
        return if digits {
            format!("a length of time can be at most {}d", Span::MAX.us() / (86_400 * 1_000_000))
        } else {
            format!("{} is no whole number", quote(count.trim()))
        };
    }
    match unit {
        "month" | "months" | "mo" | "year" | "years" | "y" => {
            "months and years differ in length; write days, or a `quota`, which follows the calendar"
                .to_owned()
        }
        _ => match suggest(unit, UNITS) {
            Some(near) => format!("no unit is called {}; did you mean `{near}`?", quote(unit)),
            None => "write one whole number and one of us, ms, s, min, h, d, w".to_owned(),
        },
    }
}

/// `open`, `closed`, `degraded`, `local 25%`, `cap 10/s`.
pub(super) fn on_failure(text: &str) -> Result<OnFailure, String> {
    let wrong = || {
        let near = suggest(text, ["open", "closed", "degraded", "local", "cap"]);
        let near = near.filter(|near| *near != text).map(|near| format!("; did you mean `{near}`?"));
        format!("{} is no failure policy; there are {FAILURE_FORMS}{}", quote(text), near.unwrap_or_default())
    };
    match text.trim().split_once(char::is_whitespace) {
        None => match text.trim() {
            "open" => Ok(OnFailure::Open),
            "closed" => Ok(OnFailure::Closed),
            "degraded" => Ok(OnFailure::Degraded),
            _ => Err(wrong()),
        },
        Some(("local", share)) => match percent(share)? {
            points if points % 100 == 0 && points > 0 => {
                Ok(OnFailure::Local { percent: (points / 100) as u8 })
            }
            _ => Err(format!("{} must be a whole percentage from 1% to 100%", quote(share))),
        },
        Some(("cap", rate)) => {
            let rate = shorthand::rate(rate).map_err(|_| no_rate(rate))?;
            if rate.amount == 0 {
                return Err("a cap of 0 refuses everything; write `closed`".to_owned());
            }
            if rate.period.is_zero() {
                return Err("a cap per no time at all never refuses; write `open`".to_owned());
            }
            Ok(OnFailure::Cap { amount: rate.amount, period: rate.period })
        }
        Some(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_keep_two_digits_and_no_more() {
        for (text, points) in [("0%", 0), ("25%", 2_500), ("12.5%", 1_250), ("0.01%", 1), ("100%", 10_000)] {
            assert_eq!(percent(text), Ok(points), "{text}");
        }
        for text in ["25", "101%", "-1%", "1.%", "1.234%", "1.5_%", "%", "99999999999999999999%"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }

    #[test]
    fn failure_policies_are_read() {
        assert_eq!(on_failure("local 25%"), Ok(OnFailure::Local { percent: 25 }));
        assert!(matches!(on_failure("cap 10/s"), Ok(OnFailure::Cap { amount: 10, .. })));
        for text in ["opne", "local", "local 0%", "local 12.5%", "cap", "cap 0/s", "cap 5/0s", "cap ten"] {
            assert!(on_failure(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_rate_is_told_why() {
        for (text, why) in [
            ("100", "an amount, a slash and a length of time"),
            ("2.5/s", "\"2.5\" is no whole number"),
            ("99999999999999999999/s", "an amount can be at most 9007199254740991"),
            ("0/s", "write `limit: deny`"),
            ("5/0s", "no time at all"),
            ("5/minuet", "did you mean `minute`?"),
            ("5/month", "a `quota`"),
            ("5/9999999999w", "a length of time can be at most 104249d"),
            ("5/1.5h", "\"1.5\" is no whole number"),
            ("5/1h30m", "one whole number and one of us, ms, s, min, h, d, w"),
            ("5/", "one whole number and one of us, ms, s, min, h, d, w"),
        ] {
            let said = rate(text).expect_err(text);
            assert!(said.contains(why), "{text}: {said}");
        }
        assert!(rate("104249d").is_err() && rate("5/104249d").is_ok());
        assert!(span("104249d").is_ok() && span("104250d").is_err());
    }
}
