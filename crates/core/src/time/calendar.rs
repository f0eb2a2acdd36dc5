//! Calendar periods: when an hour, day, week, month or year begins in a named time zone.
//!
//! A date begins at the first instant at which local time is midnight of that date or later. It follows that:
//! - if the clock skips midnight, the date begins at the change;
//! - if midnight occurs twice, the date begins at the first one;
//! - a date that local time skips begins together with the next one, so no period is empty.
//!
//! An hour begins at each full hour of local time, and at each change of the clock by anything but whole hours. So an hour
//! that occurs twice is two periods.
//!
//! This module computes where periods begin. It does not count consumption.

use crate::time::Time;
use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use std::iter;
use thiserror::Error;

const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 86_400;
/// Largest offset from UTC of any time zone, in either direction.
const OFFSET_S_MAX: i64 = 26 * HOUR_S;
/// Longer zone names are truncated in messages and get no hint.
const NAME_LEN_MAX: usize = 64;

/// A day of the week.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Weekday {
    /// The first day of the week in ISO 8601.
    Monday,
    /// The second.
    Tuesday,
    /// The third.
    Wednesday,
    /// The fourth.
    Thursday,
    /// The fifth.
    Friday,
    /// The sixth.
    Saturday,
    /// The seventh and last.
    Sunday,
}

/// The length and anchor of a period. [`Calendar::new`] validates the numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Period {
    /// From one full hour to the next.
    Hour,
    /// From midnight to midnight.
    Day,
    /// Seven dates.
    Week {
        /// The day on which a week begins.
        starts: Weekday,
    },
    /// From a day of one month to the same day of the next.
    Month {
        /// 1 to 31. In a shorter month the period begins on the month's last day.
        day: u8,
    },
    /// From a date of one year to the same date of the next.
    Year {
        /// 1 to 12.
        month: u8,
        /// A day of that month. 29 February means the 28th in other than leap years.
        day: u8,
    },
}

/// A kind of period in a time zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Calendar {
    period: Period,
    zone: TimeZone,
}

/// Three consecutive periods, given by the four instants at which they begin and end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Periods {
    starts: [Time; 4],
}

/// A time between two clock changes of a zone.
struct ConstantOffset {
    since_s: i64,
    /// The next clock change, exclusive.
    until_s: i64,
    /// Local time minus UTC.
    offset_s: i64,
}

/// Why a [`Calendar`] is invalid.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CalendarError {
    /// The day of a [`Period::Month`] is out of range.
    #[error(
        "a month can begin on day 1 to 31 (in a shorter month that means its last day), not on day {day}"
    )]
    MonthDay {
        /// The requested day.
        day: u8,
    },
    /// The month of a [`Period::Year`] is out of range.
    #[error("a year can begin in month 1 to 12, not in month {month}")]
    YearMonth {
        /// The requested month.
        month: u8,
    },
    /// The day of a [`Period::Year`] does not exist in its month.
    #[error("a year that begins in month {month} can begin on day 1 to {day_max}, not on day {day}")]
    YearDay {
        /// The requested month.
        month: u8,
        /// The requested day.
        day: u8,
        /// The last day of the month.
        day_max: u8,
    },
    /// The time zone does not exist.
    #[error("unknown time zone {name:?}; {}", zone_hint(.near.as_deref()))]
    UnknownZone {
        /// The requested name, truncated if it is long.
        name: String,
        /// The zone with the most similar name.
        near: Option<String>,
    },
}

impl Calendar {
    /// Creates the calendar of `period` in the IANA time zone `zone_name`, such as `Europe/Berlin` or `UTC`.
    ///
    /// The name is not case-sensitive. The time zone data is compiled in; no file is read.
    pub fn new(period: Period, zone_name: &str) -> Result<Calendar, CalendarError> {
        match period {
            Period::Month { day } if !(1..=31).contains(&day) => {
                return Err(CalendarError::MonthDay { day });
            }
            Period::Year { month, .. } if !(1..=12).contains(&month) => {
                return Err(CalendarError::YearMonth { month });
            }
            Period::Year { month, day } => {
                let day_max = month_len(LEAP_YEAR, month);
                if !(1..=day_max).contains(&day) {
                    return Err(CalendarError::YearDay { month, day, day_max });
                }
            }
            Period::Hour | Period::Day | Period::Week { .. } | Period::Month { .. } => {}
        }
        match TimeZoneDatabase::bundled().get(zone_name) {
            // The database also has a placeholder for unknown zones, which would count as UTC.
            Ok(zone) if !zone.is_unknown() => Ok(Calendar { period, zone }),
            _ => Err(CalendarError::UnknownZone {
                name: zone_name.chars().take(NAME_LEN_MAX).collect(),
                near: nearest_zone(zone_name),
            }),
        }
    }

