//! I17: calendar periods tile time, in every time zone, across every change of its clock, month ends and
//! leap days.
//!
//! The oracle takes three things from the zone database: the names of the zones, the instants at which a
//! zone's clock changes, and how far the clock is ahead of UTC. The rest is its own, and naive: it turns the
//! calendar one day at a time and runs each zone's clock forward from 1967, noting when it first shows each
//! midnight.
//!
//! Zones that share all their changes are proved once. `i17_every_name_keeps_its_zones_time` ties every name
//! to the clock that was proved for it.

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use tollgate_core::calendar::{Calendar, Period, Periods, Weekday};
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

/// The ends of years and months, the leap day and its neighbours, and the tax years of several countries.
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

// ---- the oracle's calendar -------------------------------------------------------------------------------

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

// ---- the oracle's clocks ---------------------------------------------------------------------------------

/// From `since_s` on the clock is `offset_s` ahead of UTC, until the next step.
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
    Timestamp::from_second(at_s).expect("an instant the database knows")
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

    /// Each step with its end.
    fn stretches(&self) -> impl Iterator<Item = (Step, i64)> {
        let ends = self.steps.iter().skip(1).map(|step| step.since_s).chain([self.end_s]);
        self.steps.iter().copied().zip(ends)
    }

    /// The instants since 1970 at which the clock changes, before `until_s`.
    fn changes(&self, until_s: i64) -> impl Iterator<Item = i64> {
        self.steps.iter().skip(1).map(|step| step.since_s).filter(move |at_s| (0..until_s).contains(at_s))
    }

    /// For each date, the first instant at which the clock shows its midnight or later. The last dates may
    /// be missing.
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

    /// The starts of hours between two instants: where the clock shows a full hour, and where it changes by
    /// a part of one.
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

/// The boundaries of a period in a zone, the first at [`Time::ZERO`].
struct Boundaries(Vec<Time>);

impl Boundaries {
    /// From non-decreasing seconds since 1970.
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

    /// The four boundaries around the period with that index, or the first four.
    fn four(&self, index: usize) -> &[Time] {
        let first = index.max(1) - 1;
        &self.0[first..first + 4]
    }
}

/// A clock and the zones that keep it.
struct Zone {
    clock: Clock,
    names: Vec<String>,
}

/// Everything that the tests share: built once.
struct World {
    dates: Dates,
    zones: Vec<Zone>,
    /// The first second of 2101: as far as the tests walk.
    walk_end_s: i64,
    /// The periods under test but the hour, each with the indices of the dates on which it begins.
    periods: Vec<(Period, Vec<usize>)>,
}

static WORLD: LazyLock<World> = LazyLock::new(|| World::to(2105));

