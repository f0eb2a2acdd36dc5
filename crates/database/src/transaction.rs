//! The posting transaction: cursor, rows, balances and block, all or nothing.

use std::collections::BTreeMap;

use crate::Error;
use crate::ledger::{
    Account, Balance, Block, Detail, Entry, Event, Hash, Hold, HoldState, Id, Keys, Kind, Posted, Record,
    RequestRow, RequestState, Rows, Settings, Subject, chain, post,
};
use crate::sql::{Columns, Row, Sql, Value};

/// A committed batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// The cursor after the batch.
    pub shipped_seq: i64,
    /// The number of its block.
    pub block: i64,
    /// The hash of its block: the new head of the writer's chain.
    pub head: Hash,
    /// Records that posted nothing because their request was already posted.
    pub duplicates: u64,
    /// Numbers of the corrections and grants, in order.
    pub changes: Vec<i64>,
}

/// An account whose balance contradicts its entries, with the numbers that the database stores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unbalanced {
    /// The account.
    pub account: Account,
    /// Stored allowance with corrections and grants.
    pub granted: i64,
    /// Stored rest.
    pub available: i64,
    /// Stored units held.
    pub pending: i64,
    /// Stored units used.
    pub posted: i64,
    /// Units used by the sum of the entries.
    pub posted_by_entries: i64,
    /// Units held by the sum of the entries.
    pub pending_by_entries: i64,
    /// Corrections and grants by the sum of the entries.
    pub granted_by_entries: i64,
}

/// A batch of one writer.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The writer.
    pub writer: Id,
    /// The cursor before the batch. The first record has the next number.
    pub after: i64,
    /// The records, in order and without a gap.
    pub records: Vec<Record>,
    /// The writer's clock in microseconds since 1970.
    pub now_us: i64,
}

pub(crate) const ENTRY: &str = "seq, n, kind, rule, subject, period, at, rev, d_posted, d_pending, d_granted, token, request, \
                     nonce, cause, actor";

/// Posts the batch, if the cursor is where the batch begins.
pub(crate) async fn commit(sql: &mut impl Sql, batch: &Batch, settings: Settings) -> Result<Receipt, Error> {
    let Batch { writer, after, ref records, now_us } = *batch;
    let shipped_seq = after + records.len() as i64;
    let (blocks, prev, at_us) = move_cursor(sql, writer, after, shipped_seq, now_us).await?;
    let mut keys = Keys::of(records);
    let mut rows = Rows { voided: load_voided(sql, writer, &keys).await?, ..Rows::default() };
    keys.add_voided(rows.voided.values());
    load(sql, &keys, &mut rows).await?;
    let before = rows.clone();
    let Posted { entries, duplicates, changes } = post(&mut rows, after, records, settings, now_us)?;
    save(sql, &before, &rows).await?;
    save_names(sql, records).await?;
    let block = Block {
        writer,
        number: blocks + 1,
        first_seq: after + 1,
        last_seq: shipped_seq,
        rows: entries.len() as i64,
        at_us,
        prev,
    };
    let head = chain(&block, &entries);
    append(sql, &block, &entries, head).await?;
    Ok(Receipt { shipped_seq, block: block.number, head, duplicates, changes })
}

/// Posts a correction or a grant after everything that its writer has posted, and returns the number of the change.
pub(crate) async fn change<S: Sql>(
    sql: &mut S,
    writer: Id,
    record: &Record,
    settings: Settings,
    now_us: i64,
) -> Result<i64, Error> {
    // The lock lets administrators wait for each other.
    let after = last_of(sql, writer, "administration", now_us).await?;
    let batch = Batch { writer, after, records: vec![record.clone()], now_us };
    let receipt = commit(sql, &batch, settings).await?;
    receipt
        .changes
        .first()
        .copied()
        .ok_or_else(|| Error::Row { column: "kind", value: record.kind().name().to_owned() })
}

