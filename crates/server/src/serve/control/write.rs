//! Writes: each goes to the database with its audit row, and is in force here before the call returns.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tollgate::rules::live::LiveEffect;
use tollgate_database::Error;
use tollgate_database::audit::AuditRow;
use tollgate_database::changes::{ChangeKind, ChangesVersion, Edit, LiveChange, Written};

use super::follow::{STEP_MAX, log_row};
use super::spec::{self, ChangeBody, InvalidChange, is_id};
use super::{Audited, Control, now_us};
use crate::failure::error_chain;
use crate::serve::gate::Gate;

/// How long a write is repeated while the database does not answer.
const WRITE_MAX: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(50);
/// Live changes, at most: every check looks through the lists.
const CHANGES_MAX: usize = 10_000;

/// Who makes a call.
#[derive(Clone, Debug)]
pub(crate) struct Author<'a> {
    pub(crate) name: &'a str,
    pub(crate) address: IpAddr,
}

/// What a write did, or would do.
#[derive(Clone, Debug)]
pub(crate) struct WriteOutcome {
    pub(crate) change: LiveChange,
    pub(crate) effect: Option<LiveEffect>,
    /// The version of all changes; `None` for a trial.
    pub(crate) version: Option<ChangesVersion>,
}

/// Why a write was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    #[error(transparent)]
    Invalid(#[from] InvalidChange),
    /// The override gives some requests less.
    #[error("the override {} what applies now; repeat the call with `allow_lower: true` if this is meant", .0.verb())]
    Lowers(Effect),
    #[error("no live change has the id `{0}`; list them to see the ids")]
    Missing(String),
    #[error("another live change has the id `{0}`; choose another one, or change that one")]
    Exists(String),
    #[error("the change has version {0} now; read it again, then repeat the call")]
    Stale(i64),
    #[error("there are {CHANGES_MAX} live changes already; remove some, or move them to the rules file")]
    TooMany,
    #[error("a SQLite database serves one server, and others share the store; set database: postgres://…")]
    NotShared,
    #[error("the database did not answer: {0}; whether the change was written is unknown until it does")]
    Database(String),
}

/// An effect as messages name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effect(pub(crate) LiveEffect);

impl Effect {
    const fn verb(self) -> &'static str {
        match self.0 {
            LiveEffect::Raises => "raises",
            LiveEffect::Lowers => "lowers",
            LiveEffect::Mixed => "raises some numbers and lowers others of",
        }
    }
}

impl Control {
    /// Adds a live change.
    pub(crate) async fn add(
        &self,
        gate: &Gate,
        kind: ChangeKind,
        body: &ChangeBody,
        author: &Author<'_>,
        is_trial: bool,
    ) -> Result<WriteOutcome, ControlError> {
        let reason = body.reason()?.to_owned();
        let id = match body.id()? {
            Some(id) => id.to_owned(),
            None => new_id(kind).map_err(|error| ControlError::Database(error.to_string()))?,
        };
        let now_us = now_us();
        let spec = gate.with_base(|rules, hashers| body.spec(kind, None, rules, hashers))?;
        let change = LiveChange {
            id,
            kind,
            version: 1,
            spec,
            until_us: body.until_us(kind)?,
            reason,
            author: author.name.to_owned(),
            created_us: now_us,
            changed_us: now_us,
        };
        let effect = self.checked(gate, body, &change)?;
        if self.known().changes.len() >= CHANGES_MAX {
            return Err(ControlError::TooMany);
        }
        if is_trial {
            return Ok(WriteOutcome { change, effect, version: None });
        }
        let written = self.write_edit(gate, Edit::Add(change), "add", author).await?;
        Ok(WriteOutcome { change: written.change, effect, version: Some(written.version) })
    }

