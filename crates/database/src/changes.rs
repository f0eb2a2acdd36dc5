//! Live changes: overrides, deny and bypass entries that apply over the rules file on every server.

mod listen;

use crate::Error;
use crate::audit::{AuditEvent, AuditHead, AuditRow, append};
use crate::database::{Backend, Database, transact};
use crate::ledger::Hash;
use crate::sql::{Columns, Row, Sql, Value};

pub use listen::ChangesListener;

/// The channel on which PostgreSQL announces a commit.
pub(crate) const CHANNEL: &str = "tollgate_changes";
/// How long an ended change stays in the table. The audit trail keeps it.
const ENDED_KEPT_US: i64 = 7 * 86_400 * 1_000_000;

/// How long after a call the same call is a repetition of it, although its end is later.
const REPEATED_WITHIN_US: i64 = 10 * 60 * 1_000_000;
/// By how much the lengths of a change and its repetition may differ: each reads the clock twice.
const LENGTH_TOLERANCE_US: u64 = 1_000_000;

/// What a live change does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ChangeKind {
    /// Other numbers for a rule.
    Override,
    /// Requests that are refused.
    Deny,
    /// Requests that no rule checks.
    Bypass,
}

impl ChangeKind {
    /// All kinds.
    pub const ALL: [ChangeKind; 3] = [ChangeKind::Override, ChangeKind::Deny, ChangeKind::Bypass];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            ChangeKind::Override => "override",
            ChangeKind::Deny => "deny",
            ChangeKind::Bypass => "bypass",
        }
    }

    /// Returns the kind of this name.
    pub fn named(name: &str) -> Option<ChangeKind> {
        ChangeKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A live change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveChange {
    /// Its id.
    pub id: String,
    /// What it does.
    pub kind: ChangeKind,
    /// How often it was written.
    pub version: i64,
    /// What it says, as JSON. This crate does not read it.
    pub spec: String,
    /// When it ends, in microseconds since 1970.
    pub until_us: Option<i64>,
    /// Why it was made.
    pub reason: String,
    /// Who wrote it last.
    pub author: String,
    /// When it was added.
    pub created_us: i64,
    /// When it was written last.
    pub changed_us: i64,
}

/// Which live changes are committed. Servers compare it with what they have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ChangesVersion {
    /// Number of live changes that were ever committed.
    pub number: i64,
    /// Hash of the audit row of the last one, which differs after a restore.
    pub head: Hash,
}

impl ChangesVersion {
    /// Before the first change.
    pub const NONE: ChangesVersion = ChangesVersion { number: 0, head: [0; 32] };
}

/// One write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Edit {
    /// Adds a change. The same change again is not an error, so that a call can be repeated.
    Add(LiveChange),
    /// Replaces what a change says, if it has this version.
    Replace {
        /// The new content.
        change: LiveChange,
        /// The version that the caller has seen.
        expected: i64,
    },
    /// Ends a change, if it has this version.
    Remove {
        /// What it does.
        kind: ChangeKind,
        /// Its id.
        id: String,
        /// The version that the caller has seen.
        expected: i64,
    },
}

/// A committed write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// The change as it is now, or as it was before it was removed.
    pub change: LiveChange,
    /// The version of all changes.
    pub version: ChangesVersion,
    /// Its audit row; `None` if the write was a repetition.
    pub audit: Option<AuditRow>,
}

/// The only row of `control`.
pub(crate) struct Control {
    pub(crate) version: ChangesVersion,
    pub(crate) head: AuditHead,
}

impl Control {
    /// Locks the row, after creating it if it is missing. Others wait until the transaction ends.
    pub(crate) async fn lock<S: Sql>(sql: &mut S) -> Result<Control, Error> {
        let zeros = [0_u8; 32];
        let insert = "INSERT INTO control (id, version, version_head, seq, head) VALUES (1, 0, $1, 0, $1) \
                      ON CONFLICT (id) DO NOTHING";
        sql.run(insert, vec![vec![zeros[..].into()]]).await?;
        Control::select(sql, S::LOCK).await
    }

    /// Reads the row without a lock.
    pub(crate) async fn read(sql: &mut impl Sql) -> Result<Control, Error> {
        Control::select(sql, "").await
    }