/// Returns the accounts whose stored balance is not the sum of their entries, or does not add up.
pub(crate) async fn unbalanced(sql: &mut impl Sql) -> Result<Vec<Unbalanced>, Error> {
    sql.unlimited().await?;
    let select = "SELECT rule, subject, period, extra, granted, available, pending, posted, sum_posted, sum_pending, \
                  sum_granted FROM ( \
                    SELECT b.rule, b.subject, b.period, b.extra, b.granted, b.available, b.pending, b.posted, \
                      CAST(COALESCE(SUM(e.d_posted), 0) + b.sealed_posted AS BIGINT) AS sum_posted, \
                      CAST(COALESCE(SUM(e.d_pending), 0) + b.sealed_pending AS BIGINT) AS sum_pending, \
                      CAST(COALESCE(SUM(e.d_granted), 0) + b.sealed_granted AS BIGINT) AS sum_granted \
                    FROM balance b LEFT JOIN entry e \
                      ON e.rule = b.rule AND e.subject = b.subject AND e.period = b.period \
                    GROUP BY b.rule, b.subject, b.period) AS sums \
                  WHERE granted <> available + pending + posted OR posted <> sum_posted \
                    OR pending <> sum_pending OR extra <> sum_granted \
                  ORDER BY rule, subject, period";
    let read = |row: Row| {
        let mut columns = Columns::of(row);
        let subject = Subject { rule: columns.text("rule")?.into(), id: Id(columns.bytes("subject")?) };
        let account = Account { subject, period_us: columns.int("period")? };
        columns.int("extra")?;
        Ok(Unbalanced {
            account,
            granted: columns.int("granted")?,
            available: columns.int("available")?,
            pending: columns.int("pending")?,
            posted: columns.int("posted")?,
            posted_by_entries: columns.int("sum_posted")?,
            pending_by_entries: columns.int("sum_pending")?,
            granted_by_entries: columns.int("sum_granted")?,
        })
    };
    sql.run(select, vec![vec![]]).await?.into_iter().flatten().map(read).collect()
}

/// Ends open reservations whose time is over, at most `max`, and returns how many.
pub(crate) async fn expire<S: Sql>(
    sql: &mut S,
    writer: Id,
    before_us: i64,
    max: i64,
    settings: Settings,
    now_us: i64,
) -> Result<usize, Error> {
    let select = "SELECT r.rule, r.subject, r.period, r.token, b.ends, b.allowance, b.allowance_at FROM reservation r \
                  JOIN balance b ON b.rule = r.rule AND b.subject = r.subject AND b.period = r.period \
                  WHERE r.state = 'open' AND r.until_at < $1 ORDER BY r.until_at LIMIT $2";
    let due = sql.run(select, vec![vec![before_us.into(), max.into()]]).await?;
    let read = |row: Row| {
        let mut columns = Columns::of(row);
        let subject = Subject { rule: columns.text("rule")?.into(), id: Id(columns.bytes("subject")?) };
        let account = Account { subject, period_us: columns.int("period")? };
        let token = Id(columns.bytes("token")?);
        let (ends_us, allowance) = (columns.int("ends")?, columns.int("allowance")?);
        let at_us = columns.int("allowance_at")?;
        let (detail, event) = (Detail::Entries, Event::Expire { token });
        Ok(Record { account, ends_us, allowance, at_us, rev: 0, detail, request: None, name: None, event })
    };
    let records: Vec<Record> = due.into_iter().flatten().map(read).collect::<Result<_, Error>>()?;
    if records.is_empty() {
        return Ok(0);
    }
    let after = last_of(sql, writer, "expiry", now_us).await?;
    let count = records.len();
    commit(sql, &Batch { writer, after, records, now_us }, settings).await?;
    Ok(count)
}

/// Registers a writer that has no journal, locks it, and returns its cursor.
async fn last_of<S: Sql>(sql: &mut S, writer: Id, name: &str, now_us: i64) -> Result<i64, Error> {
    register(sql, writer, name, now_us).await?;
    let select = format!("SELECT shipped_seq FROM writer WHERE id = $1{}", S::LOCK);
    let row = only(sql.run(&select, vec![vec![writer.into()]]).await?);
    row.map_or(Ok(0), |row| Columns::of(row).int("shipped_seq"))
}

/// Records that a writer has ended and will post nothing more.
pub(crate) async fn close(sql: &mut impl Sql, writer: Id) -> Result<(), Error> {
    sql.run("UPDATE writer SET state = 'closed' WHERE id = $1", vec![vec![writer.into()]]).await.map(drop)
}

