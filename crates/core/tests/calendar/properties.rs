//! Properties of periods at any instant.

use proptest::prelude::*;
use tollgate_core::time::calendar::Periods;

use super::*;

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
    fn i17_any_instant_is_in_exactly_one_period_and_its_neighbours_agree(
        period in any_period(),
        zone in any::<prop::sample::Index>(),
        now in any_time(),
    ) {
        let name = &FIXTURE.zones[zone.index(FIXTURE.zones.len())].names[0];
        let Ok(calendar) = Calendar::new(period, name) else {
            prop_assert!(matches!(period, Period::Year { .. }), "only a date of a year can be invalid");
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
    fn i17_a_period_contains_its_start_but_not_its_end(
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
