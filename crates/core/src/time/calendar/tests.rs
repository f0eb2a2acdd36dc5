use super::*;

fn calendar(period: Period, zone: &str) -> Calendar {
    Calendar::new(period, zone).expect("a valid calendar")
}

/// A calendar in a zone that the database does not have, from a POSIX rule.
fn posix_calendar(period: Period, rule: &str) -> Calendar {
    Calendar { period, zone: TimeZone::posix(rule).expect("a valid rule") }
}

fn at(text: &str) -> Time {
    let timestamp: Timestamp = text.parse().expect("an RFC 3339 instant");
    Time::from_us(timestamp.as_microsecond().try_into().expect("an instant since 1970"))
}

fn starts(texts: [&str; 4]) -> [Time; 4] {
    texts.map(at)
}

#[test]
fn periods_of_each_kind_in_utc() {
    let now = at("2024-02-29T12:34:56.789Z");
    let week = |starts| Period::Week { starts };
    for (period, expected) in [
        (Period::Hour, ["2024-02-29T11:00Z", "2024-02-29T12:00Z", "2024-02-29T13:00Z", "2024-02-29T14:00Z"]),
        (Period::Day, ["2024-02-28T00:00Z", "2024-02-29T00:00Z", "2024-03-01T00:00Z", "2024-03-02T00:00Z"]),
        (
            week(Weekday::Monday),
            ["2024-02-19T00:00Z", "2024-02-26T00:00Z", "2024-03-04T00:00Z", "2024-03-11T00:00Z"],
        ),
        (
            week(Weekday::Thursday),
            ["2024-02-22T00:00Z", "2024-02-29T00:00Z", "2024-03-07T00:00Z", "2024-03-14T00:00Z"],
        ),
        (
            week(Weekday::Sunday),
            ["2024-02-18T00:00Z", "2024-02-25T00:00Z", "2024-03-03T00:00Z", "2024-03-10T00:00Z"],
        ),
        (
            Period::Month { day: 31 },
            ["2024-01-31T00:00Z", "2024-02-29T00:00Z", "2024-03-31T00:00Z", "2024-04-30T00:00Z"],
        ),
        (
            Period::Month { day: 1 },
            ["2024-01-01T00:00Z", "2024-02-01T00:00Z", "2024-03-01T00:00Z", "2024-04-01T00:00Z"],
        ),
        (
            Period::Year { month: 2, day: 29 },
            ["2023-02-28T00:00Z", "2024-02-29T00:00Z", "2025-02-28T00:00Z", "2026-02-28T00:00Z"],
        ),
        (
            Period::Year { month: 4, day: 6 },
            ["2022-04-06T00:00Z", "2023-04-06T00:00Z", "2024-04-06T00:00Z", "2025-04-06T00:00Z"],
        ),
    ] {
        assert_eq!(calendar(period, "UTC").around(now).starts(), starts(expected), "{period:?}");
    }
}

#[test]
fn a_date_begins_at_the_change_if_the_clock_skips_midnight() {
    // The clock goes from 23:30 on 10 March to 00:30 on 11 March, so midnight is strictly inside the jump.
    let days = posix_calendar(Period::Day, "STD0DST,M3.2.0/23:30,M11.1.0/12");
    let expected = ["2024-03-10T00:00Z", "2024-03-10T23:30Z", "2024-03-11T23:00Z", "2024-03-12T23:00Z"];
    assert_eq!(days.around(at("2024-03-10T23:30Z")).starts(), starts(expected));
    assert_eq!(days.around(at("2024-03-11T22:59:59.999999Z")).starts(), starts(expected));
}

#[test]
fn a_date_begins_at_the_first_of_two_midnights() {
    // The clock goes from 00:30 on 4 November back to 23:30 on 3 November.
    let days = posix_calendar(Period::Day, "STD0DST,M3.2.0/2,M11.1.0/24:30");
    let expected = ["2024-11-02T23:00Z", "2024-11-03T23:00Z", "2024-11-05T00:00Z", "2024-11-06T00:00Z"];
    for now in ["2024-11-03T23:00Z", "2024-11-03T23:29:59.999999Z", "2024-11-03T23:30Z", "2024-11-04T12:00Z"]
    {
        assert_eq!(days.around(at(now)).starts(), starts(expected), "{now}");
    }
}

