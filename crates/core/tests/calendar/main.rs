//! I17: calendar periods tile time, in every time zone, across every clock change, month end and leap day.
//!
//! This file holds the oracle. It takes three things from the zone database: the names of the zones, the instants at which
//! a zone's clock changes, and the offset from UTC. The rest is independent and naive: it enumerates dates one by one and
//! runs each zone's clock forward from 1967, noting when local time first reaches each midnight.
//!
//! Zones with the same clock changes are tested once. `zones::i17_every_zone_name_keeps_the_time_of_its_zone` connects
//! every name with the clock that was tested for it.

mod known_cases;
mod properties;
mod zones;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use tollgate_core::time::calendar::{Calendar, Period, Weekday};
use tollgate_core::time::{Span, Time};

const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 86_400;

const WEEKDAYS: [Weekday; 7] = [
    Weekday::Monday,
    Weekday::Tuesday,
    Weekday::Wednesday,
    Weekday::Thursday,
    Weekday::Friday,
    Weekday::Saturday,
    Weekday::Sunday,
];

/// Ends of years and months, the leap day and its neighbours, and starts of the tax years of several countries.
const YEAR_ANCHORS: [(u8, u8); 14] = [
    (1, 1),
    (1, 31),
    (2, 1),
    (2, 28),
    (2, 29),
    (3, 1),
    (3, 31),
    (4, 6),
    (4, 30),
    (7, 1),
    (9, 30),
    (10, 1),
    (12, 30),
    (12, 31),
];

#[derive(Clone, Copy)]
struct Date {
    year: i64,
    month: u8,
    day: u8,
    weekday: Weekday,
    last_of_month: bool,
}

/// Every date from 1967 to the end of `year_last`. 1 January 1970 is the day number 0 and a Thursday.
struct Dates {
    first_day_number: i64,
    dates: Vec<Date>,
}

impl Dates {
    fn to(year_last: i64) -> Dates {
        let mut dates = Vec::new();
        let mut first_day_number = 0;
        // 1 January 1967 was a Sunday.
        let mut weekday = 6;
        for year in 1967..=year_last {
            let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
            let lens = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            for (month, len) in (1..).zip(lens) {
                for day in 1..=len {
                    let last_of_month = day == len;
                    dates.push(Date { year, month, day, weekday: WEEKDAYS[weekday], last_of_month });
                    weekday = (weekday + 1) % 7;
                    if year < 1970 {
                        first_day_number -= 1;
                    }
                }
            }
        }
        Dates { first_day_number, dates }
    }
}

/// Whether a period begins on that date.
fn begins(period: Period, date: &Date) -> bool {
    let is_day = |day| date.day == day || (date.last_of_month && date.day < day);
    match period {
        Period::Hour => unreachable!("hours do not begin with a date"),
        Period::Day => true,
        Period::Week { starts } => date.weekday == starts,
        Period::Month { day } => is_day(day),
        Period::Year { month, day } => date.month == month && is_day(day),
    }
}

/// From `since_s` until the next step, local time is UTC + `offset_s`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Step {
    since_s: i64,
    offset_s: i64,
}

/// A zone's clock from 1967 to `end_s`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Clock {
    steps: Vec<Step>,
    end_s: i64,
}

fn timestamp(at_s: i64) -> Timestamp {
    Timestamp::from_second(at_s).expect("an instant in the range of the database")
}

impl Clock {
    fn of(zone: &TimeZone, dates: &Dates) -> Clock {
        let begin_s = dates.first_day_number * DAY_S;
        let end_s = begin_s + dates.dates.len() as i64 * DAY_S;
        let offset_s = |at_s| i64::from(zone.to_offset(timestamp(at_s)).seconds());
        let mut steps = vec![Step { since_s: begin_s, offset_s: offset_s(begin_s) }];
        for change in zone.following(timestamp(begin_s)) {
            let since_s = change.timestamp().as_second();
            if since_s >= end_s {
                break;
            }
            steps.push(Step { since_s, offset_s: offset_s(since_s) });
        }
        Clock { steps, end_s }
    }

    /// Returns each step with its end.
    fn stretches(&self) -> impl Iterator<Item = (Step, i64)> {
        let ends = self.steps.iter().skip(1).map(|step| step.since_s).chain([self.end_s]);
        self.steps.iter().copied().zip(ends)
    }

    /// Returns the instants from 1970 to `until_s` at which the clock changes.
    fn changes(&self, until_s: i64) -> impl Iterator<Item = i64> {
        self.steps.iter().skip(1).map(|step| step.since_s).filter(move |at_s| (0..until_s).contains(at_s))
    }

    /// Returns for each date the first instant at which local time is its midnight or later. The last dates may be missing.
    fn midnights(&self, dates: &Dates) -> Vec<i64> {
        let mut midnights = Vec::with_capacity(dates.dates.len());
        for (step, end_s) in self.stretches() {
            loop {
                let midnight_s = (dates.first_day_number + midnights.len() as i64) * DAY_S;
                if midnight_s >= end_s + step.offset_s {
                    break;
                }
                midnights.push(step.since_s.max(midnight_s - step.offset_s));
            }
        }
        midnights.truncate(dates.dates.len());
        midnights
    }

