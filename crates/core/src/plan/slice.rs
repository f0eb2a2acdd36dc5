//! Slices: parts of an allowance that one server books in the store and then spends without asking.
//!
//! A grant is a charge. So the sum of grants never exceeds the limit, and a server that crashes loses only what it has not
//! spent. A grant ends for its holder before the window, bucket or period ends in which the store booked it.

use std::num::NonZeroU32;

use crate::algorithm::bucket::{Bucket, BucketKind};
use crate::limit::Limit;
use crate::plan::answer::Answer;
use crate::plan::operation::Mark;
use crate::time::{Span, Time};

/// How long a server may spend a grant, in whole milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SliceHold {
    ms: NonZeroU32,
}

impl SliceHold {
    /// Shortest hold. A shorter one would end before a slow store has answered.
    pub const MIN: Span = Span::from_ms(10);
    /// Longest hold. Units that one server holds are refused to all others.
    pub const MAX: Span = Span::from_ms(10_000);

    /// Returns the hold, rounded down to milliseconds, or `None` if it is out of range.
    pub fn new(hold: Span) -> Option<SliceHold> {
        if !(SliceHold::MIN..=SliceHold::MAX).contains(&hold) {
            return None;
        }
        let ms = u32::try_from(hold.us() / 1_000).ok().and_then(NonZeroU32::new)?;
        Some(SliceHold { ms })
    }

    /// Returns its length.
    pub const fn span(self) -> Span {
        Span::from_ms(self.ms.get() as u64)
    }
}

impl Limit {
    /// Whether servers can take grants of it: windows, quotas, token buckets and leaky meters.
    pub const fn is_sliceable(&self) -> bool {
        match self {
            Limit::FixedWindow(_) | Limit::SlidingWindow(_) | Limit::Quota(_) => true,
            Limit::Bucket(bucket) => !matches!(bucket.kind(), BucketKind::Queue),
            Limit::SlidingLog(_) | Limit::Concurrency(_) | Limit::Meter(_) | Limit::Penalty(_) => false,
        }
    }

    /// Returns the limit that the store enforces if servers take grants, or `None` if nothing would be left of it.
    ///
    /// A grant of a bucket is spent up to `hold` after it was booked, while the bucket drains. So a bucket keeps what
    /// drains in that time as a margin: what is admitted in any time t stays within `capacity + rate * t`.
    pub fn with_slice_margin(&self, hold: SliceHold) -> Option<Limit> {
        match self {
            Limit::Bucket(bucket) => {
                let capacity = bucket.capacity().checked_sub(drained_in(bucket, hold))?;
                bucket.with_capacity(capacity).map(Limit::Bucket)
            }
            limit => Some(*limit),
        }
    }

    /// Returns the largest useful grant: what a bucket drains while the grant is held. `None` if only the remaining units
    /// bound it.
    pub fn slice_max(&self, hold: SliceHold) -> Option<u64> {
        match self {
            Limit::Bucket(bucket) => Some(drained_in(bucket, hold)),
            _ => None,
        }
    }

    /// Whether unspent units of a grant are given back. Those of a bucket have drained by the end of the grant.
    pub const fn returns_slices(&self) -> bool {
        !matches!(self, Limit::Bucket(_))
    }

    /// Returns when the units of an admitted charge stop counting as those of the same window, sub-bucket or period.
    /// `None` if the answer does not say where they were booked.
    pub fn slice_end(&self, answer: &Answer) -> Option<Time> {
        match (self, answer.mark) {
            (Limit::FixedWindow(limit), Mark::Window { start }) => Some(start.plus(limit.window())),
            (Limit::SlidingWindow(limit), Mark::Window { start }) => {
                Some(start.plus(Span::from_us(limit.window().us() / limit.buckets())))
            }
            (Limit::Quota(_), Mark::Window { .. }) => Some(answer.reset_at),
            (Limit::Bucket(_), Mark::At { .. }) => Some(Time::MAX),
            _ => None,
        }
    }
}

/// Units that drain while a grant is held, rounded up.
fn drained_in(bucket: &Bucket, hold: SliceHold) -> u64 {
    let (drain, scale) = bucket.rate();
    let ticks = u128::from(hold.span().us().div_ceil(bucket.tick().us()));
    u64::try_from((ticks * u128::from(drain)).div_ceil(u128::from(scale))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::fixed_window::FixedWindow;
    use crate::algorithm::sliding_window::{Counting, SlidingWindow};
    use crate::plan::operation::Operation;

    fn hold(ms: u64) -> SliceHold {
        SliceHold::new(Span::from_ms(ms)).unwrap()
    }

    #[test]
    fn a_bucket_keeps_what_drains_during_a_hold_as_margin() {
        let limit = |burst| Limit::Bucket(Bucket::tokens(10, Span::from_secs(1), burst).unwrap());
        assert_eq!(limit(20).with_slice_margin(hold(250)).map(|limit| limit.capacity()), Some(17));
        assert_eq!(limit(20).slice_max(hold(250)), Some(3), "2.5 rounded up");
        assert_eq!(limit(3).with_slice_margin(hold(250)), None, "nothing is left");
        let window = Limit::FixedWindow(FixedWindow::new(5, Span::from_secs(1)).unwrap());
        assert_eq!(window.with_slice_margin(hold(250)), Some(window));
    }

    #[test]
    fn a_grant_of_a_window_ends_with_its_window_or_bucket() {
        let at = Time::from_us(125_300_000);
        let end = |limit: Limit| limit.slice_end(&limit.decide(None, at, &Operation::charge(1)).answer);
        let fixed = Limit::FixedWindow(FixedWindow::new(5, Span::from_secs(60)).unwrap());
        assert_eq!(end(fixed), Some(Time::from_us(180_000_000)));
        let sliding = SlidingWindow::new(5, Span::from_secs(60), 6, Counting::Strict).unwrap();
        assert_eq!(end(Limit::SlidingWindow(sliding)), Some(Time::from_us(130_000_000)));
    }

    #[test]
    fn a_hold_has_a_smallest_and_a_largest_length() {
        for (us, fits) in [(9_999, false), (10_000, true), (10_000_000, true), (10_000_001, false)] {
            assert_eq!(SliceHold::new(Span::from_us(us)).is_some(), fits, "{us} us");
        }
    }
}
