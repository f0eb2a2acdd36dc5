//! Checks that a server makes.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};

use super::Args;
use super::report::Format;
use crate::cli::client::table::{Align, Table, cell, duration_cell, instant_cell};
use crate::cli::client::{Call, Client};
use crate::cli::{exit, terminal};
use crate::failure::Failure;

/// Asks the server, and prints its decisions.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let request = &args.request;
    if request.rules.is_some() || request.hash_key.is_given() || !args.at.is_empty() {
        let hint = "remove --rules, --hash-key-file, --hash-key-id and --at: the server has its own rules, key and clock";
        return Err(Failure::new("--server cannot be combined with what decides here", hint).into());
    }
    let mut body = json!({ "attributes": request.attributes.to_json()? });
    if let Some(cost) = request.cost {
        body["cost"] = cost.into();
    }
    if let Some(id) = &args.id {
        body["id"] = id.as_str().into();
    }
    let call = Call::post(if args.peek { "/v1/peek" } else { "/v1/check" }, body).accept_refusals();
    let client = Client::new(&args.client)?;
    let mut table = table();
    let mut refused = 0_u32;
    for _ in 0..args.times {
        let decision = client.call(&call)?.json()?;
        refused += u32::from(decision["allowed"] != true);
        match args.format {
            Format::Json => terminal::print(&format!("{decision}\n"))?,
            Format::Table => add(&mut table, &decision),
        }
    }
    if args.format == Format::Table {
        terminal::print(&format!(
            "{}\n{} admitted, {refused} refused\n",
            table.text(),
            args.times - refused
        ))?;
    }
    Ok(if refused == 0 { exit::SUCCESS } else { exit::NEGATIVE })
}

fn table() -> Table {
    Table::new(&[
        ("answer", Align::Left),
        ("rule", Align::Left),
        ("remaining", Align::Right),
        ("delay", Align::Right),
        ("retry after", Align::Right),
        ("whole again at", Align::Left),
        ("source", Align::Left),
    ])
}

/// Adds the headline, and every rule if there are several.
fn add(table: &mut Table, decision: &Value) {
    let row = |answer: &str, name: String, of: &Value, source: String| {
        let (remaining, delay) = (cell(of, "remaining"), duration_cell(of, "delay_ms"));
        let (retry, reset) = (duration_cell(of, "retry_after_ms"), instant_cell(of, "reset_at_ms"));
        [answer.to_owned(), name, remaining, delay, retry, reset, source]
    };
    let answer = if decision["allowed"] == true { "admitted" } else { "refused" };
    table.row(row(answer, cell(decision, "rule"), decision, cell(decision, "source")));
    let rules = decision["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    for rule in rules.iter().filter(|_| rules.len() > 1) {
        let answer = if rule["allowed"] == true { "admits" } else { "refuses" };
        let shadow = if rule["blocking"] == true { "" } else { " (shadow)" };
        table.row(row(answer, format!("  {}{shadow}", cell(rule, "rule")), rule, String::new()));
    }
}
