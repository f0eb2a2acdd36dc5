//! Clock changes and month ends that are known to be difficult.

use super::*;

fn at(text: &str) -> Time {
    let timestamp: Timestamp = text.parse().expect("an RFC 3339 instant");
    Time::from_us(timestamp.as_microsecond().try_into().expect("an instant since 1970"))
}

/// Checks the four boundaries around the second instant, and around the last microsecond before the third.
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
    // 02:00 becomes 01:30: the hour from 01:00 is whole, and its second half is repeated.
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
fn i17_caracas_2016_has_an_hour_of_30_minutes() {
    // 02:30 became 03:00.
    assert_starts(
        Period::Hour,
        "America/Caracas",
        ["2016-05-01T05:30Z", "2016-05-01T06:30Z", "2016-05-01T07:00Z", "2016-05-01T08:00Z"],
    );
}

#[test]
fn i17_a_repeated_hour_is_two_periods() {
    // In New York, 01:00 to 02:00 occurs twice on 3 November 2024.
    assert_starts(
        Period::Hour,
        "America/New_York",
        ["2024-11-03T05:00Z", "2024-11-03T06:00Z", "2024-11-03T07:00Z", "2024-11-03T08:00Z"],
    );
}

#[test]
fn i17_sao_paulo_skips_midnight_and_falls_back_to_before_it() {
    const ZONE: &str = "America/Sao_Paulo";
    assert_starts(
        Period::Day,
        ZONE,
        ["2017-10-14T03:00Z", "2017-10-15T03:00Z", "2017-10-16T02:00Z", "2017-10-17T02:00Z"],
    );
    // At the instant that would have been midnight, local time is 23:00 again.
    assert_starts(
        Period::Day,
        ZONE,
        ["2018-02-16T02:00Z", "2018-02-17T02:00Z", "2018-02-18T03:00Z", "2018-02-19T03:00Z"],
    );
}

#[test]
fn i17_havana_skips_midnight_and_repeats_it() {
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
fn i17_beirut_skips_the_midnight_at_which_a_quota_month_begins() {
    assert_starts(
        Period::Month { day: 31 },
        "Asia/Beirut",
        ["2024-02-28T22:00Z", "2024-03-30T22:00Z", "2024-04-29T21:00Z", "2024-05-30T21:00Z"],
    );
}

#[test]
fn i17_asuncion_skips_the_midnight_at_which_a_month_begins() {
    assert_starts(
        Period::Month { day: 1 },
        "America/Asuncion",
        ["2017-09-01T04:00Z", "2017-10-01T04:00Z", "2017-11-01T03:00Z", "2017-12-01T03:00Z"],
    );
}

#[test]
fn i17_st_johns_falls_back_across_midnight_one_minute_after_it() {
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
fn i17_2000_is_a_leap_year_and_2100_is_not() {
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
