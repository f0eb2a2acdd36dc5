//! `tollgate rules history`: which rules were in force when, from the audit trail.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;

use crate::cli::client::table::{Align, Table, cell};
use crate::cli::client::{Client, ClientArgs, Format};
use crate::cli::commands::control::audit;
use crate::cli::{exit, terminal};

/// Actions of the audit trail after which other rules may be in force.
const ACTIONS: [&str; 2] = ["server.started", "rules.replaced"];

/// Show which rules were in force when, on every server of the database
///
/// Rules are named by their fingerprints. `tollgate rules fingerprint` prints that of a file, so that the version that was in
/// force is found in your repository. The server needs a database, and the token the scope `read`.
///
///   tollgate rules history
///   tollgate rules history --at 2026-12-24T18:00:00Z
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  the history was printed
  1  no server is known to have had rules at the time of --at
  2  the command line is invalid
  3  the server did not answer, or its database did not
  4  the server declined: a missing token or scope, or no database

Environment:
  TOLLGATE_SERVER      server to call, like https://gate.example.com:9000; --server overrides it
  TOLLGATE_TOKEN       token; --token-file overrides it
  TOLLGATE_TOKEN_FILE  file with the token; --token-file overrides it"
)]
pub(super) struct Args {
    /// Only the rules that were in force at this time, for each server
    #[arg(long, value_name = "RFC3339", value_parser = instant)]
    at: Option<Timestamp>,
    #[command(flatten)]
    client: ClientArgs,
    /// Output format; JSON is one row of the audit trail per line
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

fn instant(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "write a date, a time and an offset, like 2026-12-01T00:00:00Z".to_owned())
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let client = Client::new(&args.client)?;
    let mut rows = audit::all_after(&client, 0)?;
    rows.retain(|row| row["action"].as_str().is_some_and(|action| ACTIONS.contains(&action)));
    if let Some(at) = args.at {
        rows = in_force_at(rows, at.as_microsecond());
    }
    terminal::print(&match args.format {
        Format::Json => rows.iter().map(|row| format!("{row}\n")).collect(),
        Format::Text if rows.is_empty() => "no rules are known for this time\n".to_owned(),
        Format::Text => text(&rows),
    })?;
    Ok(if rows.is_empty() && args.at.is_some() { exit::NEGATIVE } else { exit::SUCCESS })
}

/// The last row of each server until then.
fn in_force_at(rows: Vec<Value>, at_us: i64) -> Vec<Value> {
    let mut last: BTreeMap<String, Value> = BTreeMap::new();
    for row in rows {
        let row_us = row["at_us"].as_i64().unwrap_or(i64::MAX);
        let server = cell(&row, "server");
        // A row that waited for the database may come after a later one.
        let is_later = last.get(&server).is_none_or(|known| known["at_us"].as_i64() <= Some(row_us));
        if row_us <= at_us && is_later {
            last.insert(server, row);
        }
    }
    last.into_values().collect()
}

fn text(rows: &[Value]) -> String {
    let names = ["since", "server", "rules", "file", "before", "why"];
    let mut table = Table::new(&names.map(|name| (name, Align::Left)));
    for row in rows {
        let rules = |name: &str| match row[name].as_str().and_then(|text| text.strip_prefix("rules ")) {
            Some(fingerprint) => fingerprint.to_owned(),
            None => "-".to_owned(),
        };
        let why = if row["action"] == ACTIONS[0] { "started" } else { "replaced" };
        let [at, server, file] = ["at", "server", "target"].map(|name| cell(row, name));
        table.row([at, server, rules("after"), file, rules("before"), why.to_owned()]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_rules_of_each_server_until_then_were_in_force() {
        let row = |server: &str, at_us: i64, rules: &str| json!({ "server": server, "at_us": at_us, "after": format!("rules {rules}"), "action": "rules.replaced" });
        // The last row waited for the database.
        let rows =
            vec![row("a", 10, "one"), row("b", 20, "two"), row("a", 30, "three"), row("a", 15, "late")];
        for (at, expected) in
            [(9, vec![]), (10, vec!["one"]), (25, vec!["late", "two"]), (40, vec!["three", "two"])]
        {
            let found = in_force_at(rows.clone(), at);
            let found: Vec<&str> =
                found.iter().filter_map(|row| row["after"].as_str()?.strip_prefix("rules ")).collect();
            assert_eq!(found, expected, "{at}");
        }
    }
}
