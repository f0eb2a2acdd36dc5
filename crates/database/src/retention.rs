//! Retention: months of entries have partitions, and old entries are dropped without breaking chains and balances.

use crate::Error;
use crate::ledger::Id;
use crate::sql::{Columns, Row, Sql, Value};

/// A month of the UTC calendar. PostgreSQL keeps the entries that were posted in it in one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Month {
    /// The year.
    pub year: i16,
    /// From 1.
    pub month: i8,
    /// Its first instant in microseconds since 1970.
    pub from_us: i64,
    /// The first instant after it.
    pub to_us: i64,
}

impl Month {
    /// Returns the name of its partition.
    pub fn partition(&self) -> String {
        format!("entry_{:04}_{:02}", self.year, self.month)
    }
}

/// A partition of the entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// The name of its table.
    pub name: String,
    /// Its bounds in the words of PostgreSQL; `DEFAULT` for entries of months without a partition.
    pub bounds: String,
    /// Number of entries, as PostgreSQL estimates it; -1 before its first analysis.
    pub entries: i64,
}

/// What was dropped, or would be.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Dropped {
    /// Entries.
    pub entries: i64,
    /// Blocks whose entries these were.
    pub blocks: i64,
    /// Remembered request ids.
    pub requests: i64,
    /// Reservations that had ended.
    pub reservations: i64,
}

/// The beginning of a writer's chain that is older than an instant.
struct OldBlocks {
    writer: Id,
    last_block: i64,
    blocks: i64,
    rows: i64,
}

/// Returns what was posted before an instant. Entries and blocks that contradict each other are an error.
pub(crate) async fn count_old(sql: &mut impl Sql, before_us: i64) -> Result<Dropped, Error> {
    let blocks = old_blocks(sql, before_us).await?;
    let count = async |sql: &mut _, table: &str, condition: &str| {
        let select = format!("SELECT CAST(count(*) AS BIGINT) FROM {table} WHERE {condition}");
        one(Sql::run(sql, &select, vec![vec![before_us.into()]]).await?)
    };
    let dropped = Dropped {
        entries: count(sql, "entry", "posted_at < $1").await?,
        blocks: blocks.iter().map(|old| old.blocks).sum(),
        requests: count(sql, "request", OLD_REQUEST).await?,
        reservations: count(sql, "reservation", OLD_RESERVATION).await?,
    };
    let rows: i64 = blocks.iter().map(|old| old.rows).sum();
    match rows == dropped.entries {
        true => Ok(dropped),
        false => Err(Error::BlocksDiffer { rows, entries: dropped.entries }),
    }
}

const OLD_REQUEST: &str = "at < $1";
const OLD_RESERVATION: &str = "state <> 'open' AND until_at < $1";

/// Drops what was posted before an instant. Balances keep the sums of the entries, and the last block of each chain stays
/// as the anchor of the next one.
pub(crate) async fn drop_old(sql: &mut impl Sql, before_us: i64) -> Result<Dropped, Error> {
    let dropped = count_old(sql, before_us).await?;
    let before = || vec![vec![Value::Int(before_us)]];
    let sums = "UPDATE balance SET sealed_posted = sealed_posted + old.posted, \
                  sealed_pending = sealed_pending + old.pending, sealed_granted = sealed_granted + old.granted \
                FROM (SELECT rule, subject, period, CAST(SUM(d_posted) AS BIGINT) AS posted, \
                        CAST(SUM(d_pending) AS BIGINT) AS pending, CAST(SUM(d_granted) AS BIGINT) AS granted \
                      FROM entry WHERE posted_at < $1 GROUP BY rule, subject, period) AS old \
                WHERE balance.rule = old.rule AND balance.subject = old.subject AND balance.period = old.period";
    sql.run(sums, before()).await?;
    let old = old_blocks(sql, before_us).await?;
    let sets = |old: &OldBlocks| vec![old.last_block.into(), old.writer.into()];
    let seal = "UPDATE writer SET sealed_block = $1 WHERE id = $2";
    sql.run(seal, old.iter().map(sets).collect()).await?;
    let delete = "DELETE FROM block WHERE block < $1 AND writer = $2";
    sql.run(delete, old.iter().map(sets).collect()).await?;
    for partition in partitions_before(sql, before_us).await? {
        sql.run(&format!("DROP TABLE {partition}"), vec![vec![]]).await?;
    }
    sql.run("DELETE FROM entry WHERE posted_at < $1", before()).await?;
    sql.run(&format!("DELETE FROM request WHERE {OLD_REQUEST}"), before()).await?;
    sql.run(&format!("DELETE FROM reservation WHERE {OLD_RESERVATION}"), before()).await?;
    Ok(dropped)
}

