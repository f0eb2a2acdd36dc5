//! What people read from the ledger: writers, balances and entries.

use crate::Error;
use crate::ledger::{Account, Balance, Entry, Hash, Id, Subject};
use crate::sql::{Columns, Row, Sql, Value};
use crate::transaction::{ENTRY, entry};

/// A writer and the head of its chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Writer {
    /// The incarnation.
    pub id: Id,
    /// Name of its server.
    pub name: String,
    /// When it was registered, by its clock.
    pub started_us: i64,
    /// When it last committed or sent a heartbeat, by its clock.
    pub last_seen_us: i64,
    /// The last posted record.
    pub shipped_seq: i64,
    /// Number of blocks.
    pub blocks: i64,
    /// Hash of the last block.
    pub head: Hash,
    /// `open`, or `closed` if it has ended.
    pub state: String,
}

/// Which accounts a report is about.
#[derive(Clone, Default, Debug)]
pub struct Filter {
    /// Only this rule.
    pub rule: Option<String>,
    /// Only this subject.
    pub subject: Option<Id>,
    /// Only periods that begin at this instant or later, in microseconds since 1970.
    pub from_us: Option<i64>,
    /// Only periods that begin before this instant.
    pub to_us: Option<i64>,
}

impl Filter {
    /// Parameters that a WHERE clause of [`CONDITION`] compares.
    fn parameters(&self) -> Vec<Value> {
        vec![
            Value::Int(self.rule.is_none().into()),
            self.rule.as_deref().unwrap_or_default().into(),
            Value::Int(self.subject.is_none().into()),
            self.subject.unwrap_or(Id([0; 16])).into(),
            self.from_us.unwrap_or(i64::MIN).into(),
            self.to_us.unwrap_or(i64::MAX).into(),
        ]
    }
}

const CONDITION: &str = "($1 = 1 OR rule = $2) AND ($3 = 1 OR subject = $4) AND period >= $5 AND period < $6";

/// Returns all writers, oldest first.
pub(crate) async fn writers(sql: &mut impl Sql) -> Result<Vec<Writer>, Error> {
    let select = "SELECT id, name, started, last_seen, shipped_seq, blocks, chain_head, state FROM writer \
                  ORDER BY started, id";
    let read = |row: Row| {
        let mut columns = Columns::of(row);
        Ok(Writer {
            id: Id(columns.bytes("id")?),
            name: columns.text("name")?,
            started_us: columns.int("started")?,
            last_seen_us: columns.int("last_seen")?,
            shipped_seq: columns.int("shipped_seq")?,
            blocks: columns.int("blocks")?,
            head: columns.bytes("chain_head")?,
            state: columns.text("state")?,
        })
    };
    sql.run(select, vec![vec![]]).await?.into_iter().flatten().map(read).collect()
}

/// Returns the balances of the accounts that match, by rule, period and subject.
pub(crate) async fn usage(sql: &mut impl Sql, filter: &Filter) -> Result<Vec<(Account, Balance)>, Error> {
    let select = format!(
        "SELECT rule, subject, period, ends, allowance, allowance_at, extra, extra_no, pending, posted FROM balance \
         WHERE {CONDITION} ORDER BY rule, period, subject"
    );
    let read = |row: Row| {
        let mut columns = Columns::of(row);
        let subject = Subject { rule: columns.text("rule")?.into(), id: Id(columns.bytes("subject")?) };
        let account = Account { subject, period_us: columns.int("period")? };
        let balance = Balance {
            ends_us: columns.int("ends")?,
            allowance: columns.int("allowance")?,
            allowance_at_us: columns.int("allowance_at")?,
            extra: columns.int("extra")?,
            extra_no: columns.int("extra_no")?,
            pending: columns.int("pending")?,
            posted: columns.int("posted")?,
        };
        Ok((account, balance))
    };
    sql.run(&select, vec![filter.parameters()]).await?.into_iter().flatten().map(read).collect()
}

/// Returns up to `max` entries that match after a position, ordered by writer, sequence number and index.
pub(crate) async fn page(
    sql: &mut impl Sql,
    filter: &Filter,
    after: (Id, i64, i64),
    max: i64,
) -> Result<Vec<(Id, Entry)>, Error> {
    let select = format!(
        "SELECT writer, {ENTRY} FROM entry WHERE {CONDITION} \
         AND (writer > $7 OR (writer = $7 AND (seq > $8 OR (seq = $8 AND n > $9)))) \
         ORDER BY writer, seq, n LIMIT $10"
    );
    let (writer, seq, n) = after;
    let mut parameters = filter.parameters();
    parameters.extend([writer.into(), seq.into(), n.into(), max.into()]);
    let read = |mut row: Row| {
        let rest = row.split_off(1);
        Ok((Id(Columns::of(row).bytes("writer")?), entry(rest)?))
    };
    sql.run(&select, vec![parameters]).await?.into_iter().flatten().map(read).collect()
}