    /// Returns the starts of hours between two instants: full hours of local time, and clock changes by a part of an hour.
    fn hours(&self, from_s: i64, until_s: i64) -> Boundaries {
        let mut hours = Vec::new();
        let mut offset_before_s = self.steps[0].offset_s;
        for (step, end_s) in self.stretches() {
            if (from_s..until_s).contains(&step.since_s) && (step.offset_s - offset_before_s) % HOUR_S != 0 {
                hours.push(step.since_s);
            }
            offset_before_s = step.offset_s;
            let mut at_s = step.since_s.max(from_s);
            let end_s = end_s.min(until_s);
            while at_s < end_s && (at_s + step.offset_s) % HOUR_S != 0 {
                at_s += 1;
            }
            while at_s < end_s {
                hours.push(at_s);
                at_s += HOUR_S;
            }
        }
        Boundaries::of(hours.into_iter())
    }
}

/// The boundaries of a period in a zone. The first one is [`Time::ZERO`].
struct Boundaries(Vec<Time>);

impl Boundaries {
    /// Creates them from sorted seconds since 1970.
    fn of(starts_s: impl Iterator<Item = i64>) -> Boundaries {
        let mut starts = vec![Time::ZERO];
        for start_s in starts_s {
            if start_s > 0 {
                starts.push(Time::from_us(start_s as u64 * 1_000_000));
            }
        }
        starts.dedup();
        Boundaries(starts)
    }

    fn last_index(&self, now: Time) -> usize {
        self.0.partition_point(|start| *start <= now) - 1
    }

    /// Returns the four boundaries around the period with that index, or the first four.
    fn four(&self, index: usize) -> &[Time] {
        let first = index.max(1) - 1;
        &self.0[first..first + 4]
    }
}

/// A clock, and the names of the zones that use it.
struct Zone {
    clock: Clock,
    names: Vec<String>,
}

/// Shared data of the tests, built once.
struct Fixture {
    dates: Dates,
    zones: Vec<Zone>,
    /// The first second of 2101, where the tests stop.
    walk_end_s: i64,
    /// The tested periods except the hour, each with the indexes of the dates on which it begins.
    periods: Vec<(Period, Vec<usize>)>,
}

static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| Fixture::to(2105));

impl Fixture {
    fn to(year_last: i64) -> Fixture {
        let dates = Dates::to(year_last);
        let mut names: BTreeMap<Clock, Vec<String>> = BTreeMap::new();
        for (name, zone) in all_zones() {
            names.entry(Clock::of(&zone, &dates)).or_default().push(name);
        }
        let zones = names.into_iter().map(|(clock, names)| Zone { clock, names }).collect();
        let walk_end = dates.dates.iter().position(|date| date.year == 2101).expect("beyond 2101") as i64;
        let periods = date_periods()
            .map(|period| {
                let on = |(index, date)| begins(period, date).then_some(index);
                (period, dates.dates.iter().enumerate().filter_map(on).collect())
            })
            .collect();
        Fixture { walk_end_s: (dates.first_day_number + walk_end) * DAY_S, dates, zones, periods }
    }

    fn boundaries(&self, midnights: &[i64], period: Period) -> Boundaries {
        let (_, begins) = self.periods.iter().find(|(known, _)| *known == period).expect("a tested period");
        Boundaries::of(begins.iter().map_while(|index| midnights.get(*index).copied()))
    }
}

impl Zone {
    fn calendar(&self, period: Period) -> Calendar {
        calendar(period, &self.names[0])
    }
}

fn all_zones() -> impl Iterator<Item = (String, TimeZone)> {
    let database = TimeZoneDatabase::bundled();
    let names: Vec<String> = database.available().map(|name| name.to_string()).collect();
    names.into_iter().map(move |name| {
        let zone = database.get(&name).expect("a zone that is listed");
        (name, zone)
    })
}

fn date_periods() -> impl Iterator<Item = Period> {
    let weeks = WEEKDAYS.into_iter().map(|starts| Period::Week { starts });
    let months = (1..=31).map(|day| Period::Month { day });
    let years = YEAR_ANCHORS.into_iter().map(|(month, day)| Period::Year { month, day });
    [Period::Day].into_iter().chain(weeks).chain(months).chain(years)
}

fn calendar(period: Period, zone: &str) -> Calendar {
    Calendar::new(period, zone).expect("a valid calendar")
}

fn second(at_s: i64) -> Time {
    Time::from_us(u64::try_from(at_s).expect("an instant since 1970") * 1_000_000)
}

/// Checks that `around(now)` agrees with the oracle.
fn check(calendar: &Calendar, boundaries: &Boundaries, now: Time) {
    check_at(calendar, boundaries, boundaries.last_index(now), now);
}

/// Like [`check`], where the period that contains `now` has that index. Returns the end of the period.
fn check_at(calendar: &Calendar, boundaries: &Boundaries, index: usize, now: Time) -> Time {
    let periods = calendar.around(now);
    let expected = boundaries.four(index);
    let held = periods.containing(now);
    assert!(
        periods.starts() == expected && held == Some((boundaries.0[index], boundaries.0[index + 1])),
        "{:?} in {} around {now:?}: {:?} and in it {held:?}, expected {expected:?}",
        calendar.period(),
        calendar.zone_name(),
        periods.starts(),
    );
    boundaries.0[index + 1]
}

/// Checks from the period that contains `from` to `until_s` that each period begins where the previous one ended, and that
/// the oracle agrees at its first and its last instant. Returns the number of periods.
fn walk(calendar: &Calendar, boundaries: &Boundaries, from: Time, until_s: i64) -> u64 {
    let until = second(until_s);
    let mut index = boundaries.last_index(from);
    let mut start = boundaries.0[index];
    let mut count = 0;
    while start < until {
        let end = check_at(calendar, boundaries, index, start);
        check_at(calendar, boundaries, index, end.minus(Span::from_us(1)));
        start = end;
        index += 1;
        count += 1;
    }
    count
}
