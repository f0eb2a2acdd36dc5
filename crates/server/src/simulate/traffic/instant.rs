//! Time stamps and durations of logs.

use jiff::Timestamp;
use tollgate::core::Time;

/// How a log writes the time of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::simulate) enum TimeFormat {
    /// Any of the following, recognised for each value.
    Auto,
    /// `2026-11-18T20:03:57.123Z`
    Rfc3339,
    /// Seconds since 1970, with or without a fraction.
    Unix,
    /// Milliseconds since 1970.
    UnixMs,
    /// `18/Nov/2026:20:03:57 +0000`
    Clf,
}

/// The unit of a duration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::simulate) enum DurationUnit {
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
}

/// A time, and whether the log has whole seconds only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::simulate) struct Stamp {
    pub(in crate::simulate) at: Time,
    pub(in crate::simulate) whole_second: bool,
}

/// Numbers of seconds beyond this are milliseconds: the year 5138.
const UNIX_SECONDS_MAX: u64 = 100_000_000_000;
const SECOND_US: u64 = 1_000_000;
const CLF_LEN: usize = "18/Nov/2026:20:03:57 +0000".len();

/// Parses the time stamps of one log. Consecutive lines mostly have the same second, which is parsed once.
#[derive(Clone, Debug)]
pub(in crate::simulate) struct TimeParser {
    format: TimeFormat,
    last_clf: [u8; CLF_LEN],
    last: Option<Stamp>,
}

impl TimeParser {
    pub(in crate::simulate) fn new(format: TimeFormat) -> TimeParser {
        TimeParser { format, last_clf: [0; CLF_LEN], last: None }
    }

    /// Returns the time, or `None` if the text is not a time of the format, or not one from 1970 to 2255.
    #[inline]
    pub(in crate::simulate) fn parse(&mut self, text: &str) -> Option<Stamp> {
        match self.format {
            TimeFormat::Clf => self.clf(text),
            TimeFormat::Rfc3339 => rfc3339(text),
            TimeFormat::Unix => unix(text, SECOND_US),
            TimeFormat::UnixMs => unix(text, 1_000),
            TimeFormat::Auto => self.any(text),
        }
    }

    fn any(&mut self, text: &str) -> Option<Stamp> {
        if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            let whole: u64 = text.split('.').next()?.parse().ok()?;
            return unix(text, if whole < UNIX_SECONDS_MAX { SECOND_US } else { 1_000 });
        }
        if text.as_bytes().get(2) == Some(&b'/') { self.clf(text) } else { rfc3339(text) }
    }

    #[inline]
    fn clf(&mut self, text: &str) -> Option<Stamp> {
        if text.as_bytes() == self.last_clf {
            return self.last;
        }
        let stamp = clf(text)?;
        // HAProxy writes milliseconds in the same form, so not every text has this length.
        if let Ok(bytes) = text.as_bytes().try_into() {
            (self.last_clf, self.last) = (bytes, Some(stamp));
        }
        Some(stamp)
    }
}

/// `18/Nov/2026:20:03:57 +0000`; HAProxy writes `18/Nov/2026:20:03:57.123` without an offset.
fn clf(text: &str) -> Option<Stamp> {
    let bytes = text.as_bytes();
    let is_separated = bytes.len() >= 20
        && bytes[2] == b'/'
        && bytes[6] == b'/'
        && [bytes[11], bytes[14], bytes[17]] == [b':'; 3];
    if !is_separated {
        return None;
    }
    let month = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
        .iter()
        .position(|month| month.as_bytes() == &bytes[3..6])?;
    let (day, year) = (digits(&bytes[..2])?, digits(&bytes[7..11])?);
    let (hour, minute, second) = (digits(&bytes[12..14])?, digits(&bytes[15..17])?, digits(&bytes[18..20])?);
    if !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let local = days_since_1970(year as i64, month as i64 + 1, day as i64) * 86_400
        + (hour * 3_600 + minute * 60 + second) as i64;
    let rest = &bytes[20..];
    let (fraction_us, rest) = match rest.strip_prefix(b".") {
        Some(rest) => {
            let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            (fraction_us(&rest[..len])?, &rest[len..])
        }
        None => (0, rest),
    };
    let offset = match rest {
        [] => 0,
        [b' ', sign @ (b'+' | b'-'), digits_of @ ..] if digits_of.len() == 4 => {
            let (hours, minutes) = (digits(&digits_of[..2])?, digits(&digits_of[2..])?);
            let seconds = (hours * 3_600 + minutes * 60) as i64;
            if *sign == b'-' { -seconds } else { seconds }
        }
        _ => return None,
    };
    let whole = u64::try_from(local - offset).ok()?;
    stamp(whole, SECOND_US, fraction_us, bytes.get(20) != Some(&b'.'))
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
const fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is the last of its year.
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

fn rfc3339(text: &str) -> Option<Stamp> {
    let timestamp: Timestamp = text.parse().ok()?;
    let us = u64::try_from(timestamp.as_microsecond()).ok()?;
    stamp(us, 1, 0, !text.contains('.'))
}

fn unix(text: &str, unit_us: u64) -> Option<Stamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole = digits(whole.as_bytes())?;
    let fraction_us = fraction_us(fraction.as_bytes())? * unit_us / SECOND_US;
    stamp(whole, unit_us, fraction_us, unit_us == SECOND_US && fraction.is_empty())
}

fn stamp(whole: u64, unit_us: u64, fraction_us: u64, whole_second: bool) -> Option<Stamp> {
    let us = whole.checked_mul(unit_us)?.checked_add(fraction_us).filter(|&us| us <= Time::MAX.us())?;
    Some(Stamp { at: Time::from_us(us), whole_second })
}

