//! The doctor: looks for what is wrong with store, rules and database, and says how to fix each finding.
//!
//! The command and the server use the same checks. All are safe on a live store: they read a few values, and scan keys in
//! small steps at a capped rate.

mod checks;
mod clock;
mod database;
mod info;
mod keys;
mod memory;
mod rights;
mod rule_use;
mod rules;
mod store;
mod topology;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tollgate::core::SubjectHashers;
use tollgate::core::rules::RuleSet;
use tollgate::store::redis::RedisSettings;
use tollgate_database::DatabaseUrl;
use tollgate_document::Source;

pub(crate) use checks::CHECKS;
pub(crate) use keys::{CHECKS as KEY_CHECKS, HotKey, KeyCounts};
pub(crate) use rule_use::note as note_rule_use;

/// What a check found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Pass,
    /// It could not look: a permission is missing, or it does not apply.
    Skip,
    Warn,
    Fail,
}

impl Status {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Status::Pass => "pass",
            Status::Skip => "skip",
            Status::Warn => "warn",
            Status::Fail => "fail",
        }
    }
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finding {
    /// The id of the check.
    pub(crate) check: &'static str,
    pub(crate) status: Status,
    /// What is so.
    pub(crate) reason: String,
    /// What to do about it.
    pub(crate) fix: Option<String>,
}

impl Finding {
    fn new(check: &'static str, status: Status, reason: impl Into<String>, fix: Option<&str>) -> Finding {
        Finding { check, status, reason: reason.into(), fix: fix.map(str::to_owned) }
    }

    fn pass(check: &'static str, reason: impl Into<String>) -> Finding {
        Finding::new(check, Status::Pass, reason, None)
    }

    fn skip(check: &'static str, reason: impl Into<String>) -> Finding {
        Finding::new(check, Status::Skip, reason, None)
    }

    fn warn(check: &'static str, reason: impl Into<String>, fix: &str) -> Finding {
        Finding::new(check, Status::Warn, reason, Some(fix))
    }

    fn fail(check: &'static str, reason: impl Into<String>, fix: &str) -> Finding {
        Finding::new(check, Status::Fail, reason, Some(fix))
    }

    pub(crate) fn to_json(&self) -> Value {
        let Finding { check, status, reason, fix } = self;
        json!({ "id": check, "status": status.name(), "reason": reason, "fix": fix })
    }
}

/// What is examined. It is what a server would use.
pub(crate) struct Patient<'a> {
    pub(crate) rules: &'a RuleSet,
    pub(crate) source: &'a Source,
    /// The settings of the shared store; `None` for the memory store.
    pub(crate) store: Option<RedisSettings>,
    /// The same store with a user who may look at more.
    pub(crate) store_as_admin: Option<RedisSettings>,
    pub(crate) hashers: Option<&'a SubjectHashers>,
    /// How long a check may wait for the store.
    pub(crate) deadline: Duration,
    pub(crate) database: Option<&'a DatabaseUrl>,
    /// Subjects that the store must have room for, besides those that it has.
    pub(crate) subjects: u64,
    pub(crate) scan: Scan,
}

/// How keys are scanned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scan {
    /// Keys that are looked at. If the store has more, the findings are those of a sample.
    pub(crate) keys_max: u64,
    /// Keys per second.
    pub(crate) rate: u32,
}

impl Scan {
    pub(crate) const DEFAULT: Scan = Scan { keys_max: 100_000, rate: 10_000 };
}

/// Which checks are made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Wanted {
    /// Only these; all, if it is empty.
    pub(crate) only: Vec<String>,
    pub(crate) skip: Vec<String>,
}

impl Wanted {
    fn has(&self, check: &str) -> bool {
        let is_named = |names: &[String]| names.iter().any(|name| name == check);
        (self.only.is_empty() || is_named(&self.only)) && !is_named(&self.skip)
    }

    fn has_any(&self, checks: &[&str]) -> bool {
        checks.iter().any(|check| self.has(check))
    }
}

/// What the doctor has found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    /// The memory of each server of the store that answered.
    pub(crate) memory: Vec<ServerMemory>,
    /// What the scan counted, if it ran.
    pub(crate) keys: Option<KeyCounts>,
    /// The busiest keys first, if the scan ran and the user may look.
    pub(crate) hot_keys: Option<Vec<HotKey>>,
}

/// The memory of one server of the store. `None` stands for what the server does not say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct ServerMemory {
    pub(crate) address: String,
    pub(crate) used_bytes: Option<u64>,
    /// `None` also if there is no maximum.
    pub(crate) max_bytes: Option<u64>,
    pub(crate) policy: Option<String>,
    /// In all databases.
    pub(crate) keys: u64,
    /// Since the server started.
    pub(crate) evicted_keys: Option<u64>,
}

impl Report {
    /// Puts the findings in the order of the checks.
    pub(crate) fn sort(&mut self) {
        let index = |check: &str| CHECKS.iter().position(|known| known.id == check);
        self.findings.sort_by_key(|finding| index(finding.check));
    }

    /// The worst status. Skipped checks count as passed.
    pub(crate) fn worst(&self) -> Status {
        let worst = self.findings.iter().map(|finding| finding.status).max().unwrap_or(Status::Pass);
        if worst == Status::Skip { Status::Pass } else { worst }
    }

    pub(crate) fn count(&self, status: Status) -> usize {
        self.findings.iter().filter(|finding| finding.status == status).count()
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "status": self.worst().name(),
            "findings": self.findings.iter().map(Finding::to_json).collect::<Value>(),
            "memory": self.memory,
            "keys": self.keys,
            "hot_keys": self.hot_keys,
        })
    }
}

/// Makes the wanted checks. `progress` receives the number of scanned keys, and about how many there are.
pub(crate) async fn examine(
    patient: &Patient<'_>,
    wanted: &Wanted,
    mut progress: impl FnMut(u64, u64),
) -> Report {
    let mut report = Report::default();
    store::examine(patient, wanted, &mut report, &mut progress).await;
    rules::examine(patient, wanted, &mut report.findings);
    database::examine(patient, wanted, &mut report.findings).await;
    // A store that does not answer is a finding of every check that needs it.
    let is_unreachable =
        |finding: &Finding| finding.check.ends_with("-reachable") && finding.status == Status::Fail;
    report.findings.retain(|finding| wanted.has(finding.check) || is_unreachable(finding));
    report.sort();
    report
}
