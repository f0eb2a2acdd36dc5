//! Follows the database: applies what other servers have written, and posts the audit rows that wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tollgate_database::changes::{ChangesListener, ChangesVersion, LiveChange};
use tollgate_database::ledger::Settings;
use tollgate_database::{Database, Error};

use super::{Control, Knowledge, Known, cache, now_us};
use crate::failure::error_chain;
use crate::hex;
use crate::serve::gate::Gate;

/// How often the version is read. PostgreSQL announces commits; this is for announcements that were lost, and for SQLite.
const LOOK_EVERY: Duration = Duration::from_millis(400);
/// The longest pause while the database does not answer.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long one step may take.
pub(super) const STEP_MAX: Duration = Duration::from_secs(3);
/// How long a start waits for the database, if there is no copy of the live changes.
const START_MAX: Duration = Duration::from_secs(3);
/// How long a server that ends waits for the rows that it still has.
const END_MAX: Duration = Duration::from_secs(2);

impl Control {
    /// Applies the live changes before the server accepts requests: those of the database, or of the copy.
    pub(crate) async fn start(&self, gate: &Gate) {
        match timeout(START_MAX, self.follow(gate)).await {
            Ok(Ok(())) => {
                self.report_lost();
                return;
            }
            Ok(Err(error)) => {
                let error = error_chain(&error);
                tracing::error!(
                    event = "changes_down",
                    error,
                    "the database of live changes does not answer"
                );
            }
            Err(_) => tracing::error!(event = "changes_down", "the database of live changes does not answer"),
        }
        match cache::read(&self.settings.cache) {
            Ok(Some((version, changes))) => {
                tracing::warn!(
                    event = "changes_from_cache",
                    version = version.number,
                    changes = changes.len(),
                    "the live changes are those of the last run, until the database answers"
                );
                self.apply(gate, version, changes, Knowledge::Cache);
            }
            Ok(None) => tracing::error!(
                event = "changes_unknown",
                "live changes are unknown: neither the database nor a copy of an earlier run is there"
            ),
            Err(error) => {
                let path = self.settings.cache.display();
                tracing::error!(event = "changes_unknown", %error, "cannot read the live changes in {path}");
            }
        }
    }

    /// Reports live changes of the last run that the database does not have: it may have been restored to an earlier time.
    fn report_lost(&self) {
        let Ok(Some((version, changes))) = cache::read(&self.settings.cache) else { return };
        self.compare(version, &changes);
        self.copy();
    }

    fn compare(&self, had: ChangesVersion, changes: &[LiveChange]) {
        let known = self.known.load();
        if known.version.number >= had.number {
            return;
        }
        let now_us = now_us();
        let lost = changes.iter().filter(|change| change.until_us.is_none_or(|until| until > now_us));
        let lost = lost.filter(|change| !known.changes.contains(change));
        let lost: Vec<&str> = lost.map(|change| change.id.as_str()).collect();
        tracing::error!(
            event = "changes_set_back",
            had = had.number,
            has = known.version.number,
            lost = lost.join(","),
            "the database has fewer live changes than before: it was restored to an earlier time"
        );
        let detail = serde_json::json!({ "lost": lost }).to_string();
        self.note(super::Audited {
            actor: "(server)",
            action: "changes.set_back",
            detail,
            before: &format!("changes {}", had.number),
            after: &format!("changes {}", known.version.number),
            ..super::Audited::default()
        });
    }

