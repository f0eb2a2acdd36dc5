//! What a gate asks the ledger: accounts to restore, counts to compare, and changes to take over.

use std::fmt::Write as _;

use crate::Error;
use crate::ledger::{Account, Id, Subject};
use crate::sql::{Columns, Sql, Value};

/// Accounts in one query.
pub const ACCOUNTS_MAX: usize = 256;

/// What the ledger knows of one account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownAccount {
    /// Start of its period in microseconds since 1970.
    pub period_us: i64,
    /// Store time of its newest event.
    pub newest_us: i64,
    /// Units used.
    pub posted: i64,
    /// Units held by reservations.
    pub pending: i64,
    /// End of the last open reservation; 0 without one.
    pub pending_until_us: i64,
    /// Sum of corrections and grants.
    pub extra: i64,
    /// Number of the last correction or grant.
    pub extra_no: i64,
}

/// A look at the gate: the ledger returns what the gate should have counted then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Look {
    /// The account.
    pub account: Account,
    /// The revision of the state that was looked at. Entries of the same epoch with a higher one came later.
    pub rev: i64,
    /// The last number of the same epoch.
    pub epoch_end: i64,
}

/// A writer that has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenWriter {
    /// Its id.
    pub id: Id,
    /// When it last reported, by its own clock, in microseconds since 1970.
    pub last_seen_us: i64,
    /// What it had sent to the store before this instant, by the store's clock, is in the ledger or was never acknowledged.
    pub clean_at_us: i64,
}

/// Returns the newest account of each subject that began at this instant or before. One query, for at most
/// [`ACCOUNTS_MAX`] subjects.
pub(crate) async fn known<S: Sql>(
    sql: &mut S,
    wanted: &[(Subject, i64)],
) -> Result<Vec<Option<KnownAccount>>, Error> {
    let mut found = vec![None; wanted.len()];
    if wanted.is_empty() {
        return Ok(found);
    }
    // Few lengths of the list, so that the connection keeps few statements.
    let count = wanted.len().next_power_of_two();
    let mut list = String::new();
    let mut set = Vec::with_capacity(4 * count);
    for index in 0..count {
        let at = 4 * index;
        let comma = if index == 0 { "" } else { ", " };
        _ = write!(
            list,
            "{comma}(CAST(${} AS BIGINT), CAST(${} AS TEXT), CAST(${} AS {}), CAST(${} AS BIGINT))",
            at + 1,
            at + 2,
            at + 3,
            S::BYTES,
            at + 4
        );
        // The rest of the list repeats the last subject under a number that nothing reads.
        let (subject, at_us) = &wanted[index.min(wanted.len() - 1)];
        let number = if index < wanted.len() { index as i64 } else { -1 };
        set.extend([number.into(), (&*subject.rule).into(), subject.id.into(), Value::Int(*at_us)]);
    }
    let select = format!(
        "WITH wanted (number, rule, subject, at) AS (VALUES {list}) \
         SELECT wanted.number, b.period, b.allowance_at, b.posted, b.pending, \
         CAST(COALESCE((SELECT max(r.until_at) FROM reservation r WHERE r.rule = b.rule AND r.subject = b.subject \
         AND r.period = b.period AND r.state = 'open'), 0) AS BIGINT), b.extra, b.extra_no \
         FROM wanted JOIN balance b ON b.rule = wanted.rule AND b.subject = wanted.subject AND b.period = \
         (SELECT max(p.period) FROM balance p WHERE p.rule = wanted.rule AND p.subject = wanted.subject \
         AND p.period <= wanted.at)"
    );
    for row in sql.run(&select, vec![set]).await?.into_iter().flatten() {
        let mut columns = Columns::of(row);
        let number = columns.int("number")?;
        let account = KnownAccount {
            period_us: columns.int("period")?,
            newest_us: columns.int("allowance_at")?,
            posted: columns.int("posted")?,
            pending: columns.int("pending")?,
            pending_until_us: columns.int("until_at")?,
            extra: columns.int("extra")?,
            extra_no: columns.int("extra_no")?,
        };
        if let Some(found) = usize::try_from(number).ok().and_then(|number| found.get_mut(number)) {
            *found = Some(account);
        }
    }
    Ok(found)
}

/// Returns the units that the gate should have counted at each look: all that is posted, without what came after the look.
pub(crate) async fn counted(sql: &mut impl Sql, looks: &[Look]) -> Result<Vec<i64>, Error> {
    let select = "SELECT CAST(COALESCE((SELECT posted FROM balance WHERE rule = $1 AND subject = $2 AND period = $3), 0) \
                  - COALESCE((SELECT sum(d_posted) FROM entry WHERE rule = $1 AND subject = $2 AND period = $3 \
                  AND rev > $4 AND rev <= $5), 0) AS BIGINT)";
    let sets = looks.iter().map(|look| {
        let Account { subject, period_us } = &look.account;
        vec![
            (&*subject.rule).into(),
            subject.id.into(),
            Value::Int(*period_us),
            Value::Int(look.rev),
            Value::Int(look.epoch_end),
        ]
    });
    let found = sql.run(select, sets.collect()).await?;
    found.into_iter().flatten().map(|row| Columns::of(row).int("posted")).collect()
}

/// Returns the writers that have not ended.
pub(crate) async fn open_writers(sql: &mut impl Sql, except: [Id; 2]) -> Result<Vec<OpenWriter>, Error> {
    let select = "SELECT id, last_seen, clean_at FROM writer WHERE state = 'open' AND id <> $1 AND id <> $2";
    let rows = sql.run(select, vec![vec![except[0].into(), except[1].into()]]).await?;
    let read = |row| {
        let mut columns = Columns::of(row);
        Ok(OpenWriter {
            id: Id(columns.bytes("id")?),
            last_seen_us: columns.int("last_seen")?,
            clean_at_us: columns.int("clean_at")?,
        })
    };
    rows.into_iter().flatten().map(read).collect()
}

/// Returns the number of the last correction or grant, and the accounts that were changed after `after`, at most
/// [`ACCOUNTS_MAX`].
pub(crate) async fn changed(
    sql: &mut impl Sql,
    administration: Id,
    after: Option<i64>,
) -> Result<(i64, Vec<Account>), Error> {
    let select = "SELECT CAST(COALESCE(max(seq), 0) AS BIGINT) FROM entry WHERE writer = $1";
    let rows = sql.run(select, vec![vec![administration.into()]]).await?;
    let last = rows.into_iter().flatten().next().map_or(Ok(0), |row| Columns::of(row).int("seq"))?;
    // A database that was set back has fewer; then the gate has seen the others.
    let Some(after) = after.filter(|after| *after < last) else { return Ok((last, Vec::new())) };
    let select =
        "SELECT seq, rule, subject, period FROM entry WHERE writer = $1 AND seq > $2 ORDER BY seq LIMIT $3";
    let set = vec![administration.into(), Value::Int(after), Value::Int(ACCOUNTS_MAX as i64)];
    let (mut accounts, mut seen) = (Vec::new(), after);
    for row in sql.run(select, vec![set]).await?.into_iter().flatten() {
        let mut columns = Columns::of(row);
        seen = columns.int("seq")?;
        let subject = Subject { rule: columns.text("rule")?.into(), id: Id(columns.bytes("subject")?) };
        accounts.push(Account { subject, period_us: columns.int("period")? });
    }
    Ok((seen, accounts))
}
