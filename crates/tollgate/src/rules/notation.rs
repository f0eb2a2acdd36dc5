//! Parses the short notations of a rules file: percentages, attribute chains, quotas, failure policies.
//!
//! [`shorthand`] parses rates and durations; this module explains why a rate or a duration is invalid.

use tollgate_core::rules::Rollout;
use tollgate_core::{EXACT_MAX, OnFailure, Span};

use crate::shorthand;
use tollgate_document::{quote, suggest};

/// The form of `prefilter`, for messages.
pub(super) const PREFILTER_FORM: &str = "a whole percentage from 100% to 10000%, such as `300%`";
/// The forms of `on_failure`, for messages.
pub(super) const FAILURE_FORMS: &str = "open, closed, degraded, `local N%`, `local fair` or `cap N/period`";

/// Parses `25%` or `12.5%` to hundredths of a percent.
pub(super) fn percent(text: &str) -> Result<u16, String> {
    let invalid = || format!("invalid percentage {}; use 0% to 100% with at most two decimals", quote(text));
    let number = text.trim().strip_suffix('%').ok_or_else(invalid)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let decimals = part.len() <= 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    if !decimals || (number.contains('.') && part.is_empty()) {
        return Err(invalid());
    }
    let whole = tollgate_document::number(whole).map_err(|_| invalid())?;
    let part = if part.is_empty() {
        0
    } else {
        tollgate_document::number(&format!("{part:0<2}")).map_err(|_| invalid())?
    };
    let basis_points =
        whole.checked_mul(100).and_then(|whole| whole.checked_add(part)).ok_or_else(invalid)?;
    u16::try_from(basis_points).ok().filter(|&points| points <= 10_000).ok_or_else(invalid)
}

/// Parses the share of subjects in a rollout: `25%`.
pub(super) fn rollout(text: &str) -> Result<Rollout, String> {
    percent(text).and_then(|points| Rollout::new(points).ok_or_else(|| "a rollout above 100%".to_owned()))
}

/// Parses a chain of attributes: `api_key | user | ip`.
pub(super) fn chain(text: &str) -> Result<Vec<String>, String> {
    text.split('|').map(|name| check_attribute_name(name.trim()).map(|()| name.trim().to_owned())).collect()
}

/// Checks that an attribute name has 1 to 64 letters, digits, `_`, `-` and `.`.
pub(super) fn check_attribute_name(name: &str) -> Result<(), String> {
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    if fits {
        Ok(())
    } else {
        Err(format!("invalid attribute name {}; use 1 to 64 letters, digits, `_`, `-` and `.`", quote(name)))
    }
}

/// Checks the id of a rule or a namespace.
pub(super) fn check_id(text: &str) -> Result<(), String> {
    tollgate_core::Keyspace::new(text, text)
        .map(drop)
        .map_err(|_| format!("invalid name {}; use 1 to 64 letters, digits, `-`, `_` and `.`", quote(text)))
}

/// Checks a rate like `100/min`, whose amount and period are not zero.
pub(super) fn check_rate(text: &str) -> Result<(), String> {
    match shorthand::rate(text) {
        Ok(rate) if rate.amount == 0 => {
            Err(format!("rate {} allows nothing; to refuse everything write `limit: deny`", quote(text)))
        }
        Ok(rate) if rate.period.is_zero() => Err(format!("rate {} has a period of zero", quote(text))),
        Ok(_) => Ok(()),
        Err(_) => Err(rate_fault(text)),
    }
}

/// Checks a duration like `30s`, which is not zero.
pub(super) fn check_duration(text: &str) -> Result<(), String> {
    match shorthand::span(text) {
        Ok(span) if span.is_zero() => Err(format!("duration {} is zero", quote(text))),
        Ok(_) => Ok(()),
        Err(_) => Err(format!("invalid duration {}: {}", quote(text), duration_fault(text))),
    }
}

/// Parses a quota like `1000/month` to the amount and the text after the slash.
pub(super) fn quota(text: &str) -> Result<(u64, &str), String> {
    let invalid = |why: String| format!("invalid quota {}: {why}", quote(text));
    let Some((amount, period)) = text.split_once('/') else {
        return Err(invalid("write an amount, a slash and hour, day, week, month or year".to_owned()));
    };
    let amount = tollgate_document::number(amount).map_err(|_| invalid(amount_fault(amount)))?;
    if amount == 0 {
        return Err(format!(
            "quota {} allows nothing; to refuse everything write `limit: deny`",
            quote(text)
        ));
    }
    Ok((amount, period.trim()))
}

fn rate_fault(text: &str) -> String {
    if let Some(rate) = other_notation(text) {
        return format!("invalid rate {}: write `{rate}`", quote(text));
    }
    let why = match text.split_once('/') {
        None => "write an amount, a slash and a duration".to_owned(),
        Some((amount, _)) if tollgate_document::number(amount).is_err() => amount_fault(amount),
        Some((_, period)) => duration_fault(period),
    };
    format!("invalid rate {}: {why}", quote(text))
}

/// Converts the notations of other limiters: `10r/s`, `100 per minute`, `5 requests/10s`.
fn other_notation(text: &str) -> Option<String> {
    let text = text.trim();
    let (amount, period) = text.split_once('/').or_else(|| text.split_once(" per "))?;
    let (amount, period) = (amount.trim(), period.trim());
    let words = [" requests", " request", " reqs", "reqs", " req", "req", "r"];
    let amount = words.iter().find_map(|word| amount.strip_suffix(word)).unwrap_or(amount);
    let rate = format!("{amount}/{}", period.replace(' ', ""));
    (rate != text && shorthand::rate(&rate).is_ok()).then_some(rate)
}

