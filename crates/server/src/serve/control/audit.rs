//! Audit rows of what is not a live change: they wait in memory for the database, within bounds.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tollgate_database::audit::AuditEvent;

use super::{Control, now_us};

/// Rows that wait for the database. Further ones are only logged.
const PENDING_MAX: usize = 1_000;
/// Refused calls that are counted separately in one minute: by token, address, route and reason.
const REFUSED_MAX: usize = 100;
const MINUTE_US: i64 = 60_000_000;
/// How refusals beyond that are counted.
const OTHERS: &str = "(others)";

/// What happened on this server, besides live changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Audited<'a> {
    pub(crate) actor: &'a str,
    pub(crate) address: String,
    pub(crate) action: &'a str,
    pub(crate) target: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) detail: String,
    pub(crate) before: &'a str,
    pub(crate) after: &'a str,
}

/// Rows that the database has not taken yet, oldest first.
#[derive(Default)]
pub(super) struct PendingRows {
    rows: Mutex<VecDeque<AuditEvent>>,
    dropped: AtomicU64,
}

impl PendingRows {
    fn push(&self, event: AuditEvent) {
        let mut rows = self.rows.lock();
        if rows.len() < PENDING_MAX {
            rows.push_back(event);
        } else {
            drop(rows);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            tracing::error!(
                event = "audit_dropped",
                actor = event.actor,
                action = event.action,
                target = event.target,
                "too many audit rows wait for the database; this one was dropped"
            );
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.lock().len()
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// The oldest row. It stays until [`PendingRows::done`].
    pub(super) fn first(&self) -> Option<AuditEvent> {
        self.rows.lock().front().cloned()
    }

    pub(super) fn done(&self) {
        self.rows.lock().pop_front();
    }
}

/// A refused call, as it is counted.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Refused {
    actor: String,
    address: String,
    route: String,
    code: &'static str,
}

/// Refused calls of the current minute.
#[derive(Default)]
pub(super) struct Refusals {
    minute: Mutex<(i64, HashMap<Refused, i64>)>,
}

impl Control {
    /// Adds an audit row as soon as the database takes it.
    pub(crate) fn note(&self, audited: Audited<'_>) {
        self.pending.push(self.event(audited));
        self.wake.notify_one();
    }

    pub(super) fn event(&self, audited: Audited<'_>) -> AuditEvent {
        let Audited { actor, address, action, target, reason, detail, before, after } = audited;
        AuditEvent {
            at_us: now_us(),
            times: 1,
            server: self.settings.server.clone(),
            actor: actor.to_owned(),
            address,
            action: action.to_owned(),
            target: target.to_owned(),
            reason: reason.to_owned(),
            detail,
            before: before.to_owned(),
            after: after.to_owned(),
        }
    }

    /// Counts a refused call. A minute's calls of one token, address and route become one row.
    pub(crate) fn note_refusal(&self, actor: &str, address: String, route: &str, code: &'static str) {
        let minute = now_us() / MINUTE_US;
        let mut current = self.refusals.minute.lock();
        if current.0 != minute {
            self.end_minute(&mut current);
            current.0 = minute;
        }
        let refused = Refused { actor: actor.to_owned(), address, route: route.to_owned(), code };
        let is_full = current.1.len() >= REFUSED_MAX && !current.1.contains_key(&refused);
        let refused = match is_full {
            false => refused,
            true => {
                let others = || OTHERS.to_owned();
                Refused { actor: others(), address: others(), route: others(), code: "refused" }
            }
        };
        *current.1.entry(refused).or_default() += 1;
    }

    /// Makes rows of the refusals of minutes that are over.
    pub(super) fn end_minutes(&self) {
        let minute = now_us() / MINUTE_US;
        let mut current = self.refusals.minute.lock();
        if current.0 != minute && !current.1.is_empty() {
            self.end_minute(&mut current);
        }
    }

    /// Makes rows of all refusals, because the server ends.
    pub(super) fn end_refusals(&self) {
        self.end_minute(&mut self.refusals.minute.lock());
    }

    fn end_minute(&self, current: &mut (i64, HashMap<Refused, i64>)) {
        let mut refusals: Vec<(Refused, i64)> = current.1.drain().collect();
        refusals.sort_by(|(one, _), (other, _)| (&one.actor, &one.route).cmp(&(&other.actor, &other.route)));
        for (Refused { actor, address, route, code }, times) in refusals {
            let audited = Audited {
                actor: &actor,
                address,
                action: "call.refused",
                target: &route,
                reason: code,
                ..Audited::default()
            };
            self.pending.push(AuditEvent { times, ..self.event(audited) });
        }
    }
}
