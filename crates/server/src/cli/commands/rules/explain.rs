//! `tollgate explain`: how the rules treat one request, and why.

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use tollgate::core::{SubjectHashers, Time};
use tollgate::{Clock, SystemClock};

use crate::cli::request_args::{RequestArgs, instant};
use crate::cli::{exit, hash_key, terminal};
use crate::explanation::rules_text::RulesText;
use crate::explanation::{Explanation, json, text};

/// Explain how the rules treat one request
///
/// The command prints which rules match and why the others do not, each rule's subject, the limit in force and its position
/// in the file, the cost, and the resulting Plan. It charges nothing and contacts no store.
///
///   tollgate explain --rules rules.yaml action=search tenant=acme api_key=k-1
///   tollgate explain --rules rules.yaml --at 2026-12-24T18:00:00Z --cost 5 action=export tenant=acme
///
/// Subjects are hashed with a secret key, and the hash decides which subjects are in a rollout. Without --hash-key-file and
/// TOLLGATE_HASH_KEY, an example key is used: hashes and rollouts then differ from those of your servers.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  the request was explained, whether it would be allowed or not
  2  the command line or a file is invalid; all problems of the rules file are printed"
)]
pub(crate) struct Args {
    #[command(flatten)]
    request: RequestArgs,
    /// Time of the request, like 2026-12-01T00:00:00Z [default: now]
    #[arg(long, value_name = "RFC3339", value_parser = instant)]
    at: Option<Time>,
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
    let (source, rules) = args.request.load_rules("nothing is explained")?;
    let hash_key = args.request.hash_key.get()?;
    let example_key = hash_key.is_none();
    let hashers = SubjectHashers::from(hash_key.unwrap_or_else(hash_key::example));
    let attributes = args.request.attributes()?;
    let now = args.at.unwrap_or_else(|| SystemClock.now());
    // What rules see: normal forms, and the readings of the path.
    let values = rules.prepare(&attributes);
    let prepared = values.as_ref().map(|values| values.replace_in(&attributes));
    let request = args.request.request(prepared.as_ref().unwrap_or(&attributes));
    let rules_text = RulesText::new(&source);
    let explanation = Explanation::new(&rules, &rules_text, request, (&hashers, example_key), now);
    terminal::print(&match args.format {
        Format::Text => text::text(&explanation),
        Format::Json => format!("{:#}\n", json::json(&explanation)),
    })?;
    Ok(exit::SUCCESS)
}
