//! A share of a limit, for limiters in one process that stand in for the store.

use crate::algorithm::bucket::{Bucket, BucketKind};
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::meter::Meter;
use crate::algorithm::quota::Quota;
use crate::algorithm::sliding_log::SlidingLog;
use crate::algorithm::sliding_window::SlidingWindow;
use crate::limit::Limit;
use crate::time::Span;

const MS: u128 = 1_000;
/// Rates are scaled over at least this many microseconds, so that rounding up to whole milliseconds costs little.
const PERIOD_MIN_US: u128 = 1_000_000;

/// A part of a whole, above zero. Only [`Share::scale`] makes one above the whole.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Share {
    parts: u32,
    of: u32,
}

impl Share {
    /// Returns `percent` of 100, or `None` if it is 0 or above 100.
    pub const fn percent(percent: u8) -> Option<Share> {
        if percent == 0 || percent > 100 { None } else { Some(Share { parts: percent as u32, of: 100 }) }
    }

    /// Returns `percent` of 100, also above 100, or `None` if it is 0.
    pub const fn scale(percent: u16) -> Option<Share> {
        if percent == 0 { None } else { Some(Share { parts: percent as u32, of: 100 }) }
    }

    /// Returns the fair share of one server among `servers`, or `None` for zero servers.
    pub const fn one_of(servers: u32) -> Option<Share> {
        if servers == 0 { None } else { Some(Share { parts: 1, of: servers }) }
    }

    /// Returns the share of some units, rounded down.
    pub const fn of(self, units: u64) -> u64 {
        (units as u128 * self.parts as u128 / self.of as u128) as u64
    }
}

impl Limit {
    /// Returns this limit with a share of its capacity (at least 1) and of its rate, rounded down. `None` for limits that
    /// cannot be shared: concurrency, shapers and penalties.
    pub fn share(&self, share: Share) -> Option<Limit> {
        let part = |units: u64| share.of(units).max(1);
        match *self {
            Limit::FixedWindow(limit) => {
                FixedWindow::new(part(limit.limit()), limit.window()).ok().map(Limit::FixedWindow)
            }
            Limit::SlidingWindow(limit) => {
                SlidingWindow::new(part(limit.limit()), limit.window(), limit.buckets(), limit.counting())
                    .ok()
                    .map(Limit::SlidingWindow)
            }
            Limit::SlidingLog(limit) => {
                SlidingLog::with_entries(part(limit.limit()), limit.window(), limit.entries())
                    .ok()
                    .map(Limit::SlidingLog)
            }
            Limit::Bucket(limit) => share_of_bucket(&limit, share).map(Limit::Bucket),
            Limit::Quota(limit) => {
                Quota::new(part(limit.allowance()), share.of(limit.grace()), limit.period())
                    .ok()
                    .map(Limit::Quota)
            }
            Limit::Meter(limit) => {
                Meter::new(Some(part(limit.limit())), Some(limit.expiry())).ok().map(Limit::Meter)
            }
            Limit::Concurrency(_) | Limit::Penalty(_) => None,
        }
    }
}

/// The same amount per longer period, in whole milliseconds, rounded up.
fn share_of_bucket(limit: &Bucket, share: Share) -> Option<Bucket> {
    let make = match limit.kind() {
        BucketKind::Tokens => Bucket::tokens,
        BucketKind::Meter => Bucket::meter,
        BucketKind::Queue => return None,
    };
    let (amount, ticks) = limit.rate();
    let period_us = u128::from(ticks) * u128::from(limit.tick().us());
    let times = PERIOD_MIN_US.div_ceil(period_us);
    let amount = u64::try_from(u128::from(amount) * times).ok()?;
    let period_us = (period_us * times * u128::from(share.of)).div_ceil(u128::from(share.parts));
    let period = Span::from_ms(u64::try_from(period_us.div_ceil(MS)).ok()?);
    make(amount, period, share.of(limit.capacity()).max(1)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::concurrency::Concurrency;

    fn quarter() -> Share {
        Share::percent(25).unwrap()
    }

    #[test]
    fn a_share_scales_capacity_and_rate() {
        let bucket = |rate, period, capacity| Bucket::tokens(rate, period, capacity).unwrap();
        let whole = Limit::Bucket(bucket(100, Span::from_secs(1), 40));
        assert_eq!(whole.share(quarter()), Some(Limit::Bucket(bucket(100, Span::from_secs(4), 10))));
        let window = |limit| Limit::FixedWindow(FixedWindow::new(limit, Span::from_secs(60)).unwrap());
        assert_eq!(window(10).share(quarter()), Some(window(2)));
        assert_eq!(window(1).share(quarter()), Some(window(1)), "at least one unit");
        assert_eq!(window(10).share(Share::one_of(3).unwrap()), Some(window(3)));
    }

    #[test]
    fn a_fast_rate_keeps_its_share_in_spite_of_rounding() {
        let whole = Limit::Bucket(Bucket::tokens(1_000_000, Span::from_secs(1), 1_000_000).unwrap());
        let Some(Limit::Bucket(part)) = whole.share(Share::percent(33).unwrap()) else { panic!("a bucket") };
        let (drain, scale) = part.rate();
        let per_second = drain * (1_000_000 / part.tick().us()) / scale;
        assert!((329_000..=330_000).contains(&per_second), "{per_second} per second");
    }

    #[test]
    fn limits_that_cannot_be_divided_have_no_share() {
        let leases = Limit::Concurrency(Concurrency::new(5, Span::from_secs(1)).unwrap());
        assert_eq!(leases.share(quarter()), None);
        let shaper = Limit::Bucket(Bucket::queue(5, Span::from_secs(1), 5).unwrap());
        assert_eq!(shaper.share(quarter()), None);
        assert!(Share::percent(0).is_none() && Share::percent(101).is_none() && Share::one_of(0).is_none());
    }
}