impl World {
    fn to(year_last: i64) -> World {
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
        World { walk_end_s: (dates.first_day_number + walk_end) * DAY_S, dates, zones, periods }
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

// ---- checks ----------------------------------------------------------------------------------------------

/// `around(now)` is what the oracle says.
fn check(calendar: &Calendar, boundaries: &Boundaries, now: Time) {
    check_at(calendar, boundaries, boundaries.last_index(now), now);
}

/// The same, where the period that holds `now` has that index. Answers the end of the period.
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

/// From the period that holds `from` to `until_s`, each period begins where the one before it ended, and its
/// first and its last instant are answered as the oracle answers them. Answers how many periods there were.
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

#[test]
fn i17_every_zone_around_every_change_of_its_clock() {
    const AROUND_US: [i64; 15] = [
        -2 * 86_400_000_000,
        -86_400_000_000,
        -86_400_000_000 - 1,
        -7_200_000_000,
        -3_600_000_000,
        -1_800_000_000,
        -1,
        0,
        1,
        1_800_000_000,
        3_600_000_000 - 1,
        3_600_000_000,
        7_200_000_000,
        86_400_000_000,
        2 * 86_400_000_000,
    ];
    let world = &*WORLD;
    let (mut changes, mut checks) = (0, 0);
    for zone in &world.zones {
        let midnights = zone.clock.midnights(&world.dates);
        let tested: Vec<(Calendar, Boundaries)> = world
            .periods
            .iter()
            .map(|(period, _)| (zone.calendar(*period), world.boundaries(&midnights, *period)))
            .collect();
        let hour = zone.calendar(Period::Hour);
        for change_s in zone.clock.changes(world.walk_end_s) {
            changes += 1;
            let hours = zone.clock.hours(change_s - 3 * DAY_S, change_s + 3 * DAY_S);
            for around_us in AROUND_US {
                let Ok(now_us) = u64::try_from(change_s * 1_000_000 + around_us) else { continue };
                let now = Time::from_us(now_us);
                check(&hour, &hours, now);
                for (calendar, boundaries) in &tested {
                    check(calendar, boundaries, now);
                }
                checks += 1 + tested.len();
            }
        }
    }
    let names: usize = world.zones.iter().map(|zone| zone.names.len()).sum();
    println!("{names} zones, {} different clocks, {changes} changes, {checks} checks", world.zones.len());
    assert!(names > 500 && world.zones.len() > 250 && changes > 25_000, "the enumeration lost its zones");
}

#[test]
fn i17_months_tile_time_in_every_zone() {
    let world = &*WORLD;
    let mut count = 0;
    for zone in &world.zones {
        let midnights = zone.clock.midnights(&world.dates);
        for period in (1..=31).map(|day| Period::Month { day }) {
            let boundaries = world.boundaries(&midnights, period);
            count += walk(&zone.calendar(period), &boundaries, Time::ZERO, world.walk_end_s);
        }
    }
    println!("{count} months");
}

#[test]
fn i17_days_weeks_and_years_tile_time_in_every_zone() {
    let world = &*WORLD;
    let mut count = 0;
    for (index, zone) in world.zones.iter().enumerate() {
        let midnights = zone.clock.midnights(&world.dates);
        // Each zone takes one first day of the week, and so all of them are taken about forty times.
        let week = Period::Week { starts: WEEKDAYS[index % 7] };
        let years = YEAR_ANCHORS.into_iter().map(|(month, day)| Period::Year { month, day });
        for period in [Period::Day, week].into_iter().chain(years) {
            let boundaries = world.boundaries(&midnights, period);
            count += walk(&zone.calendar(period), &boundaries, Time::ZERO, world.walk_end_s);
        }
    }
    println!("{count} days, weeks and years");
}

#[test]
fn i17_hours_tile_time_around_every_change_of_every_clock() {
    let world = &*WORLD;
    let mut count = 0;
    for zone in &world.zones {
        let calendar = zone.calendar(Period::Hour);
        for change_s in zone.clock.changes(world.walk_end_s) {
            let boundaries = zone.clock.hours(change_s - 2 * DAY_S, change_s + 2 * DAY_S);
            let from = second(change_s).minus(Span::from_secs(30 * 3_600));
            count += walk(&calendar, &boundaries, from, change_s + 30 * HOUR_S);
        }
    }
    for name in ["UTC", "Australia/Lord_Howe", "Africa/Monrovia"] {
        let boundaries = clock_of(world, name).hours(0, world.walk_end_s + DAY_S);
        count += walk(&calendar(Period::Hour, name), &boundaries, Time::ZERO, world.walk_end_s);
    }
    println!("{count} hours");
}

fn clock_of<'w>(world: &'w World, name: &str) -> &'w Clock {
    let zone = world.zones.iter().find(|zone| zone.names.iter().any(|known| known == name));
    &zone.expect("a zone that is listed").clock
}

