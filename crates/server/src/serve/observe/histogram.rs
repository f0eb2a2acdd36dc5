//! A histogram of durations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::exposition::Family;

/// Upper bounds of the buckets in microseconds: from a local round trip to longer than any caller waits.
const ENDS_US: [u64; 14] =
    [50, 100, 200, 400, 800, 1_500, 3_000, 6_000, 12_000, 25_000, 50_000, 100_000, 500_000, 3_000_000];

/// Counts by duration.
#[derive(Default)]
pub(crate) struct Histogram {
    /// By bucket; the last one has no bound.
    steps: [AtomicU64; ENDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    pub(crate) fn note(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let step = ENDS_US.iter().position(|&end| us <= end).unwrap_or(ENDS_US.len());
        self.steps[step].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.steps.iter().map(|step| step.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn write(&self, family: &mut Family<'_>, labels: &[(&str, &str)]) {
        let mut count = 0;
        for (number, step) in self.steps.iter().enumerate() {
            count += step.load(Ordering::Relaxed);
            let end = ENDS_US.get(number).map_or_else(|| "+Inf".to_owned(), |&us| seconds(us).to_string());
            family.part("_bucket", &[labels, &[("le", &end)]].concat(), count);
        }
        family.part("_sum", labels, seconds(self.sum_us.load(Ordering::Relaxed)));
        family.part("_count", labels, count);
    }
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::super::exposition::{Exposition, Kind};
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_end_at_the_count() {
        let histogram = Histogram::default();
        for us in [50, 51, 5_000_000] {
            histogram.note(Duration::from_micros(us));
        }
        let mut page = Exposition::default();
        histogram.write(&mut page.family("t_seconds", Kind::Histogram, "Time."), &[("a", "b")]);
        let text = page.into_text();
        for line in [
            "t_seconds_bucket{a=\"b\",le=\"0.00005\"} 1",
            "t_seconds_bucket{a=\"b\",le=\"0.0001\"} 2",
            "t_seconds_bucket{a=\"b\",le=\"3\"} 2",
            "t_seconds_bucket{a=\"b\",le=\"+Inf\"} 3",
            "t_seconds_sum{a=\"b\"} 5.000101",
            "t_seconds_count{a=\"b\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
