//! `tollgate override|deny|bypass`: live changes over the rules file.

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Map, Value, json};

use super::{condition, conditions, yaml_to_json};
use crate::cli::client::table::{Align, Table, cell};
use crate::cli::client::{Answer, Call, Client, ClientArgs, DryRun};
use crate::cli::{exit, terminal};
use crate::failure::Failure;
use crate::text::escape_control;

/// Raise or lower a limit while servers run
///
/// An override changes the numbers of one rule for the requests that meet its conditions. It is in force on every server
/// within a second, needs a reason, and ends by itself. The server needs a database and the token the scope `change`.
///
///   tollgate override add --rule search --when tenant=acme --scale 2 --for 2h --reason launch
///   tollgate override add --rule search --when tenant=acme --limit 'token-bucket: 20/s, burst: 40' --for 1d --reason launch
///   tollgate override list
///   tollgate override remove o-1f3a --reason 'the launch is over'
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct OverrideArgs {
    #[command(subcommand)]
    command: Command<AddOverride>,
}

/// Deny requests while servers run
///
/// A deny entry refuses the requests that meet its conditions, or one subject by the hash that logs and `tollgate why` show.
/// It comes before everything else. The server needs a database and the token the scope `change`.
///
///   tollgate deny add --when ip=192.0.2.0/24 --for 1h --reason flood
///   tollgate deny add --rule search --subject AAk3JxQ0b1 --reason abuse
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct DenyArgs {
    #[command(subcommand)]
    command: Command<AddDeny>,
}

/// Let requests pass uncounted while servers run
///
/// No rule checks the requests that meet the conditions of a bypass entry. Deny entries still do. The server needs a database
/// and the token the scope `change`.
///
///   tollgate bypass add --when user=load-test --for 1h --reason 'load test'
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct BypassArgs {
    #[command(subcommand)]
    command: Command<AddBypass>,
}

#[derive(clap::Subcommand)]
enum Command<A: clap::Args> {
    /// Add one
    Add(A),
    /// List all
    List(ListArgs),
    /// Show one
    Show(ShowArgs),
    /// End one
    Remove(RemoveArgs),
}

#[derive(clap::Args)]
struct AddOverride {
    /// Rule whose numbers change
    #[arg(long, value_name = "ID")]
    rule: String,
    /// Limit that replaces the rule's own, as in a rules file
    #[arg(long, value_name = "LIMIT", required_unless_present = "scale", conflicts_with = "scale")]
    limit: Option<String>,
    /// Multiply what would otherwise apply, like 2 or 0.5
    #[arg(long, value_name = "NUMBER")]
    scale: Option<String>,
    /// Give some requests less than now
    #[arg(long)]
    allow_lower: bool,
    #[command(flatten)]
    common: AddArgs,
}

#[derive(clap::Args)]
struct AddDeny {
    /// Rule that counts the subject
    #[arg(long, value_name = "ID", requires = "subject")]
    rule: Option<String>,
    /// Subject to deny, by its hash under --rule
    #[arg(long, value_name = "HASH", requires = "rule", conflicts_with = "when")]
    subject: Option<String>,
    #[command(flatten)]
    common: AddArgs,
}

#[derive(clap::Args)]
struct AddBypass {
    #[command(flatten)]
    common: AddArgs,
}

