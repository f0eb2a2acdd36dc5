//! Verifies the chain of a writer: every block follows from the block before and from its rows.

use crate::Error;
use crate::ledger::{Block, Entry, Hash, Id, chain};
use crate::sql::{Columns, Sql};
use crate::transaction;

/// Blocks that are read at once.
const PAGE: i64 = 256;

/// How far the verification of a chain has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verified {
    /// The last block that was checked.
    pub block: i64,
    /// Its hash.
    pub hash: Hash,
    /// The last sequence number in it.
    pub last_seq: i64,
    /// Blocks of this chain that were recomputed.
    pub recomputed: i64,
}

/// Where a chain stands after one step of its verification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// More blocks follow.
    More(Verified),
    /// The whole chain is intact.
    Intact(Verified),
    /// This block does not match its rows, the block before, or the head of its writer.
    Broken(i64),
}

/// Returns where the verification begins: before the first block, or after the blocks whose entries were dropped.
pub(crate) async fn begin(sql: &mut impl Sql, writer: Id) -> Result<Step, Error> {
    let sealed = sealed_block(sql, writer).await?;
    let begin = Verified { block: 0, hash: [0; 32], last_seq: 0, recomputed: 0 };
    if sealed == 0 {
        return Ok(Step::More(begin));
    }
    // The last sealed block stays, as the anchor of the next one.
    let anchor = transaction::blocks(sql, writer, sealed - 1, 1).await?.into_iter().next();
    Ok(match anchor.filter(|(block, _)| block.number == sealed) {
        Some((block, hash)) => {
            Step::More(Verified { block: sealed, hash, last_seq: block.last_seq, ..begin })
        }
        None => Step::Broken(sealed),
    })
}

/// Returns where the verification begins after a block with this hash that was verified before.
pub(crate) async fn begin_at(
    sql: &mut impl Sql,
    writer: Id,
    (number, hash): (i64, Hash),
) -> Result<Step, Error> {
    if number <= sealed_block(sql, writer).await? {
        return begin(sql, writer).await;
    }
    let found = transaction::blocks(sql, writer, number - 1, 1).await?.into_iter().next();
    Ok(match found {
        Some((block, found)) if (block.number, found) == (number, hash) => {
            Step::More(Verified { block: number, hash, last_seq: block.last_seq, recomputed: 0 })
        }
        _ => Step::Broken(number),
    })
}

/// Checks the next blocks of a chain.
pub(crate) async fn step(sql: &mut impl Sql, writer: Id, from: Verified) -> Result<Step, Error> {
    let blocks = transaction::blocks(sql, writer, from.block, PAGE).await?;
    let (Some((first, _)), Some((last, _))) = (blocks.first(), blocks.last()) else {
        return end(sql, writer, from).await;
    };
    let entries = transaction::entries_between(sql, writer, first.first_seq, last.last_seq).await?;
    let mut rest = entries.as_slice();
    let mut verified = from;
    for (block, hash) in &blocks {
        let len = rest.partition_point(|entry| entry.seq <= block.last_seq);
        let (rows, following) = rest.split_at(len);
        if !follows(block, rows, verified) || chain(block, rows) != *hash {
            return Ok(Step::Broken(block.number));
        }
        rest = following;
        verified = Verified {
            block: block.number,
            hash: *hash,
            last_seq: block.last_seq,
            recomputed: verified.recomputed + 1,
        };
    }
    Ok(Step::More(verified))
}

fn follows(block: &Block, rows: &[Entry], before: Verified) -> bool {
    block.prev == before.hash
        && block.number == before.block + 1
        && block.first_seq == before.last_seq + 1
        && block.rows == rows.len() as i64
        && rows.first().is_none_or(|entry| entry.seq >= block.first_seq)
}

/// Compares the end of the chain with what its writer believes it is: a tail that was cut off leaves an intact chain.
async fn end(sql: &mut impl Sql, writer: Id, at: Verified) -> Result<Step, Error> {
    let select = "SELECT blocks, chain_head, shipped_seq FROM writer WHERE id = $1";
    let rows = sql.run(select, vec![vec![writer.into()]]).await?;
    let Some(row) = rows.into_iter().flatten().next() else { return Ok(Step::Broken(at.block)) };
    let mut columns = Columns::of(row);
    let (blocks, head): (i64, Hash) = (columns.int("blocks")?, columns.bytes("chain_head")?);
    let shipped_seq = columns.int("shipped_seq")?;
    let is_head = (blocks, head, shipped_seq) == (at.block, at.hash, at.last_seq);
    Ok(match is_head {
        true => Step::Intact(at),
        // A batch was posted meanwhile.
        false if !transaction::blocks(sql, writer, at.block, 1).await?.is_empty() => Step::More(at),
        false => Step::Broken(at.block + 1),
    })
}

async fn sealed_block(sql: &mut impl Sql, writer: Id) -> Result<i64, Error> {
    let rows = sql.run("SELECT sealed_block FROM writer WHERE id = $1", vec![vec![writer.into()]]).await?;
    rows.into_iter().flatten().next().map_or(Ok(0), |row| Columns::of(row).int("sealed_block"))
}
