//! `tollgate ledger verify`: recomputes chains and balances.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};
use tollgate_database::ledger::Hash;
use tollgate_database::{Database, Unbalanced, Verified, Writer};

use super::database_args::{DatabaseArgs, block_on, failure};
use super::{Format, progress};
use crate::cli::{exit, terminal};
use crate::failure::Failure;
use crate::files;
use crate::hex;
use crate::ledger_form::{head_json, instant_text, subject_text};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Output of an earlier `verify --format json`, kept elsewhere; its heads must still be part of the chains
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,
    /// Recompute only what follows the expected heads, which were verified before
    #[arg(long, requires = "expect")]
    since_expected: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// A head that was kept elsewhere.
struct Expected {
    writer: String,
    blocks: i64,
    head: Hash,
}

/// What is wrong with the chain of a writer.
struct Checked {
    writer: Writer,
    broken_block: Option<i64>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let expected = match &args.expect {
        Some(path) => expected(files::read(path)?.text())?,
        None => Vec::new(),
    };
    block_on(async {
        let database = args.database.open().await?;
        let writers = database.writers().await.map_err(failure)?;
        let bar = progress::bar(writers.iter().map(|writer| writer.blocks).sum(), "blocks")?;
        let mut checked = Vec::new();
        let mut before = 0;
        for writer in writers {
            let from = expected.iter().find(|head| head.writer == writer.id.to_string() && head.blocks > 0);
            let from = from.filter(|_| args.since_expected).map(|head| (head.blocks, head.head));
            let progress =
                |verified: Verified| bar.set_position(before + u64::try_from(verified.block).unwrap_or(0));
            let verified = database.verify_chain(writer.id, from, progress).await.map_err(failure)?;
            before += u64::try_from(writer.blocks).unwrap_or(0);
            checked.push(Checked { writer, broken_block: verified.err() });
        }
        bar.finish_and_clear();
        let mut missing = Vec::new();
        for head in expected {
            if !is_part(&database, &checked, &head).await? {
                missing.push(head);
            }
        }
        let unbalanced = database.unbalanced().await.map_err(failure)?;
        let is_intact = missing.is_empty()
            && unbalanced.is_empty()
            && checked.iter().all(|checked| checked.broken_block.is_none());
        terminal::print(&match args.format {
            Format::Json => format!("{}\n", to_json(is_intact, &checked, &missing, &unbalanced)),
            Format::Text => to_text(is_intact, &checked, &missing, &unbalanced)?,
        })?;
        Ok(if is_intact { exit::SUCCESS } else { exit::NEGATIVE })
    })
}

/// Whether the chain of the head's writer has this hash at this block.
async fn is_part(database: &Database, checked: &[Checked], head: &Expected) -> Result<bool> {
    if head.blocks == 0 {
        return Ok(true);
    }
    let same = |checked: &&Checked| checked.writer.id.to_string() == head.writer;
    let Some(Checked { writer, .. }) = checked.iter().find(same) else { return Ok(false) };
    // The blocks of entries that were dropped have gone, except the last one.
    if head.blocks < writer.sealed_block {
        return Ok(true);
    }
    let hash = database.block_hash(writer.id, head.blocks).await.map_err(failure)?;
    Ok(hash == Some(head.head))
}

fn expected(text: &str) -> Result<Vec<Expected>> {
    let invalid = || {
        let hint = "pass a file that `tollgate ledger verify --format json` has written";
        Failure::new("invalid file of expected heads", hint)
    };
    let parsed: Value = serde_json::from_str(text).map_err(|_| invalid())?;
    let writers = parsed["writers"].as_array().ok_or_else(invalid)?;
    let read = |writer: &Value| {
        Some(Expected {
            writer: writer["writer"].as_str()?.to_owned(),
            blocks: writer["blocks"].as_i64()?,
            head: hex::to_32_bytes(writer["head"].as_str()?)?,
        })
    };
    Ok(writers.iter().map(|writer| read(writer).ok_or_else(invalid)).collect::<Result<_, _>>()?)
}

fn to_json(is_intact: bool, checked: &[Checked], missing: &[Expected], unbalanced: &[Unbalanced]) -> Value {
    let writers = checked.iter().map(|Checked { writer, broken_block }| {
        let mut head = head_json(writer);
        head["broken_block"] = json!(broken_block);
        head["dropped_blocks"] = json!(writer.sealed_block);
        head
    });
    let missing = missing
        .iter()
        .map(|head| json!({ "writer": head.writer, "block": head.blocks, "head": hex::of(&head.head) }));
    let unbalanced = unbalanced.iter().map(|found| {
        json!({
            "rule": &*found.account.subject.rule,
            "subject": subject_text(&found.account),
            "period": instant_text(found.account.period_us),
            "used": found.posted,
            "used_by_entries": found.posted_by_entries,
            "held": found.pending,
            "held_by_entries": found.pending_by_entries,
        })
    });
    json!({
        "intact": is_intact,
        "writers": writers.collect::<Vec<_>>(),
        "missing_heads": missing.collect::<Vec<_>>(),
        "unbalanced": unbalanced.collect::<Vec<_>>(),
    })
}

fn to_text(
    is_intact: bool,
    checked: &[Checked],
    missing: &[Expected],
    unbalanced: &[Unbalanced],
) -> Result<String> {
    let mut text = String::new();
    for Checked { writer, broken_block } in checked {
        let state = match broken_block {
            Some(block) => format!("BROKEN at block {block}"),
            None => "intact".to_owned(),
        };
        let Writer { id, name, shipped_seq, blocks, sealed_block, .. } = writer;
        let dropped = match sealed_block {
            0 => String::new(),
            block => format!(" from block {}", block + 1),
        };
        writeln!(text, "{id}  {name}  {shipped_seq} entries in {blocks} blocks  {state}{dropped}")?;
    }
    for head in missing {
        writeln!(text, "{}  block {} is not the one that was expected", head.writer, head.blocks)?;
    }
    for found in unbalanced {
        writeln!(
            text,
            "rule {} subject {} period {}: the balance says {} used and {} held, the entries {} and {}",
            found.account.subject.rule,
            subject_text(&found.account),
            instant_text(found.account.period_us),
            found.posted,
            found.pending,
            found.posted_by_entries,
            found.pending_by_entries,
        )?;
    }
    writeln!(text, "{}", if is_intact { "the ledger is intact" } else { "the ledger is NOT intact" })?;
    Ok(text)
}
