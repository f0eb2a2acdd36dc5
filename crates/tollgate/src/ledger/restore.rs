//! What the gate gets back from the ledger, as operations.

use tollgate_core::algorithm::quota::QuotaPeriod;
use tollgate_core::stamped::{EXTRA_END, Restore};
use tollgate_core::{EXACT_MAX, Item, Limit, Time};
use tollgate_database::KnownAccount;

/// Returns the operation that writes what the ledger found. `found` is the newest account of the subject at `now`; of an
/// earlier period it is nothing. The outer `None` stands for a ledger that cannot be asked.
pub fn restore_of(item: &Item<'_>, now: Time, found: Option<Option<&KnownAccount>>, epoch: u32) -> Restore {
    let mut restore = Restore {
        start: Time::ZERO,
        end: Time::ZERO,
        used: 0,
        held: 0,
        held_until: Time::ZERO,
        extra: 0,
        extra_no: 0,
        epoch,
        known: found.is_some(),
    };
    let found = found.flatten();
    let found = match item.limit {
        Limit::Quota(quota) => match quota.period() {
            QuotaPeriod::Calendar(periods) => {
                (restore.start, restore.end) = periods.containing(now).unwrap_or((now, now));
                found.filter(|found| time(found.period_us) == restore.start)
            }
            QuotaPeriod::Rolling(length) => {
                let found = found.filter(|found| now < time(found.period_us).plus(length));
                if let Some(found) = found {
                    restore.start = time(found.period_us);
                    restore.end = restore.start.plus(length);
                }
                found
            }
        },
        Limit::Meter(meter) => found.filter(|found| now < time(found.newest_us).plus(meter.expiry())),
        _ => None,
    };
    if let Some(found) = found {
        restore.used = units(found.posted);
        restore.held = units(found.pending);
        restore.held_until = time(found.pending_until_us);
        restore.extra = found.extra.clamp(1 - EXTRA_END, EXTRA_END - 1);
        restore.extra_no = units(found.extra_no);
    }
    restore
}

fn units(units: i64) -> u64 {
    u64::try_from(units).map_or(0, |units| units.min(EXACT_MAX))
}

fn time(us: i64) -> Time {
    Time::from_us(u64::try_from(us).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use tollgate_core::algorithm::quota::Quota;
    use tollgate_core::time::calendar::Periods;
    use tollgate_core::{Keyspace, Operation, Span, SubjectHasher};

    use super::*;

    fn found(period_us: i64, posted: i64) -> KnownAccount {
        let (pending, pending_until_us, extra, extra_no) = (2, 95, -7, 11);
        KnownAccount { period_us, newest_us: 60, posted, pending, pending_until_us, extra, extra_no }
    }

    #[test]
    fn only_an_account_of_the_period_in_force_is_restored() {
        let keyspace = Keyspace::new("test", "rule").expect("a name");
        let key = keyspace.key(SubjectHasher::new([1; 32]).subject([("user", "u")]));
        let calendar = Periods::new([0, 50, 100, 150].map(Time::from_us)).expect("they ascend");
        for (period, account_us, start, end, used) in [
            (QuotaPeriod::Calendar(calendar), 50, 50, 100, 40),
            (QuotaPeriod::Calendar(calendar), 0, 50, 100, 0),
            (QuotaPeriod::Rolling(Span::from_us(30)), 50, 50, 80, 40),
            (QuotaPeriod::Rolling(Span::from_us(10)), 50, 0, 0, 0),
        ] {
            let limit = Limit::Quota(Quota::new(100, 0, period).expect("a limit"));
            let item = Item::new(key, limit, Operation::charge(1));
            let restore = restore_of(&item, Time::from_us(70), Some(Some(&found(account_us, 40))), 9);
            assert_eq!(
                (restore.start.us(), restore.end.us(), restore.used),
                (start, end, used),
                "{period:?}"
            );
            let extra = if used > 0 { (-7, 11, 2, 95) } else { (0, 0, 0, 0) };
            let is = (restore.extra, restore.extra_no, restore.held, restore.held_until.us());
            assert_eq!((is, restore.known, restore.epoch), (extra, true, 9));
        }
        let limit = Limit::Quota(Quota::new(100, 0, QuotaPeriod::Calendar(calendar)).expect("a limit"));
        let unknown = restore_of(&Item::new(key, limit, Operation::charge(1)), Time::from_us(70), None, 9);
        assert_eq!((unknown.known, unknown.start.us(), unknown.used), (false, 50, 0));
    }
}