/// Millionths from the digits after a decimal point; further digits are cut.
fn fraction_us(fraction: &[u8]) -> Option<u64> {
    let mut us = 0;
    for at in 0..6 {
        us = us * 10 + fraction.get(at).map_or(Some(0), |&byte| digits(&[byte]))?;
    }
    fraction.iter().all(u8::is_ascii_digit).then_some(us)
}

fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, &byte| byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0')))
}

/// A duration in microseconds, of at most a week. `None` if the text is not a number: nginx and Envoy write `-`.
pub(in crate::simulate) fn duration_us(text: &str, unit: DurationUnit) -> Option<u64> {
    const WEEK_US: u64 = 7 * 86_400 * SECOND_US;
    // Numbers of JSON may have an exponent.
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let us = match (digits(whole.as_bytes()), fraction_us(fraction.as_bytes()), unit) {
        (Some(whole), Some(_), DurationUnit::Nanoseconds) => whole / 1_000,
        (Some(whole), Some(_), DurationUnit::Microseconds) => whole,
        (Some(whole), Some(fraction), DurationUnit::Milliseconds) => {
            whole.checked_mul(1_000)?.saturating_add(fraction / 1_000)
        }
        (Some(whole), Some(fraction), DurationUnit::Seconds) => {
            whole.checked_mul(SECOND_US)?.saturating_add(fraction)
        }
        _ => {
            let value: f64 = text.parse().ok()?;
            let scale = match unit {
                DurationUnit::Seconds => 1e6,
                DurationUnit::Milliseconds => 1e3,
                DurationUnit::Microseconds => 1.0,
                DurationUnit::Nanoseconds => 1e-3,
            };
            if !(value.is_finite() && value >= 0.0) {
                return None;
            }
            (value * scale) as u64
        }
    };
    Some(us.min(WEEK_US))
}

impl TimeFormat {
    /// Returns the format with this name in `--time`.
    pub(in crate::simulate) fn named(name: &str) -> Option<TimeFormat> {
        Some(match name {
            "auto" => TimeFormat::Auto,
            "rfc3339" => TimeFormat::Rfc3339,
            "unix" => TimeFormat::Unix,
            "unix_ms" => TimeFormat::UnixMs,
            "clf" => TimeFormat::Clf,
            _ => return None,
        })
    }
}

impl DurationUnit {
    /// Returns the unit with this name in `--duration-from`.
    pub(in crate::simulate) fn named(name: &str) -> Option<DurationUnit> {
        Some(match name {
            "s" => DurationUnit::Seconds,
            "ms" => DurationUnit::Milliseconds,
            "us" => DurationUnit::Microseconds,
            "ns" => DurationUnit::Nanoseconds,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(text: &str, format: TimeFormat) -> Option<(u64, bool)> {
        let stamp = TimeParser::new(format).parse(text)?;
        Some((stamp.at.us(), stamp.whole_second))
    }

    #[test]
    fn each_format_gives_the_same_instant() {
        const AT: u64 = 1_795_032_237;
        for (text, format, fraction_us, whole) in [
            ("18/Nov/2026:20:03:57 +0000", TimeFormat::Clf, 0, true),
            ("18/Nov/2026:21:33:57 +0130", TimeFormat::Clf, 0, true),
            ("18/Nov/2026:15:03:57 -0500", TimeFormat::Clf, 0, true),
            ("18/Nov/2026:20:03:57.250", TimeFormat::Clf, 250_000, false),
            ("2026-11-18T20:03:57Z", TimeFormat::Rfc3339, 0, true),
            ("2026-11-18T21:03:57.5+01:00", TimeFormat::Rfc3339, 500_000, false),
            ("1795032237", TimeFormat::Unix, 0, true),
            ("1795032237.123456789", TimeFormat::Unix, 123_456, false),
            ("1795032237250", TimeFormat::UnixMs, 250_000, false),
        ] {
            let expected = Some((AT * 1_000_000 + fraction_us, whole));
            assert_eq!(us(text, format), expected, "{text}");
            assert_eq!(us(text, TimeFormat::Auto), expected, "{text}");
        }
    }

    #[test]
    fn dates_agree_with_the_calendar_of_jiff() {
        let mut day: jiff::civil::Date = "1970-01-01".parse().expect("a date");
        let mut number = 0;
        while day.year() < 2255 {
            let found = days_since_1970(day.year().into(), day.month().into(), day.day().into());
            assert_eq!(found, number, "{day}");
            day = day.tomorrow().expect("a date");
            number += 1;
        }
    }

    #[test]
    fn text_that_is_not_a_time_is_rejected() {
        for text in
            ["", "-", "18/Nov/2026", "18/Nux/2026:20:03:57 +0000", "99/Nov/2026:20:03:57 +0000", "1e9", "."]
        {
            assert_eq!(us(text, TimeFormat::Auto), None, "{text:?}");
        }
        assert_eq!(us("18/Nov/1969:20:03:57 +0000", TimeFormat::Clf), None);
        assert_eq!(us("99999999999999999999", TimeFormat::Unix), None);
    }

    #[test]
    fn durations_have_units() {
        for (text, unit, expected) in [
            ("0.25", DurationUnit::Seconds, Some(250_000)),
            ("12", DurationUnit::Milliseconds, Some(12_000)),
            ("0.5", DurationUnit::Milliseconds, Some(500)),
            ("1500000", DurationUnit::Nanoseconds, Some(1_500)),
            ("2.5e-3", DurationUnit::Seconds, Some(2_500)),
            ("-", DurationUnit::Seconds, None),
            ("-1", DurationUnit::Seconds, None),
            ("NaN", DurationUnit::Seconds, None),
        ] {
            assert_eq!(duration_us(text, unit), expected, "{text}");
        }
    }
}
