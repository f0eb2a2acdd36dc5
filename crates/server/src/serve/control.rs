//! Live changes and the audit trail: what operators change while the server runs.
//!
//! The database has the truth. Every server follows it, keeps a copy on its disk for a restart while the database is away, and
//! applies the changes over its rules. A write goes to the database first, with its audit row in the same transaction.

mod audit;
mod cache;
mod follow;
pub(crate) mod spec;
mod write;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tollgate::{Keyed, Limit};
use tollgate_database::changes::{ChangesVersion, LiveChange};
use tollgate_database::{Database, DatabaseUrl};

use super::observe::{Exposition, Kind};
pub(crate) use audit::Audited;
use audit::{PendingRows, Refusals};
pub(crate) use write::{Author, ControlError, WriteOutcome};

/// Calls of one caller: a burst, and what is added each second.
const CALLS_BURST: u64 = 200;
const CALLS_PER_SECOND: u64 = 50;
/// Callers that are counted separately.
const CALLERS_MAX: usize = 10_000;
/// For this long after the start, a server that knows no live changes is not ready.
const UNKNOWN_MAX: Duration = Duration::from_secs(30);
/// A database that was silent for longer is reported as down.
const SILENT_MAX: Duration = Duration::from_secs(3);

/// Where live changes come from.
#[derive(Clone, Debug)]
pub(crate) struct ControlSettings {
    pub(crate) url: DatabaseUrl,
    /// The copy for a restart while the database is away.
    pub(crate) cache: PathBuf,
    /// The name of this server in audit rows.
    pub(crate) server: String,
}

/// Where the live changes in force come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Knowledge {
    Database,
    /// The copy of an earlier process: the database has not answered since the start.
    Cache,
    /// Neither: changes may exist that are not in force.
    Unknown,
}

impl Knowledge {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Knowledge::Database => "database",
            Knowledge::Cache => "cache",
            Knowledge::Unknown => "unknown",
        }
    }
}

/// The live changes that are in force.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) version: ChangesVersion,
    pub(crate) changes: Arc<Vec<LiveChange>>,
    pub(crate) from: Knowledge,
    /// When they were applied, by this server's clock.
    pub(crate) applied_us: i64,
}

/// The control plane of this server.
pub(crate) struct Control {
    settings: ControlSettings,
    /// `None` until the database has answered once.
    database: ArcSwapOption<Database>,
    known: ArcSwap<Known>,
    /// When the database answered last.
    answered_at: Mutex<Option<Instant>>,
    started_at: Instant,
    /// Wakes the task that follows the database.
    wake: Notify,
    /// Held while the changes are read and applied.
    applying: tokio::sync::Mutex<()>,
    pending: PendingRows,
    refusals: Refusals,
    calls: Keyed,
}

impl Control {
    pub(crate) fn new(settings: ControlSettings) -> anyhow::Result<Control> {
        let limit = Limit::token_bucket(CALLS_PER_SECOND, Duration::from_secs(1)).burst(CALLS_BURST);
        let known = Known {
            version: ChangesVersion::NONE,
            changes: Arc::default(),
            from: Knowledge::Unknown,
            applied_us: 0,
        };
        Ok(Control {
            settings,
            database: ArcSwapOption::empty(),
            known: ArcSwap::from_pointee(known),
            answered_at: Mutex::new(None),
            started_at: Instant::now(),
            wake: Notify::new(),
            applying: tokio::sync::Mutex::new(()),
            pending: PendingRows::default(),
            refusals: Refusals::default(),
            calls: Keyed::new(limit)?.keys_max(CALLERS_MAX),
        })
    }

    /// The live changes in force.
    pub(crate) fn known(&self) -> Arc<Known> {
        self.known.load_full()
    }

    /// The wait until the caller may make another call; `None` if it may make this one.
    pub(crate) fn throttled(&self, caller: &str) -> Option<Duration> {
        let decision = self.calls.check(caller);
        (!decision.allowed()).then(|| decision.retry_after().unwrap_or(Duration::from_secs(1)))
    }

    /// Whether the database has answered recently.
    pub(crate) fn is_up(&self) -> bool {
        self.answered_at.lock().is_some_and(|at| at.elapsed() < SILENT_MAX)
    }

    /// Whether the server may get requests: it knows its live changes, or has waited long enough for them.
    pub(crate) fn is_ready(&self) -> bool {
        self.known.load().from != Knowledge::Unknown || self.started_at.elapsed() >= UNKNOWN_MAX
    }

    pub(crate) fn write(&self, page: &mut Exposition) {
        let known = self.known.load();
        page.single(
            "tollgate_changes_version",
            Kind::Gauge,
            "Number of live changes that were ever committed, as far as this server has applied them; -1 if it does not know.",
            if known.from == Knowledge::Unknown { -1 } else { known.version.number },
        );
        page.single(
            "tollgate_changes_in_force",
            Kind::Gauge,
            "Live changes that this server knows: overrides, deny and bypass entries.",
            known.changes.len(),
        );
        page.single(
            "tollgate_changes_database_up",
            Kind::Gauge,
            "1 while the database of live changes answers.",
            u8::from(self.is_up()),
        );
        page.single(
            "tollgate_audit_pending",
            Kind::Gauge,
            "Audit rows that wait for the database.",
            self.pending.len(),
        );
        page.single(
            "tollgate_audit_dropped_total",
            Kind::Counter,
            "Audit rows that were dropped because too many waited for the database. The log has them.",
            self.pending.dropped(),
        );
    }
}

/// This server's clock, in microseconds since 1970.
pub(crate) fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