    async fn select(sql: &mut impl Sql, lock: &str) -> Result<Control, Error> {
        let select = format!("SELECT version, version_head, seq, head FROM control WHERE id = 1{lock}");
        let Some(row) = sql.run(&select, vec![vec![]]).await?.into_iter().flatten().next() else {
            return Ok(Control { version: ChangesVersion::NONE, head: AuditHead { seq: 0, hash: [0; 32] } });
        };
        let mut columns = Columns::of(row);
        let (number, head) = (columns.int("version")?, columns.bytes("version_head")?);
        let (seq, hash) = (columns.int("seq")?, columns.bytes("head")?);
        Ok(Control { version: ChangesVersion { number, head }, head: AuditHead { seq, hash } })
    }

    pub(crate) async fn save(&self, sql: &mut impl Sql) -> Result<(), Error> {
        let update = "UPDATE control SET version = $1, version_head = $2, seq = $3, head = $4 WHERE id = 1";
        let Control { version, head } = self;
        let set = vec![version.number.into(), version.head[..].into(), head.seq.into(), head.hash[..].into()];
        sql.run(update, vec![set]).await.map(drop)
    }
}

const COLUMNS: &str = "id, kind, version, spec, until_at, reason, author, created_at, changed_at";

fn read(row: Row) -> Result<LiveChange, Error> {
    let mut columns = Columns::of(row);
    let id = columns.text("id")?;
    let kind = columns.text("kind")?;
    Ok(LiveChange {
        id,
        kind: ChangeKind::named(&kind).ok_or(Error::Row { column: "kind", value: kind })?,
        version: columns.int("version")?,
        spec: columns.text("spec")?,
        until_us: columns.optional_int("until_at")?,
        reason: columns.text("reason")?,
        author: columns.text("author")?,
        created_us: columns.int("created_at")?,
        changed_us: columns.int("changed_at")?,
    })
}

fn optional(number: Option<i64>) -> Value {
    number.map_or(Value::Null, Value::Int)
}

async fn find(sql: &mut impl Sql, id: &str) -> Result<Option<LiveChange>, Error> {
    let select = format!("SELECT {COLUMNS} FROM live_change WHERE id = $1");
    sql.run(&select, vec![vec![id.into()]]).await?.into_iter().flatten().next().map(read).transpose()
}

async fn all(sql: &mut impl Sql) -> Result<(ChangesVersion, Vec<LiveChange>), Error> {
    // The lock of a writer is not needed: both statements see the same rows only if no commit is in between, so the version is
    // read first. An older version with newer rows is read again at the next look.
    let version = Control::read(sql).await?.version;
    let select = format!("SELECT {COLUMNS} FROM live_change ORDER BY created_at, id");
    let rows = sql.run(&select, vec![vec![]]).await?.into_iter().flatten().map(read);
    Ok((version, rows.collect::<Result<_, _>>()?))
}

/// Whether a call was repeated: the change is there, with the same content.
fn is_same(found: &LiveChange, added: &LiveChange) -> bool {
    let says_the_same = (found.kind, &found.spec, &found.reason, &found.author)
        == (added.kind, &added.spec, &added.reason, &added.author);
    says_the_same && (found.until_us == added.until_us || ends_as_late(found, added))
}

/// Whether both were made for the same length of time, one soon after the other: the call `for: 2h` was repeated because its
/// answer was lost.
fn ends_as_late(found: &LiveChange, added: &LiveChange) -> bool {
    let (Some(one), Some(other)) = (found.until_us, added.until_us) else { return false };
    let lengths = (one - found.created_us, other - added.created_us);
    let is_soon = (0..=REPEATED_WITHIN_US).contains(&(added.created_us - found.created_us));
    is_soon && lengths.0.abs_diff(lengths.1) <= LENGTH_TOLERANCE_US
}

