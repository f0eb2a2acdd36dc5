//! The audit trail: who changed what. Rows are only appended, and each is chained to the one before by a hash.

use sha2::{Digest, Sha256};

use crate::Error;
use crate::changes::Control;
use crate::database::{Backend, Database, transact};
use crate::ledger::{Account, Event, Hash, Record};
use crate::sql::{Columns, Row, Sql, Value};

/// Rows that are read in one step of a verification.
const PAGE: i64 = 1_000;

/// The server of rows that a command wrote to the database itself.
const COMMAND: &str = "(command)";

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

/// Appends a row about a correction or a grant of the ledger, in the transaction that makes it.
pub(crate) async fn append_ledger_change<S: Sql>(
    sql: &mut S,
    record: &Record,
    number: i64,
    now_us: i64,
) -> Result<(), Error> {
    let (Event::Grant(change) | Event::Correct(change)) = &record.event else { return Ok(()) };
    let Account { subject, period_us } = &record.account;
    // Numbers and hexadecimal digits need no escapes.
    let detail = format!(
        "{{\"number\":{number},\"period_us\":{period_us},\"subject\":\"{}\",\"units\":{}}}",
        subject.id, change.units
    );
    let event = AuditEvent {
        at_us: now_us,
        times: 1,
        server: COMMAND.to_owned(),
        actor: change.actor.clone(),
        action: format!("ledger.{}", record.kind().name()),
        target: subject.rule.to_string(),
        reason: change.cause.clone(),
        detail,
        ..AuditEvent::default()
    };
    let mut control = Control::lock(sql).await?;
    append(sql, &mut control, &event).await?;
    control.save(sql).await
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
        let mut chain = AuditChain::new(self.audit_head().await?, expected);
        loop {
            let rows = self.audit_page(chain.last.seq, PAGE).await?;
            let is_end = (rows.len() as i64) < PAGE;
            for row in &rows {
                if let Err(fault) = chain.follow(row) {
                    return Ok(Err(fault));
                }
            }
            if is_end {
                return Ok(chain.finish());
            }
        }
    }
}

/// Verifies a trail row by row, from the first one.
#[derive(Clone, Debug)]
pub struct AuditChain {
    /// The end of the trail when the verification began.
    recorded: AuditHead,
    /// A kept head, until its row was compared.
    expected: Option<AuditHead>,
    last: AuditHead,
}

impl AuditChain {
    /// Starts before the first row. Rows after `recorded` are accepted: they were appended meanwhile.
    pub const fn new(recorded: AuditHead, expected: Option<AuditHead>) -> AuditChain {
        AuditChain { recorded, expected, last: AuditHead { seq: 0, hash: [0; 32] } }
    }

    /// Returns the number of the last row that was verified; 0 before the first.
    pub const fn last_seq(&self) -> i64 {
        self.last.seq
    }

    /// Verifies the next row.
    pub fn follow(&mut self, row: &AuditRow) -> Result<(), AuditFault> {
        if row.seq != self.last.seq + 1 {
            return Err(AuditFault::Missing(self.last.seq + 1));
        }
        let is_recorded = row.seq == self.recorded.seq;
        let is_intact = row.prev == self.last.hash
            && row.hash == audit_hash(row.seq, &row.prev, &row.event)
            && (!is_recorded || row.hash == self.recorded.hash);
        if !is_intact {
            return Err(AuditFault::Changed(row.seq));
        }
        if let Some(head) = self.expected.take_if(|head| head.seq == row.seq)
            && head.hash != row.hash
        {
            return Err(AuditFault::Unexpected(row.seq));
        }
        self.last = AuditHead { seq: row.seq, hash: row.hash };
        Ok(())
    }

    /// Verifies that no row is missing at the end, and returns the last one.
    pub fn finish(self) -> Result<AuditHead, AuditFault> {
        let kept = self.expected.map_or(0, |head| head.seq);
        for end in [self.recorded.seq, kept] {
            if self.last.seq < end {
                return Err(AuditFault::Cut { found: self.last.seq, recorded: end });
            }
        }
        Ok(self.last)
    }
}
