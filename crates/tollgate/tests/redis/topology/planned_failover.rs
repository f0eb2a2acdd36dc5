//! Failovers that an operator orders while the primary is healthy. `cargo xtask chaos` runs more of them.

use tollgate_testkit::drill::{planned_cluster_failovers, planned_sentinel_failovers};
use tollgate_testkit::redis::{Cluster, Flavour, SentinelSet};

use crate::common::runtime;

#[test]
fn a_planned_sentinel_failover_loses_at_most_the_writes_of_50_ms() {
    let runtime = runtime();
    let set = SentinelSet::start(Flavour::Redis70).unwrap();
    for planned in planned_sentinel_failovers(&runtime, &set, 2, 1).unwrap() {
        assert!(planned.is_within_bound(), "{planned}");
        assert!(planned.excess <= planned.lost && planned.tally.refused > 0, "{planned}");
    }
}

#[test]
fn a_planned_cluster_failover_loses_at_most_the_writes_of_50_ms() {
    let runtime = runtime();
    let cluster = Cluster::start(Flavour::Redis70).unwrap();
    for planned in planned_cluster_failovers(&runtime, &cluster, 2, 1).unwrap() {
        assert!(planned.is_within_bound(), "{planned}");
        assert!(planned.excess <= planned.lost && planned.tally.refused > 0, "{planned}");
    }
}
