//! The keys of a run, pipeline by pipeline.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::index;

/// Checks in flight. A multiple of every number of checks per call.
pub(super) const PIPELINE: usize = 64;

/// The keys of a row.
#[derive(Clone, Copy)]
pub(super) enum Keys {
    /// The same for every check.
    One,
    /// This number of keys; no pipeline contains a key twice.
    Many(u32),
}

impl Keys {
    /// The number of keys.
    pub(super) const fn count(self) -> u32 {
        match self {
            Keys::One => 1,
            Keys::Many(count) => count,
        }
    }
}

/// One check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Check {
    /// The index of its key.
    pub(super) key: usize,
    /// Unique, except that the check that releases what this one took has the same ticket.
    pub(super) ticket: usize,
    /// Whether it releases what was taken with the same ticket.
    pub(super) gives_back: bool,
}

/// Returns this number of full pipelines; another seed gives others.
pub(super) fn script(keys: Keys, pipelines: usize, gives_back: bool, seed: u64) -> Vec<[Check; PIPELINE]> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut script: Vec<[Check; PIPELINE]> = Vec::with_capacity(pipelines);
    for at in 0..pipelines {
        let next = match script.last() {
            Some(taken) if gives_back && at % 2 == 1 => {
                taken.map(|check| Check { gives_back: true, ..check })
            }
            _ => {
                let drawn: Vec<usize> = match keys {
                    Keys::One => vec![0; PIPELINE],
                    Keys::Many(count) => index::sample(&mut random, count as usize, PIPELINE).into_vec(),
                };
                let check =
                    |index| Check { key: drawn[index], ticket: at * PIPELINE + index + 1, gives_back: false };
                std::array::from_fn(check)
            }
        };
        script.push(next);
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_pipeline_contains_a_key_twice_and_all_keys_occur() {
        let script = script(Keys::Many(1_000), 500, false, 1);
        let keys_of = |pipeline: &[Check]| pipeline.iter().map(|check| check.key).collect::<HashSet<usize>>();
        assert!(script.iter().all(|pipeline| keys_of(pipeline).len() == PIPELINE));
        assert_eq!(keys_of(script.as_flattened()).len(), 1_000);
    }

    #[test]
    fn the_next_pipeline_releases_what_was_taken() {
        for pair in script(Keys::Many(100), 4, true, 1).chunks(2) {
            let given_back = pair[0].map(|check| Check { gives_back: true, ..check });
            assert_eq!(pair[1], given_back);
            assert!(pair[0].iter().all(|check| !check.gives_back));
        }
    }
}
