//! `tollgate audit`: who changed what, and whether the trail is intact.

mod row;
mod verify;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use jiff::Timestamp;
use serde_json::Value;
use tollgate::shorthand;

use crate::cli::client::table::{Align, Table, cell};
use crate::cli::client::{Call, Client, ClientArgs};
use crate::cli::{csv, exit, terminal};
use crate::failure::Failure;

/// Rows of one call.
const PAGE: i64 = 1_000;
/// Rows that `list` shows without `--since`.
const LAST: i64 = 50;
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// Show who changed what, and verify that the trail is intact
///
/// Every live change, reset, reload of rules or tokens, and refused call is one row: who, when, from where, why, and what
/// differs. Each row has the hash of the row before, so that a changed, deleted or moved row is found. The server needs a
/// database, and the token the scope `read`.
///
///   tollgate audit list --since 2h
///   tollgate audit list --follow
///   tollgate audit verify --expect 4711:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  the rows were printed, or the trail is intact
  1  the trail is not intact
  2  the command line is invalid
  3  the server did not answer, or its database did not
  4  the server declined: a missing token or scope, or no database"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(clap::Subcommand)]
enum AuditCommand {
    /// List the last 50 rows, or those of a time
    #[command(after_long_help = "\
Exit codes:
  0  the rows were printed; also if there are 0
  2  the command line is invalid
  3  the server did not answer, or its database did not
  4  the server declined: a missing token or scope, or no database

Environment:
  TOLLGATE_SERVER      server to call, like https://gate.example.com:9000; --server overrides it
  TOLLGATE_TOKEN       token; --token-file overrides it
  TOLLGATE_TOKEN_FILE  file with the token; --token-file overrides it")]
    List(ListArgs),
    Verify(verify::Args),
}

#[derive(clap::Args)]
struct ListArgs {
    /// Rows of this time before now, like 2h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    since: Option<Duration>,
    /// Wait for further rows and print them as they come, until Ctrl-C
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    client: ClientArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs: one row per line, with its hash
    Json,
    /// For spreadsheets
    Csv,
}

fn duration(text: &str) -> Result<Duration, String> {
    let span = shorthand::span(text).map_err(|error| error.to_string())?;
    Ok(Duration::from_micros(span.us()))
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        AuditCommand::List(args) => list(args),
        AuditCommand::Verify(args) => verify::run(args),
    }
}

/// Rows after a number, and the end of the trail.
pub(super) fn page(client: &Client, after: i64, limit: i64) -> Result<(Vec<Value>, Value), Failure> {
    let mut answer = client.call(&Call::get(format!("/v1/audit?after={after}&limit={limit}")))?.json()?;
    let head = answer["head"].take();
    match answer["rows"].take() {
        Value::Array(rows) => Ok((rows, head)),
        _ => {
            let hint = "check that --server names a Tollgate server of the same release";
            Err(Failure::of_store("the answer has no rows", hint))
        }
    }
}

/// All rows after a number.
pub(super) fn all_after(client: &Client, mut after: i64) -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    loop {
        let (rows, _) = page(client, after, PAGE)?;
        let Some(last) = rows.last().and_then(seq) else { return Ok(all) };
        after = last;
        all.extend(rows);
    }
}

fn seq(row: &Value) -> Option<i64> {
    row["seq"].as_i64()
}

fn list(args: &ListArgs) -> Result<ExitCode> {
    let client = Client::new(&args.client)?;
    let last = page(&client, 0, 1)?.1["seq"].as_i64().unwrap_or(0);
    let mut rows = match args.since {
        None => all_after(&client, (last - LAST).max(0))?,
        Some(since) => rows_since(&client, last, since)?,
    };
    let mut after = rows.last().and_then(seq).unwrap_or(last);
    let mut is_first = true;
    loop {
        if is_first && rows.is_empty() && !args.follow && args.format == Format::Text {
            terminal::print("no rows\n")?;
        } else {
            terminal::print(&text_of(&rows, args.format, is_first))?;
        }
        if !args.follow {
            return Ok(exit::SUCCESS);
        }
        is_first = false;
        client.pause(FOLLOW_EVERY);
        rows = all_after(&client, after)?;
        after = rows.last().and_then(seq).unwrap_or(after);
    }
}

/// The rows of the time before now. The trail is read from its end, because it may be long.
fn rows_since(client: &Client, last: i64, since: Duration) -> Result<Vec<Value>, Failure> {
    let since_us = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
    let from_us = Timestamp::now().as_microsecond().saturating_sub(since_us);
    // A row that waited for the database is older than the row before it. One page further back covers those.
    let is_new = |row: &Value| row["at_us"].as_i64().is_none_or(|at| at >= from_us);
    let mut pages: Vec<Vec<Value>> = Vec::new();
    let mut end = last;
    while end > 0 {
        let after = (end - PAGE).max(0);
        let mut rows =
            if pages.is_empty() { all_after(client, after)? } else { page(client, after, end - after)?.0 };
        rows.retain(is_new);
        let has_none = rows.is_empty();
        pages.push(rows);
        if has_none {
            break;
        }
        end = after;
    }
    Ok(pages.into_iter().rev().flatten().collect())
}

const COLUMNS: [(&str, &str, Align); 9] = [
    ("seq", "seq", Align::Right),
    ("at", "at", Align::Left),
    ("who", "actor", Align::Left),
    ("from", "address", Align::Left),
    ("action", "action", Align::Left),
    ("what", "target", Align::Left),
    ("times", "times", Align::Right),
    ("change", "detail", Align::Left),
    ("reason", "reason", Align::Left),
];

fn text_of(rows: &[Value], format: Format, has_header: bool) -> String {
    let cells = |row: &Value| {
        COLUMNS.map(|(_, member, _)| match member {
            "detail" => row::change(row),
            member => cell(row, member),
        })
    };
    match format {
        Format::Json => rows.iter().map(|row| format!("{row}\n")).collect(),
        Format::Csv => {
            let header = has_header.then(|| csv::line(COLUMNS.map(|(name, ..)| name)));
            header.into_iter().chain(rows.iter().map(|row| csv::line(cells(row)))).collect()
        }
        Format::Text if rows.is_empty() => String::new(),
        Format::Text => {
            let mut table = Table::new(&COLUMNS.map(|(name, _, align)| (name, align)));
            for row in rows {
                table.row(cells(row).map(|text| if text.is_empty() { "-".to_owned() } else { text }));
            }
            let text = table.text();
            match (has_header, text.split_once('\n')) {
                (false, Some((_, rows))) => rows.to_owned(),
                _ => text,
            }
        }
    }
}
