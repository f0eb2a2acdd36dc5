//! What a gate asks the ledger: accounts to restore, counts to compare, and changes to take over.

use crate::Error;
use crate::ledger::{Account, Id, Subject};
use crate::sql::{Columns, Row, Sql, Value};

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

/// Returns the newest account of each subject that began at this instant or before.
pub(crate) async fn known(
    sql: &mut impl Sql,
    wanted: &[(Subject, i64)],
) -> Result<Vec<Option<KnownAccount>>, Error> {
    let select = "SELECT period, allowance_at, posted, pending, \
                  COALESCE((SELECT max(until_at) FROM reservation WHERE reservation.rule = balance.rule \
                  AND reservation.subject = balance.subject AND reservation.period = balance.period \
                  AND reservation.state = 'open'), 0), extra, extra_no FROM balance \
                  WHERE rule = $1 AND subject = $2 AND period <= $3 ORDER BY period DESC LIMIT 1";
    let sets = wanted
        .iter()
        .map(|(subject, at_us)| vec![(&*subject.rule).into(), subject.id.into(), Value::Int(*at_us)]);
    let found = sql.run(select, sets.collect()).await?;
    let read = |row: Row| {
        let mut columns = Columns::of(row);
        Ok(KnownAccount {
            period_us: columns.int("period")?,
            newest_us: columns.int("allowance_at")?,
            posted: columns.int("posted")?,
            pending: columns.int("pending")?,
            pending_until_us: columns.int("until_at")?,
            extra: columns.int("extra")?,
            extra_no: columns.int("extra_no")?,
        })
    };
    found.into_iter().map(|rows| rows.into_iter().next().map(read).transpose()).collect()
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

/// Returns the earliest `clean_at` of all writers that still count: what was sent to the store before it is in the ledger.
/// `None` if there is no such writer. A writer that has been silent for longer than `silent_us` has stopped by itself.
pub(crate) async fn clean_at(
    sql: &mut impl Sql,
    except: [Id; 2],
    now_us: i64,
    silent_us: i64,
) -> Result<Option<i64>, Error> {
    let select = "SELECT CAST(COALESCE(min(clean_at), -1) AS BIGINT) FROM writer \
                  WHERE state = 'open' AND id <> $1 AND id <> $2 AND last_seen >= $3";
    let set = vec![except[0].into(), except[1].into(), Value::Int(now_us.saturating_sub(silent_us))];
    let rows = sql.run(select, vec![set]).await?;
    let first = rows.into_iter().flatten().next();
    let clean_at = first.map(|row| Columns::of(row).int("clean_at")).transpose()?;
    Ok(clean_at.filter(|clean_at| *clean_at >= 0))
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
