//! Every time zone agrees with the oracle.

use super::*;

#[test]
fn i17_every_zone_is_right_around_every_clock_change() {
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
    let fixture = &*FIXTURE;
    let (mut changes, mut checks) = (0, 0);
    for zone in &fixture.zones {
        let midnights = zone.clock.midnights(&fixture.dates);
        let tested: Vec<(Calendar, Boundaries)> = fixture
            .periods
            .iter()
            .map(|(period, _)| (zone.calendar(*period), fixture.boundaries(&midnights, *period)))
            .collect();
        let hour = zone.calendar(Period::Hour);
        for change_s in zone.clock.changes(fixture.walk_end_s) {
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
    let names: usize = fixture.zones.iter().map(|zone| zone.names.len()).sum();
    println!("{names} zones, {} different clocks, {changes} changes, {checks} checks", fixture.zones.len());
    assert!(names > 500 && fixture.zones.len() > 250 && changes > 25_000, "the enumeration is incomplete");
}

#[test]
fn i17_months_tile_time_in_every_zone() {
    let fixture = &*FIXTURE;
    let mut count = 0;
    for zone in &fixture.zones {
        let midnights = zone.clock.midnights(&fixture.dates);
        for period in (1..=31).map(|day| Period::Month { day }) {
            let boundaries = fixture.boundaries(&midnights, period);
            count += walk(&zone.calendar(period), &boundaries, Time::ZERO, fixture.walk_end_s);
        }
    }
    println!("{count} months");
}

#[test]
fn i17_days_weeks_and_years_tile_time_in_every_zone() {
    let fixture = &*FIXTURE;
    let mut count = 0;
    for (index, zone) in fixture.zones.iter().enumerate() {
        let midnights = zone.clock.midnights(&fixture.dates);
        // Each zone tests one first day of the week, so each day is tested about forty times.
        let week = Period::Week { starts: WEEKDAYS[index % 7] };
        let years = YEAR_ANCHORS.into_iter().map(|(month, day)| Period::Year { month, day });
        for period in [Period::Day, week].into_iter().chain(years) {
            let boundaries = fixture.boundaries(&midnights, period);
            count += walk(&zone.calendar(period), &boundaries, Time::ZERO, fixture.walk_end_s);
        }
    }
    println!("{count} days, weeks and years");
}

#[test]
fn i17_hours_tile_time_around_every_clock_change() {
    let fixture = &*FIXTURE;
    let mut count = 0;
    for zone in &fixture.zones {
        let calendar = zone.calendar(Period::Hour);
        for change_s in zone.clock.changes(fixture.walk_end_s) {
            let boundaries = zone.clock.hours(change_s - 2 * DAY_S, change_s + 2 * DAY_S);
            let from = second(change_s).minus(Span::from_secs(30 * 3_600));
            count += walk(&calendar, &boundaries, from, change_s + 30 * HOUR_S);
        }
    }
    for name in ["UTC", "Australia/Lord_Howe", "Africa/Monrovia"] {
        let boundaries = clock_of(fixture, name).hours(0, fixture.walk_end_s + DAY_S);
        count += walk(&calendar(Period::Hour, name), &boundaries, Time::ZERO, fixture.walk_end_s);
    }
    println!("{count} hours");
}

fn clock_of<'f>(fixture: &'f Fixture, name: &str) -> &'f Clock {
    let zone = fixture.zones.iter().find(|zone| zone.names.iter().any(|known| known == name));
    &zone.expect("a zone that is listed").clock
}

#[test]
fn i17_every_zone_is_right_at_every_month_start() {
    let fixture = &*FIXTURE;
    let periods = [
        Period::Day,
        Period::Week { starts: Weekday::Monday },
        Period::Month { day: 1 },
        Period::Month { day: 30 },
        Period::Month { day: 31 },
        Period::Year { month: 2, day: 29 },
    ];
    let mut checks = 0;
    for zone in &fixture.zones {
        let midnights = zone.clock.midnights(&fixture.dates);
        let month_starts = fixture.boundaries(&midnights, Period::Month { day: 1 });
        let tested: Vec<(Calendar, Boundaries)> = periods
            .into_iter()
            .map(|period| (zone.calendar(period), fixture.boundaries(&midnights, period)))
            .collect();
        let hour = zone.calendar(Period::Hour);
        for start in month_starts.0.iter().filter(|start| **start < second(fixture.walk_end_s)) {
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
    let fixture = &*FIXTURE;
    let leap_year = fixture.dates.dates.iter().filter(|date| date.year == 2000);
    for name in ["UTC", "America/Havana", "Pacific/Apia", "Australia/Lord_Howe"] {
        let midnights = clock_of(fixture, name).midnights(&fixture.dates);
        for anchor in leap_year.clone() {
            let period = Period::Year { month: anchor.month, day: anchor.day };
            let on = fixture.dates.dates.iter().zip(&midnights).filter(|(date, _)| begins(period, date));
            let boundaries = Boundaries::of(on.map(|(_, midnight_s)| *midnight_s));
            walk(&calendar(period, name), &boundaries, Time::ZERO, fixture.walk_end_s);
        }
    }
}

#[test]
fn i17_every_zone_name_keeps_the_time_of_its_zone() {
    let fixture = &*FIXTURE;
    for zone in &fixture.zones {
        let proved = zone.calendar(Period::Day);
        for name in &zone.names[1..] {
            let other = calendar(Period::Day, name);
            assert_eq!(other.zone_name(), name);
            for change_s in zone.clock.changes(fixture.walk_end_s).chain([0, fixture.walk_end_s]) {
                assert_eq!(other.around(second(change_s)), proved.around(second(change_s)), "{name}");
            }
        }
    }
}

/// The oracle relies on the database's list of changes. This test justifies it.
#[test]
fn i17_no_clock_changes_except_at_the_listed_instants() {
    let fixture = &*FIXTURE;
    for zone in &fixture.zones {
        let kept = TimeZoneDatabase::bundled().get(&zone.names[0]).expect("a zone that is listed");
        let offset_s = |at_s| i64::from(kept.to_offset(timestamp(at_s)).seconds());
        for (step, end_s) in zone.clock.stretches() {
            // Not a divisor of a day, so that the samples cover all hours.
            for at_s in (step.since_s..end_s).step_by(80_000).chain([end_s - 1]) {
                assert_eq!(offset_s(at_s), step.offset_s, "{} at {at_s}", zone.names[0]);
            }
        }
    }
}

#[test]
fn i17_the_last_period_ends_at_the_end_of_time_in_every_zone() {
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