    /// Replaces parts of a live change, if it has the version that the caller has seen.
    pub(crate) async fn replace(
        &self,
        gate: &Gate,
        (kind, id, expected): (ChangeKind, &str, i64),
        body: &ChangeBody,
        author: &Author<'_>,
        is_trial: bool,
    ) -> Result<WriteOutcome, ControlError> {
        let reason = body.reason()?.to_owned();
        if body.id.is_some() {
            return Err(InvalidChange("`id` cannot be changed; add another change".to_owned()).into());
        }
        let before = self.find(kind, id).ok_or_else(|| ControlError::Missing(id.to_owned()))?;
        if before.version != expected {
            return Err(ControlError::Stale(before.version));
        }
        let spec = gate.with_base(|rules, hashers| body.spec(kind, Some(&before.spec), rules, hashers))?;
        let until_us = if body.has_end() { body.until_us(kind)? } else { before.until_us };
        let change = LiveChange {
            version: expected + 1,
            spec,
            until_us,
            reason,
            author: author.name.to_owned(),
            changed_us: now_us(),
            ..before
        };
        let effect = self.checked(gate, body, &change)?;
        if is_trial {
            return Ok(WriteOutcome { change, effect, version: None });
        }
        let written = self.write_edit(gate, Edit::Replace { change, expected }, "change", author).await?;
        Ok(WriteOutcome { change: written.change, effect, version: Some(written.version) })
    }

    /// Ends a live change, if it has the version that the caller has seen.
    pub(crate) async fn remove(
        &self,
        gate: &Gate,
        (kind, id, expected): (ChangeKind, &str, i64),
        reason: Option<&str>,
        author: &Author<'_>,
        is_trial: bool,
    ) -> Result<WriteOutcome, ControlError> {
        let reason = spec::reason(reason)?.to_owned();
        let before = self.find(kind, id).ok_or_else(|| ControlError::Missing(id.to_owned()))?;
        if before.version != expected {
            return Err(ControlError::Stale(before.version));
        }
        if is_trial {
            return Ok(WriteOutcome { change: before, effect: None, version: None });
        }
        let edit = Edit::Remove { kind, id: id.to_owned(), expected };
        let written = self.write_removal(gate, edit, &reason, author, before).await?;
        Ok(WriteOutcome { change: written.change, effect: None, version: Some(written.version) })
    }

    /// The live change with this id.
    pub(crate) fn find(&self, kind: ChangeKind, id: &str) -> Option<LiveChange> {
        let known = self.known();
        known.changes.iter().find(|change| change.kind == kind && change.id == id).cloned()
    }

    /// Writes an audit row at once, before what it is about is done.
    pub(crate) async fn audit_now(&self, audited: Audited<'_>) -> Result<AuditRow, ControlError> {
        let event = self.event(audited);
        let append = async {
            let database = self.open().await?;
            database.audit(&event).await
        };
        let row = match timeout(STEP_MAX, append).await {
            Ok(Ok(row)) => row,
            Ok(Err(error)) => return Err(ControlError::Database(error_chain(&error))),
            Err(_) => return Err(ControlError::Database("no answer in time".to_owned())),
        };
        log_row(&row);
        Ok(row)
    }

    /// Rows of the audit trail after a number, and its end.
    pub(crate) async fn audit_page(
        &self,
        after: i64,
        limit: i64,
    ) -> Result<(Vec<AuditRow>, tollgate_database::audit::AuditHead), ControlError> {
        let read = async {
            let database = self.open().await?;
            // The end first: it is then never before the last row of the page by a missing one.
            let head = database.audit_head().await?;
            Ok::<_, Error>((database.audit_page(after, limit).await?, head))
        };
        match timeout(STEP_MAX, read).await {
            Ok(Ok(page)) => Ok(page),
            Ok(Err(error)) => Err(ControlError::Database(error_chain(&error))),
            Err(_) => Err(ControlError::Database("no answer in time".to_owned())),
        }
    }

    fn checked(
        &self,
        gate: &Gate,
        body: &ChangeBody,
        change: &LiveChange,
    ) -> Result<Option<LiveEffect>, ControlError> {
        let known = self.known();
        let effect = gate.with_base(|rules, hashers| spec::check(rules, hashers, &known.changes, change))?;
        match effect {
            Some(effect @ (LiveEffect::Lowers | LiveEffect::Mixed)) if body.allow_lower != Some(true) => {
                Err(ControlError::Lowers(Effect(effect)))
            }
            effect => Ok(effect),
        }
    }

