//! Random numbers from a seed.

/// SplitMix64: the same seed gives the same numbers.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 (inclusive) to 1 (exclusive).
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns an integer from 0 (inclusive) to `end` (exclusive).
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.fraction() * end as f64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_depend_on_the_seed_and_are_uniform() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            (0..10_000).map(|_| random.fraction()).collect::<Vec<f64>>()
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        assert!(numbers(7).iter().all(|number| (0.0..1.0).contains(number)));
        for tenth in 0..10 {
            let from = f64::from(tenth) / 10.0;
            let count = numbers(7).iter().filter(|number| (from..from + 0.1).contains(*number)).count();
            assert!((850..1_150).contains(&count), "{count} from {from}");
        }
    }
}
