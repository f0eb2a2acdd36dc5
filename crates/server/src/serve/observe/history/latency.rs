//! Latencies in buckets that grow by half an octave, so that percentiles of any second can be read later.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts by latency. Two buckets per doubling, from 4 us to 4 s.
pub(crate) struct LatencyCounts([AtomicU64; LatencyCounts::BUCKETS]);

impl LatencyCounts {
    pub(crate) const BUCKETS: usize = 40;

    pub(crate) fn note(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.0[bucket(us)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sums(&self) -> [u64; LatencyCounts::BUCKETS] {
        std::array::from_fn(|number| self.0[number].load(Ordering::Relaxed))
    }
}

impl Default for LatencyCounts {
    fn default() -> LatencyCounts {
        LatencyCounts(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// The bucket of a latency. The first holds everything up to 4 us, the last everything above 2.9 s.
fn bucket(us: u64) -> usize {
    (0..LatencyCounts::BUCKETS - 1).find(|&bucket| us <= end_us(bucket)).unwrap_or(LatencyCounts::BUCKETS - 1)
}

/// The upper end of a bucket: 4, 5.6, 8, 11.3, 16 us and so on, rounded down.
fn end_us(bucket: usize) -> u64 {
    let whole = 4 << (bucket / 2);
    // The square root of two as a fraction.
    if bucket.is_multiple_of(2) { whole } else { whole * 1_414 / 1_000 }
}

/// Returns the latency in microseconds that this share of the calls did not exceed, rounded up to the end of a bucket.
pub(super) fn percentile(counts: &[u64], share: f64) -> Option<u64> {
    let calls: u64 = counts.iter().sum();
    let wanted = (calls as f64 * share).ceil() as u64;
    let mut seen = 0;
    let found = counts.iter().position(|count| {
        seen += count;
        seen >= wanted
    });
    found.filter(|_| calls > 0).map(end_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_at_most_half_an_octave_too_high() {
        for us in [1_u64, 5, 90, 1_000, 24_999, 1_000_000] {
            let counts = LatencyCounts::default();
            counts.note(Duration::from_micros(us));
            let found = percentile(&counts.sums(), 0.99).expect("there is a call");
            assert!(found >= us && found as f64 <= (us as f64 * 1.4143).max(4.0), "{us}: {found}");
        }
        assert_eq!(percentile(&[0; LatencyCounts::BUCKETS], 0.5), None, "no call");
    }

    #[test]
    fn percentiles_are_those_of_the_counted_calls() {
        let counts = LatencyCounts::default();
        for us in [10; 98].into_iter().chain([5_000; 2]) {
            counts.note(Duration::from_micros(us));
        }
        let sums = counts.sums();
        assert_eq!(percentile(&sums, 0.5), Some(11), "the bucket that ends at 11 us");
        assert_eq!(percentile(&sums, 0.98), Some(11));
        assert_eq!(percentile(&sums, 0.99), Some(5_791));
    }
}
