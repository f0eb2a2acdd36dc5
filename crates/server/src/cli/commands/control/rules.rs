//! `tollgate rules`: how a file differs from the rules of a server, and which rules were in force when.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};

use super::audit;
use crate::cli::client::table::{Align, Table, cell};
use crate::cli::client::{Call, Client, ClientArgs, Format};
use crate::cli::request_args::load_rules;
use crate::cli::{exit, terminal};
use crate::explanation::rules_text::RulesText;
use crate::serve::rules_json;
use crate::text::escape_control;

/// Rows of one call.
const PAGE: i64 = 1_000;

/// Compare a rules file with the rules of a server, and show which rules were in force when
///
///   tollgate rules diff rules.yaml --server https://gate.example.com:9000
///   tollgate rules history
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: RulesCommand,
}

#[derive(clap::Subcommand)]
enum RulesCommand {
    /// Show how a rules file differs from the rules of a server
    ///
    /// The exit code is 0 if the rules are equal, and 1 if not. Comments and the order of keys do not matter; live changes of
    /// the server are left out. The token needs the scope `read`.
    Diff(DiffArgs),
    /// Show which rules were in force when, on every server of the database
    History(HistoryArgs),
}

#[derive(clap::Args)]
struct DiffArgs {
    /// Rules file; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    client: ClientArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(clap::Args)]
struct HistoryArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// Output format; JSON is one row per line
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        RulesCommand::Diff(args) => diff(args),
        RulesCommand::History(args) => history(args),
    }
}

fn diff(args: &DiffArgs) -> Result<ExitCode> {
    let (source, rules) = load_rules(&args.file, "nothing was compared")?;
    let theirs = Client::new(&args.client)?.call(&Call::get("/v1/rules"))?.json()?;
    let ours = rules_json(&rules, &RulesText::new(&source));
    let (ours, theirs) = (by_id(&ours), by_id(&theirs));
    let mut lines = Vec::new();
    for (id, rule) in &ours {
        match theirs.get(id) {
            None => lines.push(json!({ "id": id, "change": "added", "file": rule, "server": null })),
            Some(other) if other != rule => {
                lines.push(json!({ "id": id, "change": "changed", "file": rule, "server": other }));
            }
            Some(_) => (),
        }
    }
    for (id, rule) in theirs.iter().filter(|(id, _)| !ours.contains_key(*id)) {
        lines.push(json!({ "id": id, "change": "removed", "file": null, "server": rule }));
    }
    terminal::print(&match args.format {
        Format::Json => format!("{}\n", json!({ "equal": lines.is_empty(), "rules": lines })),
        Format::Text if lines.is_empty() => format!("{} rules, no difference\n", ours.len()),
        Format::Text => lines.iter().map(text_of).collect(),
    })?;
    Ok(if lines.is_empty() { exit::SUCCESS } else { exit::NEGATIVE })
}

/// The rules by id, without what does not change a decision: places in the file and live changes.
fn by_id(rules: &Value) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for (kind, list) in [("rule", "rules"), ("deny", "deny"), ("bypass", "bypass")] {
        for (index, rule) in rules[list].as_array().into_iter().flatten().enumerate() {
            let mut rule = rule.clone();
            if rule["live"] == true {
                continue;
            }
            strip(&mut rule);
            let id = rule["id"].as_str().map_or_else(|| format!("{kind} {}", index + 1), str::to_owned);
            found.insert(id, rule);
        }
    }
    found
}

fn strip(rule: &mut Value) {
    if let Some(members) = rule.as_object_mut() {
        for name in ["file", "line", "live"] {
            members.remove(name);
        }
        if let Some(overrides) = members.get_mut("overrides").and_then(Value::as_array_mut) {
            overrides.retain(|change| change["live"] != true);
            overrides.iter_mut().for_each(strip);
        }
    }
}

fn text_of(line: &Value) -> String {
    let id = escape_control(&cell(line, "id"));
    match line["change"].as_str() {
        Some("added") => format!("+ {id}: only in the file\n"),
        Some("removed") => format!("- {id}: only on the server\n"),
        _ => {
            let (file, server) = (&line["file"], &line["server"]);
            let names = file.as_object().into_iter().flat_map(|members| members.keys());
            let differs = names.filter(|name| file[*name] != server[*name]);
            let shown = |value: &Value| match value {
                Value::String(text) => escape_control(text),
                other => escape_control(&other.to_string()),
            };
            let each = differs.map(|name| {
                format!("    {name}: {} on the server, {} in the file\n", shown(&server[name]), shown(&file[name]))
            });
            format!("~ {id}\n{}", each.collect::<String>())
        }
    }
}

fn history(args: &HistoryArgs) -> Result<ExitCode> {
    let client = Client::new(&args.client)?;
    let mut rows: Vec<Value> = Vec::new();
    let mut after = 0;
    loop {
        let (page, _) = audit::page(&client, after, PAGE)?;
        let is_last = (page.len() as i64) < PAGE;
        after = page.last().and_then(|row| row["seq"].as_i64()).unwrap_or(after);
        let is_about_rules =
            |row: &Value| matches!(row["action"].as_str(), Some("server.started" | "rules.replaced"));
        rows.extend(page.into_iter().filter(is_about_rules));
        if is_last {
            break;
        }
    }
    terminal::print(&match args.format {
        Format::Json => rows.iter().map(|row| format!("{row}\n")).collect(),
        Format::Text if rows.is_empty() => "no rules were loaded since the database was created\n".to_owned(),
        Format::Text => {
            let names = ["at", "server", "rules", "before", "why"];
            let mut table = Table::new(&names.map(|name| (name, Align::Left)));
            for row in &rows {
                let bare = |name: &str| cell(row, name).replace("rules ", "");
                table.row([cell(row, "at"), cell(row, "server"), bare("after"), bare("before"), cell(row, "action")]);
            }
            table.text()
        }
    })?;
    Ok(exit::SUCCESS)
}
