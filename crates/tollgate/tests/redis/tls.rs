//! TLS between all servers of a topology, and between them and the store.

use tollgate::store::redis::RedisStore;
use tollgate_core::{Item, Operation, Plan, Store};
use tollgate_testkit::conformance::counting_limits;
use tollgate_testkit::redis::{Cluster, Flavour, SentinelSet, Value, slot_of};

use crate::common::{LIMIT, LONG, TTL_MAX, WINDOW, runtime, settings, shared, subject};

/// Charges a user, and returns what remains.
async fn charge(store: &RedisStore, user: &str) -> u64 {
    let limit = counting_limits(LIMIT, WINDOW).unwrap()[0];
    let until = std::time::Instant::now() + LONG;
    loop {
        let mut plan = Plan::new();
        plan.push(Item::new(shared().key(subject(user)), limit, Operation::charge(1))).unwrap();
        match store.apply(&plan).await {
            Ok(outcome) => return outcome.answers[0].remaining,
            Err(error) => assert!(std::time::Instant::now() < until, "{error:?}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[test]
fn a_cluster_with_tls_is_followed_through_redirects_and_a_failover() {
    let runtime = runtime();
    let cluster = Cluster::builder(Flavour::Redis70).tls().start().unwrap();
    let store = runtime.block_on(settings(&cluster.url()).connect()).unwrap();
    let users: Vec<String> = (0..30).map(|number| format!("user {number}")).collect();
    let charge_all = |remaining: u64| {
        for user in &users {
            assert_eq!(runtime.block_on(charge(&store, user)), remaining, "{user}");
        }
    };
    charge_all(LIMIT - 1);
    // A redirect names the TLS port of another node.
    let slot = slot_of(shared().key(subject(&users[0])).to_string().as_bytes());
    let owner = cluster.owner(slot).unwrap();
    let to = cluster.primaries().into_iter().find(|&node| node != owner).unwrap();
    cluster.move_slot(slot, to).unwrap();
    charge_all(LIMIT - 2);
    cluster.wait_replicas_in_sync().unwrap();
    cluster.failover(cluster.replica_of(to).unwrap()).unwrap();
    charge_all(LIMIT - 3);
    cluster.no_orphans("tg:1:", TTL_MAX, &["user 0"]).unwrap();
    // No other authority signed the certificates.
    let url = cluster.url();
    let (url, _) = url.split_once('?').unwrap();
    let error = runtime.block_on(settings(url).connect()).err().unwrap();
    assert!(format!("{error:?}").contains("UnknownIssuer"), "{error:?}");
}

#[test]
fn sentinels_that_speak_tls_with_each_other_and_the_store_fail_over() {
    let runtime = runtime();
    let set = SentinelSet::builder(Flavour::Redis70).tls_nodes().tls_sentinels().start().unwrap();
    // The sentinels know each other by their TLS ports only.
    let tls_ports: Vec<String> = set.sentinel_ports().iter().map(u16::to_string).collect();
    for number in 0..3 {
        let mut admin = set.sentinel(number).admin().unwrap();
        let others = admin.command(&[b"SENTINEL", b"SENTINELS", set.name().as_bytes()]).unwrap();
        let Value::Array(others) = others else { panic!("{others:?}") };
        assert_eq!(others.len(), 2);
        for other in others {
            let Value::Array(fields) = other else { panic!("{other:?}") };
            let port = fields.iter().position(|field| *field == Value::Bulk(b"port".to_vec())).unwrap() + 1;
            let Value::Bulk(port) = &fields[port] else { panic!("{fields:?}") };
            assert!(tls_ports.contains(&String::from_utf8_lossy(port).into_owned()), "{fields:?}");
        }
    }
    let store = runtime.block_on(settings(&set.url()).connect()).unwrap();
    assert_eq!(runtime.block_on(charge(&store, "user")), LIMIT - 1);
    set.wait_replicas_in_sync().unwrap();
    let promotion = set.failover().unwrap();
    set.wait_announced(promotion.node, LONG).unwrap();
    assert_eq!(runtime.block_on(charge(&store, "user")), LIMIT - 2);
    let address = store.servers()[0].address.clone().unwrap();
    assert!(address.ends_with(&format!(":{}", set.node_port(promotion.node))), "{address}");
}
