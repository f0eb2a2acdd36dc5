//! The numbers of a limit as words, for receipts.

use smallvec::{SmallVec, smallvec};

use crate::algorithm::bucket::{Bucket, BucketKind};
use crate::algorithm::concurrency::Concurrency;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::meter::Meter;
use crate::algorithm::penalty::{Penalty, PenaltyNumbers};
use crate::algorithm::quota::{Quota, QuotaPeriod};
use crate::algorithm::sliding_log::SlidingLog;
use crate::algorithm::sliding_window::{Counting, SlidingWindow};
use crate::limit::Limit;
use crate::time::calendar::Periods;
use crate::time::{EXACT_MAX, Span, Time};

/// The words of one limit.
pub(crate) type Words = SmallVec<[u64; WORDS_MAX]>;

/// This bit of the algorithm's number says that the tick leaves room for records.
const WITH_ROOM: u8 = 0x40;

/// Most words of one limit.
pub(crate) const WORDS_MAX: usize = 7;

impl Limit {
    /// Returns a number for its algorithm, and its numbers. [`Limit::from_words`] makes the same limit of them.
    pub(crate) fn to_words(self) -> (u8, Words) {
        let (algorithm, words) = self.plain_words();
        let may_be_coarser = matches!(self, Limit::Bucket(_) | Limit::SlidingWindow(_));
        if may_be_coarser && Limit::from_words(algorithm, &words) != Some(self) {
            return (algorithm | WITH_ROOM, words);
        }
        (algorithm, words)
    }

    fn plain_words(self) -> (u8, Words) {
        match self {
            Limit::FixedWindow(limit) => (1, smallvec![limit.limit(), limit.window().us()]),
            Limit::SlidingWindow(limit) => {
                let strict = u64::from(limit.counting() == Counting::Strict);
                (2, smallvec![limit.limit(), limit.window().us(), limit.buckets(), strict])
            }
            Limit::SlidingLog(limit) => (3, smallvec![limit.limit(), limit.window().us(), limit.entries()]),
            Limit::Bucket(limit) => {
                let (drain, scale) = limit.rate();
                let (kind, capacity) = match limit.kind() {
                    BucketKind::Tokens => (0, limit.capacity()),
                    BucketKind::Meter => (1, limit.capacity()),
                    BucketKind::Queue => (2, limit.capacity() - 1),
                };
                (4, smallvec![drain, scale * limit.tick().us(), capacity, kind])
            }
            Limit::Concurrency(limit) => (5, smallvec![limit.limit(), limit.lease().us()]),
            Limit::Quota(limit) => {
                let mut words: Words = smallvec![limit.allowance(), limit.grace()];
                match limit.period() {
                    QuotaPeriod::Rolling(length) => words.push(length.us()),
                    QuotaPeriod::Calendar(periods) => words.extend(periods.starts().map(Time::us)),
                }
                (6, words)
            }
            Limit::Meter(limit) => (7, smallvec![limit.limit(), limit.expiry().us()]),
            Limit::Penalty(limit) => {
                let PenaltyNumbers { free, base, factor, longest, memory, count_refused } = limit.numbers();
                let count_refused = u64::from(count_refused);
                (8, smallvec![free, base.us(), factor, longest.us(), memory.us(), count_refused])
            }
        }
    }

    /// Returns the limit with these numbers, or `None` if there is no such limit.
    pub(crate) fn from_words(algorithm: u8, words: &[u64]) -> Option<Limit> {
        if words.iter().any(|&word| word > EXACT_MAX) {
            return None;
        }
        if algorithm & WITH_ROOM != 0 {
            return Limit::from_words(algorithm & !WITH_ROOM, words)?.with_room_for_records().ok();
        }
        let us = Span::from_us;
        Some(match (algorithm, words) {
            (1, &[limit, window]) => Limit::FixedWindow(FixedWindow::new(limit, us(window)).ok()?),
            (2, &[limit, window, buckets, strict @ 0..=1]) => {
                let counting = if strict == 1 { Counting::Strict } else { Counting::Interpolated };
                Limit::SlidingWindow(SlidingWindow::new(limit, us(window), buckets, counting).ok()?)
            }
            (3, &[limit, window, entries]) => {
                Limit::SlidingLog(SlidingLog::with_entries(limit, us(window), entries).ok()?)
            }
            (4, &[rate, period, capacity, kind]) => Limit::Bucket(match kind {
                0 => Bucket::tokens(rate, us(period), capacity).ok()?,
                1 => Bucket::meter(rate, us(period), capacity).ok()?,
                2 => Bucket::queue(rate, us(period), capacity).ok()?,
                _ => return None,
            }),
            (5, &[limit, lease]) => Limit::Concurrency(Concurrency::new(limit, us(lease)).ok()?),
            (6, &[allowance, grace, length]) => {
                Limit::Quota(Quota::new(allowance, grace, QuotaPeriod::Rolling(us(length))).ok()?)
            }
            (6, &[allowance, grace, a, b, c, d]) => {
                let period = QuotaPeriod::Calendar(Periods::new([a, b, c, d].map(Time::from_us))?);
                Limit::Quota(Quota::new(allowance, grace, period).ok()?)
            }
            (7, &[limit, expiry]) => Limit::Meter(Meter::new(Some(limit), Some(us(expiry))).ok()?),
            (8, &[free, base, factor, longest, memory, count_refused @ 0..=1]) => {
                let count_refused = count_refused == 1;
                let (base, longest, memory) = (us(base), us(longest), us(memory));
                let numbers = PenaltyNumbers { free, base, factor, longest, memory, count_refused };
                Limit::Penalty(Penalty::new(numbers).ok()?)
            }
            _ => return None,
        })
    }
}
