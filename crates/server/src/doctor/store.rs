//! Checks of the store.

use std::time::{Duration, Instant};

use tollgate::core::StoreError;
use tollgate::store::redis::{Deployment, InspectedServer, Inspection, OpenError, RedisSettings, RedisStore};

use super::info::{Info, could_not_look};
use super::{Finding, Patient, Report, Wanted, clock, keys, memory, rights, rule_use, topology};
use crate::cli::store_args::open_failure;
use crate::serve::fleet;

/// How long a command may take: much longer than a check, because the doctor is patient.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between attempts to connect.
const PAUSE: Duration = Duration::from_millis(200);
const ROUND_TRIPS: usize = 21;
/// The oldest version that is supported.
const VERSION_MIN: (u64, u64) = (6, 2);
const STORE_CHECKS: [&str; 18] = [
    "store-reachable",
    "store-round-trip",
    "store-version",
    "store-rights",
    "store-policy",
    "store-memory",
    "store-persistence",
    "store-replicas",
    "store-sentinels",
    "store-cluster",
    "store-clock",
    "store-evictions",
    "hash-key",
    rule_use::CHECK,
    "keys-without-ttl",
    "keys-oversized",
    "keys-hot",
    "keys-unexplained",
];

/// The checks that read what a server says about itself.
const INFO_CHECKS: [&str; 6] = [
    "store-version",
    "store-policy",
    "store-memory",
    "store-persistence",
    "store-replicas",
    "store-evictions",
];

pub(super) async fn examine(
    patient: &Patient<'_>,
    wanted: &Wanted,
    report: &mut Report,
    progress: &mut impl FnMut(u64, u64),
) {
    if !wanted.has_any(&STORE_CHECKS) {
        return;
    }
    let Some(settings) = &patient.store else {
        let reason = "the store is in memory: there is no server to look at";
        return report.findings.push(Finding::skip("store-reachable", reason));
    };
    let mut as_server = match patiently(|| settings.inspect(TIMEOUT)).await {
        Ok(inspection) => inspection,
        Err(error) => return report.findings.push(unreachable(&error)),
    };
    match patiently(|| settings.fresh().connect()).await {
        Ok(store) => {
            report.findings.push(Finding::pass("store-reachable", addresses(&as_server)));
            if wanted.has("hash-key") {
                report.findings.push(hash_key(&store, patient).await);
            }
            if wanted.has(rule_use::CHECK) {
                report.findings.push(rule_use::examine(&store, patient).await);
            }
        }
        Err(error) => report.findings.push(unreachable(&error)),
    }
    if wanted.has("store-rights") {
        rights::examine(&mut as_server, patient, &mut report.findings).await;
    }
    let mut inspection = match as_admin(patient.store_as_admin.as_ref(), as_server).await {
        Ok(inspection) => inspection,
        Err(error) => return report.findings.push(unreachable(&error)),
    };
    let deployment = inspection.deployment;
    for server in &mut inspection.servers {
        examine_server(server, patient, deployment, report).await;
    }
    report.findings.push(topology::sentinels(&mut inspection).await);
    report.findings.push(topology::cluster(&inspection));
    if wanted.has_any(&keys::CHECKS) {
        keys::examine(&mut inspection, patient, report, progress).await;
    }
    merge_equal(&mut report.findings);
}

/// Tries again for a while: one slow connection says nothing about the store.
async fn patiently<T, F>(attempt: impl Fn() -> F) -> Result<T, OpenError>
where
    F: Future<Output = Result<T, OpenError>>,
{
    let until = Instant::now() + TIMEOUT;
    loop {
        match attempt().await {
            Err(OpenError::Redis(StoreError::Transient(_))) if Instant::now() < until => {
                tokio::time::sleep(PAUSE).await;
            }
            done => return done,
        }
    }
}

/// The same servers with the user who may look at more, if there is one.
async fn as_admin(admin: Option<&RedisSettings>, as_server: Inspection) -> Result<Inspection, OpenError> {
    match admin {
        None => Ok(as_server),
        Some(settings) => patiently(|| settings.inspect(TIMEOUT)).await,
    }
}

fn unreachable(error: &OpenError) -> Finding {
    let failure = open_failure(error);
    Finding::fail("store-reachable", failure.to_string(), failure.hint())
}

