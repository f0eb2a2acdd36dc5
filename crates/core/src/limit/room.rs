//! Room for records: how far consumption may pass a limit before it is cut.

use crate::limit::Limit;
use crate::limit::error::LimitError;
use crate::time::EXACT_MAX;

/// The overdraft, in limits, that a postpaid rule must be able to count.
pub const RECORD_ROOM: u64 = 16;

impl Limit {
    /// Returns the same limit, in a coarser tick if that is needed, such that [`RECORD_ROOM`] times its number can be
    /// recorded. An error names the largest number that leaves this room.
    pub fn with_room_for_records(self) -> Result<Limit, LimitError> {
        Ok(match self {
            Limit::Bucket(bucket) => Limit::Bucket(bucket.with_room(RECORD_ROOM)?),
            Limit::SlidingWindow(window) => Limit::SlidingWindow(window.with_room(RECORD_ROOM)?),
            // A meter without a limit has no overdraft.
            Limit::Meter(meter) if meter.limit() == EXACT_MAX => self,
            _ => {
                room_for(self.reported_limit())?;
                self
            }
        })
    }
}

/// Returns an error if a plain count cannot pass this number [`RECORD_ROOM`] times.
pub fn room_for(limit: u64) -> Result<(), LimitError> {
    let max = EXACT_MAX / RECORD_ROOM;
    if limit > max { Err(LimitError::TooLarge { what: "limit", found: limit, max }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::bucket::Bucket;
    use crate::algorithm::fixed_window::FixedWindow;
    use crate::algorithm::sliding_window::{Counting, SlidingWindow, SlidingWindowState};
    use crate::plan::answer::Verdict;
    use crate::plan::operation::Operation;
    use crate::state::State;
    use crate::time::{Span, Tick, Time};

    const DAY: Span = Span::from_secs(86_400);

    fn recorded(limit: &Limit, cost: u64) -> u64 {
        let now = Time::from_us(1_700_000_000_000_000);
        match limit.decide(None, now, &Operation::Record { cost }).answer.verdict {
            Verdict::Recorded { amount, .. } => amount,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_limit_without_room_gets_a_coarser_tick_and_counts_sixteen_limits() {
        // A prime, so that the rate does not reduce. 16 capacities drain in 16 days.
        let bucket = Limit::Bucket(Bucket::tokens(40_009, DAY, 40_009).unwrap());
        let window =
            Limit::SlidingWindow(SlidingWindow::new(50_000, DAY, 1, Counting::Interpolated).unwrap());
        for limit in [bucket, window] {
            assert_eq!(limit.tick(), Tick::Micro);
            let number = limit.reported_limit();
            assert!(
                recorded(&limit, RECORD_ROOM * number) < RECORD_ROOM * number,
                "there is no room: {limit:?}"
            );
            let roomy = limit.with_room_for_records().unwrap();
            assert_eq!((roomy.tick(), roomy.reported_limit()), (Tick::Milli, number));
            assert_eq!(roomy.window(Time::ZERO), limit.window(Time::ZERO), "the rate is the same");
            assert_eq!(recorded(&roomy, RECORD_ROOM * number), RECORD_ROOM * number);
        }
    }

    #[test]
    fn a_limit_with_room_stays_as_it_is_and_one_that_cannot_have_it_is_an_error() {
        let small = Limit::Bucket(Bucket::tokens(100, Span::from_secs(1), 100).unwrap());
        assert_eq!(small.with_room_for_records(), Ok(small));
        let fits = Limit::FixedWindow(FixedWindow::new(EXACT_MAX / RECORD_ROOM, DAY).unwrap());
        assert_eq!(fits.with_room_for_records(), Ok(fits));
        let error = Limit::FixedWindow(FixedWindow::new(EXACT_MAX / RECORD_ROOM + 1, DAY).unwrap());
        assert!(error.with_room_for_records().is_err());
        let large = Limit::Bucket(Bucket::tokens(7, Span::from_secs(30 * 86_400), 1_500_000).unwrap());
        let error = large.with_room_for_records().unwrap_err();
        let LimitError::TooLarge { max, .. } = error else { panic!("{error}") };
        let fits = Limit::Bucket(Bucket::tokens(7, Span::from_secs(30 * 86_400), max).unwrap());
        assert!(fits.with_room_for_records().is_ok(), "{error}");
    }

    /// A bucket that is shorter than a millisecond has no coarser tick.
    #[test]
    fn a_short_bucket_without_room_is_an_error_with_the_largest_limit() {
        let buckets_of_half_a_ms = |limit| {
            let window = SlidingWindow::new(limit, Span::from_ms(1), 2, Counting::Interpolated).unwrap();
            Limit::SlidingWindow(window).with_room_for_records()
        };
        let error = buckets_of_half_a_ms(1 << 42).unwrap_err();
        let LimitError::TooLarge { max, .. } = error else { panic!("{error}") };
        assert!(buckets_of_half_a_ms(max).is_ok() && buckets_of_half_a_ms(max + 1).is_err(), "{error}");
    }

    /// Two full buckets do not fit into one running total. The older one is cut.
    #[test]
    fn a_ring_keeps_the_newest_of_counts_that_are_too_many() {
        let newest = Time::from_us(65_000_000);
        let counts = [EXACT_MAX - 5, EXACT_MAX, 7].into_iter().collect();
        let state = State::SlidingWindow(SlidingWindowState { bucket: Span::from_secs(1), newest, counts });
        let window = SlidingWindow::new(10, Span::from_secs(65), 65, Counting::Strict).unwrap();
        let read = Operation::Record { cost: 0 };
        let overdraft =
            |now| match Limit::SlidingWindow(window).decide(Some(&state), now, &read).answer.verdict {
                Verdict::Recorded { overdraft, .. } => overdraft,
                other => panic!("{other:?}"),
            };
        assert_eq!(overdraft(newest), EXACT_MAX - 10);
        assert_eq!(overdraft(newest.plus(Span::from_secs(65))), EXACT_MAX - 5 - 10);
        assert_eq!(overdraft(newest.plus(Span::from_secs(66))), 0);
    }
}