/// Returns the blocks of each writer that are older than an instant and not sealed yet.
async fn old_blocks(sql: &mut impl Sql, before_us: i64) -> Result<Vec<OldBlocks>, Error> {
    let select = "SELECT block.writer, max(block.block), CAST(count(*) AS BIGINT), CAST(SUM(block.rows) AS BIGINT) \
                  FROM block JOIN writer ON writer.id = block.writer \
                  WHERE block.at < $1 AND block.block > writer.sealed_block GROUP BY block.writer ORDER BY block.writer";
    let read = |row: Row| {
        let mut columns = Columns::of(row);
        Ok(OldBlocks {
            writer: Id(columns.bytes("writer")?),
            last_block: columns.int("block")?,
            blocks: columns.int("count")?,
            rows: columns.int("rows")?,
        })
    };
    sql.run(select, vec![vec![before_us.into()]]).await?.into_iter().flatten().map(read).collect()
}

/// Returns the partitions, oldest first. SQLite has none.
pub(crate) async fn partitions<S: Sql>(sql: &mut S) -> Result<Vec<Partition>, Error> {
    let Some(select) = S::PARTITIONS else { return Ok(Vec::new()) };
    let read = |row: Row| {
        let mut columns = Columns::of(row);
        Ok(Partition {
            name: columns.text("name")?,
            bounds: columns.text("bounds")?,
            entries: columns.int("entries")?,
        })
    };
    sql.run(select, vec![vec![]]).await?.into_iter().flatten().map(read).collect()
}

/// Returns the partitions that end at an instant or before.
async fn partitions_before<S: Sql>(sql: &mut S, before_us: i64) -> Result<Vec<String>, Error> {
    let ends = |partition: &Partition| {
        // FOR VALUES FROM ('1767225600000000') TO ('1769904000000000')
        let end = partition.bounds.rsplit_once("TO ('")?.1.strip_suffix("')")?;
        end.parse::<i64>().ok()
    };
    let all = partitions(sql).await?;
    let old = all.into_iter().filter(|partition| ends(partition).is_some_and(|end| end <= before_us));
    Ok(old.map(|partition| partition.name).collect())
}

/// Creates the partition of a month, and moves the entries there that the default partition has of it. Returns whether it
/// was missing. SQLite has no partitions.
pub(crate) async fn create_partition<S: Sql>(sql: &mut S, month: &Month) -> Result<bool, Error> {
    let (name, Month { from_us, to_us, .. }) = (month.partition(), month);
    let known = partitions(sql).await?;
    if S::PARTITIONS.is_none() || known.iter().any(|partition| partition.name == name) {
        return Ok(false);
    }
    let steps = [
        format!("CREATE TABLE {name} (LIKE entry INCLUDING DEFAULTS)"),
        format!(
            "WITH moved AS (DELETE FROM entry_default WHERE posted_at >= {from_us} AND posted_at < {to_us} RETURNING *) \
             INSERT INTO {name} SELECT * FROM moved"
        ),
        format!("ALTER TABLE entry ATTACH PARTITION {name} FOR VALUES FROM ({from_us}) TO ({to_us})"),
    ];
    for step in steps {
        sql.run(&step, vec![vec![]]).await?;
    }
    Ok(true)
}

fn one(results: Vec<Vec<Row>>) -> Result<i64, Error> {
    results.into_iter().flatten().next().map_or(Ok(0), |row| Columns::of(row).int("count"))
}
