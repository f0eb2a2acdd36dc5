//! Streams of requests, the same on every machine.

use super::{LIMIT, WINDOW};
use tollgate_core::{Span, Time};

/// Where all streams begin: a full hour.
pub(crate) const ORIGIN: Time = Time::from_us(1_800_000_000_000_000);
pub(crate) const SEED: u64 = 20_260_101;
/// How long the trace is.
pub(crate) const TRACE_MIN: u64 = 120;

/// A kind of traffic.
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    /// How many phases in ten are of this kind.
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

/// Phases in an order and of lengths drawn from the seed. In each millisecond of a phase a request comes with the
/// same probability.
pub(super) fn phases() -> Vec<Time> {
    const MINUTE_MS: u64 = 60_000;
    let mut random = Random(SEED);
    let mut arrivals = Vec::new();
    let mut at_ms = 0;
    while at_ms < TRACE_MIN * MINUTE_MS {
        let phase = drawn(random.below(10));
        let length_s = phase.shortest_s + random.below(phase.longest_s - phase.shortest_s + 1);
        for ms in at_ms..at_ms + 1_000 * length_s {
            if random.below(MINUTE_MS) < phase.per_minute {
                arrivals.push(ORIGIN.plus(Span::from_ms(ms)));
            }
        }
        at_ms += 1_000 * length_s;
    }
    arrivals
}

/// The phase on which `ticket`, one of ten, falls.
fn drawn(mut ticket: u64) -> &'static Phase {
    for phase in &PHASES {
        match ticket.checked_sub(phase.in_ten) {
            Some(rest) => ticket = rest,
            None => return phase,
        }
    }
    &PHASES[0]
}

/// One request after another at `per_window`, for ten windows.
pub(super) fn evenly(per_window: u64) -> Vec<Time> {
    (0..10 * per_window).map(|n| ORIGIN.plus(Span::from_us(n * WINDOW.us() / per_window))).collect()
}

/// Twice the limit at the start of each of ten windows.
pub(super) fn at_every_window() -> Vec<Time> {
    let window = |n: u64| ORIGIN.plus(Span::from_us(n * WINDOW.us()));
    (0..10).flat_map(|n| vec![window(n); 2 * LIMIT as usize]).collect()
}

/// Twice the limit in the last millisecond of a window, and again at the start of the next.
pub(super) fn around_an_edge() -> Vec<Time> {
    let edge = ORIGIN.plus(WINDOW);
    let burst = |time: Time| vec![time; 2 * LIMIT as usize];
    [burst(edge.minus(Span::from_ms(1))), burst(edge)].concat()
}

/// The limit in the last millisecond of a bucket, and more than the limit just before that bucket has left the
/// window.
pub(super) fn hurting_buckets(buckets: u64) -> Vec<Time> {
    let bucket = Span::from_us(WINDOW.us() / buckets);
    let last = ORIGIN.plus(bucket).minus(Span::from_ms(1));
    let before_it_leaves = last.plus(WINDOW).minus(Span::from_ms(1));
    [vec![last; LIMIT as usize], vec![before_it_leaves; 2 * LIMIT as usize]].concat()
}

/// SplitMix64: a counter and a mixing of its bits.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ bits >> 31
    }

    /// A number below `bound`; the bias of the remainder is far below what anything here can show.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
