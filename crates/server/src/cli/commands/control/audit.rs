//! `tollgate audit`: who changed what, and whether the trail is intact.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;
use tollgate::shorthand;
use tollgate_database::audit::{AuditEvent, audit_hash};

use crate::cli::client::table::{Align, Table, cell};
use crate::cli::client::{Call, Client, ClientArgs, Format};
use crate::cli::{exit, terminal};
use crate::failure::Failure;

/// Rows of one call.
const PAGE: i64 = 1_000;
/// Rows that `list` shows without `--since`.
const LAST: i64 = 50;
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// Show who changed what, and verify that nobody changed the trail
///
/// Every live change, reset, reload of rules and tokens is one row, with who, when, from where, why, and what differs. Each
/// row has the hash of the row before, so that a changed, deleted or moved row is found. The token needs the scope `read`.
///
///   tollgate audit list --since 2h
///   tollgate audit list --follow
///   tollgate audit verify --expect 4711:9f86d081884c7d65...
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(clap::Subcommand)]
enum AuditCommand {
    /// List the last rows
    List(ListArgs),
    /// Recompute the hashes of all rows
    ///
    /// A chain alone shows neither a cut tail nor a trail that was written anew. Keep the number and the hash of a row
    /// elsewhere (each row's are in the log), and pass them with --expect.
    Verify(VerifyArgs),
}

#[derive(clap::Args)]
struct ListArgs {
    /// Rows of this time, like 2h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    since: Option<Duration>,
    /// Wait for further rows, and print them as they come
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    client: ClientArgs,
    /// Output format; JSON is one row per line
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(clap::Args)]
struct VerifyArgs {
    /// Number and hash of a row that was kept
    #[arg(long, value_name = "SEQ:HEAD", value_parser = head)]
    expect: Option<(i64, String)>,
    #[command(flatten)]
    client: ClientArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

fn duration(text: &str) -> Result<Duration, String> {
    let span = shorthand::span(text).map_err(|error| error.to_string())?;
    Ok(Duration::from_micros(span.us()))
}

fn head(text: &str) -> Result<(i64, String), String> {
    let wrong = || "write SEQ:HEAD, the number of a row and the 64 digits of its hash".to_owned();
    let (seq, hash) = text.split_once(':').ok_or_else(wrong)?;
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let seq = seq.parse::<i64>().ok().filter(|&seq| seq > 0 && is_hash).ok_or_else(wrong)?;
    Ok((seq, hash.to_ascii_lowercase()))
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        AuditCommand::List(args) => list(args),
        AuditCommand::Verify(args) => verify(args),
    }
}

/// A page of rows, and the number of the last row of the trail.
pub(super) fn page(client: &Client, after: i64, limit: i64) -> Result<(Vec<Value>, Value), Failure> {
    let answer = client.call(&Call::get(format!("/v1/audit?after={after}&limit={limit}")))?.json()?;
    let rows = answer["rows"].as_array().cloned().unwrap_or_default();
    Ok((rows, answer["head"].clone()))
}

fn list(args: &ListArgs) -> Result<ExitCode> {
    let client = Client::new(&args.client)?;
    let last = page(&client, 0, 1)?.1["seq"].as_i64().unwrap_or(0);
    let mut rows = match args.since {
        None => page(&client, (last - LAST).max(0), LAST)?.0,
        Some(since) => rows_since(&client, last, since)?,
    };
    let mut after = rows.last().and_then(|row| row["seq"].as_i64()).unwrap_or(last);
    let mut is_first = true;
    loop {
        terminal::print(&match args.format {
            Format::Json => rows.iter().map(|row| format!("{row}\n")).collect(),
            Format::Text if rows.is_empty() && is_first && !args.follow => "no rows\n".to_owned(),
            Format::Text => {
                let text = table(&rows).text();
                let lines = if is_first { 0 } else { 1 };
                text.lines().skip(lines).map(|line| format!("{line}\n")).collect()
            }
        })?;
        if !args.follow {
            return Ok(exit::SUCCESS);
        }
        is_first = false;
        client.pause(FOLLOW_EVERY);
        rows = page(&client, after, PAGE)?.0;
        after = rows.last().and_then(|row| row["seq"].as_i64()).unwrap_or(after);
    }
}