async fn write<S: Sql>(
    sql: &mut S,
    edit: &Edit,
    event: &AuditEvent,
    detail: fn(Option<&LiveChange>, Option<&LiveChange>) -> String,
) -> Result<Written, Error> {
    let mut control = Control::lock(sql).await?;
    let (id, kind) = match edit {
        Edit::Add(change) | Edit::Replace { change, .. } => (&change.id, change.kind),
        Edit::Remove { id, kind, .. } => (id, *kind),
    };
    let before = find(sql, id).await?;
    let after = match (edit, &before) {
        (Edit::Add(added), None) => Some(LiveChange { version: 1, ..added.clone() }),
        (Edit::Add(added), Some(found)) if is_same(found, added) => {
            let (change, version) = (found.clone(), control.version);
            return Ok(Written { change, version, audit: None });
        }
        (Edit::Add(_), Some(_)) => return Err(Error::ChangeExists(id.clone())),
        (Edit::Replace { expected, .. } | Edit::Remove { expected, .. }, Some(found))
            if found.kind == kind && found.version != *expected =>
        {
            return Err(Error::ChangeStale { expected: *expected, found: found.version });
        }
        (Edit::Replace { change, .. }, Some(found)) if found.kind == kind => {
            Some(LiveChange { version: found.version + 1, created_us: found.created_us, ..change.clone() })
        }
        (Edit::Remove { .. }, Some(found)) if found.kind == kind => None,
        _ => return Err(Error::ChangeMissing(id.clone())),
    };
    sql.run("DELETE FROM live_change WHERE id = $1", vec![vec![id.as_str().into()]]).await?;
    if let Some(change) = &after {
        let insert =
            format!("INSERT INTO live_change ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)");
        let set = vec![
            change.id.as_str().into(),
            change.kind.name().into(),
            change.version.into(),
            change.spec.as_str().into(),
            optional(change.until_us),
            change.reason.as_str().into(),
            change.author.as_str().into(),
            change.created_us.into(),
            change.changed_us.into(),
        ];
        sql.run(&insert, vec![set]).await?;
    }
    let ended = event.at_us.saturating_sub(ENDED_KEPT_US);
    sql.run("DELETE FROM live_change WHERE until_at < $1", vec![vec![ended.into()]]).await?;
    let number = control.version.number + 1;
    let event = AuditEvent {
        detail: detail(before.as_ref(), after.as_ref()),
        before: format!("changes {}", control.version.number),
        after: format!("changes {number}"),
        ..event.clone()
    };
    let row = append(sql, &mut control, &event).await?;
    control.version = ChangesVersion { number, head: row.hash };
    control.save(sql).await?;
    if let Some(notify) = S::NOTIFY {
        sql.run(notify, vec![vec![number.to_string().as_str().into()]]).await?;
    }
    let change = after.or(before).ok_or_else(|| Error::ChangeMissing(id.clone()))?;
    Ok(Written { change, version: control.version, audit: Some(row) })
}

impl Database {
    /// Writes a live change and its audit row in one transaction. `detail` says what differs, for the audit row.
    pub async fn write_change(
        &self,
        edit: &Edit,
        event: &AuditEvent,
        detail: fn(Option<&LiveChange>, Option<&LiveChange>) -> String,
    ) -> Result<Written, Error> {
        let mut tries = 1;
        loop {
            let (edit, event) = (edit.clone(), event.clone());
            match transact!(self, |sql| write(sql, &edit, &event, detail)) {
                Err(error) if error.is_conflict() && tries < crate::database::TRIES => tries += 1,
                done => return done,
            }
        }
    }

    /// Returns all live changes, oldest first, and their version. Some may have ended.
    pub async fn live_changes(&self) -> Result<(ChangesVersion, Vec<LiveChange>), Error> {
        transact!(self, |sql| all(sql))
    }

    /// Returns the version of the live changes.
    pub async fn changes_version(&self) -> Result<ChangesVersion, Error> {
        transact!(self, |sql| async { Ok(Control::read(sql).await?.version) })
    }

    /// Returns whether only one server may use this database.
    pub fn serves_one_server(&self) -> bool {
        matches!(self.backend, Backend::Sqlite(_))
    }

    /// Opens a connection on which PostgreSQL announces commits; `None` for SQLite.
    pub async fn listen(&self) -> Result<Option<ChangesListener>, Error> {
        match &self.backend {
            Backend::Sqlite(_) => Ok(None),
            Backend::Postgres(postgres) => ChangesListener::start(postgres.config()).await.map(Some),
        }
    }
}