#[test]
fn i17_every_zone_at_every_month_start() {
    let world = &*WORLD;
    let periods = [
        Period::Day,
        Period::Week { starts: Weekday::Monday },
        Period::Month { day: 1 },
        Period::Month { day: 30 },
        Period::Month { day: 31 },
        Period::Year { month: 2, day: 29 },
    ];
    let mut checks = 0;
    for zone in &world.zones {
        let midnights = zone.clock.midnights(&world.dates);
        let month_starts = world.boundaries(&midnights, Period::Month { day: 1 });
        let tested: Vec<(Calendar, Boundaries)> = periods
            .into_iter()
            .map(|period| (zone.calendar(period), world.boundaries(&midnights, period)))
            .collect();
        let hour = zone.calendar(Period::Hour);
        for start in month_starts.0.iter().filter(|start| **start < second(world.walk_end_s)) {
            let start_s = (start.us() / 1_000_000) as i64;
            let hours = zone.clock.hours(start_s - DAY_S, start_s + DAY_S);
            for now in [start.minus(Span::from_us(1)), *start] {
                check(&hour, &hours, now);
                for (calendar, boundaries) in &tested {
                    check(calendar, boundaries, now);
                }
                checks += 1 + tested.len();
            }
        }
    }
    println!("{checks} checks");
}

#[test]
fn i17_every_date_of_the_year_can_begin_a_year() {
    let world = &*WORLD;
    let leap_year = world.dates.dates.iter().filter(|date| date.year == 2000);
    for name in ["UTC", "America/Havana", "Pacific/Apia", "Australia/Lord_Howe"] {
        let midnights = clock_of(world, name).midnights(&world.dates);
        for anchor in leap_year.clone() {
            let period = Period::Year { month: anchor.month, day: anchor.day };
            let on = world.dates.dates.iter().zip(&midnights).filter(|(date, _)| begins(period, date));
            let boundaries = Boundaries::of(on.map(|(_, midnight_s)| *midnight_s));
            walk(&calendar(period, name), &boundaries, Time::ZERO, world.walk_end_s);
        }
    }
}

#[test]
fn i17_every_name_keeps_its_zones_time() {
    let world = &*WORLD;
    for zone in &world.zones {
        let proved = zone.calendar(Period::Day);
        for name in &zone.names[1..] {
            let other = calendar(Period::Day, name);
            assert_eq!(other.zone_name(), name);
            for change_s in zone.clock.changes(world.walk_end_s).chain([0, world.walk_end_s]) {
                assert_eq!(other.around(second(change_s)), proved.around(second(change_s)), "{name}");
            }
        }
    }
}

/// The oracle believes the database's list of changes; this is why it may.
#[test]
fn i17_no_clock_changes_between_its_listed_changes() {
    let world = &*WORLD;
    for zone in &world.zones {
        let kept = TimeZoneDatabase::bundled().get(&zone.names[0]).expect("a zone that is listed");
        let offset_s = |at_s| i64::from(kept.to_offset(timestamp(at_s)).seconds());
        for (step, end_s) in zone.clock.stretches() {
            // Not a divisor of a day, so that the samples wander through all hours.
            for at_s in (step.since_s..end_s).step_by(80_000).chain([end_s - 1]) {
                assert_eq!(offset_s(at_s), step.offset_s, "{} at {at_s}", zone.names[0]);
            }
        }
    }
}

#[test]
fn i17_the_last_periods_end_with_time_in_every_zone() {
    let dates = Dates::to(2258);
    let midnight_s = |at: &Time| at.us() / 1_000_000;
    for (name, zone) in all_zones() {
        let clock = Clock::of(&zone, &dates);
        let midnights = clock.midnights(&dates);
        let mut tested: Vec<(Period, Boundaries)> =
            [Period::Day, Period::Month { day: 31 }, Period::Year { month: 6, day: 5 }]
                .into_iter()
                .map(|period| {
                    let on = dates.dates.iter().zip(&midnights).filter(|(date, _)| begins(period, date));
                    (period, Boundaries::of(on.map(|(_, midnight_s)| *midnight_s)))
                })
                .collect();
        if name == "UTC" || name == "Australia/Lord_Howe" {
            tested.push((Period::Hour, clock.hours(0, clock.end_s)));
        }
        for (period, boundaries) in tested {
            let mut ends = boundaries.0;
            ends.retain(|start| midnight_s(start) < midnight_s(&Time::MAX));
            ends.push(Time::MAX);
            let last_four: [Time; 4] = *ends.last_chunk().expect("four periods");
            let calendar = calendar(period, &name);
            for now in [last_four[1], last_four[2], Time::from_us(Time::MAX.us() - 1), Time::MAX] {
                let periods = calendar.around(now);
                assert_eq!(periods.starts(), last_four, "{period:?} in {name} around {now:?}");
                assert_eq!(periods.containing(now).is_some(), now < Time::MAX);
            }
        }
    }
}

