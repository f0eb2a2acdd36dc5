//! Deterministic streams of request times.

use super::{LIMIT, WINDOW};
use tollgate_core::{Span, Time};
use tollgate_testkit::random::Random;

/// Start of all streams: a full hour.
pub(crate) const ORIGIN: Time = Time::from_us(1_800_000_000_000_000);
pub(crate) const SEED: u64 = 20_260_101;
/// Length of the trace.
pub(crate) const TRACE_MIN: u64 = 120;

/// One kind of traffic in the trace.
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    /// How many in ten phases are of this kind.
    pub(crate) in_ten: u64,
    pub(crate) per_minute: u64,
    pub(crate) shortest_s: u64,
    pub(crate) longest_s: u64,
}

pub(crate) const PHASES: [Phase; 4] = [
    Phase { name: "quiet", in_ten: 3, per_minute: 40, shortest_s: 10, longest_s: 60 },
    Phase { name: "usual", in_ten: 4, per_minute: 80, shortest_s: 10, longest_s: 60 },
    Phase { name: "busy", in_ten: 2, per_minute: 200, shortest_s: 5, longest_s: 30 },
    Phase { name: "spike", in_ten: 1, per_minute: 1_200, shortest_s: 1, longest_s: 4 },
];

/// A sequence of phases. The seed decides their order and lengths. Every millisecond of a phase has the same
/// probability of a request.
pub(super) fn trace() -> Vec<Time> {
    const MINUTE_MS: u64 = 60_000;
    let mut random = Random::new(SEED);
    let mut arrivals = Vec::new();
    let mut at_ms = 0;
    while at_ms < TRACE_MIN * MINUTE_MS {
        let phase = phase_of(below(&mut random, 10));
        let length_s = phase.shortest_s + below(&mut random, phase.longest_s - phase.shortest_s + 1);
        for ms in at_ms..at_ms + 1_000 * length_s {
            if below(&mut random, MINUTE_MS) < phase.per_minute {
                arrivals.push(ORIGIN.plus(Span::from_ms(ms)));
            }
        }
        at_ms += 1_000 * length_s;
    }
    arrivals
}

/// Maps a number from 0 to 9 to a phase, according to the phases' frequencies.
fn phase_of(mut ticket: u64) -> &'static Phase {
    for phase in &PHASES {
        match ticket.checked_sub(phase.in_ten) {
            Some(rest) => ticket = rest,
            None => return phase,
        }
    }
    &PHASES[0]
}

/// Evenly spaced requests at `per_window`, for ten windows.
pub(super) fn evenly(per_window: u64) -> Vec<Time> {
    (0..10 * per_window).map(|n| ORIGIN.plus(Span::from_us(n * WINDOW.us() / per_window))).collect()
}

/// Twice the limit at the start of each of ten windows.
pub(super) fn bursts_at_window_starts() -> Vec<Time> {
    let window = |n: u64| ORIGIN.plus(Span::from_us(n * WINDOW.us()));
    (0..10).flat_map(|n| vec![window(n); 2 * LIMIT as usize]).collect()
}

/// Twice the limit in the last millisecond of a window, and again at the start of the next.
pub(super) fn bursts_around_an_edge() -> Vec<Time> {
    let edge = ORIGIN.plus(WINDOW);
    let burst = |time: Time| vec![time; 2 * LIMIT as usize];
    [burst(edge.minus(Span::from_ms(1))), burst(edge)].concat()
}

/// L requests in the last millisecond of a bucket, and 2L just before that bucket leaves the window.
pub(super) fn worst_case_for_buckets(buckets: u64) -> Vec<Time> {
    let bucket = Span::from_us(WINDOW.us() / buckets);
    let last = ORIGIN.plus(bucket).minus(Span::from_ms(1));
    let before_it_leaves = last.plus(WINDOW).minus(Span::from_ms(1));
    [vec![last; LIMIT as usize], vec![before_it_leaves; 2 * LIMIT as usize]].concat()
}

/// Returns a number below `bound`. The modulo bias is negligible for the small bounds used here.
fn below(random: &mut Random, bound: u64) -> u64 {
    random.bits() % bound
}