/// The compare-and-set of the cursor. Returns the number of blocks, the head of the chain, and the time of the next block.
///
/// The times of a writer's blocks never decrease, also if its clock is set back: what is older than an instant is the
/// beginning of its chain.
async fn move_cursor(
    sql: &mut impl Sql,
    writer: Id,
    expected: i64,
    to: i64,
    now_us: i64,
) -> Result<(i64, Hash, i64), Error> {
    let update = "UPDATE writer SET shipped_seq = $1, \
                  last_seen = CASE WHEN last_seen > $2 THEN last_seen ELSE $2 END \
                  WHERE id = $3 AND shipped_seq = $4 RETURNING blocks, chain_head, last_seen";
    let set = vec![to.into(), now_us.into(), writer.into(), expected.into()];
    match only(sql.run(update, vec![set]).await?) {
        Some(row) => {
            let mut columns = Columns::of(row);
            Ok((columns.int("blocks")?, columns.bytes("chain_head")?, columns.int("last_seen")?))
        }
        None => Err(Error::CursorMoved { expected, found: cursor(sql, writer).await? }),
    }
}

/// Returns the cursor of a writer, or `None` if it is not registered.
pub(crate) async fn cursor(sql: &mut impl Sql, writer: Id) -> Result<Option<i64>, Error> {
    let rows = sql.run("SELECT shipped_seq FROM writer WHERE id = $1", vec![vec![writer.into()]]).await?;
    only(rows).map(|row| Columns::of(row).int("shipped_seq")).transpose()
}

/// Registers a writer with an empty journal. Registering it again changes nothing.
pub(crate) async fn register(sql: &mut impl Sql, writer: Id, name: &str, now_us: i64) -> Result<(), Error> {
    let insert = "INSERT INTO writer (id, name, started, last_seen, shipped_seq, clean_at, blocks, chain_head, state) \
                  VALUES ($1, $2, $3, $3, 0, 0, 0, $4, 'open') ON CONFLICT (id) DO NOTHING";
    let head = Value::Bytes(vec![0; 32]);
    sql.run(insert, vec![vec![writer.into(), name.into(), now_us.into(), head]]).await.map(drop)
}

/// Records that the writer lives, if its cursor is where it thinks.
pub(crate) async fn heartbeat(
    sql: &mut impl Sql,
    writer: Id,
    expected: i64,
    clean_at_us: i64,
    now_us: i64,
) -> Result<(), Error> {
    let update = "UPDATE writer SET last_seen = CASE WHEN last_seen > $1 THEN last_seen ELSE $1 END, clean_at = $2 \
                  WHERE id = $3 AND shipped_seq = $4 RETURNING blocks";
    let set = vec![now_us.into(), clean_at_us.into(), writer.into(), expected.into()];
    match only(sql.run(update, vec![set]).await?) {
        Some(_) => Ok(()),
        None => Err(Error::CursorMoved { expected, found: cursor(sql, writer).await? }),
    }
}

/// Returns the balance of each account that has one.
pub(crate) async fn balances(
    sql: &mut impl Sql,
    accounts: Vec<Account>,
    lock: &str,
) -> Result<BTreeMap<Account, Balance>, Error> {
    let select = format!(
        "SELECT ends, allowance, allowance_at, extra, extra_no, pending, posted FROM balance \
         WHERE rule = $1 AND subject = $2 AND period = $3{lock}"
    );
    let found = sql.run(&select, accounts.iter().map(account).collect()).await?;
    let rows =
        accounts.into_iter().zip(found).filter_map(|(key, rows)| Some((key, rows.into_iter().next()?)));
    rows.map(|(key, row)| {
        let mut columns = Columns::of(row);
        let balance = Balance {
            ends_us: columns.int("ends")?,
            allowance: columns.int("allowance")?,
            allowance_at_us: columns.int("allowance_at")?,
            extra: columns.int("extra")?,
            extra_no: columns.int("extra_no")?,
            pending: columns.int("pending")?,
            posted: columns.int("posted")?,
        };
        Ok((key, balance))
    })
    .collect()
}