    /// Runs until the server ends.
    pub(crate) async fn run(self: Arc<Self>, gate: Gate, ending: CancellationToken) {
        let mut listener: Option<ChangesListener> = None;
        let mut pause = LOOK_EVERY;
        let mut is_down = !self.is_up();
        loop {
            let heard = async {
                match &listener {
                    Some(listener) => listener.heard().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = ending.cancelled() => break,
                () = self.wake.notified() => (),
                () = heard => (),
                () = sleep(pause) => (),
            }
            self.end_minutes();
            match timeout(STEP_MAX, self.follow(&gate)).await {
                Ok(Ok(())) => {
                    pause = LOOK_EVERY;
                    if std::mem::take(&mut is_down) {
                        tracing::info!(event = "changes_back", "the database of live changes answers again");
                    }
                }
                failed => {
                    pause = (pause * 2).min(PAUSE_MAX);
                    if !std::mem::replace(&mut is_down, true) {
                        let error = match &failed {
                            Ok(Err(error)) => error_chain(error),
                            _ => "no answer in time".to_owned(),
                        };
                        tracing::error!(
                            event = "changes_down",
                            error,
                            "the database of live changes does not answer; those in force stay"
                        );
                    }
                    continue;
                }
            }
            if listener.as_ref().is_none_or(ChangesListener::has_ended) {
                listener = match self.database.load_full() {
                    // Without announcements, the version is read often enough.
                    Some(database) => {
                        timeout(STEP_MAX, database.listen()).await.ok().and_then(Result::ok).flatten()
                    }
                    None => None,
                };
                // What was committed before the connection listened was not announced.
                if listener.is_some() {
                    self.wake.notify_one();
                }
            }
        }
        self.end_refusals();
        if let Some(database) = self.database.load_full()
            && timeout(END_MAX, self.post_pending(&database)).await.is_err()
        {
            let rows = self.pending.len();
            tracing::error!(event = "audit_unsent", rows, "the database did not take the last audit rows");
        }
    }

    /// The database, which is opened when it answers for the first time.
    pub(super) async fn open(&self) -> Result<Arc<Database>, Error> {
        if let Some(database) = self.database.load_full() {
            return Ok(database);
        }
        let opened = Database::open(&self.settings.url, Settings { horizon_us: 0 }).await?;
        let opened = Arc::new(opened);
        self.database.store(Some(Arc::clone(&opened)));
        Ok(opened)
    }

    /// One look: applies the live changes if they are others, and posts the audit rows that wait.
    async fn follow(&self, gate: &Gate) -> Result<(), Error> {
        let database = self.refresh(gate).await?;
        self.post_pending(&database).await
    }

    /// Applies the live changes of the database, if they are others than those in force.
    pub(super) async fn refresh(&self, gate: &Gate) -> Result<Arc<Database>, Error> {
        // One look at a time: an older one must not be applied after a newer one.
        let _alone = self.applying.lock().await;
        let database = self.open().await?;
        let version = database.changes_version().await?;
        let known = self.known.load_full();
        if known.from != Knowledge::Database || known.version != version {
            let (version, changes) = database.live_changes().await?;
            self.apply(gate, version, changes, Knowledge::Database);
            if known.from != Knowledge::Unknown {
                self.compare(known.version, &known.changes);
                self.copy();
            }
        } else if known.changes.iter().any(|change| has_ended_since(change, known.applied_us)) {
            // The rules in force need no place for what has ended.
            self.apply(gate, known.version, known.changes.to_vec(), Knowledge::Database);
        }
        *self.answered_at.lock() = Some(Instant::now());
        Ok(database)
    }

    async fn post_pending(&self, database: &Database) -> Result<(), Error> {
        while let Some(event) = self.pending.first() {
            let row = database.audit(&event).await?;
            self.pending.done();
            log_row(&row);
        }
        Ok(())
    }

    /// Puts the changes in force on this server.
    fn apply(&self, gate: &Gate, version: ChangesVersion, changes: Vec<LiveChange>, from: Knowledge) {
        let (changes, applied_us) = (Arc::new(changes), now_us());
        gate.set_live(&changes);
        self.known.store(Arc::new(Known { version, changes, from, applied_us }));
    }

    /// Writes the copy for the next start.
    pub(super) fn copy(&self) {
        let known = self.known.load();
        if let Err(error) = cache::write(&self.settings.cache, known.version, &known.changes) {
            let path = self.settings.cache.display();
            tracing::error!(event = "changes_not_copied", %error, "cannot write the live changes to {path}");
        }
    }
}

/// Whether a change has ended after it was applied.
fn has_ended_since(change: &LiveChange, applied_us: i64) -> bool {
    change.until_us.is_some_and(|until| until > applied_us && until <= now_us())
}

/// Logs the number and the hash of a row: a kept head reveals rows that are cut off later.
pub(super) fn log_row(row: &tollgate_database::audit::AuditRow) {
    tracing::info!(
        event = "audit",
        seq = row.seq,
        head = hex::of(&row.hash),
        actor = row.event.actor,
        action = row.event.action,
        target = row.event.target,
        times = row.event.times,
        "an audit row was written"
    );
}
