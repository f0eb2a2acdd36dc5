//! Sharded rules: the same promises in memory, on one server and on a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Runtime;
use tollgate::{HashKey, Limiter, LocalLimiter, Request};
use tollgate_testkit::redis::{Cluster, Flavour, Server};

use crate::common::{clean, runtime, settings};

const RULES: &str = "
version: 1
rules:
  - { id: hot, per: user, limit: { fixed-window: 403/30d }, shards: 8 }
  - { id: month, per: user, limit: { quota: 800/month, zone: UTC }, shards: 4 }
";
const LIMIT: u64 = 403;

fn memory() -> Limiter {
    LocalLimiter::builder().rules_yaml(RULES).hash_key(HashKey::new([7; 32])).build().unwrap().into()
}

fn remote(runtime: &Runtime, url: &str) -> Limiter {
    let builder = Limiter::builder().rules_yaml(RULES).hash_key(HashKey::new([7; 32]));
    runtime.block_on(builder.redis(settings(url)).build()).unwrap()
}

fn user() -> Request<'static> {
    Request::from([("user", "u")])
}

/// Limit, consumption and rest of a rule, over all its shards.
async fn usage(limiter: &Limiter, rule: &str) -> (u64, u64, u64) {
    let usage = limiter.usage(user()).await.unwrap();
    assert_eq!(usage.len(), 2, "one line for each rule: {usage:?}");
    let found = usage.into_iter().find(|usage| usage.rule == rule).unwrap();
    (found.limit, found.used, found.remaining)
}

/// What every store must do with sharded rules.
async fn keeps_its_promises(limiters: Vec<Limiter>) {
    let limiter = limiters[0].clone();
    let admitted = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let (limiter, admitted) = (limiters[task % limiters.len()].clone(), Arc::clone(&admitted));
            tokio::spawn(async move {
                // Every shard is asked often enough to fill.
                for _ in 0..500 {
                    let decision = limiter.check(user()).await.unwrap();
                    admitted.fetch_add(u64::from(decision.allowed()), Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(admitted.load(Ordering::Relaxed), LIMIT);
    assert_eq!(usage(&limiter, "hot").await, (LIMIT, LIMIT, 0));
    assert_eq!(usage(&limiter, "month").await, (800, LIMIT, 800 - LIMIT), "all rules or none");

    let credited = limiter.credit(user().cost(80)).await.unwrap();
    assert!(credited.iter().all(|rule| rule.amount == Ok(80)), "{credited:?}");
    assert_eq!(usage(&limiter, "hot").await, (LIMIT, LIMIT - 80, 80));
    let recorded = limiter.record(user().cost(30).id("r")).await.unwrap();
    assert_eq!((recorded.rules[0].amount, recorded.rules[0].remaining), (Ok(30), 50));
    assert!(limiter.record(user().cost(30).id("r")).await.unwrap().replayed);
    assert_eq!(usage(&limiter, "hot").await.1, LIMIT - 50);

    let mut charged = None;
    while charged.is_none() {
        charged = Some(limiter.check(user()).await.unwrap()).filter(|decision| decision.allowed());
    }
    let receipts = charged.unwrap().receipts();
    assert_eq!(receipts.len(), 2);
    let returned = limiter.refund_receipts(&receipts).await.unwrap();
    assert!(returned.iter().all(|rule| rule.amount == Ok(1)), "{returned:?}");
    assert_eq!(usage(&limiter, "hot").await.1, LIMIT - 50);

    let explanation = limiter.explain(user()).await;
    let all = explanation.rule("hot").and_then(|rule| rule.all_shards.clone()).unwrap();
    assert_eq!((all.limit, all.used), (LIMIT, LIMIT - 50));
    limiter.reset(user()).await.unwrap();
    for (rule, limit) in [("hot", LIMIT), ("month", 800)] {
        assert_eq!(usage(&limiter, rule).await, (limit, 0, limit));
    }
}

#[test]
fn sharded_rules_keep_their_promises_in_memory() {
    runtime().block_on(keeps_its_promises(vec![memory()]));
}

#[test]
fn sharded_rules_keep_their_promises_on_a_server() {
    let (server, runtime) = (Server::start(Flavour::Redis70).unwrap(), runtime());
    let limiters = (0..2).map(|_| remote(&runtime, &server.url())).collect();
    runtime.block_on(keeps_its_promises(limiters));
    clean(&server);
}

#[test]
fn sharded_rules_keep_their_promises_on_a_cluster_and_use_several_servers() {
    let (cluster, runtime) = (Cluster::start(Flavour::Redis70).unwrap(), runtime());
    let limiters: Vec<Limiter> = (0..2).map(|_| remote(&runtime, &cluster.url())).collect();
    let limiter = limiters[0].clone();
    runtime.block_on(keeps_its_promises(limiters));
    runtime.block_on(async {
        for _ in 0..200 {
            limiter.check(user()).await.unwrap();
        }
    });
    let mut keys = BTreeMap::<u16, usize>::new();
    for primary in cluster.primaries() {
        let found = cluster.admin(primary).unwrap().scan("tg:1:default:{*}:hot:*").unwrap();
        keys.insert(cluster.node_port(primary), found.len());
    }
    assert_eq!(keys.values().sum::<usize>(), 8, "{keys:?}");
    assert!(
        keys.values().filter(|keys| **keys > 0).count() >= 2,
        "one subject loads several servers: {keys:?}"
    );
}