/// Returns the entries of a writer, ordered by sequence number, without those that are folded away.
pub(crate) async fn entries(sql: &mut impl Sql, writer: Id) -> Result<Vec<Entry>, Error> {
    let select = format!("SELECT {ENTRY} FROM entry WHERE writer = $1 ORDER BY seq, n");
    let rows = sql.run(&select, vec![vec![writer.into()]]).await?;
    rows.into_iter().flatten().map(entry).collect()
}

/// Returns the entries of a writer with these sequence numbers, in order.
pub(crate) async fn entries_between(
    sql: &mut impl Sql,
    writer: Id,
    first_seq: i64,
    last_seq: i64,
) -> Result<Vec<Entry>, Error> {
    let select =
        format!("SELECT {ENTRY} FROM entry WHERE writer = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq, n");
    let set = vec![writer.into(), first_seq.into(), last_seq.into()];
    sql.run(&select, vec![set]).await?.into_iter().flatten().map(entry).collect()
}

/// Returns up to `max` blocks of a writer after the block `after`, with their hashes, in order.
pub(crate) async fn blocks(
    sql: &mut impl Sql,
    writer: Id,
    after: i64,
    max: i64,
) -> Result<Vec<(Block, Hash)>, Error> {
    let select = "SELECT block, first_seq, last_seq, rows, at, prev, hash FROM block \
                  WHERE writer = $1 AND block > $2 ORDER BY block LIMIT $3";
    let rows = sql.run(select, vec![vec![writer.into(), after.into(), max.into()]]).await?;
    let read = |row: Row| {
        let mut columns = Columns::of(row);
        let block = Block {
            writer,
            number: columns.int("block")?,
            first_seq: columns.int("first_seq")?,
            last_seq: columns.int("last_seq")?,
            rows: columns.int("rows")?,
            at_us: columns.int("at")?,
            prev: columns.bytes("prev")?,
        };
        Ok((block, columns.bytes("hash")?))
    };
    rows.into_iter().flatten().map(read).collect()
}

async fn load_voided<S: Sql>(sql: &mut S, writer: Id, keys: &Keys) -> Result<BTreeMap<i64, Entry>, Error> {
    let select =
        format!("SELECT {ENTRY} FROM entry WHERE writer = $1 AND seq = $2 AND n = 0 AND cause <> 'total'");
    let sets = keys.voided.iter().map(|seq| vec![writer.into(), (*seq).into()]).collect();
    let found = sql.run(&select, sets).await?;
    found.into_iter().flatten().map(|row| entry(row).map(|entry| (entry.seq, entry))).collect()
}

async fn load<S: Sql>(sql: &mut S, keys: &Keys, rows: &mut Rows) -> Result<(), Error> {
    // Rows that do not exist cannot be locked, so they are created first, in the order of their keys.
    let create = "INSERT INTO balance (rule, subject, period, ends, allowance, allowance_at, extra, extra_no, granted, \
                  available, pending, posted) VALUES ($1, $2, $3, 0, 0, 0, 0, 0, 0, 0, 0, 0) ON CONFLICT DO NOTHING";
    sql.run(create, keys.accounts.iter().map(account).collect()).await?;
    rows.balances = balances(sql, keys.accounts.iter().cloned().collect(), S::LOCK).await?;

    let lock = S::LOCK;
    let select = format!(
        "SELECT cost, until_at, state FROM reservation \
         WHERE rule = $1 AND subject = $2 AND period = $3 AND token = $4{lock}"
    );
    let found = sql.run(&select, keys.holds.iter().map(hold_key).collect()).await?;
    for (key, row) in first(&keys.holds, found) {
        let mut columns = Columns::of(row);
        let (cost, until_us) = (columns.int("cost")?, columns.int("until_at")?);
        let state = HoldState::parse(&columns.text("state")?)?;
        rows.holds.insert(key, Hold { cost, until_us, state });
    }

    let select =
        format!("SELECT refunded FROM receipt WHERE rule = $1 AND subject = $2 AND nonce = $3{lock}");
    let found = sql.run(&select, keys.receipts.iter().map(subject_key).collect()).await?;
    for (key, row) in first(&keys.receipts, found) {
        rows.receipts.insert(key, Columns::of(row).int("refunded")?);
    }

    let select = format!(
        "SELECT nonce, content, at, state FROM request WHERE rule = $1 AND subject = $2 AND id = $3{lock}"
    );
    let found = sql.run(&select, keys.requests.iter().map(subject_key).collect()).await?;
    for (key, row) in first(&keys.requests, found) {
        let mut columns = Columns::of(row);
        let (nonce, content) = (Id(columns.bytes("nonce")?), columns.int("content")?);
        let (at_us, state) = (columns.int("at")?, RequestState::parse(&columns.text("state")?)?);
        rows.requests.insert(key, RequestRow { nonce, content, at_us, state });
    }
    Ok(())
}

