//! Chances from a seed.

/// SplitMix64: the same seed throws the same dice.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A number from 0 up to 1, and never 1.
    pub(crate) fn throw(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bits = (mixed ^ (mixed >> 31)) >> 11;
        bits as f64 / (1_u64 << 53) as f64
    }

    /// A whole number from 0 up to this, and never this.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.throw() * end as f64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throws_follow_the_seed_and_are_spread_evenly() {
        let throws = |seed| {
            let mut dice = Dice::new(seed);
            (0..10_000).map(|_| dice.throw()).collect::<Vec<f64>>()
        };
        assert_eq!(throws(7), throws(7));
        assert_ne!(throws(7), throws(8));
        assert!(throws(7).iter().all(|throw| (0.0..1.0).contains(throw)));
        for tenth in 0..10 {
            let from = f64::from(tenth) / 10.0;
            let count = throws(7).iter().filter(|throw| (from..from + 0.1).contains(*throw)).count();
            assert!((850..1_150).contains(&count), "{count} from {from}");
        }
    }
}
