//! The times of checks in the memory store.

use tollgate::core::{Span, Time};
use tollgate::shorthand;

use crate::cli::request_args::instant;

/// A time as written on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CheckTime {
    Instant(Time),
    Offset(Span),
}

/// Resolves offsets, which count from the first time if that is an instant, or else from now.
pub(super) fn resolve_times(given: &[CheckTime], now: Time) -> Vec<Time> {
    let start = match given.first() {
        Some(CheckTime::Instant(first)) => *first,
        _ => now,
    };
    let times = given.iter().map(|at| match *at {
        CheckTime::Instant(time) => time,
        CheckTime::Offset(offset) => start.plus(offset),
    });
    if given.is_empty() { vec![now] } else { times.collect() }
}

/// Parses an instant, or an offset that starts with a plus.
pub(super) fn parse_time(text: &str) -> Result<CheckTime, String> {
    match text.strip_prefix('+') {
        Some(offset) => parse_offset(offset).map(CheckTime::Offset).ok_or_else(|| {
            "write a plus, a number and a unit (us, ms, s, min, h, d or w), like +1.5s".to_owned()
        }),
        None => instant(text).map(CheckTime::Instant),
    }
}

/// Parses a duration like `1.5s`. Fractions of a microsecond are invalid.
fn parse_offset(text: &str) -> Option<Span> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let Some((whole, decimals)) = number.split_once('.') else { return shorthand::span(text).ok() };
    let only_digits = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !only_digits(whole) || !only_digits(decimals) || decimals.len() > 9 {
        return None;
    }
    let whole = shorthand::span(&format!("{whole}{unit}")).ok()?;
    let unit_us = u128::from(shorthand::span(&format!("1{unit}")).ok()?.us());
    let scale = 10_u128.pow(decimals.len() as u32);
    let part_us = decimals.parse::<u128>().ok()? * unit_us;
    let part = Span::from_us(u64::try_from(part_us / scale).ok()?);
    part_us.is_multiple_of(scale).then(|| (Time::ZERO.plus(whole).plus(part)) - Time::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_durations_after_a_plus() {
        for (text, us) in [
            ("+0s", Some(0)),
            ("+1.5s", Some(1_500_000)),
            ("+90min", Some(5_400_000_000)),
            ("+0.25ms", Some(250)),
            ("+1.50h", Some(5_400_000_000)),
            ("+0.5us", None),
            ("+1.s", None),
            ("+.5s", None),
            ("+1.-5s", None),
            ("+1.5", None),
            ("+1.5fortnights", None),
            ("+s5", None),
            ("+", None),
        ] {
            assert_eq!(parse_time(text).ok(), us.map(|us| CheckTime::Offset(Span::from_us(us))), "{text}");
        }
    }

    #[test]
    fn offsets_count_from_the_first_instant_or_from_now() {
        let [now, noon] = [1_000, 2_000].map(Time::from_us);
        let offset = |us| CheckTime::Offset(Span::from_us(us));
        assert_eq!(resolve_times(&[], now), [now]);
        assert_eq!(resolve_times(&[offset(5), offset(7)], now), [1_005, 1_007].map(Time::from_us));
        let given = [CheckTime::Instant(noon), offset(5), CheckTime::Instant(now)];
        assert_eq!(resolve_times(&given, now), [2_000, 2_005, 1_000].map(Time::from_us));
    }
}