fn addresses(inspection: &Inspection) -> String {
    let addresses: Vec<&str> = inspection.servers.iter().map(|server| server.address.as_str()).collect();
    format!("{} answers", addresses.join(", "))
}

async fn hash_key(store: &RedisStore, patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "hash-key";
    let Some(hashers) = patient.hashers else {
        return Finding::skip(CHECK, "there is no hash key to compare");
    };
    let ours = hashers.current().fingerprint();
    match fleet::other_hash_keys(store, &ours, &fleet::namespace(patient.rules)).await {
        Ok(None) => Finding::pass(CHECK, format!("no server on the store has another hash key than {ours}")),
        Ok(Some(theirs)) => Finding::fail(
            CHECK,
            format!("the servers on the store have another hash key (theirs: {theirs}; ours: {ours})"),
            "give every server the same key with hash_key_file; docs/guides/redis.md shows how to change it",
        ),
        Err(StoreError::Transient(error)) => {
            Finding::skip(CHECK, format!("the store did not answer: {error}"))
        }
        Err(error) => Finding::skip(CHECK, error.to_string()),
    }
}

async fn examine_server(
    server: &mut InspectedServer,
    patient: &Patient<'_>,
    deployment: Deployment,
    report: &mut Report,
) {
    let findings = &mut report.findings;
    findings.push(round_trip(server, patient.deadline).await);
    findings.push(clock::examine(server).await);
    let info = match Info::of(server).await {
        Ok(info) => info,
        Err(error) => {
            findings.extend(INFO_CHECKS.iter().map(|&check| could_not_look(check, &error, "+info")));
            return;
        }
    };
    let at = server.address.as_str();
    findings.push(version(&info, at));
    findings.push(topology::replicas(&info, at, deployment));
    findings.push(memory::policy(&info, at));
    findings.push(memory::headroom(&info, at, patient));
    findings.push(memory::evictions(&info, at));
    report.memory.push(memory::of(&info, at));
    findings.push(memory::persistence(server, &info, patient).await);
}

async fn round_trip(server: &mut InspectedServer, deadline: Duration) -> Finding {
    const CHECK: &str = "store-round-trip";
    let mut times = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let began = Instant::now();
        if let Err(error) = server.command(&[b"TIME"]).await {
            return could_not_look(CHECK, &error, "+time");
        }
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let (median, longest) = (times[ROUND_TRIPS / 2], times[ROUND_TRIPS - 1]);
    let reason = format!(
        "{}: half of the round trips take at most {median:.1?}, the longest {longest:.1?}; the deadline is {deadline:.0?}",
        server.address
    );
    if median > deadline {
        Finding::fail(CHECK, reason, "put the store nearer to the servers, or raise store_deadline")
    } else if median > deadline / 4 {
        Finding::warn(CHECK, reason, "leave room for load: put the store nearer, or raise store_deadline")
    } else {
        Finding::pass(CHECK, reason)
    }
}

fn version(info: &Info, at: &str) -> Finding {
    const CHECK: &str = "store-version";
    let (product, version) = match (info.text("valkey_version"), info.text("redis_version")) {
        (Some(version), _) => ("Valkey", version),
        (None, Some(version)) => ("Redis", version),
        (None, None) => return Finding::skip(CHECK, format!("{at}: the server does not say its version")),
    };
    let mut numbers = version.split('.').map_while(|number| number.parse::<u64>().ok());
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let reason = format!("{at}: {product} {version}");
    // Versions of Valkey begin above those of Redis that are supported.
    if found < VERSION_MIN {
        return Finding::fail(CHECK, reason, "use Redis 6.2 or newer, or Valkey");
    }
    Finding::pass(CHECK, reason)
}

/// Servers of a cluster often say the same; one finding of each check and status is enough.
fn merge_equal(findings: &mut Vec<Finding>) {
    let mut merged: Vec<Finding> = Vec::new();
    for finding in findings.drain(..) {
        let same = merged.iter_mut().find(|known| {
            (known.check, known.status, &known.fix) == (finding.check, finding.status, &finding.fix)
        });
        match same {
            Some(known) if known.reason == finding.reason => (),
            Some(known) => known.reason += &format!("; {}", finding.reason),
            None => merged.push(finding),
        }
    }
    *findings = merged;
}
