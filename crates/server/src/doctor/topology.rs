//! Replicas, sentinels and clusters.

use tollgate::store::redis::{Deployment, Inspection, RedisReply};

use super::Finding;
use super::info::{Info, could_not_look};

const HASH_SLOTS: u32 = 16_384;

/// Whether a failover of this server has a replica, and loses no writes silently.
pub(super) fn replicas(info: &Info, at: &str, deployment: Deployment) -> Finding {
    const CHECK: &str = "store-replicas";
    if info.text("role") == Some("slave") {
        return Finding::fail(
            CHECK,
            format!("{at}: this server is a replica, which takes no writes"),
            "write the address of the primary into the URL, or name the sentinels",
        );
    }
    let replicas = info.number("connected_slaves").unwrap_or(0);
    let is_waiting_for_replicas = info.text("min_slaves_good_slaves").is_some();
    match (replicas, deployment) {
        (0, Deployment::Standalone) => {
            Finding::skip(CHECK, format!("{at}: one server without replicas and sentinels"))
        }
        (0, _) => Finding::fail(
            CHECK,
            format!("{at}: no replica is connected, so there is nothing to fail over to"),
            "start a replica, or look into its log if it runs",
        ),
        (_, _) if !is_waiting_for_replicas => Finding::warn(
            CHECK,
            format!(
                "{at}: {replicas} replicas, and min-replicas-to-write is not set: a primary that is cut off accepts charges \
                 that its failover loses"
            ),
            "set `min-replicas-to-write 1` and `min-replicas-max-lag 10`",
        ),
        (_, _) => Finding::pass(CHECK, format!("{at}: {replicas} replicas, and writes wait for one")),
    }
}

pub(super) async fn sentinels(inspection: &mut Inspection) -> Finding {
    const CHECK: &str = "store-sentinels";
    let Some(name) = inspection.primary_name.clone() else {
        return Finding::skip(CHECK, "there are no sentinels");
    };
    let mut down = Vec::new();
    let mut primaries = Vec::new();
    let mut problems = Vec::new();
    for (address, sentinel) in &mut inspection.sentinels {
        let sentinel = match sentinel {
            Ok(sentinel) => sentinel,
            Err(_) => {
                down.push(address.clone());
                continue;
            }
        };
        let fields = match sentinel.command(&[b"SENTINEL", b"MASTER", name.as_bytes()]).await {
            Ok(fields) => fields,
            Err(error) => return could_not_look(CHECK, &error, "+sentinel|master"),
        };
        let field = |name: &str| {
            let mut pairs = fields.list().chunks_exact(2);
            pairs.find(|pair| pair[0].text().as_deref() == Some(name)).and_then(|pair| pair[1].text())
        };
        primaries.push(format!("{}:{}", field("ip").unwrap_or_default(), field("port").unwrap_or_default()));
        let number = |name: &str| field(name).and_then(|text| text.parse::<u64>().ok());
        if let (Some(quorum), Some(others)) = (number("quorum"), number("num-other-sentinels")) {
            let known = others + 1;
            if quorum > known {
                problems.push(format!("{address} needs a quorum of {quorum}, and knows {known} sentinels"));
            }
            // A majority of all sentinels must vote for a failover, whatever the quorum is.
            let reachable = inspected_up(sentinel, &name, known).await;
            if reachable <= known / 2 || reachable < quorum {
                problems.push(format!(
                    "{address} reaches {reachable} of {known} sentinels; the quorum is {quorum}"
                ));
            }
        }
    }
    primaries.sort_unstable();
    primaries.dedup();
    let fix = "start the missing sentinels, and let at least three know the primary with a quorum of two";
    if primaries.len() > 1 {
        problems.push(format!("the sentinels disagree about the primary: {}", primaries.join(", ")));
    }
    if !down.is_empty() {
        problems.push(format!("{} does not answer", down.join(", ")));
    }
    match (problems.is_empty(), inspection.sentinels.len()) {
        (true, count) => {
            Finding::pass(CHECK, format!("{count} sentinels agree about the primary and have a quorum"))
        }
        (false, _) => Finding::fail(CHECK, problems.join("; "), fix),
    }
}

/// How many sentinels this one reaches, itself included. All that it knows, if it does not say.
async fn inspected_up(sentinel: &mut tollgate::store::redis::InspectedServer, name: &str, known: u64) -> u64 {
    let Ok(others) = sentinel.command(&[b"SENTINEL", b"sentinels", name.as_bytes()]).await else {
        return known;
    };
    let is_up = |other: &RedisReply| {
        let mut pairs = other.list().chunks_exact(2);
        let flags =
            pairs.find(|pair| pair[0].text().as_deref() == Some("flags")).and_then(|pair| pair[1].text());
        flags.is_some_and(|flags| !flags.contains("down") && !flags.contains("disconnected"))
    };
    1 + others.list().iter().filter(|other| is_up(other)).count() as u64
}

pub(super) fn cluster(inspection: &Inspection) -> Finding {
    const CHECK: &str = "store-cluster";
    if inspection.deployment != Deployment::Cluster {
        return Finding::skip(CHECK, "there is no cluster");
    }
    let owned = inspection.slots_owned;
    if owned == HASH_SLOTS {
        return Finding::pass(CHECK, format!("all {HASH_SLOTS} hash slots have a server"));
    }
    Finding::fail(
        CHECK,
        format!(
            "{} of {HASH_SLOTS} hash slots have no server: their subjects are decided by on_failure",
            HASH_SLOTS - owned
        ),
        "run `redis-cli --cluster fix`, or start the servers that own them",
    )
}
