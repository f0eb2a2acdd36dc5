//! The list of checks.

/// A check: its id and what it looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Check {
    pub(crate) id: &'static str,
    pub(crate) about: &'static str,
}

const fn check(id: &'static str, about: &'static str) -> Check {
    Check { id, about }
}

/// All checks, in the order of their findings.
pub(crate) const CHECKS: [Check; 26] = [
    check("store-reachable", "the store answers, with the credentials of the server"),
    check("store-round-trip", "its round-trip time, against the deadline of checks"),
    check("store-version", "its version is supported"),
    check("store-rights", "the user has the rights that Tollgate needs, and no others"),
    check("store-policy", "`maxmemory-policy` is `noeviction`"),
    check("store-memory", "there is room for more subjects"),
    check("store-persistence", "a restart does not forget what was counted"),
    check("store-replicas", "a failover has a replica, and does not lose writes silently"),
    check("store-sentinels", "the sentinels agree, and have a quorum"),
    check("store-cluster", "every hash slot has a server"),
    check("store-clock", "its clock agrees with the clock here"),
    check("store-evictions", "it has evicted no keys"),
    check("hash-key", "the servers on the store have the same hash key"),
    check("keys-without-ttl", "every key expires"),
    check("keys-oversized", "no key is larger than its rule explains"),
    check("keys-hot", "no key is used much more than others"),
    check("keys-unexplained", "every key belongs to a rule"),
    check("rules-lint", "the rules have no warnings"),
    check("rules-ledger", "rules that are recorded have a database"),
    check("rules-unmatched", "every rule has matched a request in the last week"),
    check("changes-old", "no live change is older than a week"),
    check("database-reachable", "the database answers"),
    check("database-schema", "it has the schema of this program"),
    check("database-lag", "no server lags"),
    check("database-chains", "the chains of the ledger and of the audit trail are unbroken"),
    check("database-drift", "balances agree with their entries"),
];
