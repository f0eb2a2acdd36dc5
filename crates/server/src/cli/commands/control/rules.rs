//! `tollgate rules`: how a file differs from the rules of a server, and which rules were in force when.

mod compare;
mod history;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use crate::cli::client::{Call, Client, ClientArgs, Format};
use crate::cli::request_args::load_rules;
use crate::cli::{exit, terminal};
use crate::explanation::rules_text::RulesText;
use crate::failure::Failure;
use crate::files;
use crate::serve::rules_in_force::fingerprint;
use crate::text::escape_control;
use compare::{compare, text_of};

/// Compare a rules file with the rules of a server, and show which rules were in force when
///
///   tollgate rules diff rules.yaml --server https://gate.example.com:9000
///   tollgate rules history
///   git show HEAD~1:rules.yaml | tollgate rules fingerprint -
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Exit codes:
  0  done, or the rules are equal
  1  the rules differ
  2  the command line or the file is invalid
  3  the server did not answer, or its database did not
  4  the server declined: a missing token or scope, or no database"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: RulesCommand,
}

#[derive(clap::Subcommand)]
enum RulesCommand {
    /// Show how a rules file differs from the rules of a server
    ///
    /// Comments, and the order of the keys of a rule, do not matter. Live changes of the server are left out. Values of secrets
    /// are compared by their digests. The token needs the scope `read`.
    #[command(after_long_help = "\
Exit codes:
  0  the file says what the server's rules say
  1  they differ
  2  the command line or the file is invalid
  3  the server did not answer
  4  the server declined: a missing token or scope

Environment:
  TOLLGATE_SERVER      server to call, like https://gate.example.com:9000; --server overrides it
  TOLLGATE_TOKEN       token; --token-file overrides it
  TOLLGATE_TOKEN_FILE  file with the token; --token-file overrides it")]
    Diff(DiffArgs),
    History(history::Args),
    /// Print the fingerprint of a rules file, as servers, logs and the audit trail show it
    ///
    /// Two texts with the same fingerprint are the same. The file is not checked.
    Fingerprint(FingerprintArgs),
}

#[derive(clap::Args)]
struct DiffArgs {
    /// Rules file, or folder of rules files; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    client: ClientArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(clap::Args)]
struct FingerprintArgs {
    /// Rules file, or folder of rules files; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        RulesCommand::Diff(args) => diff(args),
        RulesCommand::History(args) => history::run(args),
        RulesCommand::Fingerprint(FingerprintArgs { file }) => {
            terminal::print(&format!("{}\n", fingerprint(&files::read_rules(file)?)))?;
            Ok(exit::SUCCESS)
        }
    }
}

fn diff(args: &DiffArgs) -> Result<ExitCode> {
    let (source, rules) = load_rules(&args.file, "nothing was compared")?;
    let theirs = Client::new(&args.client)?.call(&Call::get("/v1/rules?document=true"))?.json()?;
    let (Some(in_force), true) = (theirs["fingerprint"].as_str(), theirs["document"].is_object()) else {
        let hint = "check that --server names a Tollgate server of this release";
        return Err(Failure::of_store("the answer does not have the text of the rules", hint).into());
    };
    let ours = fingerprint(&source);
    let differences = compare(&RulesText::new(&source).document(&rules), &theirs["document"]);
    let is_equal = differences.is_empty();
    terminal::print(&match args.format {
        Format::Json => {
            let result = json!({
                "equal": is_equal,
                "file": { "name": source.name(), "fingerprint": ours },
                "server": { "name": theirs["name"], "fingerprint": in_force },
                "differences": differences,
            });
            format!("{result}\n")
        }
        Format::Text => {
            let lines: String = differences.iter().map(text_of).collect();
            let end = match (is_equal, ours == in_force) {
                (true, true) => format!("no difference; both have the fingerprint {ours}"),
                (true, false) => {
                    format!(
                        "no difference but comments and layout: the file is {ours}, the server has {in_force}"
                    )
                }
                (false, _) => format!("the file is {ours}, the server has {in_force}"),
            };
            format!("{lines}{}\n", escape_control(&end))
        }
    })?;
    Ok(if is_equal { exit::SUCCESS } else { exit::NEGATIVE })
}