#[derive(clap::Args)]
struct AddArgs {
    /// Condition on an attribute; can be repeated. `@FILE` reads the value from a file
    #[arg(long, value_name = "NAME=VALUE", value_parser = condition)]
    when: Vec<(String, String)>,
    /// It is meant for all requests
    #[arg(long, conflicts_with = "when")]
    all: bool,
    /// How long it holds, like 2h; at most 30d
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["until", "permanent"])]
    r#for: Option<String>,
    /// When it ends, like 2026-12-01T00:00:00Z
    #[arg(long, value_name = "INSTANT", conflicts_with = "permanent")]
    until: Option<String>,
    /// It has no end
    #[arg(long)]
    permanent: bool,
    /// Why, for the audit trail
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Id of your choice, so that a repeated call is made once
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    dry_run: DryRun,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
struct OutputArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(clap::Args)]
struct ListArgs {
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
struct ShowArgs {
    /// Id of the change
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
struct RemoveArgs {
    /// Id of the change
    #[arg(value_name = "ID")]
    id: String,
    /// Why, for the audit trail
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    dry_run: DryRun,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs: the answer of the server
    Json,
    /// A block for the rules file
    Yaml,
}

pub(crate) fn run_override(args: &OverrideArgs) -> Result<ExitCode> {
    let body = |add: &AddOverride| {
        let mut body = add.common.body()?;
        body.insert("rule".to_owned(), json!(add.rule));
        if let Some(limit) = &add.limit {
            body.insert("limit".to_owned(), yaml_to_json("--limit", limit)?);
        }
        if let Some(scale) = &add.scale {
            body.insert("scale".to_owned(), json!(scale));
        }
        if add.allow_lower {
            body.insert("allow_lower".to_owned(), json!(true));
        }
        Ok(body)
    };
    run(&args.command, "overrides", |add| &add.common, body)
}

pub(crate) fn run_deny(args: &DenyArgs) -> Result<ExitCode> {
    let body = |add: &AddDeny| {
        let mut body = add.common.body()?;
        if let (Some(rule), Some(subject)) = (&add.rule, &add.subject) {
            body.insert("rule".to_owned(), json!(rule));
            body.insert("subject".to_owned(), json!(subject));
        }
        Ok(body)
    };
    run(&args.command, "deny", |add| &add.common, body)
}

pub(crate) fn run_bypass(args: &BypassArgs) -> Result<ExitCode> {
    run(&args.command, "bypass", |add| &add.common, |add| add.common.body())
}

impl AddArgs {
    fn body(&self) -> Result<Map<String, Value>, Failure> {
        let mut body = Map::new();
        let mut put = |name: &str, value: Value| body.insert(name.to_owned(), value);
        if !self.when.is_empty() {
            put("when", Value::Object(conditions(&self.when)?));
        }
        for (name, text) in [("for", &self.r#for), ("until", &self.until), ("id", &self.id)] {
            if let Some(text) = text {
                put(name, json!(text));
            }
        }
        for (name, is_set) in [("all", self.all), ("permanent", self.permanent)] {
            if is_set {
                put(name, json!(true));
            }
        }
        put("reason", json!(self.reason));
        Ok(body)
    }
}

fn run<A: clap::Args>(
    command: &Command<A>,
    list: &str,
    common: impl Fn(&A) -> &AddArgs,
    body: impl Fn(&A) -> Result<Map<String, Value>, Failure>,
) -> Result<ExitCode> {
    match command {
        Command::Add(add) => {
            let common = common(add);
            let call = Call::post(format!("/v1/{list}"), Value::Object(body(add)?));
            let answer = client(&common.output)?.call(&call.dry_run(common.dry_run.dry_run))?;
            let verb = if common.dry_run.dry_run { "would add" } else { "added" };
            print_one(&answer, &common.output, list, verb)
        }
        Command::List(ListArgs { output }) => {
            let answer = client(output)?.call(&Call::get(format!("/v1/{list}")))?.json()?;
            terminal::print(&match output.format {
                Format::Json => format!("{answer}\n"),
                Format::Yaml => yaml(list, changes(&answer)),
                Format::Text if changes(&answer).is_empty() => "no live changes of this kind\n".to_owned(),
                Format::Text => table(changes(&answer)).text(),
            })?;
            Ok(exit::SUCCESS)
        }
        Command::Show(ShowArgs { id, output }) => {
            let answer = client(output)?.call(&Call::get(path(list, id)?))?;
            print_one(&answer, output, list, "")
        }
        Command::Remove(RemoveArgs { id, reason, dry_run, output }) => {
            let client = client(output)?;
            // The version that is there now: nobody else can have read an older one for us.
            let found = client.call(&Call::get(path(list, id)?))?;
            let tag = found.etag().unwrap_or_default().to_owned();
            let call = Call::delete(path(list, id)?, json!({ "reason": reason })).if_match(&tag);
            let answer = client.call(&call.dry_run(dry_run.dry_run))?;
            print_one(&answer, output, list, if dry_run.dry_run { "would end" } else { "ended" })
        }
    }
}

fn client(output: &OutputArgs) -> Result<Client> {
    Client::new(&output.client)
}

/// The path of a change. Ids have no character that a path would need to escape.
fn path(list: &str, id: &str) -> Result<String, Failure> {
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if !is_id {
        let what = format!("invalid id `{}`", escape_control(id));
        return Err(Failure::new(what, format!("`tollgate {} list` shows the ids", list.trim_end_matches('s'))));
    }
    Ok(format!("/v1/{list}/{id}"))
}

fn changes(answer: &Value) -> &[Value] {
    answer["changes"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn print_one(answer: &Answer, output: &OutputArgs, list: &str, verb: &str) -> Result<ExitCode> {
    let change = answer.json()?;
    terminal::print(&match output.format {
        Format::Json => format!("{change}\n"),
        Format::Yaml => yaml(list, std::slice::from_ref(&change)),
        Format::Text => {
            let mut text = table(std::slice::from_ref(&change)).text();
            if !verb.is_empty() {
                let effect = change["effect"].as_str().map(|effect| format!("; it {}", sentence(effect)));
                text = format!("{verb} {}{}\n{text}", cell(&change, "id"), effect.unwrap_or_default());
            }
            text
        }
    })?;
    Ok(exit::SUCCESS)
}

fn sentence(effect: &str) -> &'static str {
    match effect {
        "raises" => "raises the limit",
        "lowers" => "lowers the limit",
        _ => "raises some numbers and lowers others",
    }
}

fn table(changes: &[Value]) -> Table {
    let names = ["id", "rule", "when", "change", "until", "author", "reason", "state"];
    let mut table = Table::new(&names.map(|name| (name, Align::Left)));
    for change in changes {
        let state = match change["in_force"].as_bool() {
            Some(true) => "in force".to_owned(),
            _ => cell(change, "why_not"),
        };
        let until = if change["until"].is_null() { "permanent".to_owned() } else { cell(change, "until") };
        let what = match (&change["scale"], &change["limit"], &change["subject"]) {
            (Value::String(scale), ..) => format!("x {scale}"),
            (_, limit, _) if !limit.is_null() => plain(limit),
            (.., subject) if !subject.is_null() => format!("subject {}", cell(change, "subject")),
            _ => "-".to_owned(),
        };
        let when = plain(&change["when"]);
        let (id, rule) = (cell(change, "id"), cell(change, "rule"));
        table.row([id, rule, when, what, until, cell(change, "author"), cell(change, "reason"), state]);
    }
    table
}

/// A value without quotes, where they are not needed to read it.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect::<Vec<_>>().join(" ")
        }
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// A block for the rules file. What cannot be there is a comment.
fn yaml(list: &str, changes: &[Value]) -> String {
    let mut text = format!("{list}:\n");
    for change in changes {
        let id = escape_control(&cell(change, "id"));
        let has_hash = change["when"]
            .as_object()
            .is_some_and(|when| when.values().any(|value| value.get("hashed").is_some()));
        if has_hash || !change["subject"].is_null() {
            let line = "names a value by its hash; write the value itself into the rules file";
            text.push_str(&format!("  # {id} {line}\n"));
            continue;
        }
        let mut members = Vec::new();
        for name in ["when", "rule", "limit", "scale", "until", "reason"] {
            let value = &change[name];
            if !value.is_null() {
                members.push(format!("{name}: {value}"));
            }
        }
        text.push_str(&format!("  - {{ {} }}\n", members.join(", ")));
    }
    text
}