/// The rows of the time before now, found from the end of the trail.
fn rows_since(client: &Client, last: i64, since: Duration) -> Result<Vec<Value>, Failure> {
    let now_us = Timestamp::now().as_microsecond();
    let from_us = now_us.saturating_sub(i64::try_from(since.as_micros()).unwrap_or(i64::MAX));
    let mut found: Vec<Value> = Vec::new();
    let mut end = last;
    while end > 0 {
        let after = (end - PAGE).max(0);
        let mut rows = page(client, after, end - after)?.0;
        let is_older = |row: &Value| row["at_us"].as_i64().is_some_and(|at| at < from_us);
        let has_older = rows.iter().any(is_older);
        rows.retain(|row| !is_older(row));
        rows.append(&mut found);
        found = rows;
        if has_older {
            break;
        }
        end = after;
    }
    Ok(found)
}

/// The rows for people.
pub(super) fn table(rows: &[Value]) -> Table {
    let columns = [
        ("seq", Align::Right),
        ("at", Align::Left),
        ("who", Align::Left),
        ("from", Align::Left),
        ("action", Align::Left),
        ("what", Align::Left),
        ("times", Align::Right),
        ("reason", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for row in rows {
        let cells = ["seq", "at", "actor", "address", "action", "target", "times", "reason"];
        table.row(cells.map(|name| cell(row, name)));
    }
    table
}

fn verify(args: &VerifyArgs) -> Result<ExitCode> {
    let client = Client::new(&args.client)?;
    let (mut seq, mut prev) = (0_i64, "0".repeat(64));
    let mut expected = args.expect.clone();
    let mut fault = None;
    let mut recorded = None;
    'pages: loop {
        let (rows, head) = page(&client, seq, PAGE)?;
        // The end at the first call: rows that are added meanwhile come after it.
        let recorded = recorded.get_or_insert(head);
        let is_last = (rows.len() as i64) < PAGE;
        for row in &rows {
            let number = row["seq"].as_i64().unwrap_or(0);
            if number != seq + 1 {
                fault = Some(format!("row {} is missing", seq + 1));
                break 'pages;
            }
            let hash = row["hash"].as_str().unwrap_or_default();
            let is_recorded = recorded["seq"].as_i64() == Some(number);
            let is_other_end = is_recorded && recorded["hash"].as_str() != Some(hash);
            if row["prev"].as_str() != Some(&prev) || recomputed(row).as_deref() != Some(hash) || is_other_end {
                fault = Some(format!("row {number} was changed after it was written, or moved"));
                break 'pages;
            }
            if expected.as_ref().is_some_and(|(wanted, _)| *wanted == number)
                && expected.take().is_some_and(|(_, wanted)| wanted != hash)
            {
                fault = Some(format!("row {number} does not have the expected hash: rows were rewritten"));
                break 'pages;
            }
            (seq, prev) = (number, hash.to_owned());
        }
        if is_last {
            let end = recorded["seq"].as_i64().unwrap_or(0).max(expected.as_ref().map_or(0, |(seq, _)| *seq));
            if seq < end {
                fault = Some(format!("the trail ends at row {seq}, and row {end} was the last one"));
            }
            break;
        }
    }
    let is_intact = fault.is_none();
    terminal::print(&match (args.format, fault) {
        (Format::Json, fault) => {
            let result = serde_json::json!({ "intact": is_intact, "seq": seq, "head": prev, "fault": fault });
            format!("{result}\n")
        }
        (Format::Text, None) => format!("{seq} rows are intact; keep this head elsewhere: {seq}:{prev}\n"),
        (Format::Text, Some(fault)) => format!("the trail is not intact: {fault}\n"),
    })?;
    Ok(if is_intact { exit::SUCCESS } else { exit::NEGATIVE })
}

/// The hash of a row, computed here: the server is not believed.
fn recomputed(row: &Value) -> Option<String> {
    let text = |name: &str| row[name].as_str().map(str::to_owned);
    let event = AuditEvent {
        at_us: row["at_us"].as_i64()?,
        times: row["times"].as_i64()?,
        server: text("server")?,
        actor: text("actor")?,
        address: text("address")?,
        action: text("action")?,
        target: text("target")?,
        reason: text("reason")?,
        detail: text("detail")?,
        before: text("before")?,
        after: text("after")?,
    };
    let prev = crate::serve::control::unhex(row["prev"].as_str()?)?;
    Some(crate::serve::control::hex(&audit_hash(row["seq"].as_i64()?, &prev, &event)))
}