    /// Returns the kind of period.
    pub fn period(&self) -> Period {
        self.period
    }

    /// Returns the zone's name as the database spells it.
    pub fn zone_name(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// Returns the period that contains `now`, the one before it and the one after it.
    ///
    /// At the ends of [`Time`], periods are cut off: the first begins at [`Time::ZERO`] and the last ends at
    /// [`Time::MAX`]. There, `now` is in the first or the last of the three periods instead of the middle one. No period
    /// contains [`Time::MAX`].
    pub fn around(&self, now: Time) -> Periods {
        let now_s = (now.us() / 1_000_000) as i64;
        let starts = match self.period {
            Period::Hour => four_around(now, self.hours(now_s)),
            Period::Day | Period::Week { .. } | Period::Month { .. } | Period::Year { .. } => {
                four_around(now, self.dates(now_s))
            }
        };
        Periods { starts }
    }

    /// Returns the starts of hours in order, at least three of them not after `now_s`.
    fn hours(&self, now_s: i64) -> impl Iterator<Item = i64> {
        // No hour is longer than an hour.
        let mut at_s = now_s - 3 * HOUR_S;
        let mut stretch = self.stretch(at_s);
        iter::from_fn(move || {
            at_s = self.next_hour(at_s, &mut stretch);
            Some(at_s)
        })
    }

    /// Returns the first start of an hour after `at_s`, which is in `stretch`.
    fn next_hour(&self, at_s: i64, stretch: &mut ConstantOffset) -> i64 {
        let full = at_s - (at_s + stretch.offset_s).rem_euclid(HOUR_S) + HOUR_S;
        while stretch.until_s <= full {
            let next = self.stretch(stretch.until_s);
            let minutes_change = (next.offset_s - stretch.offset_s) % HOUR_S != 0;
            *stretch = next;
            if minutes_change {
                return stretch.since_s;
            }
        }
        full
    }

    /// Returns the starts of the other periods in order, at least three different ones not after `now_s`. A date that
    /// local time skips has the same start as the next one.
    fn dates(&self, now_s: i64) -> impl Iterator<Item = i64> {
        // Dates three days apart never begin together, whatever the clock change. Longer periods never do.
        let back = if self.period == Period::Day { 6 } else { 2 };
        let first = self.number(now_s - OFFSET_S_MAX) - back;
        let mut stretch = self.stretch(self.local_start(first) - OFFSET_S_MAX);
        (first..).map(move |number| self.first_instant(self.local_start(number), &mut stretch))
    }

    /// Returns the first instant at which local time is `local_s` or later. At the start of `stretch`, local time must be
    /// earlier than `local_s`. Advances `stretch`.
    fn first_instant(&self, local_s: i64, stretch: &mut ConstantOffset) -> i64 {
        if stretch.until_s <= local_s - OFFSET_S_MAX {
            *stretch = self.stretch(local_s - OFFSET_S_MAX);
        }
        while stretch.until_s <= local_s - stretch.offset_s {
            *stretch = self.stretch(stretch.until_s);
        }
        stretch.since_s.max(local_s - stretch.offset_s)
    }

    /// Returns the number of the period that contains this local time. Periods of one kind are numbered consecutively.
    fn number(&self, local_s: i64) -> i64 {
        let date = || Offset::UTC.to_datetime(timestamp(local_s)).date();
        let number = match self.period {
            Period::Hour => local_s.div_euclid(HOUR_S),
            Period::Day => local_s.div_euclid(DAY_S),
            Period::Week { starts } => (local_s.div_euclid(DAY_S) - first_weekday(starts)).div_euclid(7),
            Period::Month { .. } => i64::from(date().year()) * 12 + i64::from(date().month()) - 1,
            Period::Year { .. } => i64::from(date().year()),
        };
        // A date before the anchor belongs to the previous period.
        if self.local_start(number) > local_s { number - 1 } else { number }
    }

    /// Returns the local time, in seconds since 1970, at which the period of that number begins.
    fn local_start(&self, number: i64) -> i64 {
        match self.period {
            Period::Hour => number * HOUR_S,
            Period::Day => number * DAY_S,
            Period::Week { starts } => (number * 7 + first_weekday(starts)) * DAY_S,
            Period::Month { day } => {
                let (year, month) = (number.div_euclid(12), number.rem_euclid(12) as u8 + 1);
                day_number(year, month, day.min(month_len(year, month))) * DAY_S
            }
            Period::Year { month, day } => {
                day_number(number, month, day.min(month_len(number, month))) * DAY_S
            }
        }
    }

    /// Returns the offset from `since_s` on, until the next clock change.
    fn stretch(&self, since_s: i64) -> ConstantOffset {
        let since = timestamp(since_s);
        let change = self.zone.following(since).next();
        ConstantOffset {
            since_s,
            until_s: change.map_or(i64::MAX, |change| change.timestamp().as_second()),
            offset_s: i64::from(self.zone.to_offset(since).seconds()),
        }
    }
}

impl Periods {
    /// Creates the three periods between four instants. Returns `None` unless each is later than the one before it.
    pub fn new(starts: [Time; 4]) -> Option<Periods> {
        starts.is_sorted_by(|a, b| a < b).then_some(Periods { starts })
    }