fn any_period() -> impl Strategy<Value = Period> {
    prop_oneof![
        Just(Period::Hour),
        Just(Period::Day),
        (0..7_usize).prop_map(|index| Period::Week { starts: WEEKDAYS[index] }),
        (1..=31_u8).prop_map(|day| Period::Month { day }),
        (1..=12_u8, 1..=31_u8).prop_map(|(month, day)| Period::Year { month, day }),
    ]
}

fn any_time() -> impl Strategy<Value = Time> {
    prop_oneof![
        0..=Time::MAX.us(),
        0..400 * 86_400_000_000_u64,
        Time::MAX.us() - 10_000_000_000_000..=u64::MAX
    ]
    .prop_map(Time::from_us)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn i17_any_instant_lies_in_one_period_and_its_neighbours_agree(
        period in any_period(),
        zone in any::<prop::sample::Index>(),
        now in any_time(),
    ) {
        let name = &WORLD.zones[zone.index(WORLD.zones.len())].names[0];
        let Ok(calendar) = Calendar::new(period, name) else {
            prop_assert!(matches!(period, Period::Year { .. }), "only a date can be impossible");
            return Ok(());
        };
        let periods = calendar.around(now);
        prop_assert_eq!(Periods::new(periods.starts()), Some(periods), "strictly increasing");
        let Some((start, end)) = periods.containing(now) else {
            prop_assert_eq!(now, Time::MAX);
            return Ok(());
        };
        prop_assert!(start <= now && now < end);
        prop_assert_eq!(calendar.around(start), periods);
        prop_assert_eq!(calendar.around(Time::from_us(end.us() - 1)), periods);
        if end < Time::MAX {
            prop_assert_eq!(calendar.around(end).containing(end).map(|next| next.0), Some(end));
        }
        if start > Time::ZERO {
            let before = start.minus(Span::from_us(1));
            prop_assert_eq!(calendar.around(before).containing(before).map(|last| last.1), Some(start));
        }
    }

    #[test]
    fn i17_a_period_holds_its_start_and_not_its_end(
        mut us in prop::array::uniform4(0..50_u64),
        at_us in 0..50_u64,
    ) {
        us.sort_unstable();
        let at = Time::from_us(at_us);
        let [a, b, c, d] = us.map(Time::from_us);
        let Some(periods) = Periods::new([a, b, c, d]) else {
            prop_assert!(a == b || b == c || c == d);
            return Ok(());
        };
        prop_assert!(a < b && b < c && c < d);
        let expected = match at {
            _ if at < a => None,
            _ if at < b => Some((a, b)),
            _ if at < c => Some((b, c)),
            _ if at < d => Some((c, d)),
            _ => None,
        };
        prop_assert_eq!(periods.containing(at), expected);
    }
}

// ---- cases with a name -----------------------------------------------------------------------------------

fn at(text: &str) -> Time {
    let timestamp: Timestamp = text.parse().expect("an RFC 3339 instant");
    Time::from_us(timestamp.as_microsecond().try_into().expect("an instant since 1970"))
}

/// Around the second of the four instants, and around the last moment before the third, are the four.
#[track_caller]
fn assert_starts(period: Period, zone: &str, starts: [&str; 4]) {
    let starts = starts.map(at);
    let calendar = calendar(period, zone);
    for now in [starts[1], starts[2].minus(Span::from_us(1))] {
        assert_eq!(calendar.around(now).starts(), starts, "{period:?} in {zone} around {now:?}");
    }
}

