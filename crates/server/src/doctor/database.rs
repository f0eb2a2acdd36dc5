//! Checks of the database.

use std::time::Duration;

use tokio::time::timeout;
use tollgate::{Clock, SystemClock};
use tollgate_database::ledger::Settings;
use tollgate_database::{Database, DatabaseUrl, Error};

use super::{Finding, Patient, Wanted};
use crate::failure::error_chain;

const CHECKS: [&str; 4] = ["database-reachable", "database-schema", "database-chains", "database-drift"];
const TIMEOUT: Duration = Duration::from_secs(60);
const SETTINGS: Settings = Settings { horizon_us: 60_000_000 };
/// A server that runs sends a heartbeat every second.
const SILENT_MAX_US: i64 = 60_000_000;
/// One that is silent for longer than a day is gone.
const GONE_US: i64 = 86_400_000_000;

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
    match timeout(TIMEOUT, look(url, findings)).await {
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

async fn look(url: &DatabaseUrl, findings: &mut Vec<Finding>) -> Result<(), Error> {
    let database = Database::connect(url, SETTINGS).await?;
    let status = database.status().await?;
    findings.push(Finding::pass("database-reachable", format!("{url} answers")));
    if !status.is_current() {
        findings.push(Finding::fail(
            "database-schema",
            format!("the schema has version {}, this program needs {}", status.applied, status.known),
            "run `tollgate database migrate`; if the schema is newer, use the program of your servers",
        ));
        return Ok(());
    }
    findings.push(Finding::pass("database-schema", format!("the schema has version {}", status.applied)));
    let writers = database.writers().await?;
    let mut broken = Vec::new();
    for writer in &writers {
        if let Some(block) = database.first_broken_block(writer.id).await? {
            broken.push(format!("block {block} of {}", writer.name));
        }
    }
    findings.push(match broken.is_empty() {
        true => {
            Finding::pass("database-chains", format!("the chains of {} writers are unbroken", writers.len()))
        }
        false => Finding::fail(
            "database-chains",
            format!("changed after it was written: {}", broken.join(", ")),
            "`tollgate ledger verify` shows more; restore a backup, or find out who changed the rows",
        ),
    });
    let unbalanced = database.unbalanced().await?.len();
    let now_us = i64::try_from(SystemClock.now().us()).unwrap_or(i64::MAX);
    let silent = writers
        .iter()
        .filter(|writer| (SILENT_MAX_US..GONE_US).contains(&now_us.saturating_sub(writer.last_seen_us)));
    let silent: Vec<&str> = silent.map(|writer| writer.name.as_str()).collect();
    findings.push(match (unbalanced, silent.is_empty()) {
        (0, true) => Finding::pass("database-drift", "balances agree with their entries, and no server lags"),
        (0, false) => Finding::warn(
            "database-drift",
            format!("silent for more than a minute: {}", silent.join(", ")),
            "if these servers run, look into their logs: what they record waits on their disks",
        ),
        (count, _) => Finding::fail(
            "database-drift",
            format!("the balances of {count} accounts differ from the sums of their entries"),
            "`tollgate ledger verify` lists them",
        ),
    });
    Ok(())
}