    /// Returns start and end of the period that contains `at`, if one of the three does. A period contains its start but
    /// not its end.
    pub fn containing(&self, at: Time) -> Option<(Time, Time)> {
        self.starts.windows(2).map(|pair| (pair[0], pair[1])).find(|(start, end)| *start <= at && at < *end)
    }

    /// Returns the starts of the three periods, and the end of the last.
    pub fn starts(&self) -> [Time; 4] {
        self.starts
    }
}

/// Returns the last two boundaries up to `now` and the first two after it, or the nearest four at the ends of [`Time`].
/// `starts_s` must be sorted.
fn four_around(now: Time, starts_s: impl Iterator<Item = i64>) -> [Time; 4] {
    let mut four = [Time::ZERO; 4];
    let mut found = 0;
    for start in starts_s.map(time) {
        if found > 0 && start == four[3] {
            continue;
        }
        four.rotate_left(1);
        four[3] = start;
        found += 1;
        if start == Time::MAX || (found >= 4 && four[2] > now) {
            break;
        }
    }
    four
}

/// Any leap year.
const LEAP_YEAR: i64 = 2000;

/// Returns the number of days of a month.
fn month_len(year: i64, month: u8) -> u8 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the day number, relative to 1 January 1970, of a date that falls on `weekday`. That day was a Thursday.
fn first_weekday(weekday: Weekday) -> i64 {
    weekday as i64 - Weekday::Thursday as i64
}

/// Returns the number of days from 1 January 1970 to a date, in the Gregorian calendar.
fn day_number(year: i64, month: u8, day: u8) -> i64 {
    // Years start in March here, so that the leap day is the last day of its year and the number of days before a month
    // is a rounded linear function.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days_before_year = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days_before_month = (153 * i64::from(month) + 2) / 5;
    days_before_year + days_before_month + i64::from(day) - 1 - 719_468
}

/// Converts seconds since 1970 to an instant, clamped to the range of [`Time`].
fn time(at_s: i64) -> Time {
    Time::from_us(u64::try_from(at_s).unwrap_or(0).saturating_mul(1_000_000))
}

/// Converts seconds since 1970 to a timestamp of the zone database, clamped to the years -9999 to 9999.
fn timestamp(at_s: i64) -> Timestamp {
    Timestamp::from_second(at_s).unwrap_or(if at_s < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

fn zone_hint(near: Option<&str>) -> String {
    match near {
        Some(near) => format!("did you mean {near:?}?"),
        None => "use an IANA name such as \"Europe/Berlin\" or \"UTC\"".to_owned(),
    }
}

/// Returns the zone whose name or city differs from `name` in only a few letters.
fn nearest_zone(name: &str) -> Option<String> {
    if name.len() > NAME_LEN_MAX {
        return None;
    }
    let wanted = name.to_ascii_lowercase().replace(' ', "_");
    let distance_max = (wanted.len() / 3).min(3);
    TimeZoneDatabase::bundled()
        .available()
        .map(|zone| {
            let known = zone.as_str().to_ascii_lowercase();
            let city = known.rsplit('/').next().unwrap_or(&known);
            let distance = edit_distance(&wanted, &known).min(edit_distance(&wanted, city));
            (distance, zone.as_str().to_owned())
        })
        .filter(|(distance, _)| *distance <= distance_max)
        .min()
        .map(|(_, zone)| zone)
}

/// Returns how many bytes must be inserted, removed or replaced to turn `a` into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, byte_a) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, byte_b) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(byte_a != byte_b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests;
