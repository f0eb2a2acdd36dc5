//! Checks of the database.

use std::time::Duration;

use tokio::time::timeout;
use tollgate::{Clock, SystemClock};
use tollgate_database::changes::LiveChange;
use tollgate_database::ledger::Settings;
use tollgate_database::{Database, DatabaseUrl, Error, Status, Writer};

use super::{Finding, Patient, Wanted};
use crate::failure::error_chain;

const CHECKS: [&str; 6] = [
    "database-reachable",
    "database-schema",
    "database-lag",
    "database-chains",
    "database-drift",
    "changes-old",
];
const TIMEOUT: Duration = Duration::from_secs(60);
const SETTINGS: Settings = Settings { horizon_us: 60_000_000 };
/// A server that runs sends a heartbeat every second.
const SILENT_MAX_US: i64 = 60_000_000;
/// One that is silent for longer than a day is gone.
const GONE_US: i64 = 86_400_000_000;
/// Seven days.
const CHANGE_OLD_US: i64 = 7 * 86_400_000_000;
/// Live changes that a finding names.
const NAMED_MAX: usize = 5;

pub(super) async fn examine(patient: &Patient<'_>, wanted: &Wanted, findings: &mut Vec<Finding>) {
    if !wanted.has_any(&CHECKS) {
        return;
    }
    let Some(url) = patient.database else {
        return findings.push(Finding::skip("database-reachable", "no database is set"));
    };
    if url.path().is_some_and(|path| !path.exists()) {
        return findings
            .push(Finding::skip("database-reachable", "a server creates the file at its first start"));
    }
    match timeout(TIMEOUT, look(url, wanted, findings)).await {
        Ok(Ok(())) => (),
        Ok(Err(error)) => findings.push(Finding::fail(
            "database-reachable",
            error_chain(&error),
            "check that the database runs, and that this user may read it",
        )),
        Err(_) => findings.push(Finding::fail(
            "database-reachable",
            format!("no answer within {TIMEOUT:.0?}"),
            "check that the database runs; `tollgate ledger verify` has no time limit",
        )),
    }
}

/// Looks at what the wanted checks need: chains and sums are long.
async fn look(url: &DatabaseUrl, wanted: &Wanted, findings: &mut Vec<Finding>) -> Result<(), Error> {
    let database = Database::connect(url, SETTINGS).await?;
    let status = match database.status().await {
        Err(Error::TooNew { applied, known }) => Status { applied, known },
        status => status?,
    };
    findings.push(Finding::pass("database-reachable", format!("{url} answers")));
    if !status.is_current() {
        findings.push(Finding::fail(
            "database-schema",
            format!("the schema has version {}, and this program needs {}", status.applied, status.known),
            "run `tollgate database migrate`; if the schema is newer, use the program of your servers",
        ));
        return Ok(());
    }
    findings.push(Finding::pass("database-schema", format!("the schema has version {}", status.applied)));
    let writers = database.writers().await?;
    let now_us = i64::try_from(SystemClock.now().us()).unwrap_or(i64::MAX);
    findings.push(lag(&writers, now_us));
    if wanted.has("database-chains") {
        findings.push(chains(&database, &writers).await?);
    }
    if wanted.has("database-drift") {
        findings.push(drift(database.unbalanced().await?.len()));
    }
    if wanted.has("changes-old") {
        findings.push(changes(&database.live_changes().await?.1, now_us));
    }
    Ok(())
}

async fn chains(database: &Database, writers: &[Writer]) -> Result<Finding, Error> {
    const CHECK: &str = "database-chains";
    let mut broken = Vec::new();
    for writer in writers {
        if let Some(block) = database.first_broken_block(writer.id).await? {
            broken.push(format!("block {block} of {}", writer.name));
        }
    }
    if let Err(fault) = database.verify_audit(None).await? {
        broken.push(format!("the audit trail ({fault})"));
    }
    Ok(match broken.is_empty() {
        true => {
            let count = writers.len();
            Finding::pass(CHECK, format!("the chains of {count} writers and of the audit trail are unbroken"))
        }
        false => Finding::fail(
            CHECK,
            format!("changed after it was written: {}", broken.join(", ")),
            "find out who changed the rows, or restore a backup; `tollgate ledger verify` lists all broken chains of the ledger",
        ),
    })
}

/// Servers that run send a heartbeat every second.
fn lag(writers: &[Writer], now_us: i64) -> Finding {
    const CHECK: &str = "database-lag";
    let is_silent = |writer: &&Writer| {
        writer.state == "open"
            && (SILENT_MAX_US..GONE_US).contains(&now_us.saturating_sub(writer.last_seen_us))
    };
    let silent: Vec<&str> = writers.iter().filter(is_silent).map(|writer| writer.name.as_str()).collect();
    if silent.is_empty() {
        return Finding::pass(CHECK, "no server lags");
    }
    Finding::warn(
        CHECK,
        format!("silent for more than a minute: {}", silent.join(", ")),
        "if these servers run, look into their logs: what they record waits on their disks",
    )
}

fn drift(unbalanced: usize) -> Finding {
    const CHECK: &str = "database-drift";
    match unbalanced {
        0 => Finding::pass(CHECK, "all balances agree with their entries"),
        count => Finding::fail(
            CHECK,
            format!("the balances of {count} accounts differ from the sums of their entries"),
            "`tollgate ledger verify` lists them",
        ),
    }
}

/// Live changes are for incidents; what stays belongs into the rules file.
fn changes(changes: &[LiveChange], now_us: i64) -> Finding {
    const CHECK: &str = "changes-old";
    let is_in_force = |change: &&LiveChange| change.until_us.is_none_or(|until| until > now_us);
    let in_force: Vec<&LiveChange> = changes.iter().filter(is_in_force).collect();
    let is_old = |change: &&&LiveChange| now_us.saturating_sub(change.created_us) > CHANGE_OLD_US;
    let old: Vec<String> = in_force
        .iter()
        .filter(is_old)
        .map(|change| format!("{} {}", change.kind.name(), change.id))
        .collect();
    if old.is_empty() {
        return Finding::pass(CHECK, format!("{} live changes, none older than 7 days", in_force.len()));
    }
    let named = old.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    Finding::warn(
        CHECK,
        format!("{} live changes are older than 7 days, such as {named}", old.len()),
        "write what shall stay into the rules file, and end the live changes",
    )
}
