//! Sets with sentinels and clusters that cannot fail over, or do not cover all hash slots.

use tollgate_testkit::redis::{Cluster, Flavour, SentinelSet, Server};

use super::*;

#[test]
fn a_broken_sentinel_quorum_and_a_missing_replica_are_found() {
    let mut set = SentinelSet::builder(Flavour::Redis70).replicas(1).start().expect("the servers start");
    set.wait_settled().expect("they settle");
    set.wait_replicas_in_sync().expect("they settle");
    let other = Server::start(Flavour::Redis70).expect("a server starts");
    let (folder, url) = (folder(&other), set.url());
    assert_found(check(&folder, &url, "store-sentinels"), "pass", "agree");
    assert_found(check(&folder, &url, "store-replicas"), "warn", "min-replicas-to-write");
    let count = set.sentinel_ports().len();
    for sentinel in 1..count {
        set.kill9_sentinel(sentinel).expect("it can be killed");
    }
    assert_found(check(&folder, &url, "store-sentinels"), "fail", "does not answer");
    let replica = set.replica_index().expect("a replica");
    set.kill9(replica).expect("it can be killed");
    let gone = || {
        let info = set.primary().expect("a primary").admin().expect("a connection").info("replication");
        info.expect("it answers").get("connected_slaves").is_some_and(|count| count == "0")
    };
    wait_until("the primary notices", gone);
    assert_found(check(&folder, &url, "store-replicas"), "fail", "no replica");
}

#[test]
fn uncovered_slots_of_a_cluster_are_found() {
    let cluster = Cluster::start(Flavour::Redis70).expect("a cluster starts");
    let other = Server::start(Flavour::Redis70).expect("a server starts");
    let (folder, url) = (folder(&other), cluster.url());
    assert_found(check(&folder, &url, "store-cluster"), "pass", "all 16384");
    for node in 0..cluster.count() {
        let mut admin = cluster.admin(node).expect("a connection");
        plant(&mut admin, &["CLUSTER", "DELSLOTS", "7", "8"]);
    }
    let found = check(&folder, &url, "store-cluster");
    assert_found(found, "fail", "2 of 16384 hash slots have no server");
}