/// Writes what changed. A row that another transaction has created meanwhile is a conflict, never overwritten.
async fn save(sql: &mut impl Sql, before: &Rows, rows: &Rows) -> Result<(), Error> {
    let update = "UPDATE balance SET ends = $4, allowance = $5, allowance_at = $6, extra = $7, extra_no = $8, \
                  granted = $9, available = $10, pending = $11, posted = $12 \
                  WHERE rule = $1 AND subject = $2 AND period = $3";
    let balances = rows.balances.iter().map(|(key, balance)| {
        let Balance { ends_us, allowance, allowance_at_us, extra, extra_no, pending, posted } = *balance;
        let numbers =
            [ends_us, allowance, allowance_at_us, extra, extra_no, balance.granted(), balance.available()];
        let numbers = numbers.into_iter().chain([pending, posted]).map(Value::from);
        account(key).into_iter().chain(numbers).collect()
    });
    sql.run(update, balances.collect()).await?;

    let hold = |key: &(Account, Id), hold: &Hold| {
        let rest = [hold.cost.into(), hold.until_us.into(), hold.state.name().into()];
        hold_key(key).into_iter().chain(rest).collect()
    };
    let (new, changed) = split(&before.holds, &rows.holds, hold);
    let insert = "INSERT INTO reservation (rule, subject, period, token, cost, until_at, state) \
                  VALUES ($1, $2, $3, $4, $5, $6, $7)";
    let update = "UPDATE reservation SET cost = $5, until_at = $6, state = $7 \
                  WHERE rule = $1 AND subject = $2 AND period = $3 AND token = $4";
    sql.run(insert, new).await?;
    sql.run(update, changed).await?;

    let receipt = |key: &(Subject, Id), refunded: &i64| {
        subject_key(key).into_iter().chain([(*refunded).into()]).collect()
    };
    let (new, changed) = split(&before.receipts, &rows.receipts, receipt);
    let insert = "INSERT INTO receipt (rule, subject, nonce, refunded) VALUES ($1, $2, $3, $4)";
    let update = "UPDATE receipt SET refunded = $4 WHERE rule = $1 AND subject = $2 AND nonce = $3";
    sql.run(insert, new).await?;
    sql.run(update, changed).await?;

    let request = |key: &(Subject, Id), row: &RequestRow| {
        let rest = [row.nonce.into(), row.content.into(), row.at_us.into(), row.state.name().into()];
        subject_key(key).into_iter().chain(rest).collect()
    };
    let (new, changed) = split(&before.requests, &rows.requests, request);
    let insert = "INSERT INTO request (rule, subject, id, nonce, content, at, state) VALUES ($1, $2, $3, $4, $5, $6, $7)";
    let update = "UPDATE request SET nonce = $4, content = $5, at = $6, state = $7 \
                  WHERE rule = $1 AND subject = $2 AND id = $3";
    sql.run(insert, new).await?;
    sql.run(update, changed).await.map(drop)
}

/// Remembers the names of accounts. The newest one of a batch wins.
async fn save_names(sql: &mut impl Sql, records: &[Record]) -> Result<(), Error> {
    let named = records.iter().filter_map(|record| Some((&record.account.subject, record.name.as_deref()?)));
    let names: BTreeMap<&Subject, &str> = named.collect();
    let upsert = "INSERT INTO account (rule, subject, name) VALUES ($1, $2, $3) \
                  ON CONFLICT (rule, subject) DO UPDATE SET name = excluded.name WHERE account.name <> excluded.name";
    let sets = names
        .into_iter()
        .map(|(subject, name)| vec![(&*subject.rule).into(), subject.id.into(), name.into()]);
    sql.run(upsert, sets.collect()).await.map(drop)
}

