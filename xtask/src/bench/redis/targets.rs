//! What Tollgate sets out to reach in Redis.

use super::{LARGEST, YARDSTICK};
use crate::bench::report::Report;
use crate::bench::targets::Target;

/// All targets of the suite.
pub(super) fn all(report: &Report) -> Vec<Target> {
    let found = |row: &str| Some(report.row(row)?.cpu_ratio(LARGEST, YARDSTICK)?.median);
    vec![
        Target {
            what: "many keys, batches of 64: Redis CPU against plain GCRA, one check per call",
            at_most: 0.62,
            found: found("many"),
        },
        Target {
            what: "one hot key, batches of 64: Redis CPU against plain GCRA, one check per call",
            at_most: 0.35,
            found: found("hot"),
        },
    ]
}
