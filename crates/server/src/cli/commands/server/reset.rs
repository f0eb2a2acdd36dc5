//! `tollgate reset`: deletes the consumption of one subject under one rule, by a server or in a shared store.

mod remote;

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use serde_json::json;
use tollgate::core::rules::{Request, RuleSet};
use tollgate::core::{Attributes, SubjectHasher};
use tollgate::engine::Setup;
use tollgate::limiter::FollowUpError;
use tollgate::store::redis::RedisSettings;
use tollgate_document::suggest;

use crate::cli::client::{ClientArgs, DryRun};
use crate::cli::request_args::RequestArgs;
use crate::cli::store_args::{RecordingStore, StoreArgs, store_failure};
use crate::cli::{exit, terminal};
use crate::explanation::describe;
use crate::failure::Failure;
use crate::text::escape_control;

/// Delete the consumption of one subject under one rule
///
/// The subject can use its whole limit again at once. Give the attributes of a request that the rule matches. A server writes
/// the audit row first, if it has a database; the token needs the scope `change`:
///
///   tollgate reset --server https://gate.example.com:9000 --rule exports --reason 'ticket 4711' action=export tenant=acme
///
/// While no server runs, in the store itself, with the hash key of your servers:
///
///   export TOLLGATE_HASH_KEY
///   tollgate reset --rules rules.yaml --store redis://localhost:6379 --rule exports --reason 'ticket 4711' action=export tenant=acme
///
/// The result names the rule, the subject as logs and explanations show it, and the reason. With another hash key, or if the
/// rule does not match the attributes, nothing is deleted.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  the consumption was deleted
  1  the rule does not match the attributes, or finds no subject in them; nothing was deleted
  2  the command line or a file is invalid, or the hash key is not the one of your servers
  3  the store cannot be reached, rejects the credentials, or reports an error; or a server did not answer
  4  the server declined: a missing token or scope

Environment:
  TOLLGATE_SERVER                   server to call if neither --rules nor --server is given
  TOLLGATE_TOKEN                    token for the server; --token-file overrides it
  TOLLGATE_TOKEN_FILE               file with the token; --token-file overrides it
  TOLLGATE_HASH_KEY                 hash key of your servers, 64 hexadecimal digits; --hash-key-file overrides it
  TOLLGATE_STORE_PASSWORD           password of the store; --store-password-file overrides it
  TOLLGATE_STORE_SENTINEL_PASSWORD  password of the sentinels; --store-sentinel-password-file overrides it"
)]
pub(crate) struct Args {
    #[command(flatten)]
    request: RequestArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    client: ClientArgs,
    /// Id of the rule
    #[arg(long, value_name = "ID")]
    rule: String,
    /// Why it is deleted
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    dry_run: DryRun,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.client.is_given() || args.request.rules.is_none() && args.client.has_server_variable()? {
        return remote::run(args);
    }
    let (_, rules) = args.request.load_rules("nothing was deleted")?;
    let only = only_rule(&rules, &args.rule)?;
    let attributes = args.request.attributes()?;
    let Some(settings) = args.store.settings()? else {
        let hint = "pass --store redis://HOST:PORT; a memory store belongs to one server";
        return Err(Failure::new("missing --store: there is no shared store to delete from", hint).into());
    };
    let hasher = args.request.hash_key.required()?;
    // What the rule counts: normal forms.
    let values = only.prepare(&attributes);
    let prepared = values.as_ref().map(|values| values.replace_in(&attributes));
    let counted = prepared.as_ref().unwrap_or(&attributes);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let deleted = match args.dry_run.dry_run {
        true => !only.matching(&attributes).is_empty() && only.rules()[0].per.find(counted).is_ok(),
        false => runtime.block_on(reset(settings, &rules, &only, &attributes, &hasher))?,
    };
    report(args, &only, counted, &hasher, deleted)
}

/// The rule of this id alone, without the lists, so that no other count is deleted.
fn only_rule(rules: &RuleSet, id: &str) -> Result<RuleSet> {
    let Some(only) = rules.only(id) else {
        let ids = rules.rules().iter().map(|rule| rule.keyspace.rule());
        let hint = match suggest(id, ids) {
            Some(near) => format!("did you mean {near}? the ids of a preset's rules are its id and a suffix"),
            None => "`tollgate explain` lists the ids of all rules".to_owned(),
        };
        return Err(Failure::new(format!("unknown rule `{}`", escape_control(id)), hint).into());
    };
    Ok(only)
}

/// Returns whether the rule matched.
async fn reset(
    settings: RedisSettings,
    rules: &RuleSet,
    only: &RuleSet,
    attributes: &Attributes<'_>,
    hasher: &SubjectHasher,
) -> Result<bool> {
    let store = RecordingStore::connect(settings).await?;
    store.check_hash_key(hasher, rules).await?;
    let limiter = Setup::default().rules(only.clone()).hash_key(hasher.clone()).build(store)?;
    let returned = limiter.reset(Request::new(attributes)).await.map_err(|error| match error {
        FollowUpError::Store(error) => store_failure(&error),
        FollowUpError::Check(error) => {
            Failure::new(error.to_string(), "`tollgate explain` shows how the rule treats this request")
        }
    })?;
    Ok(returned.iter().any(|returned| returned.amount.is_ok()))
}

fn report(
    args: &Args,
    only: &RuleSet,
    attributes: &Attributes<'_>,
    hasher: &SubjectHasher,
    deleted: bool,
) -> Result<ExitCode> {
    let rule = &only.rules()[0];
    let subject = rule.per.find(attributes).ok().map(|subject| subject.hash(hasher).prefix());
    let per = format!(" ({})", describe::per(&rule.per));
    print_result(args, subject.filter(|_| deleted).as_deref(), &per)
}

/// Prints what was deleted: the subject, or nothing because the rule has none for these attributes.
fn print_result(args: &Args, subject: Option<&str>, per: &str) -> Result<ExitCode> {
    let is_trial = args.dry_run.dry_run;
    let deleted = subject.is_some() && !is_trial;
    terminal::print(&match (args.format, subject) {
        (Format::Json, subject) => {
            let result = json!({ "rule": args.rule, "subject": subject, "deleted": deleted, "dry_run": is_trial, "reason": args.reason });
            format!("{result}\n")
        }
        (Format::Text, Some(subject)) => format!(
            "{} the consumption of {} under rule {}: {}\n",
            if is_trial { "would delete" } else { "deleted" },
            escape_control(subject),
            escape_control(&args.rule),
            escape_control(&args.reason),
        ),
        (Format::Text, None) => format!(
            "nothing was deleted: rule {} does not match these attributes, or finds no subject{per} in them\n",
            escape_control(&args.rule),
        ),
    })?;
    Ok(if subject.is_some() { exit::SUCCESS } else { exit::NEGATIVE })
}