    async fn write_edit(
        &self,
        gate: &Gate,
        edit: Edit,
        what: &str,
        author: &Author<'_>,
    ) -> Result<Written, ControlError> {
        let (Edit::Add(change) | Edit::Replace { change, .. }) = &edit else {
            return Err(ControlError::Missing(String::new()));
        };
        let (reason, kind) = (change.reason.clone(), change.kind);
        self.commit(gate, &edit, &format!("{}.{what}", kind.name()), &reason, author, None).await
    }

    async fn write_removal(
        &self,
        gate: &Gate,
        edit: Edit,
        reason: &str,
        author: &Author<'_>,
        before: LiveChange,
    ) -> Result<Written, ControlError> {
        let action = format!("{}.remove", before.kind.name());
        self.commit(gate, &edit, &action, reason, author, Some(before)).await
    }

    /// Commits a write, and puts it in force here. While the database does not answer, the write is repeated: it has an id and
    /// a version, so that it is made once.
    async fn commit(
        &self,
        gate: &Gate,
        edit: &Edit,
        action: &str,
        reason: &str,
        author: &Author<'_>,
        removed: Option<LiveChange>,
    ) -> Result<Written, ControlError> {
        let target = match edit {
            Edit::Add(change) | Edit::Replace { change, .. } => &change.id,
            Edit::Remove { id, .. } => id,
        };
        let audited = Audited {
            actor: author.name,
            address: author.address.to_string(),
            action,
            target,
            reason,
            ..Audited::default()
        };
        let event = self.event(audited);
        let began = Instant::now();
        let mut tries = 0;
        loop {
            let write = async {
                let database = self.open().await?;
                if database.serves_one_server() && gate.has_other_servers() {
                    return Ok(None);
                }
                database.write_change(edit, &event, detail).await.map(Some)
            };
            tries += 1;
            let failure = match timeout(STEP_MAX, write).await {
                Ok(Ok(None)) => return Err(ControlError::NotShared),
                Ok(Ok(Some(written))) => return Ok(self.in_force(gate, written).await),
                Ok(Err(Error::ChangeExists(id))) => return Err(ControlError::Exists(id)),
                Ok(Err(Error::ChangeStale { found, .. })) => return Err(ControlError::Stale(found)),
                Ok(Err(Error::ChangeMissing(id))) => match removed {
                    // An earlier attempt removed it, and its answer was lost.
                    Some(change) if tries > 1 => {
                        let version = self.known().version;
                        return Ok(Written { change, version, audit: None });
                    }
                    _ => return Err(ControlError::Missing(id)),
                },
                Ok(Err(error)) => error_chain(&error),
                Err(_) => "no answer in time".to_owned(),
            };
            if began.elapsed() >= WRITE_MAX {
                return Err(ControlError::Database(failure));
            }
            sleep(PAUSE).await;
        }
    }

    async fn in_force(&self, gate: &Gate, written: Written) -> Written {
        if let Some(row) = &written.audit {
            log_row(row);
        }
        // The change is committed. If it cannot be read now, the task that follows the database reads it.
        let refreshed = timeout(STEP_MAX, self.refresh(gate)).await;
        if !matches!(refreshed, Ok(Ok(_))) {
            self.wake.notify_one();
        }
        written
    }
}

/// What differs, for the audit row.
fn detail(before: Option<&LiveChange>, after: Option<&LiveChange>) -> String {
    let of = |change: Option<&LiveChange>| {
        change.map(|change| {
            // A text that is no JSON is kept as it is.
            let spec = serde_json::from_str::<Value>(&change.spec).unwrap_or_else(|_| json!(change.spec));
            json!({ "version": change.version, "spec": spec, "until_us": change.until_us, "reason": change.reason })
        })
    };
    json!({ "before": of(before), "after": of(after) }).to_string()
}

/// A new id: the first letter of the kind and 60 random bits.
fn new_id(kind: ChangeKind) -> Result<String, getrandom::Error> {
    let random = getrandom::u64()? >> 4;
    let id = format!("{}-{random:015x}", &kind.name()[..1]);
    debug_assert!(is_id(&id), "new ids are valid");
    Ok(id)
}
