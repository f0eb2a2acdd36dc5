//! Which server of a fleet scans the keys, and what it found, in the store.

use serde::{Deserialize, Serialize};
use tollgate::core::StoreError;
use tollgate::core::rules::RuleSet;
use tollgate::store::redis::RedisStore;

use crate::doctor::{CHECKS, Finding, HotKey, KEY_CHECKS, KeyCounts, Report, Status};
use crate::failure::error_chain;
use crate::serve::fleet;

/// A server keeps its turn for longer than the time between scans.
const TURN_MS: u64 = 900_000;
/// What a scan found is shown until later ones should have replaced it.
const RESULT_MS: u64 = 3_600_000;
/// Returns 1 if this server has the turn, which it takes or keeps.
const TAKE_TURN: &str = "local holder = redis.call('GET', KEYS[1]) \
     if holder and holder ~= ARGV[1] then return '0' end \
     redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return '1'";
/// Attempts of one call: a slow connection must not hide a scan for ten minutes.
const ATTEMPTS: usize = 3;
const PUBLISH: &str = "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return '1'";
const READ: &str = "return redis.call('GET', KEYS[1])";

/// What a scan found, and by which server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ScanResult {
    pub(super) at_ms: u64,
    pub(super) server: String,
    pub(super) keys: KeyCounts,
    pub(super) hot_keys: Option<Vec<HotKey>>,
    findings: Vec<SharedFinding>,
    /// Whether this server scanned.
    #[serde(skip)]
    pub(super) is_ours: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SharedFinding {
    check: String,
    status: Status,
    reason: String,
    fix: Option<String>,
}

/// Whether this server scans.
pub(super) struct ScanTurn<'s> {
    store: &'s RedisStore,
    namespace: String,
    server: &'s str,
    is_ours: bool,
}

impl<'s> ScanTurn<'s> {
    /// Takes the turn, unless another server has it. If the store does not say, no server scans.
    pub(super) async fn take(store: &'s RedisStore, rules: &RuleSet, server: &'s str) -> ScanTurn<'s> {
        let turn = ScanTurn { store, namespace: fleet::namespace(rules), server, is_ours: false };
        let id = format!("{server}:{}", std::process::id());
        let taken = turn.eval(TAKE_TURN, "@scan-turn", &[&id, &TURN_MS.to_string()]).await;
        let is_ours = taken.is_some_and(|taken| taken == "1");
        ScanTurn { is_ours, ..turn }
    }

    pub(super) fn is_ours(&self) -> bool {
        self.is_ours
    }

    /// Publishes what this server's scan found, or reads what the scan of another server did.
    pub(super) async fn publish_or_read(&self, report: &Report, at_ms: u64) -> Option<ScanResult> {
        let Some(keys) = report.keys.clone().filter(|_| self.is_ours) else {
            let text = self.eval(READ, "@scan-result", &[]).await?;
            // A server of another version may write another form.
            return serde_json::from_str(&text).ok();
        };
        let of_keys = |finding: &&Finding| KEY_CHECKS.contains(&finding.check);
        let shared = |finding: &Finding| SharedFinding {
            check: finding.check.to_owned(),
            status: finding.status,
            reason: finding.reason.clone(),
            fix: finding.fix.clone(),
        };
        let result = ScanResult {
            at_ms,
            server: self.server.to_owned(),
            keys,
            hot_keys: report.hot_keys.clone(),
            findings: report.findings.iter().filter(of_keys).map(shared).collect(),
            is_ours: true,
        };
        if let Ok(text) = serde_json::to_string(&result) {
            self.eval(PUBLISH, "@scan-result", &[&text, &RESULT_MS.to_string()]).await;
        }
        Some(result)
    }

    /// Runs a script on one of the doctor's keys. The only place where they are written as strings.
    async fn eval(&self, script: &str, kind: &str, args: &[&str]) -> Option<String> {
        let key = format!("tg:1:{}:{{doctor}}:{kind}", self.namespace);
        for _ in 0..ATTEMPTS {
            match self.store.eval_on_key_owner(script, &key, args).await {
                Ok(found) => return found,
                Err(error) => log_failure(&error),
            }
        }
        None
    }
}

/// Failures of the store are logged by checks.
fn log_failure(error: &StoreError) {
    let cause = error_chain(error);
    tracing::debug!(event = "doctor_failed", cause, "the doctor cannot use the store");
}

impl ScanResult {
    /// The findings of the scan, as this server's own.
    pub(super) fn findings(&self) -> impl Iterator<Item = Finding> {
        self.findings.iter().filter_map(|shared| {
            let check = CHECKS.iter().find(|check| check.id == shared.check)?.id;
            let SharedFinding { status, reason, fix, .. } = shared.clone();
            Some(Finding { check, status, reason, fix })
        })
    }
}
