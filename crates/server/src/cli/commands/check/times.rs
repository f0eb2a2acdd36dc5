//! The times at which a check is made in memory.

use tollgate::core::{Span, Time};
use tollgate::shorthand;

use crate::cli::request_args::instant;

/// When, as it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum At {
    Instant(Time),
    After(Span),
}

/// Offsets count from the first time if that is an instant, or else from now.
pub(super) fn times(given: &[At], now: Time) -> Vec<Time> {
    let start = match given.first() {
        Some(At::Instant(first)) => *first,
        _ => now,
    };
    let times = given.iter().map(|at| match *at {
        At::Instant(time) => time,
        At::After(offset) => start.plus(offset),
    });
    if given.is_empty() { vec![now] } else { times.collect() }
}

/// An instant, or an offset with a plus.
pub(super) fn at(text: &str) -> Result<At, String> {
    match text.strip_prefix('+') {
        Some(offset) => after(offset).map(At::After).ok_or_else(|| {
            "write a plus, a number and one of us, ms, s, min, h, d, w, like +1.5s".to_owned()
        }),
        None => instant(text).map(At::Instant),
    }
}

/// `1.5s`. A part of a microsecond is no time.
fn after(text: &str) -> Option<Span> {
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
    fn offsets_are_lengths_of_time_with_a_plus() {
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
            assert_eq!(at(text).ok(), us.map(|us| At::After(Span::from_us(us))), "{text}");
        }
    }

    #[test]
    fn offsets_count_from_the_first_instant_or_from_now() {
        let [now, noon] = [1_000, 2_000].map(Time::from_us);
        let after = |us| At::After(Span::from_us(us));
        assert_eq!(times(&[], now), [now]);
        assert_eq!(times(&[after(5), after(7)], now), [1_005, 1_007].map(Time::from_us));
        let given = [At::Instant(noon), after(5), At::Instant(now)];
        assert_eq!(times(&given, now), [2_000, 2_005, 1_000].map(Time::from_us));
    }
}
