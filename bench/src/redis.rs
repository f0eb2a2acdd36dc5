//! The Redis suite: the cost of one check for the Redis server.

mod connection;
mod contender;
mod plain;
mod rounds;
mod running;
mod script;
mod store;
mod tollgate;

use contender::Entrant;
use rounds::Row;
use script::Keys;

pub(crate) use rounds::run;

/// The number of keys of the row with different keys in every call.
const MANY: u32 = 1_000;

/// The rows, in order.
fn rows() -> Vec<Row> {
    let twins = [plain::GCRA, plain::TOKEN_BUCKET, plain::FIXED_WINDOW];
    let ours = [1, 4, 16, 64].map(|per_call| tollgate::TOKEN_BUCKET.at(per_call));
    let beside_twins: Vec<Entrant> = ours.into_iter().chain(store::STORES).chain(twins).collect();
    let algorithms = tollgate::ALGORITHMS.iter().flat_map(|entrant| [entrant.at(1), entrant.at(16)]);
    let row = |id, title, keys, entrants| Row { id, title, keys, entrants };
    vec![
        row("many", "1,000 keys", Keys::Many(MANY), beside_twins.clone()),
        row("hot", "one key", Keys::One, beside_twins),
        row("algorithms", "every algorithm, 1,000 keys", Keys::Many(MANY), {
            algorithms.chain([plain::GCRA]).collect()
        }),
        row("operations", "check, record and reserve, 1,000 keys", Keys::Many(MANY), {
            let operations = tollgate::OPERATIONS.iter();
            operations.flat_map(|entrant| [entrant.at(1), entrant.at(16)]).chain([plain::GCRA]).collect()
        }),
    ]
}