#[test]
fn i17_samoa_2011_has_no_30_december() {
    const ZONE: &str = "Pacific/Apia";
    // From the end of 29 December to the start of the 31st.
    const JUMP: &str = "2011-12-30T10:00Z";
    assert_starts(Period::Day, ZONE, ["2011-12-29T10:00Z", JUMP, "2011-12-31T10:00Z", "2012-01-01T10:00Z"]);
    // It would have been a Friday.
    assert_starts(
        Period::Week { starts: Weekday::Friday },
        ZONE,
        ["2011-12-23T10:00Z", JUMP, "2012-01-05T10:00Z", "2012-01-12T10:00Z"],
    );
    assert_starts(
        Period::Month { day: 30 },
        ZONE,
        ["2011-11-30T10:00Z", JUMP, "2012-01-29T10:00Z", "2012-02-28T10:00Z"],
    );
    assert_starts(
        Period::Month { day: 31 },
        ZONE,
        ["2011-11-30T10:00Z", JUMP, "2012-01-30T10:00Z", "2012-02-28T10:00Z"],
    );
}

#[test]
fn i17_kiritimati_1994_ends_a_day_early() {
    const ZONE: &str = "Pacific/Kiritimati";
    // 31 December 1994 does not exist, so the year that begins on it and the next one begin together.
    const JUMP: &str = "1994-12-31T10:00Z";
    assert_starts(
        Period::Year { month: 1, day: 1 },
        ZONE,
        ["1994-01-01T10:00Z", JUMP, "1995-12-31T10:00Z", "1996-12-31T10:00Z"],
    );
    assert_starts(
        Period::Year { month: 12, day: 31 },
        ZONE,
        ["1993-12-31T10:00Z", JUMP, "1995-12-30T10:00Z", "1996-12-30T10:00Z"],
    );
}

#[test]
fn i17_lord_howe_changes_by_half_an_hour() {
    const ZONE: &str = "Australia/Lord_Howe";
    // 02:00 becomes 02:30: an hour of thirty minutes.
    assert_starts(
        Period::Hour,
        ZONE,
        ["2024-10-05T14:30Z", "2024-10-05T15:30Z", "2024-10-05T16:00Z", "2024-10-05T17:00Z"],
    );
    // 02:00 becomes 01:30: the hour from 01:00 is whole, and its second half comes again.
    assert_starts(
        Period::Hour,
        ZONE,
        ["2024-04-06T14:00Z", "2024-04-06T15:00Z", "2024-04-06T15:30Z", "2024-04-06T16:30Z"],
    );
    assert_starts(
        Period::Day,
        ZONE,
        ["2024-10-04T13:30Z", "2024-10-05T13:30Z", "2024-10-06T13:00Z", "2024-10-07T13:00Z"],
    );
}

#[test]
fn i17_caracas_2016_cut_an_hour_in_half() {
    // 02:30 became 03:00.
    assert_starts(
        Period::Hour,
        "America/Caracas",
        ["2016-05-01T05:30Z", "2016-05-01T06:30Z", "2016-05-01T07:00Z", "2016-05-01T08:00Z"],
    );
}

#[test]
fn i17_a_repeated_hour_is_two_periods() {
    // In New York 01:00 to 02:00 comes twice on 3 November 2024.
    assert_starts(
        Period::Hour,
        "America/New_York",
        ["2024-11-03T05:00Z", "2024-11-03T06:00Z", "2024-11-03T07:00Z", "2024-11-03T08:00Z"],
    );
}