async fn append(sql: &mut impl Sql, block: &Block, entries: &[Entry], head: Hash) -> Result<(), Error> {
    let insert = format!(
        "INSERT INTO entry (writer, {ENTRY}, posted_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)"
    );
    let row = |entry: &Entry| {
        let Account { subject, period_us } = &entry.account;
        vec![
            block.writer.into(),
            entry.seq.into(),
            entry.n.into(),
            entry.kind.name().into(),
            (&*subject.rule).into(),
            subject.id.into(),
            (*period_us).into(),
            entry.at_us.into(),
            entry.rev.into(),
            entry.d_posted.into(),
            entry.d_pending.into(),
            entry.d_granted.into(),
            entry.token.into(),
            entry.request.into(),
            entry.nonce.into(),
            entry.cause.as_str().into(),
            entry.actor.as_str().into(),
            block.at_us.into(),
        ]
    };
    sql.run(&insert, entries.iter().map(row).collect()).await?;
    let insert = "INSERT INTO block (writer, block, first_seq, last_seq, rows, at, prev, hash) \
                  VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let Block { writer, number, first_seq, last_seq, rows, at_us, prev } = *block;
    let numbers = [number, first_seq, last_seq, rows, at_us].map(Value::from);
    let hashes = [prev.as_slice().into(), head.as_slice().into()];
    let set = [writer.into()].into_iter().chain(numbers).chain(hashes).collect();
    sql.run(insert, vec![set]).await?;
    let update = "UPDATE writer SET blocks = $1, chain_head = $2 WHERE id = $3";
    sql.run(update, vec![vec![number.into(), head.as_slice().into(), writer.into()]]).await.map(drop)
}

pub(crate) fn entry(row: Row) -> Result<Entry, Error> {
    let mut columns = Columns::of(row);
    Ok(Entry {
        seq: columns.int("seq")?,
        n: columns.int("n")?,
        kind: Kind::parse(&columns.text("kind")?)?,
        account: Account {
            subject: Subject { rule: columns.text("rule")?.into(), id: Id(columns.bytes("subject")?) },
            period_us: columns.int("period")?,
        },
        at_us: columns.int("at")?,
        rev: columns.int("rev")?,
        d_posted: columns.int("d_posted")?,
        d_pending: columns.int("d_pending")?,
        d_granted: columns.int("d_granted")?,
        token: columns.optional_id("token")?,
        request: columns.optional_id("request")?,
        nonce: columns.optional_id("nonce")?,
        cause: columns.text("cause")?,
        actor: columns.text("actor")?,
    })
}

fn account(account: &Account) -> Vec<Value> {
    vec![(&*account.subject.rule).into(), account.subject.id.into(), account.period_us.into()]
}

fn hold_key((of, token): &(Account, Id)) -> Vec<Value> {
    account(of).into_iter().chain([(*token).into()]).collect()
}

fn subject_key((subject, id): &(Subject, Id)) -> Vec<Value> {
    vec![(&*subject.rule).into(), subject.id.into(), (*id).into()]
}

/// Returns the row of a result with at most one.
fn only(results: Vec<Vec<Row>>) -> Option<Row> {
    results.into_iter().flatten().next()
}

fn first<'a, K: Clone + 'a>(
    keys: impl IntoIterator<Item = &'a K>,
    found: Vec<Vec<Row>>,
) -> impl Iterator<Item = (K, Row)> {
    keys.into_iter().zip(found).filter_map(|(key, rows)| Some((key.clone(), rows.into_iter().next()?)))
}

/// Returns the parameters of new and of changed rows.
fn split<K: Ord, V: PartialEq>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
    parameters: impl Fn(&K, &V) -> Vec<Value>,
) -> (Vec<Vec<Value>>, Vec<Vec<Value>>) {
    let (mut new, mut changed) = (Vec::new(), Vec::new());
    for (key, row) in after {
        match before.get(key) {
            None => new.push(parameters(key, row)),
            Some(old) if old != row => changed.push(parameters(key, row)),
            Some(_) => {}
        }
    }
    (new, changed)
}
