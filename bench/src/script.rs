//! The keys of a run, in order. Made before the clock starts, so that making them is not measured.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};

/// How often each key occurs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spread {
    /// Every key equally often.
    Uniform,
    /// Zipf: the second key half as often as the first, the third a third as often, and so on.
    Zipf,
}

/// Number of key strings alive at once while a contender is filled.
const CHUNK: u64 = 100_000;
/// Length of a script, which is repeated. It is short enough to stay in the cache, like a key that was just received.
const SHORTEST: u64 = 1_024;

/// Returns the name of key `number` of `keys`. Neighbouring numbers give names that are far apart.
fn key(number: u64, keys: u64) -> String {
    // Multiplying by a prime that does not divide the number of keys permutes them.
    const PRIME: u64 = 2_654_435_761;
    format!("user-{:010}", number * PRIME % keys)
}

/// Draws at most `decisions` keys from `keys`; another seed gives another sequence.
pub(crate) fn script(keys: u64, spread: Spread, decisions: u64, seed: u64) -> Vec<String> {
    let mut random = SmallRng::seed_from_u64(seed);
    let zipf = Zipf::new(keys as f64, 1.0).expect("there is a key");
    let length = decisions.min((4 * keys).max(SHORTEST));
    (0..length)
        .map(|_| match spread {
            Spread::Uniform => key(random.random_range(0..keys), keys),
            Spread::Zipf => key(zipf.sample(&mut random) as u64 - 1, keys),
        })
        .collect()
}

/// Returns every key once, in parts.
pub(crate) fn every_key(keys: u64) -> impl Iterator<Item = Vec<String>> {
    (0..keys.div_ceil(CHUNK)).map(move |chunk| {
        let (from, to) = (chunk * CHUNK, ((chunk + 1) * CHUNK).min(keys));
        (from..to).map(|number| key(number, keys)).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn every_key_comes_once() {
        for keys in [1, 1_000, 100_000, 250_000] {
            let names: HashSet<String> = every_key(keys).flatten().collect();
            assert_eq!(names.len() as u64, keys);
        }
    }

    #[test]
    fn a_script_draws_known_keys_as_often_as_its_spread_says() {
        let known: HashSet<String> = every_key(1_000).flatten().collect();
        for (spread, most_at_least, most_at_most) in [(Spread::Uniform, 1, 30), (Spread::Zipf, 400, 700)] {
            let mut times: HashMap<String, u32> = HashMap::new();
            for name in script(1_000, spread, 4_000, 1) {
                assert!(known.contains(&name), "{name}");
                *times.entry(name).or_default() += 1;
            }
            let most = times.values().copied().max().expect("the script is not empty");
            assert!((most_at_least..=most_at_most).contains(&most), "{spread:?}: {most}");
        }
    }
}
