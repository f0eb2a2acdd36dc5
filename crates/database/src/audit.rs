//! The audit trail: who changed what. Rows are only appended, and each is chained to the one before by a hash.

use sha2::{Digest, Sha256};

use crate::Error;
use crate::changes::Control;
use crate::database::{Backend, Database, transact};
use crate::ledger::Hash;
use crate::sql::{Columns, Row, Sql, Value};

/// Rows that are read in one step of a verification.
const PAGE: i64 = 1_000;

/// What happened, before it has a number in the trail.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AuditEvent {
    /// When, by the clock of the server, in microseconds since 1970.
    pub at_us: i64,
    /// How many times, for refused calls that are counted together.
    pub times: i64,
    /// The server.
    pub server: String,
    /// The name of the token or certificate.
    pub actor: String,
    /// The address that the call came from; empty for the server itself.
    pub address: String,
    /// What was done, like `override.add`.
    pub action: String,
    /// To what: the id of a change, a rule, a route.
    pub target: String,
    /// Why.
    pub reason: String,
    /// The difference, as JSON.
    pub detail: String,
    /// What was in force before.
    pub before: String,
    /// What is in force after.
    pub after: String,
}

/// A row of the trail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditRow {
    /// Its number, from 1.
    pub seq: i64,
    /// What happened.
    pub event: AuditEvent,
    /// Hash of the row before; zeros in the first one.
    pub prev: Hash,
    /// Its own hash.
    pub hash: Hash,
}

/// The end of the trail: a copy of it, kept elsewhere, reveals rows that were cut off or rewritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuditHead {
    /// Number of the last row; 0 in an empty trail.
    pub seq: i64,
    /// Its hash; zeros in an empty trail.
    pub hash: Hash,
}

/// Why a trail is not intact.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AuditFault {
    /// A row is missing.
    #[error("row {0} is missing")]
    Missing(i64),
    /// A row was changed, or is at another place.
    #[error("row {0} was changed after it was written, or moved")]
    Changed(i64),
    /// Rows after the recorded end exist, or the end is missing.
    #[error("the trail ends at row {found}, and row {recorded} was the last one that was written")]
    Cut {
        /// The last row.
        found: i64,
        /// The last row that was written.
        recorded: i64,
    },
    /// The kept head is not in the trail.
    #[error("row {0} does not have the expected hash: rows were rewritten, or the trail is another one")]
    Unexpected(i64),
}

/// Returns the hash of a row. Numbers are big-endian, and each text has its length before it.
pub fn audit_hash(seq: i64, prev: &Hash, event: &AuditEvent) -> Hash {
    let mut hash = Sha256::new();
    hash.update(prev);
    for number in [seq, event.at_us, event.times] {
        hash.update(number.to_be_bytes());
    }
    let AuditEvent { server, actor, address, action, target, reason, detail, before, after, .. } = event;
    for text in [server, actor, address, action, target, reason, detail, before, after] {
        hash.update((text.len() as i64).to_be_bytes());
        hash.update(text.as_bytes());
    }
    hash.finalize().into()
}

/// Appends a row after the one that `control` names, and writes the new end to `control`.
pub(crate) async fn append(
    sql: &mut impl Sql,
    control: &mut Control,
    event: &AuditEvent,
) -> Result<AuditRow, Error> {
    let row = AuditRow {
        seq: control.head.seq + 1,
        event: event.clone(),
        prev: control.head.hash,
        hash: audit_hash(control.head.seq + 1, &control.head.hash, event),
    };
    let insert = "INSERT INTO audit (seq, at, times, server, actor, address, action, target, reason, detail, state_before, \
                  state_after, prev, hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";
    let mut set: Vec<Value> = vec![row.seq.into(), event.at_us.into(), event.times.into()];
    let AuditEvent { server, actor, address, action, target, reason, detail, before, after, .. } = event;
    for text in [server, actor, address, action, target, reason, detail, before, after] {
        set.push(text.as_str().into());
    }
    set.extend([row.prev[..].into(), row.hash[..].into()]);
    sql.run(insert, vec![set]).await?;
    control.head = AuditHead { seq: row.seq, hash: row.hash };
    Ok(row)
}

