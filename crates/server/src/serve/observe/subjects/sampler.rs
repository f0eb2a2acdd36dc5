//! Which checks are noted.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// Checks of a kind that every thread notes in every second.
const NOTED_PER_SECOND: u32 = 500;
/// Of the others, one in this many on average.
const SAMPLED: u32 = 64;

/// Chooses the checks that are noted. Each thread chooses for itself.
#[derive(Default)]
pub(crate) struct Samplers {
    /// Changes every second.
    second: AtomicU32,
}

/// The state of one thread for one kind of checks.
#[derive(Clone, Copy)]
struct Sampler {
    second: u32,
    /// Checks of this second that are still noted without sampling.
    left: u32,
    /// Checks to skip until the next sample.
    skip: u32,
    random: u32,
}

impl Sampler {
    const fn new(random: u32) -> Sampler {
        Sampler { second: u32::MAX, left: 0, skip: SAMPLED, random }
    }

    /// The number of checks that this one stands for; 0 if it is not noted.
    #[inline(always)]
    fn weight(&mut self, second: u32) -> u32 {
        if self.second != second {
            (self.second, self.left) = (second, NOTED_PER_SECOND);
        }
        if self.left > 0 {
            self.left -= 1;
            return 1;
        }
        self.skip -= 1;
        if self.skip > 0 {
            return 0;
        }
        // Xorshift: regular traffic must not always fall between two samples. From 1 to 127, so 64 on average.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.skip = 1 + self.random % (2 * SAMPLED - 1);
        SAMPLED
    }
}

thread_local! {
    static ALLOWED: Cell<Sampler> = const { Cell::new(Sampler::new(0x9E37_79B9)) };
    static REFUSED: Cell<Sampler> = const { Cell::new(Sampler::new(0x7F4A_7C15)) };
}

impl Samplers {
    /// The number of checks that a check of this kind stands for; 0 if it is not noted. Refusals have their own share, so
    /// that admissions do not use it up.
    #[inline(always)]
    pub(crate) fn weight(&self, is_refused: bool) -> u32 {
        let second = self.second.load(Ordering::Relaxed);
        let choose = |sampler: &Cell<Sampler>| {
            let mut state = sampler.get();
            let weight = state.weight(second);
            sampler.set(state);
            weight
        };
        if is_refused { REFUSED.with(choose) } else { ALLOWED.with(choose) }
    }

    /// Begins a new second. Returns the number of seconds so far.
    pub(crate) fn begin_second(&self) -> u32 {
        self.second.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_checks_of_a_second_are_noted_and_the_others_in_proportion() {
        let mut sampler = Sampler::new(0x9E37_79B9);
        assert!((0..NOTED_PER_SECOND).all(|_| sampler.weight(1) == 1));
        let rest = 1_000_000_u32;
        let counted: u64 = (0..rest).map(|_| u64::from(sampler.weight(1))).sum();
        // 15,625 samples, with a standard deviation of 0.6 %.
        assert!(counted.abs_diff(rest.into()) < u64::from(rest) / 33, "{counted}");
        assert_eq!(sampler.weight(2), 1, "a new second");
    }
}
