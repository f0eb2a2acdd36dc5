//! The doctor of a running server: it looks at what the server uses when it starts and every ten minutes, logs what is
//! wrong, and keeps the findings for operators and metrics. Of the servers on one store, one scans the keys.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;
use tollgate::rules::load;
use tollgate::store::redis::{RedisSettings, RedisStore};
use tollgate_database::DatabaseUrl;
use tollgate_document::{Problems, Source};

use super::fleet;
use super::observe::{Exposition, Kind};
use super::rules_in_force::{STARTER, STARTER_NAME};
use super::server_state::ServerState;
use crate::doctor::{self, Finding, Patient, Report, Scan, Status, Wanted};
use crate::files;

/// How often the server is examined.
const EVERY: Duration = Duration::from_secs(600);
/// A server that scans has the right to for a little longer than the time between scans.
const TURN: Duration = Duration::from_secs(630);
/// The first examination waits for the first checks.
const FIRST_AFTER: Duration = Duration::from_secs(2);
/// Slower than the command, which a person waits for.
const SCAN: Scan = Scan { keys_max: 100_000, rate: 1_000 };
/// Subjects that the store must have room for.
const SUBJECTS: u64 = 10_000;
const SCAN_CHECKS: [&str; 4] = ["keys-without-ttl", "keys-oversized", "keys-hot", "keys-unexplained"];
/// Returns 1 if this server has the turn, which it takes or keeps.
const TAKE_TURN: &str = "local holder = redis.call('GET', KEYS[1]) \
     if holder and holder ~= ARGV[1] then return '0' end \
     redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return '1'";

/// The findings of the last examination.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    /// When it ended, in milliseconds since 1970; `None` before the first.
    pub(crate) at_ms: Option<u64>,
    pub(crate) report: Report,
}

/// What the doctor needs besides the state of the server.
pub(crate) struct Doctor {
    pub(crate) store: Option<(RedisSettings, RedisStore)>,
    pub(crate) database: Option<DatabaseUrl>,
    pub(crate) deadline: Duration,
}

impl Findings {
    pub(crate) fn to_json(&self, server: &str) -> Value {
        let mut json = self.report.to_json();
        if self.at_ms.is_none() {
            json["status"] = Value::Null;
        }
        json["at_ms"] = self.at_ms.into();
        json["server"] = server.into();
        json
    }

    /// Writes the metrics. Without a shared store there are no keys to count.
    pub(crate) fn write(&self, page: &mut Exposition, has_shared_store: bool) {
        let mut family = page.family(
            "rate_limit_doctor_findings",
            Kind::Gauge,
            "Findings of the last examination, by status.",
        );
        if self.at_ms.is_some() {
            for status in [Status::Pass, Status::Skip, Status::Warn, Status::Fail] {
                family.sample(&[("status", status.name())], self.report.count(status));
            }
        }
        if !has_shared_store {
            return;
        }
        let keys = self.report.keys.as_ref();
        let mut family = page.family(
            "rate_limit_store_keys",
            Kind::Gauge,
            "Keys that the last scan saw, by rule; only from the server that scans. Of a sample, if there are many.",
        );
        for (rule, count) in keys.iter().flat_map(|keys| &keys.by_rule) {
            family.sample(&[("rule", rule)], *count);
        }
        for (name, help, value) in [
            (
                "rate_limit_store_keys_scanned",
                "Keys that the last scan passed, of any user of the store.",
                keys.map(|keys| keys.scanned),
            ),
            (
                "rate_limit_store_keys_without_ttl",
                "Keys of the namespace that never expire, as the last scan saw them.",
                keys.and_then(|keys| keys.without_ttl),
            ),
        ] {
            let mut family = page.family(name, Kind::Gauge, help);
            if let Some(value) = value {
                family.sample(&[], value);
            }
        }
    }
}

/// Examines the server until it ends.
pub(crate) async fn watch(state: Arc<ServerState>, doctor: Doctor, sender: watch::Sender<Findings>) {
    let mut pause = FIRST_AFTER;
    let mut logged: Vec<Finding> = Vec::new();
    loop {
        tokio::select! {
            () = state.ending.cancelled() => return,
            () = sleep(pause) => (),
        }
        pause = EVERY;
        let report = tokio::select! {
            () = state.ending.cancelled() => return,
            report = examine(&state, &doctor) => report,
        };
        let Some(mut report) = report else { continue };
        log_new(&mut logged, &report);
        let at_ms = u64::try_from(jiff::Timestamp::now().as_millisecond()).ok();
        sender.send_modify(|last| {
            // What another server scans now was scanned here before.
            report.keys = report.keys.take().or_else(|| last.report.keys.take());
            *last = Findings { at_ms, report };
        });
    }
}

/// `None` if the rules file is invalid; the server says so elsewhere.
async fn examine(state: &ServerState, doctor: &Doctor) -> Option<Report> {
    let source = match state.rules.file() {
        Some(path) => files::read(path).ok()?,
        None => Source::new(STARTER_NAME, STARTER.as_bytes()),
    };
    let rules = load(&source, &mut Problems::new())?;
    let scans = match &doctor.store {
        Some((_, store)) => {
            has_turn(store, &fleet::namespace(&rules), state.gate.references().server()).await
        }
        None => false,
    };
    let patient = Patient {
        rules: &rules,
        source: &source,
        store: doctor.store.as_ref().map(|(settings, _)| settings.fresh()),
        store_as_admin: None,
        hashers: Some(state.gate.hashers()),
        deadline: doctor.deadline,
        database: doctor.database.as_ref(),
        subjects: SUBJECTS,
        scan: SCAN,
    };
    // Chains are long: `tollgate ledger verify` checks them.
    let mut skip = vec!["database-chains".to_owned()];
    if !scans {
        skip.extend(SCAN_CHECKS.map(str::to_owned));
    }
    let wanted = Wanted { only: Vec::new(), skip };
    Some(doctor::examine(&patient, &wanted, |_, _| ()).await)
}

/// Whether this server scans the keys. If the store does not say, no server scans.
async fn has_turn(store: &RedisStore, namespace: &str, server: &str) -> bool {
    let key = format!("tg:1:{namespace}:{{doctor}}:@scan");
    let turn = TURN.as_millis().to_string();
    let id = format!("{server}:{}", std::process::id());
    let taken = store.eval_on_key_owner(TAKE_TURN, &key, &[&id, &turn]).await;
    taken.is_ok_and(|taken| taken.as_deref() == Some("1"))
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
            tracing::info!(event = "doctor_passed", check = finding.check, "it is well again");
        }
    }
    *logged = found;
}
