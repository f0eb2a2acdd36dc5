//! Measures what windows really admit: each limit is given a stream of requests, and an exact count of what it
//! admitted itself says where it admitted too much and where it refused too early.

mod arrivals;

use std::collections::VecDeque;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Counting, SlidingWindow};
use tollgate_core::{Limit, LimitError, Operation, Span, State, Time};

pub(crate) use arrivals::{ORIGIN, PHASES, Phase, SEED, TRACE_MIN};

/// Every measured limit is so many requests per window.
pub(crate) const LIMIT: u64 = 100;
pub(crate) const WINDOW: Span = Span::from_secs(60);
/// The numbers of buckets measured.
pub(crate) const BUCKETS: [u64; 4] = [1, 6, 12, 60];

/// What one limit did with one stream of requests.
pub(crate) struct Measured {
    pub(crate) asked: u64,
    /// When something was admitted, in order.
    pub(crate) admitted: Vec<Time>,
    /// The most that any span of a window's length holds, and when that span ends.
    pub(crate) most: u64,
    pub(crate) most_at: Time,
    /// Refused, although the span that ends there had room.
    pub(crate) refused_early: u64,
}

/// A fixed window under four streams of requests.
pub(crate) struct MeasuredFixed {
    pub(crate) evenly: Measured,
    pub(crate) all_at_once: Measured,
    pub(crate) trace: Measured,
    pub(crate) hurt: Measured,
}

/// A sliding window on the trace, and on requests that are timed to hurt it.
pub(crate) struct MeasuredWindow {
    pub(crate) buckets: u64,
    pub(crate) counting: Counting,
    pub(crate) trace: Measured,
    pub(crate) hurt: Measured,
}

/// Everything that is measured for the pages.
pub(crate) struct Measurements {
    pub(crate) fixed: MeasuredFixed,
    /// The exact log on the trace.
    pub(crate) log: Measured,
    pub(crate) windows: Vec<MeasuredWindow>,
}

impl Measurements {
    pub(crate) fn take() -> Result<Measurements, LimitError> {
        let trace = arrivals::phases();
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
                    hurt: measure(limit, &arrivals::hurting_buckets(buckets)),
                });
            }
        }
        Ok(Measurements {
            fixed: MeasuredFixed {
                evenly: measure(fixed, &arrivals::evenly(2 * LIMIT)),
                all_at_once: measure(fixed, &arrivals::at_every_window()),
                trace: measure(fixed, &trace),
                hurt: measure(fixed, &arrivals::around_an_edge()),
            },
            log: measure(log, &trace),
            windows,
        })
    }

    /// The window of this kind.
    pub(crate) fn window(&self, buckets: u64, counting: Counting) -> Option<&MeasuredWindow> {
        self.windows.iter().find(|window| window.buckets == buckets && window.counting == counting)
    }
}

impl Measured {
    /// How much more than the limit a span held at most.
    pub(crate) fn excess(&self) -> u64 {
        self.most.saturating_sub(LIMIT)
    }

    /// The most that a span of a window's length holds, of all that end within each `step` from `from` to `to`.
    pub(crate) fn trailing(&self, from: Time, to: Time, step: Span) -> Vec<(Time, u64)> {
        let mut trailing = Vec::new();
        let mut start = from;
        while start < to {
            let end = start.plus(step);
            // It only grows where something is admitted.
            let first = self.admitted.partition_point(|&time| time <= start);
            let last = self.admitted.partition_point(|&time| time < end);
            let most = self.admitted[first..last].iter().map(|&time| self.held(time)).max().unwrap_or(0);
            trailing.push((start, most.max(self.held(start))));
            start = end;
        }
        trailing
    }

    /// What the span of a window's length that ends at `at` holds.
    fn held(&self, at: Time) -> u64 {
        let left = self.admitted.partition_point(|&time| time.plus(WINDOW) <= at);
        let come = self.admitted.partition_point(|&time| time <= at);
        (come - left) as u64
    }
}

fn measure(limit: Limit, arrivals: &[Time]) -> Measured {
    let mut state: Option<State> = None;
    let mut held: VecDeque<Time> = VecDeque::new();
    let mut measured = Measured {
        asked: arrivals.len() as u64,
        admitted: Vec::new(),
        most: 0,
        most_at: Time::ZERO,
        refused_early: 0,
    };
    for &now in arrivals {
        while held.front().is_some_and(|time| time.plus(WINDOW) <= now) {
            held.pop_front();
        }
        let step = limit.decide(state.as_ref(), now, &Operation::charge(1));
        if let Some(write) = step.write {
            State::commit(&mut state, write.change);
        }
        if step.answer.is_admitted() {
            held.push_back(now);
            measured.admitted.push(now);
            let holds = held.len() as u64;
            if holds > measured.most {
                (measured.most, measured.most_at) = (holds, now);
            }
        } else if (held.len() as u64) < LIMIT {
            measured.refused_early += 1;
        }
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_keeps_what_is_promised() {
        let measurements = Measurements::take().expect("the limits are valid");
        let fixed = &measurements.fixed;
        for measured in [&fixed.evenly, &fixed.all_at_once, &fixed.trace, &fixed.hurt] {
            assert!(measured.most <= 2 * LIMIT);
        }
        assert_eq!(measurements.log.most, LIMIT);
        assert_eq!(measurements.log.refused_early, 0);
        for window in &measurements.windows {
            let MeasuredWindow { trace, hurt, .. } = window;
            match window.counting {
                Counting::Strict => assert_eq!((trace.excess(), hurt.excess()), (0, 0)),
                Counting::Interpolated => assert!(trace.most < 2 * LIMIT && hurt.most < 2 * LIMIT),
            }
        }
        let errors = |counting| {
            let of = |buckets| measurements.window(buckets, counting).expect("it is measured");
            BUCKETS.map(|buckets| of(buckets).trace.refused_early)
        };
        assert!(errors(Counting::Strict).is_sorted_by(|a, b| a > b), "more buckets refuse less too early");
    }

    #[test]
    fn the_trailing_count_is_the_most_of_each_step() {
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
