//! `tollgate override|deny|bypass`: live changes over the rules file.

mod args;
mod conditions;
mod report;

use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Map, Value, json};

use crate::cli::client::{Call, Client};
use crate::cli::{exit, notation, terminal};
use crate::failure::Failure;
use crate::serve::control::spec::is_id;
use crate::text::escape_control;
use args::{AddArgs, AddDeny, AddOverride, Command, Format, OutputArgs};

pub(crate) use args::{BypassArgs, DenyArgs, OverrideArgs};
pub(super) use report::summary;

/// A kind of live changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum List {
    Overrides,
    Deny,
    Bypass,
}

impl List {
    /// Its name in paths and in the rules file.
    const fn name(self) -> &'static str {
        match self {
            List::Overrides => "overrides",
            List::Deny => "deny",
            List::Bypass => "bypass",
        }
    }

    /// The command.
    const fn command(self) -> &'static str {
        match self {
            List::Overrides => "override",
            List::Deny => "deny",
            List::Bypass => "bypass",
        }
    }

    /// The path of one change. Ids have no character that a path would need to escape.
    fn path_of(self, id: &str) -> Result<String, Failure> {
        if !is_id(id) {
            let hint = format!("`tollgate {} list` shows the ids", self.command());
            return Err(Failure::new(format!("invalid id `{}`", escape_control(id)), hint));
        }
        Ok(format!("/v1/{}/{id}", self.name()))
    }
}

pub(crate) fn run_override(args: &OverrideArgs) -> Result<ExitCode> {
    run(&args.command, List::Overrides, |add| &add.common, override_body)
}

pub(crate) fn run_deny(args: &DenyArgs) -> Result<ExitCode> {
    run(&args.command, List::Deny, |add| &add.common, deny_body)
}

pub(crate) fn run_bypass(args: &BypassArgs) -> Result<ExitCode> {
    run(&args.command, List::Bypass, |add| &add.common, |add| body(&add.common))
}

fn override_body(add: &AddOverride) -> Result<Map<String, Value>, Failure> {
    let mut body = body(&add.common)?;
    body.insert("rule".to_owned(), json!(add.rule));
    if let Some(limit) = &add.limit {
        body.insert("limit".to_owned(), notation::limit_json(limit)?);
    }
    if let Some(scale) = &add.scale {
        body.insert("scale".to_owned(), json!(scale));
    }
    if add.allow_lower {
        body.insert("allow_lower".to_owned(), json!(true));
    }
    Ok(body)
}

fn deny_body(add: &AddDeny) -> Result<Map<String, Value>, Failure> {
    let mut body = body(&add.common)?;
    if let (Some(rule), Some(subject)) = (&add.rule, &add.subject) {
        body.insert("rule".to_owned(), json!(rule));
        body.insert("subject".to_owned(), json!(subject));
    }
    Ok(body)
}

/// The members that changes of all kinds have.
fn body(add: &AddArgs) -> Result<Map<String, Value>, Failure> {
    let mut body = Map::new();
    if !add.when.is_empty() {
        body.insert("when".to_owned(), Value::Object(conditions::to_json(&add.when)?));
    }
    for (name, text) in [("for", &add.r#for), ("until", &add.until), ("id", &add.id)] {
        if let Some(text) = text {
            body.insert(name.to_owned(), json!(text));
        }
    }
    for (name, is_set) in [("all", add.all), ("permanent", add.permanent)] {
        if is_set {
            body.insert(name.to_owned(), json!(true));
        }
    }
    body.insert("reason".to_owned(), json!(add.reason));
    Ok(body)
}

fn run<A: clap::Args>(
    command: &Command<A>,
    list: List,
    common: impl Fn(&A) -> &AddArgs,
    body: impl Fn(&A) -> Result<Map<String, Value>, Failure>,
) -> Result<ExitCode> {
    match command {
        Command::Add(add) => {
            let AddArgs { dry_run, output, .. } = common(add);
            let call = Call::post(format!("/v1/{}", list.name()), Value::Object(body(add)?));
            let added = client(output)?.call(&call.dry_run(dry_run.dry_run))?.json()?;
            print(&added, output, list, Some(if dry_run.dry_run { "would add" } else { "added" }))
        }
        Command::List(args) => {
            let answer = client(&args.output)?.call(&Call::get(format!("/v1/{}", list.name())))?.json()?;
            let changes = answer["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
            terminal::print(&match args.output.format {
                Format::Json => format!("{answer}\n"),
                Format::Yaml => report::yaml(list.name(), changes),
                Format::Text if changes.is_empty() => {
                    format!("no live changes of this kind; `tollgate {} add` makes one\n", list.command())
                }
                Format::Text => report::table(changes).text(),
            })?;
            Ok(exit::SUCCESS)
        }
        Command::Show(args) => {
            let change = client(&args.output)?.call(&Call::get(list.path_of(&args.id)?))?.json()?;
            print(&change, &args.output, list, None)
        }
        Command::Remove(args) => {
            let path = list.path_of(&args.id)?;
            let client = client(&args.output)?;
            // The change that is there now. If another caller changes it in between, the server declines.
            let found = client.call(&Call::get(path.as_str()))?;
            let tag = found.etag().unwrap_or_default();
            let call = Call::delete(path, json!({ "reason": args.reason })).if_match(tag);
            let removed = client.call(&call.dry_run(args.dry_run.dry_run))?.json()?;
            let verb = if args.dry_run.dry_run { "would remove" } else { "removed" };
            print(&removed, &args.output, list, Some(verb))
        }
    }
}

fn client(output: &OutputArgs) -> Result<Client> {
    Client::new(&output.client)
}

/// Prints one change, after what was done with it.
fn print(change: &Value, output: &OutputArgs, list: List, verb: Option<&str>) -> Result<ExitCode> {
    let one = std::slice::from_ref(change);
    terminal::print(&match output.format {
        Format::Json => format!("{change}\n"),
        Format::Yaml => report::yaml(list.name(), one),
        Format::Text => {
            let done = verb.map(|verb| report::done(verb, change)).unwrap_or_default();
            format!("{done}{}", report::details(change))
        }
    })?;
    Ok(exit::SUCCESS)
}
