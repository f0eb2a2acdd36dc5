//! Counters that every thread adds to and only a scrape reads.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// As many as fit on a cache line.
const WIDTH: usize = 8;
/// With more threads, some share a line, which is slower but correct.
const LINES: usize = 16;

/// Eight counters. Each thread adds on a separate cache line, so that threads do not contend.
#[derive(Default)]
pub(crate) struct Counters {
    lines: [Line; LINES],
}

#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; WIDTH]);

impl Counters {
    /// Adds one to a counter, and returns what this thread had counted before.
    pub(crate) fn add(&self, number: usize) -> u64 {
        self.lines[line()].0[number].fetch_add(1, Ordering::Relaxed)
    }

    /// The sum over all threads.
    pub(crate) fn sum(&self, number: usize) -> u64 {
        self.lines.iter().map(|line| line.0[number].load(Ordering::Relaxed)).sum()
    }
}

/// The line of this thread.
fn line() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % LINES);
    }
    MINE.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_has_the_additions_of_all_threads() {
        let counters = Counters::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * LINES {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        counters.add(3);
                    }
                });
            }
        });
        assert_eq!((counters.sum(3), counters.sum(2)), (2 * LINES as u64 * 1_000, 0));
    }
}
