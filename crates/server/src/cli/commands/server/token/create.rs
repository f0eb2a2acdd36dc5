//! `tollgate token new`: a random token, and the line of the configuration that accepts it.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::json;

use crate::access::Digest;
use crate::cli::{exit, terminal};
use crate::config::TOKEN_PREFIX;
use crate::failure::Failure;

#[derive(clap::Args)]
pub(super) struct NewArgs {
    /// Name of the token, which logs contain; required for the scopes change and admin [default: client]
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
    /// What the token permits; separate scopes by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "check")]
    scopes: Vec<Scope>,
    /// Attribute value that the token is bound to, like tenant=acme; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = attribute)]
    attribute: Vec<(String, String)>,
    /// Id of a rule that the token is bound to, like log-in; repeatable
    #[arg(long, value_name = "ID", value_parser = rule)]
    rule: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Scope {
    /// Checks, peeks, leases, reservations and usage
    Check,
    /// Refunds, settlements and cancellations by receipt
    Refund,
    /// Reports of results to penalty limits
    Report,
    /// Charges after the fact and credits
    Record,
    /// Metrics only
    Metrics,
    /// Reading: metrics, rules, explanations
    Read,
    /// Live changes: resets
    Change,
    /// Administration
    Admin,
}

fn attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE, like tenant=acme".to_owned()),
    }
}

fn rule(text: &str) -> Result<String, String> {
    crate::config::rule_id(text).map(|()| text.to_owned())
}

fn name(text: &str) -> Result<String, String> {
    crate::config::token_name(text).map(|()| text.to_owned())
}

pub(super) fn run(args: &NewArgs) -> Result<ExitCode> {
    let has_named_only = args.scopes.iter().any(|scope| matches!(scope, Scope::Change | Scope::Admin));
    if has_named_only && args.name.is_none() {
        let hint = "add --name, which logs contain, like --name operator";
        return Err(Failure::new("tokens with the scope change or admin need a name", hint).into());
    }
    let is_family =
        |scope: &Scope| matches!(scope, Scope::Check | Scope::Refund | Scope::Report | Scope::Record);
    let is_bound = !args.attribute.is_empty() || !args.rule.is_empty();
    if is_bound && !args.scopes.iter().all(is_family) {
        let hint = "give a bound token only check, refund, report and record";
        let fault = "a token with --attribute or --rule has a scope that concerns all attributes and rules";
        return Err(Failure::new(fault, hint).into());
    }
    let name = args.name.as_deref().unwrap_or("client");
    let mut random = [0; 32];
    getrandom::fill(&mut random).context("cannot get random numbers from the operating system")?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let token = format!("{TOKEN_PREFIX}{digits}");
    let mut scopes: Vec<String> = Vec::new();
    for name in args.scopes.iter().filter_map(ValueEnum::to_possible_value) {
        if !scopes.iter().any(|scope| scope == name.get_name()) {
            scopes.push(name.get_name().to_owned());
        }
    }
    let digest = Digest::of(token.as_bytes());
    terminal::print(&format!("{token}\n"))?;
    let mut bound = String::new();
    if !args.attribute.is_empty() {
        let pairs = args.attribute.iter().map(|(name, value)| format!("{}: {}", json!(name), json!(value)));
        bound.push_str(&format!(", attributes: {{ {} }}", pairs.collect::<Vec<_>>().join(", ")));
    }
    if !args.rule.is_empty() {
        bound.push_str(&format!(", rules: [{}]", args.rule.join(", ")));
    }
    crate::stderr::write(&format!(
        "\ntokens:\n  - {{ name: {name}, digest: \"{digest}\", scopes: [{}]{bound} }}\n",
        scopes.join(", ")
    ));
    Ok(exit::SUCCESS)
}
