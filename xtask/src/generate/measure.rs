//! Measures what window limits admit. Each limit gets a stream of requests. An exact count of what it admitted shows
//! where it admitted too much and where it refused too early.

mod arrivals;

use std::collections::VecDeque;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate_core::{Limit, LimitError, Operation, Span, State, Time};

pub(crate) use arrivals::{ORIGIN, PHASES, Phase, SEED, TRACE_MIN};

/// Units per window of every measured limit.
pub(crate) const LIMIT: u64 = 100;
pub(crate) const WINDOW: Span = Span::from_secs(60);
/// Bucket counts that are measured.
pub(crate) const BUCKETS: [u64; 4] = [1, 6, 12, 60];

/// How one limit handled one stream of requests.
pub(crate) struct Measured {
    /// Number of requests.
    pub(crate) asked: u64,
    /// Instants of the admissions, in order.
    pub(crate) admitted: Vec<Time>,
    /// Most admissions in any span of one window's length.
    pub(crate) most: u64,
    /// When that span ends.
    pub(crate) most_at: Time,
    /// Requests that were refused although the window before them had room.
    pub(crate) refused_early: u64,
}

/// A fixed window under four streams of requests.
pub(crate) struct MeasuredFixed {
    pub(crate) evenly: Measured,
    pub(crate) bursts: Measured,
    pub(crate) trace: Measured,
    pub(crate) worst_case: Measured,
}

/// A sliding window on the trace, and on its worst-case stream.
pub(crate) struct MeasuredWindow {
    pub(crate) buckets: u64,
    pub(crate) counting: Counting,
    pub(crate) trace: Measured,
    pub(crate) worst_case: Measured,
}

/// All measurements that the pages show.
pub(crate) struct Measurements {
    pub(crate) fixed: MeasuredFixed,
    /// The exact log on the trace.
    pub(crate) log: Measured,
    pub(crate) windows: Vec<MeasuredWindow>,
}

impl Measurements {
    pub(crate) fn take() -> Result<Measurements, LimitError> {
        let trace = arrivals::trace();
        let fixed = Limit::FixedWindow(FixedWindow::new(LIMIT, WINDOW)?);
        let log = Limit::SlidingLog(SlidingLog::new(LIMIT, WINDOW)?);
        let mut windows = Vec::new();
        for counting in [Counting::Strict, Counting::Interpolated] {
            for buckets in BUCKETS {
                let limit = Limit::SlidingWindow(SlidingWindow::new(LIMIT, WINDOW, buckets, counting)?);
                windows.push(MeasuredWindow {
                    buckets,
                    counting,
                    trace: measure(limit, &trace),
                    worst_case: measure(limit, &arrivals::worst_case_for_buckets(buckets)),
                });
            }
        }
        Ok(Measurements {
            fixed: MeasuredFixed {
                evenly: measure(fixed, &arrivals::evenly(2 * LIMIT)),
                bursts: measure(fixed, &arrivals::bursts_at_window_starts()),
                trace: measure(fixed, &trace),
                worst_case: measure(fixed, &arrivals::bursts_around_an_edge()),
            },
            log: measure(log, &trace),
            windows,
        })
    }

    /// Returns the measurements of one kind of sliding window.
    pub(crate) fn window(&self, buckets: u64, counting: Counting) -> Option<&MeasuredWindow> {
        self.windows.iter().find(|window| window.buckets == buckets && window.counting == counting)
    }
}

impl Measured {
    /// Returns by how much the worst span exceeded the limit.
    pub(crate) fn excess(&self) -> u64 {
        self.most.saturating_sub(LIMIT)
    }

    /// Divides `from..to` into steps. Returns, for each step, the most admissions in any window that ends in it.
    pub(crate) fn trailing(&self, from: Time, to: Time, step: Span) -> Vec<(Time, u64)> {
        let mut trailing = Vec::new();
        let mut start = from;
        while start < to {
            let end = start.plus(step);
            // The count grows only at admissions, so only these and the start can be the maximum.
            let first = self.admitted.partition_point(|&time| time <= start);
            let last = self.admitted.partition_point(|&time| time < end);
            let most =
                self.admitted[first..last].iter().map(|&time| self.count_before(time)).max().unwrap_or(0);
            trailing.push((start, most.max(self.count_before(start))));
            start = end;
        }
        trailing
    }

    /// Returns the number of admissions in the window that ends at `at`.
    fn count_before(&self, at: Time) -> u64 {
        let expired = self.admitted.partition_point(|&time| time.plus(WINDOW) <= at);
        let admitted = self.admitted.partition_point(|&time| time <= at);
        (admitted - expired) as u64
    }
}

fn measure(limit: Limit, arrivals: &[Time]) -> Measured {
    let mut state: Option<State> = None;
    let mut window: VecDeque<Time> = VecDeque::new();
    let mut measured = Measured {
        asked: arrivals.len() as u64,
        admitted: Vec::new(),
        most: 0,
        most_at: Time::ZERO,
        refused_early: 0,
    };
    for &now in arrivals {
        while window.front().is_some_and(|time| time.plus(WINDOW) <= now) {
            window.pop_front();
        }
        let step = limit.decide(state.as_ref(), now, &Operation::charge(1));
        if let Some(write) = step.write {
            State::commit(&mut state, write.change);
        }
        if step.answer.is_admitted() {
            window.push_back(now);
            measured.admitted.push(now);
            let count = window.len() as u64;
            if count > measured.most {
                (measured.most, measured.most_at) = (count, now);
            }
        } else if (window.len() as u64) < LIMIT {
            measured.refused_early += 1;
        }
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_stay_within_the_guarantees() {
        let measurements = Measurements::take().expect("the limits are valid");
        let fixed = &measurements.fixed;
        for measured in [&fixed.evenly, &fixed.bursts, &fixed.trace, &fixed.worst_case] {
            assert!(measured.most <= 2 * LIMIT);
        }
        assert_eq!(measurements.log.most, LIMIT);
        assert_eq!(measurements.log.refused_early, 0);
        for window in &measurements.windows {
            let MeasuredWindow { trace, worst_case, .. } = window;
            match window.counting {
                Counting::Strict => assert_eq!((trace.excess(), worst_case.excess()), (0, 0)),
                Counting::Interpolated => assert!(trace.most < 2 * LIMIT && worst_case.most < 2 * LIMIT),
            }
        }
        let errors = |counting| {
            let of = |buckets| measurements.window(buckets, counting).expect("the window is measured");
            BUCKETS.map(|buckets| of(buckets).trace.refused_early)
        };
        assert!(
            errors(Counting::Strict).is_sorted_by(|a, b| a > b),
            "more buckets refuse fewer requests too early"
        );
    }

    #[test]
    fn trailing_returns_the_maximum_of_each_step() {
        let at = |s: u64| ORIGIN.plus(Span::from_secs(s));
        let measured = Measured {
            asked: 3,
            admitted: vec![at(1), at(2), at(61)],
            most: 2,
            most_at: at(2),
            refused_early: 0,
        };
        let counts: Vec<u64> = measured
            .trailing(at(0), at(64), Span::from_secs(1))
            .into_iter()
            .filter(|(time, _)| [0, 1, 2, 60, 61, 62, 63].map(at).contains(time))
            .map(|(_, count)| count)
            .collect();
        assert_eq!(counts, [0, 1, 2, 2, 2, 1, 1]);
    }
}