#[test]
fn an_hour_begins_at_a_change_that_is_not_whole_hours() {
    // Forward by 20 minutes at 02:10, back by 20 minutes at 02:10.
    let hours = posix_calendar(Period::Hour, "STD0DST-0:20,M3.2.0/2:10,M11.1.0/2:10");
    assert_eq!(
        hours.around(at("2024-03-10T02:10Z")).starts(),
        starts(["2024-03-10T02:00Z", "2024-03-10T02:10Z", "2024-03-10T02:40Z", "2024-03-10T03:40Z"])
    );
    assert_eq!(
        hours.around(at("2024-11-03T01:50Z")).starts(),
        starts(["2024-11-03T01:40Z", "2024-11-03T01:50Z", "2024-11-03T02:00Z", "2024-11-03T03:00Z"])
    );
}

#[test]
fn periods_are_cut_off_at_the_ends_of_time() {
    let months = calendar(Period::Month { day: 15 }, "America/New_York");
    let first = ["1970-01-01T00:00Z", "1970-01-15T05:00Z", "1970-02-15T05:00Z", "1970-03-15T05:00Z"];
    for now in ["1970-01-01T00:00Z", "1970-01-15T04:59:59.999999Z", "1970-01-15T05:00Z"] {
        assert_eq!(months.around(at(now)).starts(), starts(first), "{now}");
    }
    let last = [at("2255-03-15T04:00Z"), at("2255-04-15T04:00Z"), at("2255-05-15T04:00Z"), Time::MAX];
    for now in [at("2255-04-15T04:00Z"), at("2255-05-15T04:00Z"), Time::MAX] {
        assert_eq!(months.around(now).starts(), last, "{now:?}");
    }
    assert_eq!(months.around(Time::MAX).containing(Time::MAX), None);
}

#[test]
fn periods_are_half_open_and_sorted() {
    let [a, b, c, d] = [1, 2, 4, 9].map(Time::from_us);
    let periods = Periods::new([a, b, c, d]).expect("in order");
    for (us, expected) in
        [(0, None), (1, Some((a, b))), (2, Some((b, c))), (3, Some((b, c))), (8, Some((c, d))), (9, None)]
    {
        assert_eq!(periods.containing(Time::from_us(us)), expected, "{us}");
    }
    assert_eq!(Periods::new([a, b, b, d]), None);
    assert_eq!(Periods::new([d, c, b, a]), None);
}

#[test]
fn an_invalid_calendar_is_rejected_with_the_valid_values() {
    for (period, zone, message) in [
        (
            Period::Month { day: 0 },
            "UTC",
            "a month can begin on day 1 to 31 (in a shorter month that means its last day), not on day 0",
        ),
        (
            Period::Month { day: 32 },
            "UTC",
            "a month can begin on day 1 to 31 (in a shorter month that means its last day), not on day 32",
        ),
        (Period::Year { month: 0, day: 1 }, "UTC", "a year can begin in month 1 to 12, not in month 0"),
        (Period::Year { month: 13, day: 1 }, "UTC", "a year can begin in month 1 to 12, not in month 13"),
        (
            Period::Year { month: 2, day: 30 },
            "UTC",
            "a year that begins in month 2 can begin on day 1 to 29, not on day 30",
        ),
        (
            Period::Year { month: 4, day: 0 },
            "UTC",
            "a year that begins in month 4 can begin on day 1 to 30, not on day 0",
        ),
        (Period::Day, "Europe/Berlni", r#"unknown time zone "Europe/Berlni"; did you mean "Europe/Berlin"?"#),
        (Period::Day, "new york", r#"unknown time zone "new york"; did you mean "America/New_York"?"#),
        (
            Period::Day,
            "Etc/Unknown",
            r#"unknown time zone "Etc/Unknown"; use an IANA name such as "Europe/Berlin" or "UTC""#,
        ),
        (Period::Day, "", r#"unknown time zone ""; use an IANA name such as "Europe/Berlin" or "UTC""#),
    ] {
        let error = Calendar::new(period, zone).expect_err("refused");
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn a_long_zone_name_is_truncated() {
    let Err(CalendarError::UnknownZone { name, near }) = Calendar::new(Period::Day, &"é".repeat(10_000))
    else {
        panic!("not refused as unknown");
    };
    assert_eq!((name.chars().count(), near), (NAME_LEN_MAX, None));
}

#[test]
fn a_zone_name_is_spelled_as_the_database_spells_it() {
    assert_eq!(calendar(Period::Day, "europe/BERLIN").zone_name(), "Europe/Berlin");
    assert_eq!(calendar(Period::Day, "utc").zone_name(), "UTC");
}
