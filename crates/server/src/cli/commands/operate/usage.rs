//! `tollgate usage`: what the subjects of a request have used, asked from a server.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};

use crate::cli::client::table::{Align, Table, cell, duration_cell, instant_cell};
use crate::cli::client::{Call, Client, ClientArgs, Format};
use crate::cli::request_args::AttributeArgs;
use crate::cli::{exit, terminal};

/// Show what the subjects of a request have used
///
/// The server answers with the numbers of every rule that matches these attributes: used, held by open reservations and
/// leases, and remaining. Nothing is charged. The token needs the scope `check`.
///
///   tollgate usage action=search api_key=k-1
///   tollgate usage --server https://gate.example.com --token-file checkout.token tenant=acme user=u-7
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  the numbers were printed
  1  no rule matches these attributes
  2  the command line is invalid, or the server cannot read the attributes
  3  the server did not answer, or its store did not
  4  the server declined: a missing token or scope

Environment:
  TOLLGATE_SERVER      server to call, like https://gate.example.com; --server overrides it
  TOLLGATE_TOKEN       token; --token-file overrides it
  TOLLGATE_TOKEN_FILE  file with the token; --token-file overrides it"
)]
pub(crate) struct Args {
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    attributes: AttributeArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let body = json!({ "attributes": args.attributes.to_json()? });
    let answer = Client::new(&args.client)?.call(&Call::post("/v1/usage", body))?.json()?;
    let rules = answer["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    terminal::print(&match args.format {
        Format::Json => format!("{answer}\n"),
        Format::Text if rules.is_empty() => "no rule matches these attributes\n".to_owned(),
        Format::Text => table(rules).text(),
    })?;
    Ok(if rules.is_empty() { exit::NEGATIVE } else { exit::SUCCESS })
}

fn table(rules: &[Value]) -> Table {
    let mut table = Table::new(&[
        ("rule", Align::Left),
        ("limit", Align::Right),
        ("used", Align::Right),
        ("held", Align::Right),
        ("remaining", Align::Right),
        ("overdraft", Align::Right),
        ("per", Align::Right),
        ("whole again at", Align::Left),
    ]);
    for rule in rules {
        let numbers =
            ["rule", "limit", "used", "held", "remaining", "overdraft"].map(|name| cell(rule, name));
        let times = [duration_cell(rule, "period_ms"), instant_cell(rule, "reset_at_ms")];
        table.row(numbers.into_iter().chain(times));
    }
    table
}