async fn page(sql: &mut impl Sql, after: i64, limit: i64) -> Result<Vec<AuditRow>, Error> {
    let select = "SELECT seq, at, times, server, actor, address, action, target, reason, detail, state_before, state_after, \
                  prev, hash FROM audit WHERE seq > $1 ORDER BY seq LIMIT $2";
    let read = |row: Row| {
        let mut columns = Columns::of(row);
        Ok(AuditRow {
            seq: columns.int("seq")?,
            event: AuditEvent {
                at_us: columns.int("at")?,
                times: columns.int("times")?,
                server: columns.text("server")?,
                actor: columns.text("actor")?,
                address: columns.text("address")?,
                action: columns.text("action")?,
                target: columns.text("target")?,
                reason: columns.text("reason")?,
                detail: columns.text("detail")?,
                before: columns.text("state_before")?,
                after: columns.text("state_after")?,
            },
            prev: columns.bytes("prev")?,
            hash: columns.bytes("hash")?,
        })
    };
    sql.run(select, vec![vec![after.into(), limit.into()]]).await?.into_iter().flatten().map(read).collect()
}

impl Database {
    /// Appends a row about something that is not a live change.
    pub async fn audit(&self, event: &AuditEvent) -> Result<AuditRow, Error> {
        let event = event.clone();
        transact!(self, |sql| async {
            let mut control = Control::lock(sql).await?;
            let row = append(sql, &mut control, &event).await?;
            control.save(sql).await?;
            Ok(row)
        })
    }

    /// Returns up to `limit` rows after row `after`, oldest first.
    pub async fn audit_page(&self, after: i64, limit: i64) -> Result<Vec<AuditRow>, Error> {
        transact!(self, |sql| page(sql, after, limit))
    }

    /// Returns the end of the trail.
    pub async fn audit_head(&self) -> Result<AuditHead, Error> {
        transact!(self, |sql| async { Ok(Control::read(sql).await?.head) })
    }

    /// Recomputes the whole chain. A kept head is compared with the row of its number.
    pub async fn verify_audit(
        &self,
        expected: Option<AuditHead>,
    ) -> Result<Result<AuditHead, AuditFault>, Error> {
        // The end is read first: rows that are appended meanwhile are later ones.
        let recorded = self.audit_head().await?;
        let mut last = AuditHead { seq: 0, hash: [0; 32] };
        let mut expected = expected;
        loop {
            let rows = self.audit_page(last.seq, PAGE).await?;
            let is_end = (rows.len() as i64) < PAGE;
            for row in rows {
                if row.seq != last.seq + 1 {
                    return Ok(Err(AuditFault::Missing(last.seq + 1)));
                }
                if row.prev != last.hash || audit_hash(row.seq, &row.prev, &row.event) != row.hash {
                    return Ok(Err(AuditFault::Changed(row.seq)));
                }
                if row.seq == recorded.seq && row.hash != recorded.hash {
                    return Ok(Err(AuditFault::Changed(row.seq)));
                }
                if expected.is_some_and(|head| head.seq == row.seq)
                    && expected.take().is_some_and(|head| head.hash != row.hash)
                {
                    return Ok(Err(AuditFault::Unexpected(row.seq)));
                }
                last = AuditHead { seq: row.seq, hash: row.hash };
            }
            if is_end {
                break;
            }
        }
        if last.seq < recorded.seq {
            return Ok(Err(AuditFault::Cut { found: last.seq, recorded: recorded.seq }));
        }
        match expected.filter(|head| head.seq > 0) {
            Some(head) => Ok(Err(AuditFault::Cut { found: last.seq, recorded: head.seq })),
            None => Ok(Ok(last)),
        }
    }
}
