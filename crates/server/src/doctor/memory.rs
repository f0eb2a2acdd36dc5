//! Memory, evictions and persistence of one server of the store.

use tollgate::core::rules::RuleLimit;
use tollgate::store::redis::{Footprint, InspectedServer, RedisReply};
use tollgate::{Clock, SystemClock};

use super::info::Info;
use super::{Finding, Patient, ServerMemory};

/// The memory of a server, for people who look at it.
pub(super) fn of(info: &Info, at: &str) -> ServerMemory {
    ServerMemory {
        address: at.to_owned(),
        used_bytes: info.number("used_memory"),
        max_bytes: info.number("maxmemory").filter(|&max| max > 0),
        policy: info.text("maxmemory_policy").map(str::to_owned),
        keys: info.keys(),
        evicted_keys: info.number("evicted_keys"),
    }
}

pub(super) fn policy(info: &Info, at: &str) -> Finding {
    const CHECK: &str = "store-policy";
    match info.text("maxmemory_policy") {
        None => Finding::skip(CHECK, format!("{at}: the server does not say its maxmemory-policy")),
        Some("noeviction") => Finding::pass(CHECK, format!("{at}: maxmemory-policy is noeviction")),
        Some(policy) => {
            let reason = format!(
                "{at}: maxmemory-policy is {policy}: a full server evicts keys, and their subjects start again"
            );
            let fix =
                "set `maxmemory-policy noeviction`; checks on a full server are then decided by on_failure";
            // Without a maximum, no server is ever full.
            match info.number("maxmemory") {
                Some(0) => Finding::warn(CHECK, reason, fix),
                _ => Finding::fail(CHECK, reason, fix),
            }
        }
    }
}

/// Whether there is room for the expected subjects.
pub(super) fn headroom(info: &Info, at: &str, patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "store-memory";
    let (Some(used), Some(max)) = (info.number("used_memory"), info.number("maxmemory")) else {
        return Finding::skip(CHECK, format!("{at}: the server does not say how much memory it uses"));
    };
    if max == 0 {
        return Finding::warn(
            CHECK,
            format!(
                "{at}: maxmemory is not set, so the server can take all memory of its machine and be killed"
            ),
            "set maxmemory; `tollgate estimate` says how much the rules need",
        );
    }
    let each = bytes_per_subject(patient).max(1);
    let room = max.saturating_sub(used) / each;
    let reason = format!(
        "{at}: {} of {} are used; there is room for about {room} more subjects of {each} bytes under all rules",
        mib(used),
        mib(max)
    );
    let fix = "raise maxmemory; `tollgate estimate` says how much the rules need for how many subjects";
    if room < patient.subjects {
        Finding::fail(CHECK, format!("{reason}, and {} are expected", patient.subjects), fix)
    } else if used > max / 10 * 8 {
        Finding::warn(CHECK, reason, fix)
    } else {
        Finding::pass(CHECK, reason)
    }
}

/// The memory of a subject that has sent one request to every rule.
fn bytes_per_subject(patient: &Patient<'_>) -> u64 {
    let (footprint, now) = (Footprint::default(), SystemClock.now());
    let rules = patient.rules.rules().iter().filter_map(|rule| {
        let limit = match &rule.limit {
            RuleLimit::Deny => return None,
            limit => limit.at(now)?,
        };
        Some(footprint.subject(0, &rule.keyspace, &limit, 1).total())
    });
    rules.sum()
}

/// What a restart forgets, and whether that matters for these rules.
pub(super) async fn persistence(server: &mut InspectedServer, info: &Info, patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "store-persistence";
    let at = server.address.clone();
    for (field, what) in
        [("aof_last_write_status", "the append-only file"), ("rdb_last_bgsave_status", "the last snapshot")]
    {
        if info.text(field).is_some_and(|status| status != "ok") {
            return Finding::fail(
                CHECK,
                format!("{at}: {what} could not be written"),
                "look into the log of the server; usually its disk is full",
            );
        }
    }
    match info.number("aof_enabled") {
        None => return Finding::skip(CHECK, format!("{at}: the server does not say whether it persists")),
        Some(1) => return Finding::pass(CHECK, format!("{at}: the append-only file is on")),
        Some(_) => (),
    }
    let fix = "set `appendonly yes` with `appendfsync everysec`: a restart then forgets at most a second";
    // Only a user who may read the configuration knows whether there are snapshots.
    let save = server.command(&[b"CONFIG", b"GET", b"save"]).await;
    let save = save.ok().and_then(|reply| reply.list().get(1).and_then(RedisReply::text));
    let (is_lost, reason) = match save.as_deref() {
        Some("") => {
            let what = "neither the append-only file nor snapshots are on: a restart forgets everything";
            (true, format!("{at}: {what}"))
        }
        _ => {
            let what =
                "the append-only file is off: a restart forgets what was counted since the last snapshot";
            (false, format!("{at}: {what}"))
        }
    };
    // Other limits are soon what they were.
    let long = patient.rules.rules().iter().find(|rule| {
        let algorithm = rule.limit.algorithm().map(|algorithm| algorithm.name());
        rule.ledger.is_some() || matches!(algorithm, Some("quota" | "meter"))
    });
    match (long, is_lost) {
        (Some(rule), true) => {
            let rule = rule.keyspace.rule();
            Finding::fail(CHECK, format!("{reason}, also the consumption of rule {rule}"), fix)
        }
        (Some(_), false) | (None, true) => Finding::warn(CHECK, reason, fix),
        (None, false) => Finding::pass(CHECK, reason),
    }
}

pub(super) fn evictions(info: &Info, at: &str) -> Finding {
    const CHECK: &str = "store-evictions";
    match info.number("evicted_keys") {
        None => Finding::skip(CHECK, format!("{at}: the server does not count evictions")),
        Some(0) => Finding::pass(CHECK, format!("{at}: no key was evicted since the server started")),
        Some(evicted) => {
            let reason = format!(
                "{at}: {evicted} keys were evicted since the server started, and their subjects started again"
            );
            match info.text("maxmemory_policy") {
                Some("noeviction") => {
                    let fix = "the policy is right now; `CONFIG RESETSTAT` sets the count to 0";
                    Finding::warn(CHECK, reason, fix)
                }
                _ => {
                    let fix = "give the server more memory, and set `maxmemory-policy noeviction`";
                    Finding::fail(CHECK, reason, fix)
                }
            }
        }
    }
}

fn mib(bytes: u64) -> String {
    format!("{}.{} MiB", bytes >> 20, ((bytes & 0xF_FFFF) * 10) >> 20)
}