#[test]
fn i17_sao_paulo_jumped_over_midnight_and_fell_back_to_before_it() {
    const ZONE: &str = "America/Sao_Paulo";
    assert_starts(
        Period::Day,
        ZONE,
        ["2017-10-14T03:00Z", "2017-10-15T03:00Z", "2017-10-16T02:00Z", "2017-10-17T02:00Z"],
    );
    // At the instant that would have been midnight the clock shows 23:00 again.
    assert_starts(
        Period::Day,
        ZONE,
        ["2018-02-16T02:00Z", "2018-02-17T02:00Z", "2018-02-18T03:00Z", "2018-02-19T03:00Z"],
    );
}

#[test]
fn i17_havana_jumps_over_midnight_and_shows_it_twice() {
    const ZONE: &str = "America/Havana";
    assert_starts(
        Period::Day,
        ZONE,
        ["2024-03-09T05:00Z", "2024-03-10T05:00Z", "2024-03-11T04:00Z", "2024-03-12T04:00Z"],
    );
    assert_starts(
        Period::Day,
        ZONE,
        ["2024-11-02T04:00Z", "2024-11-03T04:00Z", "2024-11-04T05:00Z", "2024-11-05T05:00Z"],
    );
}

#[test]
fn i17_beirut_jumped_over_the_midnight_that_began_a_quota_month() {
    assert_starts(
        Period::Month { day: 31 },
        "Asia/Beirut",
        ["2024-02-28T22:00Z", "2024-03-30T22:00Z", "2024-04-29T21:00Z", "2024-05-30T21:00Z"],
    );
}

#[test]
fn i17_asuncion_jumped_over_the_midnight_that_began_a_month() {
    assert_starts(
        Period::Month { day: 1 },
        "America/Asuncion",
        ["2017-09-01T04:00Z", "2017-10-01T04:00Z", "2017-11-01T03:00Z", "2017-12-01T03:00Z"],
    );
}

#[test]
fn i17_st_johns_fell_back_over_midnight_a_minute_after_it() {
    // 00:01 became 23:01 of the day before; the new day had begun and does not begin again.
    assert_starts(
        Period::Day,
        "America/St_Johns",
        ["2010-11-06T02:30Z", "2010-11-07T02:30Z", "2010-11-08T03:30Z", "2010-11-09T03:30Z"],
    );
}

#[test]
fn i17_a_month_from_the_31st_begins_on_the_last_day_of_a_shorter_month() {
    let month = Period::Month { day: 31 };
    for starts in [
        ["2023-01-31T00:00Z", "2023-02-28T00:00Z", "2023-03-31T00:00Z", "2023-04-30T00:00Z"],
        ["2024-01-31T00:00Z", "2024-02-29T00:00Z", "2024-03-31T00:00Z", "2024-04-30T00:00Z"],
        ["2024-11-30T00:00Z", "2024-12-31T00:00Z", "2025-01-31T00:00Z", "2025-02-28T00:00Z"],
    ] {
        assert_starts(month, "UTC", starts);
    }
}

#[test]
fn i17_2000_had_a_leap_day_and_2100_has_none() {
    let month = Period::Month { day: 29 };
    assert_starts(
        month,
        "UTC",
        ["2000-01-29T00:00Z", "2000-02-29T00:00Z", "2000-03-29T00:00Z", "2000-04-29T00:00Z"],
    );
    assert_starts(
        month,
        "UTC",
        ["2100-01-29T00:00Z", "2100-02-28T00:00Z", "2100-03-29T00:00Z", "2100-04-29T00:00Z"],
    );
    let year = Period::Year { month: 2, day: 29 };
    assert_starts(
        year,
        "UTC",
        ["1999-02-28T00:00Z", "2000-02-29T00:00Z", "2001-02-28T00:00Z", "2002-02-28T00:00Z"],
    );
    assert_starts(
        year,
        "UTC",
        ["2096-02-29T00:00Z", "2097-02-28T00:00Z", "2098-02-28T00:00Z", "2099-02-28T00:00Z"],
    );
    assert_starts(
        year,
        "UTC",
        ["2099-02-28T00:00Z", "2100-02-28T00:00Z", "2101-02-28T00:00Z", "2102-02-28T00:00Z"],
    );
}
