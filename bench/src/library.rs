//! The library suite: limiters that decide inside one process.

mod bare_map;
mod gcra;
mod governor;
mod limitador;
mod ratelimit;
mod throttlecrab;
mod tollgate;

use tollgate_bench_report::thousands;

use crate::contender::Entrant;
use crate::rounds::{Effort, Row, Stage};
use crate::script::Spread;

/// Contenders that keep state per string key.
const KEYED: [Entrant; 7] = [
    tollgate::KEYED,
    governor::DASHMAP,
    governor::HASHMAP,
    gcra::KEYED,
    throttlecrab::KEYED,
    limitador::KEYED,
    bare_map::KEYED,
];

/// Contenders with one state and no keys. The difference to the others is the cost of finding a key.
const DIRECT: [Entrant; 2] = [governor::DIRECT, ratelimit::DIRECT];

/// Contenders that find the rules of a request first, and the yardsticks.
const RULES: [Entrant; 6] = [
    tollgate::ONE_RULE,
    tollgate::THREE_RULES,
    limitador::ONE_RULE,
    limitador::THREE_RULES,
    tollgate::KEYED,
    governor::DASHMAP,
];

const SIZES: [u64; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];
/// With fewer keys, the fixed memory of a contender hides its memory per key.
const WEIGHED_FROM: u64 = 10_000;
/// The number of keys of the row with rules and many keys.
const RULES_KEYS: u64 = 1_000_000;

/// The rows, in order.
pub(crate) fn stages(effort: &Effort) -> Vec<Stage> {
    let row = |id: &str, title: String, spread| {
        let counted = id.ends_with("hot");
        Row { id: id.to_owned(), title, spread, threads: 1, counted }
    };
    let mut hot = vec![row("hot", "one key".to_owned(), Spread::Uniform)];
    hot.push(Row { threads: 2, ..row("hot-2-threads", "one key, two threads".to_owned(), Spread::Uniform) });
    let entrants = KEYED.into_iter().chain(DIRECT).collect();
    let mut stages = vec![Stage { keys: 1, entrants, rows: hot, weighed: false }];
    for keys in SIZES.into_iter().filter(|&keys| keys <= effort.keys_max) {
        let name = |spread| format!("{} keys, {spread}", thousands(keys));
        stages.push(Stage {
            keys,
            entrants: taking_part(&KEYED, keys),
            rows: vec![
                row(&format!("uniform-{keys}"), name("uniform"), Spread::Uniform),
                row(&format!("zipf-{keys}"), name("Zipf"), Spread::Zipf),
            ],
            weighed: keys >= WEIGHED_FROM,
        });
    }
    let keys = RULES_KEYS.min(effort.keys_max);
    let many = format!("20 rules, {} keys, uniform", thousands(keys));
    for (keys, row) in [
        (1, row("rules-hot", "20 rules, one key".to_owned(), Spread::Uniform)),
        (keys, row("rules-many", many, Spread::Uniform)),
    ] {
        stages.push(Stage { keys, entrants: taking_part(&RULES, keys), rows: vec![row], weighed: false });
    }
    stages
}

fn taking_part(entrants: &[Entrant], keys: u64) -> Vec<Entrant> {
    entrants.iter().filter(|entrant| keys <= entrant.keys_max).copied().collect()
}
