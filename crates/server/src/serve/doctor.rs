//! The doctor of a running server: it looks at what the server uses when it starts and every ten minutes, logs what is
//! wrong, and keeps the findings for operators and metrics. Of the servers on one store, one scans the keys, and the others
//! read what it found.
//!
//! It has a separate thread: reading a large rules file or the replies of a scan takes no time from checks.

mod findings;
mod scan_turn;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tollgate::core::rules::RuleSet;
use tollgate::store::redis::{RedisSettings, RedisStore};
use tollgate_database::DatabaseUrl;
use tollgate_document::Source;

use super::rules_in_force::{STARTER, STARTER_NAME};
use super::server_state::ServerState;
use crate::doctor::{self, Finding, KEY_CHECKS, Patient, Report, Scan, Status, Wanted};
use crate::failure::error_chain;
use crate::files;
pub(crate) use findings::Findings;
use scan_turn::ScanTurn;

/// How often the server is examined.
const EVERY: Duration = Duration::from_secs(600);
/// The first examination waits for the first checks.
const FIRST_AFTER: Duration = Duration::from_secs(2);
/// Slower than the command, which a person waits for.
const SCAN: Scan = Scan { keys_max: 100_000, rate: 1_000 };
/// Subjects that the store must have room for.
const SUBJECTS: u64 = 10_000;
/// Chains and sums grow without bound: `tollgate doctor` and `tollgate ledger verify` check them.
const LEFT_OUT: [&str; 2] = ["database-chains", "database-drift"];

/// What the doctor needs besides the state of the server.
pub(crate) struct Doctor {
    pub(crate) store: Option<(RedisSettings, RedisStore)>,
    pub(crate) database: Option<DatabaseUrl>,
    pub(crate) deadline: Duration,
}

/// Starts the thread that examines the server until it ends.
pub(crate) fn start(
    state: Arc<ServerState>,
    doctor: Doctor,
    sender: watch::Sender<Findings>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("doctor".to_owned());
    thread.spawn(move || runtime.block_on(watch(&state, &doctor, &sender)))?;
    Ok(())
}

async fn watch(state: &ServerState, doctor: &Doctor, sender: &watch::Sender<Findings>) {
    let mut next = Instant::now() + FIRST_AFTER;
    let mut logged: Vec<Finding> = Vec::new();
    let mut matched = HashMap::new();
    loop {
        tokio::select! {
            () = state.ending.cancelled() => return,
            () = sleep_until(next) => (),
        }
        next = Instant::now() + EVERY;
        tokio::select! {
            () = state.ending.cancelled() => return,
            findings = examine(state, doctor, &mut matched, &mut logged) => drop(sender.send_replace(findings)),
        }
    }
}

async fn examine(
    state: &ServerState,
    doctor: &Doctor,
    matched: &mut HashMap<Arc<str>, u64>,
    logged: &mut Vec<Finding>,
) -> Findings {
    let rules = state.gate.with_rules(RuleSet::clone);
    let server = state.gate.references().server();
    let mut turn = None;
    if let Some((_, store)) = &doctor.store {
        note_rule_use(state, store, &rules, matched).await;
        turn = Some(ScanTurn::take(store, &rules, server).await);
    }
    let mut skip: Vec<String> = LEFT_OUT.map(str::to_owned).into();
    if !turn.as_ref().is_some_and(ScanTurn::is_ours) {
        skip.extend(KEY_CHECKS.map(str::to_owned));
    }
    let patient = Patient {
        rules: &rules,
        source: &source(state),
        store: doctor.store.as_ref().map(|(settings, _)| settings.fresh()),
        store_as_admin: None,
        hashers: Some(state.gate.hashers()),
        deadline: doctor.deadline,
        database: doctor.database.as_ref(),
        subjects: SUBJECTS,
        scan: SCAN,
    };
    let wanted = Wanted { only: Vec::new(), skip };
    let report = doctor::examine(&patient, &wanted, |_, _| ()).await;
    log_new(logged, &report);
    let at_ms = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
    let scan = match turn {
        Some(turn) => turn.publish_or_read(&report, at_ms).await,
        None => None,
    };
    Findings::new(report, at_ms, scan)
}

/// The text of the rules: that of the file, which may be newer than what is in force, or of the starter rules.
fn source(state: &ServerState) -> Source {
    let file = state.rules.file().and_then(|path| files::read(path).ok());
    file.unwrap_or_else(|| Source::new(STARTER_NAME, STARTER.as_bytes()))
}

/// Notes in the store which rules have matched a request since the last note.
async fn note_rule_use(
    state: &ServerState,
    store: &RedisStore,
    rules: &RuleSet,
    before: &mut HashMap<Arc<str>, u64>,
) {
    let mut matched = Vec::new();
    for (rule, checks) in state.gate.recorder().matched() {
        if before.insert(Arc::clone(&rule), checks).unwrap_or(0) != checks {
            matched.push(rule.to_string());
        }
    }
    if let Err(error) = doctor::note_rule_use(store, rules, &matched).await {
        let cause = error_chain(&*error);
        tracing::debug!(event = "rule_use_not_noted", cause, "cannot note which rules match");
        // They are noted the next time.
        before.clear();
    }
}

/// Logs what was not found before, and what is well again.
fn log_new(logged: &mut Vec<Finding>, report: &Report) {
    let found: Vec<Finding> =
        report.findings.iter().filter(|finding| finding.status >= Status::Warn).cloned().collect();
    let is_known = |finding: &Finding, known: &[Finding]| {
        known.iter().any(|other| (other.check, other.status) == (finding.check, finding.status))
    };
    for finding in found.iter().filter(|finding| !is_known(finding, logged)) {
        let Finding { check, status, reason, fix } = finding;
        let (status, fix) = (status.name(), fix.as_deref().unwrap_or_default());
        tracing::warn!(event = "doctor", check, status, fix, "{reason}");
    }
    for finding in logged.iter().filter(|finding| !found.iter().any(|other| other.check == finding.check)) {
        let was_made = report.findings.iter().any(|other| other.check == finding.check);
        if was_made {
            tracing::info!(event = "doctor_passed", check = finding.check, "the check passes again");
        }
    }
    *logged = found;
}
