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
    /// The last block whose entries were dropped; 0 if none were.
    pub sealed_block: i64,
    /// Hash of the last block.
    pub head: Hash,
    /// `open`, or `closed` if it has ended.
    pub state: String,
}

/// The balance of an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Usage {
    /// The account.
    pub account: Account,
    /// Its name, if its rule records names.
    pub name: Option<String>,
    /// Its balance.
    pub balance: Balance,
}

/// An entry with its writer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PostedEntry {
    /// The writer.
    pub writer: Id,
    /// When its block was posted, by the writer's clock.
    pub posted_at_us: i64,
    /// The name of its account, if its rule records names.
    pub name: Option<String>,
    /// The entry.
    pub entry: Entry,
}

/// Which accounts a report is about.
#[derive(Clone, Default, Debug)]
pub struct Filter {
    /// Only this rule.
    pub rule: Option<String>,
    /// Only accounts with this name.
    pub name: Option<String>,
    /// Only this subject.
    pub subject: Option<Id>,
    /// Only periods that begin at this instant or later, in microseconds since 1970.
    pub from_us: Option<i64>,
    /// Only periods that begin before this instant.
    pub to_us: Option<i64>,
    /// Only entries that were posted before this instant, by the clock of their writer. Balances have no such time.
    pub posted_before_us: Option<i64>,
}

impl Filter {
    /// Parameters that a WHERE clause of [`condition`] compares.
    fn parameters(&self) -> Vec<Value> {
        vec![
            Value::Int(self.rule.is_none().into()),
            self.rule.as_deref().unwrap_or_default().into(),
            Value::Int(self.subject.is_none().into()),
            self.subject.unwrap_or(Id([0; 16])).into(),
            self.from_us.unwrap_or(i64::MIN).into(),
            self.to_us.unwrap_or(i64::MAX).into(),
            Value::Int(self.name.is_none().into()),
            self.name.as_deref().unwrap_or_default().into(),
        ]
    }

    fn entry_parameters(&self) -> Vec<Value> {
        let mut parameters = self.parameters();
        parameters.push(self.posted_before_us.unwrap_or(i64::MAX).into());
        parameters
    }
}

/// Accounts that match a [`Filter`], as columns of the table `of`.
fn condition(of: &str) -> String {
    format!(
        "LEFT JOIN account ON account.rule = {of}.rule AND account.subject = {of}.subject \
         WHERE (CAST($1 AS BIGINT) = 1 OR {of}.rule = $2) AND (CAST($3 AS BIGINT) = 1 OR {of}.subject = $4) AND {of}.period >= $5 \
         AND {of}.period < $6 AND (CAST($7 AS BIGINT) = 1 OR account.name = $8)"
    )
}

/// Returns all writers, oldest first.
pub(crate) async fn writers(sql: &mut impl Sql) -> Result<Vec<Writer>, Error> {
    let select = "SELECT id, name, started, last_seen, shipped_seq, blocks, sealed_block, chain_head, state FROM writer \
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
            sealed_block: columns.int("sealed_block")?,
            head: columns.bytes("chain_head")?,
            state: columns.text("state")?,
        })
    };
    sql.run(select, vec![vec![]]).await?.into_iter().flatten().map(read).collect()
}

/// Returns up to `max` balances of the accounts that match, after `skip` others, by rule, period and subject.
pub(crate) async fn usage(
    sql: &mut impl Sql,
    filter: &Filter,
    skip: i64,
    max: i64,
) -> Result<Vec<Usage>, Error> {
    let select = format!(
        "SELECT balance.rule, balance.subject, period, account.name, ends, allowance, allowance_at, extra, extra_no, \
         pending, posted FROM balance {} ORDER BY balance.rule, period, balance.subject LIMIT $9 OFFSET $10",
        condition("balance")
    );
    let mut parameters = filter.parameters();
    parameters.extend([max.into(), skip.into()]);
    let read = |row: Row| {
        let mut columns = Columns::of(row);
        let subject = Subject { rule: columns.text("rule")?.into(), id: Id(columns.bytes("subject")?) };
        let account = Account { subject, period_us: columns.int("period")? };
        let name = columns.optional_text("name")?;
        let balance = Balance {
            ends_us: columns.int("ends")?,
            allowance: columns.int("allowance")?,
            allowance_at_us: columns.int("allowance_at")?,
            extra: columns.int("extra")?,
            extra_no: columns.int("extra_no")?,
            pending: columns.int("pending")?,
            posted: columns.int("posted")?,
        };
        Ok(Usage { account, name, balance })
    };
    sql.run(&select, vec![parameters]).await?.into_iter().flatten().map(read).collect()
}

/// Returns up to `max` entries that match after a position, ordered by writer, sequence number and index.
pub(crate) async fn page(
    sql: &mut impl Sql,
    filter: &Filter,
    after: (Id, i64, i64),
    max: i64,
) -> Result<Vec<PostedEntry>, Error> {
    let columns: Vec<String> = ENTRY.split(", ").map(|column| format!("entry.{column}")).collect();
    let select = format!(
        "SELECT writer, posted_at, account.name, {} FROM entry {} AND posted_at < $9 \
         AND (writer > $10 OR (writer = $10 AND (seq > $11 OR (seq = $11 AND n > $12)))) \
         ORDER BY writer, seq, n LIMIT $13",
        columns.join(", "),
        condition("entry"),
    );
    let (writer, seq, n) = after;
    let mut parameters = filter.entry_parameters();
    parameters.extend([writer.into(), seq.into(), n.into(), max.into()]);
    let read = |mut row: Row| {
        let rest = row.split_off(3);
        let mut columns = Columns::of(row);
        Ok(PostedEntry {
            writer: Id(columns.bytes("writer")?),
            posted_at_us: columns.int("posted_at")?,
            name: columns.optional_text("name")?,
            entry: entry(rest)?,
        })
    };
    sql.run(&select, vec![parameters]).await?.into_iter().flatten().map(read).collect()
}

/// Returns the number of entries that match.
pub(crate) async fn count(sql: &mut impl Sql, filter: &Filter) -> Result<i64, Error> {
    sql.unlimited().await?;
    let select =
        format!("SELECT CAST(count(*) AS BIGINT) FROM entry {} AND posted_at < $9", condition("entry"));
    let found = sql.run(&select, vec![filter.entry_parameters()]).await?.into_iter().flatten().next();
    found.map_or(Ok(0), |row| Columns::of(row).int("count"))
}