/// Why `text` is not a valid amount.
fn amount_fault(text: &str) -> String {
    let digits = text.trim();
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') {
        format!("the amount exceeds the maximum {EXACT_MAX}")
    } else {
        format!("{} is not a whole number", quote(digits))
    }
}

/// Why `text` is not a valid duration.
fn duration_fault(text: &str) -> String {
    const UNITS: [&str; 9] = ["sec", "second", "seconds", "min", "minute", "minutes", "hour", "day", "week"];
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (count, unit) = text.split_at(unit_at);
    // A unit without a number means one of it.
    if shorthand::span(unit).is_ok() {
        let digits = count.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
        return if digits {
            format!("the duration exceeds the maximum {}d", Span::MAX.us() / (86_400 * 1_000_000))
        } else {
            format!("{} is not a whole number", quote(count.trim()))
        };
    }
    match unit {
        "month" | "months" | "mo" | "year" | "years" | "y" => {
            "months and years vary in length; write days, or use a `quota`, which follows the calendar"
                .to_owned()
        }
        _ => match suggest(unit, UNITS) {
            Some(near) => format!("unknown unit {}; did you mean `{near}`?", quote(unit)),
            None => "write one whole number and one of us, ms, s, min, h, d, w".to_owned(),
        },
    }
}

/// Parses the share of a prefilter: a whole percentage above the limit.
pub(super) fn prefilter(text: &str) -> Result<u16, String> {
    let invalid = || format!("invalid prefilter {}; use {PREFILTER_FORM}", quote(text));
    let digits = text.trim().strip_suffix('%').ok_or_else(invalid)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid());
    }
    match digits.parse() {
        Ok(percent @ 100..=10_000) => Ok(percent),
        Ok(0..100) => {
            Err(format!("prefilter {text} is below the limit: it would refuse what the limit admits"))
        }
        _ => Err(invalid()),
    }
}

/// Parses a failure policy: `open`, `closed`, `degraded`, `local 25%`, `local fair`, `cap 10/s`.
pub(super) fn on_failure(text: &str) -> Result<OnFailure, String> {
    let invalid = || {
        let near = suggest(text, ["open", "closed", "degraded", "local", "cap"]);
        let near = near.filter(|near| *near != text).map(|near| format!("; did you mean `{near}`?"));
        format!("invalid failure policy {}; use {FAILURE_FORMS}{}", quote(text), near.unwrap_or_default())
    };
    match text.trim().split_once(char::is_whitespace) {
        None => match text.trim() {
            "open" => Ok(OnFailure::Open),
            "closed" => Ok(OnFailure::Closed),
            "degraded" => Ok(OnFailure::Degraded),
            _ => Err(invalid()),
        },
        Some(("local", share)) if share.trim() == "fair" => Ok(OnFailure::Local { percent: None }),
        Some(("local", share)) => match percent(share)? {
            points if points % 100 == 0 && points > 0 => {
                Ok(OnFailure::Local { percent: Some((points / 100) as u8) })
            }
            _ => Err(format!("invalid share {}; use a whole percentage from 1% to 100%", quote(share))),
        },
        Some(("cap", rate)) => {
            let rate = shorthand::rate(rate).map_err(|_| rate_fault(rate))?;
            if rate.amount == 0 {
                return Err("a cap of 0 refuses everything; write `closed`".to_owned());
            }
            if rate.period.is_zero() {
                return Err("a cap with a period of zero never refuses; write `open`".to_owned());
            }
            Ok(OnFailure::Cap { amount: rate.amount, period: rate.period })
        }
        Some(_) => Err(invalid()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_have_at_most_two_decimals() {
        for (text, points) in [("0%", 0), ("25%", 2_500), ("12.5%", 1_250), ("0.01%", 1), ("100%", 10_000)] {
            assert_eq!(percent(text), Ok(points), "{text}");
        }
        for text in ["25", "101%", "-1%", "1.%", "1.234%", "1.5_%", "%", "99999999999999999999%"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }

    #[test]
    fn on_failure_parses_every_policy() {
        assert_eq!(on_failure("local 25%"), Ok(OnFailure::Local { percent: Some(25) }));
        assert_eq!(on_failure("local fair"), Ok(OnFailure::Local { percent: None }));
        assert!(matches!(on_failure("cap 10/s"), Ok(OnFailure::Cap { amount: 10, .. })));
        for text in ["opne", "local", "local 0%", "local 12.5%", "cap", "cap 0/s", "cap 5/0s", "cap ten"] {
            assert!(on_failure(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_invalid_rate_is_explained() {
        for (text, why) in [
            ("100", "an amount, a slash and a duration"),
            ("2.5/s", "\"2.5\" is not a whole number"),
            ("99999999999999999999/s", "the amount exceeds the maximum 9007199254740991"),
            ("0/s", "write `limit: deny`"),
            ("5/0s", "has a period of zero"),
            ("5/minuet", "did you mean `minute`?"),
            ("5/month", "a `quota`"),
            ("5/9999999999w", "the duration exceeds the maximum 104249d"),
            ("5/1.5h", "\"1.5\" is not a whole number"),
            ("5/1h30m", "one whole number and one of us, ms, s, min, h, d, w"),
            ("10r/s", "write `10/s`"),
            ("100 per minute", "write `100/minute`"),
            ("5 requests/10 s", "write `5/10s`"),
            ("5/", "one whole number and one of us, ms, s, min, h, d, w"),
        ] {
            let fault = check_rate(text).expect_err(text);
            assert!(fault.contains(why), "{text}: {fault}");
        }
        assert!(check_rate("104249d").is_err() && check_rate("5/104249d").is_ok());
        assert!(check_duration("104249d").is_ok() && check_duration("104250d").is_err());
    }
}
