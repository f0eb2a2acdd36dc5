//! Helpers of the Redis store tests.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::runtime::Runtime;
use tollgate::store::redis::RedisSettings;
use tollgate_core::{Item, Keyspace, Limit, Operation, Plan, Span, Subject, SubjectHasher, Token};
use tollgate_testkit::redis::{Cluster, Server, no_orphans, slot_of};

pub(crate) const LIMIT: u64 = 1_000;
/// Longer than any test.
pub(crate) const WINDOW: Span = Span::from_secs(30 * 86_400);
/// Longest TTL of any key: a bucket of 5,000 that drains one unit per window, plus the margin.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(5_001 * 30 * 86_400);
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// The subject. It must never appear in Redis in plain text.
pub(crate) const USER: &str = "jane.doe@example.com";

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A runtime on which concurrent calls of one test are sent in one batch.
pub(crate) fn one_thread() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

pub(crate) fn subject(name: &str) -> Subject {
    SubjectHasher::new([5; 32]).subject([("user", name)])
}

pub(crate) fn settings(url: &str) -> RedisSettings {
    RedisSettings::url(url).unwrap().deadline(LONG)
}

pub(crate) fn charge(limit: Limit, keyspace: &Keyspace, number: u64) -> Plan<'_> {
    let mut plan = Plan::new();
    let operation = Operation::Charge { cost: 1, token: Token(u128::from(number) + 1) };
    plan.push(Item::new(keyspace.key(subject(USER)), limit, operation)).unwrap();
    plan
}

/// Returns the keyspace of plans that several tasks send at once.
pub(crate) fn shared() -> &'static Keyspace {
    static KEYSPACE: OnceLock<Keyspace> = OnceLock::new();
    KEYSPACE.get_or_init(|| Keyspace::new("test", "crowded").unwrap())
}

/// Checks that every key expires and contains no subject in plain text. Returns the number of keys.
pub(crate) fn clean(server: &Server) -> usize {
    no_orphans(&mut server.admin().unwrap(), "tg:1:", TTL_MAX, &[USER, "jane.doe"]).unwrap()
}

/// Returns two subjects of one rule whose keys are on different servers of a cluster.
pub(crate) fn on_different_servers(cluster: &Cluster) -> [(usize, Subject); 2] {
    let found = |wanted: &dyn Fn(usize) -> bool| {
        let candidates = (0..).map(|number| subject(&format!("user {number}")));
        let placed = candidates.map(|subject| {
            let key = shared().key(subject).to_string();
            (cluster.owner(slot_of(key.as_bytes())).unwrap(), subject)
        });
        placed.into_iter().find(|(owner, _)| wanted(*owner)).unwrap()
    };
    let first = found(&|_| true);
    [first, found(&|owner| owner != first.0)]
}
